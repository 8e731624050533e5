"""Many models x datasets; `run` is a sweep of one.

Whatever fails is recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from choicewise import __version__
from choicewise.data.dataset import Columns, columns_of, read_mapping
from choicewise.data.files import read_toml
from choicewise.data.hub import Download
from choicewise.errors import ChoicewiseError, MissingData, StoreError, UsageError, did_you_mean
from choicewise.models.model import SERVER, Model
from choicewise.models.server.address import PREFIX as SERVED
from choicewise.models.server.address import ServerAddress
from choicewise.protocols.catalogue import Suite, resolve, suites_of
from choicewise.protocols.protocol import FORMS, Protocol
from choicewise.protocols.signature import signature
from choicewise.records import MANIFEST, SWEEP, CellRecord, PartRecord, SuiteRecord, Sweep
from choicewise.results.summary import keep_summary
from choicewise.running.evaluate import evaluate
from choicewise.running.progress import Progress, SweepProgress
from choicewise.running.sources import (
    ALL,
    Chosen,
    OpenedSource,
    Source,
    SweepModel,
    benchmark_sources,
    folder_name,
    free_name,
    open_sources,
    refuse,
    refuse_one_dataset,
)
from choicewise.running.work import how_asked
from choicewise.running.workers import ONE_PROCESS, Parallel, Workforce
from choicewise.store.manifest import is_sweep, read_manifest, read_sweep, write_sweep
from choicewise.store.tables import unanswered_keys
from choicewise.util.background import Ending, give_model_back, in_threads
from choicewise.util.files import PARTIAL, copy_of, disk_errors, locked
from choicewise.util.secrets import refuse_secret
from choicewise.util.text import bytes_of

DTYPES = ("float32", "bfloat16", "float16")


class _Key(NamedTuple):
    """What a value must be, in words, and how that is checked."""

    words: str
    fits: Callable[[Any], bool]


_TEXT = _Key("a text", lambda value: isinstance(value, str) and bool(value))
_TEXTS = _Key("a list of texts", lambda value: isinstance(value, list) and bool(value) and all(map(_TEXT.fits, value)))
_COUNT = _Key("a whole number from 1 up", lambda value: type(value) is int and value >= 1)
_DTYPE = _Key(f"one of {', '.join(DTYPES)}", lambda value: value in DTYPES)
_CHAT = _Key(f"one of {', '.join(FORMS)}", lambda value: value in FORMS)
_BAD = _Key("error or skip", lambda value: value in ("error", "skip"))
_LIST = _Key("a list of names or tables", lambda value: isinstance(value, list) and bool(value))
_MAPPING = _Key("a path or a table", lambda value: isinstance(value, dict) or _TEXT.fits(value))

_SIZE = _Key('a size from 1 MB up, as in "12 GB"', lambda value: isinstance(value, str) and bytes_of(value) >= 10**6)

_LOADING = {"dtype": _DTYPE, "device": _TEXT, "window": _COUNT, "batch_tokens": _COUNT, "tokenizer": _TEXT}
"""How models are loaded: for all of them, or for one."""
_OWN = {**_LOADING, "adapter": _TEXT}
"""How one model is loaded."""
_PLACED = {"memory": _SIZE}
"""Where there is room for models on a cluster: for all of them, or for one."""

_TOP = {"models": _LIST, "data": _LIST, "protocols": _TEXTS, "subjects": _TEXTS, "limit": _COUNT, "on_bad_item": _BAD}
_MODEL = {"name": _TEXT, "revisions": _TEXTS, "chat": _CHAT, "system": _TEXT, **_OWN, **_PLACED}
_DATA = {"path": _TEXT, "benchmark": _TEXT, "mapping": _MAPPING}


Foreign = Callable[[Sequence[str], str], tuple[list[str], list[Source]]]
"""From selectors, and what to do with a bad item, to those of the catalogue and the sources of the others."""


def read_plan(path: Path, foreign: Foreign | None = None) -> Asked:
    """The sweep in the file ``path``, whose keys stand in docs/design/suites.md; ``foreign``: as of :func:`plan_of`.

    Paths in it are relative to the folder where the command runs.  Raises UsageError, naming file and keys, with
    everything that is wrong.
    """
    try:
        table = read_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}; name the file of a plan") from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    try:
        return plan_of(table, foreign)
    except UsageError as error:
        raise error.within(str(path)) from error


def plan_of(table: Mapping[str, Any], foreign: Foreign | None = None) -> Asked:
    """The sweep that a table with these keys says.  Raises UsageError, naming keys, with everything that is wrong.

    ``foreign``: takes protocols that are not the catalogue's out of the list; None where there are no such.
    """
    for key, text in _texts(table):
        refuse_secret(text, key)
    problems = [*_problems(table, {**_TOP, **_LOADING, **_PLACED}, "")]
    problems += [f"{key} is missing" for key in ("models", "protocols") if key not in table]
    models = _tables(table, "models", "name", _MODEL, problems)
    data = _tables(table, "data", "path", _DATA, problems)
    if problems:
        raise UsageError.about(problems)
    try:
        return _asked(table, models, data, foreign)
    except ChoicewiseError as error:
        raise UsageError(error.message, error.problems) from error


def _asked(
    table: Mapping[str, Any], models: list[dict[str, Any]], data: list[dict[str, Any]], foreign: Foreign | None
) -> Asked:
    common = {key: table[key] for key in (*_LOADING, *_PLACED) if key in table}
    named = [model for each in models for model in _models(each, common)]
    if twice := {model.label for model in named if named.count(model) > 1}:
        raise UsageError(f"models: {min(twice)} is named twice")
    selectors, bad = tuple(table["protocols"]), table.get("on_bad_item", "error")
    own, others = (list(selectors), list[Source]()) if foreign is None else foreign(selectors, bad)
    subjects = tuple(table["subjects"]) if "subjects" in table else None
    chosen = Chosen(subjects, table.get("limit"), bad == "skip")
    if own or data:
        others = [*sources_of(tuple(own), data, bad), *others]
    return Asked(named, others, suites_of(own), chosen)


def sources_of(selectors: tuple[str, ...], data: list[dict[str, Any]], on_bad_item: str) -> list[Source]:
    """The datasets: those of ``data`` that name no benchmark, or else the benchmarks', from ``data`` where it has them.

    Raises UsageError and ProtocolError.
    """
    resolve(*selectors)
    named = {each["benchmark"]: each for each in data if "benchmark" in each}
    alone = [each for each in data if "benchmark" not in each]
    if named and alone:
        raise UsageError(f"data: {alone[0]['path']} says no benchmark and others do; say it of all or of none")
    if alone:
        refuse_one_dataset(selectors)
        if not selectors:
            raise UsageError(f"data: every protocol has data of its own, and {alone[0]['path']} is asked by none")
        return [Source(selectors, None, each["path"], _columns(each), on_bad_item, fitting=True) for each in alone]
    sources = []
    for source in benchmark_sources(selectors, on_bad_item):
        each = named.pop(source.name, None)
        own = None if each is None else Source(selectors, source.benchmark, each["path"], _columns(each), on_bad_item)
        sources.append(own or source)
    if named:
        raise UsageError(f"data: no protocol asks {min(named)}; they ask {', '.join(each.name for each in sources)}")
    return sources


def _columns(data: Mapping[str, Any]) -> Columns | None:
    mapping = data.get("mapping")
    if mapping is None:
        return None
    return columns_of(mapping, "mapping") if isinstance(mapping, dict) else read_mapping(Path(mapping))


def _takes(name: str) -> Collection[str]:
    """The keys of how a model is loaded that have a use for the one called ``name``."""
    if name.startswith("fake:"):
        return ()
    return ("window", "tokenizer") if name.startswith(SERVED) else {*_OWN} - {"tokenizer"}


def _models(table: Mapping[str, Any], common: Mapping[str, Any]) -> Iterator[SweepModel]:
    """The model of a table, once for each of its revisions: a folder in its folder, or a revision on the Hub."""
    name = table["name"]
    own = {key: value for key, value in table.items() if key in _OWN}
    takes = _takes(name)
    if name.startswith(SERVED):
        own |= {key: table[key] for key in _PLACED if key in table}
        ServerAddress.parse(name)  # before anything is written that would repeat a secret in it
    if not name.startswith("fake:") and (useless := [key for key in own if key not in takes]):
        what = "is computed by its server" if name.startswith(SERVED) else "brings its own tokenizer"
        raise UsageError(f"models: {name} {what} and has no use for {' and '.join(useless)}")
    options = {key: value for key, value in {**common, **own}.items() if key in takes}
    memory = bytes_of(table.get("memory", common.get("memory", ""))) or None
    for revision in table.get("revisions", [None]):
        if revision is not None and name.startswith(SERVED):
            raise UsageError(f"models: {name} is the server's choice and has no use for revisions")
        inside = f"{name}/{revision}" if os.path.isdir(name) else f"{name}@{revision}"
        yield SweepModel(name if revision is None else inside, options, table.get("chat"), table.get("system"), memory)


def _tables(
    table: Mapping[str, Any], key: str, first: str, known: Mapping[str, _Key], problems: list[str]
) -> list[dict[str, Any]]:
    """The tables of a list, in which a text stands for a table with its ``first`` key alone."""
    tables = []
    for number, each in enumerate(table.get(key, []) if isinstance(table.get(key, []), list) else []):
        where = f"{key}[{number}]"
        if not isinstance(each, str | dict):
            problems.append(f"{where} is {each!r}; it must be a name or a table")
            continue
        own = {first: each} if isinstance(each, str) else each
        problems += _problems(own, known, f"{where}.")
        problems += [f"{where}.{first} is missing"] if first not in own else []
        tables.append(own)
    return tables


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(key, text) of every text but those for the model."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from () if name == "system" else _texts(each, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _texts(each, f"{key}[{number}]")


def _problems(table: Mapping[str, Any], known: Mapping[str, _Key], where: str) -> Iterator[str]:
    for key, value in table.items():
        if key not in known:
            yield f"{where}{key} is no key; {did_you_mean(key, _names(known))}"
        elif not known[key].fits(value):
            yield f"{where}{key} is {value!r}; it must be {known[key].words}"


def _names(known: Mapping[str, _Key]) -> Collection[str]:
    return list(known)


Job = tuple[SweepModel, list[CellRecord]]
"""A model, and what of it is to do."""


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
        """Several models at once, each evaluated by a thread; Ray places their replicas as resources become free."""
        from choicewise.running.ray import in_words, nodes_of_cluster, slots_of

        nodes = nodes_of_cluster()
        if len(jobs) > 1:
            self._audience.say(f"{len(jobs)} models share a cluster with {in_words(nodes)}")

        def evaluate_one(turn: int, ending: Ending) -> None:
            model, cells = jobs[turn]
            ending.safe_point()
            loaded, failure = self._load(model)
            served = loaded is not None and loaded.device == SERVER
            parallel = ONE_PROCESS if served else self._asked.parallel
            with Workforce(parallel, len(jobs), model.memory, ending.safe_point) as workforce:
                self._ask(model, (loaded, failure), cells, opened, shown, workforce, ending.safe_point)
            give_model_back()

        threads = slots_of(nodes) + 1  # one is loaded while the others compute
        in_threads(len(jobs), threads, evaluate_one, shown.beat)

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
    models: Sequence[SweepModel],
    sources: Sequence[Source],
    suites: Iterable[Suite],
    chosen: object,
) -> Sweep:
    """The sweep with a cell for every model and source, in their order, and behind them the runs of earlier lines.

    A cell that was asked the same before is as it was.  Of earlier lines that is left whose run is in the folder
    ``out``, without what failed, and suites that it belongs to.  ``chosen``: the part of the data that is asked.
    """
    sweep = _begun(out, sweep, [model.label for model in models], [source.name for source in sources])
    before = {(cell.model, cell.dataset): cell for cell in sweep.cells}
    folders = {cell.model: cell.folder.partition("/")[0] for cell in sweep.cells}
    data = {cell.dataset: cell.folder.partition("/")[2] for cell in sweep.cells}
    cells: dict[tuple[str, str], CellRecord] = {}
    asked_of = {source.name: source.asked for source in sources}
    for model in models:
        folder = folders.setdefault(model.label, free_name(model.folder, folders.values()))
        for source in sources:
            inside = data.setdefault(source.name, free_name(folder_name(Path(source.name).stem), data.values()))
            content = [__version__, model.state, asked_of[source.name], chosen]
            asked = hashlib.sha256(json.dumps(content).encode()).hexdigest()
            new = CellRecord(model.label, source.name, f"{folder}/{inside}", asked)
            old = before.pop((model.label, source.name), None)
            cells[model.label, source.name] = old if old is not None and old.asked == asked else new
    known = {each.name: each for each in sweep.suites} | {each.name: _suite_record(each) for each in suites}
    protocols = dict.fromkeys([*sweep.protocols, *(each for source in sources for each in source.selectors)])
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


def _begun(out: Path, sweep: Sweep, models: Sequence[str] = (), datasets: Sequence[str] = ()) -> Sweep:
    """The sweep with the cells that have a run, or are of these models and datasets, and the suites of these."""

    def asked(cell: CellRecord) -> bool:
        return cell.model in models and cell.dataset in datasets

    own = [cell for cell in sweep.cells if asked(cell) or os.path.exists(out / cell.folder / MANIFEST)]
    cells = tuple(cell if cell.done or asked(cell) else replace(cell, failure="") for cell in own)
    there = {cell.dataset for cell in cells}
    suites = tuple(suite for suite in sweep.suites if there & {part.benchmark for part in suite.parts})
    return replace(sweep, cells=cells, suites=suites)


def is_done(out: Path, cell: CellRecord) -> bool:
    """Whether the run of the cell is there and complete, and no question of it is to be asked again."""
    run = out / cell.folder
    try:
        return cell.done and (manifest := read_manifest(run)).complete and not unanswered_keys(run, manifest)
    except StoreError:
        return False


def replaced(sweep: Sweep, cell: CellRecord) -> Sweep:
    """The sweep with this state of the cell."""
    same = cell.model, cell.dataset
    return replace(sweep, cells=tuple(cell if (old.model, old.dataset) == same else old for old in sweep.cells))


def _is_other(path: Path) -> bool:
    """Whether it is nothing that another process writes which begins a sweep in the same folder now."""
    return path.name not in (SWEEP, copy_of(Path(SWEEP)).name) and not path.name.endswith(PARTIAL)


def _suite_record(suite: Suite) -> SuiteRecord:
    parts = tuple(PartRecord(part.benchmark, _spelled(part.protocols), part.unscored) for part in suite.parts)
    return SuiteRecord(suite.name, suite.title, parts, suite.normalised, suite.average)


def _spelled(protocols: Mapping[str, Protocol]) -> dict[str, str]:
    return {name: signature(protocol) for name, protocol in protocols.items()}
