"""How rows are laid out as tables for a paper: models by protocols where there are several, else a line each."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from choicewise.interchange.write.paper_table import Cell, Note, PaperTable
from choicewise.interchange.write.table_notes import Marks, parts, remarks, table_notes
from choicewise.report.average_table import AverageTable, average_tables
from choicewise.report.table import percent, plain
from choicewise.results.row import Row
from choicewise.web.study import Study

ACROSS = 4
"""Columns of values that fit on a page; more of them make further tables."""

NONE = "–"
"""What stands where there is no number."""


class Key(NamedTuple):
    """What a value is about beside its model."""

    dataset: str
    data: str
    part: str
    protocol: str
    id: str
    metric: str
    subject: str


def paper_tables(study: Study) -> list[PaperTable]:
    """Every table: shares of 1 in %, other numbers apart from them, then a table per suite of averages."""
    own, rows = parts(study), [*study.rows, *study.apart]
    bare = {row.model: row.model.removesuffix(f" on {row.dataset}") for row in rows}
    tables: list[PaperTable] = []
    for share in (True, False):
        if kind := [row for row in rows if row.share == share]:
            tables += _tables(kind, own, bare)
    return [*tables, *map(_average, average_tables(study.averages))]


def _tables(rows: Sequence[Row], own: dict[str, str], bare: dict[str, str]) -> Iterator[PaperTable]:
    spelled, unit = _digits(rows)
    keys = {(row.model, row.protocol, row.subject): _key(row, own[row.model]) for row in rows}
    labels = _labels(list(dict.fromkeys(keys.values())))
    cells = {(labels[keys[row.model, row.protocol, row.subject]], bare[row.model]): row for row in rows}
    about = _About(rows, own, spelled, unit)
    models = list(dict.fromkeys(bare.values()))
    models = [model for model in models if any(model == name for _, name in cells)]
    if len(models) == 1:
        yield _lines(about, models[0], {label: row for (label, _), row in cells.items()})
        return
    names = list(labels.values())
    down, across = (models, names) if len(models) > len(names) else (names, models)
    flat = {(label, model) if down is names else (model, label): row for (label, model), row in cells.items()}
    step = math.ceil(len(across) / math.ceil(len(across) / ACROSS))
    starts = range(0, len(across), step)
    for start in starts:
        chosen = across[start : start + step]
        piece = f" (part {start // step + 1} of {len(starts)})" if len(starts) > 1 else ""
        shown = {key: row for key, row in flat.items() if key[1] in chosen}
        yield _matrix(about, down, chosen, shown, "model" if down is models else "protocol", piece)


class _About(NamedTuple):
    rows: Sequence[Row]
    own: dict[str, str]
    spelled: Callable[[float], str]
    unit: str

    def cell(self, row: Row, marks: Marks) -> Cell:
        """The value of ``row`` with its interval."""
        if math.isnan(row.value):
            return Cell(NONE, marks=marks.of(remarks(row, self.own[row.model])))
        return Cell(self.spelled(row.value), self.interval(row), marks.of(remarks(row, self.own[row.model])))

    def interval(self, row: Row) -> str:
        """The 95 % interval, nothing where there is none."""
        return "" if math.isnan(row.ci_low) else f"[{self.spelled(row.ci_low)}, {self.spelled(row.ci_high)}]"

    def caption(self, about: str) -> str:
        """What is shown: metrics with their unit, ``about`` whom, on which data."""
        metrics = ", ".join(dict.fromkeys(row.metric for row in self.rows))
        return f"{metrics}{self.unit}{about} on {_listed([row.dataset for row in self.rows])}"

    def name(self, piece: str = "") -> str:
        """A word to refer to the table by."""
        metrics, datasets = (dict.fromkeys(getattr(row, name) for row in self.rows) for name in ("metric", "dataset"))
        words = " ".join([*datasets, *metrics]) if len(datasets) == 1 else " ".join(metrics)
        return re.sub("[^a-z0-9]+", "-", f"{words} {piece}".lower()).strip("-") or "table"


def _lines(about: _About, model: str, rows: dict[str, Row]) -> PaperTable:
    """One model: a line per protocol."""
    marks = Marks()
    lines = []
    for label, row in rows.items():
        value = about.cell(row, marks)
        interval = value.interval.strip("[]").replace(", ", NONE) or NONE
        numbers = [Cell(value.text, marks=value.marks), Cell(interval), Cell(f"{row.n:,}"), Cell(f"{row.missing:,}")]
        lines.append((Cell(label), *numbers, Cell(row.id)))
    heads = ["protocol", about.unit.removeprefix(" in ") or "value", "95 % interval", "n", "missing", "id"]
    missing = any(row.missing for row in rows.values())
    chosen = [place for place, head in enumerate(heads) if missing or head != "missing"]
    cells = tuple(tuple(line[place] for place in chosen) for line in lines)
    notes = (*marks.notes, *table_notes(list(rows.values())))
    texts = frozenset((0, len(chosen) - 1))
    caption = about.caption(f" of {model}")
    return PaperTable(about.name(), caption, tuple(heads[place] for place in chosen), cells, notes, texts)


def _matrix(
    about: _About, down: Sequence[str], across: Sequence[str], rows: dict[tuple[str, str], Row], corner: str, piece: str
) -> PaperTable:
    """Values by the names ``down`` and ``across``, with n at the edge of the protocols."""
    marks = Marks()
    by_protocol = corner == "protocol"
    lines = []
    for name in down:
        own = [rows.get((name, column)) for column in across]
        cells = [Cell("") if row is None else about.cell(row, marks) for row in own]
        ends = [Cell(_count(own)), Cell(_ids(own))] if by_protocol else []
        lines.append((Cell(name), *cells, *ends))
    heads = (corner, *across, *(("n", "id") if by_protocol else ()))
    if not by_protocol:
        columns = [[rows.get((name, column)) for name in down] for column in across]
        lines += [(Cell("n"), *(Cell(_count(own)) for own in columns))]
        lines += [(Cell("id"), *(Cell(_ids(own)) for own in columns))]
    shown = list(rows.values())
    notes = (*marks.notes, *table_notes(shown))
    caption = about.caption(f" of {len(dict.fromkeys(row.model for row in shown))} models") + piece
    return PaperTable(about.name(piece), caption, heads, tuple(lines), notes)


def _average(shown: AverageTable) -> PaperTable:
    """A suite: a line per model, a column per part."""
    rows = tuple(tuple(Cell(NONE if text == "-" else text) for text in row) for row in shown.rows)
    name = re.sub("[^a-z0-9]+", "-", shown.title.partition(":")[0].lower()).strip("-") or "suite"
    notes = tuple(Note(f"{note}.") for note in shown.notes)
    return PaperTable(f"{name}-average", shown.title, tuple(shown.columns), rows, notes)


def _key(row: Row, part: str) -> Key:
    return Key(row.dataset, row.data, part, row.protocol, row.id, row.metric, row.subject)


def _labels(keys: Sequence[Key]) -> dict[Key, str]:
    """What each key is called: its protocol, and what else tells it from the others."""
    labels = {key: key.protocol for key in keys}
    additions: list[Callable[[Key], str]] = [
        lambda key: f", {key.subject}",
        lambda key: f" on {key.dataset}",
        lambda key: f" ({key.part or 'all'})",
        lambda key: f" {key.data}",
        lambda key: f" {key.id}",
        lambda key: f" {key.metric}",
    ]
    for addition in additions:
        names = list(labels.values())
        alike = {name: [key for key in keys if labels[key] == name] for name in names}
        differ = {name for name, own in alike.items() if len({addition(key) for key in own}) > 1}
        labels = {key: name + addition(key) if name in differ else name for key, name in labels.items()}
    return labels


def _digits(rows: Sequence[Row]) -> tuple[Callable[[float], str], str]:
    """How values are spelled, and their unit: one decimal of a percentage, or as many as the narrowest interval has."""
    if not rows[0].share:
        return plain, ""
    halves = [50 * (row.ci_high - row.ci_low) for row in rows if row.ci_high > row.ci_low]
    decimals = min(max(1, math.ceil(-math.log10(min(halves, default=1)))), 4)
    return (lambda share: percent(share) if decimals == 1 else f"{100 * share:.{decimals}f}"), " in %"


def _count(rows: Sequence[Row | None]) -> str:
    """The n of all rows, from the least to the most."""
    counts = sorted(row.n for row in rows if row is not None)
    return "" if not counts else f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,}–{counts[-1]:,}"


def _ids(rows: Sequence[Row | None]) -> str:
    return " ".join(dict.fromkeys(row.id for row in rows if row is not None))


def _listed(names: Sequence[str]) -> str:
    different = list(dict.fromkeys(names))
    return different[0] if len(different) == 1 else f"{len(different)} datasets"
