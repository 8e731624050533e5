"""The question how a text goes on: the likeliest tokens, or sampled ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from choicewise.questions.span import Ids, question_key


@dataclass(frozen=True, slots=True)
class Sampling:
    """Draw every token from the model's own distribution, at temperature 1.

    ``stream`` decides the random numbers, so that the same question has the same answer whatever else is asked.
    """

    stream: bytes

    @classmethod
    def of(cls, seed: int, item: str, number: int) -> Sampling:
        """The stream of sample ``number`` of ``item``: it depends on nothing else that is asked, nor on its order."""
        return cls(hashlib.sha256(f"{seed}|{number}|{item}".encode(errors="surrogatepass")).digest())

    def draw(self, weights: npt.NDArray[np.generic], place: int) -> int:
        """The token at ``place``: an index of ``weights``, each as probable as its share of their sum.

        The first index whose cumulative sum exceeds that share of the sum that a hash of stream and place gives.
        """
        digest = hashlib.blake2b(self.stream + place.to_bytes(8, "little"), digest_size=8).digest()
        share = (int.from_bytes(digest, "little") >> 11) / 2**53
        sums = np.cumsum(weights, dtype=np.float64)
        return min(int(np.searchsorted(sums, share * sums[-1], side="right")), len(sums) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """Generate at most ``limit`` tokens after ``context``: greedily, or as ``sampling`` says.

    A greedy generation ends after a token that ends a sequence, which is part of it.  A sampled one ends before that
    token.  Both end before the first token with which their bytes contain one of ``stops``, so both may be empty.
    ``right`` and ``wrong`` are the tokens of a right and a wrong answer; only the oracle fakes read them.
    """

    context: Ids
    limit: int
    stops: tuple[bytes, ...] = ()
    sampling: Sampling | None = None
    right: Ids | None = None
    wrong: Ids | None = None

    @property
    def key(self) -> str:
        """32 hex digits: the same tokens, limit, stops and random stream have the same key."""
        if self.sampling is None and not self.stops:
            return question_key(b"generate", self.context, np.asarray([self.limit], dtype=np.int32))
        stream = b"" if self.sampling is None else self.sampling.stream
        asked = self.limit.to_bytes(8, "little") + stream + b"\0".join(self.stops)
        kind = b"generate until" if self.sampling is None else b"chain"
        return question_key(kind, self.context, np.frombuffer(asked, dtype=np.uint8).astype(np.int32))

    @property
    def inputs(self) -> int:
        """How many tokens are inputs at most: the context, and all generated ones but the last."""
        return len(self.context) + max(self.limit - 1, 0)

    @property
    def sampled(self) -> Sampling:
        """``sampling`` of a generation that is known to have one."""
        assert self.sampling is not None
        return self.sampling

    def stopped(self, tokens: Sequence[int], token_bytes: Sequence[bytes]) -> bool:
        """Whether the bytes of ``tokens`` contain one of the stops; tokens beyond the tokenizer have no bytes."""
        if not self.stops:
            return False
        known = len(token_bytes)
        spelled = b"".join(token_bytes[token] for token in tokens if token < known)
        return any(stop in spelled for stop in self.stops)
