"""Reports as tables for people: one per model, and one of ranks when there are several models."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from choicewise.data.content import BLANK
from choicewise.report.console import console
from choicewise.report.visible_text import disarmed, safe
from choicewise.report.words import count
from choicewise.results.diagnosis import ALARMS, FLAGS
from choicewise.results.reasons import MissingReason
from choicewise.results.row import Row
from choicewise.scoring.statistics.clustered import FEWEST

_COUNTS = {
    "missing": "missing",
    "invalid": "name no option",
    "skipped": "skipped",
    "ties": "tied",
    "near_ties": "near-tied",
    "unlisted": "with unlisted answers",
    "shots_dropped": "with shots dropped",
    "truncated": "truncated",
    "merged": "merged",
    "noncanonical": "in other tokens than the text's own",
    "lossy": "with text lost",
    "unknown": "with unknown tokens",
}
"""Count of a row → the words for it; shown where it is not zero."""

_NARROW = 140
"""With fewer columns a row of a report has its ids and doubts under its name."""

_NAME, _RANKED = 34, 13
"""Columns that a table of ranks gives to the name of a row, and to a value with its rank."""

_TEXT = ("protocol", "group", "metric", "doubts", "ids", "model", "axis")


IDS = (
    "ids: #P protocol (its signature is in the JSON), #I texts sent, #T tokens asked and scored, #R model as computed, "
    "#D data; where they agree, so does what they stand for"
)
"""What the short ids are of."""


def report_tables(rows: Sequence[Row], width: int | None = None) -> list[Group]:
    """One table per model and dataset, then the ranks when the same was measured on several models.

    ``width``: in columns, by default that of the console.
    """
    width = width or console().width
    several = len({row.model for row in rows}) > 1
    shares, others = [row for row in rows if row.share], [row for row in rows if not row.share]
    tables = [
        _run_table(f"{model} on {dataset}", own, several, width)
        for part in (shares, others)
        for (model, dataset), own in by_run(part)
    ]
    if several and shares:
        tables.append(rank_table("accuracy in % and rank", _cells(shares), width))
    if several and others:
        tables.append(_rank_matrix("perplexity and rank, the least the best", _cells(others), plain, width))
    return tables


def by_run(rows: Sequence[Row]) -> Iterable[tuple[tuple[str, str], list[Row]]]:
    """The rows of each model and part of a dataset, after the names of the two with their ids."""
    runs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        part = f" ({row.selection})" if row.selection else ""
        runs.setdefault((f"{row.model} {row.r}", f"{row.dataset} {row.data}{part}"), []).append(row)
    return runs.items()


def legend(rows: Sequence[Row]) -> list[str]:
    """What the flags, columns and counts that occur in ``rows`` mean, a line each."""
    raised = {flag for row in rows for flag in row.diagnosis.flags}
    lines = [f"{flag}: {meaning}" for flag, meaning in FLAGS.items() if flag in raised]
    if unused := {name for row in rows for name in row.unused}:
        blank = "; _ is a blank in the question, which the choices should fill" if BLANK in unused else ""
        lines.append(f"unused: fields of the data that the protocol does not show{blank}")
    noises, dashes = [row.noise or 0.0 for row in rows if row.low < row.high], any(map(_unbounded, rows))
    if any(noises) or dashes:
        most = max(noises, default=0.0)
        differ = f"two ways of computing a token differ by up to {most:.2g} nats, n tokens by √n times that"
        noise = f"; {differ}" if any(noises) else ""
        dash = ", - where it is not known" if dashes else ""
        lines.append(f"numeric: range that rounding allows, nothing where it changes nothing{dash}{noise}")
    if any(row.unlisted for row in rows):
        lines.append(
            "unlisted answers: the server lists only the likeliest next tokens; of these only an upper bound "
            "is known; numeric is the range of whatever they are, and holds the items that they leave undecided"
        )
    if any(row.interval == "clustered" and row.n and math.isnan(row.ci_low) for row in rows):
        lines.append(f"95 % interval: none where there are fewer than {FEWEST} subjects: it would come out too small")
    if any(row.rank_low is not None for row in rows):
        lines.append("rank: in brackets, the ranks in 95 % of 2000 draws of items")
    lines += [*reasons(rows), *sources(rows)]
    return [*lines, IDS]


def sources(rows: Sequence[Row]) -> list[str]:
    """A line that says from where on the Hub models and data came, where they did."""
    named = dict.fromkeys(source for row in rows for source in (row.model_source, row.dataset_source) if source)
    return [safe(f"from the Hub: {', '.join(named)}")] if named else []


def alarms(rows: Sequence[Row], guesses_shown: bool = False) -> list[str]:
    """What speaks against numbers themselves, a line for each kind of alarm, however many numbers have it.

    ``guesses_shown``: whether the sentence above says that nothing is better than guessing.
    """
    lines = []
    for flag in ALARMS:
        own = [row for row in rows if flag in _unexplained(row)]
        if own and not (flag == "chance" and guesses_shown):
            one = f"{safe(own[0].model)} under {own[0].protocol}"
            which = one if len(own) == 1 else f"{len(own):,} of {count(len(rows), 'number')}, such as {one}"
            lines.append(f"alarm: {flag}, {which}: {_alarm(flag, own[0])}")
    return lines


EXPLAINED = {
    "gold-constant": {"margins", "constant", "many-tied", "chance"},
    "margins": {"constant", "many-tied", "chance"},
    "constant": {"chance"},
}
"""Alarm → those that follow from it, and need no line of their own."""


def _unexplained(row: Row) -> set[str]:
    raised = set(row.diagnosis.flags)
    return raised - {follows for flag in raised for follows in EXPLAINED.get(flag, ())}


def _alarm(flag: str, row: Row) -> str:
    if flag == "gold-constant":
        return (
            f"{row.ties} of {row.n} items are tied and the right choice stands in the same place in all of them, so "
            "the tie rule decides the accuracy; shuffle the choices"
        )
    return FLAGS[flag] + (f" ({safe(row.server_changed)})" if flag == "served-model" else "")


def reasons(rows: Sequence[Row]) -> list[str]:
    """Why items are missing or skipped, a line for every reason and count, however many protocols have it."""
    told: dict[tuple[str, MissingReason], list[str]] = {}
    for row in rows:
        for reason in row.missing_reasons:
            told.setdefault(("missing", reason), []).append(row.protocol)
        for reason in row.skipped_reasons:
            told.setdefault(("skipped", reason), [])
    lines = []
    for (kind, why), protocols in told.items():
        names = list(dict.fromkeys(protocols))
        under = f" under {names[0]}" if len(names) == 1 else f" under {len(names)} protocols" if names else ""
        lines.append(safe(f"{kind}{under}: {why.count:,}, such as {why.example}: {why.reason}"))
    return lines


def rank_table(
    title: str, cells: Mapping[str, Mapping[str, tuple[float, int | None]]], width: int | None = None
) -> Group:
    """A matrix of values and ranks: ``cells[row][column]`` is (share of 1, rank); in parts where it is too wide."""
    return _rank_matrix(title, cells, percent, width)


def _rank_matrix(
    title: str,
    cells: Mapping[str, Mapping[str, tuple[float, int | None]]],
    spelled: Callable[[float], str],
    width: int | None,
) -> Group:
    texts = {
        name: {column: spelled(value) + (f" ({place})" if place else "") for column, (value, place) in row.items()}
        for name, row in cells.items()
    }
    return matrix(title, texts, _RANKED, width)


def matrix(title: str, cells: Mapping[str, Mapping[str, str]], least: int, width: int | None = None) -> Group:
    """``cells[row][column]``, each of ``least`` columns of the terminal or more, in parts where it is too wide."""
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    room = (width or console().width) - min(_NAME, max(len(safe(name)) for name in cells) + 2)
    step = max(1, room // least)
    step = math.ceil(len(columns) / math.ceil(len(columns) / step)) if columns else 1  # of much the same width
    parts = []
    for start in range(0, len(columns), step):
        chosen = columns[start : start + step]
        shown = table("")
        for column in chosen:
            shown.add_column(safe(column), justify="right", overflow="fold", max_width=room // len(chosen) - 2)
        for name, row in cells.items():
            shown.add_row(safe(name), *(row.get(column, "") for column in chosen))
        parts.append(shown)
    return Group(Text(safe(title), style="italic"), *parts)


def titled(title: str, shown: Table, *notes: str) -> Group:
    """A table between its title and notes, which are as wide as the page and not as the table."""
    return Group(Text(safe(title), style="italic"), shown, *(Text(disarmed(note)) for note in notes))


def table(*columns: str) -> Table:
    """A borderless table; texts fold when there is no room, numbers never do."""
    empty = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        text = column in _TEXT or number == 0
        empty.add_column(safe(column), justify="left" if text else "right", overflow="fold", no_wrap=not text)
    return empty


def percent(share: float) -> str:
    """A share of 1 in percent with one decimal; a dash when there is no number."""
    return "-" if math.isnan(share) else f"{100 * share:.1f}"


def plain(number: float) -> str:
    """A number that is no share of 1, with two decimals or, of a million and more, as a power of ten."""
    return "-" if math.isnan(number) else f"{number:,.2f}" if number < 1e6 else f"{number:.3g}"


def points(share: float, se: float = math.nan) -> str:
    """A difference of shares of 1 in points with its sign, and its standard error where there is one."""
    if math.isnan(share):
        return "-"
    rounded = round(100 * share, 1)
    return (f"{rounded:+.1f}" if rounded else "0.0") + ("" if math.isnan(se) else f" ± {100 * se:.1f}")


def _cells(rows: Sequence[Row]) -> dict[str, dict[str, tuple[float, int | None]]]:
    grouped, parts = len({row.subject for row in rows}) > 1, len({row.selection for row in rows}) > 1
    cells: dict[str, dict[str, tuple[float, int | None]]] = {}
    for row in rows:
        name = f"{row.protocol} {row.subject}" if grouped else row.protocol
        name += f" ({row.selection or 'all'})" if parts else ""
        cells.setdefault(name, {})[row.model] = (row.value, row.rank)
    return cells


def _run_table(title: str, rows: Sequence[Row], several: bool, width: int) -> Group:
    value, spelled = ("%", percent) if rows[0].share else ("value", plain)
    columns = {
        "protocol": [safe(row.protocol) for row in rows],
        "group": [safe(row.subject) for row in rows],
        "metric": [row.metric for row in rows],
        value: [spelled(row.value) for row in rows],
        "95 % interval": [_range(row.ci_low, row.ci_high, spelled) for row in rows],
        "numeric": [_numeric(row) for row in rows],
        "n": [str(row.n) for row in rows],
        "rank": [f"{row.rank or ''}" + (f" [{row.rank_low}-{row.rank_high}]" if row.rank_low else "") for row in rows],
        "doubts": [_doubts(row) for row in rows],
        "ids": [f"{row.id} {row.i} {row.t}" for row in rows],
    }
    if len(set(columns["metric"])) == 1:
        title = f"{title}, {columns.pop('metric')[0]}"
    shown_if = {"group": len(set(columns["group"])) > 1, "rank": several}
    shown_if |= {name: any(columns[name]) for name in ("numeric", "doubts")}
    columns = {name: cells for name, cells in columns.items() if shown_if.get(name, True)}
    if width < _NARROW:
        columns = _stacked(columns)
    shown = table(*columns)
    for cells in zip(*columns.values(), strict=True):
        shown.add_row(*cells)
    return titled(title, shown)


def _stacked(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The columns with all text but the name on further lines under the name."""
    names = columns["protocol"]
    for line in (("ids", "group", "metric"), ("doubts",)):
        below = [columns[name] for name in line if name in columns]
        texts = [" ".join(filter(None, cells)) for cells in zip(*below, strict=True)] or [""] * len(names)
        names = [f"{name}\n  {text}" if text else name for name, text in zip(names, texts, strict=True)]
    kept = {
        name: cells
        for name, cells in columns.items()
        if name in ("%", "value", "95 % interval", "numeric", "n", "rank")
    }
    return {"protocol": names, **kept}


def _range(low: float, high: float, spelled: Callable[[float], str] = percent) -> str:
    """Two shares of 1 in percent, or two other numbers; a dash when there are none."""
    return "-" if math.isnan(low) else f"{spelled(low)} – {spelled(high)}"


def _numeric(row: Row) -> str:
    return _range(row.low, row.high) if row.low < row.high or _unbounded(row) else ""


def _unbounded(row: Row) -> bool:
    """Whether what rounding does to the value is not known."""
    return row.n > 0 and math.isnan(row.low)


def _doubts(row: Row) -> str:
    counts = [f"{getattr(row, name)} {words}" for name, words in _COUNTS.items() if getattr(row, name)]
    unused = [f"unused: {', '.join(map(safe, row.unused))}"] if row.unused else []
    return ", ".join([*row.diagnosis.flags, *unused, *counts])
