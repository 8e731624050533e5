"""What `report` prints: tables of numbers, families and averages, their legend and warnings."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from choicewise.data.items import BLANK
from choicewise.protocols.metrics import METRICS
from choicewise.results.evidence import MissingReason
from choicewise.results.guessing import guess, guesses
from choicewise.results.outcomes import COMPARABLE, measured_as
from choicewise.results.rows import SERIOUS, WARNINGS, Row
from choicewise.results.sweep import Average, PartValue
from choicewise.scoring.intervals import FEWEST
from choicewise.scoring.significance import Difference
from choicewise.table import Column, Table
from choicewise.util.text import (
    broken,
    counted,
    disarmed,
    interval,
    listed,
    percent,
    plain,
    safe,
    wrapped,
)

LONG, _MANY = 20, 100
"""Rows that one table, and all tables together, have before they are shown in short."""

IN_SHORT = {
    "served-model": "the served model changed",
    "positive": "log-probabilities above 0",
    "placeholder": "log-probabilities that nobody measured",
    "margins": "no score tells the choices apart",
    "many-missing": "many items are missing",
    "cut": "answers were cut",
    "many-unparsed": "many texts name no option",
    "many-tied": "many items are tied",
    "gold-constant": "the tie rule makes the number",
    "constant": "always the same position is predicted",
    "position": "some positions are predicted too often",
    "permutation": "answers depend on the order of the options",
    "length": "predictions follow length",
    "rounded": "the endpoint rounds its probabilities",
    "mass": "labels hold little probability",
    "near-ties": "undecided numerically",
    "label/text": "letters and texts decide differently",
    "choices-only": "choices are enough without the question",
    "missing": "items are missing",
    "unlisted": "the server does not list every answer",
    "invalid": "texts name no option",
    "unused": "content is not shown",
    "shots_dropped": "shots are dropped",
    "truncated": "prompts are cut",
    "lossy": "text is lost in tokens",
    "unknown": "tokens are unknown",
    "merged": "tokens straddle the end of the context",
    "noncanonical": "other tokens than the text's own",
    "ties": "items are tied",
}
"""Warning or count of a row → what it means, in a few words; the gravest first."""


def long(rows: Sequence[Row]) -> bool:
    """Whether there are so many rows that a line per family says more at first sight."""
    runs, kind = [own for _, own in _by_run(rows)], _kind(rows)
    fewer = any(len(_lines(own, kind)) < len(own) for own in runs)
    return fewer and (len(rows) > _MANY or any(len(own) > LONG for own in runs))


def family_tables(rows: Sequence[Row], width: int | None = None) -> list[Group]:
    """Per dataset the range of each family, or of each group where there are several; models side by side, with ranks.

    ``width``: in columns, by default that of the console.
    """
    width = width or console().width
    datasets: dict[str, list[tuple[str, list[Row]]]] = {}
    for (model, dataset), own in _by_run(rows):
        datasets.setdefault(dataset, []).append((model, own))
    parts = []
    for dataset, runs in datasets.items():
        if len(runs) == 1:
            parts.append(_one(*runs[0], dataset))
        else:
            several = (
                runs if len(runs) <= _BESIDE else sorted(runs, key=lambda run: -_median(run[1]))
            )
            parts += _several(dict(several), dataset, width)
    return parts


def average_tables(averages: Sequence[Average]) -> list[Table]:
    """Return a table for each suite and part of the data: a row per model, a column per part."""
    suites: dict[tuple[str, str], list[Average]] = {}
    for average in averages:
        suites.setdefault((average.suite, average.selection), []).append(average)
    return [_average_table(suite) for suite in suites.values()]


IDS = (
    "ids: #P protocol (its signature is in the JSON), #I texts sent, #T tokens asked and scored, #R model as computed, "
    "#D data; where they agree, so does what they stand for"
)
"""What the short ids are of."""


def report_tables(
    rows: Sequence[Row], *, ids: bool = False, width: int | None = None
) -> list[Group]:
    """One table per model and dataset, a line a number, then the ranks when the same was measured on several models.

    ``ids``: with those of each number, and the range that rounding allows, on lines of their own where there is no
    room.  ``width``: in columns, by default that of the console.
    """
    width = width or console().width
    several = len({row.model for row in rows}) > 1
    shares, others = [row for row in rows if row.share], [row for row in rows if not row.share]
    tables = [
        _run_table(f"{model} on {dataset}", own, several, ids, width)
        for part in (shares, *by_metric(others).values())
        for (model, dataset), own in _by_run(part, ids)
    ]
    if several and shares:
        tables.append(rank_matrix("accuracy in % and rank", _cells(shares), width))
    for metric, own in by_metric(others).items() if several else ():
        tables.append(rank_matrix(f"{described(metric)} and rank", _cells(own, plain), width))
    return tables


def by_metric(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of every metric, in the order in which they come."""
    metrics: dict[str, list[Row]] = {}
    for row in rows:
        metrics.setdefault(row.metric, []).append(row)
    return metrics


def described(metric: str) -> str:
    """A metric that is no accuracy, with its unit and which way is better."""
    return f"{metric} ({METRICS[metric].direction})"


def letter_notes(rows: Sequence[Row]) -> list[str]:
    """That bits per byte of letters say nothing about the answers, a line at most."""
    bits = (row for row in rows if not row.share and METRICS[row.metric].unit == "bits/byte")
    own = [row.protocol for row in bits if row.family == "letters"]
    why = 'a letter such as " A" is no answer\'s text, so they say nothing about it; take a protocol of texts'
    return [f"bits per byte of letters ({listed(list(dict.fromkeys(own)))}): {why}"] if own else []


RANGE = "rank: in brackets, the ranks that paired tests of all models leave open (95 %, Holm's correction)"
"""What the brackets beside a rank mean."""


def legend(rows: Sequence[Row], ids: bool = False) -> list[str]:
    """What the words, warnings, columns and counts that occur in ``rows`` mean; ``ids``: of the ids, too."""
    own = {warning for row in rows for warning in row.diagnosis.warnings}
    lines = [
        "protocol: a complete recipe for a number; ENTRY:SCORE says where it was published and what is compared"
    ]
    lines += ["family: what a protocol asks the model for"] if long(rows) else []
    lines += [f"{warning}: {meaning}" for warning, meaning in WARNINGS.items() if warning in own]
    if unused := {name for row in rows for name in row.unused}:
        blank = (
            "; _ is a blank in the question, which the choices should fill"
            if BLANK in unused
            else ""
        )
        lines.append(f"unused: fields of the data that the protocol does not show{blank}")
    noises = [row.noise or 0.0 for row in rows if row.low < row.high and not row.cut]
    dashes = any(map(_unbounded, rows))
    if ids and (any(noises) or dashes):
        most = max(noises, default=0.0)
        differ = f"two ways of computing a token differ by up to {most:.2g} nats, n tokens by √n times that"
        noise = f"; {differ}" if any(noises) else ""
        dash = ", - where it is not known" if dashes else ""
        lines.append(
            f"numeric: range that rounding allows, nothing where it changes nothing{dash}{noise}"
        )
    if any(row.unlisted for row in rows):
        lines.append(
            "unlisted answers: the server lists only the likeliest next tokens; of these only an upper bound "
            "is known; numeric is the range of whatever they are, and holds the items that they leave undecided"
        )
    if any(row.cut for row in rows):
        lines.append(
            "cut answers: numeric is the range of whatever would have stood there without a limit"
        )
    if any(row.interval == "clustered" and row.n and math.isnan(row.ci_low) for row in rows):
        lines.append(
            f"95 % interval: none where there are fewer than {FEWEST} subjects: it would come out too small"
        )
    if any(row.rank_low is not None for row in rows):
        lines.append(RANGE)
    if any(row.coverage and row.rank is None for row in rows) and any(row.rank for row in rows):
        lines.append("no rank: too few of the items that other models scored")
    if any(row.population is not None and row.interval != "clustered" for row in rows):
        lines.append(
            "sample: errors and intervals are for all questions that it was drawn from, √(1 - n / all) wide"
        )
    lines += [
        *map(safe, letter_notes(rows)),
        *reasons(rows),
        *_sources(rows),
        *([IDS] if ids else []),
    ]
    return [part for line in lines for part in wrapped(line, console().width)]


def serious_warnings(rows: Sequence[Row], guesses: bool = True) -> list[str]:
    """What speaks against numbers themselves, a line for each alarm, however many numbers have it.

    ``guesses``: also that numbers are no better than guessing, unless that is said elsewhere.
    """
    lines = []
    for warning in SERIOUS:
        own = [
            row
            for row in rows
            if warning in raised(row) and (guesses or warning != "chance" or not guess(row))
        ]
        if own:
            one = f"{safe(own[0].model)} under {own[0].protocol}"
            which = (
                one
                if len(own) == 1
                else f"{len(own):,} of {counted(len(rows), 'number')}, such as {one}"
            )
            lines.append(f"alarm: {warning}, {which}: {_explained(warning, own[0])}")
    return lines


def reasons(rows: Sequence[Row]) -> list[str]:
    """Return why items are missing or skipped, a line for every reason and count, with how many protocols have it."""
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


def reason_groups(rows: Sequence[Row]) -> Iterator[ReasonGroup]:
    """Yield every reason and count in ``rows``, once with all protocols that have it."""
    groups: dict[tuple[str, MissingReason], dict[str, None]] = {}
    for row in rows:
        for reason in row.missing_reasons:
            groups.setdefault(("missing", reason), {})[row.protocol] = None
        for reason in row.skipped_reasons:
            groups.setdefault(("skipped", reason), {})
    for (kind, reason), protocols in groups.items():
        yield ReasonGroup(kind, reason, tuple(protocols))


def rank_table(
    title: str,
    cells: Mapping[str, Mapping[str, tuple[float, int | None]]],
    width: int | None = None,
    spelled: Callable[[float], str] = percent,
) -> Group:
    """A matrix of values and ranks: ``cells[row][column]`` is (share of 1, rank); in parts where it is too wide."""
    texts = {
        name: {
            column: spelled(value) + (f" ({place})" if place else "")
            for column, (value, place) in row.items()
        }
        for name, row in cells.items()
    }
    return rank_matrix(title, texts, width)


def rank_matrix(
    title: str, cells: Mapping[str, Mapping[str, str]], width: int | None = None
) -> Group:
    """Draw a matrix of values with ranks (:func:`with_rank`); in parts where it is too wide."""
    return matrix(title, cells, RANKED_WIDTH, width)


def ranked_columns(title: str, kind: str) -> list[Column]:
    """Return the columns of a value with its rank, or else with what was scored: "27.3 (2)", "27.3 (22 of 59)"."""
    return [
        Column(name=title, kind=kind, blank=True),
        Column(name=f"{title}_rank", kind="count", joined=" (", closed=")"),
        Column(name=f"{title}_scored", kind="count", joined=" ("),
        Column(name=f"{title}_items", kind="count", joined=" of ", closed=")"),
    ]


def ranked_cells(row: Row | None) -> list[float | None]:
    """Return the cells of :func:`ranked_columns`; nothing but None if there is no row."""
    if row is None:
        return [None, None, None, None]
    if row.rank or not (row.n and row.missing):
        return [row.value, row.rank, None, None]
    return [row.value, None, row.n, row.n + row.missing]


def with_rank(row: Row, spelled: Callable[[float], str] = percent) -> str:
    """Return the value of a row with its rank, or else with what was scored: "27.3 (2)", "27.3 (22 of 59)"."""
    behind = f"({row.rank})" if row.rank else row.coverage
    return f"{spelled(row.value)} {behind}".rstrip()


def matrix(
    title: str, cells: Mapping[str, Mapping[str, str]], least: int, width: int | None = None
) -> Group:
    """``cells[row][column]``, each of ``least`` columns of the terminal or more, in parts where it is too wide."""
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    room = (width or console().width) - min(_NAME, max(len(safe(name)) for name in cells) + 2)
    step = max(1, room // least)
    step = (
        math.ceil(len(columns) / math.ceil(len(columns) / step)) if columns else 1
    )  # of much the same width
    parts = []
    for start in range(0, len(columns), step):
        chosen = columns[start : start + step]
        shown = table("")
        for column in chosen:
            most = room // len(chosen) - 2
            name = "\n".join(broken(safe(column), most))
            shown.add_column(name, justify="right", overflow="fold", max_width=most)
        for name, row in cells.items():
            shown.add_row(safe(name), *(row.get(column, "") for column in chosen))
        parts.append(shown)
    return Group(Text(safe(title), style="italic"), *parts)


def titled(title: str, shown: Grid, *notes: str) -> Group:
    """A table between its title and notes, which are as wide as the page and not as the table."""
    return Group(
        Text(safe(title), style="italic"), shown, *(Text(disarmed(note)) for note in notes)
    )


def table(*columns: str) -> Grid:
    """A borderless table; texts fold when there is no room, numbers never do."""
    empty = Grid(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        text = column in _TEXT or number == 0
        empty.add_column(
            safe(column), justify="left" if text else "right", overflow="fold", no_wrap=not text
        )
    return empty


def shown_value(row: Row, spelled: Callable[[float], str]) -> str:
    """The value of a row, or the bounds of one that rounding leaves open."""
    low, high = (
        spelled(end) if math.isfinite(end) else "not identified" for end in (row.low, row.high)
    )
    return (low if low == high else f"{low} – {high}") if row.open else spelled(row.value)


def value_text(row: Row, value: float) -> str:
    """Return a value of the row's metric in words: accuracies in percent, others as :func:`plain` spells them."""
    return f"{percent(value)} %" if row.share and not math.isnan(value) else plain(value)


def interval_text(row: Row) -> str:
    """Return the interval of a row; a dash where there is none."""
    return interval(row.ci_low, row.ci_high, percent if row.share else plain)


def nats(mean: Difference) -> str:
    """Return a mean in nats with its 95 % interval where it has one, in three digits: ``0.0123 [0.0101 – 0.0145]``."""
    known = (
        "" if math.isnan(mean.se) else f" [{interval(mean.ci_low, mean.ci_high, _three_digits)}]"
    )
    return f"{_three_digits(mean.value)}{known}"


def console() -> Console:
    """Where results go: stdout, as wide as the terminal.  Text is printed as it is, never read as markup."""
    width = None if sys.stdout.isatty() else _WIDE
    return _Plain(width=width, highlight=False, markup=False, emoji=False)


_BESIDE = 6  # so many models stand side by side; more of them one below the other, that with the highest median first

_RANGED, _NAMED = 13, 26
"""Columns of the terminal that a column of ranges takes, and the most that it takes for the sake of its title."""


def _one(model: str, rows: Sequence[Row], dataset: str) -> Group:
    kind = _kind(rows)
    shown = table(kind, "range in %", "median", "protocols", "no better than guessing")
    no_better = {id(row) for row, is_guess in zip(rows, guesses(rows), strict=True) if is_guess}
    for name, chosen in _lines(rows, kind).items():
        protocols = str(len({row.protocol for row in chosen}))
        guessed = str(sum(id(row) in no_better for row in chosen))
        shown.add_row(safe(name), _values(chosen), percent(_median(chosen)), protocols, guessed)
    return titled(
        f"{model} on {dataset}, {_items(rows)}, {counted(len(_known(rows)), 'number')}", shown
    )


def _several(runs: Mapping[str, Sequence[Row]], dataset: str, width: int) -> list[Group]:
    every = [row for rows in runs.values() for row in rows]
    kind, about = _kind(every), f"{dataset}, {_items(every)}"
    own = {model: _lines(rows, kind) for model, rows in runs.items()}
    cells = {
        name: {model: lines.get(name, []) for model, lines in own.items()}
        for name in _lines(every, kind)
    }
    ranges = {
        name: {model: _values(rows) for model, rows in line.items()} for name, line in cells.items()
    }
    parts = [_beside(f"{about}: range in % within a {kind}", ranges, width)]
    rivals = Counter(map(measured_as, every))
    ranked = {
        model: [row for row in rows if rivals[measured_as(row)] > 1] for model, rows in runs.items()
    }
    if not any(ranked.values()):
        return parts
    places = {
        name: {model: _ranks(rows, rivals) for model, rows in line.items()}
        for name, line in cells.items()
    }
    places["first, or tied for it"] = {
        model: f"{sum(row.rank == 1 for row in rows)} of {len(rows)}"
        for model, rows in ranked.items()
    }
    return [*parts, _beside(f"{about}: ranks within a {kind}", places, width)]


def _beside(title: str, cells: Mapping[str, Mapping[str, str]], width: int) -> Group:
    """The models side by side, or one below the other where they are too many."""
    models = list(next(iter(cells.values())))
    if len(models) > _BESIDE:
        cells = {model: {name: row[model] for name, row in cells.items()} for model in models}
    words = (word for row in cells.values() for column in row for word in safe(column).split())
    return matrix(title, cells, min(_NAMED, max(_RANGED, 2 + max(map(len, words)))), width)


def _kind(rows: Sequence[Row]) -> str:
    """What a line stands for."""
    return "group" if len({row.subject for row in rows}) > 1 else "family"


def _lines(rows: Sequence[Row], kind: str) -> dict[str, list[Row]]:
    """The rows of each line: families from the lowest median up, groups as they come, and all rows together."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(row.subject if kind == "group" else row.family, []).append(row)
    if kind == "family":
        lines = dict(
            sorted(lines.items(), key=lambda line: (math.isnan(_median(line[1])), _median(line[1])))
        )
    return lines | {"all together": list(rows)}


def _known(rows: Sequence[Row]) -> list[float]:
    return [row.value for row in rows if not math.isnan(row.value)]


def _values(rows: Sequence[Row]) -> str:
    values = _known(rows)
    return _edges(percent(min(values)), percent(max(values))) if values else "-"


def _median(rows: Sequence[Row]) -> float:
    values = _known(rows)
    return median(values) if values else math.nan


def _ranks(rows: Sequence[Row], rivals: Mapping[tuple[str, ...], int]) -> str:
    ranks = [row.rank for row in rows if row.rank is not None and rivals[measured_as(row)] > 1]
    return _edges(str(min(ranks)), str(max(ranks))) if ranks else "-"


def _edges(least: str, most: str) -> str:
    return least if least == most else f"{least} – {most}"


def _items(rows: Sequence[Row]) -> str:
    asked = {row.n + row.missing for row in rows}
    items = (
        counted(max(asked), "item")
        if len(asked) == 1
        else f"{min(asked):,} to {max(asked):,} items"
    )
    return f"{items} a group" if _kind(rows) == "group" else items


def _average_table(averages: Sequence[Average]) -> Table:
    first = averages[0]
    selection = f" ({first.selection})" if first.selection else ""
    state = "" if all(average.complete for average in averages) else ", incomplete"
    columns = [Column(name="model")]
    for part in first.parts:
        name = part.benchmark
        columns.append(Column(name=name, kind="share"))
        columns.append(Column(name=f"{name}_raw", kind="share", joined=" (", closed=")"))
        columns.append(Column(name=f"{name}_scored", kind="count", joined=" ("))
        columns.append(Column(name=f"{name}_items", kind="count", joined=" of ", closed=")"))
    columns += _MEANS
    return Table(
        name="average",
        title=f"{first.suite}{selection}: values in % and their plain mean{state}",
        columns=columns,
        rows=[_average_row(average) for average in averages],
        notes=_notes(averages),
    )


_MEANS = (
    Column(name="average", kind="share"),
    Column(name="counted", kind="count", joined=" of "),
    Column(name="parts", kind="count", joined=" of "),
    Column(name="ci_low", heading="95 % interval", kind="share"),
    Column(name="ci_high", kind="share", joined=" – "),
    Column(name="n", kind="count"),
    Column(name="rank", kind="count"),
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
    """Return the value of a part, its raw value if that is another, and how many items count if they are too few."""
    best = part.best
    if best is None:
        return [None] * 4
    raw = best.raw if normalised else None
    items = best.n + best.missing
    if best.n < COMPARABLE * items:
        return [best.value, raw, best.n, items]
    return [best.value, raw, None, None]


def _notes(averages: Sequence[Average]) -> list[str]:
    """Parts that are missing, and how values and the mean are made."""
    lines = []
    problems: dict[tuple[str, str], list[str]] = {}
    for each in averages:
        for part in each.parts:
            if part.best is None:
                problems.setdefault((part.benchmark, part.problem), []).append(each.model)
    for (benchmark, problem), models in problems.items():
        who = "" if len(models) == len(averages) else f" of {', '.join(models)}"
        lines.append(f"{benchmark}{who} is missing: {problem}")
    if any(not each.complete for each in averages):
        lines.append(
            "incomplete: the mean is over the parts that are there, and is not the suite's number"
        )
    if averages[0].normalised:
        lines.append(
            "values count from guessing (0) to all right (100), by subtask; raw values in brackets"
        )
    several = [
        (each.model, part) for each in averages for part in each.parts if len(part.scored) > 1
    ]
    lines += [f"{model}: the better counts of {_scored(part)}" for model, part in several]
    return lines


def _scored(part: PartValue) -> str:
    return " and ".join(f"{each.protocol} {percent(each.value)}" for each in part.scored)


_NARROW = 140  # with fewer columns a row of a report has its ids and warnings under its name
_NAME = 34
"""Columns of a terminal that a table of ranks gives to the name of a row."""

RANKED_WIDTH = 13
"""Columns of a terminal that a value with its rank needs."""

_TEXT = ("protocol", "group", "metric", "warnings", "ids", "model", "axis", "doubt")


def _by_run(rows: Sequence[Row], ids: bool = False) -> Iterable[tuple[tuple[str, str], list[Row]]]:
    """The rows of each model and part of a dataset, after the names of the two; with their ids where names need them.

    ``ids``: with them in any case.
    """
    runs: dict[tuple[str, str, str, str, str], list[Row]] = {}
    for row in rows:
        runs.setdefault((row.model, row.r, row.dataset, row.data, row.selection), []).append(row)
    models, datasets = (
        {(name, id) for name, id in pairs} for pairs in (_firsts(runs, 0), _firsts(runs, 2))
    )
    twice = [Counter(name for name, _ in pairs) for pairs in (models, datasets)]
    for (model, r, dataset, data, part), own in runs.items():
        model_name = f"{model} {r}" if ids or twice[0][model] > 1 else model
        data_name = f"{dataset} {data}" if ids or twice[1][dataset] > 1 else dataset
        yield (model_name, f"{data_name} ({part})" if part else data_name), own


def _firsts(runs: Iterable[tuple[str, ...]], place: int) -> Iterator[tuple[str, str]]:
    return ((key[place], key[place + 1]) for key in runs)


def _sources(rows: Sequence[Row]) -> list[str]:
    """A line that says from where on the Hub models and data came, where they did."""
    named = dict.fromkeys(
        source for row in rows for source in (row.model_source, row.dataset_source) if source
    )
    return [safe(f"from the Hub: {', '.join(named)}")] if named else []


_EXPLAINED = {
    "gold-constant": {"margins", "constant", "many-tied", "chance"},
    "margins": {"constant", "many-tied", "chance"},
    "constant": {"chance"},
}
"""Warning → those that follow from it, and need no line of their own."""


def raised(row: Row) -> set[str]:
    """The warnings of a row, but those that follow from another of them."""
    own = set(row.diagnosis.warnings)
    if "cut" in own and row.answers is not None and row.missing <= row.cut + row.answers.empty:
        own -= {"many-missing"}
    return own - {follows for warning in own for follows in _EXPLAINED.get(warning, ())}


def _explained(warning: str, row: Row) -> str:
    if warning == "gold-constant":
        return (
            f"{row.ties} of {row.n} items are tied and the right choice stands in the same place in all of them, so "
            "the tie rule decides the accuracy; shuffle the choices"
        )
    if warning == "cut":
        return row.cut_text
    return WARNINGS[warning] + (
        f" ({safe(row.server_changed)})" if warning == "served-model" else ""
    )


def _cells(
    rows: Sequence[Row], spelled: Callable[[float], str] = percent
) -> dict[str, dict[str, str]]:
    grouped, parts = (
        len({row.subject for row in rows}) > 1,
        len({row.selection for row in rows}) > 1,
    )
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        name = f"{row.protocol} {row.subject}" if grouped else row.protocol
        name += f" ({row.selection or 'all'})" if parts else ""
        cells.setdefault(name, {})[row.model] = with_rank(row, spelled)
    return cells


def _run_table(title: str, rows: Sequence[Row], several: bool, ids: bool, width: int) -> Group:
    numbered, notes = {row.protocol for row in rows if row.n}, []
    empty = [*dict.fromkeys(row.protocol for row in rows if row.protocol not in numbered)]
    if numbered and len(empty) > 1:  # a line for all of them; why, the legend says
        rows = [row for row in rows if row.protocol in numbered]
        notes.append(safe(f"no number under {len(empty)} protocols: {listed(empty, 5)}"))
    value, spelled = ("%", percent) if rows[0].share else ("value", plain)
    columns = {
        "protocol": [safe(row.protocol) for row in rows],
        "group": [safe(row.subject) for row in rows],
        "metric": [row.metric for row in rows],
        value: [_covered(row, spelled, several) for row in rows],
        "95 % interval": [interval(row.ci_low, row.ci_high, spelled) for row in rows],
        "numeric": [interval(row.low, row.high, spelled) if _ranged(row) else "" for row in rows],
        "uniform": ["" if row.share else plain(row.chance) for row in rows],
        "if calibrated": ["" if row.share else plain(row.calibrated) for row in rows],
        "n": [str(row.n) for row in rows],
        "rank": [_rank_cell(row) for row in rows],
        "warnings": [", ".join(_warnings(row)) for row in rows],
        "ids": [f"{row.id} {row.i} {row.t}" for row in rows],
    }
    for name in ("metric",) if ids else ("metric", "n"):
        if len(set(columns[name])) == 1:
            told = columns.pop(name)[0]
            about = (
                f"{told} questions" if name == "n" else told if rows[0].share else described(told)
            )
            title = f"{title}, {about}"
    for name in ("uniform", "if calibrated"):
        if {*columns[name]} <= {"", "-"}:
            columns.pop(name)
    shown_if = {"group": len(set(columns["group"])) > 1, "rank": several, "ids": ids}
    shown_if |= {"warnings": any(columns["warnings"]), "numeric": ids and any(columns["numeric"])}
    columns = {name: cells for name, cells in columns.items() if shown_if.get(name, True)}
    if ids and width < _NARROW:
        columns = _stacked(columns)
    elif not ids and "warnings" in columns:
        taken = sum(
            2 + max(len(name), *map(len, cells))
            for name, cells in columns.items()
            if name != "warnings"
        )
        columns["warnings"] = [_first(_warnings(row), width - taken) for row in rows]
    shown = table(*columns)
    for cells in zip(*columns.values(), strict=True):
        shown.add_row(*cells)
    return titled(title, shown, *notes)


def _covered(row: Row, spelled: Callable[[float], str], several: bool) -> str:
    """Return the value, of one of ``several`` models with the part of the items that was scored."""
    return f"{shown_value(row, spelled)} {row.coverage if several else ''}".rstrip()


def _rank_cell(row: Row) -> str:
    if row.rank is None:
        return ""
    return f"{row.rank} [{row.rank_low}-{row.rank_high}]" if row.rank_low else f"{row.rank}"


def _first(words: Sequence[str], room: int) -> str:
    """As many of ``words`` as there is room for on a line, and how many more there are."""
    for most in range(len(words), -1, -1):
        text = ", ".join([*words[:most], *([f"+{len(words) - most}"] if most < len(words) else [])])
        if len(text) <= room:
            return text
    return ""


def _stacked(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The columns with all text but the name on further lines under the name."""
    names = columns["protocol"]
    for line in (("ids", "group", "metric"), ("warnings",)):
        below = [columns[name] for name in line if name in columns]
        texts = [" ".join(filter(None, cells)) for cells in zip(*below, strict=True)] or [""] * len(
            names
        )
        names = [
            f"{name}\n  {text}" if text else name for name, text in zip(names, texts, strict=True)
        ]
    numbers = {
        name: cells
        for name, cells in columns.items()
        if name in ("%", "value", "95 % interval", "numeric", "n", "rank")
    }
    return {"protocol": names, **numbers}


def _unbounded(row: Row) -> bool:  # what rounding does to the value is not known
    return row.n > 0 and (math.isnan(row.low) or (row.answers is not None and not row.cut))


def _ranged(row: Row) -> bool:
    return row.low < row.high or _unbounded(row)


def _warnings(row: Row) -> list[str]:
    unused = [f"unused: {', '.join(map(safe, row.unused))}"] if row.unused else []
    return [*row.diagnosis.warnings, *unused, *row.counts]


_WIDE = 100  # columns of a table that goes to a file or a pipe, where nothing limits it


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
        raise BrokenPipeError  # what a reader that left means is for the caller to say


def _three_digits(value: float) -> str:
    return f"{value:.3g}"
