"""Board as a value: columns, lines, view."""

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
from choicewise.results.outcomes import Outcomes, bounded, ranked
from choicewise.results.rows import Row, chosen_part


@dataclass(frozen=True, slots=True)
class Part:
    """The data that numbers are about: the sha256 of the dataset, and in words the part of it that was asked."""

    data: str
    selection: str

    @property
    def id(self) -> str:
        """For addresses."""
        return short(self.data, self.selection)


@dataclass(frozen=True, slots=True)
class Key:
    """What two numbers must agree in to stand in one column.

    ``texts`` is the id ``#I`` of the texts that were sent, empty where no complete run says it.
    """

    part: Part
    signature: str
    texts: str
    metric: str
    subject: str


@dataclass(frozen=True)
class Column:
    """A column, and what is said about it.

    ``p`` is the short id of the protocol, ``n`` the items, ``chance`` the expected value of guessing.  ``measured``
    counts the numbers in it.
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
        """For addresses."""
        key = self.key
        parts = (
            key.part.data,
            key.part.selection,
            key.signature,
            key.texts,
            key.metric,
            key.subject,
        )
        return short(*parts, digits=10)

    @property
    def group(self) -> str:
        """The group of items within the data; nothing where it is all of them."""
        return "" if self.key.subject == "all" else self.key.subject

    @property
    def headline(self) -> bool:
        """Whether it is the first number of its entry in the catalogue, or one that the catalogue does not know."""
        return self.share and is_headline(self.protocol)

    @property
    def share(self) -> bool:
        """Whether its numbers are shares of 1, of which medians and means are made."""
        return METRICS[self.key.metric].share

    @property
    def higher(self) -> bool:
        """Whether more is better."""
        return METRICS[self.key.metric].higher


class State(StrEnum):
    """How far a run is, in the word that a cell shows instead of a number."""

    READ = "read"
    WAITING = "being read"
    INCOMPLETE = "incomplete"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file: what it is, what it is called, and the sha256 of its content."""

    words: str
    file: str
    digest: str

    @property
    def name(self) -> str:
        """For addresses: the digest with the ending."""
        return f"{self.digest}.{self.ending}"

    @property
    def ending(self) -> str:
        """Of the file's name, without the dot."""
        return self.file.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Orders:
    """What other orders of the options change under a protocol: ``flips``, the share of pairs of orders in which
    another choice is the likeliest, and ``net`` of those of requests that were sent twice; None where none was."""

    protocol: str
    flips: float
    net: float | None


@dataclass(frozen=True, eq=False)
class ListedRun:
    """One run folder at one moment.

    ``id`` stands in addresses and does not change while the run grows; ``label`` is the folder below the one that is
    served.  ``version`` is the sha256 of its manifest.  ``reason`` says in words why a run is not read.  ``manifest``
    has no blocks, which a board has no use for and which take memory; None where it can't be read.  ``computed`` is the
    id ``#R`` of the model as it was computed.  ``rows`` are not ranked; only complete runs have them, and
    ``artefacts``.  ``notes``: which metrics of the board which of its protocols can't have.
    ``orders``: of the protocols that were asked in other orders.
    """

    id: str
    label: str
    folder: Path
    state: State
    version: str
    reason: str = ""
    manifest: Manifest | None = None
    computed: str = ""
    rows: tuple[Row, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    notes: tuple[str, ...] = ()
    orders: tuple[Orders, ...] = ()

    @property
    def model(self) -> str:
        """The name of the model; the label where it is not known."""
        return self.label if self.manifest is None else self.manifest.model.name


@dataclass(frozen=True, slots=True)
class Cell:
    """What a line has in a column: a number with its rank, or in words why there is none.

    ``rank`` is among all numbers of the column, whatever is shown of them; equal numbers share a rank, and a number
    over far fewer items than another has none.
    """

    run: ListedRun
    row: Row | None
    words: str = ""
    rank: int | None = None

    @property
    def scored(self) -> bool:
        """Whether there is a number."""
        return self.row is not None and not math.isnan(self.row.merit)

    @property
    def value(self) -> float:
        """A share of 1, or a number in the unit of its metric; NaN where there is no number."""
        return math.nan if self.row is None else self.row.value


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the numbers of a model on one part of the data lie apart (shares of 1).

    ``n`` numbers were measured of the ``of`` that most models have; median, lowest and highest are NaN unless it has
    them all, because a median over other numbers is another one.
    """

    median: float
    low: float
    high: float
    n: int
    of: int


@dataclass(frozen=True, eq=False)
class Line:
    """A model, the runs of it that can share a line, and its cells by the id of their column.

    ``told_apart`` is the id ``#R`` where several lines are of a model of that name, and the run folder where they
    agree in that as well.  ``spreads`` are by the id of the part of the data.
    """

    id: str
    model: str
    told_apart: str
    runs: tuple[ListedRun, ...]
    cells: Mapping[str, Cell]
    spreads: Mapping[str, Spread]


@dataclass(frozen=True, eq=False)
class Board:
    """Every column and line of some runs; what is shown of them is chosen later.

    ``panels``: the ids of the columns whose median a line has, by the id of the part of the data.
    """

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    panels: Mapping[str, frozenset[str]]
    runs: tuple[ListedRun, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models, each once."""
        return tuple(dict.fromkeys(line.model for line in self.lines))


def board(runs: Sequence[ListedRun]) -> Board:
    """The board of ``runs``.  Runs that could not be read have no cells; their reasons stand in ``runs``."""
    numbers: dict[Key, list[tuple[ListedRun, Row]]] = {}
    wordy: list[tuple[ListedRun, Key, str]] = []
    facts: dict[Key, tuple[ListedRun, str]] = {}
    for run in runs:
        for key, name, row in _keys(run):
            facts.setdefault(key, (run, name))
            if row is None:
                wordy.append(
                    (run, key, str(State.INCOMPLETE if run.state is State.READ else run.state))
                )
            else:
                numbers.setdefault(key, []).append((run, row))
    alike: dict[Key, list[Key]] = {}
    for key in numbers:
        alike.setdefault(_without_texts(key), []).append(key)
    cells: dict[Key, dict[str, Cell]] = {key: _ranked(members) for key, members in numbers.items()}
    for run, key, words in wordy:
        for each in alike.get(key, [key]):
            cells.setdefault(each, {}).setdefault(run.id, Cell(run, None, words))
    columns = _ordered(_column(key, *facts[key], numbers.get(key, [])) for key in cells)
    own: dict[str, dict[str, Cell]] = {run.id: {} for run in runs}
    for column in columns:
        for run_id, cell in cells[column.key].items():
            own[run_id][column.id] = cell
    parts = {column.id: column.key.part.id for column in columns if column.share}
    bare = list(_lines(runs, own))
    panels = _panels(bare, parts)
    lines = tuple(replace(line, spreads=_spreads(line, panels, parts)) for line in bare)
    return Board(columns, lines, panels, tuple(runs))


def _keys(run: ListedRun) -> Iterator[tuple[Key, str, Row | None]]:
    """What a run has a cell for: the key of the column, the name of the protocol, and the number if there is one."""
    if run.manifest is None:
        return
    part = Part(run.manifest.dataset.digest, chosen_part(run.manifest.selection))
    if run.state is State.READ:
        for row in run.rows:
            key = Key(part, row.signature, row.i, row.metric, row.subject)
            whole = row.selection == part.selection
            yield key if whole else _without_texts(key), row.protocol, row if whole else None
    else:
        for name, text in run.manifest.protocols.items():
            yield Key(part, text, "", parse_signature(text).metric, ""), name, None


def _without_texts(key: Key) -> Key:
    return replace(key, texts="", subject="")


def _ranked(members: Sequence[tuple[ListedRun, Row]]) -> dict[str, Cell]:
    placed = ranked([row for _, row in members])
    return {
        run.id: Cell(run, row, "nothing scored" if math.isnan(row.merit) else "", row.rank)
        for (run, _), row in zip(members, placed, strict=True)
    }


def _column(
    key: Key, run: ListedRun, name: str, members: Sequence[tuple[ListedRun, Row]]
) -> Column:
    assert run.manifest is not None
    protocol = parse_signature(key.signature)
    row = members[0][1] if members else None
    return Column(
        key=key,
        dataset=run.manifest.dataset.name,
        protocol=name,
        p=short_signature(protocol),
        family=_family(protocol),
        n=0 if row is None else row.n + row.missing,
        chance=math.nan if row is None else row.chance,
        measured=len(members),
    )


def _family(protocol: Protocol) -> str:
    """What a protocol asks for; of numbers that are no shares of 1 their metric, unit and direction."""
    metric = METRICS[protocol.metric]
    return family(protocol) if metric.share else f"{protocol.metric} ({metric.direction})"


def _ordered(columns: Iterable[Column]) -> tuple[Column, ...]:
    """By part of the data, that of the most numbers first, then by family, that with the most headlines first."""
    listed = list(columns)
    datasets, most = dict[Part, str](), Counter[Part]()
    for column in listed:
        datasets.setdefault(column.key.part, column.dataset)
        most[column.key.part] = max(most[column.key.part], column.measured)
    parts = sorted(
        datasets, key=lambda part: (-most[part], datasets[part], part.selection, part.data)
    )
    places = {part: place for place, part in enumerate(parts)}
    headlines = Counter(column.family for column in listed if column.headline)
    names = sorted(
        dict.fromkeys(column.family for column in listed), key=lambda name: -headlines[name]
    )
    families = {name: place for place, name in enumerate(names)}
    return tuple(
        sorted(listed, key=lambda column: (places[column.key.part], families[column.family]))
    )


def _lines(runs: Sequence[ListedRun], own: Mapping[str, Mapping[str, Cell]]) -> Iterator[Line]:
    """Runs of one model as it was computed share a line, unless they have cells in the same column."""
    computed: dict[tuple[str, str], list[ListedRun]] = {}
    for run in runs:
        if own[run.id]:
            computed.setdefault((run.model, run.computed), []).append(run)
    models = Counter(model for model, _ in computed)
    for (model, how), members in computed.items():
        taken = Counter(column for run in members for column in own[run.id])
        several = max(taken.values()) > 1
        for group in [[run] for run in members] if several else [members]:
            words = [how] * (models[model] > 1) + [run.label for run in group] * several
            cells = {column: cell for run in group for column, cell in own[run.id].items()}
            name = slug(" ".join([model, how, *([group[0].label] if several else [])]))
            yield Line(name, model, " ".join(words), tuple(group), cells, {})


def _panels(lines: Sequence[Line], parts: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """For each part of the data the columns that most lines have together; of two sets as common, the larger one."""
    sets: dict[str, Counter[frozenset[str]]] = {}
    for line in lines:
        own: dict[str, set[str]] = {}
        for column, cell in line.cells.items():
            if column in parts and not math.isnan(cell.value):
                own.setdefault(parts[column], set()).add(column)
        for part, columns in own.items():
            sets.setdefault(part, Counter())[frozenset(columns)] += 1
    return {
        part: max(counts, key=lambda each: (counts[each], len(each), sorted(each)))
        for part, counts in sets.items()
    }


def _spreads(
    line: Line, panels: Mapping[str, frozenset[str]], parts: Mapping[str, str]
) -> dict[str, Spread]:
    spreads = {}
    for part in dict.fromkeys(parts[column] for column in line.cells if column in parts):
        panel = panels.get(part, frozenset())
        values = [line.cells[column].value for column in panel if column in line.cells]
        values = [value for value in values if not math.isnan(value)]
        whole = bool(values) and len(values) == len(panel)
        three = (median(values), min(values), max(values)) if whole else (math.nan,) * 3
        spreads[part] = Spread(*three, len(values), len(panel))
    return spreads


Ranges = Mapping[str, tuple[int, int]]
"""Best and worst rank that tests of all pairs leave open, by the id of the run; empty without rivals."""


def outcomes_under(outcomes: Outcomes, protocol: str, model: str) -> Outcomes:
    """Return the outcomes of a run under one protocol, as those of ``model``."""
    members = tuple(outcome for outcome in outcomes.outcomes if outcome.name == protocol)
    return replace(outcomes, model=model, outcomes=members)


def rank_ranges(
    column: Column, cells: Mapping[str, Cell], outcomes: Mapping[str, Outcomes]
) -> Ranges:
    """The ranges for the numbers of ``column``: its ``cells`` and what was decided of every item, by the id of the run.

    As :func:`choicewise.results.outcomes.bounded` of these runs alone, except that two runs of one model stay apart.
    """
    rows, runs = [], []
    for name, cell in cells.items():
        if cell.row is not None and cell.scored:
            own = tuple(each for each in outcomes[name].outcomes if each.name == cell.row.protocol)
            rows.append(replace(cell.row, model=name))
            runs.append(replace(outcomes[name], model=name, outcomes=own))
    edges = ((row.model, row.rank_low, row.rank_high) for row in bounded(ranked(rows), runs))
    return {name: (low, high) for name, low, high in edges if low is not None and high is not None}


Stamp = tuple[int, int, int]
"""What changes when a manifest is written: its inode, size and time of change in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Place:
    """A run folder: ``id`` for addresses, ``label`` as people see it, and the stamp of its manifest."""

    id: str
    label: str
    folder: Path
    stamp: Stamp


_LONGEST = 48
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


def slug(name: str) -> str:
    """``name`` in letters, digits, dots and hyphens, and eight hex digits of its sha256."""
    readable = _OTHER.sub("-", name[: 2 * _LONGEST]).strip("-.")[:_LONGEST] or "unnamed"
    return f"{readable}-{short(name)}"


def short(*parts: str, digits: int = 8) -> str:
    """The first hex digits of the sha256 over ``parts``."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode(errors="surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()[:digits]


@dataclass(frozen=True, slots=True)
class Disputed:
    """An item with its question (nothing where that can't be read), and how many of the answers to it are right.

    A tie counts by its share.
    """

    item: str
    right: float
    answers: int
    question: str = ""


Listed = Mapping[str, tuple[Disputed, ...]]
"""Disputed items by the id of the part of the data."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What the library knows at one moment; it never changes.

    ``ranges``: the rank ranges of the columns that have them by now, by the id of the column.  ``problems``: what could
    not be looked into.  ``finding`` says in sentences what the numbers say.  ``number`` grows with every change.
    ``disputed``: items on which the numbers disagree, by the id of the part of the data.  ``means``: the ranges of the
    ranks by the mean that are known by now, by the ids of the columns; each by the id of the line.  ``metrics``: those
    that the board adds to what the runs were asked.
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
        """How many runs are still to be read."""
        return sum(run.state is State.WAITING for run in self.board.runs)

    def run(self, name: str) -> ListedRun | None:
        """The run of that id."""
        return next((run for run in self.board.runs if run.id == name), None)


Placed = TypeVar("Placed")


def in_order(
    shown: Sequence[Placed],
    line_of: Callable[[Placed], Line],
    number: Callable[[Placed], float] | None,
    downwards: bool,
) -> list[Placed]:
    """What is ``shown`` of lines, by their numbers, those without one last; by their names where there are none."""

    def name(each: Placed) -> tuple[str, str, str]:
        line = line_of(each)
        return line.model.casefold(), line.model, line.told_apart

    by_name = sorted(shown, key=name)
    if number is None:
        return by_name[::-1] if downwards else by_name
    measured = [each for each in by_name if not math.isnan(number(each))]
    measured.sort(key=lambda each: number(each) * (-1 if downwards else 1))
    return [*measured, *(each for each in by_name if math.isnan(number(each)))]
