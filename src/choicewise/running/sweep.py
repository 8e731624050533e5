"""The runs of a job: many models x datasets, each run in a folder of its own; a single run is a sweep of one.

Whatever fails is recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from choicewise import __version__
from choicewise.data.hub import Download
from choicewise.errors import ChoicewiseError, MissingData, StoreError
from choicewise.models.model import Model
from choicewise.ports import Sharing
from choicewise.protocols.catalogue import Suite, suite, suite_names
from choicewise.protocols.protocol import Protocol, signature
from choicewise.records import MANIFEST, SWEEP, CellRecord, PartRecord, SuiteRecord, Sweep
from choicewise.results.summary import keep_summary
from choicewise.running.answer import OneProcess, Pool, executor_of, loading_options
from choicewise.running.evaluate import compute
from choicewise.running.examples import selectors_with_shots
from choicewise.running.job import (
    Job,
    ModelChoice,
    OpenedSource,
    Source,
    Task,
    open_all,
    refuse,
    sources_of,
)
from choicewise.running.progress import Progress, SweepProgress
from choicewise.running.work import how_asked, served_model
from choicewise.store.folder import check_folder, is_sweep, read_manifest, read_sweep, write_sweep
from choicewise.store.tables import unanswered_keys
from choicewise.util.background import Ending, give_model_back, in_threads
from choicewise.util.files import PARTIAL, copy_of, disk_errors, folder_name, free_name, locked
from choicewise.util.text import bytes_of, check_name, listed

Turn = tuple[ModelChoice, list[CellRecord]]
"""A model, and what of it is to do."""


@dataclass(frozen=True)
class Audience:
    """Who hears what of a sweep.

    ``progress`` is called with (done, total) over all runs; ``say`` gets a line for each run and each failure;
    ``opened`` every dataset and what it is asked; ``ready`` every model with a dataset, before it is asked, and may
    raise; ``download`` hears of downloads.
    """

    progress: Progress = lambda done, total: None
    say: Callable[[str], None] = lambda line: None
    opened: Callable[[OpenedSource], None] = lambda source: None
    ready: Callable[[Model, OpenedSource, Mapping[str, Protocol]], None] = (
        lambda model, source, recipes: None
    )
    download: Download | None = None


SILENCE = Audience()
"""Nobody hears anything."""


def sweep(
    job: Job,
    out: str | Path,
    audience: Audience = SILENCE,
    sources: Sequence[Source] | None = None,
    *,
    go_on: bool = True,
    alone: bool = False,
    command: Sequence[str] = (),
) -> Sweep:
    """Evaluate every model on every dataset, each run in a folder ``out/MODEL/DATASET``, and say what there is of that.

    ``sources``: the datasets, where some are not the catalogue's.  ``go_on``: what fails is recorded; else it is
    raised.  ``alone``: ``out`` is the folder of the one run that there is.  ``command``: as of ``evaluate``.  All data
    are opened and checked before a model is loaded.  A run that is complete, and was asked the same, is not opened
    again.  Raises StoreError where ``out`` holds something else or another process writes to it, and what is not to be
    recorded.
    """
    sources = sources_of(job, fitting=True) if sources is None else sources
    for name in (
        str(out),
        *(model.name for model in job.models),
        *(source.name for source in sources),
    ):
        check_name(name, "a model, a dataset or the folder of the sweep")
    folder, models = Path(out), job.choices
    if alone:
        check_folder(folder)
        cells = [
            CellRecord(model.label, source.name, ".", "") for model in models for source in sources
        ]
        return _Sweep(
            folder, Sweep(cells=tuple(cells)), job, models, sources, audience, go_on, alone, command
        ).run()
    begun_sweep(folder)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        before = begun_sweep(folder)
        record = with_cells(folder, before, models, sources, job)
        runs = _Sweep(folder, record, job, models, sources, audience, go_on, alone, command)
        try:
            return runs.run()
        except ChoicewiseError:
            begun = any((folder / cell.folder / MANIFEST).exists() for cell in runs.own)
            write_begun(
                folder, runs.record if begun else before
            )  # what was refused leaves nothing behind
            raise


@dataclass
class _Sweep:
    """The sweep under way; its record is always what the disk holds, but for a run ``alone``, which needs none."""

    folder: Path
    record: Sweep
    job: Job
    models: Sequence[ModelChoice]
    sources: Sequence[Source]
    audience: Audience
    go_on: bool
    alone: bool
    command: Sequence[str]

    def __post_init__(self) -> None:
        self._writing = Lock()
        self._executor = executor_of(self.job.executor, self.job.workers)

    @property
    def own(self) -> list[CellRecord]:
        """What is asked, without what is left of earlier lines."""
        labels = {model.label for model in self.models}
        names = {source.name for source in self.sources}
        return [
            cell for cell in self.record.cells if cell.model in labels and cell.dataset in names
        ]

    def run(self) -> Sweep:
        """Do all that is not done."""
        waiting = [
            replace(cell, done=False, failure="")
            for cell in self.own
            if not is_done(self.folder, cell)
        ]
        self._keep(*waiting, write=False)
        opened = self._open(waiting)
        self._keep()
        ready = [cell for cell in waiting if cell.dataset in opened]
        turns = [
            (model, [cell for cell in ready if cell.model == model.label]) for model in self.models
        ]
        turns = [(model, cells) for model, cells in turns if cells]
        shown = SweepProgress(
            self.audience.progress, sum(opened[cell.dataset].work for cell in ready)
        )
        threads = self._executor.at_once(len(turns), self.audience.say) if turns else 1
        if threads > 1:
            self._together(turns, threads, opened, shown)
        else:
            for model, cells in turns:
                with self._executor.pool(self.job.workers, Sharing()) as pool:
                    self._ask(model, self._load(model), cells, opened, shown, pool)
                if not self.alone:  # the process ends, or the caller has the model still
                    give_model_back()
        return replace(self.record, cells=tuple(self.own))

    def _keep(self, *cells: CellRecord, write: bool = True) -> None:
        """Record the state of these cells."""
        with self._writing:
            for cell in cells:
                self.record = replaced(self.record, cell)
            if write and not self.alone:
                write_sweep(self.folder, self.record)

    def _together(
        self,
        turns: Sequence[Turn],
        threads: int,
        opened: Mapping[str, OpenedSource],
        shown: SweepProgress,
    ) -> None:
        """Several models at once, each evaluated by a thread; the executor computes as resources become free."""
        pools: list[Pool] = []

        def evaluate_one(turn: int, ending: Ending) -> None:
            model, cells = turns[turn]
            ending.safe_point()
            loaded, failure = self._load(model)
            memory = bytes_of(model.memory or "") or None
            sharing = Sharing(
                models=len(turns), others=pools, memory=memory, safe_point=ending.safe_point
            )
            served = loaded is not None and served_model(loaded) is not None
            with OneProcess() if served else self._executor.pool(self.job.workers, sharing) as pool:
                pools.append(pool)
                self._ask(model, (loaded, failure), cells, opened, shown, pool, ending.safe_point)
            give_model_back()

        in_threads(len(turns), threads, evaluate_one, shown.tick)

    def _open(self, waiting: Sequence[CellRecord]) -> dict[str, OpenedSource]:
        """The data of the cells, by name; what can't be opened is recorded, or refused all at once."""
        lacking = {cell.dataset for cell in waiting}
        sources = [source for source in self.sources if source.name in lacking]
        opened, failed = open_all(sources, self.job, self.audience.download, not self.alone)
        if not self.go_on:
            refuse(failed, self.job.without_missing)
        for name, error in failed.items():
            self.audience.say(f"{name} is left out: {error.message}")
            self._keep(
                *(
                    replace(cell, failure=_reason(error))
                    for cell in waiting
                    if cell.dataset == name
                ),
                write=False,
            )
        for name, source in opened.items():
            for why, protocols in source.left_out.items():
                more = f" and {len(protocols) - 1} more" if len(protocols) > 1 else ""
                self.audience.say(
                    f"{protocols[0]}{more} can't be asked on {name}, and is left out there: {why}"
                )
            if source.source.matched:
                self.audience.say(
                    f"{name} is asked {listed(source.source.selectors)} alone: each benchmark is asked on its own data"
                )
            self.audience.opened(source)
        return opened

    def _load(self, model: ModelChoice) -> tuple[Model | None, str]:
        """The model, or why it is not there."""
        loaded: Model | None = None
        with self._caught() as problems:
            where = loading_options(self._executor, model.name, model.device)
            fresh = model.load(self.audience.download, self.audience.say, **where)
            for line in how_asked(fresh):
                self.audience.say(line)
            loaded = fresh
        return loaded, "".join(problems)

    def _ask(
        self,
        model: ModelChoice,
        loaded: tuple[Model | None, str],
        cells: Sequence[CellRecord],
        opened: Mapping[str, OpenedSource],
        shown: SweepProgress,
        pool: Pool,
        safe_point: Callable[[], None] = lambda: None,
    ) -> None:
        own, failure = loaded
        for cell in cells:
            source, problems = opened[cell.dataset], list[str]()
            part = shown.run(source.work, safe_point)
            safe_point()
            if own is not None:
                if not self.alone:
                    self.audience.say(f"{model.label} on {cell.dataset}")
                with self._caught() as problems:
                    self._evaluate(own, model, self.folder / cell.folder, source, part, pool)
            if failure or problems:
                shown.tick()  # where Ctrl-C became another exception, nothing failed: that ends the sweep
            done = replace(
                cell, done=not problems and own is not None, failure="".join(problems) or failure
            )
            if done.failure:
                self.audience.say(f"{model.label} on {cell.dataset} failed: {done.failure}")
            self._keep(done)
            part.finish()

    def _evaluate(
        self,
        loaded: Model,
        model: ModelChoice,
        folder: Path,
        source: OpenedSource,
        progress: Progress,
        pool: Pool,
    ) -> None:
        recipes = model.in_chat(source.protocols)
        about = f"{model.label}: " if len(self.models) > 1 else ""
        self.audience.ready(loaded, source, recipes)
        check_folder(folder)
        kept = self.job.of_run(model, source)
        task = Task.of(loaded, source, recipes, self.job, kept=kept, command=self.command)
        run = compute(
            task, folder, pool, progress, lambda line: self.audience.say(f"{about}{line}")
        )
        whole = run.manifest.shard is None or run.manifest.shard.whole
        if (
            whole and not self.alone
        ):  # who asked for one run reads it next, and keeps its summary then
            keep_summary(run)

    @contextmanager
    def _caught(self) -> Iterator[list[str]]:
        """A list that gets the reason of a failure, where failures are recorded."""
        problems: list[str] = []
        try:
            yield problems
        except Exception as error:
            if not self.go_on:
                raise
            problems.append(_reason(error))


def _reason(error: Exception) -> str:
    """Why something is not there, in a line."""
    if isinstance(error, MissingData):
        return f"{error.message}; with network: `choicewise fetch {' '.join(error.benchmarks)}`"
    if isinstance(error, ChoicewiseError):
        return "; ".join((error.message, *error.problems))
    return f"{type(error).__name__}: {error}"


def begun_sweep(out: Path) -> Sweep:
    """What the folder ``out`` holds of earlier lines; an empty sweep where it is new or empty.

    Raises StoreError where it holds something else.
    """
    if os.path.exists(out / MANIFEST):
        raise StoreError(f"{out} is the folder of a single run; choose another one for several")
    if is_sweep(out):
        return read_sweep(out)
    with disk_errors(out):
        taken = out.exists() and (not out.is_dir() or any(map(_is_other, out.iterdir())))
    if taken:
        raise StoreError(f"{out} holds other files and no {SWEEP}; choose an empty or new folder")
    return Sweep()


def with_cells(
    out: Path,
    sweep: Sweep,
    models: Sequence[ModelChoice],
    sources: Sequence[Source],
    job: Job,
) -> Sweep:
    """The sweep with a cell for every model and source, in their order, and behind them the runs of earlier lines.

    A cell that was asked the same before is as it was.  Of earlier lines that is left whose run is in the folder
    ``out`` and did not fail, and suites that it belongs to.
    """
    folders = {cell.model: cell.folder.partition("/")[0] for cell in sweep.cells}
    data = {cell.dataset: cell.folder.partition("/")[2] for cell in sweep.cells}
    sweep = _begun(
        out, sweep, [model.label for model in models], [source.name for source in sources]
    )
    before = {(cell.model, cell.dataset): cell for cell in sweep.cells}
    cells: dict[tuple[str, str], CellRecord] = {}
    asked_of = {source.name: source.state_digest for source in sources}
    for model in models:
        folder = folders.setdefault(model.label, free_name(model.folder, folders.values()))
        for source in sources:
            inside = data.setdefault(
                source.name, free_name(folder_name(Path(source.name).stem), data.values())
            )
            drawn = (job.sample, job.selection.seed) if job.sample else ()
            part = (job.subjects, job.limit, job.on_bad_item == "skip", *drawn)
            content = [
                __version__,
                model.state,
                asked_of[source.name],
                part,
                *([job.shard] if job.shard else []),
            ]
            asked = hashlib.sha256(json.dumps(content).encode()).hexdigest()
            new = CellRecord(model.label, source.name, f"{folder}/{inside}", asked)
            old = before.pop((model.label, source.name), None)
            cells[model.label, source.name] = old if old is not None and old.asked == asked else new
    known = {each.name: each for each in sweep.suites} | {
        name: _suite_record(suite(name))
        for name in selectors_with_shots(job.protocols, job.shots)
        if name in suite_names() and job.score is None
    }
    protocols = dict.fromkeys(
        [*sweep.protocols, *(each for source in sources for each in source.selectors)]
    )
    every = (*cells.values(), *before.values())
    return replace(sweep, protocols=tuple(protocols), suites=tuple(known.values()), cells=every)


def write_begun(out: Path, sweep: Sweep) -> None:
    """Write of ``sweep`` what has a run in the folder ``out``; nothing stays where that is nothing."""
    begun = _begun(out, sweep)
    if begun.cells:
        write_sweep(out, begun)
    else:
        for path in (out / SWEEP, copy_of(out / SWEEP)):
            path.unlink(missing_ok=True)


def _begun(
    out: Path, sweep: Sweep, models: Sequence[str] = (), datasets: Sequence[str] = ()
) -> Sweep:
    """The sweep with the cells that have a run which did not fail, or are of these models and datasets, and the suites
    of these."""

    def asked(cell: CellRecord) -> bool:
        return cell.model in models and cell.dataset in datasets

    def is_there(cell: CellRecord) -> bool:
        return not cell.failure and os.path.exists(out / cell.folder / MANIFEST)

    cells = tuple(cell for cell in sweep.cells if asked(cell) or is_there(cell))
    there = {cell.dataset for cell in cells}
    suites = tuple(
        suite for suite in sweep.suites if there & {part.benchmark for part in suite.parts}
    )
    return replace(sweep, cells=cells, suites=suites)


def is_done(out: Path, cell: CellRecord) -> bool:
    """Whether the run of the cell is there and complete, and no question of it is to be asked again."""
    run = out / cell.folder
    try:
        return (
            cell.done
            and (manifest := read_manifest(run)).complete
            and not unanswered_keys(run, manifest)
        )
    except StoreError:
        return False


def replaced(sweep: Sweep, cell: CellRecord) -> Sweep:
    """The sweep with this state of the cell, in its place or at the end."""
    cells = {(each.model, each.dataset): each for each in (*sweep.cells, cell)}
    return replace(sweep, cells=tuple(cells.values()))


def _is_other(path: Path) -> bool:
    """Whether it is nothing that another process writes which begins a sweep in the same folder now."""
    return path.name not in (SWEEP, copy_of(Path(SWEEP)).name) and not path.name.endswith(PARTIAL)


def _suite_record(suite: Suite) -> SuiteRecord:
    parts = tuple(
        PartRecord(
            part.benchmark,
            {name: signature(each) for name, each in part.protocols.items()},
            part.unscored,
        )
        for part in suite.parts
    )
    return SuiteRecord(suite.name, suite.title, parts, suite.normalised, suite.average)
