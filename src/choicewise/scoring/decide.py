"""Decisions, ties, credits.

The original MMLU script reads the letters from the 100 most likely tokens and gives a letter that is not among them
the log-probability -100 (hendrycks/test evaluate.py@4450500), so four absent letters tie and the first one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from choicewise.errors import DataError
from choicewise.protocols.protocol import Protocol
from choicewise.scoring.observed import (
    Continuations,
    Floats,
    Integers,
    Mask,
    Range,
    reduce_rows,
    row_of,
)

TIES: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "first": lambda first_is_right, right, tops: first_is_right,
    "split": lambda first_is_right, right, tops: right / tops,
    "wrong": lambda first_is_right, right, tops: np.where(tops > 1, 0.0, first_is_right),
}
"""Credit from (is the first tied choice right, how many tied choices are right, how many tie), each [items].

first: as numpy.argmax.  split: |gold ∩ top| / |top|, HELM's multiple_choice_separate (basic_metrics.py@cab5d89:788).
wrong: a tie is no answer.
"""


def argmax(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """The choice with the greatest score, credited by the tie rule named ``ties`` (TIES).

    ``scores`` and ``gold`` have shape [rows].  A NaN score is a missing choice, and an item with a missing choice is
    missing: what it would have scored is not known.
    """
    item = row_of(item_offsets)
    top = reduce_rows(np.maximum, scores, item_offsets)  # NaN when any choice is
    at_top = scores == top[item]
    index = np.arange(len(scores)) - item_offsets[:-1][item]
    first = reduce_rows(np.minimum, np.where(at_top, index, np.inf), item_offsets)
    second = reduce_rows(np.maximum, np.where(index == first[item], -np.inf, scores), item_offsets)
    tops = reduce_rows(np.add, at_top, item_offsets)
    right = reduce_rows(np.add, at_top & gold, item_offsets)
    first_is_right = reduce_rows(np.add, gold & (index == first[item]), item_offsets)
    missing, tied = np.isnan(top), tops > 1
    with np.errstate(invalid="ignore"):
        margin = np.where(tied, 0.0, top - second)
    return Decisions(
        prediction=np.where(missing, -1, first).astype(np.int64),
        credit=np.where(
            missing, np.nan, TIES[ties](first_is_right, right, np.where(missing, 1, tops))
        ),
        tied=tied,
        margin=np.where(missing | (np.diff(item_offsets) < 2), np.nan, margin),
    )


def mc1(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """The first right choice against all wrong ones: 1 where it has the greatest score.

    An item's other right choices are not asked, and may be missing.  TruthfulQA's MC1, whose best answer comes first
    (lm_eval/tasks/truthfulqa.py@b281b09).
    """
    asked = np.flatnonzero(compared("mc1", item_offsets, gold))
    offsets = np.searchsorted(asked, item_offsets)
    decisions = argmax(scores[asked], offsets, gold[asked], ties)
    predicted = (
        asked[np.minimum(offsets[:-1] + decisions.prediction, len(asked) - 1)] - item_offsets[:-1]
    )
    return replace(decisions, prediction=np.where(decisions.prediction < 0, -1, predicted))


def mc2(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """Σ P(right choices) / Σ P(all choices) for log-likelihoods ``scores``; the prediction is the likeliest choice.

    TruthfulQA's MC2 as today's harness has it (lm_eval/tasks/truthfulqa/utils.py@4e7e0d4).  Where all choices are
    impossible, it gives NaN; here the item is missing.
    """
    shares = choice_distribution(scores, item_offsets)
    credit = reduce_rows(np.add, np.where(gold, shares, shares * 0), item_offsets)
    prediction = argmax(scores, item_offsets, gold, ties).prediction
    return Decisions.uncompared(np.where(np.isnan(credit), -1, prediction), np.minimum(credit, 1.0))


def mc2_split(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """The same, but only the choices before the first wrong one count as right (lm_eval/tasks/truthfulqa.py@b281b09).

    One question of the Hub's file has a true answer after a false one.  A first choice that is wrong leaves nothing.
    """
    return mc2(scores, item_offsets, before_wrong(gold, item_offsets), ties)


def before_wrong(gold: Mask, item_offsets: Integers) -> Mask:
    """Mark the choices before the first wrong one of their item, bool [rows]."""
    index = np.arange(len(gold))
    first_wrong = reduce_rows(np.minimum, np.where(gold, np.inf, index), item_offsets)
    return np.asarray(index < first_wrong[row_of(item_offsets)], dtype=np.bool_)


def likelihood(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """The score of the first right choice, a log-likelihood in nats: at most 0, and no share of anything.

    The items' mean is that of ``perplexity`` in lm_eval/api/metrics.py@4e7e0d4: per continuation, not per token.
    """
    first = reduce_rows(
        np.minimum, np.where(gold, np.arange(len(scores)), np.inf), item_offsets
    ).astype(np.int64)
    return Decisions.uncompared(
        np.where(np.isnan(scores[first]), -1, first - item_offsets[:-1]), scores[first]
    )


CREDITS: Mapping[str, Credited] = {
    "acc": argmax,
    "exact_match": argmax,
    "mc1": mc1,
    "mc2": mc2,
    "mc2-split": mc2_split,
    "perplexity": likelihood,
}
"""By the name of the metric."""


def decided(protocol: Protocol, scores: Floats, item_offsets: Integers, right: Mask) -> Decisions:
    """What follows from the ``scores`` [rows], of which item i has those between its offsets."""
    if protocol.decision == "greedy-match":
        return greedy_match(scores, item_offsets, right)
    return CREDITS[protocol.metric](scores, item_offsets, right, protocol.ties)


_COMPARING = (argmax, CREDITS["mc1"])


def decided_between(
    protocol: Protocol, scores: Range, item_offsets: Integers, right: Mask
) -> Decisions:
    """The same from the lowest and the highest that every score may be.

    An item is decided where one choice is the best whatever the others are; one that is equal to a bound counts as the
    best, since an upper bound is reached in a tie at most.  All other items with a bound are missing.  Credits that are
    no comparison of scores need every score.
    """
    low, high = scores
    decisions = decided(protocol, low, item_offsets, right)
    among = compared(protocol.metric, item_offsets, right)
    bounds = among & (low < high)
    if protocol.decision == "greedy-match" or CREDITS[protocol.metric] not in _COMPARING:
        return _missing(decisions, np.nan_to_num(reduce_rows(np.maximum, bounds, item_offsets)) > 0)
    item = row_of(item_offsets)
    best = reduce_rows(np.maximum, np.where(among, low, -np.inf), item_offsets)[item]
    above, at_top = among & (high > best), among & (low == best)
    tops, aboves, both = (
        reduce_rows(np.add, rows, item_offsets) for rows in (at_top, above, at_top & above)
    )
    alone = (tops == 1) & (aboves == 1) & (both == 1)
    rival = reduce_rows(np.maximum, np.where(among & ~at_top, high, -np.inf), item_offsets)
    bounded = np.nan_to_num(reduce_rows(np.maximum, bounds, item_offsets)) > 0
    with np.errstate(invalid="ignore"):
        least = reduce_rows(np.maximum, np.where(among, low, -np.inf), item_offsets) - rival
    margin = np.where(
        bounded & ~decisions.tied & ~np.isnan(decisions.margin), least, decisions.margin
    )
    return _missing(replace(decisions, margin=margin), (np.nan_to_num(aboves) > 0) & ~alone)


@dataclass(frozen=True, eq=False)
class Decisions:
    """What was decided for each item; all arrays have shape [items].

    ``prediction``: index of the predicted choice, the first of those that tie; -1 when there is none, because the
    item is missing or the generated text names no choice.  ``credit``: between 0 and 1, or a log-likelihood in nats
    where the metric is no share of 1; NaN when the item is missing.
    ``tied``: several choices share the top score.  ``margin``: the best score minus the second best, in the score's
    own unit; 0 when tied, NaN when missing or without a second choice.
    """

    prediction: Integers
    credit: Floats
    tied: Mask
    margin: Floats

    @classmethod
    def uncompared(cls, prediction: Integers, credit: Floats) -> Decisions:
        """Without ties and margins, because no scores were compared."""
        return cls(
            prediction=prediction,
            credit=credit,
            tied=np.zeros(len(credit), dtype=np.bool_),
            margin=np.full(len(credit), np.nan),
        )

    @classmethod
    def joined(cls, parts: Sequence[Decisions]) -> Decisions:
        """Return the decisions of all parts, in order."""
        return cls(
            prediction=np.concatenate([part.prediction for part in parts]),
            credit=np.concatenate([part.credit for part in parts]),
            tied=np.concatenate([part.tied for part in parts]),
            margin=np.concatenate([part.margin for part in parts]),
        )

    def among(self, items: Mask) -> Decisions:
        """Return the decisions about ``items``, bool [items]."""
        return Decisions(
            prediction=self.prediction[items],
            credit=self.credit[items],
            tied=self.tied[items],
            margin=self.margin[items],
        )

    @property
    def missing(self) -> Mask:
        """Items that could not be decided and count neither as right nor as wrong."""
        return np.isnan(self.credit)


def compared(metric: str, item_offsets: Integers, gold: Mask) -> Mask:
    """The rows whose scores are compared, bool [rows]: under mc1 not those of right choices after the first."""
    if metric != "mc1":
        return np.ones(len(gold), dtype=np.bool_)
    index = np.arange(len(gold))
    first = reduce_rows(np.minimum, np.where(gold, index, np.inf), item_offsets)[
        row_of(item_offsets)
    ]
    return np.asarray((index == first) | ~gold, dtype=np.bool_)


def guess(item_offsets: Integers, gold: Mask, metric: str = "acc") -> Floats:
    """The credit that guessing evenly is expected to have, float64 [items]; NaN for items with one choice.

    ``gold``: which rows are right, bool [rows].
    """
    choices, right = np.diff(item_offsets), reduce_rows(np.add, gold, item_offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = 1 / (1 + choices - right) if metric == "mc1" else right / choices
    return np.where(choices < 2, np.nan, share)


def gold_rows(gold: Sequence[Sequence[int]], item_offsets: Integers) -> Mask:
    """Which rows are right choices, bool [rows]; ``gold`` holds each item's right indices.

    Raises DataError when an index is not one of its item's choices.
    """
    mask = np.zeros(int(item_offsets[-1]), dtype=bool)
    for position, (indices, start, end) in enumerate(
        zip(gold, item_offsets[:-1], item_offsets[1:], strict=True)
    ):
        for index in indices:
            if not 0 <= index < end - start:
                raise DataError(
                    f"item {position} has gold {index} but {end - start} choices; check its answer column"
                )
            mask[start + index] = True
    return mask


def greedy_match(greedy: Floats, item_offsets: Integers, gold: Mask) -> Decisions:
    """Whether greedy decoding gives a right choice, which the harness calls exact_match (task.py@4e7e0d4:1540).

    ``greedy``: the score of that name, 1 for a choice whose every token is the most likely one.  Choices are not
    compared: where none is greedy none is predicted, and of several greedy ones, each the start of the next longer, the
    first is the prediction but any right one counts.
    """
    item, missing = row_of(item_offsets), np.isnan(reduce_rows(np.add, greedy, item_offsets))
    index = np.arange(len(greedy)) - item_offsets[:-1][item]
    first = reduce_rows(np.minimum, np.where(greedy == 1, index, np.inf), item_offsets)
    credit = reduce_rows(np.maximum, gold & (greedy == 1), item_offsets)
    prediction = np.where(missing | np.isinf(first), -1, first).astype(np.int64)
    return Decisions.uncompared(prediction, np.where(missing, np.nan, credit))


def letter_match(
    texts: Sequence[str | None],
    options: Sequence[Sequence[str]],
    gold: Sequence[Sequence[int]],
    letters: str,
) -> Decisions:
    """Credit for text that is an option's letter and nothing else, as HELM reads it (basic_metrics.py@cab5d89:492).

    The stripped text is looked up among the letters of the item's options.  It is right when the option of that letter
    has the same stripped text as a right one, so a duplicate of the right option counts.  Any other text is wrong; None
    is missing.
    """
    prediction, credit = np.full(len(texts), -1, dtype=np.int64), np.full(len(texts), np.nan)
    for position, (text, choices, right) in enumerate(zip(texts, options, gold, strict=True)):
        if text is not None:
            index = {letter: index for index, letter in enumerate(letters[: len(choices)])}.get(
                text.strip(), -1
            )
            prediction[position] = index
            credit[position] = index >= 0 and choices[index].strip() in {
                choices[gold].strip() for gold in right
            }
    return Decisions.uncompared(prediction, credit)


def limited(observed: Continuations, top: int, logprob: float) -> Continuations:
    """The continuations with ``logprob`` (nats) for every token to which ``top`` or more are strictly likelier.

    Rows observed without tokens have no ranks, and are missing; so are tokens of which a server does not say whether
    so many are likelier, unless their own probability is too great for that.  A row known as an upper bound
    is one still, unless so many are known to be likelier than each of its tokens that has no rank.
    """
    ranks = observed.ranks
    outside = (ranks >= top) | (-1 - ranks >= top)
    open_ = (ranks < 0) & (
        observed.logprobs < -np.log(top)
    )  # of tokens with 1 / top or more there are top at most
    given = np.where(open_, np.float32(np.nan), observed.logprobs)
    at_most = observed.at_most
    if at_most is not None:
        bound = at_most[row_of(observed.offsets)]
        given = np.where(bound, np.maximum(observed.logprobs, np.float32(logprob)), given)
        still, some = (
            observed.reduce(np.maximum, each) == 1 for each in ((ranks < 0) & ~outside, ranks < 0)
        )
        at_most = at_most & (still | ~some)
    logprobs = np.where(outside, np.float32(logprob), given)
    return replace(
        observed,
        logprobs=logprobs,
        totals=None,
        token_counts=None,
        all_greedy=None,
        at_most=at_most,
    )


def choice_distribution(scores: Floats, item_offsets: Integers, temperature: float = 1.0) -> Floats:
    """softmax(scores / temperature) within each item, float64 [rows]; NaN for an item with a missing choice.

    A probability of the choices only when the scores are log-probabilities; of means or PMI it is a link function,
    to be reported with its temperature, above 0 (Franke et al. 2024).
    """
    item = row_of(item_offsets)
    with np.errstate(
        invalid="ignore"
    ):  # an item all of whose choices are impossible has no distribution: NaN
        scaled = (scores - reduce_rows(np.maximum, scores, item_offsets)[item]) / temperature
    weights = np.exp(scaled)
    return weights / reduce_rows(np.add, weights, item_offsets)[item]


def divergences(left: Floats, right: Floats, item_offsets: Integers) -> Floats:
    """Return KL(softmax left ‖ softmax right) in nats of each item, float64 [items], from scores [rows].

    NaN where a score is not known or all choices are impossible, infinite where right excludes what left does not.
    """
    with np.errstate(invalid="ignore"):
        logs = [
            own - reduce_rows(np.logaddexp, own, item_offsets)[row_of(item_offsets)]
            for own in (left, right)
        ]
        terms = np.where(np.isneginf(logs[0]), 0.0, np.exp(logs[0]) * (logs[0] - logs[1]))
    return np.maximum(reduce_rows(np.add, terms, item_offsets), 0.0)  # rounding alone goes below


def option_mass(sums: Floats, item_offsets: Integers) -> Floats:
    """Σ exp S over an item's choices, float64 [items]: the probability that the model says any of them.

    Other wordings of the answers have at most 1 - mass (Wiegreffe et al. 2023).  The sum can exceed 1 where choices are
    equal or one is the start of another, because each counts in full.
    """
    return reduce_rows(np.add, np.exp(sums), item_offsets)


def _missing(decisions: Decisions, items: Mask) -> Decisions:
    """The same without the decisions about ``items``."""
    return Decisions(
        prediction=np.where(items, -1, decisions.prediction),
        credit=np.where(items, np.nan, decisions.credit),
        tied=decisions.tied & ~items,
        margin=np.where(items, np.nan, decisions.margin),
    )


Credited = Callable[[Floats, Integers, Mask, str], Decisions]
"""From scores and which rows are right [rows], the items' offsets and the tie rule to decisions."""

OUTSIDE: dict[str, Callable[[Continuations], Continuations]] = {
    "keep": lambda observed: observed,
    "top100=-100": partial(limited, top=100, logprob=-100.0),
}
