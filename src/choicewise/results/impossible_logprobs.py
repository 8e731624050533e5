"""Observed log-probabilities that no model gives: a server or a log without them wrote them, and they are no scores."""

import numpy as np
import numpy.typing as npt

from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows

POSITIVE, PLACEHOLDER = 1, 2
"""Bits: a log-probability above 0; a number that stands for none."""

ROUNDING = 1e-3
"""Nats that rounding may lift a log-probability above 0."""

SENTINEL = -9999.0
"""What some servers write in place of a log-probability that they don't have (vLLM, for one that is impossible)."""


def impossible_logprobs(logprobs: npt.NDArray[np.float32], offsets: Integers, totals: Floats) -> npt.NDArray[np.int8]:
    """Which of the two each observation has, int8 [observations]: of ``logprobs`` [tokens], or a total without any."""
    flat = logprobs.astype(np.float64)
    most = np.nan_to_num(reduce_rows(np.maximum, flat, offsets), nan=-1.0)
    positive = (most > ROUNDING) | (np.nan_to_num(totals, nan=-1.0) > ROUNDING)
    absent = np.nan_to_num(reduce_rows(np.maximum, flat == SENTINEL, offsets)) > 0
    placeholder = absent | (totals == SENTINEL)
    return (POSITIVE * positive + PLACEHOLDER * placeholder).astype(np.int8)


def certain_twice(asked: Integers, answers: Integers, certain: Mask) -> Integers:
    """The items of which different answers to the same thing are ``certain``, bool [spans]: log-probabilities of 0.

    That can't be, unless one choice is the start of another.  ``asked``: item, part and null context of each span,
    int64 [3, spans]; ``answers``: its observation, int64 [spans].
    """
    distinct = np.unique(np.vstack([asked, answers])[:, certain], axis=1)
    things, times = np.unique(distinct[:-1], axis=1, return_counts=True)
    return np.unique(things[0, times > 1])
