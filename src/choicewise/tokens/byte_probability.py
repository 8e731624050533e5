"""The probability of bytes under a model of tokens, by covering sequences.

A sequence of tokens covers a text when its bytes start with the text and those before its last token do not.  The
coverings of a text exclude one another, so P(text | context) is the sum of their probabilities (Vieira et al. 2024;
Phan et al. 2024).  All coverings with the same tokens ``u`` but the last are one :class:`Mass` after ``u``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from choicewise.questions.mass import Mass
from choicewise.questions.question import Question
from choicewise.questions.span import Ids, Span, question_key
from choicewise.questions.token_scores import TokenScores
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.tokens.vocabulary import Vocabulary

LIMIT = 4096
"""Token sequences that one text may have before its last token: each is a row of the model."""

PARTS = 50_000
"""Spans and masses that are asked at once, at most, unless one cover has more: some hundred megabytes."""

Spelling = tuple[int, ...]
"""Tokens that spell a beginning of the text, but not all of it."""


@dataclass(frozen=True, slots=True, eq=False)
class ByteProbability:
    """The log-probability (nats) of every unit ``text[cuts[k]:cuts[k + 1]]`` given ``context`` and the text before it.

    ``paths``: the tokens before the last one that are considered, the empty path among them; None for all there are,
    which makes the answer exact.  Tokens that stand for no bytes take no part.  ``gold`` as in a span.
    """

    context: Ids
    text: bytes
    cuts: tuple[int, ...]
    vocabulary: Vocabulary
    paths: tuple[Spelling, ...] | None = None
    gold: bool | None = None

    @property
    def key(self) -> str:
        """32 hex digits: the same text after the same tokens has the same key."""
        asked = repr((self.text, self.cuts, self.paths)).encode()
        return question_key(b"cover", self.context, np.frombuffer(asked, dtype=np.uint8).astype(np.int32))

    @property
    def continuation(self) -> Ids:
        """The scored bytes, one by one: those from the first cut on."""
        return np.frombuffer(self.text[self.cuts[0] :], dtype=np.uint8).astype(np.int32)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs at once, at most."""
        longest = len(self.text) - 1 if self.paths is None else max(map(len, self.paths))
        return len(self.context) + longest

    def without(self, dropped: int) -> ByteProbability:
        """The same after a context that lacks its first ``dropped`` tokens."""
        return replace(self, context=self.context[dropped:])


def count_paths(vocabulary: Vocabulary, text: bytes) -> int:
    """How many paths ``text`` has: token sequences, the empty one included, that spell less than all of it."""
    ways = [1] + [0] * len(text)
    for end in range(1, len(text)):
        for start in range(max(0, end - vocabulary.longest), end):
            if ways[start]:
                ways[end] += ways[start] * len(vocabulary.spelling(text[start:end]))
    return sum(ways)


def paths(vocabulary: Vocabulary, text: bytes) -> Iterator[tuple[Spelling, int]]:
    """(path, how many bytes it spells) for every path of ``text``, in depth-first order."""
    waiting: list[tuple[Spelling, int]] = [((), 0)]
    while waiting:
        path, start = waiting.pop()
        yield path, start
        for end in range(start + 1, min(len(text), start + vocabulary.longest + 1)):
            waiting += [((*path, token), end) for token in vocabulary.spelling(text[start:end])]


TokenQuestion = Question | ByteProbability
"""What can be answered in tokens; a byte probability is put together from spans and masses."""


class Answerer(Protocol):
    """What answering needs of a model."""

    def answer(self, questions: Sequence[Question]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``questions``, the answer) of every one."""
        ...


def answer_with_bytes(model: Answerer, questions: Sequence[TokenQuestion]) -> Iterator[tuple[int, TokenScores]]:
    """(index into ``questions``, the answer) of every one; byte probabilities are put together from their parts.

    Where no byte probability is asked, this is ``model.answer``.  They are asked a few at a time, as they can have many
    parts.
    """
    asked: list[Question] = []
    owner: list[int] = []
    wholes: dict[int, _Parts] = {}
    for index, question in enumerate(questions):
        if isinstance(question, ByteProbability):
            wholes[index] = _Parts(question)
            if wholes[index].complete:  # no token spells any of it
                yield index, wholes.pop(index).result()
                continue
            asked += wholes[index].questions
            owner += [index] * len(wholes[index].questions)
            if len(asked) < PARTS:
                continue
            yield from _ask(model, asked, owner, wholes)
            asked, owner, wholes = [], [], {}
        else:
            asked.append(question)
            owner.append(index)
    if asked:
        yield from _ask(model, asked, owner, wholes)


def parts(question: Span | Mass | ByteProbability) -> list[Span | Mass]:
    """What the model is asked for the sake of ``question``: itself, or the spans and masses of a cover."""
    return _Parts(question).questions if isinstance(question, ByteProbability) else [question]


def sizes(question: object, seen: TokenScores, tokenizer: Tokenizer) -> list[int]:
    """Bytes of every scored unit: the tokens, or what lies between the cuts of a cover; none beyond the tokenizer."""
    if isinstance(question, ByteProbability):
        return [stop - start for start, stop in zip(question.cuts, question.cuts[1:], strict=False)]
    known = len(tokenizer.token_bytes)
    return [len(tokenizer.token_bytes[token]) if token < known else 0 for token in seen.tokens]


def _ask(
    model: Answerer, asked: list[Question], owner: list[int], wholes: dict[int, _Parts]
) -> Iterator[tuple[int, TokenScores]]:
    first = {index: place for place, index in reversed(list(enumerate(owner)))}
    for place, answer in model.answer(asked):
        index = owner[place]
        if index not in wholes:
            yield index, answer
            continue
        wholes[index].take(place - first[index], answer)
        if wholes[index].complete:
            yield index, wholes.pop(index).result()


class _Parts:
    """The spans and masses that make up a cover, and what they came to."""

    def __init__(self, cover: ByteProbability) -> None:
        self._cover = cover
        self.questions: list[Span | Mass] = []
        self._terms: list[tuple[int | None, int, int]] = []  # (place of the path's span, of the mass, index of the cut)
        for path, spelled in _considered(cover):
            self._add(path, spelled)
        self._sums = np.full(len(self.questions), np.nan)
        self._left = len(self.questions)

    def _add(self, path: Spelling, spelled: int) -> None:
        cover, tokens = self._cover, np.asarray(path, dtype=np.int32)
        context = np.concatenate([cover.context, tokens]) if path else cover.context
        masses = []
        for number, cut in enumerate(cover.cuts):
            members = cover.vocabulary.continuing(cover.text[spelled:cut]) if cut > spelled else None
            if members is not None and len(members.ids):
                masses.append((number, Mass(context, members, cover.gold)))
        place = None
        if path and masses:
            place = len(self.questions)
            self.questions.append(Span(cover.context, tokens, cover.gold))
        for number, mass in masses:
            self._terms.append((place, len(self.questions), number))
            self.questions.append(mass)

    @property
    def complete(self) -> bool:
        return not self._left

    def take(self, place: int, seen: TokenScores) -> None:
        self._sums[place] = seen.logprobs.sum(dtype=np.float64)
        self._left -= 1

    def result(self) -> TokenScores:
        """Differences of log P(text[:cut]) between neighbouring cuts; the empty text has probability one."""
        cuts = self._cover.cuts
        totals = np.where(np.asarray(cuts) == 0, 0.0, -np.inf)
        for path, mass, number in self._terms:
            term = self._sums[mass] + (0.0 if path is None else self._sums[path])
            totals[number] = np.logaddexp(totals[number], term)
        with np.errstate(invalid="ignore"):  # what follows the impossible has no probability
            logprobs = np.diff(totals).astype(np.float32)
        return TokenScores(
            tokens=np.asarray([self._cover.text[start] for start in cuts[:-1]], dtype=np.int32),
            logprobs=logprobs,
            ranks=np.full(len(cuts) - 1, -1, dtype=np.int32),
        )


def _considered(cover: ByteProbability) -> Iterator[tuple[Spelling, int]]:
    if cover.paths is None:
        return paths(cover.vocabulary, cover.text)
    return ((path, len(cover.vocabulary.spelled(path))) for path in cover.paths)
