"""Decide each item from its scores or its text: prediction, credit, tie and margin."""

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
    item_any,
    item_first,
    item_max,
    item_sum,
    reduce_rows,
    row_of,
)


def _credit_of_first(first_is_right: Floats, right: Floats, tied: Floats) -> Floats:
    return first_is_right


def _credit_split(first_is_right: Floats, right: Floats, tied: Floats) -> Floats:
    return right / tied


def _credit_without_tie(first_is_right: Floats, right: Floats, tied: Floats) -> Floats:
    return np.where(tied > 1, 0.0, first_is_right)


TIES: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "first": _credit_of_first,
    "split": _credit_split,
    "wrong": _credit_without_tie,
}
"""How ties are credited, by the name of the rule.

A rule takes three arrays [items]: 1 if the first of the tied choices is right, the number of tied
choices that are right, and the number of tied choices (1 if none tie).

first: as numpy.argmax.  split: |gold ∩ top| / |top|, HELM's multiple_choice_separate
(basic_metrics.py@cab5d89:788).  wrong: a tie is no answer.
"""


def argmax(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """Predict the choice with the greatest score, credited by the tie rule named ``ties`` (TIES).

    ``scores`` and ``gold`` have shape [rows].  A NaN score is a missing choice, and an item with a
    missing choice is missing, because the choice might have had the greatest score.
    """
    item = row_of(item_offsets)
    top = item_max(scores, item_offsets)
    at_top = scores == top[item]
    first_row = item_first(at_top, item_offsets)
    is_first = np.arange(len(scores)) == first_row[item]
    second = item_max(np.where(is_first, -np.inf, scores), item_offsets)

    top_count = item_sum(at_top, item_offsets)
    right_count = item_sum(at_top & gold, item_offsets)
    first_is_right = item_sum(gold & is_first, item_offsets)
    missing = np.isnan(top)
    tied = top_count > 1
    # No choice of a missing item is at the top; 1 keeps the rule from dividing by 0.
    credit = TIES[ties](first_is_right, right_count, np.where(missing, 1, top_count))

    with np.errstate(invalid="ignore"):
        margin = np.where(tied, 0.0, top - second)
    no_margin = missing | (np.diff(item_offsets) < 2)
    prediction = np.where(missing, -1, first_row - item_offsets[:-1])
    return Decisions(
        prediction=prediction.astype(np.int64),
        credit=np.where(missing, np.nan, credit),
        tied=tied,
        margin=np.where(no_margin, np.nan, margin),
    )


def mc1(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """Credit 1 if the first right choice has a greater score than all wrong ones.

    An item's other right choices are left out, and may be missing.  TruthfulQA's MC1, whose best
    answer comes first (lm_eval/tasks/truthfulqa.py@b281b09).
    """
    rows = np.flatnonzero(compared("mc1", item_offsets, gold))
    offsets = np.searchsorted(rows, item_offsets)
    decisions = argmax(scores[rows], offsets, gold[rows], ties)
    # The prediction counts compared rows; the item's other rows have to be counted, too.
    predicted = np.minimum(offsets[:-1] + decisions.prediction, len(rows) - 1)
    in_item = rows[predicted] - item_offsets[:-1]
    return replace(decisions, prediction=np.where(decisions.prediction < 0, -1, in_item))


def mc2(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """Credit Σ P(right choices) / Σ P(all choices), and predict the likeliest choice.

    ``scores`` are log-likelihoods.  TruthfulQA's MC2 as in today's harness
    (lm_eval/tasks/truthfulqa/utils.py@4e7e0d4).  If all choices are impossible, the harness gives
    NaN; here the item is missing.
    """
    shares = choice_distribution(scores, item_offsets)
    # shares * 0 and not 0, so that a missing choice leaves its item NaN.
    credit = item_sum(np.where(gold, shares, shares * 0), item_offsets)
    prediction = argmax(scores, item_offsets, gold, ties).prediction
    predicted = np.where(np.isnan(credit), -1, prediction)
    return Decisions.uncompared(predicted, np.minimum(credit, 1.0))


def mc2_split(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """Decide by MC2, with only the choices before the first wrong one counting as right.

    The older harness splits the labels at the first wrong one
    (lm_eval/tasks/truthfulqa.py@b281b09). One question of the Hub's file has a true answer after a
    false one.  If the first choice is wrong, no choice counts as right.
    """
    return mc2(scores, item_offsets, before_wrong(gold, item_offsets), ties)


def before_wrong(gold: Mask, item_offsets: Integers) -> Mask:
    """Mark the choices before the first wrong one of their item, bool [rows]."""
    first_wrong = item_first(~gold, item_offsets)
    return np.arange(len(gold)) < first_wrong[row_of(item_offsets)]


def likelihood(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """Credit the score of the first right choice, a log-likelihood in nats, at most 0.

    The mean over items is that of ``perplexity`` in lm_eval/api/metrics.py@4e7e0d4: per
    continuation, not per token.
    """
    first_right = item_first(gold, item_offsets).astype(np.int64)
    credit = scores[first_right]
    prediction = np.where(np.isnan(credit), -1, first_right - item_offsets[:-1])
    return Decisions.uncompared(prediction, credit)


CREDITS: Mapping[str, Credited] = {
    "acc": argmax,
    "exact_match": argmax,
    "mc1": mc1,
    "mc2": mc2,
    "mc2-split": mc2_split,
    "perplexity": likelihood,
}
"""How items are credited, by the name of the metric."""


def decided(protocol: Protocol, scores: Floats, item_offsets: Integers, right: Mask) -> Decisions:
    """Decide every item from ``scores`` [rows] by the decision and metric of ``protocol``."""
    if protocol.decision == "greedy-match":
        return greedy_match(scores, item_offsets, right)
    return CREDITS[protocol.metric](scores, item_offsets, right, protocol.ties)


_COMPARING = (argmax, mc1)


def decided_between(
    protocol: Protocol, scores: Range, item_offsets: Integers, right: Mask
) -> Decisions:
    """Decide every item from the lowest and the highest value of each score, float64 [rows] each.

    An item is decided if one choice is the best for all values that the other scores may have.  A
    choice that equals another's upper bound counts as the best, since that bound is reached in a
    tie at most.  Other items with a bound are missing.  A credit that compares no scores needs
    every score to be exact.
    """
    low, high = scores
    decisions = decided(protocol, low, item_offsets, right)
    rows = compared(protocol.metric, item_offsets, right)
    has_bound = item_any(rows & (low < high), item_offsets)
    if protocol.decision == "greedy-match" or CREDITS[protocol.metric] not in _COMPARING:
        return _without(decisions, has_bound)

    best_low = item_max(np.where(rows, low, -np.inf), item_offsets)
    best_low_of_row = best_low[row_of(item_offsets)]
    is_leader = rows & (low == best_low_of_row)
    can_win = rows & (high > best_low_of_row)

    leaders = item_sum(is_leader, item_offsets)
    winners = item_sum(can_win, item_offsets)
    winning_leaders = item_sum(can_win & is_leader, item_offsets)
    leader_wins = (leaders == 1) & (winners == 1) & (winning_leaders == 1)
    undecided = (np.nan_to_num(winners) > 0) & ~leader_wins

    best_rival = item_max(np.where(rows & ~is_leader, high, -np.inf), item_offsets)
    with np.errstate(invalid="ignore"):
        least_margin = best_low - best_rival
    is_bounded = has_bound & ~decisions.tied & ~np.isnan(decisions.margin)
    margin = np.where(is_bounded, least_margin, decisions.margin)
    return _without(replace(decisions, margin=margin), undecided)


@dataclass(frozen=True, eq=False)
class Decisions:
    """Hold the decision about each item; all arrays have shape [items].

    ``prediction``: index of the predicted choice, the first of those that tie; -1 if the item is
    missing or the generated text names no choice.  ``credit``: between 0 and 1, or a log-likelihood
    in nats under the metric perplexity; NaN if the item is missing.  ``tied``: several choices
    share the top score.  ``margin``: the best score minus the second best, in the unit of the
    score; 0 if tied, NaN if missing or without a second choice.
    """

    prediction: Integers
    credit: Floats
    tied: Mask
    margin: Floats

    @classmethod
    def uncompared(cls, prediction: Integers, credit: Floats) -> Decisions:
        """Return decisions without ties and margins, because no scores were compared."""
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
        """Mark the items that could not be decided and count neither as right nor as wrong."""
        return np.isnan(self.credit)


def compared(metric: str, item_offsets: Integers, gold: Mask) -> Mask:
    """Mark the rows whose scores are compared, bool [rows].

    The metric mc1 leaves out the right choices after the first; all others compare every row.
    """
    if metric != "mc1":
        return np.ones(len(gold), dtype=np.bool_)
    first_right = item_first(gold, item_offsets)[row_of(item_offsets)]
    return (np.arange(len(gold)) == first_right) | ~gold


def guess(item_offsets: Integers, gold: Mask, metric: str = "acc") -> Floats:
    """Return the expected credit of guessing evenly, float64 [items].

    ``gold`` marks the right rows, bool [rows].  NaN for an item with one choice.
    """
    choices = np.diff(item_offsets)
    right = item_sum(gold, item_offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        if metric == "mc1":
            share = 1 / (1 + choices - right)
        else:
            share = right / choices
    return np.where(choices < 2, np.nan, share)


def gold_rows(gold: Sequence[Sequence[int]], item_offsets: Integers) -> Mask:
    """Mark the rows of right choices, bool [rows]; ``gold`` holds each item's right indices.

    Raises DataError if an index is not one of its item's choices.
    """
    mask = np.zeros(int(item_offsets[-1]), dtype=bool)
    starts = item_offsets[:-1].tolist()
    counts = np.diff(item_offsets).tolist()
    for item, (indices, start, count) in enumerate(zip(gold, starts, counts, strict=True)):
        for index in indices:
            if not 0 <= index < count:
                raise DataError(
                    f"item {item} has gold {index} but {count} choices; check its answer column"
                )
            mask[start + index] = True
    return mask


def greedy_match(greedy: Floats, item_offsets: Integers, gold: Mask) -> Decisions:
    """Credit 1 if greedy decoding gives a right choice, the harness's exact_match.

    ``greedy`` is the score of that name, 1 if every token of the choice is the most likely one
    (task.py@4e7e0d4:1540).  Choices are not compared: if none is greedy, none is predicted.
    Several can be greedy if each is the start of the next longer one; then the first is the
    prediction, but any right one counts.
    """
    missing = np.isnan(item_sum(greedy, item_offsets))
    is_greedy = greedy == 1
    first = item_first(is_greedy, item_offsets) - item_offsets[:-1]
    prediction = np.where(missing | np.isinf(first), -1, first).astype(np.int64)
    credit = item_max(gold & is_greedy, item_offsets)
    return Decisions.uncompared(prediction, np.where(missing, np.nan, credit))


def letter_match(
    texts: Sequence[str | None],
    options: Sequence[Sequence[str]],
    gold: Sequence[Sequence[int]],
    letters: str,
) -> Decisions:
    """Credit text that is an option's letter and nothing else (basic_metrics.py@cab5d89:492).

    HELM looks the stripped text up among the letters of the item's options.  It is right if the
    option of that letter has the same stripped text as a right one, so a duplicate of the right
    option counts.  Any other text is wrong; None is missing.
    """
    prediction = np.full(len(texts), -1, dtype=np.int64)
    credit = np.full(len(texts), np.nan)
    for item, (text, choices, right) in enumerate(zip(texts, options, gold, strict=True)):
        if text is None:
            continue
        credit[item] = 0.0
        letter = text.strip()
        # In a longer text or an empty one, find() would see a letter that is not the whole.
        if len(letter) != 1:
            continue
        index = letters[: len(choices)].find(letter)
        prediction[item] = index
        if index >= 0:
            right_texts = [choices[number].strip() for number in right]
            credit[item] = choices[index].strip() in right_texts
    return Decisions.uncompared(prediction, credit)


def limited(observed: Continuations, top: int, logprob: float) -> Continuations:
    """Give ``logprob`` (nats) to every token to which ``top`` or more are strictly likelier.

    The original MMLU script reads the letters from the 100 most likely tokens and gives -100 to a
    letter that is not among them (hendrycks/test evaluate.py@4450500), so four absent letters tie
    and the first one wins.

    Rows observed without tokens have no ranks, and become missing.  So do tokens of which a server
    does not say if so many are likelier, unless their probability is too great for that.  A row
    that is an upper bound stays one, unless so many are likelier than each of its tokens without a
    rank.
    """
    ranks = observed.ranks
    # A negative rank is -1 minus the number of tokens that are likelier for certain.
    outside = (ranks >= top) | (-1 - ranks >= top)
    # At most ``top`` tokens can have a probability of 1 / top or more.
    undecided = (ranks < 0) & (observed.logprobs < -np.log(top))
    logprobs = np.where(undecided, np.float32(np.nan), observed.logprobs)
    at_most = observed.at_most
    if at_most is not None:
        bound = at_most[row_of(observed.offsets)]
        at_least = np.maximum(observed.logprobs, np.float32(logprob))
        logprobs = np.where(bound, at_least, logprobs)
        unranked = ranks < 0
        has_undecided = observed.reduce(np.maximum, unranked & ~outside) == 1
        has_unranked = observed.reduce(np.maximum, unranked) == 1
        at_most = at_most & (has_undecided | ~has_unranked)
    return replace(
        observed,
        logprobs=np.where(outside, np.float32(logprob), logprobs),
        totals=None,
        token_counts=None,
        all_greedy=None,
        at_most=at_most,
    )


def _unlimited(observed: Continuations) -> Continuations:
    return observed


def choice_distribution(scores: Floats, item_offsets: Integers, temperature: float = 1.0) -> Floats:
    """Compute softmax(scores / temperature) within each item, float64 [rows].

    NaN for an item with a missing choice, or with impossible choices alone.  It is a probability of
    the choices only if the scores are log-probabilities; of means or PMI it is a link function, to
    be reported with its temperature, above 0 (Franke et al. 2024).
    """
    item = row_of(item_offsets)
    top = item_max(scores, item_offsets)[item]
    with np.errstate(invalid="ignore"):
        weights = np.exp((scores - top) / temperature)
    return weights / item_sum(weights, item_offsets)[item]


def divergences(left: Floats, right: Floats, item_offsets: Integers) -> Floats:
    """Return KL(softmax left ‖ softmax right) in nats of each item, float64 [items].

    ``left`` and ``right`` are scores [rows].  NaN if a score is missing or all choices are
    impossible, infinite if right excludes a choice that left does not.
    """
    with np.errstate(invalid="ignore"):
        left_logs = _log_softmax(left, item_offsets)
        right_logs = _log_softmax(right, item_offsets)
        terms = np.exp(left_logs) * (left_logs - right_logs)
    divergence = item_sum(np.where(np.isneginf(left_logs), 0.0, terms), item_offsets)
    # A divergence is below 0 by rounding alone.
    return np.maximum(divergence, 0.0)


def _log_softmax(scores: Floats, item_offsets: Integers) -> Floats:
    total = reduce_rows(np.logaddexp, scores, item_offsets)
    return scores - total[row_of(item_offsets)]


def option_mass(sums: Floats, item_offsets: Integers) -> Floats:
    """Compute Σ exp S over an item's choices, float64 [items]: how likely the model says one.

    Other wordings of the answers have at most 1 - mass (Wiegreffe et al. 2023).  The sum can exceed
    1 if choices are equal or one is the start of another, because each counts in full.
    """
    return item_sum(np.exp(sums), item_offsets)


def _without(decisions: Decisions, items: Mask) -> Decisions:
    """Make the decisions about ``items`` missing."""
    return Decisions(
        prediction=np.where(items, -1, decisions.prediction),
        credit=np.where(items, np.nan, decisions.credit),
        tied=decisions.tied & ~items,
        margin=np.where(items, np.nan, decisions.margin),
    )


Credited = Callable[[Floats, Integers, Mask, str], Decisions]
"""Decides items from scores [rows], item offsets, the right rows [rows], and the tie rule."""

OUTSIDE: dict[str, Callable[[Continuations], Continuations]] = {
    "keep": _unlimited,
    "top100=-100": partial(limited, top=100, logprob=-100.0),
}
"""How tokens outside the most likely ones are scored, by the name in the protocol."""
