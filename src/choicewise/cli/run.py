"""``choicewise run``: evaluate a model on a dataset under protocols."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.progress import progress

if TYPE_CHECKING:
    from choicewise.run import Run


def run(
    model: options.Model,
    data: options.Data,
    protocol: options.Protocols,
    out: Annotated[Path, typer.Option("--out", help="The run folder: new, or an earlier one to go on with.")],
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
    from choicewise.data.open import open_dataset
    from choicewise.evaluation import evaluate
    from choicewise.models.load import load_model
    from choicewise.plan import plan
    from choicewise.protocols.catalogue import resolve
    from choicewise.report.rows import ranked

    protocols = resolve(*protocol)
    columns = None if mapping is None else read_mapping(mapping)
    dataset = open_dataset(data, on_bad_item=on_bad_item, columns=columns)
    for split, items in dataset.duplicate_choices.items():
        print(
            f"note: {len(items)} {split} items show the same choice twice and are kept: {items[0]}, ...",
            file=sys.stderr,
        )
    answering = load_model(model, dtype=dtype, device=device, window=window, batch_tokens=batch_tokens)
    if dry_run:
        planned = plan(
            answering,
            dataset,
            protocols,
            subjects=subject,
            limit=limit,
            skip_bad_items=on_bad_item == options.OnBadItem.skip,
        )
        print_plan(planned, answering, json)
        return
    wide = partial(load_model, model, dtype="float32", device=device, window=window)
    narrow = rescore_near_ties and answering.dtype in ("bfloat16", "float16")
    with progress(answering.name) as report:
        found = evaluate(
            model=answering,
            data=dataset,
            protocols=protocols,
            out=out,
            subjects=subject,
            limit=limit,
            skip_bad_items=on_bad_item == options.OnBadItem.skip,
            rescore_near_ties=wide if narrow else None,
            progress=report,
        )
    wanted = [row for row in found.rows() if row.protocol in protocols]
    print_rows(ranked(wanted), json)
    _tell(found, out)


def _tell(found: Run, out: Path) -> None:
    """What the run took and where it is, on stderr."""
    from choicewise.cli.plan import saved

    engine = found.manifest.engine
    if engine.get("rung") not in (None, "flex", "tree"):
        print(f"path {engine['rung']!r}: {engine['cost']}; `choicewise check` says why", file=sys.stderr)
    if spent := engine.get("spent"):
        print(saved(spent["asked"], spent["computed"]), file=sys.stderr)
    print(f"wrote {out}; `choicewise report {out}` shows this table again", file=sys.stderr)
