"""From the evidence of a run and a protocol to its scores, decisions and values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from choicewise.data.categories import Categories
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.results.evidence import Evidence
from choicewise.scoring.calibration import NOISE
from choicewise.scoring.decisions import Decisions
from choicewise.scoring.metrics import AGGREGATIONS, Value, micro
from choicewise.scoring.ragged import Floats, Mask, row_of
from choicewise.scoring.readings import combiner
from choicewise.scoring.statistics.numeric_range import credit_range


@dataclass(frozen=True)
class Measurement:
    """What one protocol makes of a run.

    ``scores``: float64, one per row of the evidence (item by item, choice by choice), or None where the protocol reads
    generated text.  ``noise``: the greatest difference between two ways of computing a log-likelihood on this model, in
    nats; None where it was not measured.  ``categories``: the dataset's.
    """

    name: str
    protocol: Protocol
    evidence: Evidence
    scores: Floats | None
    decisions: Decisions
    noise: float | None = None
    categories: Categories = field(default_factory=dict)

    def values(self, aggregation: str | None = None) -> dict[str, Value]:
        """Group name → value under the protocol's own aggregation, or another one by name."""
        return self._values(self.decisions, aggregation)

    @property
    def overall(self) -> float:
        """The one value under the protocol's own aggregation; the mean over items where that has several groups."""
        if self.protocol.aggregation in ("micro", "macro"):
            return next(iter(self.values().values())).value
        return micro(self.decisions).value

    def extremes(self, aggregation: str | None = None) -> dict[str, tuple[float, float]]:
        """Group name → the lowest and highest value that numeric noise allows; NaN where the noise of an item is not
        known."""
        low, high, _ = self._range
        credits = (low, high, np.where(self.decisions.missing, np.nan, ~self.bounded))
        lows, highs, unknown = (self._values(replace(self.decisions, credit=each), aggregation) for each in credits)
        bounds = {group: (lows[group].value, highs[group].value) for group in lows}
        return {group: (np.nan, np.nan) if unknown[group].value > 0 else bounds[group] for group in bounds}

    @property
    def likelihoods(self) -> bool:
        """Whether the scores are made of one log-likelihood of each choice, whose noise is known."""
        return READINGS[self.protocol.reading].one_likelihood

    @property
    def invalid(self) -> Mask:
        """Items whose generated text names no option, and which count as wrong, bool [items]."""
        no_option = (self.decisions.prediction < 0) & ~self.decisions.missing
        return no_option if READINGS[self.protocol.reading].text else np.zeros_like(no_option)

    @property
    def near_ties(self) -> Mask:
        """Items without a tie more than one choice of which could be the best within the noise, bool [items]."""
        return np.asarray(self._range[2] & ~self.decisions.tied, dtype=np.bool_)

    @property
    def bounded(self) -> Mask:
        """Items whose credit is known to stay within bounds, and those that are missing, bool [items]."""
        return np.asarray(~np.isnan(self._range[0]) | self.decisions.missing, dtype=np.bool_)

    @cached_property
    def _range(self) -> tuple[Floats, Floats, Mask]:
        if self.noise is None or self.scores is None or not self.likelihoods:
            unknown = np.full(len(self.decisions.credit), np.nan)
            return unknown, unknown, np.zeros(len(unknown), dtype=np.bool_)
        axes = self.protocol
        epsilon = NOISE[axes.calibration] * self.noise * self.evidence.sensitivity(axes.score, axes.null, axes.outside)
        if axes.calibration == "none":  # else the noise of other items, or of the prior, is in the score, too
            epsilon = np.where(self.evidence.rescored[row_of(self.evidence.item_offsets)], 0.0, epsilon)
        return credit_range(self.scores, self.evidence.item_offsets, self.evidence.right, self.decisions, epsilon)

    def _values(self, decisions: Decisions, aggregation: str | None) -> dict[str, Value]:
        aggregate = AGGREGATIONS[aggregation or self.protocol.aggregation]
        return aggregate(decisions, self.evidence.subjects, self.categories)


def measure(
    protocols: Mapping[str, Protocol], evidence: Callable[[str], Evidence], noise: float | None, categories: Categories
) -> dict[str, Measurement]:
    """One measurement per protocol, by name; ``evidence`` gives that of a prompt digest.

    Protocols that read the same prompt are computed one after the other, so that its tokens are laid out once.
    """
    computed = {}
    for name, protocol in sorted(protocols.items(), key=lambda named: named[1].prompt_digest):
        read = evidence(protocol.prompt_digest)
        scores, decisions = combiner(protocol.reading).decision(protocol, read)
        computed[name] = Measurement(name, protocol, read, scores, decisions, noise, categories)
    return {name: computed[name] for name in protocols}
