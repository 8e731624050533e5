"""``choicewise run``: evaluate a model on a dataset under protocols."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.progress import progress
from choicewise.errors import UsageError

if TYPE_CHECKING:
    from choicewise.data.item import Item
    from choicewise.models.model import Model
    from choicewise.results.run import Run


def run(
    model: options.Model,
    data: options.Data,
    protocol: options.Protocols,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run folder: new, or an earlier one to go on with.")
    ] = None,
    subject: options.Subjects = None,
    limit: options.Limit = None,
    on_bad_item: options.BadItems = options.OnBadItem.error,
    mapping: options.Mapping = None,
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    window: options.Window = None,
    batch_tokens: options.BatchTokens = None,
    rescore_near_ties: Annotated[
        bool, typer.Option("--rescore-near-ties", help="Settle what 16-bit arithmetic leaves open in float32.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked and how long it takes.")] = False,
    json: options.Json = False,
) -> None:
    """Evaluate a model on a dataset under every named protocol, and print the table.

    Repeating the same line goes on where it was interrupted, and does nothing when everything is there.
    """
    from choicewise.cli.plan import print_plan
    from choicewise.cli.report import print_rows
    from choicewise.data.columns import read_mapping
    from choicewise.data.open_dataset import open_dataset
    from choicewise.models.load import load_model
    from choicewise.protocols.catalogue import resolve
    from choicewise.requests.schedule import list_blocks
    from choicewise.results.ranks import ranked
    from choicewise.running.evaluate import evaluate
    from choicewise.running.plan import plan
    from choicewise.store.folder import check_folder

    if out is not None:
        check_folder(out)
    elif not dry_run:
        raise UsageError("--out is missing: the folder for what is observed; --dry-run needs none")
    protocols, skip = resolve(*protocol), on_bad_item == options.OnBadItem.skip
    columns = None if mapping is None else read_mapping(mapping)
    dataset = open_dataset(data, on_bad_item=on_bad_item, columns=columns)
    _note_doubles([item for block in list_blocks(dataset, protocols, subject, limit) for item in block.items])
    load = partial(load_model, model, device=device, window=window, batch_tokens=batch_tokens)
    answering = load(dtype=dtype)
    if out is None or dry_run:
        planned = plan(answering, dataset, protocols, subjects=subject, limit=limit, skip_bad_items=skip)
        print_plan(planned, answering, json)
        return
    with progress(answering.name) as report:
        found = evaluate(
            model=answering,
            data=dataset,
            protocols=protocols,
            out=out,
            subjects=subject,
            limit=limit,
            skip_bad_items=skip,
            rescore_near_ties=partial(load, dtype="float32") if rescore_near_ties and _narrow(answering) else None,
            progress=report,
        )
    wanted = [row for row in found.rows() if row.protocol in protocols]
    print_rows(ranked(wanted), json)
    _tell(found, out)


def _note_doubles(items: Sequence[Item]) -> None:
    """Say on stderr which of the items that will be asked show the same choice twice."""
    from choicewise.data.item import duplicate_choices

    found = [item.id for item in items if duplicate_choices(item)]
    if len(found) == 1:
        print(f"note: item {found[0]} shows the same choice twice and is kept", file=sys.stderr)
    elif found:
        print(f"note: {len(found)} items show the same choice twice and are kept: {found[0]}, ...", file=sys.stderr)


def _narrow(answering: Model) -> bool:
    """Whether float32 could settle what this model leaves open; a note on stderr where it could not."""
    if answering.dtype in ("bfloat16", "float16"):
        return True
    print(f"note: --rescore-near-ties has nothing to settle in {answering.dtype}", file=sys.stderr)
    return False


def _tell(found: Run, out: Path) -> None:
    """What the run took and where it is, on stderr."""
    from choicewise.cli.plan import saved

    engine = found.manifest.engine
    if engine.get("rung") not in (None, "flex", "tree"):
        print(f"path {engine['rung']!r}: {engine['cost']}; `choicewise check` says why", file=sys.stderr)
    if spent := engine.get("spent"):
        print(saved(spent["asked"], spent["computed"]), file=sys.stderr)
    if unanswered := found.tables.unanswered:
        told = "1 item" if len(unanswered) == 1 else f"{len(unanswered)} items"
        print(
            f"note: the model answers with NaN about {told}, missing where that is read; "
            f"`choicewise explain {out} --item {shlex.quote(unanswered[0])}` shows one",
            file=sys.stderr,
        )
    print(f"wrote {out}; `choicewise report {out}` shows this table again", file=sys.stderr)
