"""The order of several models under each protocol, and how sure it is."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from choicewise.results.outcome import Outcome, Outcomes
from choicewise.results.pairing import paired_credits
from choicewise.results.row import Row
from choicewise.scoring.metrics import GROUPS
from choicewise.scoring.ragged import Floats
from choicewise.scoring.statistics.rank_interval import rank_intervals, ranks


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The same rows with the rank of each model among those measured the same way; equal values share a rank."""
    placed = iter(ranks_among([merit(row) for row in rows], [measured_as(row) for row in rows]))
    return [replace(row, rank=next(placed)) for row in rows]


def merit(row: Row) -> float:
    """A number that is greater for the better of two values of the same metric."""
    return row.value if row.share else -row.value


def ranks_among(values: Sequence[float], groups: Sequence[Hashable]) -> list[int | None]:
    """The rank of each value in its group: 1 for the greatest; equal values share a rank; None for NaN, no value."""
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    placed: list[int | None] = [None] * len(values)
    for places in members.values():
        for place, rank in zip(places, ranks([values[place] for place in places]).tolist(), strict=True):
            placed[place] = rank or None
    return placed


def bounded(rows: Sequence[Row], runs: Sequence[Outcomes], by: str | None = None) -> list[Row]:
    """The rows with the interval of each rank, where several of ``runs`` measured the same.

    The bootstrap draws items, the same for all models; ranks of a mean over subjects weigh its items accordingly.
    """
    rivals: dict[tuple[str, str, str], list[tuple[str, Outcome]]] = {}
    for run in runs:
        for outcome in run.outcomes:
            key = run.digest[:6], outcome.selection, outcome.protocol.digest
            rivals.setdefault(key, []).append((run.model, outcome))
    bounds: dict[tuple[str, ...], tuple[int, int]] = {}
    for (data, part, digest), group in rivals.items():
        if len(group) > 1:
            for subject, low, high in _bounds([outcome for _, outcome in group], by):
                for (model, _), *edges in zip(group, low, high, strict=True):
                    bounds[model, f"#D{data}", part, digest[:6], subject] = (edges[0], edges[1])
    keys = [(row.model, row.data, row.selection, row.id[2:], row.subject) for row in rows]
    return [
        replace(row, rank_low=bounds[key][0], rank_high=bounds[key][1]) if key in bounds else row
        for row, key in zip(rows, keys, strict=True)
    ]


def measured_as(row: Row) -> tuple[str, ...]:
    """What rows have in common whose values can be ranked: the data, the part of it, the group and the protocol."""
    return row.data, row.selection, row.subject, row.signature


def _bounds(measured: Sequence[Outcome], by: str | None) -> list[tuple[str, list[int], list[int]]]:
    """(group, lowest ranks, highest ranks), a rank per measurement."""
    aggregation = by or measured[0].protocol.aggregation
    subjects, credits = paired_credits(measured)
    groups = np.array([GROUPS[aggregation](subject, measured[0].categories) for subject in subjects], dtype=object)
    weighted = credits * _weights(subjects, credits) if aggregation == "macro" else credits
    bounds = []
    for group in dict.fromkeys(groups.tolist()):
        intervals = rank_intervals(weighted[:, groups == group])
        if intervals.n:
            bounds.append((group, intervals.low.tolist(), intervals.high.tolist()))
    return bounds


def _weights(subjects: Sequence[str], credits: Floats) -> Floats:
    """Per item, so that each subject's scored items weigh the same together; mean 1 over the scored ones."""
    scored = ~np.isnan(credits).any(axis=0)
    _, number = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)
    counts = np.bincount(number[scored], minlength=int(number.max()) + 1 if len(number) else 0)
    present = max(1, int((counts > 0).sum()))
    return scored.sum() / (present * np.maximum(counts[number], 1))
