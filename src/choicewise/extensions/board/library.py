"""Runs below folders, kept up to date."""

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

from choicewise.bundled import is_bundled
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
from choicewise.results.outcomes import Outcomes
from choicewise.util.cache import BoundedCache

PAUSE = 2.0
"""Seconds between two looks at the folders; more where a look itself takes long."""

REFRESH = 1.0
"""Seconds after which a board shows what was read meanwhile, while more is being read."""


class Library:
    """The runs below ``folders``, with the numbers of further ``metrics`` where their protocols can have these.

    A thread of its own looks for them, has them read by a process with limits, and computes what takes long.

    Whoever asks gets the :class:`Snapshot` of the moment at once.
    """

    def __init__(
        self, folders: Sequence[Path], pause: float = PAUSE, metrics: Sequence[str] = ()
    ) -> None:
        self.folders, self._pause, self.metrics = tuple(folders), pause, tuple(metrics)
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
        self._disputed: tuple[Board | None, Listed] = None, {}
        self._board_changed, self._snapshot_changed = True, False
        self._published = 0.0
        self._wake, self._ended = Event(), Event()
        self._thread = Thread(target=self._keep_up, name="library", daemon=True)
        self._process = RunProcess(metrics)
        self.decisions = Decisions(self._read_decisions)
        self._ranges, self.means = RankRanges(self.decisions), MeanRanges(self.decisions.get)

    @property
    def snapshot(self) -> Snapshot:
        """What is known now."""
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
            self._thread.join(
                0.5
            )  # ranges that are being computed take seconds, which nobody waits for

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
        """What goes wrong stands on the board, which else stays as it was, until it goes well."""
        next_look = 0.0
        while not self._ended.is_set():
            try:
                began = time.monotonic()
                if began >= next_look:
                    self._look()
                    taken = time.monotonic() - began
                    next_look = time.monotonic() + max(self._pause, 10 * taken)
                if not self._step():
                    self._wake.wait(max(0.0, next_look - time.monotonic()))
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        words = f"the board can't follow its folders ({type(error).__name__}) and shows what it last read"
        problems = (*self._problems, words)
        if self._snapshot.problems != problems:
            self._snapshot = replace(
                self._snapshot, problems=problems, number=self._snapshot.number + 1
            )
        self._snapshot_changed = True
        self._wake.wait(self._pause)

    def _step(self) -> bool:
        """Do one thing: read a run, show what changed, or compute the ranges of a column; False with nothing to do."""
        waiting = next((run for run in self._runs.values() if run.state is State.WAITING), None)
        due = waiting is None or time.monotonic() - self._published >= REFRESH
        if due and (self._board_changed or self._snapshot_changed):
            self._publish()
        elif waiting is not None:
            self._read(waiting)
        elif self.means.compute_next(self._snapshot.board) or self._ranges.compute_next(
            self._snapshot.board
        ):
            self._snapshot_changed = True
        elif self._disputed[0] is not self._snapshot.board:
            listed = disputed(self._snapshot.board, self.decisions, self._process.questions)
            self._disputed = self._snapshot.board, listed
            self._snapshot_changed = True
        else:
            return False
        return True

    def _look(self) -> None:
        """Notice runs that came, changed or went."""
        discovery = discover(self.folders)
        self._snapshot_changed |= discovery.problems != self._problems
        runs = {name: self._seen(place) for name, place in discovery.places.items()}
        self._board_changed |= runs != self._runs
        self._places, self._runs, self._problems = dict(discovery.places), runs, discovery.problems

    def _seen(self, place: Place) -> ListedRun:
        """The run as it is known, where its manifest is the same; else as its manifest says."""
        before, known = self._places.get(place.id), self._runs.get(place.id)
        if known is not None and before is not None and before.stamp == place.stamp:
            return known
        run = self._process.look(place)
        return known if known is not None and run.version and known.version == run.version else run

    def _read(self, run: ListedRun) -> None:
        self._runs[run.id], outcomes = self._process.read(run)
        if outcomes is not None:
            self.decisions.put(self._runs[run.id], outcomes)
        self._board_changed = True

    def _read_decisions(self, run: ListedRun) -> Outcomes | None:
        known = self._runs.get(run.id)
        there = known is not None and (known.state, known.version) == (State.READ, run.version)
        return self._process.read(run)[1] if there else None

    def _publish(self) -> None:
        current = board(list(self._runs.values())) if self._board_changed else self._snapshot.board
        whole = all(run.state is not State.WAITING for run in current.runs)
        finding = (
            board_finding(current, self.decisions.get)
            if whole and self._board_changed
            else self._snapshot.finding
        )
        listed = self._disputed[1] if self._disputed[0] is current else {}
        number = self._snapshot.number + 1
        ranges, means = self._ranges.of(current), self.means.of(current)
        self._snapshot = Snapshot(
            board=current,
            ranges=ranges,
            problems=self._problems,
            finding=finding,
            number=number,
            disputed=listed,
            means=means,
            metrics=self.metrics,
        )
        self._board_changed = self._snapshot_changed = False
        self._published = time.monotonic()


def read_snapshot(folders: Sequence[Path], metrics: Sequence[str] = ()) -> Snapshot:
    """What is known of the runs below ``folders`` once all are read.  StoreError for a folder that has none."""
    library = Library(folders, metrics=metrics)
    try:
        library.catch_up()
        families = dict.fromkeys(column.family for column in library.snapshot.board.columns)
        for family in families:  # of which each has a page, in files as on a server
            library.means.want(headlines(library.snapshot.board, View(family=(family,))).measured)
        library.catch_up()
    finally:
        library.stop()
    for folder in folders:
        if not any(run.folder.is_relative_to(folder) for run in library.snapshot.board.runs):
            raise StoreError(f"no run lies in or below {folder}; make one with `choicewise run`")
    return library.snapshot


@dataclass(frozen=True, slots=True)
class AskedThere:
    """What the runs of a board were asked, as a sweep takes it; ``runs``: how many say so, 0 where none does."""

    runs: int = 0
    protocols: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    limit: int | None = None
    sample: int | None = None
    seed: int | None = None


def asked_there(folder: Path) -> AskedThere:
    """What the columns of the board in ``folder`` were asked, where every model can be asked it.

    Of runs on data of their own, or of those on the benchmarks' own, whichever are more; without runs of logs, of data
    that are not there (any more), and of data with a mapping.
    """
    process = RunProcess()
    try:
        manifests = [process.look(place).manifest for place in discover([folder]).places.values()]
    finally:
        process.close()
    jobs = [manifest.job for manifest in manifests if manifest is not None and manifest.job]
    own = [job for job in jobs if (data := job.get("data")) and all(map(_is_plain, data))]
    others = [job for job in jobs if not job.get("data")]
    chosen = max(own, others, key=len)
    parts = {tuple(map(job.get, ("limit", "sample", "seed"))) for job in chosen}
    return AskedThere(
        len(chosen),
        tuple(dict.fromkeys(name for job in chosen for name in job["protocols"])),
        tuple(dict.fromkeys(each["path"] for job in chosen for each in job.get("data") or ())),
        *(parts.pop() if len(parts) == 1 else ()),
    )


def _is_plain(data: Mapping[str, object]) -> bool:
    """Whether data can be named by their path alone, and are there."""
    path = str(data.get("path", ""))
    return set(data) == {"path"} and (
        is_bundled(path) or dataset_name(path) is not None or os.path.exists(path)
    )


LISTED = 12
"""Items of a part of the data that are listed."""


Questions = Callable[[ListedRun, Sequence[str]], Mapping[str, str]]
"""The questions of items of a run, by item."""


def disputed(
    board: Board, decisions: Decisions, questions: Questions
) -> dict[str, tuple[Disputed, ...]]:
    """The most disputed items by the id of the part of the data, over the headline columns; nothing undisputed."""
    parts: dict[Part, list[Column]] = {}
    for column in filter(lambda each: each.share, board.columns):
        parts.setdefault(column.key.part, []).append(column)
    return {
        part.id: _of_part(board, handful(columns, MOST), decisions, questions)
        for part, columns in parts.items()
    }


def _of_part(
    board: Board, columns: tuple[Column, ...], decisions: Decisions, questions: Questions
) -> tuple[Disputed, ...]:
    items: pa.Table | None = None
    right, answers = np.zeros(0), np.zeros(0)
    cells = [
        line.cells[column.id]
        for line in board.lines
        for column in columns
        if column.id in line.cells
    ]
    asked: ListedRun | None = None
    for cell in cells:
        outcomes = None if cell.row is None else decisions.get(cell.run)
        for each in () if outcomes is None else outcomes.outcomes:
            if cell.row is None or each.name != cell.row.protocol:
                continue
            if items is None:
                items, right, answers = (
                    each.items,
                    np.zeros(len(each.credit)),
                    np.zeros(len(each.credit)),
                )
                asked = cell.run
            if each.items is items:  # as they are for runs on the same items, which share the table
                right += np.nan_to_num(each.credit)
                answers += ~np.isnan(each.credit)
    if items is None or asked is None:
        return ()
    with np.errstate(invalid="ignore"):
        share = np.where(answers > 1, right / answers, np.nan)
    order = np.argsort(np.abs(share - 0.5), kind="stable")[:LISTED].tolist()
    names = {items["item"][place].as_py(): place for place in order if 0 < share[place] < 1}
    try:
        texts = questions(asked, [*names]) if names else {}
    except StoreError:  # the run went away meanwhile; its page says why
        texts = {}
    return tuple(
        Disputed(item, float(right[place]), int(answers[place]), texts.get(item, ""))
        for item, place in names.items()
    )


_MOST_WANTED = 1000
"""Columns that are remembered as asked for."""

Members = frozenset[tuple[str, str]]
"""The runs with a number in a column: id and version."""


class RankRanges:
    """Rank ranges by the id of their column, as long as the same runs have a number in it."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._known: dict[str, tuple[Members, Ranges]] = {}
        self._wanted: list[str] = []
        self._lock = Lock()

    def want(self, columns: Iterable[str]) -> None:
        """Compute those of these columns before others."""
        with self._lock:
            self._wanted = [*dict.fromkeys([*columns, *self._wanted])][:_MOST_WANTED]

    def of(self, board: Board) -> dict[str, Ranges]:
        """Those that are known and true for ``board``."""
        members = {name: _members(cells) for name, cells in _numbers(board).items()}
        self._known = {
            name: each for name, each in self._known.items() if members.get(name) == each[0]
        }
        return {name: ranges for name, (_, ranges) in self._known.items()}

    def compute_next(self, board: Board) -> bool:
        """Compute those of one column: one that was asked for, else of the handful that is shown first, else any.

        False where nothing is left to do.
        """
        lacking = {
            each.id: each
            for each in board.columns
            if each.measured > 1 and each.id not in self._known
        }
        with self._lock:
            self._wanted = [name for name in self._wanted if name in lacking]
            order = [*self._wanted, *(each.id for each in handful(board.columns, MOST)), *lacking]
        name = next((name for name in order if name in lacking), None)
        if name is None:
            return False
        cells = _numbers(board)[name]
        outcomes = {name: self._decisions.get(cell.run) for name, cell in cells.items()}
        known = {run: each for run, each in outcomes.items() if each is not None}
        whole = len(known) == len(cells)  # else a run went away, and the board is about to change
        self._known[name] = (
            _members(cells),
            rank_ranges(cells, known) if whole else {},
        )
        return True


def _numbers(board: Board) -> dict[str, dict[str, Cell]]:
    """The cells that hold numbers, by column and run."""
    numbers: dict[str, dict[str, Cell]] = {column.id: {} for column in board.columns}
    for line in board.lines:
        for name, cell in line.cells.items():
            if cell.scored:
                numbers[name][cell.run.id] = cell
    return numbers


def _members(cells: Mapping[str, Cell]) -> Members:
    return frozenset((cell.run.id, cell.run.version) for cell in cells.values())


@dataclass(frozen=True, slots=True)
class Discovery:
    """The run folders by id, and in words what could not be looked into."""

    places: Mapping[str, Place]
    problems: tuple[str, ...]


def discover(folders: Sequence[Path]) -> Discovery:
    """Every folder with a manifest at or below ``folders``, at any depth; what lies inside a run folder is its own,
    and hidden folders are not looked into.

    A run is named after the path below the folder that was given, so that nothing else of the disk is told; one that
    lies below two of them after the first.
    """
    problems: list[str] = []
    places: dict[str, Place] = {}
    seen: set[str] = set()
    names = [folder.resolve().name or str(folder) for folder in folders]
    for folder, name in zip(folders, names, strict=True):
        root = name if names.count(name) == 1 else str(folder)
        if not os.path.isdir(folder):
            problems.append(f"{root} is not there; it is shown again when it is back")
            continue
        for path, stamp in _runs(folder, root, problems):
            real = os.path.realpath(path)
            if real in seen:
                continue
            seen.add(real)
            label = os.path.normpath(os.path.join(root, path.relative_to(folder)))
            name = slug(label)
            places.setdefault(name, Place(name, label, path, stamp))
    return Discovery(dict(sorted(places.items(), key=lambda each: each[1].label)), tuple(problems))


def _runs(folder: Path, root: str, problems: list[str]) -> Iterator[tuple[Path, Stamp]]:
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        below: list[Path] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.name == MANIFEST and entry.is_file(follow_symlinks=False):
                        stat = entry.stat(follow_symlinks=False)
                        yield place, (stat.st_ino, stat.st_size, stat.st_mtime_ns)
                        break
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                        below.append(Path(entry.path))
                else:
                    waiting += below
        except FileNotFoundError:
            continue  # it went away meanwhile
        except OSError as error:
            label = os.path.normpath(os.path.join(root, place.relative_to(folder)))
            problems.append(f"{label} can't be looked into: {error.strerror}")


BUDGET = 384_000_000
"""Bytes of all decisions together: 200 runs of 14,042 items under 47 protocols take 265 million."""


class Decisions:
    """The outcomes of runs; those not asked for the longest go first.  Several threads may use it.

    ``read`` gets those that are not there (any more).  Runs on the same items share one table of them.
    """

    def __init__(self, read: Callable[[ListedRun], Outcomes | None], budget: int = BUDGET) -> None:
        self._read, self._lock = read, RLock()
        self._cache = BoundedCache[tuple[str, str], Outcomes](
            budget,
            lambda outcomes: sum(
                each.codes.nbytes + each.predicted.nbytes for each in outcomes.outcomes
            ),
        )
        self._tables: list[weakref.ref[pa.Table]] = []

    def put(self, run: ListedRun, outcomes: Outcomes) -> Outcomes:
        """Remember the outcomes of a run, with the items shared."""
        with self._lock:
            shared = tuple(
                replace(each, items=self._shared(each.items)) for each in outcomes.outcomes
            )
            outcomes = replace(outcomes, outcomes=shared)
            self._cache.put((run.id, run.version), outcomes)
            return outcomes

    def get(self, run: ListedRun) -> Outcomes | None:
        """The outcomes of a run, read again where they were forgotten; None where they can't be read any more."""
        with self._lock:
            if (outcomes := self._cache.get((run.id, run.version))) is not None:
                return outcomes
            outcomes = self._read(run)
            return None if outcomes is None else self.put(run, outcomes)

    def _shared(self, items: pa.Table) -> pa.Table:
        self._tables = [each for each in self._tables if each() is not None]
        for reference in self._tables:
            if (table := reference()) is not None and (table is items or table.equals(items)):
                return table
        self._tables.append(weakref.ref(items))
        return items
