"""The question how likely a continuation is after a context."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
"""Token ids, shape [tokens]."""


@dataclass(eq=False)  # not frozen, which makes a span take twice as long to make: there are millions
class Span:
    """Score ``continuation`` given ``context``: log P(continuation[j] | context, continuation[:j]) for every j.

    Both are at least one token long: a first token has no log-probability, so an empty context text arrives here as
    the model's prefix token (BOS, or EOS where there is none).  Choices of one request share the context array.
    ``gold`` says whether this is a right choice; only the oracle fakes read it.  ``ranked``: how many tokens are
    likelier matters; a model that has to ask somebody else for that does so for these spans alone.
    """

    context: Ids
    continuation: Ids
    gold: bool | None = None
    ranked: bool = False

    @property
    def key(self) -> str:
        """32 hex digits: the same context and continuation have the same key, whichever protocol asks."""
        key: str | None = self.__dict__.get("_key")
        if key is None:  # cached_property takes a lock, and there are millions of spans
            key = self.__dict__["_key"] = question_key(b"span", self.context, self.continuation)
        return key

    @property
    def inputs(self) -> int:
        """How many tokens are inputs: all but the last."""
        return len(self.context) + len(self.continuation) - 1


_LITTLE = np.dtype("<i4")


def question_key(kind: bytes, context: Ids, rest: Ids) -> str:
    """32 hex digits that identify a question by its kind, its context and the ``rest`` that it is about."""
    global _latest
    of_kind, of_context, begun = _latest
    if of_context is not context or of_kind != kind:
        begun = hashlib.blake2b(kind, digest_size=16)
        begun.update(len(context).to_bytes(8, "little"))
        begun.update(context.astype(_LITTLE, copy=False).tobytes())
        _latest = kind, context, begun
    digest = begun.copy()
    digest.update(rest.astype(_LITTLE, copy=False).tobytes())
    return digest.hexdigest()


_latest: tuple[bytes, Ids | None, hashlib.blake2b] = b"", None, hashlib.blake2b()
"""The context that was hashed last: the choices of a question share it."""
