"""Does the model prefer a position (a letter) whatever stands there?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.ragged import Integers
from choicewise.scoring.statistics.chi_square import chi_square_tail


@dataclass(frozen=True, slots=True)
class PositionBias:
    """How unevenly the positions fare.

    ``recalls``: per position, the share found of the items whose right choice stands there; NaN without such items.
    ``rstd``: their standard deviation (over n), 0 without bias (Zheng et al. 2024; LLM-MCQ-Bias@da14c48).
    ``chi_square`` and ``p``: predictions per position against right choices per position.  The test is conservative,
    because right predictions follow the right choices.  NaN when fewer than two positions ever hold a right choice.
    ``n``: items with a prediction.
    """

    recalls: tuple[float, ...]
    rstd: float
    chi_square: float
    p: float
    n: int


def position_bias(predictions: Integers, gold: Integers) -> PositionBias:
    """Position bias of predicted choices against right ones, indices [items]; -1 (no prediction) is left out.

    For items with one right choice.  A choice predicted where none is ever right makes ``chi_square`` infinite.
    """
    seen = predictions >= 0
    predicted, right = predictions[seen], gold[seen]
    n, positions = len(right), int(max(predicted.max(), right.max())) + 1 if seen.any() else 0
    expected = np.bincount(right, minlength=positions)
    found = np.bincount(right[predicted == right], minlength=positions)
    counts = np.bincount(predicted, minlength=positions)
    recalls = [hit / all_ if all_ else math.nan for hit, all_ in zip(found.tolist(), expected.tolist(), strict=True)]
    known = [recall for recall in recalls if not math.isnan(recall)]
    if len(known) < 2:
        return PositionBias(tuple(recalls), math.nan, math.nan, math.nan, n)
    used = expected > 0
    statistic = float(((counts[used] - expected[used]) ** 2 / expected[used]).sum())
    if counts[~used].any():
        statistic = math.inf
    p = chi_square_tail(statistic, len(known) - 1) if math.isfinite(statistic) else 0.0
    return PositionBias(tuple(recalls), float(np.std(known)), statistic, p, n)
