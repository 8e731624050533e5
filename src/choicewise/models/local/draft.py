"""A generation on its way: the tokens chosen so far, and whether it has ended."""

import math
from collections.abc import Collection, Sequence

from choicewise.questions import Generation, TokenScores


class Draft:
    """The tokens of one generation of a limit of at least 1.

    ``ends``: tokens that end a sequence; a greedy generation includes the first of them, a sampled one does not.
    ``token_bytes``: the bytes of every token, by which stops are found.  ``steps``: tokens chosen, the last of which
    may not belong to the generation.
    """

    def __init__(self, generation: Generation, ends: Collection[int], token_bytes: Sequence[bytes]) -> None:
        self.generation = generation
        self.ended = False
        self.steps = 0
        self.tokens: list[int] = []
        self._logprobs: list[float] = []
        self._ranks: list[int] = []
        self._text = b""
        self._ends = ends
        self._token_bytes = token_bytes

    @property
    def share(self) -> float:
        """The share of the probabilities at which the next token is drawn; NaN for the likeliest token."""
        sampling = self.generation.sampling
        return math.nan if sampling is None else sampling.share(len(self.tokens))

    @property
    def scores(self) -> TokenScores:
        """The answer, once it has ended."""
        return TokenScores.of(self.tokens, self._logprobs, self._ranks)

    def add(self, token: int, logprob: float, rank: int) -> None:
        """The next token as it was chosen, with its log-probability (nats) and rank."""
        self.steps += 1
        self._text += self._token_bytes[token] if token < len(self._token_bytes) else b""
        stopped = any(stop in self._text for stop in self.generation.stops)
        if (stopped and not self.generation.keep_stop) or (
            token in self._ends and self.generation.sampling is not None
        ):
            self.ended = True
            return
        self.tokens.append(token)
        self._logprobs.append(logprob)
        self._ranks.append(rank)
        self.ended = stopped or token in self._ends or len(self.tokens) == self.generation.limit
