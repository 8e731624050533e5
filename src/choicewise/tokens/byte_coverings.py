"""Compute the probability of bytes, in whatever tokens they come.

A sequence of tokens covers a text when its bytes start with the text and those before its last
token do not.  The coverings of a text exclude one another, so P(text | context) is the sum of their
probabilities (Vieira et al. 2024; Phan et al. 2024).  All coverings with the same tokens ``u`` but
the last are one :class:`Mass` after ``u``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from choicewise.questions import Answers, Ids, Mass, Prompt, Span, TokenScores, prompt_key
from choicewise.tokens.tokenizer import Tokenizer, Vocabulary, per_tokenizer, vocabulary

_UNLISTED = "a part of its byte probability is no more than an upper bound, and differences of bounds are none"
"""Why a byte probability has no answer."""

# The most spans and masses that a model answers at once, unless one byte probability has more: some
# hundred megabytes.
PARTS = 50_000

# Token sequences that one text may have before its last token: each is a row of the model.
LIMIT = 4096

Spelling = tuple[int, ...]
"""Tokens that spell a beginning of a text, but not all of it; no tokens spell its empty beginning.
"""


@dataclass(frozen=True, slots=True, eq=False)
class ByteProbability:
    """The log-probability (nats) of every part ``text[offsets[k]:offsets[k + 1]]`` after
    ``context`` and all before.

    ``spellings``: the tokens before the last one that are considered, the empty tuple among them;
    None for all of them, which makes the answer exact.  Tokens that stand for no bytes take no
    part.  ``gold`` as in a span.
    """

    context: Ids
    text: bytes
    offsets: tuple[int, ...]
    spellings: tuple[Spelling, ...] | None = None
    gold: bool | None = None

    @property
    def key(self) -> str:
        """Return 32 hex digits that identify the text after these tokens."""
        text = repr((self.text, self.offsets, self.spellings)).encode()
        codes = np.frombuffer(text, dtype=np.uint8).astype(np.int32)
        return prompt_key(b"cover", self.context, codes)

    @property
    def continuation(self) -> Ids:
        """Return the scored bytes, one by one: those from the first offset on."""
        return np.frombuffer(self.text[self.offsets[0] :], dtype=np.uint8).astype(np.int32)

    @property
    def inputs(self) -> int:
        """Return the number of input tokens of the longest sequence."""
        if self.spellings is None:
            return len(self.context) + len(self.text) - 1
        return len(self.context) + max(map(len, self.spellings))


TokenPrompt = Prompt | ByteProbability
"""A prompt that can be answered in tokens.

A byte probability is put together from spans and masses.
"""


def answer_with_bytes(
    answer: Callable[[Sequence[Prompt]], Answers],
    prompts: Sequence[TokenPrompt],
    tokenizer: Tokenizer,
) -> Answers:
    """Yield the answers of a model's ``answer``.

    Byte probabilities are put together from their parts.

    Byte probabilities can have many parts, so the model gets a few of them at a time.
    """
    if not any(isinstance(prompt, ByteProbability) for prompt in prompts):
        yield from answer(cast(Sequence[Prompt], prompts))
        return
    sums: dict[int, _CoveringSum] = {}
    for batch in _batches(prompts, vocabulary(tokenizer), sums):
        for position, scores in answer([part.prompt for part in batch]):
            part = batch[position]
            covering = sums.get(part.prompt_index)
            if covering is None:
                yield part.prompt_index, scores
                continue
            covering.take(part.number, scores)
            if not covering.unanswered:
                yield part.prompt_index, covering.result()
                del sums[part.prompt_index]
    # No token spells any of the byte probabilities that have no part.
    for index, covering in sums.items():
        yield index, covering.result()


def parts(prompt: ByteProbability, tokenizer: Tokenizer) -> list[Span | Mass]:
    """Return the spans and masses that a model with this ``tokenizer`` answers for a byte
    probability.
    """
    return _CoveringSum(prompt, vocabulary(tokenizer)).prompts


# It takes milliseconds, and every shard needs it.
@per_tokenizer
def token_sizes(tokenizer: Tokenizer) -> Ids:
    """Return the bytes of every token, and 0 as the last entry, for tokens beyond the tokenizer's."""
    return np.asarray([*map(len, tokenizer.token_bytes), 0], dtype=np.int32)


def sizes(prompt: object, answer: TokenScores, token_sizes: Ids) -> Ids:
    """Return the bytes of every scored token, or of every part of a byte probability."""
    if isinstance(prompt, ByteProbability):
        return np.asarray(np.diff(prompt.offsets), dtype=np.int32)
    try:
        # ``take`` needs half the time of an index.
        return token_sizes.take(answer.tokens)
    except IndexError:
        return token_sizes.take(answer.tokens, mode="clip")


def count_spellings(vocabulary: Vocabulary, text: bytes) -> int:
    """Count the token sequences, the empty one included, that spell a beginning of ``text`` but not
    all of it.
    """
    ways = [1] + [0] * len(text)
    for end in range(1, len(text)):
        for start in range(max(0, end - vocabulary.longest), end):
            if ways[start]:
                ways[end] += ways[start] * len(vocabulary.spelling(text[start:end]))
    return sum(ways)


def all_spellings(vocabulary: Vocabulary, text: bytes) -> Iterator[tuple[Spelling, int]]:
    """Yield every spelling that :func:`count_spellings` counts, and how many bytes it spells, in
    depth-first order.
    """
    waiting: list[tuple[Spelling, int]] = [((), 0)]
    while waiting:
        spelling, start = waiting.pop()
        yield spelling, start
        for end in range(start + 1, min(len(text), start + vocabulary.longest + 1)):
            for token in vocabulary.spelling(text[start:end]):
                waiting.append(((*spelling, token), end))


class _Part(NamedTuple):
    """Part ``number`` of the prompt at an index.

    Other prompts than byte probabilities have one part.
    """

    prompt_index: int
    number: int
    prompt: Prompt


def _batches(
    prompts: Sequence[TokenPrompt], words: Vocabulary, sums: dict[int, _CoveringSum]
) -> Iterator[list[_Part]]:
    """Yield the parts that the model gets at once, and fill ``sums``."""
    batch: list[_Part] = []
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, ByteProbability):
            batch.append(_Part(index, 0, prompt))
            continue
        sums[index] = _CoveringSum(prompt, words)
        batch += [_Part(index, number, part) for number, part in enumerate(sums[index].prompts)]
        if len(batch) >= PARTS:
            yield batch
            batch = []
    if batch:
        yield batch


class _Term(NamedTuple):
    """A summand of P(text[:offset]): of the offset with that number, from the numbers of its span
    and its mass.
    """

    offset: int
    span: int | None
    mass: int


class _CoveringSum:
    def __init__(self, probability: ByteProbability, words: Vocabulary) -> None:
        self._probability = probability
        self.prompts: list[Span | Mass] = []
        self._terms: list[_Term] = []
        if probability.spellings is None:
            for spelling, length in all_spellings(words, probability.text):
                self._add(spelling, length, words)
        else:
            for spelling in probability.spellings:
                self._add(spelling, len(words.spelled(spelling)), words)
        self._logprobs = np.full(len(self.prompts), np.nan)
        self._missing: str | None = None
        self.unanswered = len(self.prompts)

    def _add(self, spelling: Spelling, length: int, words: Vocabulary) -> None:
        """Add the coverings that begin with ``spelling``, of ``length`` bytes, and end with one
        token more.
        """
        probability = self._probability
        tokens = np.asarray(spelling, dtype=np.int32)
        context = np.concatenate([probability.context, tokens])
        span = None
        for number, offset in enumerate(probability.offsets):
            rest = probability.text[length:offset]
            if not rest:
                continue
            members = words.continuing(rest)
            if not len(members.ids):
                continue
            if spelling and span is None:
                span = len(self.prompts)
                self.prompts.append(Span(probability.context, tokens, probability.gold))
            self._terms.append(_Term(number, span, len(self.prompts)))
            self.prompts.append(Mass(context, members, probability.gold))

    def take(self, number: int, answer: TokenScores) -> None:
        self._logprobs[number] = answer.logprobs.sum(dtype=np.float64)
        if self._missing is None:
            self._missing = answer.missing
        # A sum with an upper bound in it is a bound, too, and the differences below need numbers.
        if self._missing is None and answer.at_most:
            self._missing = _UNLISTED
        self.unanswered -= 1

    def result(self) -> TokenScores:
        """Return differences of log P(text[:offset]) of neighbouring offsets.

        The empty text has probability one.
        """
        probability = self._probability
        offsets = probability.offsets
        totals = np.where(np.asarray(offsets) == 0, 0.0, -np.inf)
        for term in self._terms:
            logprob = self._logprobs[term.mass]
            if term.span is not None:
                logprob += self._logprobs[term.span]
            totals[term.offset] = np.logaddexp(totals[term.offset], logprob)
        # The text after an impossible one has no probability: -inf minus -inf.
        with np.errstate(invalid="ignore"):
            logprobs = np.diff(totals).astype(np.float32)
        first_bytes = [probability.text[start] for start in offsets[:-1]]
        tokens = np.asarray(first_bytes, dtype=np.int32)
        if self._missing is not None:
            return TokenScores.unanswered(self._missing, tokens)
        return TokenScores(tokens, logprobs, ranks=np.full(len(logprobs), -1, dtype=np.int32))
