"""A measurement holds the scores, decisions and values of one protocol of a run."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol as Structural

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.items import BEST_AFTER_WRONG, PEOPLE, Categories, people_counts
from choicewise.errors import UsageError
from choicewise.protocols.metrics import METRICS, OPEN, SOFT, Metric
from choicewise.protocols.protocol import Protocol, Protocols
from choicewise.protocols.readings import READINGS
from choicewise.questions import Decision as DecisionQuestion
from choicewise.results.evidence import (
    TEXT_LOGLIKELIHOOD,
    Evidence,
    MissingReason,
    Reasons,
    RunEvidence,
    bytes_column,
    deciding_protocol,
    decision_column,
    lacks_column,
    measured_columns,
    reasons_column,
    sensitivity_column,
)
from choicewise.scoring.answers import UNSAID, WHY, Statuses, cut_range, is_cut
from choicewise.scoring.calibrate import (
    NOISE,
    answer_places,
    calibrated,
    calibrated_range,
    order_predictions,
)
from choicewise.scoring.combine import Decision
from choicewise.scoring.decide import (
    Decisions,
    before_wrong,
    choice_distribution,
    decided,
    decided_between,
    guess,
    mc2,
)
from choicewise.scoring.intervals import (
    AGGREGATIONS,
    FEWEST,
    GROUPS,
    Rounding,
    Value,
    clustered_error,
    credit_range,
    effective_size,
    group_means,
    number,
    stratified,
    variance_of_means,
    weighted_size,
    wilson,
)
from choicewise.scoring.observed import Floats, Integers, Lows, Mask, reduce_rows, row_of
from choicewise.scoring.probabilities import Judged, credits, if_calibrated, pooled, uniform
from choicewise.scoring.scores import LACKS


def links(measured: Measurement, temperature: float) -> tuple[Floats, Floats]:
    """Return the softmax and the winner's share of all, both float64 [rows].

    NaN for an item with a missing choice.

    An item with a choice known as an upper bound only has no softmax, and a winner if that is sure.

    Raises UsageError if the temperature is not above 0, or if there are no scores.
    """
    if measured.scores is None:
        raise UsageError(
            f"{measured.name} reads generated text, so it has no scores to turn into probabilities"
        )
    if not (math.isfinite(temperature) and temperature > 0):
        raise UsageError(
            f"temperature is {temperature}; it must be above 0 (near 0, the best choice takes all)"
        )
    offsets = measured.evidence.item_offsets
    scores = measured.known_scores
    low = measured.low_scores
    assert scores is not None
    assert low is not None
    item = row_of(offsets)
    best = reduce_rows(np.maximum, low, offsets)[item]
    undecided = (measured.decisions.missing & measured.unlisted)[item]
    # The scores of an undecided item are bounds, of which the best need not win.
    at_top = np.where(np.isnan(best) | undecided, np.nan, low == best)
    softmax = choice_distribution(scores, offsets, temperature)
    # Choices that tie at the top share the win.
    winner = at_top / reduce_rows(np.add, at_top, offsets)[item]
    return softmax, winner


def choice_probabilities(measured: Measurement, temperature: float) -> pa.Table:
    """Return the table of :meth:`choicewise.results.run.Run.distribution`.

    UsageError as :func:`links`.
    """
    softmax, winner = links(measured, temperature)
    people = human_counts(measured.evidence)
    if people is None:
        people = np.full(len(softmax), np.nan)
    columns = {
        **measured.evidence.choices,
        "score": measured.scores,
        "softmax": softmax,
        "winner": winner,
        "human": pa.array(people, pa.float64(), mask=np.isnan(people)),
    }
    return pa.table(columns, schema=_COLUMNS)


def human_counts(evidence: Evidence) -> Floats | None:
    """Return how many people chose each choice, float64 [rows]; NaN for items without counts.

    The result is None if no item has counts.  Shares of people stand for counts.  Nobody chose an
    option that a prompt adds.  Raises DataError naming the item whose counts do not match its
    choices, or whose shares do not sum to 1.
    """
    people = np.full(int(evidence.item_offsets[-1]), np.nan)
    for index, (item, fields) in enumerate(zip(evidence.ids, item_fields(evidence), strict=True)):
        if PEOPLE not in fields:
            continue
        start = int(evidence.item_offsets[index])
        size = int(evidence.item_offsets[index + 1]) - start
        counts = people_counts(item, fields[PEOPLE], size - evidence.extra_options)
        # Nobody could choose an option that the prompt adds.
        people[start : start + size] = (*counts, 0.0)[:size]
    return None if np.isnan(people).all() else people


def item_fields(evidence: Evidence) -> list[dict[str, str]]:
    """Return the further fields of every item."""
    return [json.loads(fields) for fields in evidence.fields()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Count shared items by whose credit is better, and by whether the predictions differ at all.

    ``near_ties``: items predicted differently that numeric noise leaves open on either side; None
    if unknown.
    """

    left_better: int
    right_better: int
    predicted_differently: int
    near_ties: int | None
    shared: int
    left_only: int
    right_only: int


def flips(pair: tuple[Measurement, Measurement]) -> Flips:
    """Count the shared items on which the two measurements decide differently."""
    one, other = pair
    _, (items, other_items) = shared_items(pair)
    noisy = None
    if one.bounded[items].all() and other.bounded[other_items].all():
        noisy = one.near_ties[items] | other.near_ties[other_items]
    return flips_of(pair, noisy)


def flips_of(pair: tuple[Decided, Decided], noisy: Mask | None = None) -> Flips:
    """Count the shared items on which two sides decide differently.

    ``noisy``: mark the shared items that numeric noise leaves open on either side; None if unknown.
    """
    one, other = pair
    ids, _ = shared_items(pair)
    _, (credits, other_credits) = paired_credits(pair)
    # Of a loss, less is better.
    if not METRICS[one.protocol.metric].credited:
        credits = -credits
        other_credits = -other_credits
    predictions, other_predictions = paired_predictions(pair)
    both_predict = (predictions >= 0) & (other_predictions >= 0)
    predicted_differently = both_predict & (predictions != other_predictions)
    near_ties = None
    if noisy is not None:
        near_ties = int((predicted_differently & noisy).sum())
    return Flips(
        left_better=int((credits > other_credits).sum()),
        right_better=int((credits < other_credits).sum()),
        predicted_differently=int(predicted_differently.sum()),
        near_ties=near_ties,
        shared=len(ids),
        left_only=len(one.ids) - len(ids),
        right_only=len(other.ids) - len(ids),
    )


def movement(pair: tuple[Measurement, Measurement]) -> tuple[float, int | None]:
    """Return the largest difference of a score, and how many shared items have any.

    NaN and None without scores, and if the protocols differ: then scores are not comparable.
    """
    one, other = pair
    scores = one.known_scores
    other_scores = other.known_scores
    if scores is None or other_scores is None or one.protocol != other.protocol:
        return math.nan, None
    _, (items, other_items) = shared_items(pair)
    offsets = one.evidence.item_offsets
    other_offsets = other.evidence.item_offsets
    counts = np.diff(offsets)[items]
    # Items with other numbers of choices have moved, and no score to compare.
    same_size = counts == np.diff(other_offsets)[other_items]
    counts = counts[same_size]
    left = scores[rows_of_items(offsets[:-1][items[same_size]], counts)]
    right = other_scores[rows_of_items(other_offsets[:-1][other_items[same_size]], counts)]
    # Equal infinities do not differ, though their difference is NaN.
    with np.errstate(invalid="ignore"):
        differences = np.where(left == right, 0.0, np.abs(left - right))
    moved = ~((left == right) | (np.isnan(left) & np.isnan(right)))
    item = np.repeat(np.arange(len(counts)), counts)
    moved_items = len(np.unique(item[moved])) + int((~same_size).sum())
    scored = differences[~np.isnan(differences)]
    largest = math.nan
    if len(scored):
        largest = float(scored.max())
    return largest, moved_items


UNLISTED = (
    "",
    "an answer is not among the next tokens that the server lists, so its score is only bounded",
    "no answer is among the next tokens that the server lists",
)
"""Why an item is missing, by how many of its answers are only upper bounds: none, some, all."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Hold the scores and decisions of one protocol of a run.

    ``scores``: float64, one per row of the evidence (item by item, choice by choice), or None if
    the protocol reads generated text.  ``noise``: the greatest difference between two ways of
    computing a log-likelihood on this model, in nats; None if it was not measured.  ``judged``: the
    probabilities that the metric judges.  ``categories``: those of the dataset.  ``reasons``: those
    of the run, by number.  ``item_counts``: how many items are complete, and how many the run is to
    have.  ``statuses``: the outcome of every text; None if none is read.  ``step``: to which a
    decision endpoint rounds its probabilities; None if it does not, and for other models.
    """

    name: str
    protocol: Protocol
    evidence: Evidence
    scores: Floats | None
    decisions: Decisions
    lows: Lows | None = None
    judged: Judged | None = None
    noise: float | None = None
    categories: Categories = field(default_factory=dict)
    reasons: Reasons = field(default_factory=Reasons)
    item_counts: tuple[int, int] = (0, 0)
    statuses: Statuses | None = None
    step: float | None = None

    @property
    def items(self) -> pa.Table:
        """Return the table of the items, with their ids and subjects."""
        return self.evidence.item_table

    @property
    def ids(self) -> pa.ChunkedArray:
        """Return the ids of the items."""
        return self.items["item"]

    @property
    def subjects(self) -> list[str]:
        """Return the subject of every item."""
        return self.evidence.subjects

    @property
    def metric(self) -> Metric:
        """Return the metric that the credits are of."""
        return METRICS[self.protocol.metric]

    @property
    def credit(self) -> Floats:
        """Return the credit of every item, float64 [items]; NaN if it is missing."""
        return self.decisions.credit

    @property
    def prediction(self) -> Integers:
        """Return the predicted choice of every item, int64 [items]; -1 for none."""
        return self.decisions.prediction

    def values(self, aggregation: str | None = None) -> dict[str, Value]:
        """Return the value of each group under the protocol's or another ``aggregation``."""
        name = aggregation or self.protocol.aggregation
        if self.judged is None or not self._is_pooled:
            return self._means(name)
        groups = self.groups(name)
        numbers = {}
        for group in dict.fromkeys(groups.tolist()):
            value = pooled(self.protocol.metric, self.judged, np.asarray(groups == group))
            numbers[group] = number(value, self.metric)
        return numbers

    @property
    def _is_pooled(self) -> bool:
        """Check if values are of all items together, as bits per byte and calibration errors."""
        if self.judged is None:
            return False
        return self.metric.pooled or self.judged.bytes is not None

    def groups(self, aggregation: str | None = None) -> npt.NDArray[np.object_]:
        """Return the group of every item under the protocol's or another ``aggregation``."""
        group_of = GROUPS[aggregation or self.protocol.aggregation]
        return self.evidence.groups(lambda subject: group_of(subject, self.categories))

    @property
    def overall(self) -> float:
        """Return the value under the protocol's aggregation.

        It is the mean over items if the aggregation has several groups.
        """
        if self.protocol.aggregation not in ("micro", "macro"):
            return self.values("micro")["all"].value
        (value,) = self.values().values()
        return value.value

    def extremes(self, aggregation: str | None = None) -> dict[str, tuple[float, float]]:
        """Return the lowest and highest value of each group that its uncertain answers allow.

        Numeric noise, rounding, answers known as bounds and cut answers in text make answers
        uncertain.  NaN if the noise of an item is not known and the answers do not bound the value.
        Items left undecided count here, though no value has them.
        """
        if not self._has_extremes:
            return dict.fromkeys(self.groups(aggregation).tolist(), (math.nan, math.nan))
        low, high, _ = self._range
        has_no_bounds = np.where(self.decisions.missing, np.nan, np.isnan(low))
        # A bound may be infinite, and then has no error.
        with np.errstate(invalid="ignore"):
            lows = self._group_values(low, aggregation)
            highs = self._group_values(high, aggregation)
            unknown = self._group_values(has_no_bounds, aggregation)
        extremes = {}
        for group, value in self._group_values(self.decisions.credit, aggregation).items():
            if unknown[group] > 0:
                extremes[group] = (math.nan, math.nan)
                continue
            # Undecided items can move both bounds to one side of the value.
            lowest = float(np.fmin(lows[group], value))
            highest = float(np.fmax(highs[group], value))
            extremes[group] = (lowest, highest)
        return extremes

    @property
    def _has_extremes(self) -> bool:
        """Check that bounds of the metric are known."""
        # Of probabilities, only what rounding leaves open is known.
        if self.judged is None:
            return True
        if self.step is None:
            return False
        from choicewise.scoring.rounding import BOUNDED

        return self.protocol.metric in BOUNDED and self.judged.bytes is None

    def chances(self, aggregation: str | None = None) -> dict[str, float]:
        """Return the value of each group that guessing evenly is expected to have.

        NaN if no item is scored.
        """
        expected = np.where(self.decisions.missing, np.nan, self.guesses)
        return self._group_means(expected, aggregation)

    @cached_property
    def guesses(self) -> Floats:
        """Return the credit of every item that is expected of guessing evenly, float64 [items].

        NaN if none is.
        """
        if self.judged is not None:
            return uniform(self.protocol.metric, self.judged)
        return guess(self.evidence.item_offsets, self.evidence.right, self.protocol.metric)

    def if_calibrated(self, among: Mask) -> float:
        """Return the value of items ``among`` if probabilities were right as often as they say.

        NaN if unknown.
        """
        if self.judged is None:
            return math.nan
        return if_calibrated(self.protocol.metric, self.judged, among)

    def rounding(self, among: Mask, value: float) -> Rounding | None:
        """Return what rounding does to the ``value`` of items ``among``, bool [items].

        None without rounding.
        """
        if self.step is None or self.scores is None:
            return None
        if self.judged is None or self.protocol.metric not in OPEN:
            return Rounding(self.step, 0)
        from choicewise.scoring.rounding import at_floor

        floor = at_floor(self.protocol.metric, self.judged, self.step)
        return Rounding(self.step, int((floor & among & ~self.decisions.missing).sum()), value)

    @property
    def likelihoods(self) -> bool:
        """Check that scores are made of one log-likelihood per choice, whose noise is known."""
        return READINGS[self.protocol.reading].one_likelihood

    @property
    def invalid(self) -> Mask:
        """Mark items whose generated text names none of several choices, bool [items].

        They count as wrong.
        """
        several = np.diff(self.evidence.item_offsets) > 1
        no_option = (self.decisions.prediction < 0) & ~self.decisions.missing & several
        if self.statuses is None:
            return np.zeros_like(no_option)
        return no_option & ~is_cut(self.statuses)

    @property
    def near_ties(self) -> Mask:
        """Mark items without a tie whose best choice the noise leaves open, bool [items]."""
        _, _, open_items = self._range
        near = open_items & ~self.decisions.tied & ~self.decisions.missing
        return np.asarray(near, dtype=np.bool_)

    @property
    def bounded(self) -> Mask:
        """Mark items that are missing or whose credit has known bounds, bool [items]."""
        low, _, _ = self._range
        has_bounds = ~np.isnan(low) & (self._noise_known or self.step is not None)
        return np.asarray(has_bounds | self.decisions.missing, dtype=np.bool_)

    @property
    def low_scores(self) -> Floats | None:
        """Return the lowest that each score may be, float64 [rows].

        It is the score itself unless that is an upper bound.
        """
        if self.scores is None or self.lows is None:
            return self.scores
        return self.lows.filled(self.scores)

    def unlisted_reason(self, item: int) -> str:
        """Return why upper bounds make the item at that index missing; empty if they do not."""
        return UNLISTED[int(self.evidence.unlisted(self.protocol.null)[item])]

    @cached_property
    def known_scores(self) -> Floats | None:
        """Return the scores, float64 [rows]; NaN if no more than bounds are known."""
        low = self.low_scores
        if self.scores is None or low is None:
            return None
        return np.where(low < self.scores, np.nan, self.scores)

    @property
    def unlisted(self) -> Mask:
        """Mark items with an answer known as an upper bound only, bool [items]."""
        return np.asarray(self.evidence.unlisted(self.protocol.null) > 0, dtype=np.bool_)

    def missing_reasons(self, among: Mask) -> tuple[MissingReason, ...]:
        """Return why items ``among`` (bool [items]) are missing, the most common reason first."""
        items = np.flatnonzero(self.decisions.missing & among)
        ids = self.evidence.item_table["item"]
        codes = self._reason_codes(items)
        distinct, firsts, counts = np.unique(codes, return_index=True, return_counts=True)
        examples = ids.take(pa.array(items[firsts])).to_pylist()
        reasons = []
        for code, example, count in zip(distinct.tolist(), examples, counts.tolist(), strict=True):
            reasons.append(MissingReason(self._reason_text(code), count, example))
        return tuple(sorted(reasons, key=lambda reason: -reason.count))

    def _reason_codes(self, items: Integers) -> Integers:
        """Number why ``items`` are missing, int64 [items].

        Reasons of the run count from 0.  From -1 down come the entries of :data:`LACKS`,
        :data:`UNLISTED` and WHY; -1 itself stands for none of them.
        """
        # The run's own reasons go first: without an answer, no score and no text can say more.
        codes = self.evidence.column(reasons_column(self.protocol.null, self.reasons))[items]
        lacks = lacks_column(self.protocol)
        if lacks in self.evidence:
            lacking = self.evidence.column(lacks)[items].astype(np.int64)
            codes = np.where(codes < 0, -1 - lacking, codes)
        unlisted = self.evidence.unlisted(self.protocol.null)[items].astype(np.int64)
        codes = np.where((codes == -1) & (unlisted > 0), -1 - len(LACKS) - unlisted, codes)
        if self.statuses is not None:
            statuses = self.statuses[items].astype(np.int64) % UNSAID
            codes = np.where(codes == -1, -1 - len(LACKS) - len(UNLISTED) - statuses, codes)
        return codes

    def _reason_text(self, code: int) -> str:
        if code >= 0:
            return self.reasons.text(code)
        return (*LACKS, *UNLISTED, *WHY)[-1 - code] or self._no_reason

    @property
    def _no_reason(self) -> str:
        """Return why an item is missing of which everything was observed."""
        if self.item_counts[0] < self.item_counts[1]:
            return "not complete yet; run the same command again to resume"
        if self.protocol.metric in SOFT:
            return f"the data don't record what people chose (field {PEOPLE})"
        if self.protocol.score == "none" and self.metric.of_text:
            return "the generated text has no known probability"
        if self.protocol.decision == "option-match":
            return "the generated text does not begin with an option"
        return f"the stored answers give no number for score {self.protocol.score}"

    @property
    def _noise_known(self) -> bool:
        return self.noise is not None and self.likelihoods and self.metric.predicted

    @cached_property
    def _range(self) -> tuple[Floats, Floats, Mask]:
        """Return the lowest and highest credit of each item; mark items whose best is open."""
        none_open = np.zeros(len(self.decisions.credit), dtype=np.bool_)
        if self.step is not None and self.scores is not None:
            from choicewise.scoring.rounding import rounded_bounds, top_bounds

            if self.judged is None:
                offsets = self.evidence.item_offsets
                return top_bounds(self.scores, offsets, self.evidence.right, self.step)
            low, high = rounded_bounds(self.protocol.metric, self.judged, self.step)
            return low, high, none_open
        if self.statuses is not None:
            low, high = cut_range(self.statuses, self.credit)
            return low, high, none_open
        has_lows = self.lows is not None and len(self.lows.places) > 0 and self.metric.predicted
        if self.scores is None or not (self._noise_known or has_lows):
            unknown = np.full(len(self.decisions.credit), np.nan)
            return unknown, unknown, none_open
        epsilon = np.zeros(len(self.scores))
        if self.noise is not None and self._noise_known:
            protocol = self.protocol
            column = sensitivity_column(protocol.score, protocol.null, protocol.outside)
            epsilon = NOISE[protocol.calibration] * self.noise * self.evidence.column(column)
        return credit_range(
            self.scores,
            self.evidence.item_offsets,
            self.evidence.right,
            self.decisions,
            epsilon,
            self.low_scores,
        )

    def _means(self, aggregation: str) -> dict[str, Value]:
        means = AGGREGATIONS[aggregation](
            self.decisions, self.evidence.subjects, self.categories, self.metric.counted
        )
        return {group: number(mean, self.metric) for group, mean in means.items()}

    def _group_values(self, credit: Floats, aggregation: str | None) -> dict[str, float]:
        """Return the value of each group if its items had this ``credit``, float64 [items]."""
        if self._is_pooled:
            return {group: value.value for group, value in self.values(aggregation).items()}
        return self._group_means(credit, aggregation)

    def _group_means(self, credit: Floats, aggregation: str | None) -> dict[str, float]:
        means = group_means(
            aggregation or self.protocol.aggregation,
            credit,
            self.evidence.subjects,
            self.categories,
        )
        if not self.metric.exponential:
            return means
        with np.errstate(over="ignore"):
            return {group: float(np.exp(-mean)) for group, mean in means.items()}


def measure(
    protocols: Protocols,
    evidence: RunEvidence,
    noise: float | None,
    categories: Categories,
) -> dict[str, Measurement]:
    """Return a measurement per protocol, by name; the run is read once for all of them."""
    observed = evidence.gather(measured_columns(protocols.values(), noise, evidence.reasons))
    decided_by = {}
    for name, protocol in protocols.items():
        decided_by[name] = _decision(protocol, observed[protocol.prompt_digest])
    # Any share may be the one that shows to how many digits an endpoint rounds.
    shares: list[float] = []
    for name, protocol in protocols.items():
        scores, *_ = decided_by[name]
        if _states_shares(protocol) and scores is not None:
            shares += np.exp(np.unique(scores)).tolist()
    step = None
    if shares:
        from choicewise.scoring.rounding import rounding_step

        step = rounding_step(shares)
    measured = {}
    for name, protocol in protocols.items():
        read = observed[protocol.prompt_digest]
        scores, decisions, lows, statuses = decided_by[name]
        if protocol.metric == "mc2-split":
            decisions = _in_file_order(protocol, read, scores, decisions)
        decisions, judged = _judged(protocol, read, scores, decisions, lows)
        step_of_protocol = None
        if _states_shares(protocol):
            step_of_protocol = step
        measured[name] = Measurement(
            name=name,
            protocol=protocol,
            evidence=read,
            scores=scores,
            decisions=decisions,
            lows=lows,
            judged=judged,
            noise=noise,
            categories=categories,
            reasons=evidence.reasons,
            item_counts=evidence.count_items(protocol),
            statuses=statuses,
            step=step_of_protocol,
        )
    return measured


def _states_shares(protocol: Protocol) -> bool:
    """Check if a decision endpoint states the probabilities, which it may round."""
    return DecisionQuestion in READINGS[protocol.reading].needs


def interval(name: str, credit: Floats, subjects: Sequence[str], macro: bool) -> _Bounds:
    """Return the interval of that name for the mean ``credit`` of scored items of ``subjects``.

    NaN without items.

    ``macro``: for the mean of the subjects' means.  ``clustered`` takes the subjects as drawn at
    random, the other two take them as given; it is NaN for fewer than
    :data:`choicewise.scoring.intervals.FEWEST` subjects.
    """
    if not len(credit):
        return math.nan, math.nan
    numbers = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)[1]
    sizes = np.bincount(numbers)
    if name == "clustered":
        if len(sizes) < FEWEST:
            return math.nan, math.nan
        most = float(len(credit))
        clusters = subjects
        if macro:
            # Every mean of a subject is a cluster of its own.
            credit = np.bincount(numbers, weights=credit) / sizes
            clusters = [str(subject) for subject in range(len(sizes))]
            most = weighted_size(sizes)
        error = clustered_error(credit, clusters)
        cluster_mean = float(credit.mean())
        n = effective_size(cluster_mean, error.se**2, most)
        # Wilson's interval at the effective size, with the t quantile.
        return wilson(cluster_mean, n, freedom=error.freedom)
    if not macro:
        return of_items(name, float(credit.sum()), len(credit))
    rights = np.bincount(numbers, weights=credit).astype(np.float64)
    if name == "wilson":
        return stratified(rights, sizes)
    mean = float((rights / sizes).mean())
    n = effective_size(mean, variance_of_means(rights, sizes), weighted_size(sizes))
    return _beta(mean * n, n)


def of_items(name: str, right: float, n: int) -> _Bounds:
    """Return the interval of that name for the mean of ``n`` items with the credit ``right``.

    ``name``: ``wilson`` or ``beta-binomial``.
    """
    if name == "wilson":
        return wilson(right / n, n)
    # Ties make halves and thirds of a right answer: the interval holds those of the whole numbers
    # around it.
    total = round(float(right), 9)
    low, _ = _beta(math.floor(total), n)
    _, high = _beta(math.ceil(total), n)
    return low, high


def check_clusters(data: str, groups: Sequence[str], subjects: Sequence[str]) -> None:
    """Raise UsageError if no row of a report on ``data`` can have a clustered interval.

    ``groups`` and ``subjects`` are those of every item; a row is about a group.
    """
    counts = Counter(group for group, _ in set(zip(groups, subjects, strict=True)))
    most = max(counts.values(), default=0)
    if most >= FEWEST:
        return
    noun = "subject" if most == 1 else "subjects"
    raise UsageError(
        f"no row on {data} has more than {most} {noun}; with fewer than {FEWEST}, a "
        "clustered interval would be too small. Use wilson or beta-binomial"
    )


class Decided(Structural):
    """Hold what a protocol decided of every item: a measurement, or what is kept of one."""

    @property
    def protocol(self) -> Protocol:
        """Return the protocol."""

    @property
    def items(self) -> pa.Table:
        """Return the table of the items, with their ids and subjects."""

    @property
    def ids(self) -> pa.ChunkedArray:
        """Return the ids of the items."""

    @property
    def credit(self) -> Floats:
        """Return the credit of every item; NaN if it is missing."""

    @property
    def prediction(self) -> Integers:
        """Return the predicted choice of every item; -1 for none."""


def same_items(one: Decided, other: Decided) -> bool:
    """Check that both have the same items in the same order."""
    # A table makes its columns anew each time, so the tables tell that two sides share them.
    return one.items is other.items or one.ids.equals(other.ids)


def shared_items(measured: Sequence[Decided]) -> tuple[pa.ChunkedArray, list[Integers]]:
    """Return the ids of the items that all of ``measured`` hold, and their indices in each.

    They have the order of the first.
    """
    first = measured[0]
    # The usual case, and quick.
    if all(same_items(first, other) for other in measured):
        return first.ids, [np.arange(len(first.ids))] * len(measured)
    indices = []
    for decided_items in measured:
        positions = pc.index_in(first.ids, decided_items.ids)
        indices.append(pc.fill_null(positions, -1).to_numpy().astype(np.int64))
    shared = np.flatnonzero(np.all([index >= 0 for index in indices], axis=0))
    return first.ids.take(pa.array(shared)), [index[shared] for index in indices]


def paired_credits(measured: Sequence[Decided]) -> tuple[Integers, Floats]:
    """Return the numbers of the subjects of the shared items, and their credits.

    The numbers are those of :func:`encoded_subjects` of the first of ``measured``, int64 [items];
    the credits are float64 [measured, items], NaN for missing.
    """
    _, indices = shared_items(measured)
    credits = [one.credit[items] for one, items in zip(measured, indices, strict=True)]
    subjects = subject_codes(measured[0].items)
    return subjects[indices[0]], np.array(credits).reshape(len(measured), -1)


def encoded_subjects(items: pa.Table) -> pa.DictionaryArray:
    """Return the subject of every item of a table, as a number of one of its subjects."""
    subjects = items["subject"].combine_chunks()
    if isinstance(subjects, pa.DictionaryArray):
        return subjects
    return subjects.dictionary_encode()


def subject_codes(items: pa.Table) -> Integers:
    """Return the number of the subject of every item of a table, int64 [items]."""
    codes = encoded_subjects(items).indices.to_numpy(zero_copy_only=False)
    return np.asarray(codes, dtype=np.int64)


def scored_by_all(credits: Floats) -> Floats:
    """Return the credits of the items without a missing one, float64 [measured, items]."""
    is_scored = ~np.isnan(credits).any(axis=0)
    # The usual case, in which nothing is copied.
    if is_scored.all():
        return credits
    return credits[:, is_scored]


def paired_predictions(measured: Sequence[Decided]) -> Integers:
    """Return the predictions for the shared items, int64 [measured, items]; -1 for none."""
    _, indices = shared_items(measured)
    predictions = [one.prediction[items] for one, items in zip(measured, indices, strict=True)]
    return np.array(predictions).reshape(len(measured), -1)


def rows_of_items(starts: Integers, counts: Integers) -> Integers:
    """Return the rows of items that begin at ``starts`` and have ``counts`` rows."""
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


_COLUMNS = pa.schema(
    {"item": pa.string(), "subject": pa.string(), "choice": pa.int16()}
    | dict.fromkeys(("score", "softmax", "winner", "human"), pa.float64())
)


def _decision(protocol: Protocol, read: Evidence) -> Decision:
    if protocol.calibration == "none":
        return read.column(decision_column(protocol))
    protocol = deciding_protocol(protocol)
    offsets = read.item_offsets
    if not read.unlisted(protocol.null).any():
        scores = calibrated(protocol.calibration, protocol.views, read.part_sums, offsets)
        decisions = decided(protocol, scores, offsets, read.right)
        return scores, decisions, Lows.of(scores, scores), None
    parts = (read.part_lows, read.part_sums)
    low, high = calibrated_range(protocol.calibration, protocol.views, parts, offsets)
    decisions = decided_between(protocol, (low, high), offsets, read.right)
    return high, decisions, Lows.of(low, high), None


def _in_file_order(
    protocol: Protocol, read: Evidence, scores: Floats | None, decisions: Decisions
) -> Decisions:
    """Return the decisions of metric mc2-split.

    It counts the right choices before the first wrong one of the file.  The best answer was made
    the first choice; if it is after a wrong one in the file, it does not count.
    """
    moved = [BEST_AFTER_WRONG in fields for fields in item_fields(read)]
    if scores is None or not any(moved):
        return decisions
    counted = before_wrong(read.right, read.item_offsets)
    counted[read.item_offsets[:-1][moved]] = False
    present = np.where(decisions.missing[row_of(read.item_offsets)], np.nan, scores)
    return mc2(present, read.item_offsets, counted, protocol.ties)


def _judged(
    protocol: Protocol,
    read: Evidence,
    scores: Floats | None,
    decisions: Decisions,
    lows: Lows | None,
) -> tuple[Decisions, Judged | None]:
    """Return the decisions with the credits of the metric, and the probabilities it judges.

    None if it judges no probabilities.
    """
    metric = METRICS[protocol.metric]
    if scores is None and metric.of_text:
        # The confidence of an answer in text is the probability of the text.
        judged = Judged(
            scores=np.full(int(read.item_offsets[-1]), np.nan),
            item_offsets=read.item_offsets,
            right=read.right,
            prediction=decisions.prediction,
            hit=decisions.credit,
            text_probability=np.exp(read.column(TEXT_LOGLIKELIHOOD)),
        )
        return replace(decisions, credit=credits(protocol.metric, judged)), judged
    if scores is None or not metric.probable:
        return decisions, None
    exact = scores
    if lows is not None:
        # A bound is no score that a probability could be made of.
        exact = np.where(lows.filled(scores) < scores, np.nan, scores)
    orders = None
    letters = None
    if metric.orders:
        orders = order_predictions(
            protocol.views, read.part_sums, read.item_offsets, read.part_lows
        )
        letters = answer_places(protocol.views, orders, read.item_offsets)
    soft = None
    if protocol.metric in SOFT:
        soft = human_counts(read)
    byte_counts = None
    if protocol.aggregation == "bytes":
        byte_counts = read.column(bytes_column(protocol))
    judged = Judged(
        scores=exact,
        item_offsets=read.item_offsets,
        right=read.right,
        prediction=decisions.prediction,
        hit=decisions.credit,
        golds=protocol.golds,
        temperature=float(protocol.temperature),
        soft=soft,
        orders=orders,
        letters=letters,
        bytes=byte_counts,
    )
    return replace(decisions, credit=credits(protocol.metric, judged)), judged


_Bounds = tuple[float, float]
"""(low, high) at 95 %."""


def _beta(right: float, n: float) -> _Bounds:
    """Return the 95 % interval of Beta(right + 1, wrong + 1), the posterior under a uniform prior.

    Recommended for benchmarks of a few hundred items or fewer (Bowyer et al. 2025).
    """
    from scipy.special import betaincinv

    low = float(betaincinv(right + 1, n - right + 1, 0.025))
    high = float(betaincinv(right + 1, n - right + 1, 0.975))
    return low, high
