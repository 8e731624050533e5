"""Fast answers, but for those that are no numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from choicewise.questions.token_scores import TokenScores

Answer = TypeVar("Answer", TokenScores, float)


def nan_fallback(
    fast: Iterable[tuple[int, Answer]] | None, count: int, alone: Callable[[int], Answer]
) -> Iterator[tuple[int, Answer]]:
    """(index, answer) of ``count`` questions: the ``fast`` ones, then ``alone`` where those are NaN, or there are none.

    A pack hands one token's NaN to its neighbours, who don't look at it: weighed with 0 it is NaN still.
    """
    left = list(range(count)) if fast is None else []
    for index, answer in fast or ():
        if np.isnan(answer.logprobs if isinstance(answer, TokenScores) else answer).any():
            left.append(index)
        else:
            yield index, answer
    for index in left:
        yield index, alone(index)
