"""Arrange the numbers of runs as a board, with a line for each model and a column for each number."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TypeVar

from choicewise.protocols.catalogue import is_headline
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol, family, parse_signature, short_signature
from choicewise.records import Manifest
from choicewise.results.number import Number
from choicewise.results.outcomes import Outcomes, bounded, ranked
from choicewise.results.rows import chosen_part


@dataclass(frozen=True, slots=True)
class Part:
    """Name the data that numbers are about: the sha256 of the dataset, and in words the selected
    part of it.
    """

    data: str
    selection: str

    @property
    def id(self) -> str:
        """Return the name of it in addresses."""
        return short(self.data, self.selection)


@dataclass(frozen=True, slots=True)
class Key:
    """Hold what two numbers must agree in to share a column.

    ``texts`` is the id ``#I`` of the texts that were sent, empty if no complete run says it.
    """

    part: Part
    signature: str
    texts: str
    metric: str
    subject: str


@dataclass(frozen=True, kw_only=True)
class Column:
    """Describe a column.

    ``p``: the short id of the protocol. ``n``: how many items it has. ``chance``: the expected
    value of guessing. ``measured``: how many numbers it has.
    """

    key: Key
    dataset: str
    protocol: str
    p: str
    family: str
    n: int
    chance: float
    measured: int

    @cached_property
    def id(self) -> str:
        """Return the name of it in addresses."""
        key = self.key
        part = key.part
        names = (part.data, part.selection, key.signature, key.texts, key.metric, key.subject)
        return short(*names, digits=10)

    @property
    def group(self) -> str:
        """Return the group of items within the data, or an empty text for all of them."""
        if self.key.subject == "all":
            return ""
        return self.key.subject

    @property
    def headline(self) -> bool:
        """Check that it is the first number of its entry in the catalogue, or unknown to the
        catalogue.
        """
        return self.share and is_headline(self.protocol)

    @property
    def share(self) -> bool:
        """Check that its numbers are shares of 1, of which medians and means are made."""
        return METRICS[self.key.metric].share

    @property
    def higher(self) -> bool:
        """Check that a greater number is better."""
        return METRICS[self.key.metric].higher


class State(StrEnum):
    """Say how far a run is, in the word that a cell shows instead of a number."""

    READ = "read"
    WAITING = "being read"
    INCOMPLETE = "incomplete"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Artefact:
    """Describe a file: in words, by its name, and by the sha256 of its content."""

    words: str
    file: str
    digest: str

    @property
    def name(self) -> str:
        """Return the digest with the ending, its name in addresses."""
        return f"{self.digest}.{self.ending}"

    @property
    def ending(self) -> str:
        """Return the ending of the file's name, without the dot."""
        return self.file.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Orders:
    """Hold what other orders of the options change under a protocol.

    ``flips``: the share of pairs of orders with another likeliest choice. ``net``: less those of
    requests that were sent twice, None if none was.
    """

    protocol: str
    flips: float
    net: float | None


@dataclass(frozen=True, eq=False, kw_only=True)
class ListedRun:
    """Describe one run folder at one moment.

    ``id``: its name in addresses, which does not change while the run grows. ``label``: the folder
    below the served one. ``version``: the sha256 of its manifest. ``reason``: why the run is not
    read, in words. ``manifest``: None if it can't be read; without blocks, which a board has no use
    for and which take memory. ``computed``: the id ``#R`` of the model as it was computed. ``rows``
    are not ranked; only complete runs have them and ``artefacts``. ``notes``: which of its
    protocols can't have which metrics of the board. ``orders``: of the protocols that were measured
    in other orders.
    """

    id: str
    label: str
    folder: Path
    state: State
    version: str
    reason: str = ""
    manifest: Manifest | None = None
    computed: str = ""
    rows: tuple[Number, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    notes: tuple[str, ...] = ()
    orders: tuple[Orders, ...] = ()

    @property
    def model(self) -> str:
        """Return the name of the model, or the label if it is not known."""
        if self.manifest is None:
            return self.label
        return self.manifest.model.name


@dataclass(frozen=True, slots=True)
class Cell:
    """Hold a number of a line in a column with its rank, or say in words why there is none.

    ``rank`` is among all numbers of the column, visible or not; equal numbers share a rank, and a
    number over far fewer items than another has none.
    """

    run: ListedRun
    row: Number | None
    words: str = ""
    rank: int | None = None

    @property
    def scored(self) -> bool:
        """Check that there is a number."""
        return self.row is not None and not math.isnan(self.row.merit)

    @property
    def value(self) -> float:
        """Return a share of 1, or a number in the unit of its metric; NaN if there is no number."""
        if self.row is None:
            return math.nan
        return self.row.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Hold how far the numbers of a model on one part of the data lie apart (shares of 1).

    ``n`` numbers were measured of the ``of`` that most models have. Median, lowest and highest are
    NaN unless it has them all, because a median over other numbers is another one.
    """

    median: float
    low: float
    high: float
    n: int
    of: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Line:
    """Hold a model, the runs of it that can share a line, and its cells by the id of their column.

    ``told_apart``: the id ``#R`` if several lines have a model of that name, and the run folder if
    they agree in that as well. ``spreads``: by the id of the part of the data.
    """

    id: str
    model: str
    told_apart: str
    runs: tuple[ListedRun, ...]
    cells: Mapping[str, Cell]
    spreads: Mapping[str, Spread]

    def under(self, columns: Iterable[Column]) -> Iterator[tuple[Column, Cell]]:
        """Yield those of ``columns`` under which the line has a cell, with the cell."""
        for column in columns:
            if column.id in self.cells:
                yield column, self.cells[column.id]


@dataclass(frozen=True, eq=False)
class Board:
    """Hold every column and line of some runs, from which a view selects.

    ``panels``: the ids of the columns whose median a line has, by the id of the part of the data.
    """

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    panels: Mapping[str, frozenset[str]]
    runs: tuple[ListedRun, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names of the models without repetition."""
        return tuple(dict.fromkeys(line.model for line in self.lines))


def board(runs: Sequence[ListedRun]) -> Board:
    """Return the board of ``runs``. A run that could not be read has no cells; it says why in
    ``reason``.
    """
    numbers: dict[Key, list[_RunNumber]] = {}
    without_number: list[tuple[Key, ListedRun]] = []
    first_of_key: dict[Key, tuple[ListedRun, str]] = {}
    for run in runs:
        for number in _numbers(run):
            first_of_key.setdefault(number.key, (run, number.protocol))
            if number.row is None:
                without_number.append((number.key, run))
            else:
                numbers.setdefault(number.key, []).append(number)
    keys_without_texts: dict[Key, list[Key]] = {}
    for key in numbers:
        keys_without_texts.setdefault(_without_texts(key), []).append(key)
    cells = {key: _ranked(members) for key, members in numbers.items()}
    for key, run in without_number:
        state = run.state
        if state is State.READ:
            state = State.INCOMPLETE
        # Without its texts nobody knows which of several columns the number will be in, so that it
        # waits in all.
        for key_of_column in keys_without_texts.get(key, [key]):
            of_column = cells.setdefault(key_of_column, {})
            of_column.setdefault(run.id, Cell(run, None, str(state)))

    columns = []
    for key in cells:
        run, protocol = first_of_key[key]
        columns.append(_column(key, run, protocol, numbers.get(key, [])))
    columns = _ordered(columns)
    cells_of_runs: dict[str, dict[str, Cell]] = {run.id: {} for run in runs}
    for column in columns:
        for run_id, cell in cells[column.key].items():
            cells_of_runs[run_id][column.id] = cell
    parts = {column.id: column.key.part.id for column in columns if column.share}
    lines = list(_lines(runs, cells_of_runs))
    panels = _panels(lines, parts)
    return Board(
        columns=tuple(columns),
        lines=tuple(replace(line, spreads=_spreads(line, panels, parts)) for line in lines),
        panels=panels,
        runs=tuple(runs),
    )


@dataclass(frozen=True)
class _RunNumber:
    """Hold one number of a run, or None for one that it does not have yet, with the key of its
    column.
    """

    key: Key
    protocol: str
    run: ListedRun
    row: Number | None


def _numbers(run: ListedRun) -> Iterator[_RunNumber]:
    """Yield the numbers of a run."""
    if run.manifest is None:
        return
    part = Part(run.manifest.dataset.digest, chosen_part(run.manifest.selection))
    if run.state is not State.READ:
        for name, text in run.manifest.protocols.items():
            key = Key(part, text, texts="", metric=parse_signature(text).metric, subject="")
            yield _RunNumber(key, name, run, None)
        return
    for row in run.rows:
        key = Key(
            part,
            row.identity.signature,
            texts=row.identity.i,
            metric=row.identity.metric,
            subject=row.identity.subject,
        )
        if row.identity.selection == part.selection:
            yield _RunNumber(key, row.identity.protocol, run, row)
        else:  # some items are lacking, so that it is about other data
            yield _RunNumber(_without_texts(key), row.identity.protocol, run, None)


def _without_texts(key: Key) -> Key:
    return replace(key, texts="", subject="")


def _ranked(members: Sequence[_RunNumber]) -> dict[str, Cell]:
    """Return the cells of a column by the id of the run."""
    cells = {}
    rows = ranked([member.row for member in members if member.row is not None])
    for member, row in zip(members, rows, strict=True):
        words = ""
        if math.isnan(row.merit):
            words = "nothing scored"
        cells[member.run.id] = Cell(member.run, row, words, row.ranks.rank)
    return cells


def _column(key: Key, run: ListedRun, name: str, members: Sequence[_RunNumber]) -> Column:
    assert run.manifest is not None
    protocol = parse_signature(key.signature)
    n = 0
    chance = math.nan
    if members and members[0].row is not None:
        row = members[0].row
        n = row.counts.n + row.counts.missing
        chance = row.chance
    return Column(
        key=key,
        dataset=run.manifest.dataset.name,
        protocol=name,
        p=short_signature(protocol),
        family=_family(protocol),
        n=n,
        chance=chance,
        measured=len(members),
    )


def _family(protocol: Protocol) -> str:
    """Return the family of a protocol, or for numbers that are no shares of 1 their metric, unit
    and direction.
    """
    metric = METRICS[protocol.metric]
    if metric.share:
        return family(protocol)
    return f"{protocol.metric} ({metric.direction})"


def _ordered(columns: Sequence[Column]) -> list[Column]:
    """Order columns by part of the data, that of the most numbers first, then by family, that of
    the most headlines.
    """
    datasets: dict[Part, str] = {}
    most: Counter[Part] = Counter()
    for column in columns:
        part = column.key.part
        datasets.setdefault(part, column.dataset)
        most[part] = max(most[part], column.measured)
    parts = sorted(
        datasets, key=lambda part: (-most[part], datasets[part], part.selection, part.data)
    )
    headlines = Counter(column.family for column in columns if column.headline)
    families = list(dict.fromkeys(column.family for column in columns))
    families.sort(key=lambda name: -headlines[name])
    part_order = {part: index for index, part in enumerate(parts)}
    family_order = {name: index for index, name in enumerate(families)}
    return sorted(
        columns, key=lambda column: (part_order[column.key.part], family_order[column.family])
    )


def _lines(
    runs: Sequence[ListedRun], cells_of_runs: Mapping[str, Mapping[str, Cell]]
) -> Iterator[Line]:
    """Yield the lines: runs of one model as it was computed share a line, unless they have cells in
    one column.
    """
    by_model: dict[tuple[str, str], list[ListedRun]] = {}
    for run in runs:
        if cells_of_runs[run.id]:
            by_model.setdefault((run.model, run.computed), []).append(run)
    model_counts = Counter(model for model, _ in by_model)
    for (model, computed), members in by_model.items():
        groups = [members]
        cell_counts: Counter[str] = Counter()
        for run in members:
            cell_counts.update(cells_of_runs[run.id].keys())
        is_divided = max(cell_counts.values()) > 1
        # Two runs of a model under one protocol have two numbers, which one line can't hold.
        if is_divided:
            groups = [[run] for run in members]
        for group in groups:
            told_apart = []
            names = [model, computed]
            if model_counts[model] > 1:
                told_apart.append(computed)
            if is_divided:
                told_apart.append(group[0].label)
                names.append(group[0].label)
            cells: dict[str, Cell] = {}
            for run in group:
                cells |= cells_of_runs[run.id]
            yield Line(
                id=slug(" ".join(names)),
                model=model,
                told_apart=" ".join(told_apart),
                runs=tuple(group),
                cells=cells,
                spreads={},
            )


def _panels(lines: Sequence[Line], parts: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return for each part of the data the columns that most lines have together; ties go to the
    larger set.
    """
    counts_of_parts: dict[str, Counter[frozenset[str]]] = {}
    for line in lines:
        measured: dict[str, set[str]] = {}
        for column, cell in line.cells.items():
            if column in parts and not math.isnan(cell.value):
                measured.setdefault(parts[column], set()).add(column)
        for part, columns in measured.items():
            counts_of_parts.setdefault(part, Counter())[frozenset(columns)] += 1
    panels = {}
    for part, counts in counts_of_parts.items():
        # Sorted by name at last, so that the same runs make the same board.
        ordered = sorted(counts, key=lambda panel: (counts[panel], len(panel), sorted(panel)))
        panels[part] = ordered[-1]
    return panels


def _spreads(
    line: Line, panels: Mapping[str, frozenset[str]], parts: Mapping[str, str]
) -> dict[str, Spread]:
    spreads = {}
    for part in dict.fromkeys(parts[column] for column in line.cells if column in parts):
        panel = panels.get(part, frozenset())
        values = []
        for column in panel:
            if column in line.cells and not math.isnan(line.cells[column].value):
                values.append(line.cells[column].value)
        middle = low = high = math.nan
        if values and len(values) == len(panel):
            middle = median(values)
            low = min(values)
            high = max(values)
        spreads[part] = Spread(median=middle, low=low, high=high, n=len(values), of=len(panel))
    return spreads


Ranges = Mapping[str, tuple[int, int]]
"""Best and worst rank that tests of all pairs leave open, by the id of the run; empty without
rivals.
"""


def outcomes_under(outcomes: Outcomes, protocol: str, model: str) -> Outcomes:
    """Return the outcomes of a run under one protocol, as those of ``model``."""
    members = tuple(outcome for outcome in outcomes.outcomes if outcome.name == protocol)
    return replace(outcomes, model=model, outcomes=members)


def rank_ranges(cells: Mapping[str, Cell], outcomes: Mapping[str, Outcomes]) -> Ranges:
    """Return the ranges for the numbers in ``cells``; ``outcomes``: what was decided of every item,
    both by run.
    """
    rows = []
    runs = []
    for run_id, cell in cells.items():
        if cell.row is not None and cell.scored:
            # Named after their runs, two runs of one model stay apart.
            rows.append(cell.row.with_model(run_id))
            runs.append(outcomes_under(outcomes[run_id], cell.row.identity.protocol, model=run_id))
    ranges = {}
    for row in bounded(ranked(rows), runs):
        if row.ranks.low is not None and row.ranks.high is not None:
            ranges[row.identity.model] = row.ranks.low, row.ranks.high
    return ranges


Stamp = tuple[int, int, int]
"""What changes when a manifest is written: its inode, size and time of change in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Place:
    """Name a run folder: ``id`` in addresses, ``label`` as people see it, and the stamp of its
    manifest.
    """

    id: str
    label: str
    folder: Path
    stamp: Stamp


_LONGEST = 48
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


def slug(name: str) -> str:
    """Return ``name`` in letters, digits, dots and hyphens, with eight hex digits of its sha256."""
    readable = _OTHER.sub("-", name[: 2 * _LONGEST]).strip("-.")[:_LONGEST] or "unnamed"
    return f"{readable}-{short(name)}"


def short(*parts: str, digits: int = 8) -> str:
    """Return the first hex digits of the sha256 over ``parts``."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode(errors="surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()[:digits]


@dataclass(frozen=True, slots=True)
class Disputed:
    """Hold an item with its question, empty if that can't be read, and how many of the answers to
    it are right.

    A tie counts by its share.
    """

    item: str
    right: float
    answers: int
    question: str = ""


Listed = Mapping[str, tuple[Disputed, ...]]
"""Disputed items by the id of the part of the data."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """Hold what the library knows at one moment; it never changes.

    ``ranges``: the rank ranges that are computed by now, by the id of the column. ``problems``:
    what could not be looked into. ``finding``: what the numbers say, in sentences. ``number`` grows
    with every change. ``disputed``: items on which the numbers disagree, by the id of the part of
    the data. ``means``: the ranges of the ranks by the mean that are computed by now, by the ids of
    the columns. ``metrics``: those that the board adds to what the runs have.
    """

    board: Board
    ranges: Mapping[str, Ranges]
    problems: tuple[str, ...]
    finding: tuple[str, ...]
    number: int
    disputed: Listed
    means: Mapping[tuple[str, ...], Ranges] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()

    @property
    def waiting(self) -> int:
        """Count the runs that are still to be read."""
        return sum(run.state is State.WAITING for run in self.board.runs)

    def run(self, name: str) -> ListedRun | None:
        """Return the run of that id, None if there is none."""
        for run in self.board.runs:
            if run.id == name:
                return run
        return None


T = TypeVar("T")


def in_order(
    rows: Sequence[T],
    line_of: Callable[[T], Line],
    number: Callable[[T], float] | None,
    downwards: bool,
) -> list[T]:
    """Sort rows of lines by their numbers, those without one last; by their names if there are no
    numbers.
    """

    def name(row: T) -> tuple[str, str, str]:
        line = line_of(row)
        return line.model.casefold(), line.model, line.told_apart

    # Python sorts stably, so that equal numbers stay in the order of their names.
    by_name = sorted(rows, key=name)
    if number is None:
        if downwards:
            by_name.reverse()
        return by_name
    measured = []
    others = []
    for row in by_name:
        if math.isnan(number(row)):
            others.append(row)
        else:
            measured.append(row)
    # Reversed would turn the names of equal numbers round as well.
    sign = -1 if downwards else 1
    measured.sort(key=lambda row: sign * number(row))
    return measured + others
