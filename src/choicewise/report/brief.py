"""What commands say first: a run in nine lines, several runs as a table of models by benchmarks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from statistics import median
from textwrap import shorten
from typing import NamedTuple

from choicewise.protocols.metrics import METRICS
from choicewise.report.findings import gaps, guessing_sentences, lead_sentences
from choicewise.report.tables import (
    IN_SHORT,
    by_metric,
    described,
    letter_notes,
    raised,
    shown_value,
)
from choicewise.results.compare import published
from choicewise.results.finding import Reversal, finding
from choicewise.results.guessing import guessing
from choicewise.results.headline import Matrix, headline, matrix
from choicewise.results.outcomes import Outcomes, ranked
from choicewise.results.rows import SERIOUS, WARNINGS, Row
from choicewise.scoring.significance import FEWEST as FEWEST_ITEMS
from choicewise.util.text import (
    NAME,
    broken,
    counted,
    interval,
    percent,
    plain,
    probability,
    ranks,
    safe,
    sentence,
    short,
    wrapped,
)

WIDTH, LINES, FEWEST = 100, 9, 4
"""Columns and lines of what is said first, the commands to run next included; lines that one run takes at least."""

LETTERS, TEXTS = ("letters", "letters with answers"), ("cloze", "whole answers")
"""Families of protocols: those of which one number stands for all that score labels, and all that score texts."""

_EACH = 3  # so many numbers have a line each
_CELL, _TITLE = (
    7,
    16,
)  # columns that a column of a table takes at least, and that a name above it takes at most
_WORD = 40  # columns of a word that takes more are left out in its middle


def first_lines(
    rows: Sequence[Row],
    outcomes: Sequence[Outcomes] = (),
    averaged: bool = False,
    most: int = LINES - 2,
) -> list[str]:
    """What is said first of all ``rows``; ``outcomes``: of their runs.

    Of one run the numbers, whether they are guesses, what is missing, and warnings, in ``most`` lines, which are
    :data:`FEWEST` or more; of several the table of models by benchmarks, unless they are ``averaged`` in a table of
    their own.
    """
    numbered = [
        row for row in rows if row.n
    ] or rows  # why there is no number under others, the whole report says
    if not rows:
        return []
    shown, without = finding(numbered), len(rows) - len(numbered)
    runs, parts = (
        {(row.model, row.r, row.data) for row in rows},
        {row.selection for row in numbered},
    )
    if len(runs) == len(parts) == 1:
        return _run(numbered, without, gaps(shown), most)
    leads = lead_sentences(shown) if len(shown.datasets) == 1 else []
    if averaged:
        table = []
    elif any(row.share for row in rows):
        table = _matrix(matrix(rows, outcomes), rows)
    else:
        table = _metric_matrix(rows)
    lacking = [f"there is no number in {without:,} of {len(rows):,} rows"] if without else []
    said = [*map(safe, wrapped(" ".join(leads), WIDTH)), *_missing([*gaps(shown), *lacking])]
    return [*table, *said, *warning_lines(numbered)]


def height(lines: Sequence[str]) -> int:
    """How many lines they take in a terminal of :data:`WIDTH` columns."""
    return sum(max(1, math.ceil(len(line) / WIDTH)) for line in lines)


def extremes(rows: Sequence[Row]) -> tuple[Row, Row] | None:
    """The rows with the least and the greatest share of 1, the first of several; None where there is none."""
    known = [row for row in rows if row.share and not math.isnan(row.value)]
    return (
        (min(known, key=attrgetter("value")), max(known, key=attrgetter("value")))
        if known
        else None
    )


def _run(rows: Sequence[Row], without: int, lacking: Sequence[str], most: int) -> list[str]:
    """``without``: how many further rows have no number; ``lacking``: what is missing, in words."""
    known = [row for row in rows if row.share and not math.isnan(row.value)]
    warned = bool(warning_lines(rows, 1))
    after = [*_against_guessing(known), *_missing(lacking)][: most - 2 - warned]
    numbers = [
        *_numbers(rows, known, min(_EACH if known else most, most - 1 - len(after) - warned))
    ]
    lines = [_title(rows, without), *numbers, *after]
    return [*map(safe, lines), *warning_lines(rows, min(2, most - len(lines)))]


def warning_lines(rows: Sequence[Row], most: int = 2) -> list[str]:
    """Alarms, which speak against numbers themselves, and warnings, each in a few words with how many numbers have it.

    In ``most`` lines, none to two; that numbers are guesses is said elsewhere.
    """
    warned = [_warnings(row) for row in rows]
    counts = {name: sum(name in own for own in warned) for name in IN_SHORT}
    lines: list[list[str]] = []
    for title, serious in (("alarms: ", True), ("warnings: ", False)):
        names = [name for name in counts if counts[name] and (name in SERIOUS) == serious]
        parts = [f"{IN_SHORT[name]} ({counts[name]} of {len(rows)})" for name in names]
        if names == ["cut"] and counts["cut"] == 1:
            said = next(row.cut_text for row in rows if "cut" in _warnings(row))
            parts = [said] if said and len(title) + len(said) <= WIDTH else parts
        lines += [[title + parts[0], *parts[1:]]] if parts else []
    if len(lines) > most:
        lines = [[part for line in lines for part in line]]
    return [_fitted(parts) for parts in lines[:most]]


def _warnings(row: Row) -> set[str]:
    """The warnings of a row, and the counts that no other line tells."""
    own = raised(row)
    hidden = {"missing", "ties", *(["invalid"] if "many-unparsed" in own else [])}
    return own | {name for name in IN_SHORT.keys() - WARNINGS.keys() - hidden if getattr(row, name)}


class PublishedTable(NamedTuple):
    """Hold the lines of models under the protocols of a published table, what was published, and what the order says.

    What was published is about other questions: it stands outside the table, and has no rank.
    """

    table: list[str]
    publication: str
    order: list[str]


def published_table(
    rows: Sequence[Row], turned: Reversal | None, apart: Sequence[Row] = ()
) -> PublishedTable | None:
    """Draw the models of ``rows`` under the protocols of the published table; None if no row is under one of them.

    ``rows`` are of one dataset, ``apart`` of models on another one, drawn above them and not ranked with them.
    ``turned`` holds two models that change places between these protocols.
    """
    names_of_rows = {row.id: row.protocol for row in rows}
    columns = {column: names_of_rows[column] for column in published() if column in names_of_rows}
    if not columns:
        return None
    known = {(row.model, row.id): row for row in rows if row.id in columns}
    titles = []
    cells = []
    for group in (apart, rows):
        models = {row.model: row.dataset for row in group}
        for model, dataset in models.items():
            title = safe(model)
            if apart:
                title += f", {safe(dataset)}"
            titles.append(title)
            by_column = {row.id: row for row in group if row.model == model}
            cells.append([_covered(by_column.get(column), len(models) > 1) for column in columns])
    table = list(_blocks(titles, list(columns.values()), cells, "accuracy in %", _WORD))
    first = [published()[column][0] for column in columns]
    values = ", ".join(percent(number.value) for number in first)
    publication = f"published, MMLU, 14,042 questions: {first[0].model} {values}"
    return PublishedTable(table, publication, _order(known, turned))


def _order(known: Mapping[tuple[str, str], Row], turned: Reversal | None) -> list[str]:
    """Whether models change places between columns; ``known``: by model and column."""
    if turned is not None:
        leads = f"{short(turned.left, NAME)} leads {short(turned.right, NAME)} in one column, trails in another"
        return wrapped(
            f"Ranks change: {leads} ({probability(max(turned.start.p, turned.end.p))}).", WIDTH
        )
    if max(row.n for row in known.values()) < FEWEST_ITEMS:
        return []
    ranks_of: dict[str, set[int]] = {}
    for row in ranked(list(known.values())):
        if row.rank is not None:
            ranks_of.setdefault(row.model, set()).add(row.rank)
    if len(ranks_of) < 2:
        return []
    if any(len(ranks) > 1 for ranks in ranks_of.values()):
        return ["The ranking differs between columns, but no swap is statistically significant."]
    return ["The order of the models is the same in every column."]


def _matrix(table: Matrix, rows: Sequence[Row]) -> list[str]:
    """Models by benchmarks in %, in order, with the plain mean and the range of ranks, then what the columns are."""
    columns, standings = table.benchmarks, table.standings
    names = [safe(title) for title in table.titles]
    titles = [*names]
    cells = [[_covered(row, len(standings) > 1) for row in each.rows] for each in standings]
    if len(columns) == 1:
        titles.append("lowest – highest")
        last = [
            _range([row for row in rows if row.share and row.model == each.model])
            for each in standings
        ]
    else:
        titles.append("mean")
        last = [percent(each.mean) for each in standings]
    cells = [[*own, each] for own, each in zip(cells, last, strict=True)]
    if len(standings) > 1:
        titles.append("rank")
        placed = [
            ranks(each.rank_low, each.rank_high) or str(each.rank or "-") for each in standings
        ]
        cells = [[*own, each] for own, each in zip(cells, placed, strict=True)]
    about = "; one protocol (a way to ask and score) for each benchmark"
    part = (
        f", {_part(table.part, WIDTH - len(about) - len('accuracy in %, '))}" if table.part else ""
    )
    lines = [f"accuracy in %{part}{about}"]
    lines += _blocks([safe(each.model) for each in standings], titles, cells)
    asked = (
        f"{short(name, _WORD)}: {short(each.protocol, _WORD)}"
        for name, each in zip(names, columns, strict=True)
    )
    return [*lines, *wrapped("; ".join(asked), WIDTH)]


def _covered(row: Row | None, several: bool) -> str:
    """Return the value in %, of one of ``several`` models with what was scored, such as "27.3 (22 of 59)"."""
    if row is None:
        return "-"
    return f"{percent(row.value)} {row.coverage if several else ''}".rstrip()


def _metric_matrix(rows: Sequence[Row]) -> list[str]:
    """Models by metrics that are no accuracies, on each dataset, each under the protocol that stands for the others."""
    several = len({row.data for row in rows}) > 1
    models, columns = [*dict.fromkeys(row.model for row in rows)], dict[str, str]()
    cells = [list[str]() for _ in models]
    for data in dict.fromkeys(row.data for row in rows):
        for metric, own in by_metric([row for row in rows if row.data == data]).items():
            first = _stands_for(own)
            title = f"{described(metric)}, {first.dataset}" if several else described(metric)
            letters = " (of letters, says nothing about texts)" if letter_notes([first]) else ""
            columns[title] = f"{metric}: {short(first.protocol.split('@')[0], _WORD)}{letters}"
            values = {row.model: row.value for row in own if row.signature == first.signature}
            for line, model in zip(cells, models, strict=True):
                line.append(plain(values.get(model, math.nan)))
    lines = [*_blocks([*map(safe, models)], [*map(safe, columns)], cells)]
    return [*lines, *wrapped("; ".join(dict.fromkeys(columns.values())), WIDTH)]


def _stands_for(rows: Sequence[Row]) -> Row:
    """The row of one metric that stands for the others: of labels where it looks at a softmax, else of texts."""
    families = LETTERS + TEXTS if METRICS[rows[0].metric].softmax else TEXTS + LETTERS
    known = [row for row in rows if not math.isnan(row.value)] or rows
    return min(
        known,
        key=lambda row: families.index(row.family) if row.family in families else len(families),
    )


def _missing(lacking: Sequence[str]) -> list[str]:
    """What is missing, on one line."""
    return [shorten(safe(sentence(lacking)), WIDTH, placeholder=" …")] if lacking else []


def _fitted(parts: Sequence[str]) -> str:
    """As many parts as one line has room for, and how many more there are."""
    for most in range(len(parts), 0, -1):
        line = ", ".join(parts[:most]).replace(", warnings:", "; warnings:")
        line += f" and {len(parts) - most} more" if most < len(parts) else ""
        if len(line) <= WIDTH:
            return line
    return counted(len(parts), "kind of warning", "kinds of warnings")


def _title(rows: Sequence[Row], without: int) -> str:
    """Whose numbers these are, in how many ways, and how many further rows have none (``without``)."""
    first, ways = rows[0], len({row.protocol for row in rows})
    asked = [row.n + row.missing for row in rows if row.subject == first.subject]
    groups = len({row.subject for row in rows})
    count = counted(max(asked), "question") if groups == 1 else f"{groups} groups of questions"
    if groups == 1 and first.population is not None:
        count = f"{max(asked):,} of {counted(first.population, 'question')}"
    more = f"; {without:,} more {'has' if without == 1 else 'have'} no number" if without else ""
    way = (
        f"under {short(first.protocol, _WORD)}"
        if ways == 1
        else f"asked in {ways:,} ways (protocols)"
    )
    names = [
        f"{short(first.model, most)} on {short(first.dataset, most)}"
        for most in (NAME, _WORD, 30, 20)
    ]
    parts = (
        [f" ({_part(first.selection, most)})" for most in (NAME, _WORD, 20)]
        if first.selection
        else [""]
    )
    lines = [f"{name}: {count}{part}, {way}{more}" for name in names for part in parts]
    lines += [f"{names[-1]}: {count}, {way}{more}", f"{names[-1]}, {way}{more}"]
    return next((line for line in lines if len(line) <= WIDTH), short(lines[-1], WIDTH))


def _part(selection: str, most: int) -> str:
    """The part of the data in as many of its words, from the first on, as there is room for."""
    return shorten(safe(selection), most, placeholder=" …")


def _numbers(rows: Sequence[Row], known: Sequence[Row], most: int) -> Iterator[str]:
    """A line for each number where they are no more than ``most``, else for one of labels, one of texts, and all.

    Of groups of items for the lowest and the highest.  Numbers that are no shares of 1 have a line for each metric.
    """
    others = [row for row in rows if not row.share] if most > 1 or not known else []
    grouped = len({row.subject for row in known}) > 1
    ends = extremes(known)
    room = most - bool(others)
    if len(known) <= room:
        chosen = list(known)
    elif grouped and ends:
        chosen = [*ends][: room - 1]
    else:
        picked = (headline(known, (family,)) for group in (LETTERS, TEXTS) for family in group)
        named = [row for row in picked if row is not None]
        letters = next((row for row in named if row.family in LETTERS), None)
        texts = next((row for row in named if row.family in TEXTS), None)
        chosen = ([row for row in (letters, texts) if row is not None] or [known[0]])[: room - 1]
    labels = [short(row.subject, _WORD) if grouped else row.family for row in chosen]
    shown = [short(row.protocol, _WORD) for row in chosen]
    widths = max(map(len, labels), default=0), max(map(len, shown), default=0)
    for label, name, row in zip(labels, shown, chosen, strict=True):
        line = f"  {label:<{widths[0]}}  {name:<{widths[1]}}  {percent(row.value):>5} %"
        span = "" if math.isnan(row.ci_low) else f"  [{interval(row.ci_low, row.ci_high)}]"
        line += span if len(line) + len(span) <= WIDTH else ""
        note = next(
            (IN_SHORT[name] for name in SERIOUS if name in raised(row) and name in IN_SHORT), ""
        )
        yield f"{line}  {note}".rstrip() if len(line) + len(note) + 2 <= WIDTH else line
    if ends and len(known) > len(chosen):
        middle, about = (
            percent(median(row.value for row in known)),
            f"lowest and highest of {len(known)}",
        )
        yield f"  {about}: {' – '.join(percent(row.value) for row in ends)} %, median {middle} %"
    if others:
        yield from _metrics(
            by_metric(others), max(1, most - len(chosen) - (len(known) > len(chosen)))
        )


def _metrics(numbers: Mapping[str, Sequence[Row]], most: int) -> Iterator[str]:
    """A line for each metric that is no accuracy: one number with its interval, and the least and the greatest."""
    shown = [*numbers.items()][: most if len(numbers) <= most else most - 1]
    width = max(map(len, numbers))
    for metric, rows in shown:
        known = [row for row in rows if not math.isnan(row.value)]
        first = _stands_for(rows)
        line = f"  {metric:<{width}}  {shown_value(first, plain)}"
        line += (
            ""
            if math.isnan(first.ci_low)
            else f"  [{interval(first.ci_low, first.ci_high, plain)}]"
        )
        line += f" {METRICS[metric].unit}" if METRICS[metric].unit else ""
        more = [f"  {short(first.protocol.split('@')[0], _WORD)}"]
        more += ["; of letters, says nothing about texts"] * bool(letter_notes([first]))
        if len(known) > 1:
            low, high = (plain(pick(row.value for row in known)) for pick in (min, max))
            more.append(f"; {low} – {high} in {len(known)} ways")
        elif not math.isnan(first.chance):
            more.append(f"; uniform {plain(first.chance)}")
        for part in more:
            line += part if len(line) + len(part) <= WIDTH else ""
        yield line
    if len(shown) < len(numbers):
        yield f"  {counted(len(numbers) - len(shown), 'further metric')}: {', '.join([*numbers][len(shown) :])}"


def _against_guessing(known: Sequence[Row]) -> list[str]:
    """Say whether the numbers are better than guessing, in one line with as much as there is room for."""
    against = guessing(known)
    if not against.scores:
        return []
    first, *rest = guessing_sentences(against)
    line = " ".join([first, *rest])
    return [line if len(line) <= WIDTH else first]


def _range(rows: Sequence[Row]) -> str:
    known = [row.value for row in rows if not math.isnan(row.value)]
    return interval(min(known), max(known)) if known else "-"


def _blocks(
    names: Sequence[str],
    titles: Sequence[str],
    cells: Sequence[Sequence[str]],
    corner: str = "",
    most: int = _TITLE,
) -> Iterator[str]:
    """The table, in as many parts as :data:`WIDTH` asks for; names are broken between words, those above at ``most``.

    ``corner``: what stands above the names, no longer than the longest of them.
    """
    left = min(max(map(len, names)), WIDTH // 2)
    heads = [[short(line, _WORD) for line in broken(title, most)] for title in titles]
    widths = [
        max(_CELL, *(len(line) for line in head), *(len(row[place]) for row in cells))
        for place, head in enumerate(heads)
    ]
    start = 0
    while start < len(titles):
        end, room = start, WIDTH - left
        while end < len(titles) and (end == start or room >= widths[end] + 2):
            room -= widths[end] + 2
            end += 1
        part = range(start, end)
        depth = max(len(heads[place]) for place in part)
        for line in range(depth):
            above = ([""] * (depth - len(heads[place])) + heads[place] for place in part)
            row = "".join(
                f"  {own[line]:>{widths[place]}}" for place, own in zip(part, above, strict=True)
            )
            yield f"{corner if line + 1 == depth else '':<{left}}{row}".rstrip()
        for name, own in zip(names, cells, strict=True):
            *before, last = (short(line, left) for line in broken(name, left))
            yield from before
            yield f"{last:<{left}}" + "".join(f"  {own[place]:>{widths[place]}}" for place in part)
        start = end
