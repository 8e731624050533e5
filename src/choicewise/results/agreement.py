"""How far the retrievals of a run agree on the same option of the same item, and what makes them differ.

A retrieval is one way of asking for the likelihood of the same texts: by a forward pass, by the model's own loss, by
generating, by character span.  All are put on one scale first: the sum of the scored tokens' log-probabilities in nats,
the greater the likelier, whatever sign and divisor a protocol reports.  What is left is a real difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from choicewise.errors import UsageError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.results.measurement import Measurement
from choicewise.results.pairing import shared_items
from choicewise.results.rows import plain
from choicewise.scoring.ragged import Integers

if TYPE_CHECKING:
    from choicewise.results.run import Run

TOLERANCE = 1e-4
"""Nats between two sums that count as agreement, where the run did not measure more noise than half of that."""

WORST = 5
"""How many of the options that differ most are shown of a pair."""

FREE = frozenset(
    {"benchmark", "bos", "boundary", "reading", "new_tokens", "score", "null", "outside", "decision", "ties", "metric"}
    | {"aggregation", "rev"}
)
"""Axes in which two retrievals of the same texts may differ."""

CAUSES = {
    "boundary merge": "a token straddles the end of the context, and one of the two counts it to the option",
    "span": "other tokens are scored",
    "context": "the same tokens are scored after another context, such as a second BOS",
    "renormalised": "one of the two sets P(EOS) to 0 and renormalises",
    "precision": "the same tokens after the same context: numbers of another computation",
    "divisor": "the sums decide alike, and what they are divided by decides otherwise",
}
"""Why two retrievals differ, the first that applies."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One option on which two retrievals differ, in nats of the sum."""

    item: str
    choice: int
    text: str
    left: float
    right: float
    difference: float
    cause: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two protocols of a run agree.  ``median`` and ``largest``: |difference| of the sums, nats; NaN for n = 0.

    ``n``: options that both have a number for; ``missing``: that only one has.  ``beyond``: options whose sums differ
    by more than ``tolerance``, counted by cause in ``causes``.  ``items``: decided by both; ``same``: alike.
    ``decided``: the items decided otherwise by cause.  ``worst``: the options that differ most.
    """

    left: str
    right: str
    n: int
    missing: int
    median: float
    largest: float
    tolerance: float
    beyond: int
    causes: Mapping[str, int]
    items: int
    same: int
    decided: Mapping[str, int]
    worst: Sequence[Divergence]

    def as_json(self) -> dict[str, Any]:
        """As JSON knows it: NaN and infinity become null."""
        return plain(asdict(self))


def agreement(run: Run) -> list[Agreement]:
    """Every pair of the run's protocols that retrieve the same texts in different ways, in the order of the run.

    Protocols that only make other scores of one retrieval are compared where there is a second one beside it.
    """
    tolerance = max(TOLERANCE, 2 * (run.noise or 0.0))
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for each in run.measure():
        if each.retrieved is not None:
            groups.setdefault(_texts(each.protocol), []).append(each)
    return [
        _pair(left, right, tolerance)
        for group in groups.values()
        if len({each.protocol.prompt_digest for each in group}) > 1
        for left, right in combinations(group, 2)
    ]


def _texts(protocol: Protocol) -> tuple[object, ...]:
    """The axes that say which texts are retrieved."""
    return tuple(getattr(protocol, axis.name) for axis in fields(Protocol) if axis.name not in FREE)


def _pair(left: Measurement, right: Measurement, tolerance: float) -> Agreement:
    _, places = shared_items([left, right])
    sides = [_Side(left, places[0]), _Side(right, places[1])]
    sums = np.array([side.sums for side in sides])
    both, known = ~np.isnan(sums).any(axis=0), ~np.isnan(sums)
    with np.errstate(invalid="ignore"):  # two impossible options do not differ
        difference = np.where(sums[0] == sums[1], 0.0, sums[0] - sums[1])
    apart = np.flatnonzero(both & (np.abs(difference) > tolerance))
    why = {int(place): _cause(sides, int(place)) for place in apart}
    order = sorted(why, key=lambda place: -abs(difference[place]))
    sizes = np.abs(difference[both])
    predictions = [each.decisions.prediction[side.items] for each, side in zip((left, right), sides, strict=True)]
    decided = (predictions[0] >= 0) & (predictions[1] >= 0)
    flips = np.flatnonzero(decided & (predictions[0] != predictions[1]))
    return Agreement(
        left=left.name,
        right=right.name,
        n=int(both.sum()),
        missing=int((known[0] != known[1]).sum()),
        median=float(np.median(sizes)) if len(sizes) else np.nan,
        largest=float(sizes.max()) if len(sizes) else np.nan,
        tolerance=tolerance,
        beyond=len(apart),
        causes=_counted(why.values()),
        items=int(decided.sum()),
        same=int(decided.sum()) - len(flips),
        decided=_counted(_cause_of_flip(sides, why, int(item)) for item in flips),
        worst=[_divergence(sides, place, float(difference[place]), why[place]) for place in order[:WORST]],
    )


class _Side:
    """One retrieval's options of the items that both have, one after the other."""

    def __init__(self, measured: Measurement, items: Integers) -> None:
        evidence = measured.evidence
        seen = measured.retrieved
        if seen is None:
            raise UsageError(f"{measured.name} retrieves no likelihood of an option, so there is nothing to compare")
        starts, counts = evidence.item_offsets[:-1][items], np.diff(evidence.item_offsets)[items]
        self.place = np.repeat(np.arange(len(items)), counts)
        self.choice = np.arange(len(self.place)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.rows = starts[self.place] + self.choice
        self.items, self.seen, self.reading = items, seen, measured.protocol.reading
        self.sums = seen.sums[self.rows]
        self.merged, self.context_tokens = evidence.merged_rows[self.rows], evidence.context_tokens[self.rows]
        self.ids = evidence.ids

    def tokens(self, place: int) -> list[int]:
        row = self.rows[place]
        tokens: list[int] = self.seen.tokens[self.seen.offsets[row] : self.seen.offsets[row + 1]].tolist()
        return tokens


def _cause(sides: Sequence[_Side], place: int) -> str:
    left, right = sides
    if left.tokens(place) != right.tokens(place):
        return "boundary merge" if left.merged[place] or right.merged[place] else "span"
    if left.context_tokens[place] != right.context_tokens[place]:
        return "context"
    packaged = [READINGS[side.reading].renormalised for side in sides]
    return "renormalised" if packaged[0] != packaged[1] else "precision"


def _cause_of_flip(sides: Sequence[_Side], why: Mapping[int, str], item: int) -> str:
    """What most of the item's options differ by; the divisor where the sums alone would decide alike."""
    mine = np.flatnonzero(sides[0].place == item)
    found = Counter(why[place] for place in mine.tolist() if place in why)
    best = [np.where(np.isnan(side.sums[mine]), -np.inf, side.sums[mine]).argmax() for side in sides]
    return found.most_common(1)[0][0] if found and best[0] != best[1] else "divisor"


def _divergence(sides: Sequence[_Side], place: int, difference: float, cause: str) -> Divergence:
    left, right = sides
    return Divergence(
        item=left.ids[left.items[left.place[place]]],
        choice=int(left.choice[place]),
        text=left.seen.text[left.rows[place]],
        left=float(left.sums[place]),
        right=float(right.sums[place]),
        difference=difference,
        cause=cause,
    )


def _counted(causes: Iterable[str]) -> dict[str, int]:
    found = Counter(causes)
    return {cause: found[cause] for cause in CAUSES if found[cause]}
