"""Log-probabilities of tokens that an API does not return, because it returns the most likely ones alone.

The original MMLU script reads the letters from the 100 most likely tokens and gives a letter that is not among them
the log-probability -100 (hendrycks/test evaluate.py@4450500), so four absent letters tie and the first one wins.
"""

from dataclasses import dataclass, replace

import numpy as np

from choicewise.scoring.continuations import Continuations


@dataclass(frozen=True, slots=True)
class Outside:
    """Tokens outside the ``top`` most likely get ``logprob`` (nats); with ``top`` None all tokens stay as observed."""

    top: int | None
    logprob: float = 0.0

    def __call__(self, observed: Continuations) -> Continuations:
        """The continuations with the rule applied; a token is outside when ``top`` or more are strictly likelier."""
        if self.top is None:
            return observed
        logprobs = np.where(observed.ranks >= self.top, np.float32(self.logprob), observed.logprobs)
        return replace(observed, logprobs=logprobs, totals=None)  # without tokens, no ranks


OUTSIDE: dict[str, Outside] = {"keep": Outside(None), "top100=-100": Outside(100, -100.0)}
