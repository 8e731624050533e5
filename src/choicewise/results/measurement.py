"""What one protocol makes of a run: scores, decisions, values with their intervals, and pairs of these."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol as Structural

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.items import BEST_AFTER_WRONG, PEOPLE, Categories, people_counts
from choicewise.errors import UsageError
from choicewise.protocols.metrics import METRICS, SOFT, Metric
from choicewise.protocols.protocol import Protocol
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
    Value,
    clustered_error,
    credit_range,
    effective_size,
    number,
    stratified,
    variance_of_means,
    weighted_size,
    wilson,
)
from choicewise.scoring.observed import Floats, Integers, Lows, Mask, reduce_rows, row_of
from choicewise.scoring.probabilities import Judged, credits, if_calibrated, pooled, uniform
from choicewise.scoring.rounding import (
    BOUNDED,
    OPEN,
    Rounding,
    at_floor,
    rounded_bounds,
    rounding_step,
    top_bounds,
)
from choicewise.scoring.scores import LACKS


def links(measured: Measurement, temperature: float) -> tuple[Floats, Floats]:
    """(softmax, winner takes all), both float64 [rows]; NaN for an item with a missing choice.

    An item with a choice that is known as an upper bound alone has no softmax, and a winner where that is sure.

    Raises UsageError when the temperature is not above 0, or when there are no scores.
    """
    if measured.scores is None:
        raise UsageError(
            f"{measured.name} reads generated text and has no scores to make probabilities of"
        )
    if not (math.isfinite(temperature) and temperature > 0):
        raise UsageError(
            f"temperature is {temperature}; it must be above 0 (near 0, the best choice takes all)"
        )
    offsets, scores, low = (
        measured.evidence.item_offsets,
        measured.known_scores,
        measured.low_scores,
    )
    assert scores is not None
    assert low is not None
    item = row_of(offsets)
    best = reduce_rows(np.maximum, low, offsets)[item]
    undecided = (measured.decisions.missing & measured.unlisted)[item]
    at_top = np.where(np.isnan(best) | undecided, np.nan, low == best)
    return choice_distribution(scores, offsets, temperature), at_top / reduce_rows(
        np.add, at_top, offsets
    )[item]


def choice_probabilities(measured: Measurement, temperature: float) -> pa.Table:
    """The table of :meth:`choicewise.results.run.Run.distribution`; UsageError as :func:`links`."""
    softmax, winner = links(measured, temperature)
    people = human_counts(measured.evidence)
    count = np.full(len(softmax), np.nan) if people is None else people
    numbers = {"score": measured.scores, "softmax": softmax, "winner": winner}
    human = pa.array(count, pa.float64(), mask=np.isnan(count))
    return pa.table({**measured.evidence.choices, **numbers, "human": human}, schema=_COLUMNS)


def human_counts(evidence: Evidence) -> Floats | None:
    """How many people chose each choice, float64 [rows], NaN for items without counts; None when no item has any.

    Shares of people stand for counts.  Nobody chose an option that a prompt adds.  Raises DataError naming the item
    whose counts do not match its choices, or whose shares do not sum to 1.
    """
    people = np.full(int(evidence.item_offsets[-1]), np.nan)
    for place, (item, fields) in enumerate(zip(evidence.ids, item_fields(evidence), strict=True)):
        if PEOPLE in fields:
            start, end = evidence.item_offsets[place], evidence.item_offsets[place + 1]
            counts, own = (
                people_counts(item, fields[PEOPLE], int(end - start) - evidence.more),
                int(end - start),
            )
            people[start:end] = (*counts, 0.0)[:own]
    return None if np.isnan(people).all() else people


def item_fields(evidence: Evidence) -> list[dict[str, str]]:
    """The further fields of every item."""
    return [json.loads(fields) for fields in evidence.fields()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Shared items by whose credit is better, and by whether the predictions differ at all.

    ``near_ties``: items predicted differently that numeric noise leaves open on either side; None: not known.
    """

    left_better: int
    right_better: int
    predicted_differently: int
    near_ties: int | None
    shared: int
    left_only: int
    right_only: int


def flips(pair: tuple[Measurement, Measurement]) -> Flips:
    """The shared items on which the two measurements decide differently."""
    ids, places = shared_items(pair)
    left, right = paired_predictions(pair)
    _, credits = paired_credits(pair)
    different = (left >= 0) & (right >= 0) & (left != right)
    noisy = pair[0].near_ties[places[0]] | pair[1].near_ties[places[1]]
    better = credits if pair[0].metric.credited else -credits
    masks = (better[0] > better[1], better[0] < better[1], different, different & noisy)
    bounded = all(side.bounded[place].all() for side, place in zip(pair, places, strict=True))
    left_better, right_better, changed, near_ties = (int(mask.sum()) for mask in masks)
    left_only, right_only = (len(side.ids) - len(ids) for side in pair)
    return Flips(
        left_better=left_better,
        right_better=right_better,
        predicted_differently=changed,
        near_ties=near_ties if bounded else None,
        shared=len(ids),
        left_only=left_only,
        right_only=right_only,
    )


def movement(pair: tuple[Measurement, Measurement]) -> tuple[float, int | None]:
    """The largest difference of a score, and how many shared items have any; NaN and None where there are no scores.

    Scores of different protocols are not comparable: NaN and None as well.
    """
    left, right = (each.known_scores for each in pair)
    if left is None or right is None or pair[0].protocol != pair[1].protocol:
        return math.nan, None
    _, places = shared_items(pair)
    offsets = [each.evidence.item_offsets for each in pair]
    counts = [np.diff(each)[place] for each, place in zip(offsets, places, strict=True)]
    alike = counts[0] == counts[1]
    rows = [
        rows_of_items(own[:-1][place[alike]], counts[0][alike])
        for own, place in zip(offsets, places, strict=True)
    ]
    one, other = left[rows[0]], right[rows[1]]
    with np.errstate(invalid="ignore"):  # equal infinities do not differ
        differences = np.where(one == other, 0.0, np.abs(one - other))
    known = differences[~np.isnan(differences)]
    moved = ~((one == other) | (np.isnan(one) & np.isnan(other)))
    item = np.repeat(np.arange(alike.sum()), counts[0][alike])
    return float(known.max()) if len(known) else math.nan, len(np.unique(item[moved])) + int(
        (~alike).sum()
    )


UNLISTED = (
    "",
    "an answer is not among the likeliest next tokens that the server lists: the score is known as a bound alone",
    "none of the answers is among the likeliest next tokens that the server lists",
)
"""Why an item is missing that has answers known as upper bounds alone, by how many of them: none, some, all."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one protocol makes of a run.

    ``scores``: float64, one per row of the evidence (item by item, choice by choice), or None where the protocol reads
    generated text.  ``noise``: the greatest difference between two ways of computing a log-likelihood on this model, in
    nats; None where it was not measured.  ``judged``: what a metric of probabilities looks at.  ``categories``: the
    dataset's.  ``reasons``: the run's, by number.  ``asked``: how many items were asked, and how many the run has to
    ask.  ``statuses``: what became of every text; None where none is read.  ``step``: to which a decision endpoint
    rounds its probabilities; None where it does not, and for other models.
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
    def ids(self) -> pa.ChunkedArray:
        """The items' ids."""
        return self.evidence.item_table["item"]

    @property
    def subjects(self) -> list[str]:
        """The subject of every item."""
        return self.evidence.subjects

    @property
    def metric(self) -> Metric:
        """What is made of the credits."""
        return METRICS[self.protocol.metric]

    @property
    def credit(self) -> Floats:
        """The credit of every item, float64, NaN where it is missing."""
        return self.decisions.credit

    @property
    def prediction(self) -> Integers:
        """The predicted choice of every item, int64, -1 for none."""
        return self.decisions.prediction

    def values(self, aggregation: str | None = None) -> dict[str, Value]:
        """Group name → value under the protocol's own aggregation, or another one by name."""
        return self._values(self.decisions, aggregation)

    def groups(self, aggregation: str | None = None) -> npt.NDArray[np.object_]:
        """The group of every item under the protocol's own aggregation, or another one by name."""
        known = GROUPS[aggregation or self.protocol.aggregation]
        return self.evidence.groups(lambda subject: known(subject, self.categories))

    @property
    def overall(self) -> float:
        """The one value under the protocol's own aggregation; the mean over items where that has several groups."""
        if self.protocol.aggregation in ("micro", "macro"):
            return next(iter(self.values().values())).value
        return self.values("micro")["all"].value

    def extremes(self, aggregation: str | None = None) -> dict[str, tuple[float, float]]:
        """Group name → the lowest and highest value that numeric noise, rounding and answers known as bounds allow.

        NaN where the noise of an item is not known, unless there are such answers: then it is what they allow, as it is
        of answers in text that were cut.  Items that they leave undecided count here, though no value has them.
        """
        judged = self.judged
        if judged is not None and (
            self.step is None or self.protocol.metric not in BOUNDED or judged.bytes is not None
        ):
            return dict.fromkeys(self.groups(aggregation).tolist(), (math.nan, math.nan))
        low, high, _ = self._range
        credits = (low, high, np.where(self.decisions.missing, np.nan, np.isnan(low)))
        with np.errstate(invalid="ignore"):  # a bound may be infinite, and then has no error
            lows, highs, unknown = (
                self._values(replace(self.decisions, credit=each), aggregation) for each in credits
            )
        values = self._values(self.decisions, aggregation)
        bounds = {
            group: (
                float(np.fmin(lows[group].value, value)),
                float(np.fmax(highs[group].value, value)),
            )
            for group, value in ((group, each.value) for group, each in values.items())
        }
        return {
            group: (np.nan, np.nan) if unknown[group].value > 0 else bounds[group]
            for group in bounds
        }

    def chances(self, aggregation: str | None = None) -> dict[str, float]:
        """Group name → the value that guessing evenly is expected to have; NaN where no item is scored."""
        expected = replace(
            self.decisions, credit=np.where(self.decisions.missing, np.nan, self.guesses)
        )
        means = self._means(expected, aggregation or self.protocol.aggregation)
        return {group: each.value for group, each in means.items()}

    @cached_property
    def guesses(self) -> Floats:
        """The credit of every item that is expected of guessing evenly, float64 [items]; NaN where nothing is."""
        if self.judged is not None:
            return uniform(self.protocol.metric, self.judged)
        return guess(self.evidence.item_offsets, self.evidence.right, self.protocol.metric)

    def if_calibrated(self, among: Mask) -> float:
        """The value of items ``among`` if each answer were right as often as its probability says; NaN if unknown."""
        return (
            math.nan
            if self.judged is None
            else if_calibrated(self.protocol.metric, self.judged, among)
        )

    def rounding(self, among: Mask, value: float) -> Rounding | None:
        """What an endpoint's rounding does to the ``value`` of items ``among``, bool [items]; None without any."""
        if self.step is None or self.scores is None:
            return None
        if self.judged is None or self.protocol.metric not in OPEN:
            return Rounding(self.step, 0)
        floor = at_floor(self.protocol.metric, self.judged, self.step)
        return Rounding(self.step, int((floor & among & ~self.decisions.missing).sum()), value)

    @property
    def likelihoods(self) -> bool:
        """Whether the scores are made of one log-likelihood of each choice, whose noise is known."""
        return READINGS[self.protocol.reading].one_likelihood

    @property
    def invalid(self) -> Mask:
        """Items of several choices whose generated text names none, and which count as wrong, bool [items]."""
        several = np.diff(self.evidence.item_offsets) > 1
        no_option = (self.decisions.prediction < 0) & ~self.decisions.missing & several
        return (
            np.zeros_like(no_option)
            if self.statuses is None
            else no_option & ~is_cut(self.statuses)
        )

    @property
    def near_ties(self) -> Mask:
        """Items without a tie more than one choice of which could be the best within the noise, bool [items]."""
        return np.asarray(
            self._range[2] & ~self.decisions.tied & ~self.decisions.missing, dtype=np.bool_
        )

    @property
    def bounded(self) -> Mask:
        """Items whose credit is known to stay within bounds, and those that are missing, bool [items]."""
        known = ~np.isnan(self._range[0]) & (self._noise_known or self.step is not None)
        return np.asarray(known | self.decisions.missing, dtype=np.bool_)

    @property
    def low_scores(self) -> Floats | None:
        """The lowest that each score may be, float64 [rows]: the score itself but for upper bounds."""
        return (
            self.scores
            if self.scores is None or self.lows is None
            else self.lows.filled(self.scores)
        )

    def unlisted_reason(self, place: int) -> str:
        """Why the item at that place is missing, where it is because answers are known as upper bounds alone."""
        return UNLISTED[int(self.evidence.unlisted(self.protocol.null)[place])]

    @cached_property
    def known_scores(self) -> Floats | None:
        """The scores, float64 [rows]: NaN where no more than bounds are known."""
        low = self.low_scores
        return (
            None
            if self.scores is None or low is None
            else np.where(low < self.scores, np.nan, self.scores)
        )

    @property
    def unlisted(self) -> Mask:
        """Items of which an answer is known as an upper bound alone, bool [items]."""
        return np.asarray(self.evidence.unlisted(self.protocol.null) > 0, dtype=np.bool_)

    def missing_reasons(self, among: Mask) -> tuple[MissingReason, ...]:
        """Why items ``among`` (bool [items]) are missing, the most common reason first."""
        places = np.flatnonzero(self.decisions.missing & among)
        numbers = self.evidence.column(reasons_column(self.protocol.null, self.reasons))[places]
        lacks = lacks_column(self.protocol)
        if lacks in self.evidence:
            codes = self.evidence.column(lacks)[places].astype(np.int64)
            numbers = np.where(numbers < 0, -1 - codes, numbers)
        unlisted = self.evidence.unlisted(self.protocol.null)[places].astype(np.int64)
        numbers = np.where((numbers == -1) & (unlisted > 0), -1 - len(LACKS) - unlisted, numbers)
        if self.statuses is not None:
            told = -1 - len(LACKS) - len(UNLISTED) - self.statuses[places].astype(np.int64) % UNSAID
            numbers = np.where(numbers == -1, told, numbers)
        known, first, counts = np.unique(numbers, return_index=True, return_counts=True)
        ids = self.evidence.item_table["item"]
        reasons = [
            MissingReason(
                self.reasons.text(number)
                if number >= 0
                else (*LACKS, *UNLISTED, *WHY)[-1 - number] or self._no_reason,
                count,
                ids[int(places[place])].as_py(),
            )
            for number, place, count in zip(
                known.tolist(), first.tolist(), counts.tolist(), strict=True
            )
        ]
        return tuple(sorted(reasons, key=lambda reason: -reason.count))

    @property
    def _no_reason(self) -> str:
        """Why an item is missing of which everything was observed."""
        if self.item_counts[0] < self.item_counts[1]:
            return "not asked in full yet; run the same command again to resume"
        if self.protocol.metric in SOFT:
            return f"the data says of no person what they chose (field {PEOPLE})"
        if self.protocol.score == "none" and self.metric.of_text:
            return "nobody says how likely the text is that the model wrote"
        if self.protocol.decision == "option-match":
            return "the generated text begins with no option"
        return f"what was observed gives no number for score {self.protocol.score}"

    @property
    def _noise_known(self) -> bool:
        return self.noise is not None and self.likelihoods and self.metric.predicted

    @cached_property
    def _range(self) -> tuple[Floats, Floats, Mask]:
        if self.step is not None and self.scores is not None:
            if self.judged is not None:
                return *rounded_bounds(self.protocol.metric, self.judged, self.step), np.zeros_like(
                    self.decisions.missing
                )
            return top_bounds(
                self.scores, self.evidence.item_offsets, self.evidence.right, self.step
            )
        if self.statuses is not None:
            return *cut_range(self.statuses, self.credit), np.zeros(
                len(self.statuses), dtype=np.bool_
            )
        bounds = self.lows is not None and len(self.lows.places) > 0 and self.metric.predicted
        if self.scores is None or not (self._noise_known or bounds):
            unknown = np.full(len(self.decisions.credit), np.nan)
            return unknown, unknown, np.zeros(len(unknown), dtype=np.bool_)
        epsilon = self._epsilon if self._noise_known else np.zeros(len(self.scores))
        low = self.low_scores
        rows = self.scores, self.evidence.item_offsets, self.evidence.right
        return credit_range(*rows, self.decisions, epsilon, low)

    @property
    def _epsilon(self) -> Floats:
        """How far noise moves each score, float64 [rows]; NaN where not known."""
        axes = self.protocol
        assert self.noise is not None
        epsilon = (
            NOISE[axes.calibration]
            * self.noise
            * self.evidence.sensitivity(axes.score, axes.null, axes.outside)
        )
        return np.asarray(epsilon, dtype=np.float64)

    def _values(self, decisions: Decisions, aggregation: str | None) -> dict[str, Value]:
        name = aggregation or self.protocol.aggregation
        if self.judged is not None and (self.metric.pooled or self.judged.bytes is not None):
            return self._pooled(self.judged, name)
        return self._means(decisions, name)

    def _means(self, decisions: Decisions, aggregation: str) -> dict[str, Value]:
        means = AGGREGATIONS[aggregation](
            decisions, self.evidence.subjects, self.categories, self.metric.counted
        )
        return {group: number(mean, self.metric) for group, mean in means.items()}

    def _pooled(self, judged: Judged, aggregation: str) -> dict[str, Value]:
        """The numbers that groups of items have together."""
        names = self.groups(aggregation)
        each = dict.fromkeys(names.tolist())
        values = {
            name: pooled(self.protocol.metric, judged, np.asarray(names == name)) for name in each
        }
        return {group: number(value, self.metric) for group, value in values.items()}


def measure(
    protocols: Mapping[str, Protocol],
    evidence: RunEvidence,
    noise: float | None,
    categories: Categories,
) -> dict[str, Measurement]:
    """One measurement per protocol, by name; the run is read once for all of them."""
    observed = evidence.gather(measured_columns(protocols.values(), noise, evidence.reasons))
    measured, decided_by = (
        {},
        {name: _decision(each, observed[each.prompt_digest]) for name, each in protocols.items()},
    )
    asked = {
        name for name, each in protocols.items() if DecisionQuestion in READINGS[each.reading].needs
    }
    told = (scores for name in asked if (scores := decided_by[name][0]) is not None)
    step = rounding_step(share for scores in told for share in np.exp(np.unique(scores)).tolist())
    for name, protocol in protocols.items():
        read = observed[protocol.prompt_digest]
        scores, decisions, lows, statuses = decided_by[name]
        if protocol.metric == "mc2-split":
            decisions = _in_file_order(protocol, read, scores, decisions)
        decisions, judged = _judged(protocol, read, scores, decisions, lows)
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
            step=step if name in asked else None,
        )
    return measured


def interval(name: str, credit: Floats, subjects: Sequence[str], macro: bool) -> _Bounds:
    """The interval of that name for the mean ``credit`` of scored items of these ``subjects``; NaN without items.

    ``macro``: for the mean of the subjects' means.  ``clustered`` takes the subjects as drawn at random, the other two
    take them as given; it is NaN for fewer than :data:`~.clustered.FEWEST` subjects.
    """
    if not len(credit):
        return math.nan, math.nan
    numbers = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)[1]
    sizes = np.bincount(numbers)
    if name == "clustered":
        return _clustered(credit, subjects, numbers, sizes, macro)
    if not macro:
        return of_items(name, float(credit.sum()), len(credit))
    rights = np.bincount(numbers, weights=credit).astype(np.float64)
    if name == "wilson":
        return stratified(rights, sizes)
    mean = float((rights / sizes).mean())
    n = effective_size(mean, variance_of_means(rights, sizes), weighted_size(sizes))
    return _beta(mean * n, n)


def of_items(name: str, right: float, n: int) -> _Bounds:
    """The interval ``wilson`` or ``beta-binomial`` for the mean of ``n`` items with so much credit together."""
    return wilson(right / n, n) if name == "wilson" else _posterior(right, n)


def check_clusters(data: str, groups: Sequence[str], subjects: Sequence[str]) -> None:
    """UsageError where no row of a report on ``data`` can have a clustered interval.

    ``groups`` and ``subjects``: those of every item; a row is about a group.
    """
    counts = Counter(group for group, _ in set(zip(groups, subjects, strict=True)))
    most = max(counts.values(), default=0)
    if most < FEWEST:
        raise UsageError(
            f"no row on {data} is about more than {most} {'subject' if most == 1 else 'subjects'}; clustered by fewer "
            f"than {FEWEST}, the interval would come out too small; take wilson or beta-binomial"
        )


class Decided(Structural):
    """What a protocol decided of every item: a measurement, or what is kept of one."""

    @property
    def ids(self) -> pa.ChunkedArray:
        """The items' ids."""

    @property
    def subjects(self) -> list[str]:
        """The subject of every item."""

    @property
    def credit(self) -> Floats:
        """The credit of every item, NaN where it is missing."""

    @property
    def prediction(self) -> Integers:
        """The predicted choice of every item, -1 for none."""


def same_items(one: Decided, other: Decided) -> bool:
    """Whether both have the same items in the same order."""
    return one.ids is other.ids or one.ids.equals(other.ids)


def shared_items(measured: Sequence[Decided]) -> tuple[pa.ChunkedArray, list[Integers]]:
    """The ids of the items all of ``measured`` hold, in the order of the first, and where each measurement has them."""
    first = measured[0]
    if all(same_items(first, each) for each in measured):  # the usual case, and quick
        return first.ids, [np.arange(len(first.ids))] * len(measured)
    places = [
        pc.fill_null(pc.index_in(first.ids, each.ids), -1).to_numpy().astype(np.int64)
        for each in measured
    ]
    shared = np.flatnonzero(np.all([place >= 0 for place in places], axis=0))
    return first.ids.take(pa.array(shared)), [place[shared] for place in places]


def paired_credits(measured: Sequence[Decided]) -> tuple[list[str], Floats]:
    """The subjects and credits of the shared items, the latter float64 [measured, items] with NaN for missing."""
    _, places = shared_items(measured)
    credits = [each.credit[place] for each, place in zip(measured, places, strict=True)]
    subjects = measured[0].subjects
    return [subjects[place] for place in places[0].tolist()], np.array(credits).reshape(
        len(measured), -1
    )


def paired_predictions(measured: Sequence[Decided]) -> Integers:
    """The predictions for the shared items, int64 [measured, items] with -1 for none."""
    _, places = shared_items(measured)
    predictions = [each.prediction[place] for each, place in zip(measured, places, strict=True)]
    return np.array(predictions).reshape(len(measured), -1)


def rows_of_items(starts: Integers, counts: Integers) -> Integers:
    """The rows of items that begin at ``starts`` and have so many each."""
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


_COLUMNS = pa.schema(
    {"item": pa.string(), "subject": pa.string(), "choice": pa.int16()}
    | dict.fromkeys(("score", "softmax", "winner", "human"), pa.float64())
)


def _decision(protocol: Protocol, read: Evidence) -> Decision:
    if protocol.calibration == "none":
        return read.column(decision_column(protocol))
    protocol = deciding_protocol(protocol)
    how, offsets = (protocol.calibration, protocol.views), read.item_offsets
    if not read.unlisted(protocol.null).any():
        scores = calibrated(*how, read.part_sums, offsets)
        return scores, decided(protocol, scores, offsets, read.right), Lows.of(scores, scores), None
    low, high = calibrated_range(*how, (read.part_lows, read.part_sums), offsets)
    return (
        high,
        decided_between(protocol, (low, high), offsets, read.right),
        Lows.of(low, high),
        None,
    )


def _in_file_order(
    protocol: Protocol, read: Evidence, scores: Floats | None, decisions: Decisions
) -> Decisions:
    """Return the decisions of metric mc2-split, which counts the right choices before the first wrong one of the file.

    The best answer was made the first choice; where it stands after a wrong one in the file it does not count.
    """
    moved = [BEST_AFTER_WRONG in fields for fields in item_fields(read)]
    if scores is None or not any(moved):
        return decisions
    counted = before_wrong(read.right, read.item_offsets)
    counted[read.item_offsets[:-1][moved]] = False
    known = np.where(decisions.missing[row_of(read.item_offsets)], np.nan, scores)
    return mc2(known, read.item_offsets, counted, protocol.ties)


def _judged(
    protocol: Protocol,
    read: Evidence,
    scores: Floats | None,
    decisions: Decisions,
    lows: Lows | None,
) -> tuple[Decisions, Judged | None]:
    """The decisions with the credits of the metric, and what it looks at, where it is one of probabilities."""
    metric = METRICS[protocol.metric]
    if scores is None and metric.of_text:
        return _judged_text(protocol, read, decisions)
    if scores is None or not metric.probable:
        return decisions, None
    known = scores if lows is None else np.where(lows.filled(scores) < scores, np.nan, scores)
    orders = letters = None
    if metric.orders:
        orders = order_predictions(
            protocol.views, read.part_sums, read.item_offsets, read.part_lows
        )
        letters = answer_places(protocol.views, orders, read.item_offsets)
    judged = Judged(
        scores=known,
        item_offsets=read.item_offsets,
        right=read.right,
        prediction=decisions.prediction,
        hit=decisions.credit,
        golds=protocol.golds,
        temperature=float(protocol.temperature),
        soft=human_counts(read) if protocol.metric in SOFT else None,
        orders=orders,
        letters=letters,
        bytes=read.column(bytes_column(protocol)) if protocol.aggregation == "bytes" else None,
    )
    return replace(decisions, credit=credits(protocol.metric, judged)), judged


def _judged_text(
    protocol: Protocol, read: Evidence, decisions: Decisions
) -> tuple[Decisions, Judged]:
    """Likewise of answers in text, whose confidence is the probability of the text."""
    judged = Judged(
        scores=np.full(int(read.item_offsets[-1]), np.nan),
        item_offsets=read.item_offsets,
        right=read.right,
        prediction=decisions.prediction,
        hit=decisions.credit,
        text_probability=np.exp(read.column(TEXT_LOGLIKELIHOOD)),
    )
    return replace(decisions, credit=credits(protocol.metric, judged)), judged


_Bounds = tuple[float, float]
"""(low, high) at 95 %."""


def _clustered(
    credit: Floats, subjects: Sequence[str], numbers: Integers, sizes: Integers, macro: bool
) -> _Bounds:
    """Wilson's interval at the effective size, with the t quantile."""
    if len(sizes) < FEWEST:
        return math.nan, math.nan
    values, clusters, most = credit, subjects, float(len(credit))
    if macro:
        values = np.bincount(numbers, weights=credit) / sizes
        clusters, most = [str(number) for number in range(len(sizes))], weighted_size(sizes)
    error, mean = clustered_error(values, clusters), float(values.mean())
    return wilson(mean, effective_size(mean, error.se**2, most), freedom=error.freedom)


def _posterior(right: float, n: int) -> _Bounds:
    """Split ties make halves and thirds of a right answer: the interval holds those of the whole numbers around."""
    total = round(float(right), 9)
    return _beta(math.floor(total), n)[0], _beta(math.ceil(total), n)[1]


def _beta(right: float, n: float) -> _Bounds:
    """Quantiles of Beta(right + 1, wrong + 1), the posterior under a uniform prior, recommended for benchmarks of a few
    hundred items or fewer (Bowyer et al. 2025)."""
    from scipy.special import betaincinv

    low, high = (float(betaincinv(right + 1, n - right + 1, share)) for share in (0.025, 0.975))
    return low, high
