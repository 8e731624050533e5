"""Several models on several datasets: one after another, or several at once on a cluster; each is loaded once.

Whatever fails is recorded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from choicewise.data.download_bars import Download
from choicewise.errors import ChoicewiseError, MissingData
from choicewise.models.model import SERVER, Model
from choicewise.protocols.suite import Suite
from choicewise.records.format import MANIFEST
from choicewise.records.secret_address import refuse_secret
from choicewise.records.sweep import CellRecord, Sweep
from choicewise.results.summary import keep_summary
from choicewise.running.evaluate import evaluate
from choicewise.running.executors.needs import Needs, Place, in_words, slots_of
from choicewise.running.executors.parallel import ONE_PROCESS, Parallel
from choicewise.running.executors.workforce import Workforce
from choicewise.running.in_threads import Ending, in_threads
from choicewise.running.memory import give_model_back
from choicewise.running.open_sources import ALL, Chosen, OpenedSource, open_sources, refuse
from choicewise.running.pulse import Progress
from choicewise.running.served import how_asked
from choicewise.running.source import Source
from choicewise.running.sweep_model import SweepModel
from choicewise.running.sweep_progress import SweepProgress
from choicewise.running.sweep_record import begun_sweep, is_done, replaced, with_cells, write_begun
from choicewise.running.sweep_room import Room
from choicewise.store.atomic import disk_errors
from choicewise.store.lock import locked
from choicewise.store.sweep import write_sweep

Job = tuple[SweepModel, list[CellRecord]]
"""A model, and what of it is to do."""

HALF = ("bfloat16", "float16")
"""Arithmetic that a float32 copy can rescore."""


@dataclass(frozen=True)
class Asked:
    """What a sweep is to do: every one of ``models`` on every one of ``sources``.

    ``suites``: those that the protocols belong to.  ``go_on``: what fails is recorded; else it is raised, but for data
    that are nowhere, with ``without_missing``.  ``parallel``: how the work of a run is spread.  ``command``: the words
    that name a model and its data in a command line, for the manifest of their run, and ``typed`` the line that was
    typed.
    """

    models: Sequence[SweepModel]
    sources: Sequence[Source]
    suites: Sequence[Suite] = ()
    chosen: Chosen = ALL
    go_on: bool = True
    without_missing: bool = False
    rescore_near_ties: bool = False
    parallel: Parallel = ONE_PROCESS
    command: Callable[[SweepModel, Source, Chosen], Sequence[str]] = lambda model, source, chosen: ()
    typed: Sequence[str] = ()


@dataclass(frozen=True)
class Audience:
    """Who hears what of a sweep.

    ``progress`` is called with (done, total) over all runs; ``say`` gets a line for each run and each failure;
    ``opened`` every dataset and what it is asked; ``download`` hears of downloads.
    """

    progress: Progress = lambda done, total: None
    say: Callable[[str], None] = lambda line: None
    opened: Callable[[OpenedSource], None] = lambda source: None
    download: Download | None = None


SILENCE = Audience()
"""Nobody hears anything."""


def sweep(asked: Asked, out: str | Path, audience: Audience = SILENCE) -> Sweep:
    """Evaluate every model on every dataset, each run in a folder ``out/MODEL/DATASET``, and say what there is of that.

    All data are opened and checked before a model is loaded.  A run that is complete, and was asked the same, is not
    opened again.  Raises StoreError where ``out`` holds something else or another process writes to it, and what
    ``asked`` does not want recorded.
    """
    for name in (str(out), *(model.name for model in asked.models), *(source.name for source in asked.sources)):
        refuse_secret(name, "a model, a dataset or the folder of the sweep")
    folder = Path(out)
    begun_sweep(folder)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        part = (asked.chosen.subjects, asked.chosen.limit, asked.chosen.skip_bad_items)
        before = begun_sweep(folder)
        record = with_cells(folder, before, asked.models, asked.sources, asked.suites, part)
        job = _Job(folder, record, asked, audience)
        try:
            job.run()
        except ChoicewiseError:
            begun = any((folder / cell.folder / MANIFEST).exists() for cell in job.own)
            write_begun(folder, job.record if begun else before)  # what was refused leaves nothing behind
            raise
        return replace(job.record, cells=tuple(job.own))


class _Job:
    """The sweep under way; its record is always what the disk holds."""

    def __init__(self, folder: Path, record: Sweep, asked: Asked, audience: Audience) -> None:
        self.record = record
        self._folder, self._asked, self._audience = folder, asked, audience
        self._writing = Lock()

    @property
    def own(self) -> list[CellRecord]:
        """What is asked, without what is left of earlier lines."""
        labels = {model.label for model in self._asked.models}
        names = {source.name for source in self._asked.sources}
        return [cell for cell in self.record.cells if cell.model in labels and cell.dataset in names]

    def run(self) -> None:
        """Do all that is not done."""
        waiting = [replace(cell, done=False, failure="") for cell in self.own if not is_done(self._folder, cell)]
        for cell in waiting:
            self.record = replaced(self.record, cell)
        opened = self._open(waiting)
        write_sweep(self._folder, self.record)
        ready = [cell for cell in waiting if cell.dataset in opened]
        jobs = [(model, [cell for cell in ready if cell.model == model.label]) for model in self._asked.models]
        jobs = [(model, cells) for model, cells in jobs if cells]
        shown = SweepProgress(self._audience.progress, sum(opened[cell.dataset].work for cell in ready))
        if self._asked.parallel.kind == "ray" and jobs:
            self._together(jobs, opened, shown)
            return
        for model, cells in jobs:
            with Workforce(self._asked.parallel) as workforce:
                self._ask(model, self._load(model), cells, opened, shown, workforce)
            give_model_back()

    def _together(self, jobs: Sequence[Job], opened: Mapping[str, OpenedSource], shown: SweepProgress) -> None:
        """Several models at once, as many as the cluster has room for, each evaluated by a thread."""
        from choicewise.running.executors.ray_cluster import nodes_of_cluster

        nodes, room = nodes_of_cluster(), Room(nodes_of_cluster, len(jobs))
        if len(jobs) > 1:
            self._audience.say(f"{len(jobs)} models share a cluster with {in_words(nodes)}")

        def evaluate_one(turn: int, ending: Ending) -> None:
            model, cells = jobs[turn]
            ending.safe_point()
            with room.place(turn, ending) as enter:
                loaded, place, failure = self._placed(model, enter)
                parallel = ONE_PROCESS if place is None else self._asked.parallel
                with Workforce(parallel, place, safe_point=ending.safe_point) as workforce:
                    self._ask(model, (loaded, failure), cells, opened, shown, workforce, ending.safe_point)
            give_model_back()

        threads = slots_of(nodes) + 1  # one is loaded while the others compute
        in_threads(len(jobs), threads, evaluate_one, shown.beat)

    def _placed(self, model: SweepModel, enter: Callable[[Needs], Place]) -> tuple[Model | None, Place | None, str]:
        """The model and its place on the cluster, once it has one; or why it is not there.

        A model behind a server needs no place.
        """
        from choicewise.running.executors.ray_crew import cluster_needs

        loaded, failure = self._load(model)
        if loaded is None or loaded.device == SERVER:
            return loaded, None, failure
        place: Place | None = None
        with self._caught() as problems:
            place = enter(cluster_needs(loaded, self._asked.parallel.workers, model.memory))
        return (None, None, "".join(problems)) if place is None else (loaded, place, "")

    def _open(self, waiting: Sequence[CellRecord]) -> dict[str, OpenedSource]:
        """The data of the cells, by name; what can't be opened is recorded, or refused all at once."""
        lacking = {cell.dataset for cell in waiting}
        sources = [source for source in self._asked.sources if source.name in lacking]
        opened, failed = open_sources(sources, self._asked.chosen, self._audience.download)
        if not self._asked.go_on:
            refuse(failed, self._asked.without_missing)
        for name, error in failed.items():
            self._audience.say(f"{name} is left out: {error.message}")
            for cell in waiting:
                if cell.dataset == name:
                    self.record = replaced(self.record, replace(cell, failure=_reason(error)))
        for name, source in opened.items():
            for why, protocols in source.left_out.items():
                more = f" and {len(protocols) - 1} more" if len(protocols) > 1 else ""
                self._audience.say(f"{protocols[0]}{more} can't be asked on {name}, and is left out there: {why}")
            self._audience.opened(source)
        return opened

    def _load(self, model: SweepModel) -> tuple[Model | None, str]:
        """The model, or why it is not there."""
        loaded: Model | None = None
        with self._caught() as problems:
            fresh = self._loaded(model)
            for line in how_asked(fresh):
                self._audience.say(line)
            loaded = fresh
        return loaded, "".join(problems)

    def _ask(
        self,
        model: SweepModel,
        loaded: tuple[Model | None, str],
        cells: Sequence[CellRecord],
        opened: Mapping[str, OpenedSource],
        shown: SweepProgress,
        workforce: Workforce,
        safe_point: Callable[[], None] = lambda: None,
    ) -> None:
        own, failure = loaded
        for cell in cells:
            source, problems = opened[cell.dataset], list[str]()
            part = shown.run(source.work, safe_point)
            safe_point()
            if own is not None:
                self._audience.say(f"{model.label} on {cell.dataset}")
                with self._caught() as problems:
                    self._evaluate(own, model, cell, source, part, workforce)
            if failure or problems:
                shown.beat()  # where Ctrl-C became another exception, nothing failed: that ends the sweep
            done = replace(cell, done=not problems and own is not None, failure="".join(problems) or failure)
            if done.failure:
                self._audience.say(f"{model.label} on {cell.dataset} failed: {done.failure}")
            with self._writing:
                self.record = replaced(self.record, done)
                write_sweep(self._folder, self.record)
            part.finish()

    def _loaded(self, model: SweepModel) -> Model:
        where = self._asked.parallel.loading(model.options.get("device"))
        return replace(model, options={**model.options, **where}).load(self._audience.download, self._audience.say)

    def _evaluate(
        self,
        loaded: Model,
        model: SweepModel,
        cell: CellRecord,
        source: OpenedSource,
        progress: Progress,
        workforce: Workforce,
    ) -> None:
        chosen, more = self._asked.chosen, dict[str, Any]()
        if self._asked.rescore_near_ties and loaded.dtype in HALF:
            copied = replace(model, options={**model.options, "dtype": "float32"})
            more["rescore_near_ties"] = partial(self._loaded, copied)
        run = evaluate(
            model=loaded,
            data=source.data,
            protocols=model.asked(source.protocols),
            out=self._folder / cell.folder,
            subjects=chosen.subjects,
            limit=chosen.limit,
            rendered=source.source.rendered,
            skip_bad_items=chosen.skip_bad_items,
            executor=workforce,
            progress=progress,
            command=self._asked.command(model, source.source, chosen),
            typed=self._asked.typed,
            say=partial(self._say_of, model),
            **more,
        )
        keep_summary(run)

    def _say_of(self, model: SweepModel, line: str) -> None:
        """A line about one of several models."""
        self._audience.say(f"{model.label}: {line}" if len(self._asked.models) > 1 else line)

    @contextmanager
    def _caught(self) -> Iterator[list[str]]:
        """A list that gets the reason of a failure, where failures are recorded."""
        problems: list[str] = []
        try:
            yield problems
        except Exception as error:
            if not self._asked.go_on:
                raise
            problems.append(_reason(error))


def _reason(error: Exception) -> str:
    """Why something is not there, in a line."""
    if isinstance(error, MissingData):
        return f"{error.message}; with network: `choicewise fetch {' '.join(error.benchmarks)}`"
    if isinstance(error, ChoicewiseError):
        return "; ".join((error.message, *error.problems))
    return f"{type(error).__name__}: {error}"
