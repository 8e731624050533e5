"""The question how likely it is that the next token is one of a set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from choicewise.questions.span import Ids, question_key


class TokenSet:
    """A set of tokens, ``ids`` ascending; every :class:`Mass` of the same set shares one."""

    def __init__(self, ids: npt.ArrayLike) -> None:
        self.ids: Ids = np.unique(np.asarray(ids, dtype=np.int32))

    @cached_property
    def digest(self) -> bytes:
        """16 bytes: the same tokens have the same digest."""
        return hashlib.blake2b(self.ids.astype("<i4").tobytes(), digest_size=16).digest()


@dataclass(frozen=True, slots=True, eq=False)
class Mass:
    """The total probability of ``members`` as the next token: log of the sum of P(v | context) over v in members.

    The answer has one entry: the log of that sum, and the likeliest member with its rank.  Where ``context`` is
    computed anyway, it costs no further input token.  ``gold`` as in :class:`~choicewise.questions.span.Span`.
    """

    context: Ids
    members: TokenSet
    gold: bool | None = None

    @property
    def inputs(self) -> int:
        """How many tokens are inputs."""
        return len(self.context)

    @property
    def key(self) -> str:
        """32 hex digits: the same set after the same tokens has the same key."""
        return question_key(b"mass", self.context, np.frombuffer(self.members.digest, dtype="<i4"))
