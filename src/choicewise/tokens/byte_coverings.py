"""The probability of bytes, in whatever tokens they come.

A sequence of tokens covers a text when its bytes start with the text and those before its last token do not.  The
coverings of a text exclude one another, so P(text | context) is the sum of their probabilities (Vieira et al. 2024;
Phan et al. 2024).  All coverings with the same tokens ``u`` but the last are one :class:`Mass` after ``u``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from choicewise.questions import Answers, Ids, Mass, Prompt, Span, TokenScores, prompt_key
from choicewise.tokens.tokenizer import Tokenizer, Vocabulary, per_tokenizer, vocabulary

_UNLISTED = "a part of its byte probability is no more than an upper bound, and differences of bounds are none"
"""Why a byte probability has no answer."""

PARTS = 50_000  # spans and masses asked at once, at most, unless one byte probability has more: some hundred megabytes
LIMIT = (
    4096  # token sequences that one text may have before its last token: each is a row of the model
)

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
    spellings: tuple[Spelling, ...] | None = None
    gold: bool | None = None

    @property
    def key(self) -> str:
        """32 hex digits: the same text after the same tokens has the same key."""
        text = repr((self.text, self.offsets, self.spellings)).encode()
        return prompt_key(
            b"cover", self.context, np.frombuffer(text, dtype=np.uint8).astype(np.int32)
        )

    @property
    def continuation(self) -> Ids:
        """The scored bytes, one by one: those from the first offset on."""
        return np.frombuffer(self.text[self.offsets[0] :], dtype=np.uint8).astype(np.int32)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs at once, at most."""
        longest = len(self.text) - 1 if self.spellings is None else max(map(len, self.spellings))
        return len(self.context) + longest


TokenPrompt = Prompt | ByteProbability
"""What can be answered in tokens; a byte probability is put together from spans and masses."""


def answer_with_bytes(
    answer: Callable[[Sequence[Prompt]], Answers],
    questions: Sequence[TokenPrompt],
    tokenizer: Tokenizer,
) -> Answers:
    """The answers to ``questions`` from a model's ``answer``; byte probabilities are put together from their parts.

    Without byte probabilities this is ``answer`` itself.  With some, a few are asked at a time, as they can have many
    parts.
    """
    if not any(isinstance(question, ByteProbability) for question in questions):
        yield from answer(cast(Sequence[Prompt], questions))
        return
    sums: dict[int, _CoveringSum] = {}
    for batch in _batches(questions, vocabulary(tokenizer), sums):
        for place, scores in answer([question for _, _, question in batch]):
            index, part, _ = batch[place]
            if index not in sums:
                yield index, scores
                continue
            sums[index].take(part, scores)
            if not sums[index].unanswered:
                yield index, sums.pop(index).result()
    yield from (
        (index, impossible.result()) for index, impossible in sums.items()
    )  # no token spells any of them


def parts(question: ByteProbability, tokenizer: Tokenizer) -> list[Span | Mass]:
    """The spans and masses that a model with this ``tokenizer`` is asked for ``question``."""
    return _CoveringSum(question, vocabulary(tokenizer)).questions


@per_tokenizer  # it takes milliseconds, and is asked for with every shard
def token_sizes(tokenizer: Tokenizer) -> Ids:
    """Bytes of every token, and 0 as the last entry, for tokens beyond the tokenizer's."""
    return np.asarray([*map(len, tokenizer.token_bytes), 0], dtype=np.int32)


def sizes(question: object, answer: TokenScores, token_sizes: Ids) -> Ids:
    """Bytes of every scored token, or part of a byte probability."""
    if isinstance(question, ByteProbability):
        return np.asarray(np.diff(question.offsets), dtype=np.int32)
    try:
        return token_sizes[answer.tokens]
    except IndexError:
        return token_sizes.take(answer.tokens, mode="clip")


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


def _batches(
    questions: Sequence[TokenPrompt], words: Vocabulary, sums: dict[int, _CoveringSum]
) -> Iterator[list[tuple[int, int, Prompt]]]:
    """(index of a question, which of its parts, the part) of all that is asked at once; fills ``sums``."""
    batch: list[tuple[int, int, Prompt]] = []
    for index, question in enumerate(questions):
        if not isinstance(question, ByteProbability):
            batch.append((index, 0, question))
            continue
        sums[index] = _CoveringSum(question, words)
        batch += [(index, part, asked) for part, asked in enumerate(sums[index].questions)]
        if len(batch) >= PARTS:
            yield batch
            batch = []
    if batch:
        yield batch


class _CoveringSum:
    def __init__(self, question: ByteProbability, words: Vocabulary) -> None:
        self._question = question
        self.questions: list[Span | Mass] = []
        self._terms: list[
            tuple[int | None, int, int]
        ] = []  # (part of the spelling, part of the mass, which offset)
        considered = all_spellings(words, question.text)
        if question.spellings is not None:
            considered = (
                (spelling, len(words.spelled(spelling))) for spelling in question.spellings
            )
        for spelling, spelled in considered:
            tokens = np.asarray(spelling, dtype=np.int32)
            context = np.concatenate([question.context, tokens])
            span_part = None
            for number, offset in enumerate(question.offsets):
                rest = question.text[spelled:offset]
                if not rest or not len((members := words.continuing(rest)).ids):
                    continue
                if spelling and span_part is None:
                    span_part = len(self.questions)
                    self.questions.append(Span(question.context, tokens, question.gold))
                self._terms.append((span_part, len(self.questions), number))
                self.questions.append(Mass(context, members, question.gold))
        self._logprobs = np.full(len(self.questions), np.nan)
        self._missing: str | None = None
        self.unanswered = len(self.questions)

    def take(self, part: int, answer: TokenScores) -> None:
        self._logprobs[part] = answer.logprobs.sum(dtype=np.float64)
        self._missing = self._missing or answer.missing or (_UNLISTED if answer.at_most else None)
        self.unanswered -= 1

    def result(self) -> TokenScores:
        """Differences of log P(text[:offset]) between neighbouring offsets; the empty text has probability one."""
        offsets = self._question.offsets
        totals = np.where(np.asarray(offsets) == 0, 0.0, -np.inf)
        for span_part, mass_part, number in self._terms:
            term = self._logprobs[mass_part] + (
                0.0 if span_part is None else self._logprobs[span_part]
            )
            totals[number] = np.logaddexp(totals[number], term)
        with np.errstate(invalid="ignore"):  # what follows the impossible has no probability
            logprobs = np.diff(totals).astype(np.float32)
        first_bytes = np.asarray(
            [self._question.text[start] for start in offsets[:-1]], dtype=np.int32
        )
        if self._missing is not None:
            return TokenScores.unanswered(self._missing, first_bytes)
        return TokenScores(first_bytes, logprobs, ranks=np.full(len(logprobs), -1, dtype=np.int32))
