"""One model on several benchmarks, or several models: planned, evaluated, and their report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from choicewise.cli.download import show_download
from choicewise.cli.evaluation import Evaluation, tell_notes
from choicewise.cli.output import command_line, tell
from choicewise.cli.plan import print_plans
from choicewise.cli.progress import progress
from choicewise.cli.report import print_folders
from choicewise.cli.typed import typed_words
from choicewise.interchange.tasks.selector import split_tasks

if TYPE_CHECKING:
    from choicewise.records.sweep import Sweep
    from choicewise.running.open_sources import Chosen, OpenedSource
    from choicewise.running.source import Source
    from choicewise.running.sweep import Asked
    from choicewise.running.sweep_model import SweepModel


def run_several(
    asked: Evaluation,
    sources: Sequence[Source],
    selectors: Sequence[str],
    out: Path,
    without_missing: bool,
    rescore_near_ties: bool,
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
        rescore_near_ties=rescore_near_ties,
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
    from choicewise.running.open_sources import open_sources, refuse

    opened, failed = open_sources(sources, asked.part, show_download())
    refuse(failed, without_missing)
    tell(*(f"{name} is left out: {error.message}" for name, error in failed.items()))
    for source in opened.values():
        _tell_notes(source, asked.part)
    return opened
