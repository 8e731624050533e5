"""What a model is asked, in tokens, and what it answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
"""Token ids, shape [tokens]."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Score ``continuation`` given ``context``: log P(continuation[j] | context, continuation[:j]) for every j.

    Both are at least one token long: a first token has no log-probability, so an empty context text arrives here as
    the model's prefix token (BOS, or EOS where there is none).  Choices of one request share the context array.
    ``gold`` says whether this is a right choice; only the oracle fakes read it.
    """

    context: Ids
    continuation: Ids
    gold: bool | None = None

    def without(self, dropped: int) -> Span:
        """The same after a context that lacks its first ``dropped`` tokens."""
        return replace(self, context=self.context[dropped:])

    @property
    def key(self) -> str:
        """32 hex digits: the same tokens asked the same way have the same key, whichever protocol asks."""
        return question_key(b"span", self.context, self.continuation)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs: all but the last."""
        return len(self.context) + len(self.continuation) - 1


class TokenSet:
    """Tokens of which it does not matter which one comes; ``ids`` ascend.  Made once and shared by who asks for it."""

    def __init__(self, ids: npt.ArrayLike) -> None:
        self.ids: Ids = np.unique(np.asarray(ids, dtype=np.int32))

    @cached_property
    def digest(self) -> bytes:
        """16 bytes: the same tokens have the same digest."""
        return hashlib.blake2b(self.ids.astype("<i4").tobytes(), digest_size=16).digest()


@dataclass(frozen=True, slots=True, eq=False)
class Mass:
    """The total probability of ``members`` as the next token: log of the sum of P(v | context) over v in members.

    The answer has one entry: the log of that sum, and the likeliest member with its rank.  It is one more row to read
    where ``context`` is computed anyway.  ``gold`` as in a span.
    """

    context: Ids
    members: TokenSet
    gold: bool | None = None

    @property
    def inputs(self) -> int:
        """How many tokens are inputs."""
        return len(self.context)

    def without(self, dropped: int) -> Mass:
        """The same after a context that lacks its first ``dropped`` tokens."""
        return replace(self, context=self.context[dropped:])

    @property
    def key(self) -> str:
        """32 hex digits: the same set after the same tokens has the same key."""
        return question_key(b"mass", self.context, np.frombuffer(self.members.digest, dtype="<i4"))


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """Generate greedily from ``context``, at most ``new_tokens`` tokens.

    ``answer`` and ``wrong`` are a right and a wrong text's tokens; only the oracle fakes read them.
    """

    context: Ids
    new_tokens: int
    answer: Ids
    wrong: Ids

    @property
    def key(self) -> str:
        """32 hex digits: the same prompt and length have the same key."""
        return question_key(b"generate", self.context, np.asarray([self.new_tokens], dtype=np.int32))

    @property
    def inputs(self) -> int:
        """How many tokens are inputs at most: the context, and all generated ones but the last."""
        return len(self.context) + max(self.new_tokens - 1, 0)


@dataclass(frozen=True, slots=True, eq=False)
class TokenScores:
    """What was seen at the scored (or generated) tokens; all arrays have shape [tokens].

    ``logprobs``: natural log-probabilities (nats), float32, from a softmax over the true vocabulary in float32.
    ``ranks``: how many vocabulary entries had a strictly greater logit; 0 everywhere means greedy decoding agrees.
    ``tokens``: the scored or generated ids.  Where bytes are scored (:class:`~choicewise.engine.cover.Cover`), they are
    the bytes, and ``ranks`` are -1, which is to say unknown.
    """

    tokens: Ids
    logprobs: npt.NDArray[np.float32]
    ranks: Ids


def question_key(kind: bytes, context: Ids, rest: Ids) -> str:
    """32 hex digits of a kind of question, the tokens it follows and what it asks."""
    digest = hashlib.blake2b(kind, digest_size=16)
    digest.update(len(context).to_bytes(8, "little"))
    digest.update(np.ascontiguousarray(context, dtype="<i4").tobytes())
    digest.update(np.ascontiguousarray(rest, dtype="<i4").tobytes())
    return digest.hexdigest()
