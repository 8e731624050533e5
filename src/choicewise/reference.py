"""The slow plain computation that a newcomer reads first.

A language model gives a probability to every token that may come next.  That is all it does.  To
let it answer a question, write the question as a *context*, write each choice as a *continuation*
of it, and look up how probable the model finds every token of the continuation:

    The capital of France is| Paris
    The capital of France is| Berlin

The sum of these log-probabilities (nats) is the log-likelihood of the continuation.  Letters (" A",
" B", ...) after a context that lists the choices, and the texts of the choices after a context that
does not, are both scored like this.  A longer text has more tokens to lose probability on, so
published protocols divide the sum by a length: tokens, bytes or characters.  Another idea, PMI,
subtracts what the choice scores without its question.  The prediction is the choice with the
greatest score, and accuracy is the share of right predictions.

Everything else in this package exists to do this for every published protocol at once, for every
kind of tokenizer, without computing a token twice.  Nothing here is fast, and nothing here is used
to make the numbers: the tests compare the numbers with these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Model(NamedTuple):
    """Hold a language model with its tokenizer.

    ``next_token``: tokens so far → log-probability (nats) of every token that may follow.
    ``encode``: text → tokens, with those that the tokenizer puts before every text (usually BOS).
    ``token_bytes``: the bytes that every token stands for; none for special tokens.
    ``start``: the token in place of an empty context: BOS, or EOS without one.
    """

    next_token: Callable[[list[int]], Sequence[float]]
    encode: Callable[[str], list[int]]
    token_bytes: Sequence[bytes]
    start: int


class Choice(NamedTuple):
    """Hold a scored choice: its text, its tokens, and the log-probability (nats) of every token."""

    text: str
    tokens: list[int]
    logprobs: list[float]


def split(model: Model, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """Return the tokens of context and continuation.

    Both are encoded as one text, which is cut after as many tokens as the context alone has.
    """
    first = model.encode(context)
    both = model.encode(context + continuation)
    if not first:
        # Nothing predicts the first token of a text, so a tokenizer without BOS needs one here.
        first = [model.start]
        if both[:1] != first:
            both = first + both
    return first, both[len(first) :]


def score(model: Model, context: str, continuation: str, listed: int | None = None) -> Choice:
    """Score every token of ``continuation``, given ``context`` and the tokens before it.

    A token that is not among the ``listed`` most probable ones counts as -100: GPT-3's interface
    listed only 100, and the original MMLU script read the letters from its list (hendrycks/test
    evaluate.py@4450500).
    """
    before, tokens = split(model, context, continuation)
    return read(model, continuation, before, tokens, listed)


def read(
    model: Model, text: str, before: list[int], tokens: list[int], listed: int | None = None
) -> Choice:
    """Score the ``tokens`` of a ``text``, given those ``before`` it (see :func:`score`)."""
    logprobs = []
    for token in tokens:
        following = model.next_token(before)
        logprob = following[token]
        rank = sum(other > logprob for other in following)
        if listed is not None and rank >= listed:
            logprob = -100.0
        logprobs.append(logprob)
        before = [*before, token]
    return Choice(text, tokens, logprobs)


def log_likelihood(choice: Choice) -> float:
    """Return log P(continuation | context), in nats."""
    return sum(choice.logprobs)


def token_length(model: Model, choice: Choice) -> int:
    """Count tokens."""
    return len(choice.tokens)


def byte_length(model: Model, choice: Choice) -> int:
    """Count the bytes of the tokens, with those of a leading space."""
    return sum(len(model.token_bytes[token]) for token in choice.tokens)


def bare_byte_length(model: Model, choice: Choice) -> int:
    """Count the bytes of the text without a leading space."""
    return len(choice.text.removeprefix(" ").encode())


def char_length(model: Model, choice: Choice) -> int:
    """Count the characters of the text, with a leading space."""
    return len(choice.text)


def bare_char_length(model: Model, choice: Choice) -> int:
    """Count the characters of the text without a leading space."""
    return len(choice.text.removeprefix(" "))


LENGTHS: dict[str, Callable[[Model, Choice], int]] = {
    "token_mean": token_length,
    "byte_mean": byte_length,
    "byte_mean_bare": bare_byte_length,
    "char_mean": char_length,
    "char_mean_bare": bare_char_length,
}
"""Name of a score → the length by which it divides the log-likelihood."""


def mean(name: str, model: Model, choice: Choice) -> float:
    """Return the log-likelihood per token, byte or character."""
    return log_likelihood(choice) / LENGTHS[name](model, choice)


def pmi(choice: Choice, unconditional: Choice) -> float:
    """Return how much the context adds to the same continuation after no, or a neutral, context."""
    return log_likelihood(choice) - log_likelihood(unconditional)


def predict(scores: Sequence[float]) -> int:
    """Return the index of the greatest score; of equal ones the first."""
    best = 0
    for index, value in enumerate(scores):
        if value > scores[best]:
            best = index
    return best


def accuracy(predictions: Sequence[int], gold: Sequence[int]) -> float:
    """Return the share of ``predictions`` that are the right choice."""
    right = 0
    for prediction, right_choice in zip(predictions, gold, strict=True):
        right += prediction == right_choice
    return right / len(gold)
