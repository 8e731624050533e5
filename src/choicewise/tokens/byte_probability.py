"""The question how likely bytes are under a model of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from choicewise.questions import Ids, Question, question_key
from choicewise.tokens.vocabulary import Vocabulary

LIMIT = 4096
"""Token sequences that one text may have before its last token: each is a row of the model."""

Spelling = tuple[int, ...]
"""Tokens that spell a beginning of a text, but not all of it; no tokens spell its empty beginning."""


@dataclass(frozen=True, slots=True, eq=False)
class ByteProbability:
    """The log-probability (nats) of every part ``text[offsets[k]:offsets[k + 1]]`` after ``context`` and all before.

    ``spellings``: the tokens before the last one that are considered, the empty tuple among them; None for all there
    are, which makes the answer exact.  Tokens that stand for no bytes take no part.  ``gold`` as in a span.
    """

    context: Ids
    text: bytes
    offsets: tuple[int, ...]
    vocabulary: Vocabulary
    spellings: tuple[Spelling, ...] | None = None
    gold: bool | None = None

    @property
    def key(self) -> str:
        """32 hex digits: the same text after the same tokens has the same key."""
        text = repr((self.text, self.offsets, self.spellings)).encode()
        return question_key(b"cover", self.context, np.frombuffer(text, dtype=np.uint8).astype(np.int32))

    @property
    def continuation(self) -> Ids:
        """The scored bytes, one by one: those from the first offset on."""
        return np.frombuffer(self.text[self.offsets[0] :], dtype=np.uint8).astype(np.int32)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs at once, at most."""
        longest = len(self.text) - 1 if self.spellings is None else max(map(len, self.spellings))
        return len(self.context) + longest

    def considered(self) -> Iterator[tuple[Spelling, int]]:
        """(spelling, how many bytes it spells) for every sequence of tokens before the last one."""
        if self.spellings is None:
            return all_spellings(self.vocabulary, self.text)
        return ((spelling, len(self.vocabulary.spelled(spelling))) for spelling in self.spellings)


TokenQuestion = Question | ByteProbability
"""What can be answered in tokens; a byte probability is put together from spans and masses."""


def count_spellings(vocabulary: Vocabulary, text: bytes) -> int:
    """How many token sequences, the empty one included, spell a beginning of ``text`` but not all of it."""
    ways = [1] + [0] * len(text)
    for end in range(1, len(text)):
        for start in range(max(0, end - vocabulary.longest), end):
            if ways[start]:
                ways[end] += ways[start] * len(vocabulary.spelling(text[start:end]))
    return sum(ways)


def all_spellings(vocabulary: Vocabulary, text: bytes) -> Iterator[tuple[Spelling, int]]:
    """(spelling, how many bytes it spells) for every one that :func:`count_spellings` counts, in depth-first order."""
    waiting: list[tuple[Spelling, int]] = [((), 0)]
    while waiting:
        spelling, start = waiting.pop()
        yield spelling, start
        for end in range(start + 1, min(len(text), start + vocabulary.longest + 1)):
            waiting += [((*spelling, token), end) for token in vocabulary.spelling(text[start:end])]
