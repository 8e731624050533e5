"""Run, sweep, ladder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.options import Evaluation, begun_words, spread, tell_notes
from choicewise.cli.report import print_folders
from choicewise.cli.terminal import (
    print_json,
    print_parts,
    print_rows,
    progress,
    show,
    show_download,
    tell,
    typed_words,
)
from choicewise.errors import UsageError
from choicewise.interchange.harness_tasks.files import split_tasks
from choicewise.running.progress import duration
from choicewise.util.text import command_line

if TYPE_CHECKING:
    from choicewise.models.model import Model
    from choicewise.protocols.between import End
    from choicewise.records import Spent, Sweep
    from choicewise.results.ladder import Ladder
    from choicewise.results.run import Run
    from choicewise.running.plan import Plan
    from choicewise.running.sources import Chosen, OpenedSource, Source, SweepModel
    from choicewise.running.sweep import Asked


def run(
    model: options.ModelName,
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
    mapping: options.MappingFile = None,
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    window: options.Window = None,
    tokenizer: options.Tokenizer = None,
    batch_tokens: options.BatchTokens = None,
    executor: options.Executor = options.Kind.local,
    workers: options.Workers = None,
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
    asked.refuse_foreign()
    if dry_run:
        alone = spread(executor, workers)
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
        run_several(asked, sources, protocol, out, without_missing, json, every)
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
    from choicewise.results.outcomes import ranked
    from choicewise.results.summary import keep_summary
    from choicewise.util.background import give_memory_back

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


INCOMPLETE = 7
"""The exit code where something is missing."""


def sweep(
    plan: Annotated[
        Path | None, typer.Argument(metavar="[PLAN.toml]", readable=False, help="Models, data and protocols.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", readable=False, help="The folder of all runs: new, or an earlier one to go on with."),
    ] = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="As in `choicewise run`. Repeatable.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="As in `choicewise run`: each protocol on all that it can ask. Repeatable."),
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="As in `choicewise run`. Repeatable.")
    ] = None,
    include_path: options.IncludePath = None,
    allow_task_code: options.AllowTaskCode = False,
    limit: options.Limit = None,
    on_bad_item: options.BadItems = options.OnBadItem.error,
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    batch_tokens: options.BatchTokens = None,
    tokenizer: options.Tokenizer = None,
    executor: options.Executor = options.Kind.local,
    workers: options.Workers = None,
    every: options.All = False,
    json: options.Json = False,
) -> None:
    """Evaluate several models under protocols and suites, and print the tables and averages.

    Models come one after another, or with `--executor ray` at once, as many as the cluster has room for: in the order
    in which they are named, each when there are free GPUs, cores and memory for it. The last ones share what is left.

    A failure (a model that is not there, data that are missing, a window too small) is recorded, and the sweep goes on;
    the same line continues it, and opens nothing again that is complete. Exit code 7: something is missing.

    PLAN.toml has `models` and `protocols`, lists of names, and may have `data`, a list of paths, and `subjects`,
    `limit`, `on_bad_item`, `dtype`, `device`, `window`, `batch_tokens`, `tokenizer`, `memory`. A model may be a table
    with `name`, `revisions` (folders inside, or revisions on the Hub), `chat`, `system`, `adapter` and its own `dtype`,
    `device`, `window`, `batch_tokens`, `tokenizer`, `memory`; data a table with `path`, `benchmark` (whose place it
    takes) and `mapping` (a file or a table). `memory` is what a copy of the model takes of GPUs, or of main memory on a
    CPU, as in "12 GB"; left out, it is known from the model's files. Only Ray asks for it.
    """
    if out is None:
        raise UsageError("--out is missing: the folder of all runs")
    if json:
        options.refuse_without_use("--json prints every number and has", all=every)
    skip = "skip" if on_bad_item == options.OnBadItem.skip else None
    given: dict[str, object] = {"model": model, "data": data, "protocol": protocol, "limit": limit}
    given |= {"on_bad_item": skip, "dtype": None if dtype is None else str(dtype)}
    given |= {"device": device, "batch_tokens": batch_tokens, "tokenizer": tokenizer}
    tasks = _Tasks(include_path or [], allow_task_code)
    asked = _asked(plan, {name: value for name, value in given.items() if value is not None}, tasks)
    from choicewise.running.workers import Parallel

    asked = replace(asked, parallel=Parallel(str(executor), workers))
    record = do_sweep(asked, out, "all runs")
    print_folders([out], json, every)
    if missing := record.missing:
        tell(f"{len(missing)} of {len(record.cells)} runs are missing:")
        tell(*(f"  {cell.model} on {cell.dataset}: {cell.failure or 'not begun'}" for cell in missing))
    tell(f"wrote {out}; `{command_line('report', out)}` shows this again")
    if missing:
        raise typer.Exit(INCOMPLETE)


@dataclass(frozen=True)
class _Tasks:
    """Takes the harness tasks out of the protocols, with the options that are about them."""

    include_path: Sequence[Path]
    allow_code: bool

    def __call__(self, selectors: Sequence[str], on_bad_item: str) -> tuple[list[str], list[Source]]:
        from choicewise.interchange.harness_tasks.as_protocols import task_sources

        tasks, others = split_tasks(selectors)
        if not tasks:
            own = {"include_path": self.include_path or None, "allow_task_code": self.allow_code}
            options.refuse_without_use("protocols without a task of the harness (lm-eval:TASK) have", **own)
            return others, []
        return others, [*task_sources(tasks, self.include_path, self.allow_code, on_bad_item)]


def _asked(plan: Path | None, given: dict[str, object], tasks: _Tasks) -> Asked:
    """What is to be done, as the plan or the options say."""
    lacking = [f"--{name}" for name in ("model", "protocol") if name not in given]
    if plan is not None:
        options.refuse_without_use("a plan says all that and has", **given)
    elif lacking:
        raise UsageError(f"{' and '.join(lacking)} missing: name a plan, or models and protocols")

    from choicewise.running.sweep import plan_of, read_plan

    spelled = {"model": "models", "protocol": "protocols"}
    table = {spelled.get(name, name): value for name, value in given.items()}
    asked = plan_of(table, tasks) if plan is None else read_plan(plan, tasks)
    return replace(asked, command=words_of, typed=typed_words.get())


def run_several(
    asked: Evaluation,
    sources: Sequence[Source],
    selectors: Sequence[str],
    out: Path,
    without_missing: bool,
    json: bool,
    every: bool,
) -> None:
    """One model on the data of several benchmarks, and the report of it; the first failure is raised."""
    from choicewise.protocols.catalogue import suites_of
    from choicewise.running.sweep import Asked

    job = Asked(
        [asked.planned],
        sources,
        suites_of(split_tasks(selectors)[1]),
        asked.part,
        without_missing=without_missing,
        go_on=False,
        parallel=asked.parallel,
        command=words_of,
        typed=typed_words.get(),
    )
    do_sweep(job, out, asked.planned.folder)
    print_folders([out], json, every)
    tell(f"wrote {out}; `{command_line('report', out)}` shows this again")


def words_of(model: SweepModel, source: Source, chosen: Chosen) -> tuple[str, ...]:
    """The words that name a model, its data and what of them is asked, in the line of a run that goes on."""
    given: dict[str, object] = {"--model": model.name, "--data": source.path, "--limit": chosen.limit}
    given |= {f"--{name.replace('_', '-')}": value for name, value in model.options.items() if name != "batch_tokens"}
    given |= {"--chat": model.chat, "--system": model.system}
    given |= {"--on-bad-item": "skip"} if chosen.skip_bad_items else {}
    words = [(name, str(value)) for name, value in given.items() if value is not None]
    words += [("--subject", subject) for subject in chosen.subjects or ()]
    words += [("--include-path", folder) for folder in source.include]
    flags = ("--allow-task-code",) if source.allow_code else ()
    return (*(word for pair in words for word in pair), *flags)


def do_sweep(job: Asked, out: Path, title: str) -> Sweep:
    """The sweep, with its progress on stderr."""
    from choicewise.running.sweep import Audience, sweep

    with progress(title) as report:
        return sweep(job, out, Audience(report, tell, lambda source: _tell_notes(source, job.chosen), show_download()))


def _tell_notes(source: OpenedSource, chosen: Chosen) -> None:
    subjects = None if chosen.subjects is None else [*chosen.subjects]
    tell_notes(source.data, source.protocols, subjects, chosen.limit, source.source.notes)


def plan_several(asked: Evaluation, sources: Sequence[Source], without_missing: bool, json: bool) -> None:
    """What a run on several benchmarks would ask of each, and in all."""
    from choicewise.running.plan import plan

    opened = open_all(asked, sources, without_missing)
    model, plans = asked.load(), {}
    for name, source in opened.items():
        with progress(f"plan of {model.name} on {name}") as report:
            recipes, rendered = asked.chats(source.protocols), source.source.rendered
            plans[name] = plan(model, source.data, recipes, rendered=rendered, progress=report, **asked.chosen)
    print_plans(plans, model, json)


def open_all(asked: Evaluation, sources: Sequence[Source], without_missing: bool) -> dict[str, OpenedSource]:
    """The data of all sources, by name; DataError where one can't be opened, unless that is to be left out."""
    from choicewise.running.sources import open_sources, refuse

    opened, failed = open_sources(sources, asked.part, show_download())
    refuse(failed, without_missing)
    tell(*(f"{name} is left out: {error.message}" for name, error in failed.items()))
    for source in opened.values():
        _tell_notes(source, asked.part)
    return opened


_HELP = "A catalogue name (with several scores: its headline), one of its scores, a signature or a TOML file."


def ladder(
    start: Annotated[str, typer.Argument(metavar="P", help=_HELP)],
    end: Annotated[str, typer.Argument(metavar="Q", help="The same.")],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", readable=False, help="A run folder; none to evaluate with --model."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Evaluate this one; as in `choicewise run`.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", readable=False, help="On this; as in `choicewise run`.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", readable=False, help="The run folder, with --model: new, or to go on with.")
    ] = None,
    subject: options.Subjects = None,
    limit: options.Limit = None,
    on_bad_item: options.BadItems = options.OnBadItem.error,
    mapping: options.MappingFile = None,
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    window: options.Window = None,
    batch_tokens: options.BatchTokens = None,
    adapter: options.Adapter = None,
    tokenizer: options.Tokenizer = None,
    json: options.Json = False,
) -> None:
    """Show from protocol P to Q what each axis changes: points, paired error, items that turn right and wrong.

    With a run folder: what it observed, and the line that observes the rest. With --model, --data and --out: all of it.
    """
    needed = {"--model": model, "--data": data, "--out": out}
    lacking = [name for name, value in needed.items() if value is None]
    if folder is not None:
        given = {"model": model, "data": data, "out": out, "subject": subject, "limit": limit, "mapping": mapping}
        given |= {"on_bad_item": on_bad_item != options.OnBadItem.error or None, "dtype": dtype, "device": device}
        given |= {"window": window, "batch_tokens": batch_tokens, "adapter": adapter, "tokenizer": tokenizer}
        options.refuse_without_use("a run folder has", **given)
        _show_run(start, end, folder, json)
    elif model is None or data is None or out is None:
        raise UsageError(
            f"{' and '.join(lacking)} missing: name a run folder after the protocols, or all three of these"
        )
    else:
        local = dtype, device, window, batch_tokens
        asked = Evaluation(
            model, data, subject, limit, on_bad_item, mapping, *local, adapter=adapter, tokenizer=tokenizer
        )
        _evaluate(start, end, asked, out, json)


@dataclass(frozen=True)
class _Named:
    """What P or Q stands for, and how a line says it."""

    end: End
    spelled: str


def _show_run(start: str, end: str, folder: Path, json: bool) -> None:
    from choicewise.protocols.between import MARK
    from choicewise.results.run import open_run
    from choicewise.results.sweep import one_run

    folder = one_run(folder)
    run = open_run(folder)
    first, last = _named(start, run), _named(end, run)
    _refuse_same(first.end, last.end)
    if lacking := run.lacking({side.end.name: side.end.protocol for side in (first, last)}):
        line = _line(run, first, last)
        ask = f"{' and '.join(lacking)} ask{'s' * (len(lacking) == 1)}"
        raise UsageError(f"{folder} was not asked what {ask}; `{line}` asks it and all between")
    if not run.manifest.complete:
        tell(f"{folder} is not complete; repeat its `{run.manifest.writer}` line to finish it")
    way = f"{first.end.label}{MARK}{last.end.label}:"
    new = not any(name.startswith(way) for name in run.protocols)
    _print(run, first.end, last.end, json, lambda: _line(run, first, last) if new else None)


def _evaluate(start: str, end: str, asked: Evaluation, out: Path, json: bool) -> None:
    asked.refuse_foreign()
    from choicewise.protocols.between import protocols_between
    from choicewise.protocols.catalogue import names, one

    first, last = one(start), one(end)
    _refuse_same(first, last)
    from choicewise.store.folder import check_folder

    check_folder(out)
    (source,) = asked.sources([start])
    dataset, recipes = asked.open(source, lambda possible: protocols_between(first, last, names(), possible))
    model = asked.load()
    from choicewise.running.work import check_all

    check_all(model, dataset, {first.name: first.protocol, last.name: last.protocol})
    run = asked.into(out, model, dataset, recipes)
    _print(run, first, last, json, lambda: None)
    if (spent := run.manifest.engine.spent) is not None:
        tell(token_savings(spent))
    tell(f"wrote {out}; `{command_line('ladder', start, end, out)}` shows this again")


def _print(run: Run, start: End, end: End, json: bool, line: Callable[[], str | None]) -> None:
    """The ladder; where the run did not ask all between, with the ``line`` that does."""
    from choicewise.protocols.catalogue import names
    from choicewise.report.views import ladder_table
    from choicewise.results.ladder import both_ways

    both = both_ways(run, start, end, names())
    rest = line() if both.coarse else None
    if json:
        print_json({"in_order": both.in_order, "in_reverse": both.in_reverse, "turns": both.turns, "rest": rest})
        return
    print_parts([ladder_table(both)])
    _tell_example(run, both.in_order)
    if rest is not None:
        show("this asks the protocols between:", rest)


def _tell_example(run: Run, climbed: Ladder) -> None:
    """How to see an item that the greatest step turns right, or wrong."""
    named = [step for step in climbed.steps if step.gained_items or step.lost_items]
    if named:
        step = max(named, key=lambda step: abs(step.change))
        item, *_ = (*step.gained_items, *step.lost_items)
        turns = "right" if step.gained_items else "wrong"
        line = command_line("explain", run.folder, "--item", item)
        tell(f"an item that {step.axes[0].axis} turns {turns}: `{line}`")


def _named(text: str, run: Run) -> _Named:
    """The protocol that the run has under this name, else what the catalogue knows by it."""
    from choicewise.protocols.between import End
    from choicewise.protocols.catalogue import names, one
    from choicewise.protocols.signature import signature

    protocol = run.protocols.get(text)
    published = {name: known for known, name in names().items() if name == text}
    if protocol is None or run.on_its_split(published).get(text) == protocol:
        return _Named(one(text), text)
    return _Named(End(text, protocol, text), signature(protocol))


def _refuse_same(start: End, end: End) -> None:
    if start.protocol == end.protocol:
        raise UsageError(f"{start.name} and {end.name} are the same protocol; name two that differ")
    if start.name == end.name:
        raise UsageError(f"two protocols are called {start.name}; give one of the files another name")


def _line(run: Run, start: _Named, end: _Named) -> str:
    """The line that asks all between the two."""
    from choicewise.protocols.between import MARK

    way = f"{start.spelled}{MARK}{end.spelled}"
    return command_line("run", *begun_words(run.manifest), "--protocol", way, "--out", run.folder)


def token_savings(spent: Spent) -> str:
    """How many input tokens were asked and how many computed; of a server with how many requests."""
    fewer = f"{spent.tokens_asked / max(spent.tokens_computed, 1):.1f} × fewer"
    if spent.requests:
        asked = f"asked {spent.tokens_asked:,} tokens in {spent.requests:,} requests"
        known = f": {fewer}" if spent.tokens_computed < spent.tokens_asked else ", as it says nothing of its cache"
        return f"{asked}; the server computed {spent.tokens_computed:,} at most{known}"
    return f"asked {spent.tokens_asked:,} tokens, computed {spent.tokens_computed:,}: {fewer}"


def print_plan(plan: Plan, model: Model, json: bool) -> None:
    """The plan on stdout."""
    if json:
        print_json(_as_json(plan, model))
        return
    lines = _lines(plan, model)
    width = max(map(len, lines))
    for name, value in lines.items():
        show(f"{name:<{width}}  {value}")


def print_plans(plans: Mapping[str, Plan], model: Model, json: bool) -> None:
    """The plans of several benchmarks on stdout, and what they come to in all."""
    from choicewise.running.plan import total

    plans = {**plans, "all": total(list(plans.values()))}
    if json:
        print_json([{"dataset": name, **_as_json(each, model)} for name, each in plans.items()])
        return
    for number, (name, each) in enumerate(plans.items()):
        show(*([""] if number else []), name)
        lines = _lines(each, model)
        width = max(map(len, lines))
        show(*(f"  {title:<{width}}  {value}" for title, value in lines.items()))


def _as_json(plan: Plan, model: Model) -> dict[str, object]:
    asked = asdict(plan)
    derived = {"ratio": plan.ratio, "tokens_per_second": asked.pop("speed"), "seconds": plan.seconds}
    return {"model": model.name, "rung": _path(model)} | asked | derived


def _lines(plan: Plan, model: Model) -> dict[str, str]:
    from choicewise.results.run import by_reason

    lines = {
        "requests": f"{plan.requests:,}",
        **({} if plan.sent is None else {"requests to the server": f"{plan.sent:,}"}),
        "tokens as asked": f"{plan.tokens_asked:,}",
        "unique tokens": f"{plan.tokens_unique:,} ({plan.ratio:.1f} × fewer)",
    }
    if plan.speed is not None and plan.seconds is not None:
        path = " ".join(filter(None, [_path(model), f"{model.dtype} on {model.device}"]))
        path = path if plan.sent is None else "with the answers of a short probe"
        lines["estimated time"] = f"{duration(plan.seconds)} ({plan.speed:,.0f} tokens/s, {path})"
    if plan.shots_dropped:
        lines["lose shots"] = f"{plan.shots_dropped:,} requests"
    if plan.tokens_dropped:
        lines["lose tokens"] = f"{plan.tokens_dropped:,} requests"
    refused = {f"refused {len(names):,}": reason for reason, names in by_reason(plan.refused).items()}
    return lines | {f"missing {count:,}": reason for reason, count in plan.missing.items()} | refused


def _path(model: Model) -> str | None:
    return None if model.selfcheck is None else f"{model.selfcheck.rung} path"
