"""From the evidence of a run and a protocol to its scores, decisions and values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa

from choicewise.data.categories import Categories
from choicewise.protocols.metrics import METRICS, Metric
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.results.column import Reductions
from choicewise.results.evidence import Evidence
from choicewise.results.reasons import MissingReason, Reasons
from choicewise.results.reductions import reductions
from choicewise.results.run_evidence import RunEvidence
from choicewise.scoring.bounded_decisions import decided, decided_between
from choicewise.scoring.calibration import NOISE, calibrated
from choicewise.scoring.calibration_range import calibrated_range
from choicewise.scoring.credits import guess
from choicewise.scoring.decisions import Decisions
from choicewise.scoring.lows import Lows
from choicewise.scoring.metrics import AGGREGATIONS, Value, number
from choicewise.scoring.ragged import Floats, Integers, Mask, row_of
from choicewise.scoring.readings import Decision
from choicewise.scoring.scores.lacks import LACKS
from choicewise.scoring.statistics.numeric_range import credit_range

UNLISTED = (
    "",
    "an answer is not among the likeliest next tokens that the server lists: the score is known as a bound alone",
    "none of the answers is among the likeliest next tokens that the server lists",
)
"""Why an item is missing that has answers known as upper bounds alone, by how many of them: none, some, all."""


@dataclass(frozen=True)
class Measurement:
    """What one protocol makes of a run.

    ``scores``: float64, one per row of the evidence (item by item, choice by choice), or None where the protocol reads
    generated text.  ``noise``: the greatest difference between two ways of computing a log-likelihood on this model, in
    nats; None where it was not measured.  ``categories``: the dataset's.  ``reasons``: the run's, by number.
    ``asked``: how many items were asked, and how many the run has to ask.
    """

    name: str
    protocol: Protocol
    evidence: Evidence
    scores: Floats | None
    decisions: Decisions
    lows: Lows | None = None
    noise: float | None = None
    categories: Categories = field(default_factory=dict)
    reasons: Reasons = field(default_factory=Reasons)
    asked: tuple[int, int] = (0, 0)

    @property
    def ids(self) -> pa.ChunkedArray:
        """The items' ids."""
        return self.evidence.about["item"]

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

    @property
    def overall(self) -> float:
        """The one value under the protocol's own aggregation; the mean over items where that has several groups."""
        if self.protocol.aggregation in ("micro", "macro"):
            return next(iter(self.values().values())).value
        return self.values("micro")["all"].value

    def extremes(self, aggregation: str | None = None) -> dict[str, tuple[float, float]]:
        """Group name → the lowest and highest value that numeric noise and answers known as upper bounds allow.

        NaN where the noise of an item is not known, unless there are such answers: then it is what they allow.  Items
        that they leave undecided count here, though no value has them.
        """
        low, high, _ = self._range
        credits = (low, high, np.where(self.decisions.missing, np.nan, np.isnan(low)))
        lows, highs, unknown = (self._values(replace(self.decisions, credit=each), aggregation) for each in credits)
        values = self._values(self.decisions, aggregation)
        bounds = {
            group: (float(np.fmin(lows[group].value, value)), float(np.fmax(highs[group].value, value)))
            for group, value in ((group, each.value) for group, each in values.items())
        }
        return {group: (np.nan, np.nan) if unknown[group].value > 0 else bounds[group] for group in bounds}

    def chances(self, aggregation: str | None = None) -> dict[str, float]:
        """Group name → the value that guessing evenly is expected to have; NaN where no item is scored."""
        share = guess(self.evidence.item_offsets, self.evidence.right, self.protocol.metric)
        expected = replace(self.decisions, credit=np.where(self.decisions.missing, np.nan, share))
        return {group: each.value for group, each in self._values(expected, aggregation).items()}

    @property
    def likelihoods(self) -> bool:
        """Whether the scores are made of one log-likelihood of each choice, whose noise is known."""
        return READINGS[self.protocol.reading].one_likelihood

    @property
    def invalid(self) -> Mask:
        """Items of several choices whose generated text names none, and which count as wrong, bool [items]."""
        several = np.diff(self.evidence.item_offsets) > 1
        no_option = (self.decisions.prediction < 0) & ~self.decisions.missing & several
        return no_option if READINGS[self.protocol.reading].text else np.zeros_like(no_option)

    @property
    def near_ties(self) -> Mask:
        """Items without a tie more than one choice of which could be the best within the noise, bool [items]."""
        return np.asarray(self._range[2] & ~self.decisions.tied & ~self.decisions.missing, dtype=np.bool_)

    @property
    def bounded(self) -> Mask:
        """Items whose credit is known to stay within bounds, and those that are missing, bool [items]."""
        known = ~np.isnan(self._range[0]) & self._noise_known
        return np.asarray(known | self.decisions.missing, dtype=np.bool_)

    @property
    def low_scores(self) -> Floats | None:
        """The lowest that each score may be, float64 [rows]: the score itself but for upper bounds."""
        return self.scores if self.scores is None or self.lows is None else self.lows.filled(self.scores)

    def unlisted_reason(self, place: int) -> str:
        """Why the item at that place is missing, where it is because answers are known as upper bounds alone."""
        return UNLISTED[int(self.evidence.unlisted(self.protocol.null)[place])]

    @cached_property
    def known_scores(self) -> Floats | None:
        """The scores, float64 [rows]: NaN where no more than bounds are known."""
        low = self.low_scores
        return None if self.scores is None or low is None else np.where(low < self.scores, np.nan, self.scores)

    @property
    def unlisted(self) -> Mask:
        """Items of which an answer is known as an upper bound alone, bool [items]."""
        return np.asarray(self.evidence.unlisted(self.protocol.null) > 0, dtype=np.bool_)

    def missing_reasons(self, among: Mask) -> tuple[MissingReason, ...]:
        """Why items ``among`` (bool [items]) are missing, the most common reason first."""
        places = np.flatnonzero(self.decisions.missing & among)
        numbers = self.evidence.columns["reasons", self.protocol.null][places]
        if (lacks := self.evidence.columns.get(("lacks", self.protocol.score, self.protocol.null))) is not None:
            numbers = np.where(numbers < 0, -1 - lacks[places].astype(np.int64), numbers)
        unlisted = self.evidence.unlisted(self.protocol.null)[places].astype(np.int64)
        numbers = np.where((numbers == -1) & (unlisted > 0), -1 - len(LACKS) - unlisted, numbers)
        known, first, counts = np.unique(numbers, return_index=True, return_counts=True)
        ids = self.evidence.about["item"]
        reasons = [
            MissingReason(
                self.reasons.text(number) if number >= 0 else (*LACKS, *UNLISTED)[-1 - number] or self._no_reason,
                count,
                ids[int(places[place])].as_py(),
            )
            for number, place, count in zip(known.tolist(), first.tolist(), counts.tolist(), strict=True)
        ]
        return tuple(sorted(reasons, key=lambda reason: -reason.count))

    @property
    def _no_reason(self) -> str:
        """Why an item is missing of which everything was observed."""
        if self.asked[0] < self.asked[1]:
            return "not asked in full yet; repeat the same run to go on"
        if self.protocol.decision == "option-match":
            return "the generated text begins with no option"
        return f"what was observed gives no number for score {self.protocol.score}"

    @property
    def _noise_known(self) -> bool:
        return self.noise is not None and self.likelihoods and self.metric.predicted

    @cached_property
    def _range(self) -> tuple[Floats, Floats, Mask]:
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
        epsilon = NOISE[axes.calibration] * self.noise * self.evidence.sensitivity(axes.score, axes.null, axes.outside)
        if axes.calibration == "none":  # else the noise of other items, or of the prior, is in the score, too
            epsilon = np.where(self.evidence.rescored[row_of(self.evidence.item_offsets)], 0.0, epsilon)
        return np.asarray(epsilon, dtype=np.float64)

    def _values(self, decisions: Decisions, aggregation: str | None) -> dict[str, Value]:
        aggregate = AGGREGATIONS[aggregation or self.protocol.aggregation]
        means = aggregate(decisions, self.evidence.subjects, self.categories, self.metric.counted)
        return {group: number(mean, self.metric) for group, mean in means.items()}


def measure(
    protocols: Mapping[str, Protocol], evidence: RunEvidence, noise: float | None, categories: Categories
) -> dict[str, Measurement]:
    """One measurement per protocol, by name; the run is read once for all of them."""
    wanted: dict[str, Reductions] = {}
    for protocol in protocols.values():
        digest = protocol.prompt_digest
        wanted[digest] = {**wanted.get(digest, {}), **reductions(protocol, noise, evidence.reasons)}
    observed = evidence.gather(wanted)
    return {
        name: Measurement(
            name,
            protocol,
            read,
            *_decision(protocol, read),
            noise,
            categories,
            evidence.reasons,
            evidence.asked(protocol),
        )
        for name, protocol in protocols.items()
        for read in (observed[protocol.prompt_digest],)
    }


def _decision(protocol: Protocol, read: Evidence) -> Decision:
    if protocol.calibration == "none":
        return cast(Decision, read.columns["decision", protocol])
    how, offsets = (protocol.calibration, protocol.views), read.item_offsets
    if not read.unlisted(protocol.null).any():
        scores = calibrated(*how, read.part_sums, offsets)
        return scores, decided(protocol, scores, offsets, read.right), Lows.of(scores, scores)
    low, high = calibrated_range(*how, (read.part_lows, read.part_sums), offsets)
    return high, decided_between(protocol, (low, high), offsets, read.right), Lows.of(low, high)
