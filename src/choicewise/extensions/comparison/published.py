"""Compare the numbers of a run with published ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from choicewise.errors import UsageError
from choicewise.protocols.protocol import Protocol, Protocols, short_signature
from choicewise.results.number import Number
from choicewise.results.outcomes import Axis, axes_between
from choicewise.results.published import PublishedNumber, published
from choicewise.results.run import Run
from choicewise.util.jsonio import json_value


@dataclass(frozen=True)
class Nearest:
    """Name the run's protocol that differs in the fewest axes; ``left`` of each is the run's."""

    protocol: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True, kw_only=True)
class PublishedComparison:
    """Hold numbers published under one protocol (``p``: its short id), and those of a run.

    ``rows``: the run's numbers under the same protocol, one per group; none if the run lacks its
    requests.  Then ``nearest`` names the axes in which the run's protocols differ from it, and
    ``advice`` says how to add it to the run.  Neither data nor texts of a published number are
    known: it can be compared only if it is about the same data.
    """

    protocol: str
    p: str
    rows: tuple[Number, ...]
    numbers: tuple[PublishedNumber, ...]
    nearest: Nearest | None
    advice: str | None

    @property
    def comparable(self) -> bool:
        """Check that the run has a number under this protocol."""
        return bool(self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON has it, with rows as in a report."""
        content = asdict(replace(self, rows=()))
        content["rows"] = [row.as_json() for row in self.rows]
        return dict(json_value({"comparable": self.comparable, **content}))


def published_comparisons(
    run: Run, stored: Sequence[Number], recipes: Protocols, value: float | None = None
) -> list[PublishedComparison]:
    """Compare ``run`` with the numbers published under each of ``recipes`` (protocols by name).

    The numbers are ``value``, and the bundled ones.  ``stored``: the rows of the run's summary.  A
    protocol that the run lacks is scored from its observations if it needs no other requests.
    """
    scorable: dict[str, Protocol] = {}
    advice: dict[str, str] = {}
    for name, recipe in recipes.items():
        try:
            scorable |= run.under({name: recipe}).protocols
        except UsageError as error:
            advice[name] = str(error)
    rows = _rows(run, stored, scorable)
    compared = []
    for name, recipe in recipes.items():
        nearest = None
        if name not in scorable:
            nearest = _nearest(run, recipe)
        own_rows = rows.get(name, [])
        compared.append(
            PublishedComparison(
                protocol=name,
                p=short_signature(recipe),
                rows=tuple(own_rows),
                numbers=_numbers(recipe, own_rows, value),
                nearest=nearest,
                advice=advice.get(name),
            )
        )
    return compared


def _rows(run: Run, stored: Sequence[Number], protocols: Protocols) -> dict[str, list[Number]]:
    """Return the run's rows by protocol: the ``stored`` ones, or new ones if it has none."""
    name_in_run = {protocol.digest: name for name, protocol in run.protocols.items()}
    rows: dict[str, list[Number]] = {}
    further: dict[str, Protocol] = {}
    for name, protocol in protocols.items():
        if protocol.digest in name_in_run:
            stored_name = name_in_run[protocol.digest]
            rows[name] = [row for row in stored if row.identity.protocol == stored_name]
        else:
            further[name] = protocol
    # Scoring reads the run's observations, which takes longer than its summary.
    if further:
        for row in run.under(further).rows():
            rows.setdefault(row.identity.protocol, []).append(row)
    return rows


def _numbers(
    recipe: Protocol, rows: Sequence[Number], value: float | None
) -> tuple[PublishedNumber, ...]:
    numbers = []
    if value is not None:
        numbers.append(PublishedNumber(value=value, place=_position(value, rows)))
    for bundled in published().get(short_signature(recipe), ()):
        numbers.append(replace(bundled, place=_position(bundled.value, rows)))
    return tuple(numbers)


def _position(value: float, rows: Sequence[Number]) -> str | None:
    """Return if a value is below, inside or above the interval of the first row."""
    if not rows or math.isnan(rows[0].interval.low):
        return None
    if value < rows[0].interval.low:
        return "below"
    if value > rows[0].interval.high:
        return "above"
    return "inside"


def _nearest(run: Run, recipe: Protocol) -> Nearest | None:
    axes: dict[str, tuple[Axis, ...]] = {}
    for name, protocol in run.protocols.items():
        # Runs name the split if a protocol leaves it open.
        of_split = recipe
        if recipe.split is None:
            of_split = replace(recipe, split=protocol.split)
        axes[name] = axes_between(protocol, of_split)
    if not axes:
        return None
    nearest = min(axes, key=lambda name: len(axes[name]))
    return Nearest(nearest, axes[nearest])
