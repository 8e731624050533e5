"""Metrics of probabilities beside the installed harness's own functions, on the same random numbers."""

import numpy as np
import pytest
from lm_eval.api import metrics
from lm_eval.utils import softmax

from choicewise.scoring.probabilities import Judged, credits


def judged(sums: np.ndarray, gold: np.ndarray, sizes: np.ndarray | None = None) -> Judged:
    """Items with equally many choices, from sums [items, choices]; ``sizes``: bytes of every choice, alike."""
    count, choices = sums.shape
    right = np.zeros(sums.shape, dtype=np.bool_)
    right[np.arange(count), gold] = True
    best = sums.argmax(axis=1)
    scores = sums if sizes is None else sums / sizes
    offsets = np.arange(count + 1) * choices
    return Judged(
        scores=scores.ravel(),
        item_offsets=offsets,
        right=right.ravel(),
        prediction=best,
        hit=(best == gold).astype(np.float64),
        bytes=None if sizes is None else sizes.ravel(),
    )


@pytest.mark.parametrize("choices", [2, 4, 9])
def test_the_brier_score_and_bits_per_byte_are_those_of_the_harness(choices: int) -> None:
    draw = np.random.default_rng(choices)
    sums = -draw.gamma(2, 10, (200, choices))
    gold, sizes = (
        draw.integers(choices, size=200),
        draw.integers(1, 90, (200, choices)).astype(np.float64),
    )
    theirs = metrics.brier_score(
        [(right, softmax(own)) for right, own in zip(gold, sums, strict=True)]
    )
    assert credits("brier", judged(sums, gold)).mean() == pytest.approx(theirs, rel=1e-12)
    own = np.arange(200), gold
    bits = metrics.bits_per_byte(list(zip(sums[own], sizes[own], strict=True)))
    assert credits("bpb", judged(sums, gold, sizes)).mean() == pytest.approx(bits, rel=1e-12)
