"""Compute the values of items in a log from its answers, as lm-evaluation-harness does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from string import ascii_uppercase

import numpy as np

from choicewise.logs import Log, LoggedChoice, LoggedItem, Verdict
from choicewise.scoring.combine import extract
from choicewise.scoring.decide import letter_match


def first_best(item: LoggedItem, scores: Sequence[float]) -> float:
    """Return 1 if the first of the greatest scores is right, else 0; NaN if one is missing."""
    if any(map(math.isnan, scores)):
        return math.nan
    best = int(np.argmax(scores))
    return float(best in item.gold)


def sums(choices: Sequence[LoggedChoice]) -> list[float]:
    """Return the log-likelihood of each choice in nats, NaN if it is missing."""
    return [_number(choice.loglikelihood) for choice in choices]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def per_length(item: LoggedItem, lengths: Sequence[int]) -> list[float]:
    """Return the log-likelihood of each choice by its length; NaN for all if a length is 0."""
    if not all(lengths):
        return [math.nan] * len(item.choices)
    return [score / length for score, length in zip(sums(item.choices), lengths, strict=True)]


def per_token(item: LoggedItem) -> list[float]:
    """Return the log-likelihood of each choice divided by its number of tokens."""
    return per_length(item, [choice.tokens or 0 for choice in item.choices])


def per_character(item: LoggedItem, texts: Sequence[str]) -> list[float]:
    """Return the log-likelihood of each choice divided by the characters of its text."""
    return per_length(item, list(map(len, texts)))


def bare_texts(item: LoggedItem) -> list[str]:
    """Return the choices of the data; empty texts if they are not known."""
    if item.options:
        return list(item.options)
    return [text.removeprefix(" ") for text in scored_texts(item)]


def scored_texts(item: LoggedItem) -> list[str]:
    """Return the choices as they were scored, with their first space; empty if unknown."""
    return [choice.text or "" for choice in item.choices]


def beyond_null(item: LoggedItem) -> list[float]:
    """Return the log-likelihood of each choice minus that after the null context."""
    nulls = [_number(choice.unconditional) for choice in item.choices]
    return [score - null for score, null in zip(sums(item.choices), nulls, strict=True)]


def share(choices: Sequence[LoggedChoice], right: Sequence[int]) -> float:
    """Return the share of the ``right`` choices in the probability of all."""
    scores = np.array(sums(choices))
    return float(np.exp(scores[list(right)] - np.logaddexp.reduce(scores)).sum())


def letter(log: Log, item: LoggedItem) -> float:
    """Return the credit of the model's text by the first of the log's rules."""
    if item.generated is None or not log.rules:
        return math.nan
    # The first rule is that of the tool, whose credit the log records.
    rule = log.rules[0]
    texts = [item.generated]
    golds = [item.gold]
    if rule == "letter-match":
        letters = letter_match(texts, [bare_texts(item)], golds, ascii_uppercase)
    else:
        letters = extract(rule, texts, golds, [len(item.choices)], ascii_uppercase)
    return float(letters.credit[0])


def acc(log: Log, item: LoggedItem) -> float:
    """Return 1 if the likeliest choice is right, else 0."""
    return first_best(item, sums(item.choices))


def acc_norm(log: Log, item: LoggedItem) -> float:
    """Return 1 if the choice with the greatest log-likelihood per character is right, else 0.

    The space that a choice begins with does not count.
    """
    return first_best(item, per_character(item, bare_texts(item)))


def acc_mutual_info(log: Log, item: LoggedItem) -> float:
    """Return 1 if the choice that gains most over the null context is right, else 0."""
    return first_best(item, beyond_null(item))


def _acc_bytes(log: Log, item: LoggedItem) -> float:
    lengths = [len(text.encode()) for text in bare_texts(item)]
    return first_best(item, per_length(item, lengths))


def _greedy(log: Log, item: LoggedItem) -> float:
    # Any right text counts if it is what greedy decoding writes.
    flags = [item.choices[index].greedy for index in item.gold]
    if None in flags:
        return math.nan
    return float(any(flags))


def _mc2(log: Log, item: LoggedItem) -> float:
    return share(item.choices, item.gold)


def _perplexity(log: Log, item: LoggedItem) -> float:
    # The harness records the log-likelihood of a single text under this name.
    if len(item.choices) > 1:
        return math.nan
    return sums(item.choices)[0]


HARNESS: Mapping[str, Verdict] = {
    "acc": acc,
    "acc_norm": acc_norm,
    "acc_bytes": _acc_bytes,
    "acc_mutual_info": acc_mutual_info,
    "exact_match": _greedy,
    "greedy": _greedy,
    "mc2": _mc2,
    "perplexity": _perplexity,
}
"""Metrics of lm-evaluation-harness (lm_eval/api/task.py@4e7e0d4:1489), and of tables."""
