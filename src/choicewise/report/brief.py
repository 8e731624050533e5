"""Write what commands show first: one run in nine lines, several runs as a table of models by
benchmarks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from statistics import median
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import LETTER_FAMILIES, TEXT_FAMILIES
from choicewise.report.findings import gaps, guessing_sentences, lead_sentences
from choicewise.report.tables import (
    IN_SHORT,
    by_metric,
    described,
    letter_notes,
    raised,
    scored_cells,
    shown_value,
)
from choicewise.results.finding import finding
from choicewise.results.guessing import guessing
from choicewise.results.number import SERIOUS, WARNINGS, Number
from choicewise.results.outcomes import Outcomes
from choicewise.table import Column, Span, Table, cell_texts, heading, visible_columns
from choicewise.util.text import (
    NAME,
    broken,
    counted,
    interval,
    percent,
    plain,
    safe,
    sentence,
    short,
    wrapped,
)

if TYPE_CHECKING:
    from choicewise.results.headline import Matrix, Standing

WIDTH = 100
"""Columns of what is shown first."""

LINES = 9
"""Lines of what is shown first, the commands to run next included."""

FEWEST = 4
"""Lines that one run takes at least."""

_LISTED = 3
"""Accuracies that have a line each."""

_CELL = 7
"""Columns that a column of a table takes at least."""

_TITLE = 16
"""Columns that a name above a column takes at most."""

WORD = 40
"""Columns of a word; a longer one is left out in its middle."""


def first_lines(
    rows: Sequence[Number],
    outcomes: Sequence[Outcomes] = (),
    averaged: bool = False,
    most: int = LINES - 2,
) -> list[str]:
    """Return what is shown first of all ``rows``; ``outcomes``: of their runs.

    Of one run the numbers, if they are guesses, what is missing, and warnings, in ``most`` lines,
    which are :data:`FEWEST` or more; of several the table of models by benchmarks, unless they are
    ``averaged`` in a table of their own.
    """
    if not rows:
        return []
    # The whole report says why there is no number under other protocols.
    numbered = [row for row in rows if row.counts.n] or list(rows)
    without = len(rows) - len(numbered)
    summary = finding(numbered)
    runs = {(row.identity.model, row.identity.r, row.identity.data) for row in rows}
    selections = {row.identity.selection for row in numbered}
    if len(runs) == 1 and len(selections) == 1:
        return _run(numbered, without, gaps(summary), most)
    lines = []
    if not averaged and any(row.share for row in rows):
        from choicewise.results.headline import matrix

        lines = _matrix(matrix(rows, outcomes), rows)
    elif not averaged:
        lines = _metric_matrix(rows)
    if len(summary.datasets) == 1:
        lines += map(safe, wrapped(" ".join(lead_sentences(summary)), WIDTH))
    missing = gaps(summary)
    if without:
        missing.append(f"{without:,} of {len(rows):,} rows have no score")
    return [*lines, *_missing(missing), *warning_lines(numbered)]


def height(lines: Sequence[str]) -> int:
    """Return how many lines they take in a terminal of :data:`WIDTH` columns."""
    return sum(max(1, math.ceil(len(line) / WIDTH)) for line in lines)


def extremes(rows: Sequence[Number]) -> tuple[Number, Number] | None:
    """Return the rows with the least and the greatest share of 1, the first of several.

    None if there is none.
    """
    scored = _accuracies(rows)
    if not scored:
        return None
    return min(scored, key=attrgetter("value")), max(scored, key=attrgetter("value"))


def _accuracies(rows: Sequence[Number]) -> list[Number]:
    return [row for row in rows if row.share and not math.isnan(row.value)]


def _run(rows: Sequence[Number], without: int, missing: Sequence[str], most: int) -> list[str]:
    """Return one run in ``most`` lines; ``without``: further rows without a number.

    ``missing``: in words.
    """
    scored = _accuracies(rows)
    reserved = 1 if warning_lines(rows, 1) else 0
    after = [*_against_guessing(scored), *_missing(missing)][: most - 2 - reserved]
    room = most - 1 - len(after) - reserved
    if scored:
        room = min(_LISTED, room)
    lines = [_title(rows, without), *_numbers(rows, scored, room), *after]
    return [*map(safe, lines), *warning_lines(rows, min(2, most - len(lines)))]


def warning_lines(rows: Sequence[Number], most: int = 2) -> list[str]:
    """Return alarms, which speak against numbers themselves, and warnings, each with how many
    numbers have it.

    In ``most`` lines, none to two; that numbers are guesses is shown elsewhere.
    """
    counts = Counter(name for row in rows for name in _warnings(row))
    alarms = []
    warnings = []
    for name, meaning in IN_SHORT.items():
        count = counts[name]
        text = f"{meaning} ({count} of {len(rows)})"
        if count and name in SERIOUS:
            alarms.append(text)
        elif count:
            warnings.append(text)
    if len(alarms) == 1 and counts["cut"] == 1:
        alarms = _cut_alarm(rows) or alarms
    lines = []
    if alarms:
        lines.append([f"alarms: {alarms[0]}", *alarms[1:]])
    if warnings:
        lines.append([f"warnings: {warnings[0]}", *warnings[1:]])
    if len(lines) > most:
        lines = [[part for line in lines for part in line]]
    return [_fitted(parts) for parts in lines[:most]]


def _cut_alarm(rows: Sequence[Number]) -> list[str]:
    """Return what cut answers leave open in the only number that has them, if that fits in a line."""
    for row in rows:
        if "cut" in _warnings(row):
            is_short = len("alarms: ") + len(row.cut_text) <= WIDTH
            return [row.cut_text] if row.cut_text and is_short else []
    return []


def _warnings(row: Number) -> set[str]:
    """Return the warnings of a row, and the counts that no other line tells."""
    names = raised(row)
    hidden = {"missing", "ties"}
    if "many-unparsed" in names:
        hidden.add("invalid")
    counts = {"unused": len(row.unused), **row.tally}
    for name in IN_SHORT:
        if name not in WARNINGS and name not in hidden and counts[name]:
            names.add(name)
    return names


def publication_text(columns: Sequence[str]) -> str:
    """Return the first published model with its numbers under protocols of these ids."""
    from choicewise.results.published import published

    numbers = [published()[column][0] for column in columns]
    return f"{numbers[0].model} {', '.join(percent(number.value) for number in numbers)}"


def value_columns(title: str) -> list[Column]:
    """Return the columns of an accuracy with what was scored, such as "27.3 (22 of 59)"."""
    return [
        Column(title, "share"),
        Column(f"{title}_scored", "count", joined=" ("),
        Column(f"{title}_items", "count", joined=" of ", closed=")"),
    ]


def value_cells(row: Number | None, several: bool) -> list[float | None]:
    """Return the cells of :func:`value_columns`.

    What was scored only of one of ``several`` models.
    """
    if row is None:
        return [None, None, None]
    if not several:
        return [row.value, None, None]
    return [row.value, *scored_cells(row)]


def _matrix(content: Matrix, rows: Sequence[Number]) -> list[str]:
    """Return models by benchmarks in %, in order, with the plain mean and the range of ranks, and
    what columns are.
    """
    has_models = len(content.standings) > 1
    has_one_column = len(content.benchmarks) == 1
    columns = [Column("model", heading=" ")]
    for title in content.titles:
        columns += value_columns(title)
    if has_one_column:
        columns.append(Column("lowest – highest", "share"))
        columns.append(Column("highest", "share", joined=" – "))
    else:
        columns.append(Column("mean", "share"))
    if has_models:
        columns.append(Column("rank", "ranks"))
    cells = []
    for standing in content.standings:
        values: list[Any] = [standing.model]
        for row in standing.rows:
            values += value_cells(row, has_models)
        if has_one_column:
            ends = extremes([row for row in rows if row.identity.model == standing.model])
            values += [row.value for row in ends] if ends else [None, None]
        else:
            values.append(standing.mean)
        if has_models:
            values.append(_rank_span(standing))
        cells.append(values)
    about = ", one protocol per benchmark"
    part = ""
    if content.part:
        part = f", {_part(content.part, WIDTH - len(about) - len('accuracy in %, '))}"
    names = []
    for title, benchmark in zip(content.titles, content.benchmarks, strict=True):
        names.append(f"{short(title, WORD)}: {short(benchmark.protocol, WORD)}")
    table = Table(name="matrix", title="", columns=columns, rows=cells)
    return [f"accuracy in %{part}{about}", *text_blocks(table), *wrapped("; ".join(names), WIDTH)]


def _rank_span(standing: Standing) -> Span | None:
    if standing.rank_low is not None and standing.rank_high is not None:
        return Span(standing.rank_low, standing.rank_high)
    if standing.rank:
        return Span(standing.rank, standing.rank)
    return None


def _metric_matrix(rows: Sequence[Number]) -> list[str]:
    """Return models by metrics that are no accuracies, on each dataset, each under one protocol."""
    datasets = dict.fromkeys(row.identity.data for row in rows)
    values_of_model: dict[str, list[Any]] = {
        row.identity.model: [row.identity.model] for row in rows
    }
    columns = [Column("model", heading=" ")]
    notes: dict[str, None] = {}
    for data in datasets:
        metrics = by_metric([row for row in rows if row.identity.data == data])
        for metric, rows_of_metric in metrics.items():
            first = _representative(rows_of_metric)
            title = described(metric)
            if len(datasets) > 1:
                title += f", {first.identity.dataset}"
            columns.append(Column(title, "number"))
            note = f"{metric}: {_protocol_name(first)}"
            if letter_notes([first]):
                note += " (of letters, not of texts)"
            notes[note] = None
            value_of_model = {}
            for row in rows_of_metric:
                if row.identity.signature == first.identity.signature:
                    value_of_model[row.identity.model] = row.value
            for model, values in values_of_model.items():
                values.append(value_of_model.get(model))
    table = Table(name="metrics", title="", columns=columns, rows=list(values_of_model.values()))
    return [*text_blocks(table), *wrapped("; ".join(notes), WIDTH)]


def _protocol_name(row: Number) -> str:
    """Return the name of a protocol without the changes of its axes."""
    return short(row.identity.protocol.split("@")[0], WORD)


def _representative(rows: Sequence[Number]) -> Number:
    """Return the row of one metric that stands for the others: of labels if it looks at a softmax,
    else of texts.
    """
    families = TEXT_FAMILIES + LETTER_FAMILIES
    if METRICS[rows[0].identity.metric].softmax:
        families = LETTER_FAMILIES + TEXT_FAMILIES
    scored = [row for row in rows if not math.isnan(row.value)] or rows
    for family in families:
        for row in scored:
            if row.identity.family == family:
                return row
    return scored[0]


def _missing(clauses: Sequence[str]) -> list[str]:
    """Return what is missing on one line, if anything is."""
    if not clauses:
        return []
    return [shorten(safe(sentence(clauses)), WIDTH, placeholder=" …")]


def _fitted(parts: Sequence[str]) -> str:
    """Return as many parts as one line has room for, and how many others there are."""
    for count in range(len(parts), 0, -1):
        line = ", ".join(parts[:count]).replace(", warnings:", "; warnings:")
        if count < len(parts):
            line += f" and {len(parts) - count} more"
        if len(line) <= WIDTH:
            return line
    return counted(len(parts), "kind of warning", "kinds of warnings")


def _title(rows: Sequence[Number], without: int) -> str:
    """Return whose numbers these are, in how many ways, and how many further rows have none
    (``without``).
    """
    first = rows[0]
    ways = len({row.identity.protocol for row in rows})
    way = f"{ways:,} protocols"
    if ways == 1:
        way = f"under {short(first.identity.protocol, WORD)}"
    if without:
        way += f"; {without:,} more without a score"
    questions = max(row.counts.n + row.counts.missing for row in rows)
    count = counted(questions, "question")
    subjects = {row.identity.subject for row in rows}
    if len(subjects) > 1:
        count = f"{len(subjects)} groups of questions"
    elif first.population is not None:
        count = f"{questions:,} of {counted(first.population, 'question')}"
    selections = [""]
    if first.identity.selection:
        selections = [f" ({_part(first.identity.selection, most)})" for most in (NAME, WORD, 20)]
    # Names are shortened before the words that say what was asked.
    for most in (NAME, WORD, 30, 20):
        name = f"{short(first.identity.model, most)} on {short(first.identity.dataset, most)}"
        for selection in selections:
            line = f"{name}: {count}{selection}, {way}"
            if len(line) <= WIDTH:
                return line
    line = f"{name}: {count}, {way}"
    if len(line) <= WIDTH:
        return line
    return short(f"{name}, {way}", WIDTH)


def _part(selection: str, most: int) -> str:
    """Return as many words of a selection, from the first on, as there is room for."""
    return shorten(safe(selection), most, placeholder=" …")


def _numbers(rows: Sequence[Number], scored: Sequence[Number], most: int) -> Iterator[str]:
    """Yield a line for each accuracy in ``scored``, if they are no more than ``most``, or else for
    some and for all.

    Some are one of labels and one of texts, or the lowest and the highest group of items. Numbers
    that are no shares of 1 have a line for each metric.
    """
    others = []
    if most > 1 or not scored:
        others = [row for row in rows if not row.share]
    room = most - 1 if others else most
    chosen = _chosen(scored, room)
    yield from _accuracy_lines(chosen, len({row.identity.subject for row in scored}) > 1)
    left = most - len(chosen)
    ends = extremes(scored)
    if ends and len(scored) > len(chosen):
        low, high = ends
        middle = percent(median(row.value for row in scored))
        values = f"{percent(low.value)} – {percent(high.value)} %, median {middle} %"
        yield f"  all {len(scored)}: {values}"
        left -= 1
    if others:
        yield from _metrics(by_metric(others), max(1, left))


def _chosen(scored: Sequence[Number], room: int) -> list[Number]:
    """Return the accuracies that have a line.

    A line of ``room`` is left for all together if some have none.
    """
    if len(scored) <= room:
        return list(scored)
    if len({row.identity.subject for row in scored}) > 1:
        return list(extremes(scored) or ())[: room - 1]
    return (headlines(scored) or [scored[0]])[: room - 1]


def headlines(rows: Sequence[Number]) -> list[Number]:
    """Return the headline of the protocols that score labels, and of those that score texts."""
    from choicewise.results.headline import headline

    chosen = []
    for families in (LETTER_FAMILIES, TEXT_FAMILIES):
        for family in families:
            row = headline(rows, (family,))
            if row is not None:
                chosen.append(row)
                break
    return chosen


def _accuracy_lines(rows: Sequence[Number], has_groups: bool) -> Iterator[str]:
    labels = [
        short(row.identity.subject, WORD) if has_groups else row.identity.family for row in rows
    ]
    names = [short(row.identity.protocol, WORD) for row in rows]
    label_width = max(map(len, labels), default=0)
    name_width = max(map(len, names), default=0)
    for label, name, row in zip(labels, names, rows, strict=True):
        line = f"  {label:<{label_width}}  {name:<{name_width}}  {percent(row.value):>5} %"
        if not math.isnan(row.interval.low):
            line = _extended(line, f"  [{interval(row.interval.low, row.interval.high)}]")
        for warning in SERIOUS:
            if warning in raised(row) and warning in IN_SHORT:
                line = _extended(line, f"  {IN_SHORT[warning]}")
                break
        yield line


def _extended(line: str, text: str) -> str:
    """Return the line with a text behind it if there is room."""
    if len(line) + len(text) <= WIDTH:
        return line + text
    return line


def _metrics(numbers: Mapping[str, Sequence[Number]], most: int) -> Iterator[str]:
    """Yield a line for each metric that is no accuracy: a number with its interval, and the least
    and the greatest.
    """
    names = list(numbers)
    listed = names
    if len(names) > most:
        listed = names[: most - 1]
    width = max(map(len, names))
    for metric in listed:
        yield _metric_line(f"  {metric:<{width}}", numbers[metric])
    further = names[len(listed) :]
    if further:
        yield f"  {counted(len(further), 'further metric')}: {', '.join(further)}"


def _metric_line(name: str, rows: Sequence[Number]) -> str:
    first = _representative(rows)
    line = f"{name}  {shown_value(first, plain)}"
    if not math.isnan(first.interval.low):
        line += f"  [{interval(first.interval.low, first.interval.high, plain)}]"
    unit = METRICS[first.identity.metric].unit
    if unit:
        line += f" {unit}"
    parts = [f"  {_protocol_name(first)}"]
    if letter_notes([first]):
        parts.append("; of letters, not of texts")
    values = [row.value for row in rows if not math.isnan(row.value)]
    if len(values) > 1:
        parts.append(f"; {plain(min(values))} – {plain(max(values))} in {len(values)} protocols")
    elif not math.isnan(first.chance):
        parts.append(f"; uniform {plain(first.chance)}")
    for part in parts:
        line = _extended(line, part)
    return line


def _against_guessing(scored: Sequence[Number]) -> list[str]:
    """Return if the numbers are better than guessing, in one line with as much as there is room
    for.
    """
    against = guessing(scored)
    if not against.scores:
        return []
    sentences = guessing_sentences(against)
    line = " ".join(sentences)
    if len(line) <= WIDTH:
        return [line]
    return sentences[:1]


def text_blocks(table: Table, most: int = _TITLE) -> Iterator[str]:
    """Yield a table in as many parts as :data:`WIDTH` asks for.

    Names in the first column are broken between words, and those above columns at ``most``
    characters. The heading of the first column is no longer than the longest of the names.
    """
    corner, *columns = visible_columns(table)
    cells = cell_texts(table)
    left = min(max(len(row[0]) for row in cells), WIDTH // 2)
    heads = []
    widths = []
    for index, column in enumerate(columns, start=1):
        head = [short(line, WORD) for line in broken(safe(heading(column)), most)]
        texts = head + [row[index] for row in cells]
        heads.append(head)
        widths.append(max(_CELL, *map(len, texts)))
    start = 0
    while start < len(columns):
        stop = _fitting(widths, start, WIDTH - left)
        depth = max(map(len, heads[start:stop]))
        for level in range(depth):
            title = heading(corner) if level + 1 == depth else ""
            line = f"{title:<{left}}"
            for head, width in zip(heads[start:stop], widths[start:stop], strict=True):
                # Titles of fewer lines begin lower.
                above = [""] * (depth - len(head)) + head
                line += f"  {above[level]:>{width}}"
            yield line.rstrip()
        for name, *texts in cells:
            *before, last = (short(line, left) for line in broken(name, left))
            yield from before
            line = f"{last:<{left}}"
            for text, width in zip(texts[start:stop], widths[start:stop], strict=True):
                line += f"  {text:>{width}}"
            yield line
        start = stop


def _fitting(widths: Sequence[int], start: int, room: int) -> int:
    """Return the column before which a part ends that begins at ``start``.

    It has one column at least.
    """
    stop = start
    while stop < len(widths):
        room -= widths[stop] + 2
        if room < 0 and stop > start:
            break
        stop += 1
    return stop
