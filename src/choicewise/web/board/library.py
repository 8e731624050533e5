"""All runs below some folders, read in the background as they come and change."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread

from choicewise.errors import StoreError
from choicewise.results.outcome import Outcomes
from choicewise.web.board.board import Board, board
from choicewise.web.board.board_finding import board_finding
from choicewise.web.board.decisions_kept import DecisionsKept
from choicewise.web.board.discovery import Place, discover
from choicewise.web.board.disputed import Listed, disputed
from choicewise.web.board.listed_run import ListedRun, State
from choicewise.web.board.ranges_kept import RangesKept
from choicewise.web.board.rank_ranges import Ranges
from choicewise.web.board.run_process import RunProcess

PAUSE = 2.0
"""Seconds between two looks at the folders; more where a look itself takes long."""

REFRESH = 1.0
"""Seconds after which a board shows what was read meanwhile, while more is being read."""


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
