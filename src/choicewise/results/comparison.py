"""Two numbers compared: the same measurement, comparable, or neither, and what the difference is made of."""

from dataclasses import dataclass

from choicewise.scoring.statistics.paired import Difference
from choicewise.scoring.statistics.sign_flip import SignFlip

VERDICTS = {
    "same measurement": "protocol, texts, model and engine agree: any difference is non-determinism",
    "comparable": "protocol and texts agree: a paired test is allowed",
    "other inputs": "the protocol is the same, but not the texts that were sent",
    "not comparable": "the protocols differ: the difference comes from them as much as from the models",
}
"""What follows from the identities that agree: protocol (P), texts (I), and model and engine (R)."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two numbers: its folder, model and protocol, with the identities in short (``#P``, ``#I``, ``#R``)."""

    folder: str
    model: str
    protocol: str
    p: str
    i: str
    r: str
    value: float


@dataclass(frozen=True, slots=True)
class Axis:
    """Something in which the two differ: an axis of the protocol, or part of the run's identity."""

    axis: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first item whose texts differ, with the two texts from shortly before the first other character."""

    item: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Flips:
    """Shared items by whose credit is greater, and by whether the predictions differ at all.

    ``near_ties``: items predicted differently that numeric noise leaves open on either side.
    """

    left_better: int
    right_better: int
    predicted_differently: int
    near_ties: int
    shared: int
    left_only: int
    right_only: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two numbers compared.

    ``parting``: the first text that differs.  ``difference``: left minus right over the shared items, its standard
    error clustered by the ``clusters`` subjects where there are enough of them; ``test``: of the credits, item by item;
    ``detectable``: the difference that this many items would show with probability 0.8, NaN where they do not vary;
    ``furthest``: the largest difference of a score, where both protocols are the same.
    """

    verdict: str
    left: Side
    right: Side
    axes: tuple[Axis, ...]
    parting: FirstDifference | None
    difference: Difference
    clusters: int | None
    test: SignFlip
    detectable: float
    flips: Flips
    furthest: float
