"""How often each choice would be chosen on average, and how that fits what people chose."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from choicewise.errors import UsageError
from choicewise.results.choice_probabilities import human_counts, item_fields, links
from choicewise.results.evidence import Evidence
from choicewise.results.run import Run
from choicewise.scoring.ragged import Floats, Integers, reduce_rows, row_of
from choicewise.scoring.statistics.fit import Fit, fit


@dataclass(frozen=True, slots=True)
class Condition:
    """The mean over ``n`` items of the probability of each choice, in order; ``human``: people's mean share, if known.

    Choices are averaged by their place, so a condition is meaningful where its items have their choices in one order.
    """

    name: str
    n: int
    softmax: tuple[float, ...]
    winner: tuple[float, ...]
    human: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """One protocol's choice probabilities under two links, averaged per condition, and their fit to people's choices.

    ``softmax``: of the scores over ``temperature``; ``winner``: all to the best score, ties split.
    """

    model: str
    dataset: str
    protocol: str
    temperature: float
    conditions: tuple[Condition, ...]
    softmax_fit: Fit | None
    winner_fit: Fit | None


def distributions(run: Run, temperature: float, condition: str | None = None) -> Iterator[Distribution]:
    """One per protocol that scores choices.

    ``condition`` names a field of the items, or ``subject``; without it all items are one condition.
    """
    for measured in run.measurements.values():
        if measured.scores is not None:
            softmax, winner = links(measured, temperature)
            people, offsets = human_counts(measured.evidence), measured.evidence.item_offsets
            names = run.manifest.model.name, run.manifest.dataset.name, measured.name
            conditions = tuple(_conditions(measured.evidence, condition, softmax, winner, people))
            fits = (None if people is None else fit(link, people, offsets) for link in (softmax, winner))
            yield Distribution(*names, temperature, conditions, *fits)


def _conditions(
    evidence: Evidence, condition: str | None, softmax: Floats, winner: Floats, people: Floats | None
) -> Iterator[Condition]:
    names, offsets = _names(evidence, condition), evidence.item_offsets
    shares = None
    if people is not None:
        totals = reduce_rows(np.add, people, offsets)
        shares = people / np.where(totals > 0, totals, np.nan)[row_of(offsets)]
    for name in dict.fromkeys(names):
        items = np.array([item for item, other in enumerate(names) if other == name], dtype=np.int64)
        scored = items[~np.isnan(softmax[offsets[:-1][items]])]
        means = (() if share is None else _means(share, offsets, scored) for share in (softmax, winner, shares))
        yield Condition(name, len(scored), *means)


def _names(evidence: Evidence, condition: str | None) -> list[str]:
    if condition is None or condition == "subject":
        return evidence.subjects if condition else ["all"] * len(evidence.items)
    every = item_fields(evidence)
    for item, fields in zip(evidence.ids, every, strict=True):
        if condition not in fields:
            known = ", ".join(sorted(fields)) or "none"
            raise UsageError(
                f"item {item} has no field {condition!r} to average over; its fields: {known}, and subject"
            )
    return [fields[condition] for fields in every]


def _means(shares: Floats, offsets: Integers, items: Integers) -> tuple[float, ...]:
    """Mean share by place of the choice, over the ``items`` that have one there and whose share is known."""
    counts = np.diff(offsets)[items]
    means = []
    for choice in range(counts.max(initial=0)):
        values = shares[offsets[:-1][items[counts > choice]] + choice]
        known = values[~np.isnan(values)]
        means.append(float(known.mean()) if len(known) else math.nan)
    return () if all(map(math.isnan, means)) else tuple(means)
