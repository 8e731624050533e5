"""Board as a value: columns, lines, view."""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, Literal
from urllib.parse import urlencode

from choicewise.errors import StoreError
from choicewise.page.reproduce import table_csv
from choicewise.protocols.catalogue import entries
from choicewise.protocols.protocol import METRICS
from choicewise.protocols.signature import family, parse_signature, short_signature, signature
from choicewise.records import SUMMARY, Manifest
from choicewise.report.findings import sentences
from choicewise.results.compare import published
from choicewise.results.finding import finding
from choicewise.results.outcomes import Outcomes, bounded
from choicewise.results.rows import WARNINGS, Row, chosen_part
from choicewise.scoring.intervals import ranks
from choicewise.store.manifest import read_manifest
from choicewise.store.tables import read_listed
from choicewise.util.tables import write_parquet


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
        parts = (key.part.data, key.part.selection, key.signature, key.texts, key.metric, key.subject)
        return short(*parts, digits=10)

    @property
    def group(self) -> str:
        """The group of items within the data; nothing where it is all of them."""
        return "" if self.key.subject == "all" else self.key.subject

    @property
    def headline(self) -> bool:
        """Whether it is the first number of its entry in the catalogue, or one that the catalogue does not know."""
        return self.key.signature not in _further()


@dataclass(frozen=True, slots=True)
class Heading:
    """A column under its protocol; ``told_apart`` where another one has the same protocol and other texts."""

    column: Column
    told_apart: bool


@dataclass(frozen=True, slots=True)
class FamilyHeading:
    """The columns of one family beside each other."""

    family: str
    headings: tuple[Heading, ...]


@dataclass(frozen=True, slots=True)
class PartHeading:
    """The columns about one part of the data.

    ``n`` items and ``chance`` (a share of 1) where all columns agree in them, else None and NaN.  ``panel``: of how
    many numbers the median is; 0 where there is none.  ``prefix``: what the names of all protocols begin with.
    """

    part: Part
    dataset: str
    n: int | None
    chance: float
    panel: int
    prefix: str
    families: tuple[FamilyHeading, ...]

    @property
    def width(self) -> int:
        """How many columns it spans."""
        return (self.panel > 0) + sum(len(family.headings) for family in self.families)

    @property
    def median(self) -> str:
        """What a view sorts by for the median."""
        return f"median-{self.part.id}"


def headings(board: Board, columns: Sequence[Column]) -> tuple[PartHeading, ...]:
    """The headings over ``columns``, which are in the order of the board."""
    alike: dict[tuple[object, ...], int] = {}
    for column in board.columns:
        alike[_protocol(column)] = alike.get(_protocol(column), 0) + 1
    parts = []
    for part, members in groupby(columns, key=lambda column: column.key.part):
        own = list(members)
        families = tuple(
            FamilyHeading(name, tuple(Heading(column, alike[_protocol(column)] > 1) for column in group))
            for name, group in groupby(own, key=lambda column: column.family)
        )
        sizes = {column.n for column in own if column.n}
        chances = {column.chance for column in own if not math.isnan(column.chance)}
        panel = len(board.panels.get(part.id, ()))
        one_size, one_chance = (
            sizes.pop() if len(sizes) == 1 else None,
            chances.pop() if len(chances) == 1 else math.nan,
        )
        parts.append(PartHeading(part, own[0].dataset, one_size, one_chance, panel, _prefix(own), families))
    return tuple(parts)


def sorted_by(seen: Shown, sort: str) -> View:
    """The view after a click on the heading of ``sort``: the other way round where the lines are sorted by it."""
    if seen.sort != sort:
        return replace(seen.view, sort=sort, order="")
    first_down = sort != "model"
    turned = seen.downwards == first_down
    return replace(seen.view, sort=sort, order=("up" if first_down else "down") if turned else "")


def order_of(seen: Shown, sort: str) -> str:
    """``ascending``, ``descending``, or nothing where the lines are sorted by something else."""
    return "" if seen.sort != sort else "descending" if seen.downwards else "ascending"


def _protocol(column: Column) -> tuple[object, ...]:
    key = column.key
    return key.part, key.signature, key.metric, key.subject


def _prefix(columns: Sequence[Column]) -> str:
    """``mmlu/`` where all protocols are of that benchmark."""
    benchmarks = {column.protocol.partition("/")[0] for column in columns}
    common = f"{benchmarks.pop()}/" if len(benchmarks) == 1 else ""
    return common if all(column.protocol.startswith(common) for column in columns) else ""


def board_finding(board: Board) -> str:
    """One to three sentences about the numbers that most models have; of a board without numbers, what it lacks.

    Numbers that are no shares of 1 have no column, and one sentence says so.
    """
    if not board.runs:
        return "No run is here yet."
    panel = {column for columns in board.panels.values() for column in columns}
    rows = [cell.row for line in board.lines for name, cell in line.cells.items() if name in panel and cell.row]
    rows += [row for run in board.runs for row in run.rows if not row.share]
    return " ".join(sentences(finding(rows))) if rows else "No run has been read yet."


MOST = 12
"""Columns that are chosen where nobody chose them."""

ANY = "any"
"""Numbers with any doubt; see :attr:`View.doubt`."""

Order = Literal["", "up", "down"]


@dataclass(frozen=True, slots=True)
class View:
    """One state of the board.

    ``data`` (ids of parts of the data), ``family`` and ``protocol`` (names) choose the columns, ``columns`` says "all"
    where all are wanted instead of a handful.  ``model`` is a part of a name.  ``doubt`` leaves only the numbers that a
    flag was raised for, with "any" those with any flag, with "none" those without.  ``sort`` is the id of a column,
    "model", or "median-" and the id of a part; nothing for the median, best first.  ``order``: "up" from the lowest,
    "down" from the highest; nothing for best first, and names from A to Z.
    """

    data: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    protocol: tuple[str, ...] = ()
    columns: str = ""
    model: str = ""
    doubt: str = ""
    sort: str = ""
    order: Order = ""

    def with_(self, **changes: Any) -> View:
        """The same state but for these changes."""
        return replace(self, **changes)

    def query(self) -> str:
        """The state as the query of an address, without what it does not say; one state has one spelling."""
        pairs: list[tuple[str, str]] = []
        for each in fields(self):
            value = getattr(self, each.name)
            pairs += [(each.name, one) for one in ((value,) if isinstance(value, str) else value) if one]
        return urlencode(pairs, errors="replace")


def read_view(pairs: Iterable[tuple[str, str]]) -> View:
    """The state that a query says, as (name, value) pairs.  What no state can mean is left out."""
    told: dict[str, list[str]] = {}
    for name, value in pairs:
        if value:
            told.setdefault(name, []).append(value)
    data, family, protocol = (tuple(dict.fromkeys(told.get(name, ()))) for name in ("data", "family", "protocol"))
    columns, model, doubt, sort = (told.get(name, [""])[-1] for name in ("columns", "model", "doubt", "sort"))
    order: Order = "up" if told.get("order", [""])[-1] == "up" else "down" if "order" in told else ""
    return View(data, family, protocol, "all" if columns == "all" else "", model, doubt, sort, order)


def known_view(board: Board, view: View) -> tuple[View, bool]:
    """The view without an order that ``board`` does not have, and whether all that it says is of the board: then there
    are only so many of its kind."""
    parts = {column.key.part.id for column in board.columns}
    sorts = {*(column.id for column in board.columns), "model", *(f"median-{part}" for part in parts)}
    known = (
        not view.model
        and parts.issuperset(view.data)
        and {column.family for column in board.columns}.issuperset(view.family)
        and {column.protocol for column in board.columns}.issuperset(view.protocol)
        and view.doubt in {"", ANY, "none", *WARNINGS}
    )
    return view if view.sort in sorts else view.with_(sort=""), known


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


@dataclass(frozen=True, eq=False)
class ListedRun:
    """One run folder at one moment.

    ``id`` stands in addresses and does not change while the run grows; ``label`` is the folder below the one that is
    served.  ``version`` is the sha256 of its manifest.  ``reason`` says in words why a run is not read.  ``manifest``
    has no blocks, which a board has no use for and which take memory; None where it can't be read.  ``computed`` is the
    id ``#R`` of the model as it was computed.  ``rows`` are not ranked; only complete runs have them, and
    ``artefacts``.
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

    @property
    def model(self) -> str:
        """The name of the model; the label where it is not known."""
        return self.label if self.manifest is None else self.manifest.model.name


@dataclass(frozen=True, slots=True)
class Cell:
    """What a line has in a column: a number with its rank, or in words why there is none.

    ``rank`` is among all numbers of the column, whatever is shown of them; equal numbers share a rank.
    """

    run: ListedRun
    row: Row | None
    words: str = ""
    rank: int | None = None

    @property
    def value(self) -> float:
        """A share of 1; NaN where there is no number."""
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
class Shown:
    """What a view leaves of a board.

    ``medians``: the ids of the parts of the data that have a column of medians.  ``sort``: what the lines are sorted
    by, which is the median where the view asks for a column that is not there; ``downwards`` says how.
    """

    view: View
    columns: tuple[Column, ...]
    medians: tuple[str, ...]
    lines: tuple[Line, ...]
    sort: str
    downwards: bool


def shown(board: Board, view: View) -> Shown:
    """What ``view`` shows of ``board``.  Lines without a number to sort by come last, in the order of their names."""
    columns = chosen_columns(board, view)
    medians = tuple(dict.fromkeys(column.key.part.id for column in columns if column.key.part.id in board.panels))
    ids = {column.id for column in columns}
    lines = [
        line
        for line in board.lines
        if view.model.casefold() in line.model.casefold()
        and any(is_shown(cell, view) for column, cell in line.cells.items() if column in ids)
    ]
    sorts = {*ids, "model", *(f"median-{part}" for part in medians)}
    default = f"median-{medians[0]}" if medians else "model"
    sort = view.sort if view.sort in sorts else default
    downwards = view.order == "down" or (not view.order and sort != "model")
    return Shown(view, columns, medians, tuple(_sorted(lines, sort, downwards)), sort, downwards)


def chosen_columns(board: Board, view: View) -> tuple[Column, ...]:
    """The columns that a view asks for, in the order of the board."""
    among = [
        column
        for column in board.columns
        if (not view.data or column.key.part.id in view.data)
        and (not view.family or column.family in view.family)
        and (not view.protocol or column.protocol in view.protocol)
    ]
    if view.columns == "all" or view.family or view.protocol:
        return tuple(among)
    return handful(among, MOST)


def is_shown(cell: Cell, view: View) -> bool:
    """Whether a view shows a cell; words are shown only where doubts don't matter."""
    if not view.doubt:
        return True
    if cell.row is None:
        return False
    flags = cell.row.diagnosis.warnings
    return not flags if view.doubt == "none" else bool(flags) if view.doubt == ANY else view.doubt in flags


def _sorted(lines: Sequence[Line], sort: str, downwards: bool) -> list[Line]:
    by_name = sorted(lines, key=lambda line: (line.model.casefold(), line.model, line.told_apart))
    if sort == "model":
        return by_name[::-1] if downwards else by_name
    numbers = {line.id: _number(line, sort) for line in by_name}
    measured = [line for line in by_name if not math.isnan(numbers[line.id])]
    measured.sort(key=lambda line: numbers[line.id] * (-1 if downwards else 1))
    return [*measured, *(line for line in by_name if math.isnan(numbers[line.id]))]


def _number(line: Line, sort: str) -> float:
    if sort.startswith("median-"):
        spread = line.spreads.get(sort.removeprefix("median-"))
        return math.nan if spread is None else spread.median
    return line.cells[sort].value if sort in line.cells else math.nan


@dataclass(frozen=True, eq=False)
class Board:
    """Every column and line of some runs; what is shown of them is chosen later (:mod:`choicewise.board.model`).

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
                wordy.append((run, key, _words(run)))
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
    parts = {column.id: column.key.part.id for column in columns}
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
            if not row.share:
                continue
            key = Key(part, row.signature, row.i, row.metric, row.subject)
            yield (
                (key, row.protocol, row)
                if row.selection == part.selection
                else (_without_texts(key), row.protocol, None)
            )
    else:
        for name, text in run.manifest.protocols.items():
            if METRICS[metric := parse_signature(text).metric].share:
                yield Key(part, text, "", metric, ""), name, None


def _without_texts(key: Key) -> Key:
    return replace(key, texts="", subject="")


def _words(run: ListedRun) -> str:
    return str(State.INCOMPLETE if run.state is State.READ else run.state)


def _ranked(members: Sequence[tuple[ListedRun, Row]]) -> dict[str, Cell]:
    placed = ranks([row.value for _, row in members]).tolist()
    return {
        run.id: Cell(run, row, rank=rank) if rank else Cell(run, row, "nothing scored")
        for (run, row), rank in zip(members, placed, strict=True)
    }


def _column(key: Key, run: ListedRun, name: str, members: Sequence[tuple[ListedRun, Row]]) -> Column:
    assert run.manifest is not None
    protocol = parse_signature(key.signature)
    row = members[0][1] if members else None
    return Column(
        key=key,
        dataset=run.manifest.dataset.name,
        protocol=name,
        p=short_signature(protocol),
        family=family(protocol) if row is None else row.family,
        n=0 if row is None else row.n + row.missing,
        chance=math.nan if row is None else row.chance,
        measured=len(members),
    )


def _ordered(columns: Iterable[Column]) -> tuple[Column, ...]:
    """By part of the data, that of the most numbers first, then by family, that with the most headlines first."""
    listed = list(columns)
    datasets, most = dict[Part, str](), Counter[Part]()
    for column in listed:
        datasets.setdefault(column.key.part, column.dataset)
        most[column.key.part] = max(most[column.key.part], column.measured)
    parts = sorted(datasets, key=lambda part: (-most[part], datasets[part], part.selection, part.data))
    places = {part: place for place, part in enumerate(parts)}
    headlines = Counter(column.family for column in listed if column.headline)
    names = sorted(dict.fromkeys(column.family for column in listed), key=lambda name: -headlines[name])
    families = {name: place for place, name in enumerate(names)}
    return tuple(sorted(listed, key=lambda column: (places[column.key.part], families[column.family])))


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
            if not math.isnan(cell.value):
                own.setdefault(parts[column], set()).add(column)
        for part, columns in own.items():
            sets.setdefault(part, Counter())[frozenset(columns)] += 1
    return {
        part: max(counts, key=lambda each: (counts[each], len(each), sorted(each))) for part, counts in sets.items()
    }


def _spreads(line: Line, panels: Mapping[str, frozenset[str]], parts: Mapping[str, str]) -> dict[str, Spread]:
    spreads = {}
    for part in dict.fromkeys(parts[column] for column in line.cells):
        panel = panels.get(part, frozenset())
        values = [line.cells[column].value for column in panel if column in line.cells]
        values = [value for value in values if not math.isnan(value)]
        whole = bool(values) and len(values) == len(panel)
        three = (median(values), min(values), max(values)) if whole else (math.nan,) * 3
        spreads[part] = Spread(*three, len(values), len(panel))
    return spreads


Ranges = Mapping[str, tuple[int, int]]
"""Lowest and highest rank in 95 % of the draws, by the id of the run; empty where there is nothing to compare."""


def rank_ranges(column: Column, cells: Mapping[str, Cell], outcomes: Mapping[str, Outcomes]) -> Ranges:
    """The ranges for the numbers of ``column``: its ``cells`` and what was decided of every item, by the id of the run.

    As :func:`choicewise.results.outcomes.bounded` of these runs alone, except that two runs of one model stay apart.
    """
    rows, runs = [], []
    for name, cell in cells.items():
        if cell.row is not None and cell.rank is not None:
            own = tuple(each for each in outcomes[name].outcomes if each.name == cell.row.protocol)
            rows.append(replace(cell.row, model=name))
            runs.append(replace(outcomes[name], model=name, outcomes=own))
    edges = ((row.model, row.rank_low, row.rank_high) for row in bounded(rows, runs))
    return {name: (low, high) for name, low, high in edges if low is not None and high is not None}


@cache
def _further() -> frozenset[str]:
    """The signatures of the catalogue that are not the headline of their entry."""
    protocols = {signature(each): place for entry in entries() for place, each in enumerate(entry.protocols.values())}
    return frozenset(text for text, place in protocols.items() if place > 0)


def handful(columns: Sequence[Column], most: int) -> tuple[Column, ...]:
    """At most so many of ``columns``, in their order: headlines, of every part of the data and family in turn.

    Of the headlines of a family those measured most often come first, then those under which numbers were published.
    """
    headlines = [column for column in columns if column.headline] or list(columns)
    turns: dict[tuple[Part, str], int] = {}
    order: list[tuple[int, int, Column]] = []
    for column in sorted(headlines, key=lambda each: (-each.measured, each.p not in published())):
        turn = turns[column.key.part, column.family] = turns.get((column.key.part, column.family), 0) + 1
        order.append((turn, len(order), column))
    chosen = {column.id for _, _, column in sorted(order, key=lambda each: each[:2])[:most]}
    return tuple(column for column in columns if column.id in chosen)


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


MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
"""Media types by ending."""

_COLUMNS = (
    *("model", "dataset", "data", "selection", "subject", "protocol", "id", "i", "t", "r", "family", "metric", "value"),
    *("se", "interval", "ci_low", "ci_high", "chance", "n", "missing", "invalid", "ties", "near_ties", "noise"),
    *("skipped", "shots_dropped", "truncated", "merged", "noncanonical", "lossy", "unknown", "flags", "signature"),
)


def artefacts(folder: Path, rows: Sequence[Row]) -> Iterator[Artefact]:
    """The files of the run in ``folder`` with these ``rows``."""
    described = {
        "rows.csv": "its numbers as CSV",
        "rows.parquet": "its numbers as Parquet",
        SUMMARY: "its numbers with every item's outcome",
    }
    for file, words in described.items():
        content = artefact_content(file, folder, rows)
        if content is not None:
            yield Artefact(words, file, hashlib.sha256(content).hexdigest())


def artefact_content(file: str, folder: Path, rows: Sequence[Row]) -> bytes | None:
    """What the file of that name holds; None where it is not (any more) what the manifest lists, or is a link."""
    if file == "rows.csv":
        return table_csv(_COLUMNS, [row.as_json() for row in rows]).encode("utf-8", "surrogatepass")
    if file == "rows.parquet":
        return _parquet(rows)
    kept = folder / SUMMARY
    try:
        return None if kept.is_symlink() else read_listed(kept, read_manifest(folder).files.get(SUMMARY))
    except StoreError:
        return None


def _parquet(rows: Sequence[Row]) -> bytes:
    import pyarrow as pa

    file = io.BytesIO()
    flat = [{name: row[name] for name in _COLUMNS} for row in (row.as_json() for row in rows)]
    write_parquet(file, pa.Table.from_pylist(flat))
    return file.getvalue()
