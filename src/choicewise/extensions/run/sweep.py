"""Evaluates the models of a job on its datasets, each run in a folder of its own.

A single run is a sweep of one.  A sweep records failures and goes on.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from choicewise import __version__
from choicewise.data.files import read_toml
from choicewise.errors import ChoicewiseError, MissingData, StoreError, UsageError
from choicewise.extensions.run.sources import open_all, refuse
from choicewise.models.model import Model
from choicewise.ports import Executor, ModelRuns, Watcher
from choicewise.protocols.catalogue import Suite, suite, suite_names
from choicewise.protocols.protocol import Protocol, Protocols, signature
from choicewise.records import MANIFEST, SWEEP, CellRecord, PartRecord, SuiteRecord, Sweep
from choicewise.results.run import Run, open_run
from choicewise.results.summary import keep_summary
from choicewise.running.answer import executor_of, loading_options
from choicewise.running.evaluate import compute, scratch_of
from choicewise.running.fitting import selectors_with_shots
from choicewise.running.job import (
    UNMEASURED,
    Job,
    ModelChoice,
    OpenedSource,
    Source,
    Task,
    job_of,
    sources_of,
)
from choicewise.running.progress import Progress
from choicewise.running.work import how_asked
from choicewise.store.folder import check_folder, is_sweep, read_manifest, read_sweep, write_sweep
from choicewise.store.tables import unanswered_keys
from choicewise.util.background import give_model_back
from choicewise.util.files import (
    PARTIAL,
    SETTINGS,
    copy_of,
    disk_errors,
    folder_name,
    free_name,
    locked,
    read_text,
)
from choicewise.util.text import check_name, listed, text_digest

if TYPE_CHECKING:
    from choicewise.data.hub import Download


@dataclass(frozen=True)
class Audience:
    """Hold the functions that report on a sweep.

    ``progress`` is called with (done, total) over all runs; ``say`` with a line for each run and
    each failure; ``opened`` with every dataset and its protocols, once a model can run one of them;
    ``ready`` with every model and dataset before the evaluation, which it can stop by raising;
    ``download`` reports downloads.
    """

    progress: Progress = lambda done, total: None
    say: Callable[[str], None] = lambda line: None
    opened: Callable[[OpenedSource], None] = lambda source: None
    ready: Callable[[Model, OpenedSource, Protocols], None] = lambda model, source, recipes: None
    download: Download | None = None


SILENCE = Audience()


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
    """Evaluate every model on every dataset in a folder ``out/MODEL/DATASET``; return the record.

    ``sources``: the datasets, if some are not the catalogue's.  ``go_on``: True to record failures
    instead of raising them.  ``alone``: True if ``out`` is the folder of the only run.
    ``command``: as for ``evaluate``.  All data are opened and checked before a model is loaded.  A
    complete run with an unchanged job is not opened again.  Raises StoreError if ``out`` holds
    other files or another process writes to it.
    """
    if sources is None:
        sources = sources_of(job)
    names = [str(out)]
    names += [model.name for model in job.models]
    names += [source.name for source in sources]
    for name in names:
        check_name(name, "a model, a dataset or the folder of the sweep")
    folder = Path(out)
    runs = _Sweep(
        folder=folder,
        record=Sweep(),
        job=job,
        models=job.choices,
        sources=sources,
        audience=audience,
        go_on=go_on,
        alone=alone,
        command=command,
    )
    if alone:
        check_folder(folder)
        cells = []
        for model in runs.models:
            for source in sources:
                cells.append(CellRecord(model.label, source.name, ".", ""))
        runs.record = Sweep(cells=tuple(cells))
        return runs.run()
    # A foreign folder is refused before it is locked; once it is, another process may have
    # written to it, so it is read again.
    begun_sweep(folder)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        before = begun_sweep(folder)
        runs.record = with_cells(folder, before, runs.models, sources, job)
        try:
            return runs.run()
        except ChoicewiseError:
            # A sweep that was refused leaves nothing behind.
            has_begun = any((folder / cell.folder / MANIFEST).exists() for cell in runs.cells)
            write_begun(folder, runs.record if has_begun else before)
            raise


def read_plan(path: Path) -> Job:
    """Read a job from a file with the keys of docs/design/suites.md.

    Paths in it are relative to the folder where the command runs.  Raises UsageError with the file,
    the keys and all faults.
    """
    try:
        table = read_toml(read_text(path, SETTINGS))
    except OSError as error:
        raise UsageError(
            f"{path} can't be read: {error.strerror}; name the file of a plan"
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    try:
        return job_of({"models": None, **table})
    except UsageError as error:
        raise error.within(str(path)) from error


def evaluate_all(
    plan: str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Run]:
    """Evaluate every model of a plan on all of its data, and return the runs.

    - ``plan``: the path of a TOML file, or a mapping with its keys: ``models`` and ``protocols``,
      and ``data``, ``shots``, ``score``, ``subjects``, ``limit``, ``sample``, ``seed`` and
      ``on_bad_item`` as in :func:`choicewise.evaluate`.  A model may be a mapping with ``name``.
    - ``out``: the folder of all runs; the same call continues in it.
    - ``progress``: gets (done, total) over all runs.
    - ``say``: gets a line for each run and each failure.

    A model or dataset that fails is left out with a warning, and the others are evaluated.  Raises
    UsageError for a faulty plan and StoreError if ``out`` holds other files.
    """
    if isinstance(plan, str | Path):
        job = read_plan(Path(plan))
    else:
        job = job_of({"models": None, **plan})
    audience = Audience(progress=progress or SILENCE.progress, say=say or SILENCE.say)
    record = sweep(job, out, audience, sources_of(job))
    for cell in record.missing:
        warnings.warn(f"{cell.model} on {cell.dataset} is missing: {cell.failure}", stacklevel=2)
    missing = {cell.folder for cell in record.missing}
    return [
        open_run(Path(out) / cell.folder) for cell in record.cells if cell.folder not in missing
    ]


class SweepProgress:
    """Add up the progress of runs, and report it out of ``total`` units of work."""

    def __init__(self, report: Progress, total: int) -> None:
        self._report = report
        self._total = max(total, 1)
        self._done: list[int] = []
        self._lock = Lock()

    def run(self, work: int) -> Progress:
        """Add a run of ``work`` units, and return what it reports to.

        If the run begins anew, nothing moves for a while.
        """
        with self._lock:
            number = len(self._done)
            self._done.append(0)

        def progress(done: int, total: int) -> None:
            units = int(work * done / total) if total else work
            # One thread at a time, so that a later report never says less.
            with self._lock:
                self._done[number] = max(self._done[number], units)
                self._report(sum(self._done), self._total)

        return progress


@dataclass(kw_only=True)
class _Sweep:
    """Hold a sweep under way; its record equals the file, which a run ``alone`` does not need."""

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
        self._described: set[str] = set()
        self._undescribed_data: list[OpenedSource] = []
        self._elsewhere = executor_of(self.job.executor, self.job.workers)

    @property
    def cells(self) -> list[CellRecord]:
        """List the cells of this job, without the remaining ones of earlier jobs."""
        labels = {model.label for model in self.models}
        names = {source.name for source in self.sources}
        return [
            cell for cell in self.record.cells if cell.model in labels and cell.dataset in names
        ]

    def run(self) -> Sweep:
        """Evaluate all cells that are not done."""
        waiting = []
        for cell in self.cells:
            if not is_done(self.folder, cell):
                waiting.append(replace(cell, done=False, failure=""))
        self._keep(waiting, write=False)
        opened = self._open(waiting)
        self._keep([])
        ready = [cell for cell in waiting if cell.dataset in opened]
        work = sum(opened[cell.dataset].work for cell in ready)
        progress = SweepProgress(self.audience.progress, work)
        cells_of_model: dict[str, list[CellRecord]] = {}
        for cell in ready:
            cells_of_model.setdefault(cell.model, []).append(cell)
        if self._elsewhere is not None:
            self._run_elsewhere(self._elsewhere, cells_of_model, opened, progress)
            return replace(self.record, cells=tuple(self.cells))
        for choice in self.models:
            if choice.label not in cells_of_model:
                continue
            model = self._load(choice)
            for cell in cells_of_model[choice.label]:
                source = opened[cell.dataset]
                part = progress.run(source.work)
                if isinstance(model, str):
                    failure = model
                else:
                    failure = self._evaluate(model, choice, cell, source, part)
                if failure:
                    # If Ctrl-C became another exception, nothing failed: this call ends the sweep.
                    part(0, 1)
                self._end(cell, failure)
                part(1, 1)
            # After a single run the process ends, or the caller still has the model.
            if not self.alone:
                del model
                give_model_back()
        return replace(self.record, cells=tuple(self.cells))

    def _keep(self, cells: Sequence[CellRecord], write: bool = True) -> None:
        """Record the state of ``cells``."""
        for cell in cells:
            self.record = replaced(self.record, cell)
        if write and not self.alone:
            write_sweep(self.folder, self.record)

    def _run_elsewhere(
        self,
        executor: Executor,
        cells_of_model: Mapping[str, Sequence[CellRecord]],
        opened: Mapping[str, OpenedSource],
        progress: SweepProgress,
    ) -> None:
        """Evaluate the models in processes of the executor."""
        parts: dict[str, Progress] = {}
        for label, cells in cells_of_model.items():
            parts[label] = progress.run(sum(opened[cell.dataset].work for cell in cells))

        def report(label: str, share: float) -> None:
            parts[label](int(share * UNMEASURED), UNMEASURED)

        def end(label: str, failures: Mapping[str, str]) -> None:
            for cell in cells_of_model[label]:
                failure = failures[cell.dataset]
                self._end(cell, failure)
                if not failure and not self.alone:
                    keep_summary(open_run(self.folder / cell.folder))
            parts[label](1, 1)

        # Processes elsewhere check their models themselves, so there is nothing to wait for.
        self._describe_data()
        watcher = Watcher(progress=report, say=self.audience.say, ended=end)
        models = self._models(cells_of_model, opened, end)
        executor.evaluate(models, self.job.workers, watcher)

    def _models(
        self,
        cells_of_model: Mapping[str, Sequence[CellRecord]],
        opened: Mapping[str, OpenedSource],
        end: Callable[[str, Mapping[str, str]], None],
    ) -> Iterator[ModelRuns]:
        """Yield the runs of each model that can be opened; ``end`` gets the failures of others."""
        for choice in self.models:
            cells = cells_of_model.get(choice.label, ())
            if not cells:
                continue
            model = self._load(choice)
            if isinstance(model, str):
                end(choice.label, {cell.dataset: model for cell in cells})
                continue
            for cell in cells:
                self._announce(model, choice, cell, opened[cell.dataset])
            scratch = self.folder
            if not self.alone:
                scratch = self.folder / cells[0].folder.partition("/")[0]
            yield ModelRuns(
                model=model,
                job=self.job.for_model(choice),
                folders={cell.dataset: self.folder / cell.folder for cell in cells},
                scratch=scratch_of(scratch),
                go_on=self.go_on,
                command=self.command,
            )

    def _announce(
        self, model: Model, choice: ModelChoice, cell: CellRecord, source: OpenedSource
    ) -> dict[str, Protocol]:
        """Tell the audience of a run, and return its protocols."""
        if not self.alone:
            self.audience.say(f"{choice.label} on {cell.dataset}")
        recipes = choice.in_chat(source.protocols)
        self.audience.ready(model, source, recipes)
        return recipes

    def _open(self, waiting: Sequence[CellRecord]) -> dict[str, OpenedSource]:
        """Open the data of the cells, by name; record failures, or raise them all at once."""
        names = {cell.dataset for cell in waiting}
        sources = [source for source in self.sources if source.name in names]
        # A bad item of a new run is refused before its model is loaded.
        is_new = not any((self.folder / cell.folder / MANIFEST).exists() for cell in waiting)
        opened, failed = open_all(
            sources,
            self.job,
            self.audience.download,
            measured=not self.alone,
            checked=self.alone and is_new,
        )
        if not self.go_on:
            refuse(failed, self.job.without_missing)
        say = self.audience.say
        for name, error in failed.items():
            say(f"{name} is left out: {error.message}")
            for cell in waiting:
                if cell.dataset == name:
                    self._keep([replace(cell, failure=_reason(error))], write=False)
        self._undescribed_data = list(opened.values())
        return opened

    def _describe_data(self) -> None:
        """Tell the audience of all open data, once.

        Called after the first check of a model: its error would make the notes moot.
        """
        for source in self._undescribed_data:
            for line in source.left_out_lines:
                self.audience.say(line)
            if source.source.matched:
                self.audience.say(
                    f"{source.source.name} runs only under {listed(source.source.selectors)}: "
                    "every benchmark uses its own data"
                )
            self.audience.opened(source)
        self._undescribed_data = []

    def _load(self, choice: ModelChoice) -> Model | str:
        """Return the model, or why it can't be loaded if failures are recorded."""
        try:
            options = loading_options(self._elsewhere, choice.name, choice.device)
            return choice.load(self.audience.download, self.audience.say, **options)
        except Exception as error:
            if not self.go_on:
                raise
            return _reason(error)

    def _end(self, cell: CellRecord, failure: str) -> None:
        """Record how ``cell`` ended, so that a killed sweep goes on behind it."""
        if failure:
            self.audience.say(f"{cell.model} on {cell.dataset} failed: {failure}")
        self._keep([replace(cell, done=not failure, failure=failure)])

    def _evaluate(
        self,
        model: Model,
        choice: ModelChoice,
        cell: CellRecord,
        source: OpenedSource,
        progress: Progress,
    ) -> str:
        """Evaluate a cell; return why it failed if failures are recorded, else an empty text."""
        prefix = f"{choice.label}: " if len(self.models) > 1 else ""

        def say(line: str) -> None:
            self.audience.say(f"{prefix}{line}")

        folder = self.folder / cell.folder
        try:
            recipes = self._announce(model, choice, cell, source)
            check_folder(folder)
            kept = self.job.of_run(choice, source)
            task = Task.of(model, source, recipes, self.job, kept=kept, command=self.command)
            self._describe_data()
            # Notes of a model that can run no protocol do not matter.
            if choice.label not in self._described:
                self._described.add(choice.label)
                for line in how_asked(model):
                    say(line)
            run = compute(task, folder, progress, say)
            is_whole = run.manifest.shard is None or run.manifest.shard.whole
            # The report of a single run is read next, and keeps its summary.
            if is_whole and not self.alone:
                keep_summary(run)
        except Exception as error:
            if not self.go_on:
                raise
            return _reason(error)
        return ""


def evaluate_runs(runs: ModelRuns, audience: Audience = SILENCE) -> dict[str, str]:
    """Evaluate the runs of a model in this process, which opens it anew.

    Return for every dataset why it failed, "" if it did not.  Raises the error of a run unless its
    ``go_on`` is True.
    """
    (choice,) = runs.job.choices
    sources = []
    for source in sources_of(runs.job):
        if source.name in runs.folders:
            sources.append(source)
    cells = []
    for dataset, folder in runs.folders.items():
        cells.append(CellRecord(choice.label, dataset, str(folder.absolute()), ""))
    sweep_of_model = _Sweep(
        folder=Path(),
        record=Sweep(cells=tuple(cells)),
        job=runs.job,
        models=[choice],
        sources=sources,
        audience=audience,
        go_on=runs.go_on,
        alone=True,
        command=runs.command,
    )
    return {cell.dataset: cell.failure for cell in sweep_of_model.run().cells}


def _reason(error: Exception) -> str:
    """Describe an error in a line."""
    if isinstance(error, MissingData):
        return f"{error.message}; with network: `choicewise fetch {' '.join(error.benchmarks)}`"
    if isinstance(error, ChoicewiseError):
        return "; ".join((error.message, *error.problems))
    return f"{type(error).__name__}: {error}"


def begun_sweep(out: Path) -> Sweep:
    """Return the sweep in the folder ``out``; an empty one if the folder is new or empty.

    Raises StoreError if it holds other files.
    """
    if os.path.exists(out / MANIFEST):
        raise StoreError(
            f"{out} is the folder of a single run; choose another one for several runs"
        )
    if is_sweep(out):
        return read_sweep(out)
    with disk_errors(out):
        is_taken = out.exists() and (not out.is_dir() or any(map(_is_other, out.iterdir())))
    if is_taken:
        raise StoreError(f"{out} holds other files and no {SWEEP}; choose an empty or new folder")
    return Sweep()


def with_cells(
    out: Path,
    sweep: Sweep,
    models: Sequence[ModelChoice],
    sources: Sequence[Source],
    job: Job,
) -> Sweep:
    """Return ``sweep`` with a cell for every model and source, followed by those of earlier jobs.

    A cell of the same job is unchanged.  Cells of earlier jobs stay if their run is in the folder
    ``out`` and did not fail, and so do suites of their benchmarks.
    """
    # The folder of an earlier model or dataset is never given to another one.
    folders = {cell.model: cell.folder.partition("/")[0] for cell in sweep.cells}
    data_folders = {cell.dataset: cell.folder.partition("/")[2] for cell in sweep.cells}
    labels = [model.label for model in models]
    sweep = _begun(out, sweep, labels, [source.name for source in sources])
    before = {(cell.model, cell.dataset): cell for cell in sweep.cells}
    cells: list[CellRecord] = []
    data_digests = {source.name: source.state_digest for source in sources}
    for model in models:
        folder = folders.setdefault(model.label, free_name(model.folder, folders.values()))
        for source in sources:
            name = free_name(folder_name(Path(source.name).stem), data_folders.values())
            inside = data_folders.setdefault(source.name, name)
            digest = _cell_digest(job, model, data_digests[source.name])
            cell = before.pop((model.label, source.name), None)
            if cell is None or cell.asked != digest:
                cell = CellRecord(model.label, source.name, f"{folder}/{inside}", digest)
            cells.append(cell)
    suites = {record.name: record for record in sweep.suites}
    if job.score is None:
        for selector in selectors_with_shots(job.protocols, job.shots):
            if selector in suite_names():
                suites[selector] = _suite_record(suite(selector))
    protocols = dict.fromkeys(sweep.protocols)
    for source in sources:
        protocols |= dict.fromkeys(source.selectors)
    return replace(
        sweep,
        protocols=tuple(protocols),
        suites=tuple(suites.values()),
        cells=(*cells, *before.values()),
    )


def _cell_digest(job: Job, model: ModelChoice, data_digest: str) -> str:
    """Return the digest of all that the numbers of a cell depend on."""
    part: list[Any] = [job.subjects, job.limit, job.on_bad_item == "skip"]
    # Options are only added if they are set, so that the digests of earlier versions stay.
    if job.sample:
        part += [job.sample, job.selection.seed]
    content = [__version__, model.state, data_digest, part]
    if job.shard:
        content.append(job.shard)
    return text_digest(json.dumps(content))


def write_begun(out: Path, sweep: Sweep) -> None:
    """Write the cells of ``sweep`` that have a run in ``out``; without any, remove the file."""
    begun = _begun(out, sweep)
    if begun.cells:
        write_sweep(out, begun)
    else:
        (out / SWEEP).unlink(missing_ok=True)
        copy_of(out / SWEEP).unlink(missing_ok=True)


def _begun(
    out: Path, sweep: Sweep, models: Sequence[str] = (), datasets: Sequence[str] = ()
) -> Sweep:
    """Keep the cells whose run exists and did not fail, or that are of ``models`` and ``datasets``.

    Suites are kept if one of their benchmarks is.
    """
    cells = []
    for cell in sweep.cells:
        is_wanted = cell.model in models and cell.dataset in datasets
        has_run = not cell.failure and os.path.exists(out / cell.folder / MANIFEST)
        if is_wanted or has_run:
            cells.append(cell)
    kept = {cell.dataset for cell in cells}
    suites = []
    for record in sweep.suites:
        if not kept.isdisjoint(part.benchmark for part in record.parts):
            suites.append(record)
    return replace(sweep, cells=tuple(cells), suites=tuple(suites))


def is_done(out: Path, cell: CellRecord) -> bool:
    """Return True if the run of the cell is complete, and all its prompts have answers."""
    if not cell.done:
        return False
    run = out / cell.folder
    try:
        manifest = read_manifest(run)
        return manifest.complete and not unanswered_keys(run, manifest)
    except StoreError:
        return False


def replaced(sweep: Sweep, cell: CellRecord) -> Sweep:
    """Return ``sweep`` with this state of the cell, at its index or at the end."""
    cells = {(other.model, other.dataset): other for other in sweep.cells}
    cells[cell.model, cell.dataset] = cell
    return replace(sweep, cells=tuple(cells.values()))


def _is_other(path: Path) -> bool:
    """Return False for files that a process writes when it begins a sweep in the folder."""
    return path.name not in (SWEEP, copy_of(Path(SWEEP)).name) and not path.name.endswith(PARTIAL)


def _suite_record(suite: Suite) -> SuiteRecord:
    parts = []
    for part in suite.parts:
        signatures = {name: signature(protocol) for name, protocol in part.protocols.items()}
        parts.append(PartRecord(part.benchmark, signatures, part.unscored))
    return SuiteRecord(
        name=suite.name,
        title=suite.title,
        parts=tuple(parts),
        normalised=suite.normalised,
        average=suite.average,
    )
