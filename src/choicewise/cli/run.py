"""``choicewise run``: evaluate a model on a dataset under protocols."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.evaluation import Evaluation, spread
from choicewise.cli.output import command_line, tell
from choicewise.cli.plan import print_plan, token_savings
from choicewise.cli.progress import progress
from choicewise.cli.rows import print_rows
from choicewise.cli.several import plan_several, run_several
from choicewise.errors import UsageError

if TYPE_CHECKING:
    from choicewise.results.run import Run


def run(
    model: options.Model,
    protocol: options.Protocols,
    data: options.Data = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            readable=False,
            help="The run folder: new, or an earlier one to go on with. Several benchmarks have one folder for all.",
        ),
    ] = None,
    subject: options.Subjects = None,
    limit: options.Limit = None,
    chat: options.Chat = None,
    system: options.System = None,
    adapter: options.Adapter = None,
    include_path: options.IncludePath = None,
    allow_task_code: options.AllowTaskCode = False,
    on_bad_item: options.BadItems = options.OnBadItem.error,
    mapping: options.Mapping = None,
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    window: options.Window = None,
    tokenizer: options.Tokenizer = None,
    batch_tokens: options.BatchTokens = None,
    executor: options.Executor = options.Kind.local,
    workers: options.Workers = None,
    rescore_near_ties: Annotated[
        bool, typer.Option("--rescore-near-ties", help="Rescore in float32 what 16-bit arithmetic leaves undecided.")
    ] = False,
    without_missing: options.WithoutMissing = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked and how long it takes.")] = False,
    every: options.All = False,
    json: options.Json = False,
) -> None:
    """Evaluate a model on a dataset under every named protocol, and print the table.

    Without --data, protocols are asked on the data of their own benchmarks, and a suite (leaderboard/v1) on all of its
    own; then the report has its average. Repeating the same line goes on where it was interrupted, and does nothing
    when everything is there.
    """
    rescore = {"rescore_near_ties": rescore_near_ties}
    asked = Evaluation(
        model,
        data,
        subject,
        limit,
        on_bad_item,
        mapping,
        dtype,
        device,
        window,
        batch_tokens,
        chat,
        system,
        adapter,
        include_path,
        allow_task_code,
        tokenizer,
        executor,
        workers,
    )
    asked.refuse_foreign(**rescore)
    if dtype == options.Dtype.float32:
        options.refuse_without_use("--dtype float32 has", **rescore)
    if dry_run:
        alone = {**rescore, **spread(executor, workers)}
        options.refuse_without_use("--dry-run counts what is asked first and has", **alone, all=every)
    if json:
        options.refuse_without_use("--json prints every number and has", all=every)
    if out is None and not dry_run:
        raise UsageError("--out is missing: the folder for the observations; --dry-run needs none")

    # What is wrong is said as early as can be: each step loads more than the one before.
    asked.resolve(protocol)
    sources = asked.sources(protocol)
    if len(sources) == 1:
        options.refuse_without_use("one dataset has", without_missing=without_missing)
    elif out is None or dry_run:
        plan_several(asked, sources, without_missing, json)
        return
    else:
        run_several(asked, sources, protocol, out, without_missing, rescore_near_ties, json, every)
        return
    if out is not None:
        from choicewise.store.folder import check_folder

        check_folder(out)
    dataset, recipes = asked.open(sources[0])
    language_model = asked.load()
    if out is None or dry_run:
        from choicewise.running.plan import plan

        with progress(f"plan of {language_model.name}") as report:
            rendered = sources[0].rendered
            planned = plan(language_model, dataset, recipes, rendered=rendered, progress=report, **asked.chosen)
        print_plan(planned, language_model, json)
        return
    more: dict[str, Any] = {"rendered": sources[0].rendered}
    if rescore_near_ties:
        if language_model.dtype not in ("bfloat16", "float16"):
            options.refuse_without_use(f"{model} computes in {language_model.dtype} here and has", **rescore)
        more["rescore_near_ties"] = partial(asked.load, dtype="float32")
    from choicewise.results.ranks import ranked
    from choicewise.results.summary import keep_summary
    from choicewise.running.memory import give_memory_back

    result = asked.into(out, language_model, dataset, recipes, **more)
    del dataset
    give_memory_back()  # the table of a run of many items needs it
    print_rows(ranked([row for row in keep_summary(result).rows if row.protocol in recipes]), [out], json, every)
    options_of_check = {"--model": model, "--adapter": adapter, "--dtype": dtype, "--tokenizer": tokenizer}
    words = [word for name, value in options_of_check.items() if value is not None for word in (name, value)]
    _tell_summary(result, out, command_line("check", *words))


def _tell_summary(result: Run, out: Path, check_line: str) -> None:
    check, spent = result.manifest.engine.selfcheck, result.manifest.engine.spent
    if check is not None and result.manifest.server is None and check.rung not in ("flex", "tree"):
        tell(f"path {check.rung!r}: {check.cost}; `{check_line}` says why")
    if spent is not None:
        tell(token_savings(spent))
    if unanswered := result.unanswered:
        count = "1 item" if len(unanswered) == 1 else f"{len(unanswered)} items"
        example = command_line("explain", out, "--item", unanswered[0])
        tell(f"note: the model answers with NaN about {count}, missing where that is read; `{example}` shows one")
    tell(f"wrote {out}; `{command_line('report', out)}` shows this table again")
