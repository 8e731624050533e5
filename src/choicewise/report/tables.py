"""Build the tables of `report`, the ranges of families and averages, and say what their words and
warnings mean.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from choicewise.data.items import BLANK
from choicewise.protocols.metrics import METRICS
from choicewise.results.evidence import MissingReason
from choicewise.results.guessing import guess, guesses
from choicewise.results.number import SERIOUS, WARNINGS, Number
from choicewise.results.outcomes import COMPARABLE, measured_as
from choicewise.scoring.intervals import FEWEST
from choicewise.scoring.significance import Difference
from choicewise.table import (
    Column,
    Span,
    Table,
    span_text,
    terminal_width,
    without_columns,
    written,
)
from choicewise.util.text import counted, disarmed, interval, listed, percent, plain, safe, wrapped

if TYPE_CHECKING:
    from choicewise.results.sweep import Average, PartValue

LONG = 20
"""Rows that one table has before it is shown in short."""

_MANY = 100
"""Rows that all tables together have before they are shown in short."""

_BESIDE = 6
"""Models that are side by side.

If there are more they are one below the other, that with the highest median first.
"""

_NARROW = 140
"""Columns of a terminal below which a row of a report has its ids and warnings under its name."""

RANKED_WIDTH = 13
"""Columns of a terminal that a value with its rank, or a range, needs."""

_NAMED = 26
"""Columns of a terminal that a column of ranges takes at most for the sake of its title."""

IN_SHORT = {
    "served-model": "the served model changed",
    "positive": "log-probabilities above 0",
    "placeholder": "placeholder log-probabilities",
    "margins": "all choices have equal scores",
    "many-missing": "many items are missing",
    "cut": "answers were cut",
    "many-unparsed": "many answers name no option",
    "many-tied": "many items are tied",
    "gold-constant": "the tie rule decides the score",
    "constant": "always predicts the same position",
    "position": "favors some answer positions",
    "permutation": "answers depend on the order of the options",
    "length": "favors longer or shorter choices",
    "rounded": "the endpoint rounds its probabilities",
    "mass": "labels get little probability",
    "near-ties": "undecided numerically",
    "label/text": "letters and texts disagree",
    "choices-only": "solvable without the question",
    "missing": "items are missing",
    "skipped": "rows of the data were skipped",
    "unlisted": "some answers are not listed by the server",
    "invalid": "answers name no option",
    "unused": "data fields are not shown",
    "shots_dropped": "examples dropped to fit",
    "truncated": "prompts cut to fit",
    "lossy": "text lost in tokenization",
    "unknown": "unknown tokens",
    "merged": "tokens straddle the end of the prompt",
    "noncanonical": "unusual tokenization",
    "ties": "items are tied",
}
"""Warning or count of a row → what it means, in a few words; the gravest first."""


IDS = (
    "ids: #P protocol (its signature is in the JSON), #I texts, #T tokens asked and "
    "scored, #R model as run, #D data. Equal ids mean equal content."
)
"""What the short ids are of."""

RANGE = "rank: in brackets, the ranks that are possible by paired tests of all models (95 %, Holm)"
"""What the brackets beside a rank mean."""

_EXPLAINED = {
    "gold-constant": {"margins", "constant", "many-tied", "chance"},
    "margins": {"constant", "many-tied", "chance"},
    "constant": {"chance"},
}
"""Warning → those that follow from it, and need no line of their own."""


@dataclass(frozen=True)
class _RunRows:
    """The rows of one model on one part of a dataset, and the names of the two."""

    model: str
    dataset: str
    rows: list[Number]

    @property
    def title(self) -> str:
        return f"{self.model} on {self.dataset}"


# Ranges of families


def long(rows: Sequence[Number]) -> bool:
    """Tell if there are so many rows that a line per family says more at first sight."""
    runs = _by_run(rows)
    kind = _kind(rows)
    has_fewer_lines = any(len(_lines(run.rows, kind)) < len(run.rows) for run in runs)
    has_long_run = any(len(run.rows) > LONG for run in runs)
    return has_fewer_lines and (has_long_run or len(rows) > _MANY)


def family_tables(rows: Sequence[Number]) -> list[Table]:
    """Return for each dataset the range of each family, or of each group if there are several.

    Several models are side by side, with a table of their ranks.
    """
    runs_of_dataset: dict[str, list[_RunRows]] = {}
    for run in _by_run(rows):
        runs_of_dataset.setdefault(run.dataset, []).append(run)
    tables = []
    for runs in runs_of_dataset.values():
        if len(runs) == 1:
            tables.append(_range_table(runs[0]))
            continue
        if len(runs) > _BESIDE:
            runs.sort(key=lambda run: -_median(run.rows))
        tables += _several(runs)
    return tables


def _range_table(run: _RunRows) -> Table:
    rows = run.rows
    kind = _kind(rows)
    no_better = {id(row) for row, is_guess in zip(rows, guesses(rows), strict=True) if is_guess}
    cells = []
    for name, line in _lines(rows, kind).items():
        protocols = {row.identity.protocol for row in line}
        guess_count = sum(id(row) in no_better for row in line)
        cells.append([name, _value_span(line), _median(line), len(protocols), guess_count])
    return Table(
        name="ranges",
        title=f"{run.title}, {_items(rows)}, {counted(len(_known(rows)), 'number')}",
        columns=[
            Column(kind),
            Column("range", "share", heading="range in %"),
            Column("median", "share"),
            Column("protocols", "integer"),
            Column("no better than guessing", "integer"),
        ],
        rows=cells,
    )


def _several(runs: Sequence[_RunRows]) -> list[Table]:
    """Return the ranges of several models on one dataset, and their ranks if some measured the
    same.
    """
    every = [row for run in runs for row in run.rows]
    kind = _kind(every)
    title = f"{runs[0].dataset}, {_items(every)}"
    lines_of_model = {run.model: _lines(run.rows, kind) for run in runs}
    rivals = Counter(map(measured_as, every))
    ranges: dict[str, dict[str, list[Any]]] = {}
    ranks: dict[str, dict[str, list[Any]]] = {}
    for name in _lines(every, kind):
        ranges[name] = {}
        ranks[name] = {}
        for model, lines in lines_of_model.items():
            rows = lines.get(name, [])
            ranges[name][model] = [_value_span(rows), None]
            ranks[name][model] = [_rank_span(rows, rivals), None]
    tables = [_beside(f"{title}: range in % within a {kind}", ranges, "share")]
    firsts = {}
    for run in runs:
        ranked = [row for row in run.rows if rivals[measured_as(row)] > 1]
        firsts[run.model] = [sum(row.ranks.rank == 1 for row in ranked), len(ranked)]
    if any(count for _, count in firsts.values()):
        ranks["first, or tied for it"] = firsts
        tables.append(_beside(f"{title}: ranks within a {kind}", ranks, "integer"))
    return tables


def _beside(title: str, cells: Mapping[str, Mapping[str, list[Any]]], kind: str) -> Table:
    """Return models side by side, or one below the other if they are too many.

    ``cells[line][model]`` is a value, and of how many it is (None of values that are no counts).
    """
    models = list(cells[next(iter(cells))])
    if len(models) > _BESIDE:
        cells = {model: {name: row[model] for name, row in cells.items()} for model in models}
    names = list(cells[next(iter(cells))])
    columns = [Column("line", heading=" ")]
    longest = 0
    for name in names:
        columns.append(Column(name, kind))
        columns.append(Column(f"{name}_of", "integer", joined=" of "))
        longest = max(longest, *map(len, safe(name).split()))
    rows = []
    for line, values in cells.items():
        row: list[Any] = [line]
        for name in names:
            row += values[name]
        rows.append(row)
    split = min(_NAMED, max(RANKED_WIDTH, longest + 2))
    return Table(name="beside", title=title, columns=columns, rows=rows, split=split)


def _kind(rows: Sequence[Number]) -> str:
    """Return what a line stands for."""
    subjects = {row.identity.subject for row in rows}
    return "group" if len(subjects) > 1 else "family"


def _lines(rows: Sequence[Number], kind: str) -> dict[str, list[Number]]:
    """Return the rows of each line and all together: families by their median, groups in the order
    of the rows.
    """
    lines: dict[str, list[Number]] = {}
    for row in rows:
        name = row.identity.subject if kind == "group" else row.identity.family
        lines.setdefault(name, []).append(row)
    if kind == "family":
        medians = {name: _median(line) for name, line in lines.items()}
        # Families without a number come last.
        order = sorted(medians, key=lambda name: (math.isnan(medians[name]), medians[name]))
        lines = {name: lines[name] for name in order}
    lines["all together"] = list(rows)
    return lines


def _known(rows: Sequence[Number]) -> list[float]:
    return [row.value for row in rows if not math.isnan(row.value)]


def _value_span(rows: Sequence[Number]) -> Span | None:
    values = _known(rows)
    if not values:
        return None
    return Span(min(values), max(values))


def _median(rows: Sequence[Number]) -> float:
    values = _known(rows)
    return median(values) if values else math.nan


def _rank_span(rows: Sequence[Number], rivals: Mapping[tuple[str, ...], int]) -> Span | None:
    ranks = []
    for row in rows:
        if row.ranks.rank is not None and rivals[measured_as(row)] > 1:
            ranks.append(row.ranks.rank)
    if not ranks:
        return None
    return Span(min(ranks), max(ranks))


def _items(rows: Sequence[Number]) -> str:
    counts = {row.counts.n + row.counts.missing for row in rows}
    items = counted(max(counts), "item")
    if len(counts) > 1:
        items = f"{min(counts):,} to {max(counts):,} items"
    if _kind(rows) == "group":
        return f"{items} a group"
    return items


# Averages of suites


def average_tables(averages: Sequence[Average]) -> list[Table]:
    """Return a table for each suite and part of the data: a row per model, a column per part."""
    suites: dict[tuple[str, str], list[Average]] = {}
    for average in averages:
        suites.setdefault((average.suite, average.selection), []).append(average)
    return [_average_table(suite) for suite in suites.values()]


def _average_table(averages: Sequence[Average]) -> Table:
    first = averages[0]
    selection = f" ({first.selection})" if first.selection else ""
    state = "" if all(average.complete for average in averages) else ", incomplete"
    columns = [Column("model")]
    for part in first.parts:
        name = part.benchmark
        columns.append(Column(name, "share"))
        columns.append(Column(f"{name}_raw", "share", joined=" (", closed=")"))
        columns.append(Column(f"{name}_scored", "count", joined=" ("))
        columns.append(Column(f"{name}_items", "count", joined=" of ", closed=")"))
    columns += _MEANS
    return Table(
        name="average",
        title=f"{first.suite}{selection}: values in % and their mean{state}",
        columns=columns,
        rows=[_average_row(average) for average in averages],
        notes=_notes(averages),
    )


_MEANS = (
    Column("average", "share"),
    Column("counted", "count", joined=" of "),
    Column("parts", "count", joined=" of "),
    Column("ci_low", "share", heading="95 % interval"),
    Column("ci_high", "share", joined=" – "),
    Column("n", "count"),
    Column("rank", "count"),
)


def _average_row(average: Average) -> list[Any]:
    row: list[Any] = [average.model]
    for part in average.parts:
        row += _part_values(part, average.normalised)
    low, high = average.interval
    counted_parts: list[int | None] = [None, None]
    if not average.complete:
        counted_parts = [len(average.counted), len(average.parts)]
    return [*row, average.mean, *counted_parts, low, high, average.n, average.rank]


def _part_values(part: PartValue, normalised: bool) -> list[float | None]:
    """Return the value of a part, its raw value if that is another, and how many items count if
    they are too few.
    """
    best = part.best
    if best is None:
        return [None] * 4
    raw = best.raw if normalised else None
    items = best.n + best.missing
    if best.n < COMPARABLE * items:
        return [best.value, raw, best.n, items]
    return [best.value, raw, None, None]


def _notes(averages: Sequence[Average]) -> list[str]:
    """Return which parts are missing, and how values and the mean are made."""
    models_of_problem: dict[tuple[str, str], list[str]] = {}
    better = []
    for average in averages:
        for part in average.parts:
            if part.best is None:
                key = (part.benchmark, part.problem)
                models_of_problem.setdefault(key, []).append(average.model)
            elif len(part.scored) > 1:
                scores = [f"{row.protocol} {percent(row.value)}" for row in part.scored]
                better.append(f"{average.model}: the better one of {' and '.join(scores)} counts")
    lines = []
    for (benchmark, problem), models in models_of_problem.items():
        of_models = ""
        if len(models) < len(averages):
            of_models = f" of {', '.join(models)}"
        lines.append(f"{benchmark}{of_models} is missing: {problem}")
    if not all(average.complete for average in averages):
        lines.append(
            "incomplete: the mean is over the parts that are there, so it is not the suite's score"
        )
    if averages[0].normalised:
        lines.append(
            "values are rescaled from guessing (0) to all right (100), by subtask; raw "
            "values in brackets"
        )
    return lines + better


# Numbers


def report_tables(
    rows: Sequence[Number], *, ids: bool = False, width: int | None = None
) -> list[Table]:
    """Return one table per model and dataset, a row a number, then the ranks if several models
    measured the same.

    ``ids``: with those of each number, and the range that rounding allows; on lines of their own if
    there is no room.  ``width``: columns of the terminal, by default those of the console.
    """
    width = width or console().width
    has_models = len({row.identity.model for row in rows}) > 1
    shares = [row for row in rows if row.share]
    others = by_metric([row for row in rows if not row.share])
    tables = []
    for part in (shares, *others.values()):
        for run in _by_run(part, ids):
            tables.append(_number_table(run, has_models, ids, width))
    if has_models and shares:
        tables.append(_rank_table("accuracy in % and rank", shares, "share"))
    if has_models:
        for metric, part in others.items():
            tables.append(_rank_table(f"{described(metric)} and rank", part, "number"))
    return tables


def by_metric(rows: Sequence[Number]) -> dict[str, list[Number]]:
    """Return the rows of every metric, in their order."""
    metrics: dict[str, list[Number]] = {}
    for row in rows:
        metrics.setdefault(row.identity.metric, []).append(row)
    return metrics


def described(metric: str) -> str:
    """Return a metric that is no accuracy, with its unit and which way is better."""
    return f"{metric} ({METRICS[metric].direction})"


def _number_table(run: _RunRows, has_models: bool, ids: bool, width: int) -> Table:
    rows, notes = _without_empty(run.rows)
    first = rows[0]
    hidden = _hidden_columns(rows, has_models, ids)
    title = run.title
    if "metric" in hidden:
        metric = first.identity.metric
        title += f", {metric if first.share else described(metric)}"
    if "n" in hidden:
        title += f", {first.counts.n} questions"
    # A narrow terminal has no room for texts beside the numbers.
    is_stacked = ids and width < _NARROW
    cells = []
    for row in rows:
        name = _stacked_name(row, hidden) if is_stacked else [row.identity.protocol]
        cells.append(_number_cells(name, row))
    if is_stacked:
        hidden |= {"uniform", "if calibrated", "group", "metric", "warnings", "ids"}
    columns = number_columns(first.share)
    table = Table(name="numbers", title=title, columns=columns, rows=cells, notes=notes)
    table = without_columns(table, hidden)
    if ids:
        return table
    return _fitted(table, rows, width)


def _without_empty(rows: Sequence[Number]) -> tuple[Sequence[Number], list[str]]:
    """Return the rows of protocols that have a number, and a line that names the others if they are
    several.
    """
    numbered = {row.identity.protocol for row in rows if row.counts.n}
    protocols = dict.fromkeys(row.identity.protocol for row in rows)
    names = [name for name in protocols if name not in numbered]
    if not numbered or len(names) < 2:
        return rows, []
    # The legend says why they have none.
    note = safe(f"no score under {len(names)} protocols: {listed(names, 5)}")
    return [row for row in rows if row.identity.protocol in numbered], [note]


def _hidden_columns(rows: Sequence[Number], has_models: bool, ids: bool) -> set[str]:
    """Return the columns that say nothing: those with one value stand in the title."""
    hidden = set()
    if len({row.identity.metric for row in rows}) == 1:
        hidden.add("metric")
    if len({row.identity.subject for row in rows}) == 1:
        hidden.add("group")
    if not has_models:
        hidden |= {"rank", "rank_low", "rank_high", "scored", "items"}
    if not ids:
        hidden |= {"numeric", "numeric_high", "ids"}
        if len({row.counts.n for row in rows}) == 1:
            hidden.add("n")
    return hidden


def number_columns(share: bool) -> list[Column]:
    """Return the columns of a table of accuracies, or of numbers that are no shares of 1."""
    kind = "share" if share else "number"
    return [
        Column("protocol", "lines"),
        Column("group"),
        Column("metric"),
        Column("value", kind, heading="%" if share else "value"),
        Column("scored", "count", joined=" ("),
        Column("items", "count", joined=" of ", closed=")"),
        Column("ci_low", kind, heading="95 % interval"),
        Column("ci_high", kind, joined=" – "),
        Column("numeric", kind, optional=True, blank=True),
        Column("numeric_high", kind, joined=" – "),
        Column("uniform", "number", optional=True),
        Column("if calibrated", "number", optional=True),
        Column("n", "integer"),
        Column("rank", "integer", blank=True),
        Column("rank_low", "integer", joined=" ["),
        Column("rank_high", "integer", joined="-", closed="]"),
        Column("warnings", optional=True, blank=True),
        Column("ids"),
    ]


def _number_cells(name: Sequence[str], row: Number) -> list[Any]:
    numeric: list[float | None] = [None, None]
    if row.bounds.low < row.bounds.high or _is_unbounded(row):
        numeric = [row.bounds.low, row.bounds.high]
    uniform = None
    calibrated = None
    if not row.share:
        uniform = row.chance
        calibrated = row.calibrated
    return [
        name,
        row.identity.subject,
        row.identity.metric,
        value_cell(row),
        *scored_cells(row),
        row.interval.low,
        row.interval.high,
        *numeric,
        uniform,
        calibrated,
        row.counts.n,
        row.ranks.rank,
        row.ranks.low,
        row.ranks.high,
        ", ".join(_warnings(row)) or None,
        f"{row.identity.id} {row.identity.i} {row.identity.t}",
    ]


def value_cell(row: Number) -> float | Span:
    """Return the value of a row, or the bounds of one that rounding leaves open."""
    if row.open:
        return Span(row.bounds.low, row.bounds.high)
    return row.value


def scored_cells(row: Number) -> list[int | None]:
    """Return how many of its items a row scored, and how many there are.

    None if all were scored, or none.
    """
    if row.counts.missing and row.counts.n:
        return [row.counts.n, row.counts.n + row.counts.missing]
    return [None, None]


def _stacked_name(row: Number, hidden: AbstractSet[str]) -> list[str]:
    """Return the name of a row, with ids, visible texts and warnings on further lines."""
    texts = [f"{row.identity.id} {row.identity.i} {row.identity.t}"]
    if "group" not in hidden:
        texts.append(row.identity.subject)
    if "metric" not in hidden:
        texts.append(row.identity.metric)
    lines = [row.identity.protocol, f"  {' '.join(filter(None, texts))}"]
    warnings = ", ".join(_warnings(row))
    if warnings:
        lines.append(f"  {warnings}")
    return lines


def _fitted(table: Table, rows: Sequence[Number], width: int) -> Table:
    """Return the table with as many warnings in each row as there is room for in a line."""
    room = width - terminal_width(without_columns(table, {"warnings"})) - 2
    column = [column.name for column in table.columns].index("warnings")
    cells = []
    for row, values in zip(rows, table.rows, strict=True):
        fitted = list(values)
        if fitted[column] is not None:
            fitted[column] = _first(_warnings(row), room)
        cells.append(fitted)
    return replace(table, rows=cells)


def _first(words: Sequence[str], room: int) -> str:
    """Return as many of ``words`` as there is room for on a line, and how many others there are."""
    for count in range(len(words), -1, -1):
        parts = list(words[:count])
        if count < len(words):
            parts.append(f"+{len(words) - count}")
        text = ", ".join(parts)
        if len(text) <= room:
            return text
    return ""


def _is_unbounded(row: Number) -> bool:
    """Tell if it is unknown what rounding does to the value."""
    is_text = row.answers is not None and not row.cut
    return row.counts.n > 0 and (math.isnan(row.bounds.low) or is_text)


def _warnings(row: Number) -> list[str]:
    warnings = list(row.diagnosis.warnings)
    if row.unused:
        warnings.append(f"unused: {', '.join(map(safe, row.unused))}")
    return warnings + row.tally_texts


def _rank_table(title: str, rows: Sequence[Number], kind: str) -> Table:
    """Return the values and ranks of models, a row per protocol."""
    has_groups = len({row.identity.subject for row in rows}) > 1
    has_parts = len({row.identity.selection for row in rows}) > 1
    lines: dict[str, dict[str, Number]] = {}
    for row in rows:
        name = row.identity.protocol
        if has_groups:
            name += f" {row.identity.subject}"
        if has_parts:
            name += f" ({row.identity.selection or 'all'})"
        lines.setdefault(name, {})[row.identity.model] = row
    columns = [Column("protocol", heading=" ")]
    models = dict.fromkeys(model for line in lines.values() for model in line)
    for model in models:
        columns += ranked_columns(model, kind)
    cells = []
    for name, line in lines.items():
        values: list[Any] = [name]
        for model in models:
            values += ranked_cells(line.get(model))
        cells.append(values)
    return Table(name="ranks", title=title, columns=columns, rows=cells, split=RANKED_WIDTH)


def ranked_columns(title: str, kind: str) -> list[Column]:
    """Return the columns of a value with its rank, or else with what was scored: "27.3 (2)", "27.3
    (22 of 59)".
    """
    return [
        Column(title, kind, blank=True),
        Column(f"{title}_rank", "integer", joined=" (", closed=")"),
        Column(f"{title}_scored", "count", joined=" ("),
        Column(f"{title}_items", "count", joined=" of ", closed=")"),
    ]


def ranked_cells(row: Number | None) -> list[float | None]:
    """Return the cells of :func:`ranked_columns`; nothing but None if there is no row."""
    if row is None:
        return [None, None, None, None]
    if row.ranks.rank:
        return [row.value, row.ranks.rank, None, None]
    return [row.value, None, *scored_cells(row)]


def _by_run(rows: Sequence[Number], ids: bool = False) -> list[_RunRows]:
    """Return the rows of each model and part of a dataset.

    Names have their ids if ``ids`` says so, or if several models or datasets have one name.
    """
    runs: dict[tuple[str, ...], list[Number]] = {}
    ids_of_model: dict[str, set[str]] = {}
    ids_of_dataset: dict[str, set[str]] = {}
    for row in rows:
        key = (
            row.identity.model,
            row.identity.r,
            row.identity.dataset,
            row.identity.data,
            row.identity.selection,
        )
        runs.setdefault(key, []).append(row)
        ids_of_model.setdefault(row.identity.model, set()).add(row.identity.r)
        ids_of_dataset.setdefault(row.identity.dataset, set()).add(row.identity.data)
    named = []
    for (model, r, dataset, data, selection), rows_of_run in runs.items():
        model_name = model
        if ids or len(ids_of_model[model]) > 1:
            model_name = f"{model} {r}"
        dataset_name = dataset
        if ids or len(ids_of_dataset[dataset]) > 1:
            dataset_name = f"{dataset} {data}"
        if selection:
            dataset_name += f" ({selection})"
        named.append(_RunRows(model_name, dataset_name, rows_of_run))
    return named


# Words and warnings


def letter_notes(rows: Sequence[Number]) -> list[str]:
    """Return that bits per byte of letters say nothing about the answers, a line at most."""
    names = []
    for row in rows:
        is_bits = not row.share and METRICS[row.identity.metric].unit == "bits/byte"
        if is_bits and row.identity.family == "letters" and row.identity.protocol not in names:
            names.append(row.identity.protocol)
    if not names:
        return []
    reason = 'a letter such as " A" is not an answer\'s text; use a protocol that scores texts'
    return [f"bits per byte of letters ({listed(names)}): {reason}"]


def legend(rows: Sequence[Number], ids: bool = False) -> list[str]:
    """Return what the words, warnings, columns and counts in ``rows`` mean.

    With ``ids`` what ids mean, too.
    """
    lines = ["protocol: prompt + examples + scoring rule; names read SOURCE:SCORE"]
    if long(rows):
        lines.append("family: what a protocol asks for")
    raised_warnings = {warning for row in rows for warning in row.diagnosis.warnings}
    for warning, meaning in WARNINGS.items():
        if warning in raised_warnings:
            lines.append(f"{warning}: {meaning}")
    unused = {name for row in rows for name in row.unused}
    if unused:
        line = "unused: data fields that the protocol does not show"
        if BLANK in unused:
            line += "; _ is a blank in the question for the choices"
        lines.append(line)
    if ids:
        lines += _numeric_lines(rows)
    lines += _bound_lines(rows)
    lines += _rank_lines(rows)
    lines += map(safe, letter_notes(rows))
    lines += reasons(rows)
    sources: dict[str, None] = {}
    for row in rows:
        sources |= dict.fromkeys((row.identity.model_source, row.identity.dataset_source))
    sources.pop("", None)
    if sources:
        lines.append(safe(f"exact version: {', '.join(sources)}"))
    if ids:
        lines.append(IDS)
    width = console().width
    parts = []
    for line in lines:
        parts += wrapped(line, width)
    return parts


def _numeric_lines(rows: Sequence[Number]) -> list[str]:
    """Return what the ranges that rounding allows mean, if there are any."""
    noise = 0.0
    for row in rows:
        if row.bounds.low < row.bounds.high and not row.cut:
            noise = max(noise, row.bounds.noise or 0.0)
    has_dashes = any(map(_is_unbounded, rows))
    if not noise and not has_dashes:
        return []
    line = "numeric: possible range with rounding, empty if rounding changes nothing"
    if has_dashes:
        line += ", - if unknown"
    if noise:
        line += (
            f"; a token's log-probability is uncertain by up to {noise:.2g} nats, n tokens by "
            "√n times as much"
        )
    return [line]


def _bound_lines(rows: Sequence[Number]) -> Iterator[str]:
    """Yield why values have bounds, and intervals are missing."""
    if any(row.counts.unlisted for row in rows):
        yield (
            "unlisted answers: the server lists only the most likely next tokens, so "
            "others have only an upper bound; numeric is the range of all values they "
            "could have, with the items they leave undecided"
        )
    if any(row.cut for row in rows):
        yield "cut answers: numeric is the range over all possible endings"
    for row in rows:
        if row.interval.name == "clustered" and row.counts.n and math.isnan(row.interval.low):
            yield (
                f"95 % interval: none with fewer than {FEWEST} subjects, as it would be too small"
            )
            break


def _rank_lines(rows: Sequence[Number]) -> Iterator[str]:
    """Yield what ranks, missing ranks and errors of samples mean."""
    if any(row.ranks.low is not None for row in rows):
        yield RANGE
    is_unranked = any(row.coverage and row.ranks.rank is None for row in rows)
    if is_unranked and any(row.ranks.rank for row in rows):
        yield "no rank: too few items that other models scored, too"
    for row in rows:
        if row.population is not None and row.interval.name != "clustered":
            yield (
                "sample: errors and intervals are for all questions of the population; they "
                "are √(1 - n / all) as wide"
            )
            break


def serious_warnings(rows: Sequence[Number], guesses: bool = True) -> list[str]:
    """Return a line for each alarm, which speaks against numbers themselves, however many numbers
    have it.

    ``guesses``: also that numbers are no better than guessing, unless another alarm is about the
    same.
    """
    lines = []
    for warning in SERIOUS:
        warned = []
        for row in rows:
            is_guess = warning == "chance" and not guesses and guess(row)
            if warning in raised(row) and not is_guess:
                warned.append(row)
        if not warned:
            continue
        numbers = f"{safe(warned[0].identity.model)} under {warned[0].identity.protocol}"
        if len(warned) > 1:
            numbers = f"{len(warned):,} of {counted(len(rows), 'number')}, such as {numbers}"
        lines.append(f"alarm: {warning}, {numbers}: {_explained(warning, warned[0])}")
    return lines


def raised(row: Number) -> set[str]:
    """Return the warnings of a row without those that follow from another of them."""
    warnings = set(row.diagnosis.warnings)
    if "cut" in warnings and row.answers is not None:
        # Items that are missing because their answers were cut or empty are told by the other
        # warning.
        if row.counts.missing <= row.cut + row.answers.empty:
            warnings.discard("many-missing")
    followers: set[str] = set()
    for warning in warnings:
        followers |= _EXPLAINED.get(warning, set())
    return warnings - followers


def _explained(warning: str, row: Number) -> str:
    if warning == "gold-constant":
        return (
            f"{row.counts.ties} of {row.counts.n} items are tied and the right choice is "
            "at the same position in all of them, so the tie rule decides the accuracy; "
            "shuffle the choices"
        )
    if warning == "cut":
        return row.cut_text
    if warning == "served-model":
        return f"{WARNINGS[warning]} ({safe(row.server_changed)})"
    return WARNINGS[warning]


def reasons(rows: Sequence[Number]) -> list[str]:
    """Return why items are missing or skipped, a line for every reason and count, with how many
    protocols have it.
    """
    lines = []
    for group in reason_groups(rows):
        why = group.reason
        lines.append(
            safe(f"{group.kind}{group.under}: {why.count:,}, such as {why.example}: {why.reason}")
        )
    return lines


@dataclass(frozen=True)
class ReasonGroup:
    """A reason why items are ``missing`` or rows are ``skipped``, and the protocols that have it."""

    kind: str
    reason: MissingReason
    protocols: tuple[str, ...]

    @property
    def under(self) -> str:
        """Name the protocol, or count them; empty if the reason does not depend on protocols."""
        if not self.protocols:
            return ""
        if len(self.protocols) == 1:
            return f" under {self.protocols[0]}"
        return f" under {len(self.protocols)} protocols"


def reason_groups(rows: Sequence[Number]) -> Iterator[ReasonGroup]:
    """Yield every reason and count in ``rows``, once with all protocols that have it."""
    groups: dict[tuple[str, MissingReason], dict[str, None]] = {}
    for row in rows:
        for reason in row.missing_reasons:
            groups.setdefault(("missing", reason), {})[row.identity.protocol] = None
        for reason in row.skipped_reasons:
            groups.setdefault(("skipped", reason), {})
    for (kind, reason), protocols in groups.items():
        yield ReasonGroup(kind, reason, tuple(protocols))


# What a check of a model measured


def trial_table(name: str, title: str, trials: list[dict[str, Any]], note: str) -> Table:
    """Return a row for each way of computing that was tried, with what was refused."""
    rows = []
    for trial in trials:
        remark = f"refused: {trial['refused']}" if trial["refused"] else "taken"
        rows.append((trial["rung"], trial["difference"], remark))
    return Table(name="trials", title=title, columns=noise_columns(name), rows=rows, notes=[note])


def noise_columns(name: str) -> list[Column]:
    """Return the columns of differences in nats, each with a remark."""
    return [
        Column(name),
        Column("nats", "size"),
        Column("remark", heading=" "),
    ]


# Values in sentences


def shown_value(row: Number, spelled: Callable[[float], str]) -> str:
    """Return the value of a row, or the bounds of one that rounding leaves open."""
    value = value_cell(row)
    if isinstance(value, Span):
        return span_text(value, spelled)
    return spelled(value)


def value_text(row: Number, value: float) -> str:
    """Return a value of the row's metric in words: accuracies in percent, others as :func:`plain`
    writes them.
    """
    if row.share and not math.isnan(value):
        return f"{percent(value)} %"
    return plain(value)


def interval_text(row: Number) -> str:
    """Return the interval of a row; a dash if it has none."""
    return interval(row.interval.low, row.interval.high, percent if row.share else plain)


def nats(mean: Difference) -> str:
    """Return a mean in nats with its 95 % interval if it has one, in three digits: ``0.0123 [0.0101
    – 0.0145]``.
    """
    text = written(mean.value, "nats")
    if math.isnan(mean.se):
        return text
    return f"{text} [{written(mean.ci_low, 'nats')} – {written(mean.ci_high, 'nats')}]"


# The console


def console() -> Console:
    """Return where results go: stdout, as wide as the terminal. Text is printed as it is, never
    read as markup.
    """
    width = None if sys.stdout.isatty() else _WIDE
    return _Plain(width=width, highlight=False, markup=False, emoji=False)


_WIDE = 100
"""Columns of a table that goes to a file or a pipe, where nothing limits it."""


class _Plain(Console):
    """A console that shows texts as they are, but for what a terminal would obey."""

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(disarmed(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        if isinstance(renderable, Text):
            renderable = Text(disarmed(renderable.plain), style=renderable.style)
        return super().render(renderable, options)

    def on_broken_pipe(self) -> None:
        # The caller says what it means that the reader left.
        raise BrokenPipeError
