"""``choicewise run``: evaluate a model on a dataset under protocols."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.output import command_line, tell
from choicewise.cli.plan import print_plan, token_savings
from choicewise.cli.progress import progress
from choicewise.cli.report import print_rows
from choicewise.errors import UsageError

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset
    from choicewise.protocols.protocol import Protocol
    from choicewise.results.run import Run


def run(
    model: options.Model,
    data: options.Data,
    protocol: options.Protocols,
    out: Annotated[
        Path | None, typer.Option("--out", readable=False, help="The run folder: new, or an earlier one to go on with.")
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
    every: options.All = False,
    json: options.Json = False,
) -> None:
    """Evaluate a model on a dataset under every named protocol, and print the table.

    Repeating the same line goes on where it was interrupted, and does nothing when everything is there.
    """
    rescore = {"rescore_near_ties": rescore_near_ties}
    options.refuse_for_fakes(model, dtype=dtype, device=device, window=window, batch_tokens=batch_tokens, **rescore)
    if dtype == options.Dtype.float32:
        options.refuse_without_use("--dtype float32 has", **rescore)
    if dry_run:
        options.refuse_without_use("--dry-run counts what is asked first and has", **rescore, all=every)
    if json:
        options.refuse_without_use("--json prints every number and has", all=every)
    if out is None and not dry_run:
        raise UsageError("--out is missing: the folder for the observations; --dry-run needs none")

    # What is wrong is said as early as can be: each step loads more than the one before.
    from choicewise.protocols.catalogue import resolve

    recipes = resolve(*protocol)
    if out is not None:
        from choicewise.store.folder import check_folder

        check_folder(out)
    from choicewise.data.columns import read_mapping
    from choicewise.data.open_dataset import open_dataset

    columns = None if mapping is None else read_mapping(mapping)
    dataset = open_dataset(data, on_bad_item=on_bad_item, columns=columns)
    _tell_repeated_choices(dataset, recipes, subject, limit)
    _tell_unused_content(dataset, recipes)
    from choicewise.models.load import load_model

    load = partial(load_model, model, device=device, window=window, batch_tokens=batch_tokens)
    language_model = load(dtype=dtype)
    skip = on_bad_item == options.OnBadItem.skip
    chosen: dict[str, Any] = {"subjects": subject, "limit": limit, "skip_bad_items": skip}
    if out is None or dry_run:
        from choicewise.running.plan import plan

        with progress(f"plan of {language_model.name}") as report:
            planned = plan(language_model, dataset, recipes, progress=report, **chosen)
        print_plan(planned, language_model, json)
        return
    if rescore_near_ties:
        if language_model.dtype not in ("bfloat16", "float16"):
            options.refuse_without_use(f"{model} computes in {language_model.dtype} here and has", **rescore)
        chosen["rescore_near_ties"] = partial(load, dtype="float32")
    from choicewise.results.ranks import ranked
    from choicewise.results.summary import keep_summary
    from choicewise.running.evaluate import evaluate
    from choicewise.running.memory import give_memory_back

    with progress(language_model.name, lambda: language_model.computed) as report:
        result = evaluate(model=language_model, data=dataset, protocols=recipes, out=out, progress=report, **chosen)
    del dataset
    give_memory_back()  # the table of a run of many items needs it
    print_rows(ranked([row for row in keep_summary(result).rows if row.protocol in recipes]), json, every)
    _tell_summary(result, out, command_line("check", "--model", model, *([] if dtype is None else ["--dtype", dtype])))


def _tell_repeated_choices(
    dataset: Dataset, recipes: dict[str, Protocol], subject: list[str] | None, limit: int | None
) -> None:
    from choicewise.data.item import duplicate_choices
    from choicewise.requests.blocks import list_sections

    items = (item for section in list_sections(dataset, recipes, subject, limit) for item in section.items)
    repeated = [item.id for item in items if duplicate_choices(item)]
    if len(repeated) == 1:
        tell(f"note: item {repeated[0]} shows the same choice twice and is kept")
    elif repeated:
        tell(f"note: {len(repeated)} items show the same choice twice and are kept: {repeated[0]}, ...")


def _tell_unused_content(dataset: Dataset, recipes: dict[str, Protocol]) -> None:
    from choicewise.data.content import BLANK
    from choicewise.protocols.unused import unused_by

    for content, names in unused_by(recipes, dataset.content).items():
        fields = " and ".join("the blank _ in the questions" if name == BLANK else f"field {name}" for name in content)
        more = f" and {len(names) - 1} more" * (len(names) > 1)
        tell(f"note: {names[0]}{more} leave out what belongs to the questions: {fields}")


def _tell_summary(result: Run, out: Path, check_line: str) -> None:
    check, spent = result.manifest.engine.selfcheck, result.manifest.engine.spent
    if check is not None and check.rung not in ("flex", "tree"):
        tell(f"path {check.rung!r}: {check.cost}; `{check_line}` says why")
    if spent is not None:
        tell(token_savings(spent.tokens_asked, spent.tokens_computed))
    if unanswered := result.unanswered:
        count = "1 item" if len(unanswered) == 1 else f"{len(unanswered)} items"
        example = command_line("explain", out, "--item", unanswered[0])
        tell(f"note: the model answers with NaN about {count}, missing where that is read; `{example}` shows one")
    tell(f"wrote {out}; `{command_line('report', out)}` shows this table again")
