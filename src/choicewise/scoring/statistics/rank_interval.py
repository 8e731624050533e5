"""Ranks, and which ones a model could have had with another draw of items."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from choicewise.scoring.ragged import Floats, Integers

_AT_ONCE = 50
"""Draws that are computed together."""


ALIKE = 1e-9
"""Values that differ by no more, absolutely and relatively, are equal: their sums were rounded in another order."""


def ranks(values: npt.ArrayLike) -> Integers:
    """1 for the greatest along the last axis, 0 for NaN; equal values share the better rank."""
    values = np.asarray(values, dtype=np.float64)
    order = np.argsort(-values, axis=-1, kind="stable")
    falling = np.take_along_axis(values, order, axis=-1)
    lower = ~np.isclose(falling[..., 1:], falling[..., :-1], rtol=ALIKE, atol=ALIKE)
    places = np.pad(lower * np.arange(1, values.shape[-1]), [(0, 0)] * (values.ndim - 1) + [(1, 0)])
    result = np.empty_like(order)
    np.put_along_axis(result, order, 1 + np.maximum.accumulate(places, axis=-1), axis=-1)
    return np.where(np.isnan(values), 0, result)


@dataclass(frozen=True, slots=True, eq=False)
class RankIntervals:
    """Per model the observed rank and its bootstrap interval; 1 is best, equal means share the better rank.

    ``rank``, ``low``, ``high``: int64 [models]; ``n``: items every model scored; ``missing``: the others.
    """

    rank: Integers
    low: Integers
    high: Integers
    n: int
    missing: int


def rank_intervals(credits: Floats, draws: int = 2000, seed: int = 0, level: float = 0.95) -> RankIntervals:
    """Percentile bootstrap of ranks by mean credit; ``credits`` float64 [models, items], NaN for missing.

    Every draw resamples items with replacement, the same for all models, so the pairing is kept.
    """
    complete = credits[:, ~np.isnan(credits).any(axis=0)]
    n, missing = complete.shape[1], credits.shape[1] - complete.shape[1]
    rank = ranks(complete.sum(axis=1) / max(n, 1))
    if not n:
        return RankIntervals(rank, rank, np.full_like(rank, len(rank)), n, missing)
    rng = np.random.default_rng(seed)
    # Items with the same credits of all models are one kind, and there are far fewer kinds than items.
    kinds, counts = np.unique(complete, axis=1, return_counts=True)
    parts = (rng.multinomial(n, counts / n, min(_AT_ONCE, draws - start)) for start in range(0, draws, _AT_ONCE))
    drawn = np.concatenate([ranks(part @ kinds.T / n) for part in parts])
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0, method="inverted_cdf").astype(np.int64)
    return RankIntervals(rank, low, high, n, missing)
