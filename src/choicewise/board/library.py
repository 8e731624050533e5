"""Runs below folders, kept up to date."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, RLock, Thread

import numpy as np
import pyarrow as pa

from choicewise.board.model import (
    MOST,
    Board,
    Cell,
    Column,
    ListedRun,
    Part,
    Place,
    Ranges,
    Stamp,
    State,
    board,
    board_finding,
    handful,
    rank_ranges,
    slug,
)
from choicewise.board.run_documents import RunProcess
from choicewise.errors import ChoicewiseError, StoreError
from choicewise.records import ITEM_FILE, ITEMS, MANIFEST, Manifest
from choicewise.results.outcomes import Outcomes
from choicewise.results.rows import run_id
from choicewise.results.run import asked_protocols, count_items
from choicewise.scoring.observed import Floats
from choicewise.store.manifest import read_manifest, version_of
from choicewise.store.tables import read_metadata

PAUSE = 2.0
"""Seconds between two looks at the folders; more where a look itself takes long."""

REFRESH = 1.0
"""Seconds after which a board shows what was read meanwhile, while more is being read."""


@dataclass(frozen=True, slots=True)
class Disputed:
    """An item, and how many of the answers to it are right (a tie counts by its share)."""

    item: str
    right: float
    answers: int


Listed = Mapping[str, tuple[Disputed, ...]]
"""Disputed items by the id of the part of the data."""


@dataclass(frozen=True, eq=False)
class Shelf:
    """What the library knows at one moment; it never changes.

    ``ranges``: the rank ranges of the columns that have them by now, by the id of the column.  ``problems``: what could
    not be looked into.  ``finding`` says in sentences what the numbers say.  ``number`` grows with every change.
    ``disputed``: items on which the numbers disagree, by the id of the part of the data.
    """

    board: Board
    ranges: Mapping[str, Ranges]
    problems: tuple[str, ...]
    finding: str
    number: int
    disputed: Listed

    @property
    def waiting(self) -> int:
        """How many runs are still to be read."""
        return sum(run.state is State.WAITING for run in self.board.runs)

    def run(self, name: str) -> ListedRun | None:
        """The run of that id."""
        return next((run for run in self.board.runs if run.id == name), None)


class Library:
    """The runs below ``folders``.  A thread of its own looks for them, has them read by a process with limits, and
    computes what takes long.

    Whoever asks gets the :class:`Shelf` of the moment at once.
    """

    def __init__(self, folders: Sequence[Path], pause: float = PAUSE) -> None:
        self.folders, self._pause = tuple(folders), pause
        self._places: dict[str, Place] = {}
        self._runs: dict[str, ListedRun] = {}
        self._problems: tuple[str, ...] = ()
        self._shelf = Shelf(board(()), {}, (), "", 0, {})
        self._disputed: tuple[Board | None, Listed] = None, {}
        self._board_changed, self._shelf_changed = True, False
        self._published = 0.0
        self._wake, self._ended = Event(), Event()
        self._thread = Thread(target=self._keep_up, name="library", daemon=True)
        self._process = RunProcess()
        self.decisions = DecisionsKept(self._read_decisions)
        self._ranges = RangesKept(self.decisions)

    @property
    def shelf(self) -> Shelf:
        """What is known now."""
        return self._shelf

    def start(self) -> None:
        """Begin to look and read in the background."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the process that reads, at whatever they are."""
        self._ended.set()
        self._wake.set()
        self._process.close()
        if self._thread.is_alive():
            self._thread.join(0.5)  # ranges that are being computed take seconds, which nobody waits for

    def want(self, columns: Sequence[str]) -> None:
        """Compute the rank ranges of these columns before those of others."""
        lacking = [column for column in columns if column not in self._shelf.ranges]
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
        if self._shelf.problems != problems:
            self._shelf = replace(self._shelf, problems=problems, number=self._shelf.number + 1)
        self._shelf_changed = True
        self._wake.wait(self._pause)

    def _step(self) -> bool:
        """Do one thing: read a run, show what changed, or compute the ranges of a column; False with nothing to do."""
        waiting = next((run for run in self._runs.values() if run.state is State.WAITING), None)
        due = waiting is None or time.monotonic() - self._published >= REFRESH
        if due and (self._board_changed or self._shelf_changed):
            self._publish()
        elif waiting is not None:
            self._read(waiting)
        elif self._ranges.compute_next(self._shelf.board):
            self._shelf_changed = True
        elif self._disputed[0] is not self._shelf.board:
            self._disputed = self._shelf.board, disputed(self._shelf.board, self.decisions)
            self._shelf_changed = True
        else:
            return False
        return True

    def _look(self) -> None:
        """Notice runs that came, changed or went."""
        discovery = discover(self.folders)
        self._shelf_changed |= discovery.problems != self._problems
        runs = {name: self._seen(place) for name, place in discovery.places.items()}
        old = {name for name, run in self._runs.items() if runs.get(name) is not run}
        if old or len(runs) > len(self._runs):
            self.decisions.forget(old)
            self._board_changed = True
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
            self.decisions.keep(run.id, outcomes)
        self._board_changed = True

    def _read_decisions(self, name: str) -> Outcomes | None:
        run = self._runs.get(name)
        return None if run is None or run.state is not State.READ else self._process.read(run)[1]

    def _publish(self) -> None:
        made = board(list(self._runs.values())) if self._board_changed else self._shelf.board
        whole = all(run.state is not State.WAITING for run in made.runs)
        finding = board_finding(made) if whole and self._board_changed else self._shelf.finding
        listed = self._disputed[1] if self._disputed[0] is made else {}
        number = self._shelf.number + 1
        self._shelf = Shelf(made, self._ranges.of(made), self._problems, finding, number, listed)
        self._board_changed = self._shelf_changed = False
        self._published = time.monotonic()


def read_shelf(folders: Sequence[Path]) -> Shelf:
    """What is known of the runs below ``folders`` once all are read.  StoreError for a folder that has none."""
    library = Library(folders)
    try:
        library.catch_up()
    finally:
        library.stop()
    for folder in folders:
        if not any(run.folder.is_relative_to(folder) for run in library.shelf.board.runs):
            raise StoreError(f"no run lies in or below {folder}; make one with `choicewise run`")
    return library.shelf


LISTED = 12
"""Items of a part of the data that are listed."""


def disputed(board: Board, decisions: DecisionsKept) -> dict[str, tuple[Disputed, ...]]:
    """The most disputed items by the id of the part of the data, over the headline columns; nothing undisputed."""
    parts: dict[Part, list[Column]] = {}
    for column in board.columns:
        parts.setdefault(column.key.part, []).append(column)
    return {part.id: _of_part(board, handful(columns, MOST), decisions) for part, columns in parts.items()}


def _of_part(board: Board, columns: tuple[Column, ...], decisions: DecisionsKept) -> tuple[Disputed, ...]:
    items: pa.Table | None = None
    right, answers = np.zeros(0), np.zeros(0)
    for outcome_items, credit in _credits(board, columns, decisions):
        if items is None:
            items, right, answers = outcome_items, np.zeros(len(credit)), np.zeros(len(credit))
        if outcome_items is items:  # as they are for runs on the same items, which share the table
            right += np.nan_to_num(credit)
            answers += ~np.isnan(credit)
    if items is None:
        return ()
    with np.errstate(invalid="ignore"):
        share = np.where(answers > 1, right / answers, np.nan)
    order = np.argsort(np.abs(share - 0.5), kind="stable")[:LISTED].tolist()
    names = items["item"]
    return tuple(
        Disputed(names[place].as_py(), float(right[place]), int(answers[place]))
        for place in order
        if 0 < share[place] < 1
    )


def _credits(board: Board, columns: tuple[Column, ...], decisions: DecisionsKept) -> Iterator[tuple[pa.Table, Floats]]:
    for line in board.lines:
        for column in columns:
            cell = line.cells.get(column.id)
            outcomes = None if cell is None or cell.row is None else decisions.get(cell.run.id)
            if cell is not None and cell.row is not None and outcomes is not None:
                own = (each for each in outcomes.outcomes if each.name == cell.row.protocol)
                yield from ((each.items, each.credit) for each in own)


_MOST_WANTED = 1000
"""Columns that are remembered as asked for."""

Members = frozenset[tuple[str, str]]
"""The runs with a number in a column: id and version."""


class RangesKept:
    """Rank ranges by the id of their column, as long as the same runs have a number in it."""

    def __init__(self, decisions: DecisionsKept) -> None:
        self._decisions = decisions
        self._kept: dict[str, tuple[Members, Ranges]] = {}
        self._wanted: list[str] = []
        self._lock = Lock()

    def want(self, columns: Iterable[str]) -> None:
        """Compute those of these columns before others."""
        with self._lock:
            self._wanted = [*dict.fromkeys([*columns, *self._wanted])][:_MOST_WANTED]

    def of(self, board: Board) -> dict[str, Ranges]:
        """Those that are known and true for ``board``."""
        members = {name: _members(cells) for name, cells in _numbers(board).items()}
        self._kept = {name: each for name, each in self._kept.items() if members.get(name) == each[0]}
        return {name: ranges for name, (_, ranges) in self._kept.items()}

    def compute_next(self, board: Board) -> bool:
        """Compute those of one column: one that was asked for, else of the handful that is shown first, else any.

        False where nothing is left to do.
        """
        lacking = {each.id: each for each in board.columns if each.measured > 1 and each.id not in self._kept}
        with self._lock:
            self._wanted = [name for name in self._wanted if name in lacking]
            order = [*self._wanted, *(each.id for each in handful(board.columns, MOST)), *lacking]
        name = next((name for name in order if name in lacking), None)
        if name is None:
            return False
        cells = _numbers(board)[name]
        outcomes = {run: self._decisions.get(run) for run in cells}
        known = {run: each for run, each in outcomes.items() if each is not None}
        whole = len(known) == len(cells)  # else a run went away, and the board is about to change
        self._kept[name] = _members(cells), rank_ranges(lacking[name], cells, known) if whole else {}
        return True


def _numbers(board: Board) -> dict[str, dict[str, Cell]]:
    """The cells that hold numbers, by column and run."""
    numbers: dict[str, dict[str, Cell]] = {column.id: {} for column in board.columns}
    for line in board.lines:
        for name, cell in line.cells.items():
            if cell.rank is not None:
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


def look(place: Place) -> ListedRun:
    """The run at ``place`` from its manifest alone, which is quick: waiting to be read, incomplete, or unreadable.

    A run that can't be read must not end the board, so every error becomes a reason.
    """
    try:
        manifest = read_manifest(place.folder)
        version = version_of(manifest)
        asked_protocols(place.folder, manifest)
    except MemoryError:
        raise
    except Exception as error:
        return ListedRun(place.id, place.label, place.folder, State.UNREADABLE, "", reason(error, place))
    state, words = State.WAITING, ""
    if not manifest.complete:
        asked = _asked(place.folder, manifest)
        state, words = State.INCOMPLETE, f"{asked} are asked; the same `{manifest.writer}` line goes on with it"
    about = state, version, words, without_blocks(manifest), run_id(manifest)
    return ListedRun(place.id, place.label, place.folder, *about)


def reason(error: Exception, place: Place) -> str:
    """The error in words that don't tell where the served folder lies."""
    if isinstance(error, OSError) and not isinstance(error, ChoicewiseError):
        words = error.strerror or str(error)
    elif isinstance(error, ChoicewiseError):
        words = str(error)
    else:
        words = f"it can't be read ({type(error).__name__}: {error}); `choicewise report` says more"
    for spelled in dict.fromkeys((str(place.folder), os.path.abspath(place.folder), os.path.realpath(place.folder))):
        words = words.replace(spelled, place.label)
    return words


def without_blocks(manifest: Manifest) -> Manifest:
    """The manifest without the list of its blocks, of which a large run has hundreds."""
    return replace(manifest, blocks=(), files={})


def _asked(folder: Path, manifest: Manifest) -> str:
    """How far a run is, as ``1,200 of 14,042 items``."""
    done = f"{count_items(manifest.blocks):,}"
    try:
        return f"{done} of {read_metadata(folder / ITEM_FILE, ITEMS)[0].num_rows:,} items"
    except StoreError:
        return f"{done} items"


BUDGET = 384_000_000
"""Bytes of all decisions together: 200 runs of 14,042 items under 47 protocols take 265 million."""


class DecisionsKept:
    """The outcomes of runs by their id; those not asked for the longest go first.  Several threads may use it.

    ``read`` gets those that are not there (any more).  Runs on the same items share one table of them.
    """

    def __init__(self, read: Callable[[str], Outcomes | None], budget: int = BUDGET) -> None:
        self._read, self._budget, self._bytes = read, budget, 0
        self._kept: OrderedDict[str, tuple[Outcomes, int]] = OrderedDict()
        self._tables: list[pa.Table] = []
        self._lock = RLock()

    def keep(self, run: str, outcomes: Outcomes) -> None:
        """Remember the outcomes of a run, and forget others where there is no room."""
        with self._lock:
            self.forget({run})
            self._add(run, outcomes)

    def get(self, run: str) -> Outcomes | None:
        """The outcomes of a run, read again where they were forgotten; None where they can't be read any more."""
        with self._lock:
            if run in self._kept:
                self._kept.move_to_end(run)
                return self._kept[run][0]
            outcomes = self._read(run)
            return None if outcomes is None else self._add(run, outcomes)

    def forget(self, runs: set[str]) -> None:
        """Let go of runs that are not there any more, or that changed."""
        with self._lock:
            for run in runs & self._kept.keys():
                self._bytes -= self._kept.pop(run)[1]
            used = {id(each.items) for outcomes, _ in self._kept.values() for each in outcomes.outcomes}
            self._tables = [table for table in self._tables if id(table) in used]

    def _add(self, run: str, outcomes: Outcomes) -> Outcomes:
        shared = tuple(replace(each, items=self._items(each.items)) for each in outcomes.outcomes)
        size = sum(each.codes.nbytes + each.predicted.nbytes for each in shared)
        kept = replace(outcomes, outcomes=shared)
        self._kept[run] = kept, size
        self._bytes += size
        while self._bytes > self._budget and len(self._kept) > 1:
            _, (_, size) = self._kept.popitem(last=False)
            self._bytes -= size
        return kept

    def _items(self, items: pa.Table) -> pa.Table:
        for table in self._tables:
            if table is items or table.equals(items):
                return table
        self._tables.append(items)
        return items
