"""The data of the bump chart: models over protocols, the protocols sorted by the similarity of their orders."""

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from statistics import median

import numpy as np

from choicewise.results.order import order_agreement, seriated
from choicewise.results.ranks import measured_as
from choicewise.results.row import Row
from choicewise.web import labels
from choicewise.web.charts.frame import Record
from choicewise.web.number import count
from choicewise.web.pairs import Lead
from choicewise.web.theme import MODELS

SHOWN = len(MODELS)
"""Models that have a colour and a shape; of more, the others are grey."""

MODEL, PROTOCOL = 11, 13
"""Widths of the names of models and protocols, in sizes of the font."""

_BESIDE, _FEW = 0.5, 70
"""Part of a column over which the intervals of the models stand beside each other, less where columns are few."""

_NAMED = 20
"""With more models, only those in colour have their names beside their lines."""

_TIED = 0.3
"""How far apart lines of equal rank are, in ranks."""

Column = Mapping[str, Row]
"""What was measured the same way, by model."""


def values(
    rows: Sequence[Row],
    significant: Collection[Lead] = (),
    highlight: Sequence[str] = (),
    first: str | None = None,
) -> list[Record]:
    """Records of the kinds ``column``, ``place`` and ``line`` (a model under a protocol, in colour or grey),
    ``crossing`` and ``model`` (a name).

    ``rows``: ranked, of several models (or of one).  A column holds what was measured the same way, if two models were.
    ``significant``: two lines between neighbouring columns are thick where they cross and each of the two orders is
    among these.  ``highlight``: models in colour, unless given those with the best median rank.  ``first``: protocol of
    the first column, unless given the one whose order agrees best with all others.
    """
    models = list(dict.fromkeys(row.model for row in rows))
    columns = _columns(rows, min(len(models), 2))
    table = np.array([[_value(column, model) for model in models] for column in columns])
    table = table.reshape(len(columns), len(models))
    names = [next(iter(column.values())).protocol for column in columns]
    order = seriated(table, names.index(first) if first in names else None)
    columns, names, table = [columns[each] for each in order], [names[each] for each in order], table[order]
    shown = shown_models(rows, highlight)
    drawn = [_places(column, models) for column in columns]
    agreement = order_agreement(table)[0].tolist() if columns else []
    prefix = labels.shared_prefix(names)
    records = [_column(at, name, prefix, tau) for at, (name, tau) in enumerate(zip(names, agreement, strict=True))]
    for line, model in enumerate(models):
        if model not in shown:
            records += _grey(model, line, columns, drawn)
            continue
        slot = shown.index(model)
        for at, column in enumerate(columns):
            place = drawn[at].get(model, math.nan)
            beside = at + ((slot + 0.5) / len(shown) - 0.5) * min(_BESIDE, len(columns) / _FEW)
            records.append(_place(column.get(model), model, len(models), slot, at, beside, place))
    records += _crossings(columns, names, drawn, shown, significant)
    named = models if len(models) <= _NAMED else shown
    return records + _models(columns, drawn, named, shown)


def shown_models(rows: Sequence[Row], highlight: Sequence[str] = ()) -> list[str]:
    """The models in colour, in the order of all models: of ``highlight``, else of all, those with the best ranks."""
    ranks: dict[str, list[float]] = {}
    for row in rows:
        ranks.setdefault(row.model, []).append(math.inf if row.rank is None else row.rank)
    chosen = [model for model in ranks if model in highlight] if highlight else list(ranks)
    best = sorted(chosen, key=lambda model: median(ranks[model]))[:SHOWN]
    return [model for model in ranks if model in best]


def _columns(rows: Sequence[Row], fewest: int) -> list[Column]:
    columns: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        columns.setdefault(measured_as(row), {})[row.model] = row
    return [
        column
        for column in columns.values()
        if sum(not math.isnan(row.value) for row in column.values()) >= max(fewest, 1)
    ]


def _value(column: Column, model: str) -> float:
    return column[model].value if model in column else math.nan


def _places(column: Column, models: Sequence[str]) -> dict[str, float]:
    """Where the lines go: at the rank; those of equal rank beside each other at the middle of the ranks they share."""
    tied: dict[int, list[str]] = {}
    for model in models:
        if model in column and (rank := column[model].rank) is not None:
            tied.setdefault(rank, []).append(model)
    return {
        model: rank + (len(own) - 1) / 2 + (number - (len(own) - 1) / 2) * _TIED
        for rank, own in tied.items()
        for number, model in enumerate(own)
    }


def _column(at: int, name: str, prefix: str, tau: float) -> Record:
    agreement = "" if math.isnan(tau) else f"{tau:.2f}".replace("-", "−")
    label = labels.cut(name.removeprefix(prefix), PROTOCOL)
    about = f"{labels.cut(name, labels.SAID)}: Kendall's τ with the first column {agreement or 'is not defined'}"
    text = {"label": label, "agreement": agreement or "–", "description": about}
    return {"kind": "column", "column": at, "protocol": name, "tau": tau, **text}


def _grey(model: str, line: int, columns: Sequence[Column], drawn: Sequence[Mapping[str, float]]) -> list[Record]:
    """The places of a line without colour; what is said of it stands with the first, since the line is one mark."""
    ranks = [rank for column in columns if model in column and (rank := column[model].rank) is not None]
    under = count(len(ranks), "protocol")
    said = f"rank {min(ranks)} to {max(ranks)} under {under}" if ranks else "no item was scored"
    records: list[Record] = [
        {"kind": "line", "line": line, "column": at, "place": own.get(model, math.nan), "value": _value(column, model)}
        for at, (column, own) in enumerate(zip(columns, drawn, strict=True))
    ]
    records[0] |= {"model": model, "description": f"{labels.cut(model, labels.SAID)}: {said}"}
    return records


def _place(row: Row | None, model: str, models: int, slot: int, at: int, beside: float, place: float) -> Record:
    record: Record = {"kind": "place", "model": model, "slot": slot, "column": at, "place": place, "beside": beside}
    if row is None or math.isnan(row.value):
        name = labels.cut(model, labels.SAID)
        return {**record, "value": math.nan, "rank": None, "description": f"{name}: no item was scored"}
    bounds = "" if row.rank_low is None else f" (95 %: {row.rank_low} to {row.rank_high})"
    about = f"{labels.cut(model, labels.SAID)} under {labels.cut(row.protocol, labels.SAID)}: "
    about += f"rank {row.rank} of {models}{bounds}, {labels.share(row.value)} of {count(row.n, 'item')}"
    about += labels.bounds(row.ci_low, row.ci_high)
    return {
        **record,
        "protocol": row.protocol,
        "value": row.value,
        "ci_low": row.ci_low,
        "ci_high": row.ci_high,
        "rank": row.rank,
        "rank_low": row.rank_low,
        "rank_high": row.rank_high,
        "n": row.n,
        "description": about,
    }


def _crossings(
    columns: Sequence[Column],
    names: Sequence[str],
    drawn: Sequence[Mapping[str, float]],
    shown: Sequence[str],
    significant: Collection[Lead],
) -> list[Record]:
    """The stretches of lines that are thick."""
    records = []
    for at in range(len(columns) - 1):
        here, there = names[at], names[at + 1]
        crossed = {
            model: (one, other)
            for one, other in combinations(shown, 2)
            for model in (one, other)
            if {(here, one, other), (there, other, one)} <= set(significant)
            or {(here, other, one), (there, one, other)} <= set(significant)
        }
        for model, pair in crossed.items():
            both = " and ".join(labels.cut(each, labels.SAID) for each in pair)
            between = f"{labels.cut(here, labels.SAID)} and {labels.cut(there, labels.SAID)}"
            records.append(
                {
                    "kind": "crossing",
                    "model": model,
                    "slot": shown.index(model),
                    "column": at,
                    "next": at + 1,
                    "place": drawn[at][model],
                    "next_place": drawn[at + 1][model],
                    "value": columns[at][model].value,
                    "next_value": columns[at + 1][model].value,
                    "description": f"{both} change places between {between}: significantly ahead under each",
                }
            )
    return records


def _models(
    columns: Sequence[Column], drawn: Sequence[Mapping[str, float]], named: Sequence[str], shown: Sequence[str]
) -> list[Record]:
    """The names of the models, where their lines end."""
    records: list[Record] = []
    short = labels.cut_apart(named, MODEL)
    for model in named:
        ends = [at for at in range(len(columns)) if model in drawn[at]]
        if ends:
            end = {"column": ends[-1], "place": drawn[ends[-1]][model], "value": columns[ends[-1]][model].value}
            about = {"model": model, "slot": shown.index(model) if model in shown else None}
            records.append({"kind": "model", **about, "label": short[model], **end})
    return records
