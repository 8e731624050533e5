"""Keep the runs below folders up to date, read and computed, for a board."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, RLock, Thread

import numpy as np
import pyarrow as pa

from choicewise.bundled import PREFIX
from choicewise.data.open import dataset_name
from choicewise.errors import StoreError
from choicewise.extensions.board.headlines import MeanRanges, headlines
from choicewise.extensions.board.model import (
    Board,
    Cell,
    Column,
    Disputed,
    Listed,
    ListedRun,
    Part,
    Place,
    Ranges,
    Snapshot,
    Stamp,
    State,
    board,
    rank_ranges,
    slug,
)
from choicewise.extensions.board.records import MOST, View, board_finding, handful
from choicewise.extensions.board.runs import RunProcess
from choicewise.records import MANIFEST
from choicewise.results.outcomes import Outcome, Outcomes
from choicewise.util.cache import BoundedCache

PAUSE = 2.0
"""Seconds between two looks at the folders, or ten times what a look takes if that is longer."""

REFRESH = 1.0
"""Seconds after which a board shows what was read meanwhile, while further runs are being read."""


class Library:
    """Hold the runs below ``folders``, with the numbers of further ``metrics`` if their protocols
    can have these.

    A thread looks for runs, has them read by a process with limits, and computes what takes long.
    The :class:`Snapshot` of the moment is there at once.
    """

    def __init__(
        self, folders: Sequence[Path], pause: float = PAUSE, metrics: Sequence[str] = ()
    ) -> None:
        self.folders = tuple(folders)
        self.metrics = tuple(metrics)
        self._pause = pause
        self._places: dict[str, Place] = {}
        self._runs: dict[str, ListedRun] = {}
        self._problems: tuple[str, ...] = ()
        self._snapshot = Snapshot(
            board=board(()),
            ranges={},
            problems=(),
            finding=("No run has been read yet.",),
            number=0,
            disputed={},
        )
        self._disputed_board: Board | None = None
        self._disputed: Listed = {}
        self._board_changed = True
        self._snapshot_changed = False
        self._published = 0.0
        self._wake = Event()
        self._ended = Event()
        self._thread = Thread(target=self._keep_up, name="library", daemon=True)
        self._process = RunProcess(metrics)
        self.decisions = Decisions(self._read_decisions)
        self._ranges = RankRanges(self.decisions)
        self.means = MeanRanges(self.decisions.get)

    @property
    def snapshot(self) -> Snapshot:
        """Return what is known now."""
        return self._snapshot

    def start(self) -> None:
        """Begin to look and read in the background."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the process that reads, at whatever they are."""
        self._ended.set()
        self._wake.set()
        self._process.close()
        if self._thread.is_alive():
            # Ranges that are being computed take seconds, which nobody waits for.
            self._thread.join(0.5)

    def want(self, columns: Sequence[str]) -> None:
        """Compute the rank ranges of these columns before those of others."""
        lacking = [column for column in columns if column not in self._snapshot.ranges]
        if lacking:
            self._ranges.want(lacking)

    def catch_up(self) -> None:
        """Look, read and compute until nothing is left to do, in the thread that calls it."""
        self._look()
        while self._step():
            pass

    def _keep_up(self) -> None:
        next_look = 0.0
        while not self._ended.is_set():
            try:
                began = time.monotonic()
                if began >= next_look:
                    self._look()
                    taken = time.monotonic() - began
                    # Folders on a slow disk take long to search, and others need the disk as well.
                    next_look = time.monotonic() + max(self._pause, 10 * taken)
                if not self._step():
                    self._wake.wait(max(0.0, next_look - time.monotonic()))
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Say on the board what goes wrong, until it goes well; the numbers stay as they were."""
        words = (
            f"the board can't follow its folders ({type(error).__name__}) and shows what it last "
            "read"
        )
        problems = (*self._problems, words)
        if self._snapshot.problems != problems:
            number = self._snapshot.number + 1
            self._snapshot = replace(self._snapshot, problems=problems, number=number)
        self._snapshot_changed = True
        # Whatever goes wrong must not be tried again without a pause.
        self._wake.wait(self._pause)

    def _step(self) -> bool:
        """Do one thing: read a run, show what changed, or compute the ranges of a column; False
        with nothing to do.
        """
        waiting = self._waiting_run()
        is_due = waiting is None or time.monotonic() - self._published >= REFRESH
        current = self._snapshot.board
        if is_due and (self._board_changed or self._snapshot_changed):
            self._publish()
        elif waiting is not None:
            self._read(waiting)
        elif self.means.compute_next(current) or self._ranges.compute_next(current):
            self._snapshot_changed = True
        elif self._disputed_board is not current:
            self._disputed = disputed(current, self.decisions, self._process.questions)
            self._disputed_board = current
            self._snapshot_changed = True
        else:
            return False
        return True

    def _waiting_run(self) -> ListedRun | None:
        for run in self._runs.values():
            if run.state is State.WAITING:
                return run
        return None

    def _look(self) -> None:
        """Notice runs that came, changed or went."""
        discovery = discover(self.folders)
        if discovery.problems != self._problems:
            self._snapshot_changed = True
        runs = {run_id: self._look_at(location) for run_id, location in discovery.places.items()}
        if runs != self._runs:
            self._board_changed = True
        self._places = dict(discovery.places)
        self._runs = runs
        self._problems = discovery.problems

    def _look_at(self, location: Place) -> ListedRun:
        """Return the run as it was read if its manifest is the same, else as its manifest says."""
        before = self._runs.get(location.id)
        if before is not None and self._places[location.id].stamp == location.stamp:
            return before
        run = self._process.look(location)
        # A manifest that was written again with the same content changes nothing.
        if before is not None and run.version and before.version == run.version:
            return before
        return run

    def _read(self, run: ListedRun) -> None:
        self._runs[run.id], outcomes = self._process.read(run)
        if outcomes is not None:
            self.decisions.put(self._runs[run.id], outcomes)
        self._board_changed = True

    def _read_decisions(self, run: ListedRun) -> Outcomes | None:
        current = self._runs.get(run.id)
        if current is None or current.state is not State.READ or current.version != run.version:
            return None
        _, outcomes = self._process.read(run)
        return outcomes

    def _publish(self) -> None:
        current = self._snapshot.board
        finding = self._snapshot.finding
        if self._board_changed:
            current = board(list(self._runs.values()))
            if all(run.state is not State.WAITING for run in current.runs):
                finding = board_finding(current, self.decisions.get)
        listed: Listed = {}
        # Items of an earlier board would stand beside numbers that they are not about.
        if self._disputed_board is current:
            listed = self._disputed
        self._snapshot = Snapshot(
            board=current,
            ranges=self._ranges.of(current),
            problems=self._problems,
            finding=finding,
            number=self._snapshot.number + 1,
            disputed=listed,
            means=self.means.of(current),
            metrics=self.metrics,
        )
        self._board_changed = False
        self._snapshot_changed = False
        self._published = time.monotonic()


def read_snapshot(folders: Sequence[Path], metrics: Sequence[str] = ()) -> Snapshot:
    """Return what is known of the runs below ``folders`` once all are read; StoreError for a folder
    that has none.
    """
    library = Library(folders, metrics=metrics)
    try:
        library.catch_up()
        current = library.snapshot.board
        # Every family has a page, in files as on a server.
        for family in dict.fromkeys(column.family for column in current.columns):
            library.means.want(headlines(current, View(family=(family,))).measured)
        library.catch_up()
    finally:
        library.stop()
    runs = library.snapshot.board.runs
    for folder in folders:
        if not any(run.folder.is_relative_to(folder) for run in runs):
            raise StoreError(f"no run lies in or below {folder}; make one with `choicewise run`")
    return library.snapshot


@dataclass(frozen=True, kw_only=True)
class AskedThere:
    """Hold the protocols, the data and the part of them that runs of a board have in common, as a
    sweep takes them.

    ``runs``: how many say so, 0 if none does.
    """

    runs: int = 0
    protocols: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    limit: int | None = None
    sample: int | None = None
    seed: int | None = None


def asked_there(folder: Path) -> AskedThere:
    """Return what the runs of the board in ``folder`` have in common, as far as every model can be
    evaluated so.

    It is about runs on data of their own or about runs on the benchmarks' data, whichever are in
    the majority. Runs of logs, of data that are gone, and of data with a mapping do not count.
    """
    process = RunProcess()
    try:
        runs = [process.look(location) for location in discover([folder]).places.values()]
    finally:
        process.close()
    on_data = []
    on_benchmarks = []
    for run in runs:
        if run.manifest is None or not run.manifest.job:
            continue
        job = run.manifest.job
        data = job.get("data")
        if not data:
            on_benchmarks.append(job)
        elif all(_is_plain(source) for source in data):
            on_data.append(job)
    jobs = max(on_data, on_benchmarks, key=len)
    protocols: dict[str, None] = {}
    paths: dict[str, None] = {}
    parts = set()
    for job in jobs:
        protocols |= dict.fromkeys(job["protocols"])
        paths |= dict.fromkeys(source["path"] for source in job.get("data") or ())
        parts.add((job.get("limit"), job.get("sample"), job.get("seed")))
    limit = sample = seed = None
    if len(parts) == 1:
        ((limit, sample, seed),) = parts
    return AskedThere(
        runs=len(jobs),
        protocols=tuple(protocols),
        data=tuple(paths),
        limit=limit,
        sample=sample,
        seed=seed,
    )


def _is_plain(data: Mapping[str, object]) -> bool:
    """Check that data can be named by their path alone, and are there."""
    if set(data) != {"path"}:
        return False
    path = str(data["path"])
    return path.startswith(PREFIX) or dataset_name(path) is not None or os.path.exists(path)


LISTED = 12
"""Items of a part of the data that are listed."""


Questions = Callable[[ListedRun, Sequence[str]], Mapping[str, str]]
"""Returns the questions of items of a run, by item."""


def disputed(
    board: Board, decisions: Decisions, questions: Questions
) -> dict[str, tuple[Disputed, ...]]:
    """Return the most disputed items over the headline columns, by the id of the part of the data."""
    parts: dict[Part, list[Column]] = {}
    for column in board.columns:
        if column.share:
            parts.setdefault(column.key.part, []).append(column)
    items = {}
    for part, columns in parts.items():
        items[part.id] = _disputed_items(board, handful(columns, MOST), decisions, questions)
    return items


def _disputed_items(
    board: Board, columns: Sequence[Column], decisions: Decisions, questions: Questions
) -> tuple[Disputed, ...]:
    numbers = list(_outcomes_under(board, columns, decisions))
    if not numbers:
        return ()
    run, first = numbers[0]
    right = np.zeros(len(first.credit))
    answers = np.zeros(len(first.credit))
    for _, outcome in numbers:
        # Runs on the same items share the table of them.
        if outcome.items is first.items:
            right += np.nan_to_num(outcome.credit)
            answers += ~np.isnan(outcome.credit)
    with np.errstate(invalid="ignore"):
        share = np.where(answers > 1, right / answers, np.nan)
    rows = {}
    # Models disagree most about items that half of them get right.
    for row in np.argsort(np.abs(share - 0.5), kind="stable")[:LISTED].tolist():
        if 0 < share[row] < 1:
            rows[first.items["item"][row].as_py()] = row
    texts: Mapping[str, str] = {}
    if rows:
        try:
            texts = questions(run, list(rows))
        except StoreError:  # the run went away meanwhile; its page says why
            pass
    items = []
    for item, row in rows.items():
        question = texts.get(item, "")
        items.append(Disputed(item, float(right[row]), int(answers[row]), question))
    return tuple(items)


def _outcomes_under(
    board: Board, columns: Sequence[Column], decisions: Decisions
) -> Iterator[tuple[ListedRun, Outcome]]:
    """Yield what was decided of every item for each number in ``columns``."""
    for line in board.lines:
        for _, cell in line.under(columns):
            if cell.row is None:
                continue
            outcomes = decisions.get(cell.run)
            if outcomes is None:
                continue
            for outcome in outcomes.outcomes:
                if outcome.name == cell.row.identity.protocol:
                    yield cell.run, outcome


_MOST_WANTED = 1000
"""Columns that are remembered as wanted."""

Members = frozenset[tuple[str, str]]
"""The runs with a number in a column: id and version."""


class RankRanges:
    """Remember rank ranges by the id of their column, as long as the same runs have a number in it."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._ranges: dict[str, tuple[Members, Ranges]] = {}
        self._wanted: list[str] = []
        self._lock = Lock()

    def want(self, columns: Iterable[str]) -> None:
        """Compute the ranges of these columns before others."""
        with self._lock:
            self._wanted = list(dict.fromkeys([*columns, *self._wanted]))[:_MOST_WANTED]

    def of(self, board: Board) -> dict[str, Ranges]:
        """Return the remembered ranges that are true for ``board``, and forget the others."""
        numbers = _numbers(board)
        ranges_of_board = {}
        for column, (members, ranges) in list(self._ranges.items()):
            if column in numbers and _members(numbers[column]) == members:
                ranges_of_board[column] = ranges
            else:
                del self._ranges[column]
        return ranges_of_board

    def compute_next(self, board: Board) -> bool:
        """Compute the ranges of one column; return False if nothing is left to do.

        Wanted columns come first, then the handful that is visible at first.
        """
        lacking = {}
        for column in board.columns:
            if column.measured > 1 and column.id not in self._ranges:
                lacking[column.id] = column
        with self._lock:
            self._wanted = [column for column in self._wanted if column in lacking]
            order = list(self._wanted)
        order += [column.id for column in handful(board.columns, MOST) if column.id in lacking]
        order += lacking
        if not order:
            return False
        cells = _numbers(board)[order[0]]
        outcomes = {}
        for run_id, cell in cells.items():
            of_run = self._decisions.get(cell.run)
            if of_run is not None:
                outcomes[run_id] = of_run
        ranges: Ranges = {}
        if len(outcomes) == len(cells):  # else a run went away, and the board is about to change
            ranges = rank_ranges(cells, outcomes)
        self._ranges[order[0]] = _members(cells), ranges
        return True


def _numbers(board: Board) -> dict[str, dict[str, Cell]]:
    """Return the cells that hold numbers, by column and run."""
    numbers: dict[str, dict[str, Cell]] = {column.id: {} for column in board.columns}
    for line in board.lines:
        for column, cell in line.cells.items():
            if cell.scored:
                numbers[column][cell.run.id] = cell
    return numbers


def _members(cells: Mapping[str, Cell]) -> Members:
    return frozenset((cell.run.id, cell.run.version) for cell in cells.values())


@dataclass(frozen=True)
class Discovery:
    """Hold the run folders by id, and in words what could not be looked into."""

    places: Mapping[str, Place]
    problems: tuple[str, ...]


def discover(folders: Sequence[Path]) -> Discovery:
    """Find every folder with a manifest at or below ``folders``, at any depth.

    What is inside a run folder belongs to it, and hidden folders are not looked into. A run is
    named after the path below the folder that was given, so that nothing else of the disk is told;
    one below two of them after the first.
    """
    problems: list[str] = []
    places: dict[str, Place] = {}
    real_paths: set[str] = set()
    names = [folder.resolve().name or str(folder) for folder in folders]
    for folder, name in zip(folders, names, strict=True):
        root = name
        if names.count(name) > 1:
            root = str(folder)
        if not os.path.isdir(folder):
            problems.append(f"{root} is missing; it returns to the board when it is back")
            continue
        for path, stamp in _runs(folder, root, problems):
            # A run below a link is the same run, which counts once.
            real_path = os.path.realpath(path)
            if real_path in real_paths:
                continue
            real_paths.add(real_path)
            label = os.path.normpath(os.path.join(root, path.relative_to(folder)))
            run_id = slug(label)
            places.setdefault(run_id, Place(run_id, label, path, stamp))
    ordered = sorted(places.values(), key=lambda location: location.label)
    return Discovery({location.id: location for location in ordered}, tuple(problems))


def _runs(folder: Path, root: str, problems: list[str]) -> Iterator[tuple[Path, Stamp]]:
    """Yield the run folders with the stamps of their manifests; ``problems`` gets those that can't
    be looked into.
    """
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        below: list[Path] = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name == MANIFEST and entry.is_file(follow_symlinks=False):
                        stat = entry.stat(follow_symlinks=False)
                        yield path, (stat.st_ino, stat.st_size, stat.st_mtime_ns)
                        break
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                        below.append(Path(entry.path))
                else:
                    waiting += below
        except FileNotFoundError:
            continue  # it went away meanwhile
        except OSError as error:
            label = os.path.normpath(os.path.join(root, path.relative_to(folder)))
            problems.append(f"{label} can't be looked into: {error.strerror}")


BUDGET = 384_000_000
"""Bytes of all decisions together: 200 runs of 14,042 items under 47 protocols take 265 million."""


class Decisions:
    """Remember the outcomes of runs; the least recently used go first. Several threads may use it.

    ``read`` returns outcomes that were forgotten, or None if they are gone. Runs on the same items
    share one table of them.
    """

    def __init__(self, read: Callable[[ListedRun], Outcomes | None], budget: int = BUDGET) -> None:
        self._read = read
        self._lock = RLock()
        self._cache = BoundedCache[tuple[str, str], Outcomes](budget, _bytes_of)
        self._tables: list[weakref.ref[pa.Table]] = []

    def put(self, run: ListedRun, outcomes: Outcomes) -> Outcomes:
        """Remember the outcomes of a run, and return them with the table of items shared."""
        with self._lock:
            shared = []
            for outcome in outcomes.outcomes:
                shared.append(replace(outcome, items=self._shared(outcome.items)))
            outcomes = replace(outcomes, outcomes=tuple(shared))
            self._cache.put((run.id, run.version), outcomes)
            return outcomes

    def get(self, run: ListedRun) -> Outcomes | None:
        """Return the outcomes of a run, read again if they were forgotten; None if they can't be
        read any more.
        """
        with self._lock:
            outcomes = self._cache.get((run.id, run.version))
            if outcomes is not None:
                return outcomes
            outcomes = self._read(run)
            if outcomes is None:
                return None
            return self.put(run, outcomes)

    def _shared(self, items: pa.Table) -> pa.Table:
        """Return the table that equals ``items`` and is in use, else ``items``."""
        self._tables = [reference for reference in self._tables if reference() is not None]
        for reference in self._tables:
            table = reference()
            if table is not None and (table is items or table.equals(items)):
                return table
        self._tables.append(weakref.ref(items))
        return items


def _bytes_of(outcomes: Outcomes) -> int:
    return sum(outcome.codes.nbytes + outcome.predicted.nbytes for outcome in outcomes.outcomes)
