"""The slow plain computation a newcomer reads first.

A language model gives a probability to every token that may come next.  That is all it does.  To let it answer a
question, write the question as a *context*, write each choice as a *continuation* of it, and look up how probable the
model finds every token of the continuation:

    The capital of France is| Paris
    The capital of France is| Berlin

The sum of these log-probabilities (nats) is the log-likelihood of the continuation.  Letters (" A", " B", ...) after a
context that lists the choices, and the texts of the choices after a context that does not, are both scored like this.
A longer text has more tokens to lose probability on, so published protocols divide the sum by a length: tokens, bytes
or characters.  Another idea, PMI, subtracts what the choice scores without its question.  The prediction is the choice
with the greatest score, and accuracy is the share of right predictions.

Everything else in this package exists to do this for every published protocol at once, for every kind of tokenizer,
without computing a token twice.  Nothing here is fast, and nothing here is used to make the numbers: the tests compare
the numbers with these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Model(NamedTuple):
    """A language model with its tokenizer.

    ``next_token``: tokens so far → log-probability (nats) of every token that may follow.
    ``encode``: text → tokens, with those that the tokenizer puts before every text (usually BOS).
    ``token_bytes``: the bytes that every token stands for; none for special tokens.
    ``start``: the token to score after where there is no context: BOS, or EOS where there is none.
    """

    next_token: Callable[[list[int]], Sequence[float]]
    encode: Callable[[str], list[int]]
    token_bytes: Sequence[bytes]
    start: int


class Choice(NamedTuple):
    """One scored choice: its text, its tokens, and the log-probability (nats) of every token."""

    text: str
    tokens: list[int]
    logprobs: list[float]


def split(model: Model, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """The tokens of context and continuation: of both as one text, after as many as the context alone has."""
    first = model.encode(context)
    both = model.encode(context + continuation)
    if not first:
        first = [model.start]
        both = both if both[:1] == first else first + both
    return first, both[len(first) :]


def score(model: Model, context: str, continuation: str, listed: int | None = None) -> Choice:
    """The log-probability of every token of ``continuation``, given ``context`` and the tokens before it.

    A token that is not among the ``listed`` most probable ones counts as -100: GPT-3's interface listed only 100, and
    the original MMLU script read the letters from its list (hendrycks/test evaluate.py@4450500).
    """
    return read(model, continuation, *split(model, context, continuation), listed)


def read(
    model: Model, text: str, before: list[int], tokens: list[int], listed: int | None = None
) -> Choice:
    """The same of the ``tokens`` of a ``text``, after those ``before`` it."""
    logprobs = []
    for token in tokens:
        following = model.next_token(before)
        more_probable = sum(other > following[token] for other in following)
        logprobs.append(following[token] if listed is None or more_probable < listed else -100.0)
        before = [*before, token]
    return Choice(text, tokens, logprobs)


def log_likelihood(choice: Choice) -> float:
    """log P(continuation | context)."""
    return sum(choice.logprobs)


LENGTHS: dict[str, Callable[[Model, Choice], int]] = {
    "token_mean": lambda _, choice: len(choice.tokens),
    "byte_mean": lambda model, choice: sum(
        len(model.token_bytes[token]) for token in choice.tokens
    ),
    "byte_mean_bare": lambda _, choice: len(choice.text.removeprefix(" ").encode()),
    "char_mean": lambda _, choice: len(choice.text),
    "char_mean_bare": lambda _, choice: len(choice.text.removeprefix(" ")),
}
"""The lengths that published protocols divide by: all but the bare ones count the leading space."""


def mean(name: str, model: Model, choice: Choice) -> float:
    """The log-likelihood per token, byte or character."""
    return log_likelihood(choice) / LENGTHS[name](model, choice)


def pmi(choice: Choice, unconditional: Choice) -> float:
    """How much the context adds: ``unconditional`` is the same continuation after no context, or a neutral one."""
    return log_likelihood(choice) - log_likelihood(unconditional)


def predict(scores: Sequence[float]) -> int:
    """The index of the greatest score; of equal ones the first."""
    return max(range(len(scores)), key=lambda index: scores[index])


def accuracy(predictions: Sequence[int], gold: Sequence[int]) -> float:
    """The share of ``predictions`` that are the right choice."""
    return sum(
        prediction == right for prediction, right in zip(predictions, gold, strict=True)
    ) / len(gold)
