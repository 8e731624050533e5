"""The averages of suites: per model the value of each part, and their mean with its interval."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from choicewise.results.json_value import json_value
from choicewise.results.ranks import ranks_among
from choicewise.scoring.statistics.rank_interval import ranks
from choicewise.scoring.statistics.stratified import stratified


class Stratum(NamedTuple):
    """Items of a part that count alike: all of them, or those of a subject where the value is a mean over subjects.

    ``right``: their credit together; ``size``: how many they are; ``low``: the accuracy that counts as 0.
    """

    right: float
    size: int
    low: float = 0.0


@dataclass(frozen=True)
class ScoredPart:
    """One protocol of a part: ``raw``, the value of its row, and ``value``, what counts; both shares of 1.

    They differ where the suite normalises.  ``se``: of ``value``.  ``strata``: what ``value`` is the mean of, where
    it is a share of 1.
    """

    protocol: str
    metric: str
    value: float
    raw: float
    se: float
    n: int
    missing: int
    strata: tuple[Stratum, ...]


@dataclass(frozen=True)
class PartValue:
    """A part of a suite for one model: what its protocols give; the best of them counts.

    ``problem``: why the part has no number, empty where it has one.
    """

    benchmark: str
    scored: tuple[ScoredPart, ...]
    problem: str = ""

    @property
    def best(self) -> ScoredPart | None:
        """The one that counts, the first of equal ones; None where there is no number."""
        placed = zip(self.scored, ranks([each.value for each in self.scored]).tolist(), strict=True)
        return next((each for each, rank in placed if rank == 1), None)


@dataclass(frozen=True)
class Average:
    """What a suite says of one model.

    ``selection``: which part of the data the numbers are about, in words; nothing for all of it.  ``mean``: of the
    parts that have a number; it is the suite's number only where all have one.
    """

    suite: str
    model: str
    normalised: bool
    parts: tuple[PartValue, ...]
    selection: str = ""
    rank: int | None = None

    @cached_property
    def counted(self) -> tuple[ScoredPart, ...]:
        """What the mean is over."""
        return tuple(part.best for part in self.parts if part.best is not None)

    @property
    def complete(self) -> bool:
        """Whether every part has a number."""
        return len(self.counted) == len(self.parts)

    @property
    def mean(self) -> float:
        """The plain mean of the parts that have a number, NaN without any."""
        return math.fsum(part.value for part in self.counted) / len(self.counted) if self.counted else math.nan

    @property
    def se(self) -> float:
        """The standard error of the mean: √(Σ se²) / parts, as their items are independent."""
        if not self.counted:
            return math.nan
        return math.sqrt(math.fsum(part.se**2 for part in self.counted)) / len(self.counted)

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high) of the 95 % score interval of the mean; NaN without any part, or with one that is no share of 1.

        It counts below guessing as it is, and the mean counts it as 0: that may lie above what the interval is about.
        """
        if not self.counted or not all(part.strata for part in self.counted):
            return math.nan, math.nan
        strata = [each for part in self.counted for each in part.strata]
        rights, sizes, lows = (np.array(column, dtype=np.float64) for column in zip(*strata, strict=True))
        alike = np.repeat([len(part.strata) for part in self.counted], [len(part.strata) for part in self.counted])
        weights = 1 / (len(self.counted) * alike * (1 - lows))
        low, high = np.array(stratified(rights, sizes, weights=weights)) - weights @ lows
        return min(max(float(low), 0.0), self.mean), max(float(high), self.mean)

    @property
    def n(self) -> int:
        """Items that the parts are means over, in all."""
        return sum(part.n for part in self.counted)

    def as_json(self) -> dict[str, Any]:
        """A row of a report: dataset and protocol are the suite, the metric is ``average``.

        ``value`` and its interval are null where a part is missing; ``mean_of_parts`` is over those that are there.
        """
        value, se, (low, high) = self.mean, self.se, self.interval
        if not self.complete:
            value = se = low = high = math.nan
        return json_value(
            {
                "model": self.model,
                "dataset": self.suite,
                "selection": self.selection,
                "subject": "all",
                "protocol": self.suite,
                "signature": None,
                "metric": "average",
                "value": value,
                "se": se,
                "interval": "wilson",
                "ci_low": low,
                "ci_high": high,
                "n": self.n,
                "missing": sum(part.missing for part in self.counted),
                "rank": self.rank,
                "complete": self.complete,
                "mean_of_parts": self.mean,
                "normalised": self.normalised,
                "parts": [_part_json(part) for part in self.parts],
            }
        )


def ranked_averages(averages: Sequence[Average]) -> list[Average]:
    """The averages, each with its rank among those of the same suite, parts and selection; the best first."""
    means = [each.mean for each in averages]
    placed = ranks_among(means, [_rivalry(each) for each in averages])
    order = ranks_among(means, [each.suite for each in averages])
    suites = list(dict.fromkeys(each.suite for each in averages))
    shown = sorted(
        zip(averages, placed, order, strict=True),
        key=lambda each: (suites.index(each[0].suite), -len(each[0].counted), each[2] or math.inf),
    )
    return [replace(each, rank=rank) for each, rank, _ in shown]


def _rivalry(average: Average) -> tuple[object, ...]:
    there = tuple(part.benchmark for part in average.parts if part.best is not None)
    return average.suite, there, average.selection


def _part_json(part: PartValue) -> dict[str, Any]:
    best = part.best
    counts = {} if best is None else _scored_json(best)
    empty = dict.fromkeys(("protocol", "metric", "value", "raw", "se", "n", "missing"))
    return {
        "benchmark": part.benchmark,
        **empty,
        **counts,
        "problem": part.problem,
        "protocols": list(map(_scored_json, part.scored)),
    }


def _scored_json(scored: ScoredPart) -> dict[str, Any]:
    return {name: value for name, value in asdict(scored).items() if name != "strata"}
