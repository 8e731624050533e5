"""What a model answers to a question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from choicewise.questions.span import Ids


@dataclass(frozen=True, slots=True, eq=False)
class TokenScores:
    """What a model says about the scored (or generated) tokens; all arrays have shape [tokens].

    ``logprobs``: natural log-probabilities (nats), float32, from a softmax over the true vocabulary in float32.
    ``ranks``: how many vocabulary entries have a strictly greater logit; 0 everywhere means greedy decoding agrees,
    -1 means unknown.  ``tokens``: the scored or generated ids; for a question about bytes, the bytes.
    ``value``: the one number that answers a question without tokens: a loss in nats per token, or a cosine.
    """

    tokens: Ids
    logprobs: npt.NDArray[np.float32]
    ranks: Ids
    value: float | None = None

    @property
    def is_nan(self) -> bool:
        """Whether any number of the answer is NaN: the question has no answer then."""
        return bool(np.isnan(self.logprobs).any()) or (self.value is not None and bool(np.isnan(self.value)))
