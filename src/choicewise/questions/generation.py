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

    ``stream`` is the seed of the random numbers, so that the same question always has the same answer.
    """

    stream: bytes

    @classmethod
    def of(cls, seed: int, item: str, number: int) -> Sampling:
        """The stream of sample ``number`` of ``item``, which depends on no other question."""
        return cls(hashlib.sha256(f"{seed}|{number}|{item}".encode(errors="surrogatepass")).digest())

    def draw(self, weights: npt.NDArray[np.generic], position: int) -> int:
        """The token at ``position``: an index of ``weights``, each as probable as its share of their sum.

        A hash of stream and position gives a share of the sum; the first index whose cumulative sum exceeds it.
        """
        sums = np.cumsum(weights, dtype=np.float64)
        return min(int(np.searchsorted(sums, self.share(position) * sums[-1], side="right")), len(sums) - 1)

    def share(self, position: int) -> float:
        """The share of the sum at which the token at ``position`` is drawn, from 0 to 1 exclusive."""
        digest = hashlib.blake2b(self.stream + position.to_bytes(8, "little"), digest_size=8).digest()
        return (int.from_bytes(digest, "little") >> 11) / 2**53


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """Generate at most ``limit`` tokens after ``context``: greedily, or as ``sampling`` says.

    A greedy generation ends after the first token that ends a sequence and includes it; a sampled one ends before it.
    Both end before the first token with which their bytes contain one of ``stops``, so both may be empty; with
    ``keep_stop`` that token belongs to them.
    ``right`` and ``wrong`` are the tokens of a right and a wrong answer; only the oracle fakes read them.
    """

    context: Ids
    limit: int
    stops: tuple[bytes, ...] = ()
    sampling: Sampling | None = None
    right: Ids | None = None
    wrong: Ids | None = None
    keep_stop: bool = False

    @property
    def key(self) -> str:
        """32 hex digits: the same tokens, limit, stops and random stream have the same key."""
        if self.sampling is None and not self.stops:
            return question_key(b"generate", self.context, np.asarray([self.limit], dtype=np.int32))
        stream = b"" if self.sampling is None else self.sampling.stream
        rest = self.limit.to_bytes(8, "little") + stream + b"\0".join(self.stops)
        kind = (b"generate until" if self.sampling is None else b"chain") + (b" kept" if self.keep_stop else b"")
        return question_key(kind, self.context, np.frombuffer(rest, dtype=np.uint8).astype(np.int32))

    @property
    def inputs(self) -> int:
        """The most tokens that can be inputs: the context, and all generated ones but the last."""
        return len(self.context) + max(self.limit - 1, 0)

    def before_stop(self, tokens: Sequence[int], token_bytes: Sequence[bytes]) -> int:
        """How many of ``tokens`` come before the first with which their bytes contain a stop; all where none does.

        That token counts with ``keep_stop``.  Tokens beyond the tokenizer (``token_bytes``) have no bytes.
        """
        text = b""
        for count, token in enumerate(tokens if self.stops else ()):
            text += token_bytes[token] if token < len(token_bytes) else b""
            if any(stop in text for stop in self.stops):
                return count + self.keep_stop
        return len(tokens)

    def stopped(self, tokens: Sequence[int], token_bytes: Sequence[bytes]) -> bool:
        """Whether the bytes of ``tokens`` contain a stop."""
        return self.before_stop(tokens, token_bytes) < len(tokens)
