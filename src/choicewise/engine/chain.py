"""A chain of thought that the model makes up, and what is scored behind it.

What stands behind a chain can't be asked in tokens before the chain is there, but it can be named: so asking a block
needs no model, and a run that was interrupted knows what it has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from choicewise.engine.span import Ids, Span, question_key


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Sample a text after ``context`` from the model's own distribution, at temperature 1: at most ``new_tokens``.

    It ends before the first token that ends a sequence, or with which its bytes hold ``stop``; that token is no part of
    it, so a chain may be empty.  ``stream`` is what its random numbers are made of.
    """

    context: Ids
    new_tokens: int
    stop: bytes
    stream: bytes

    @property
    def key(self) -> str:
        """32 hex digits: the same tokens, length, stop and stream have the same key."""
        asked = self.new_tokens.to_bytes(8, "little") + self.stream + self.stop
        return question_key(b"chain", self.context, np.frombuffer(asked, dtype=np.uint8).astype(np.int32))

    @property
    def inputs(self) -> int:
        """How many tokens are inputs at most: the context, and all sampled ones but the last."""
        return len(self.context) + max(self.new_tokens - 1, 0)

    def draw(self, weights: npt.NDArray[np.generic], place: int) -> int:
        """The token at ``place``: an index of ``weights``, each as probable as its share of their sum.

        The first index whose cumulative sum exceeds that share of the sum that a hash of stream and place gives.
        """
        digest = hashlib.blake2b(self.stream + place.to_bytes(8, "little"), digest_size=8).digest()
        share = (int.from_bytes(digest, "little") >> 11) / 2**53
        sums = np.cumsum(weights, dtype=np.float64)
        return min(int(np.searchsorted(sums, share * sums[-1], side="right")), len(sums) - 1)

    def ended(self, tokens: Sequence[int], token_bytes: Sequence[bytes]) -> bool:
        """Whether ``tokens`` spell the stop."""
        return self.stop in b"".join(token_bytes[token] for token in tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Conclusion:
    """Score ``span.continuation`` after what ``chain`` turns out to be and ``span.context``."""

    chain: Chain
    span: Span

    @property
    def key(self) -> str:
        """32 hex digits: the same span behind the same chain has the same key."""
        where = np.frombuffer(bytes.fromhex(self.chain.key), dtype=np.uint8).astype(np.int32)
        what = np.frombuffer(bytes.fromhex(self.span.key), dtype=np.uint8).astype(np.int32)
        return question_key(b"conclusion", where, what)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs at most."""
        return len(self.chain.context) + self.chain.new_tokens + self.span.inputs

    def after(self, thought: Ids) -> Span:
        """The whole span, the chain being ``thought``."""
        context = np.concatenate([self.chain.context, thought, self.span.context])
        return Span(context.astype(np.int32), self.span.continuation, self.span.gold)


def stream(seed: int, item: str, number: int) -> bytes:
    """32 bytes for chain ``number`` of ``item``: they depend on nothing else that is asked, nor on its order."""
    return hashlib.sha256(f"{seed}|{number}|{item}".encode(errors="surrogatepass")).digest()
