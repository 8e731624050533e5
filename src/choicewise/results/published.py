"""Published numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from choicewise.bundled import PUBLISHED_MMLU
from choicewise.errors import UsageError
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import axis_differences, short_signature
from choicewise.results.compare import Axis
from choicewise.results.rows import Row
from choicewise.results.run import Run
from choicewise.results.summary import summarize
from choicewise.util.jsonio import json_value


@dataclass(frozen=True, slots=True)
class PublishedNumber:
    """A published value, a share of 1, and where it lies from the run's interval.

    ``model`` and ``source`` are None where a reader brought the number.  ``place``: below, inside or above the 95 %
    interval of the run's first row, None where there is none.
    """

    value: float
    model: str | None
    source: str | None
    url: str | None
    place: str | None


@dataclass(frozen=True, slots=True)
class Nearest:
    """The run's protocol that differs from another in the fewest axes; ``left`` of each is the run's."""

    protocol: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """Numbers published under one protocol (``p``: its short id) and those of a run.

    ``rows``: the run's numbers under the same protocol, one per group; none where it was not asked what the protocol
    asks.  Then ``nearest`` says which axes keep the run's protocols from it, and ``advice`` what adds it to the run.
    Of a published number neither data nor texts are known: it can be compared only if it is about the same data.
    """

    protocol: str
    p: str
    rows: tuple[Row, ...]
    numbers: tuple[PublishedNumber, ...]
    nearest: Nearest | None
    advice: str | None

    @property
    def comparable(self) -> bool:
        """Whether the run has a number under this protocol."""
        return bool(self.rows)

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON knows it, the rows as a report has them."""
        content = {**asdict(replace(self, rows=())), "rows": [row.as_json() for row in self.rows]}
        return dict(json_value({"comparable": self.comparable, **content}))


def published_comparisons(
    run: Run, recipes: Mapping[str, Protocol], value: float | None = None
) -> list[PublishedComparison]:
    """``run`` against numbers published under each of ``recipes``, by name: ``value``, and those that are bundled.

    A protocol that asks only what the run asked is scored from what was observed.
    """
    known: dict[str, Protocol] = {}
    advice: dict[str, str] = {}
    for name, recipe in recipes.items():
        try:
            known |= run.under({name: recipe}).protocols
        except UsageError as error:
            advice[name] = str(error)
    rows = _rows(run, known)
    return [
        PublishedComparison(
            *(name, short_signature(recipe), rows.get(name, ()), _numbers(recipe, rows.get(name, ()), value)),
            *(None if name in known else _nearest(run, recipe), advice.get(name)),
        )
        for name, recipe in recipes.items()
    ]


def _rows(run: Run, known: Mapping[str, Protocol]) -> dict[str, tuple[Row, ...]]:
    """The run's rows under each protocol; those that it has are read from its summary."""
    own = {protocol.digest: name for name, protocol in run.protocols.items()}
    kept = summarize(run.folder).rows if any(each.digest in own for each in known.values()) else ()
    rows = {
        name: tuple(row for row in kept if row.protocol == own[each.digest])
        for name, each in known.items()
        if each.digest in own
    }
    further = {name: each for name, each in known.items() if name not in rows}
    for row in run.under(further).rows() if further else ():
        rows[row.protocol] = (*rows.get(row.protocol, ()), row)
    return rows


def _numbers(recipe: Protocol, rows: Sequence[Row], value: float | None) -> tuple[PublishedNumber, ...]:
    bundled = published().get(short_signature(recipe), ())
    given = [] if value is None else [PublishedNumber(value, None, None, None, _place(value, rows))]
    others = (
        PublishedNumber(each.value, each.model, each.source, each.url, _place(each.value, rows)) for each in bundled
    )
    return (*given, *others)


def _place(value: float, rows: Sequence[Row]) -> str | None:
    if not rows or math.isnan(rows[0].ci_low):
        return None
    low, high = rows[0].ci_low, rows[0].ci_high
    return "below" if value < low else "above" if value > high else "inside"


def _nearest(run: Run, recipe: Protocol) -> Nearest | None:
    differences = {
        name: axis_differences(own, replace(recipe, split=own.split) if recipe.split is None else recipe)
        for name, own in run.protocols.items()
    }
    name = min(differences, key=lambda name: len(differences[name]), default=None)
    return None if name is None else Nearest(name, tuple(Axis(*axis) for axis in differences[name]))


@dataclass(frozen=True, slots=True)
class Published:
    """One published number: a share of 1, of which ``model``, by whom, and where it stands."""

    model: str
    value: float
    source: str
    url: str


@cache
def published() -> dict[str, tuple[Published, ...]]:
    """Short digest of a protocol (``#P8d3978``) → the bundled numbers published under it."""
    content = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    source = f"{content['publisher']}, {content['date']}, MMLU test set"
    numbers: dict[str, tuple[Published, ...]] = {}
    for column, about in content["columns"].items():
        name = f"{about['protocol']}:{about['score']}" if "score" in about else about["protocol"]
        protocol = next(iter(resolve(name).values()))
        numbers[short_signature(protocol)] = tuple(
            Published(row["model"], row[column], source, content["url"]) for row in content["rows"]
        )
    return numbers
