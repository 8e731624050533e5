"""``choicewise run``: evaluate a model on a dataset under protocols."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.plan import print_plan, token_savings
from choicewise.cli.progress import progress
from choicewise.cli.report import print_rows
from choicewise.errors import UsageError

if TYPE_CHECKING:
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
        bool, typer.Option("--rescore-near-ties", help="Rescore in float32 what 16-bit arithmetic leaves undecided.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked and how long it takes.")] = False,
    json: options.Json = False,
) -> None:
    """Evaluate a model on a dataset under every named protocol, and print the table.

    Repeating the same line goes on where it was interrupted, and does nothing when everything is there.
    """
    from choicewise.data.columns import read_mapping
    from choicewise.data.item import duplicate_choices
    from choicewise.data.open_dataset import open_dataset
    from choicewise.models.load import load_model
    from choicewise.protocols.catalogue import resolve
    from choicewise.requests.blocks import list_sections
    from choicewise.results.ranks import ranked
    from choicewise.running.evaluate import evaluate
    from choicewise.running.plan import plan
    from choicewise.store.folder import check_folder

    if out is not None:
        check_folder(out)
    elif not dry_run:
        raise UsageError("--out is missing: the folder for the observations; --dry-run needs none")
    recipes = resolve(*protocol)
    columns = None if mapping is None else read_mapping(mapping)
    dataset = open_dataset(data, on_bad_item=on_bad_item, columns=columns)
    items = (item for section in list_sections(dataset, recipes, subject, limit) for item in section.items)
    repeated = [item.id for item in items if duplicate_choices(item)]
    if len(repeated) == 1:
        print(f"note: item {repeated[0]} shows the same choice twice and is kept", file=sys.stderr)
    elif repeated:
        count, first = len(repeated), repeated[0]
        print(f"note: {count} items show the same choice twice and are kept: {first}, ...", file=sys.stderr)
    load = partial(load_model, model, device=device, window=window, batch_tokens=batch_tokens)
    language_model = load(dtype=dtype)
    skip = on_bad_item == options.OnBadItem.skip
    chosen: dict[str, Any] = {"subjects": subject, "limit": limit, "skip_bad_items": skip}
    if out is None or dry_run:
        print_plan(plan(language_model, dataset, recipes, **chosen), language_model, json)
        return
    rescored = rescore_near_ties and language_model.dtype in ("bfloat16", "float16")
    if rescore_near_ties and not rescored:
        print(f"note: --rescore-near-ties does nothing in {language_model.dtype}", file=sys.stderr)
    chosen["rescore_near_ties"] = partial(load, dtype="float32") if rescored else None
    with progress(language_model.name) as report:
        result = evaluate(model=language_model, data=dataset, protocols=recipes, out=out, progress=report, **chosen)
    print_rows(ranked([row for row in result.rows() if row.protocol in recipes]), json)
    _print_summary(result, out)


def _print_summary(result: Run, out: Path) -> None:
    check, spent = result.manifest.engine.selfcheck, result.manifest.engine.spent
    if check is not None and check.rung not in ("flex", "tree"):
        print(f"path {check.rung!r}: {check.cost}; `choicewise check` says why", file=sys.stderr)
    if spent is not None:
        print(token_savings(spent.tokens_asked, spent.tokens_computed), file=sys.stderr)
    if unanswered := result.unanswered:
        count = "1 item" if len(unanswered) == 1 else f"{len(unanswered)} items"
        print(
            f"note: the model answers with NaN about {count}, missing where that is read; "
            f"`choicewise explain {out} --item {shlex.quote(unanswered[0])}` shows one",
            file=sys.stderr,
        )
    print(f"wrote {out}; `choicewise report {out}` shows this table again", file=sys.stderr)
