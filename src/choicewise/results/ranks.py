"""How sure the order of several models is, and whether protocols agree about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from choicewise.results.measurement import Measurement
from choicewise.results.pairing import paired_credits
from choicewise.results.rows import Row, selection
from choicewise.scoring.metrics import GROUPS
from choicewise.scoring.ragged import Floats
from choicewise.scoring.statistics.rank_interval import rank_intervals

if TYPE_CHECKING:
    from choicewise.results.run import Run


def bounded(found: Sequence[Row], runs: Sequence[Run], by: str | None = None) -> list[Row]:
    """The rows with the interval of each rank, where several of ``runs`` measured the same.

    The bootstrap draws items, the same for all models; ranks of a mean over subjects weigh its items accordingly.
    """
    rivals: dict[tuple[str, str, str], list[tuple[Run, Measurement]]] = {}
    for run in runs:
        for each in run.measure():
            key = run.manifest.dataset.digest[:6], selection(run.manifest), each.protocol.digest
            rivals.setdefault(key, []).append((run, each))
    bounds: dict[tuple[str, ...], tuple[int, int]] = {}
    for (data, part, digest), group in rivals.items():
        if len(group) > 1:
            for subject, low, high in _bounds([each for _, each in group], by):
                for (run, _), *edges in zip(group, low, high, strict=True):
                    bounds[run.manifest.model.name, f"#D{data}", part, digest[:6], subject] = (edges[0], edges[1])
    return [
        _with_bounds(row, bounds.get((row.model, row.data, row.selection, row.id[2:], row.subject))) for row in found
    ]


def _with_bounds(row: Row, edges: tuple[int, int] | None) -> Row:
    return row if edges is None else replace(row, rank_low=edges[0], rank_high=edges[1])


def _bounds(measured: Sequence[Measurement], by: str | None) -> list[tuple[str, list[int], list[int]]]:
    """(group, lowest ranks, highest ranks), a rank per measurement."""
    aggregation = by or measured[0].protocol.aggregation
    subjects, credits = paired_credits(measured)
    groups = np.array([GROUPS[aggregation](subject) for subject in subjects], dtype=object)
    weighted = credits * _weights(subjects, credits) if aggregation == "macro" else credits
    found = []
    for group in dict.fromkeys(groups.tolist()):
        intervals = rank_intervals(weighted[:, groups == group])
        if intervals.n:
            found.append((group, intervals.low.tolist(), intervals.high.tolist()))
    return found


def _weights(subjects: Sequence[str], credits: Floats) -> Floats:
    """Per item, so that each subject's scored items weigh the same together; mean 1 over the scored ones."""
    scored = ~np.isnan(credits).any(axis=0)
    _, number = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)
    counts = np.bincount(number[scored], minlength=int(number.max()) + 1 if len(number) else 0)
    present = max(1, int((counts > 0).sum()))
    return scored.sum() / (present * np.maximum(counts[number], 1))


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """Kendall's τ-b between two protocols' rankings of the ``models`` that both ranked."""

    left: str
    right: str
    tau: float
    models: int


def rank_agreement(found: Sequence[Row]) -> list[RankAgreement]:
    """One entry per pair of protocols that rank the same three or more models; fewer have no order to agree about."""
    values: dict[str, dict[tuple[str, str, str], float]] = {}
    for row in found:
        values.setdefault(row.protocol, {})[row.data, row.subject, row.model] = row.value
    agreements = []
    for left, right in combinations(values, 2):
        shared = [key for key in values[left] if key in values[right]]
        models = len({model for _, _, model in shared})
        if models >= 3 and len(shared) == models:
            from scipy.stats import kendalltau

            tau = kendalltau([values[left][key] for key in shared], [values[right][key] for key in shared]).statistic
            agreements.append(RankAgreement(left, right, float(tau), models))
    return agreements
