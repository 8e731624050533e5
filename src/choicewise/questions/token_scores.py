"""What a model answers to a question."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from choicewise.questions.span import Ids

UNKNOWN, NOT_FIRST = -1, -2
"""Ranks of tokens of which nothing is known, or only that another token is likelier."""


@dataclass(slots=True, eq=False)  # not frozen, as spans are not
class TokenScores:
    """What a model says about the scored (or generated) tokens; all arrays have shape [tokens].

    ``logprobs``: natural log-probabilities (nats), float32, from a softmax over the true vocabulary in float32.
    ``ranks``: how many vocabulary entries have a strictly greater logit; 0 everywhere means greedy decoding agrees,
    ``-1 - r`` means at least ``r``, so -1 (``UNKNOWN``) that nothing is known, -2 (``NOT_FIRST``) that it is not 0.
    ``tokens``: the scored or generated ids; for a question about bytes, the bytes.
    ``value``: the one number that answers a question without tokens: a loss in nats per token, or a cosine.
    ``text``: what was generated, where whoever generated it names no tokens.
    ``at_most``: whether ``logprobs`` are upper bounds, because the true ones are not given.
    ``missing``: why there is no answer (:meth:`unanswered`).
    """

    tokens: Ids
    logprobs: npt.NDArray[np.float32]
    ranks: Ids
    value: float | None = None
    text: str | None = None
    at_most: bool = False
    missing: str | None = None

    @classmethod
    def unanswered(cls, reason: str, tokens: npt.ArrayLike = ()) -> TokenScores:
        """No answer, for this ``reason``: every number is NaN, so that nothing can be computed from it."""
        count = len(np.atleast_1d(np.asarray(tokens)))
        scores = cls.of(tokens, np.full(count, np.nan), np.full(count, -1))
        return replace(scores, value=math.nan, missing=reason)

    @classmethod
    def of(cls, tokens: npt.ArrayLike = (), logprobs: npt.ArrayLike = (), ranks: npt.ArrayLike = ()) -> TokenScores:
        """The same from numbers of any kind."""
        return cls(np.asarray(tokens, np.int32), np.asarray(logprobs, np.float32), np.asarray(ranks, np.int32))

    @classmethod
    def joined(cls, parts: Sequence[TokenScores]) -> TokenScores:
        """The scores of consecutive tokens, put together; one part that is missing makes the whole missing."""
        missing = next((part.missing for part in parts if part.missing is not None), None)
        tokens = np.concatenate([part.tokens for part in parts])
        if missing is not None:
            return cls.unanswered(missing, tokens)
        return cls(
            tokens,
            np.concatenate([part.logprobs for part in parts]),
            np.concatenate([part.ranks for part in parts]),
            at_most=any(part.at_most for part in parts),
        )

    def first(self, count: int) -> TokenScores:
        """The scores of the first ``count`` tokens."""
        shortened = TokenScores(self.tokens[:count], self.logprobs[:count], self.ranks[:count])
        return replace(shortened, at_most=self.at_most, missing=self.missing)

    @property
    def is_nan(self) -> bool:
        """Whether any number of the answer is NaN: the question has no answer then."""
        return bool(np.isnan(self.logprobs).any()) or (self.value is not None and bool(np.isnan(self.value)))


Answers = Iterator[tuple[int, TokenScores]]
"""(index of a question among those asked, its answer), as answers become available."""
