"""Reports of many rows in short: a line per family of protocols with its range, and what there is to doubt."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from rich.console import Group

from choicewise.report.console import console
from choicewise.report.table import by_run, matrix, percent, reasons, sources, table, titled
from choicewise.report.visible_text import safe
from choicewise.report.words import count
from choicewise.results.finding import guess
from choicewise.results.ranks import measured_as
from choicewise.results.row import Row

LONG, MANY = 20, 100
"""Rows that one table, and all tables together, have before they are shown in short."""

BESIDE = 6
"""So many models stand side by side; more of them one below the other, that with the highest median first."""

_RANGED, _NAMED = 13, 26
"""Columns of the terminal that a column of ranges takes, and the most that it takes for the sake of its title."""

DOUBTS = {
    "served-model": "the served model changed",
    "positive": "log-probabilities above 0",
    "placeholder": "log-probabilities that nobody measured",
    "margins": "no score tells the choices apart",
    "many-missing": "many items are missing",
    "many-unparsed": "many texts name no option",
    "many-tied": "many items are tied",
    "gold-constant": "the tie rule makes the number",
    "constant": "always the same position is predicted",
    "position": "some positions are predicted too often",
    "permutation": "answers depend on the order of the options",
    "length": "scores follow length",
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
"""Flag or count of a row → what there is to doubt, in a few words; the gravest first."""


def long(rows: Sequence[Row]) -> bool:
    """Whether there are so many rows that a line per family says more at first sight."""
    runs, kind = [own for _, own in by_run(rows)], _kind(rows)
    fewer = any(len(_lines(own, kind)) < len(own) for own in runs)
    return fewer and (len(rows) > MANY or any(len(own) > LONG for own in runs))


def family_tables(rows: Sequence[Row], width: int | None = None) -> list[Group]:
    """Per dataset the range of each family, or of each group where there are several; models side by side, with ranks.

    ``width``: in columns, by default that of the console.
    """
    width = width or console().width
    datasets: dict[str, list[tuple[str, list[Row]]]] = {}
    for (model, dataset), own in by_run(rows):
        datasets.setdefault(dataset, []).append((model, own))
    parts = []
    for dataset, runs in datasets.items():
        if len(runs) == 1:
            parts.append(_one(*runs[0], dataset))
        else:
            several = runs if len(runs) <= BESIDE else sorted(runs, key=lambda run: -_median(run[1]))
            parts += _several(dict(several), dataset, width)
    return parts


def doubts(rows: Sequence[Row]) -> str:
    """What there is to doubt, each with the number of protocols; nothing where there is nothing."""
    protocols = {
        doubt: {row.protocol for row in rows if doubt in row.diagnosis.flags or getattr(row, doubt, None)}
        for doubt in DOUBTS
    }
    return ", ".join(f"{DOUBTS[doubt]} ({len(names)})" for doubt, names in protocols.items() if names)


def short_legend(rows: Sequence[Row]) -> list[str]:
    """Why items are missing, and what the ids in the titles are, a line each."""
    return [*reasons(rows), *sources(rows), "ids: #R model as computed, #D data"]


def _one(model: str, rows: Sequence[Row], dataset: str) -> Group:
    kind = _kind(rows)
    shown = table(kind, "range in %", "median", "protocols", "no better than guessing")
    for name, chosen in _lines(rows, kind).items():
        protocols = str(len({row.protocol for row in chosen}))
        shown.add_row(safe(name), _values(chosen), percent(_median(chosen)), protocols, str(sum(map(guess, chosen))))
    return titled(f"{model} on {dataset}, {_items(rows)}, {count(len(_known(rows)), 'number')}", shown)


def _several(runs: Mapping[str, Sequence[Row]], dataset: str, width: int) -> list[Group]:
    every = [row for rows in runs.values() for row in rows]
    kind, about = _kind(every), f"{dataset}, {_items(every)}"
    own = {model: _lines(rows, kind) for model, rows in runs.items()}
    cells = {name: {model: lines.get(name, []) for model, lines in own.items()} for name in _lines(every, kind)}
    ranges = {name: {model: _values(rows) for model, rows in line.items()} for name, line in cells.items()}
    parts = [_beside(f"{about}: range in % within a {kind}", ranges, width)]
    rivals = Counter(map(measured_as, every))
    ranked = {model: [row for row in rows if rivals[measured_as(row)] > 1] for model, rows in runs.items()}
    if not any(ranked.values()):
        return parts
    places = {name: {model: _ranks(rows, rivals) for model, rows in line.items()} for name, line in cells.items()}
    places["first, or tied for it"] = {
        model: f"{sum(row.rank == 1 for row in rows)} of {len(rows)}" for model, rows in ranked.items()
    }
    return [*parts, _beside(f"{about}: ranks within a {kind}", places, width)]


def _beside(title: str, cells: Mapping[str, Mapping[str, str]], width: int) -> Group:
    """The models side by side, or one below the other where they are too many."""
    models = list(next(iter(cells.values())))
    if len(models) > BESIDE:
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
        lines = dict(sorted(lines.items(), key=lambda line: (math.isnan(_median(line[1])), _median(line[1]))))
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
    items = count(max(asked), "item") if len(asked) == 1 else f"{min(asked):,} to {max(asked):,} items"
    return f"{items} a group" if _kind(rows) == "group" else items
