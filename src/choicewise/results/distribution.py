"""How often each choice would be chosen, and how that fits what people chose."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Group

from choicewise.errors import DataError, UsageError
from choicewise.report.table import table, titled
from choicewise.results.evidence import Evidence
from choicewise.results.measurement import Measurement
from choicewise.results.rows import plain
from choicewise.scoring.distribution import choice_distribution
from choicewise.scoring.ragged import Floats, Integers, reduce_rows, row_of
from choicewise.scoring.statistics.fit import Fit, fit

if TYPE_CHECKING:
    from choicewise.results.run import Run

COUNTS = "human_counts"
"""The field of an item that holds how many people chose each choice, a JSON list in the order of the choices."""


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

    def as_json(self) -> dict[str, Any]:
        """As JSON knows it: an impossible log-likelihood becomes null."""
        from dataclasses import asdict

        return plain(asdict(self))

    def table(self) -> Group:
        """A row per condition; probabilities in the order of the choices."""
        title = f"{self.model} on {self.dataset}: {self.protocol}, softmax at temperature {self.temperature:g}"
        shown = table("group", "n", "link")
        shown.add_column("probability of each choice", overflow="fold")
        for condition in self.conditions:
            for link, shares in (
                ("softmax", condition.softmax),
                ("winner", condition.winner),
                ("people", condition.human),
            ):
                if shares:
                    first = link == "softmax"
                    name, n = (condition.name, str(condition.n)) if first else ("", "")
                    shown.add_row(name, n, link, " ".join(f"{share:.3f}" for share in shares))
        notes = []
        if self.softmax_fit and self.winner_fit:
            notes.append(f"fit to people: softmax {_told(self.softmax_fit)}; winner {_told(self.winner_fit)}")
        return titled(title, shown, *notes)


def distributions(run: Run, temperature: float, condition: str | None = None) -> Iterator[Distribution]:
    """One per protocol that scores choices.

    ``condition`` names a field of the items, or ``subject``; without it all items are one condition.
    """
    for measured in run.measure():
        if measured.scores is not None:
            softmax, winner = links(measured, temperature)
            people = human_counts(measured.evidence)
            items = measured.evidence.item_offsets
            yield Distribution(
                model=run.manifest.model.name,
                dataset=run.manifest.dataset.name,
                protocol=measured.name,
                temperature=temperature,
                conditions=tuple(_conditions(measured.evidence, condition, softmax, winner, people)),
                softmax_fit=None if people is None else fit(softmax, people, items),
                winner_fit=None if people is None else fit(winner, people, items),
            )


def distribution_table(measured: Measurement, temperature: float) -> pa.Table:
    """One row per item and choice: ``item, subject, choice, score, softmax, winner, human``.

    ``human`` is the number of people, null where the data gives none.  Raises UsageError for a protocol that reads
    generated text and has no scores.
    """
    softmax, winner = links(measured, temperature)
    evidence = measured.evidence
    item, people = row_of(evidence.item_offsets), human_counts(evidence)
    count = np.full(len(item), np.nan) if people is None else people
    return pa.table(
        {
            "item": pa.array(np.asarray(evidence.ids, dtype=object)[item], pa.string()),
            "subject": pa.array(np.asarray(evidence.subjects, dtype=object)[item], pa.string()),
            "choice": pa.array(np.arange(len(item)) - evidence.item_offsets[:-1][item], pa.int16()),
            "score": pa.array(measured.scores, pa.float64()),
            "softmax": pa.array(softmax, pa.float64()),
            "winner": pa.array(winner, pa.float64()),
            "human": pa.array(count, pa.float64(), mask=np.isnan(count)),
        }
    )


def links(measured: Measurement, temperature: float) -> tuple[Floats, Floats]:
    """(softmax, winner takes all), both float64 [rows]; NaN for an item with a missing choice.

    Raises UsageError when the temperature is not above 0, or when there are no scores.
    """
    if measured.scores is None:
        raise UsageError(f"{measured.name} reads generated text and has no scores to make probabilities of")
    if not (math.isfinite(temperature) and temperature > 0):
        raise UsageError(f"temperature is {temperature}; it must be above 0 (near 0, the best choice takes all)")
    items, scores = measured.evidence.item_offsets, measured.scores
    softmax = choice_distribution(scores, items, temperature)
    item = row_of(items)
    best = reduce_rows(np.maximum, scores, items)[item]
    at_top = np.where(np.isnan(best), np.nan, scores == best)
    return softmax, at_top / reduce_rows(np.add, at_top, items)[item]


def human_counts(evidence: Evidence) -> Floats | None:
    """How many people chose each choice, float64 [rows], NaN for items without counts; None when no item has any.

    Raises DataError naming the item whose counts do not match its choices.
    """
    found = np.full(int(evidence.item_offsets[-1]), np.nan)
    for place, (item, fields) in enumerate(zip(evidence.ids, _fields(evidence), strict=True)):
        if COUNTS in fields:
            start, end = evidence.item_offsets[place], evidence.item_offsets[place + 1]
            found[start:end] = _counts(item, fields[COUNTS], int(end - start))
    return None if np.isnan(found).all() else found


def _counts(item: str, text: str, choices: int) -> list[float]:
    where = f"item {item}: {COUNTS} is {text[:60]!r}"
    try:
        counts = json.loads(text)
    except ValueError as error:
        raise DataError(f"{where}, which is no JSON list; write one count per choice, as in [3, 7]") from error
    if not isinstance(counts, list) or not all(
        isinstance(count, int | float) and not isinstance(count, bool) and math.isfinite(count) and count >= 0
        for count in counts
    ):
        raise DataError(f"{where}; it must be a list of counts, none below 0, as in [3, 7]")
    if len(counts) != choices:
        raise DataError(f"{where}: {len(counts)} counts for {choices} choices; give one count per choice")
    return [float(count) for count in counts]


def _conditions(
    evidence: Evidence, condition: str | None, softmax: Floats, winner: Floats, people: Floats | None
) -> Iterator[Condition]:
    names = _names(evidence, condition)
    shares = (
        None
        if people is None
        else people / _positive(reduce_rows(np.add, people, evidence.item_offsets))[row_of(evidence.item_offsets)]
    )
    for name in dict.fromkeys(names):
        places = np.array([place for place, other in enumerate(names) if other == name], dtype=np.int64)
        scored = places[~np.isnan(softmax[evidence.item_offsets[:-1][places]])]
        yield Condition(
            name=name,
            n=len(scored),
            softmax=_means(softmax, evidence.item_offsets, scored),
            winner=_means(winner, evidence.item_offsets, scored),
            human=() if shares is None else _means(shares, evidence.item_offsets, scored),
        )


def _fields(evidence: Evidence) -> list[dict[str, str]]:
    """The further fields of every item."""
    return [json.loads(fields) for fields in evidence.about["fields"].to_pylist()]


def _names(evidence: Evidence, condition: str | None) -> list[str]:
    if condition is None:
        return ["all"] * len(evidence.ids)
    if condition == "subject":
        return evidence.subjects
    found = _fields(evidence)
    for item, fields in zip(evidence.ids, found, strict=True):
        if condition not in fields:
            there = ", ".join(sorted(fields)) or "none"
            raise UsageError(
                f"item {item} has no field {condition!r} to average over; its fields: {there}, and subject"
            )
    return [fields[condition] for fields in found]


def _means(shares: Floats, items: Integers, places: Integers) -> tuple[float, ...]:
    """Mean share by place of the choice, over the items that have one there and whose share is known."""
    width = int(np.diff(items)[places].max()) if len(places) else 0
    means = []
    for choice in range(width):
        having = places[np.diff(items)[places] > choice]
        values = shares[items[:-1][having] + choice]
        known = values[~np.isnan(values)]
        means.append(float(known.mean()) if len(known) else math.nan)
    return tuple(means) if any(not math.isnan(mean) for mean in means) else ()


def _positive(totals: Floats) -> Floats:
    return np.where(totals > 0, totals, np.nan)


def _told(found: Fit) -> str:
    return f"r = {found.correlation:.3f}, log-likelihood {found.log_likelihood:.2f} nats over {found.people:g} choices"
