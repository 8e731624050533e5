"""Evaluate models: ``choicewise run`` and ``choicewise sweep``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.options import (
    Loading,
    OptionGroup,
    Output,
    Part,
    Tasks,
    first_of,
    grouped,
    tell_notes,
)
from choicewise.cli.report import print_folders, print_runs
from choicewise.cli.terminal import print_json, progress, show, show_download, tell
from choicewise.errors import UsageError
from choicewise.running.progress import duration
from choicewise.util.text import command_line, counted, listed

if TYPE_CHECKING:
    from choicewise.extensions.run.plan import Plan
    from choicewise.models.model import Model
    from choicewise.protocols.protocol import Protocols
    from choicewise.records import Spent, Sweep
    from choicewise.results.run import Run
    from choicewise.running.job import Job, OpenedSource, Source

    Ready = Callable[[Model, OpenedSource, Protocols], None]


Panel = Annotated[
    bool,
    typer.Option(
        "--panel",
        help="Also vary the order, names and labels of the choices, for `report DIR invariance`.",
    ),
]
WithoutMissing = Annotated[
    bool,
    typer.Option(
        "--without-missing",
        help="Leave out benchmarks whose data are missing, instead of stopping.",
    ),
]
Executor = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="<local|ray>",
        help="Where to compute: on this machine, or on the Ray cluster at RAY_ADDRESS (if unset, a"
        " new one on this machine).",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help=(
            "Processes that compute a shard each, one per GPU (default: 1; with Ray as many as "
            "fit)."
        ),
    ),
]

Shard = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Run only part I of N; `choicewise merge` joins the parts. 'slurm': part"
        " SLURM_ARRAY_TASK_ID of a job array.",
    ),
]


@dataclass(frozen=True)
class Spread(OptionGroup):
    """Options that say where the model computes."""

    executor: Executor = "local"
    workers: Workers = None
    shard: Shard = None


@grouped
def run(
    *,
    context: typer.Context,
    model: options.ModelName,
    data: options.Data = None,
    protocol: options.Protocols,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            readable=False,
            help="The run folder; if it exists, the run resumes. Several benchmarks get a "
            "folder each in it.",
        ),
    ] = None,
    shots: options.Shots = None,
    score: options.Score = None,
    panel: Panel = False,
    part: Part,
    chat: options.Chat = None,
    system: options.System = None,
    tasks: Tasks,
    loading: Loading,
    spread: Spread,
    without_missing: WithoutMissing = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Count the requests and estimate the time; run nothing."),
    ] = False,
    output: Output,
) -> None:
    """Score a model on a dataset under every named protocol, and print a report.

    Without --data, every protocol runs on the data of its own benchmark, and a suite on all of its
    benchmarks, with their average. Run the same command again to resume.
    """
    from choicewise.models.kinds import model_kind

    # Options are refused before anything is opened: loading a model can take minutes.
    options.refuse_foreign(model, **loading.given)
    kind = model_kind(model)
    # A shard is a part of the items, which any kind of model can answer.
    copies = {name: value for name, value in spread.given.items() if name != "shard"}
    if kind.workers and copies:
        names = " and ".join(map(options.spelled_option, copies))
        raise UsageError(f"{kind.display(model)} {kind.workers}; leave {names} out")
    if dry_run:
        options.refuse_without_use(
            "--dry-run, which only counts",
            **copies,
            all=output.every,
            ids=output.ids,
        )
    # A dry run writes nothing, so it needs no folder.
    output.check()
    if out is None and not dry_run:
        raise UsageError("--out is missing; name a folder for the run (--dry-run needs none)")
    from choicewise.running.job import job_of

    # What is wrong is said as early as can be: each step loads more than the one before.
    choice = {"name": model}
    if chat is not None:
        choice["chat"] = str(chat)
    if system is not None:
        choice["system"] = system
    job = job_of(
        {
            "models": [choice],
            "protocols": protocol,
            "shots": options.shots_of(shots),
            "score": score,
            "panel": panel or None,
            "without_missing": without_missing,
            **part.given,
            **part.data(data),
            **tasks.given,
            **loading.given,
            **spread.given,
        }
    )
    sources = options.sources_of(job)
    for source in sources:
        job.choices[0].in_chat(source.recipes)
    if len(sources) == 1:
        options.refuse_without_use("a single dataset", without_missing=without_missing)
    else:
        options.refuse_without_use(
            "several benchmarks, which have different subjects", subject=part.subject
        )
    if out is None or dry_run:
        _print_plans(job, sources, output.json)
    elif len(sources) == 1:
        _run_one(job, sources, out, output, context.obj)
    else:
        do_sweep(job, sources, out, job.choices[0].name, go_on=False, command=context.obj)
        _print_folder(job, out, output)


def _run_one(
    job: Job, sources: Sequence[Source], out: Path, output: Output, command: Sequence[str]
) -> None:
    """Evaluate one source into the folder ``out`` itself, and print its numbers."""
    evaluated: set[str] = set()
    title = job.choices[0].name
    do_sweep(
        job,
        sources,
        out,
        title,
        alone=True,
        command=command,
        ready=lambda model, source, recipes: evaluated.update(recipes),
    )
    from choicewise.results.run import open_run
    from choicewise.results.summary import keep_summary

    result = open_run(out)
    shard = result.manifest.shard
    if shard is not None and not shard.whole:
        _tell_shard(out, job.shard)
        return
    # A slow path is no error, but hours of work hang on it.
    _tell_slow_path(result, job)
    if result.manifest.engine.spent is not None:
        tell(token_savings(result.manifest.engine.spent))
    unanswered = result.unanswered
    if unanswered:
        items = counted(len(unanswered), "item")
        example = command_line("explain", out, "--item", unanswered[0])
        tell(
            f"note: the model returned NaN for {items}; such scores are missing. "
            f"`{example}` shows one"
        )
    summary = keep_summary(result)
    rows = tuple(row for row in summary.rows if row.identity.protocol in evaluated)
    print_runs([replace(summary, rows=rows)], [out], output)


def _tell_slow_path(run: Run, job: Job) -> None:
    """Tell which path a local model took if a faster one was refused."""
    check = run.manifest.engine.selfcheck
    if check is None or run.manifest.server is not None or check.rung in ("varlen", "flex", "tree"):
        return
    model = job.choices[0]
    words = ["--model", model.name]
    for option in ("adapter", "dtype", "tokenizer"):
        if option in model.options:
            words += [f"--{option}", model.options[option]]
    tell(f"path {check.rung!r}: {check.cost}; `{command_line('check', *words)}` explains why")


def _tell_shard(out: Path, shard: str | None) -> None:
    """Tell that a folder is no run by itself, and the command that makes one of all."""
    line = f"{command_line('merge', out)} DIR... --out RUN"
    tell(f"{out} holds shard {shard}; once all shards are there, join them with `{line}`")


def _print_folder(job: Job, out: Path, output: Output) -> None:
    """Print the numbers of the runs in a folder, or tell that they are shards."""
    if job.shard is None or job.shard == "1/1":
        print_folders([out], output)
    else:
        _tell_shard(out, job.shard)


INCOMPLETE = 7
"""The exit code if something is missing."""


@grouped
def sweep(
    *,
    plan: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PLAN.toml]", readable=False, help="A file with models, data and protocols."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            readable=False,
            help="The folder of all runs; if it exists, the sweep resumes.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="As in `choicewise run`. Repeatable.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="As in `choicewise run`; every protocol runs on all data it fits. Repeatable.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="As in `choicewise run`. Repeatable.")
    ] = None,
    shots: options.Shots = None,
    score: options.Score = None,
    panel: Panel = False,
    part: Part,
    tasks: Tasks,
    loading: Loading,
    spread: Spread,
    output: Output,
) -> None:
    """Score several models under protocols and suites, and print tables and averages.

    If a model or a dataset fails, the sweep records why and goes on. Run the same command again to
    resume; complete runs are not opened again. Exit code 7: a run is missing.

    Models run one after another. With `--executor ray` they run in parallel, in the given order, as
    GPUs, cores and memory become free.

    PLAN.toml has the lists `models` and `protocols`. It may also have `data` (a list of paths),
    `shots`, `score`, `subjects`, `limit`, `sample`, `seed`, `on_bad_item`, `dtype`, `device`,
    `window`, `batch_tokens`, `tokenizer` and `memory`.

    A model may be a table with `name`, `revisions` (subfolders, or revisions on the Hub), `chat`,
    `system`, `adapter`, `dtype`, `device`, `window`, `batch_tokens`, `products`, `tokenizer` and
    `memory`. A dataset may be a table with `path`, `benchmark` (the one it replaces) and `mapping`
    (a file or a table). Only Ray uses `memory`, such as "12 GB": what one copy of the model needs
    (default: estimated from its files).
    """
    if out is None:
        raise UsageError("--out is missing; name a folder for all runs")
    output.check()
    from choicewise.extensions.run.sweep import read_plan
    from choicewise.running.job import job_of

    given = {"shots": options.shots_of(shots), "score": score, "panel": panel or None}
    given |= {**part.given, **part.data(*(data or ())), **loading.given}
    if plan is not None:
        options.refuse_without_use(
            "a plan, which states them", model=model, data=data, protocol=protocol, **given
        )
        job = read_plan(plan).model_copy(
            update=job_of({"protocols": ["-"], **tasks.given, **spread.given}).of_command
        )
    else:
        options.refuse_lacking(
            {"model": model, "protocol": protocol}, "name a plan, or models and protocols"
        )
        job = job_of(
            {"models": model, "protocols": protocol, **given, **tasks.given, **spread.given}
        )
    record = do_sweep(job, options.sources_of(job), out, "all runs")
    _print_folder(job, out, output)
    missing = record.missing
    if not missing:
        return
    reasons: dict[str, list[str]] = {}
    for cell in missing:
        names = reasons.setdefault(cell.failure or "not begun", [])
        names.append(f"{cell.model} on {cell.dataset}")
    tell(f"{len(missing)} of {len(record.cells)} runs are missing:")
    tell(*(f"  {listed(names)}: {reason}" for reason, names in reasons.items()))
    raise typer.Exit(INCOMPLETE)


def do_sweep(
    job: Job,
    sources: Sequence[Source],
    out: Path,
    title: str,
    *,
    go_on: bool = True,
    alone: bool = False,
    ready: Ready = lambda model, source, recipes: None,
    command: Sequence[str] = (),
) -> Sweep:
    """Evaluate the runs of ``job``, with progress on stderr.

    ``ready`` is called when a model is loaded; the other arguments are those of
    :func:`choicewise.extensions.run.sweep.sweep`.
    """
    from choicewise.extensions.run.sweep import Audience
    from choicewise.extensions.run.sweep import sweep as run_sweep

    models: list[Model] = []

    def begin(model: Model, source: OpenedSource, recipes: Protocols) -> None:
        models.append(model)
        _tell_system_texts(model, recipes)
        ready(model, source, recipes)

    def computed() -> int | None:
        if not alone or not models:
            return None
        return models[-1].computed

    with progress(title, computed) as report:
        audience = Audience(
            report, tell, lambda source: tell_notes(source, job), begin, show_download()
        )
        return run_sweep(
            job, out, audience, sources, go_on=go_on and not alone, alone=alone, command=command
        )


def _tell_system_texts(model: Model, recipes: Protocols) -> None:
    """Tell on stderr if the chat template of ``model`` takes no system text and a protocol has one."""
    chats = []
    for name, protocol in recipes.items():
        if protocol.chat != "none" and (protocol.system or protocol.header):
            chats.append(name)
    template = model.tokenizer.chat
    if chats and template is not None and not template.takes_system:
        tell(
            f"note: the chat template of {model.name} takes no system prompt; none is "
            f"sent under {first_of(chats)}"
        )


def _print_plans(job: Job, sources: Sequence[Source], json: bool) -> None:
    """Print what a run would compute: of each of several benchmarks, and in all."""
    from choicewise.extensions.run.plan import plan, total
    from choicewise.extensions.run.sources import open_all, refuse
    from choicewise.running.job import Task

    opened, failed = open_all(sources, job, show_download(), measured=len(sources) > 1)
    refuse(failed, job.without_missing)
    tell(*(f"{name} is left out: {error.message}" for name, error in failed.items()))
    choice = job.choices[0]
    model = choice.load(show_download(), tell)
    from choicewise.running.work import how_asked

    tasks = {}
    for name, source in opened.items():
        tasks[name] = Task.of(model, source, choice.in_chat(source.protocols), job)
    # Notes of data and of a model that can run no protocol do not matter.
    for source in opened.values():
        tell(*source.left_out_lines)
        tell_notes(source, job)
    tell(*how_asked(model))
    plans: dict[str, Plan] = {}
    for name, task in tasks.items():
        title = f"plan of {model.name}"
        if len(sources) > 1:
            title += f" on {name}"
        with progress(title) as report:
            plans[name] = plan(task, progress=report)
    if len(sources) == 1:
        (only,) = plans.values()
        if json:
            print_json(_as_json(only, model))
        else:
            show(*plan_lines(only, model))
        return
    plans["all"] = total(list(plans.values()))
    if json:
        rows = [{"dataset": name, **_as_json(part, model)} for name, part in plans.items()]
        print_json(rows)
        return
    for number, (name, part) in enumerate(plans.items()):
        if number:
            show("")
        show(name, *(f"  {line}" for line in plan_lines(part, model)))


def token_savings(spent: Spent) -> str:
    """Compare the input tokens of all prompts with those that were computed.

    Of a server also the requests.
    """
    fewer = f"{spent.tokens_asked / max(spent.tokens_computed, 1):.1f} × fewer"
    if spent.requests and not spent.tokens_asked:
        return (
            f"{spent.requests:,} requests; the endpoint counted {spent.tokens_computed:,} "
            "input tokens"
        )
    if spent.requests:
        savings = " (the server reports no cache)"
        if spent.tokens_computed < spent.tokens_asked:
            savings = f": {fewer}"
        return (
            f"{spent.requests:,} requests; computed at most {spent.tokens_computed:,} of "
            f"{spent.tokens_asked:,} tokens{savings}"
        )
    line = (
        f"Computed {spent.tokens_computed:,} of {spent.tokens_asked:,} tokens (shared "
        "prefixes reused)"
    )
    if spent.tokens_unique:
        ratio = spent.tokens_computed / spent.tokens_unique
        line += f", {ratio:.2f} × the {spent.tokens_unique:,} unique tokens"
    return line


def _as_json(plan: Plan, model: Model) -> dict[str, object]:
    # JSON calls the speed by its unit.
    values = asdict(plan)
    speed = values.pop("speed")
    return {
        "model": model.name,
        "rung": _path(model),
        **values,
        "ratio": plan.ratio,
        "tokens_per_second": speed,
        "seconds": plan.seconds,
    }


def plan_lines(plan: Plan, model: Model) -> list[str]:
    """Return the lines of ``--dry-run``, the names in one column."""
    from choicewise.results.run import by_reason

    lines = [("requests", f"{plan.requests:,}")]
    if plan.sent is not None:
        lines.append(("requests to the server", f"{plan.sent:,}"))
    lines.append(("tokens as asked", f"{plan.tokens_asked:,}"))
    lines.append(("unique tokens", f"{plan.tokens_unique:,} ({plan.ratio:.1f} × fewer)"))
    if plan.speed is not None and plan.seconds is not None:
        path = f"{model.dtype} on {model.device}"
        if plan.sent is not None:
            path = "measured with a short probe"
        elif model.selfcheck is not None:
            path = f"{_path(model)} {path}"
        lines.append(
            ("estimated time", f"{duration(plan.seconds)} ({plan.speed:,.0f} tokens/s, {path})")
        )
    if plan.shots_dropped:
        lines.append(("lose shots", f"{plan.shots_dropped:,} requests"))
    if plan.tokens_dropped:
        lines.append(("lose tokens", f"{plan.tokens_dropped:,} requests"))
    for reason, count in plan.missing.items():
        lines.append((f"missing {count:,}", reason))
    for reason, names in by_reason(plan.refused).items():
        lines.append((f"refused {len(names):,}", reason))
    width = max(len(name) for name, _ in lines)
    return [f"{name:<{width}}  {value}" for name, value in lines]


def _path(model: Model) -> str | None:
    if model.selfcheck is None:
        return None
    return f"{model.selfcheck.rung} path"
