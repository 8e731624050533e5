"""Hold a comparison of two numbers: both sides, the ids that agree, and the verdict."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field

from choicewise.results.measurement import Flips
from choicewise.results.outcomes import Axis
from choicewise.scoring.significance import Difference, SignFlip
from choicewise.util.jsonio import JsonDict, JsonMapping


@dataclass(frozen=True, kw_only=True)
class Side:
    """Describe one of two numbers: its folder, model and protocol, with their short ids.

    ``p``, ``i``, ``t``, ``r``: the ids of :mod:`choicewise.results.rows`.  ``value``: over all of
    its ``items``, which ``selection`` describes in words.  ``paired``: over the items that both
    sides score.  ``share``: the value is a share of 1 in the unit of accuracies.  ``logged``: it is
    from a log of another tool, which does not name the scored tokens.  ``texts``: all texts of the
    choices are there.
    """

    folder: str
    model: str
    protocol: str
    p: str
    i: str
    t: str
    r: str
    value: float
    items: int
    selection: str
    paired: float
    share: bool
    logged: bool = False
    texts: bool = True
    metric: str = "acc"


@dataclass(frozen=True)
class Agreeing:
    """Mark the ids that agree, those of texts and tokens over the shared items alone.

    If requests were rendered elsewhere, protocol and texts agree as well if the same texts were
    sent, and if the protocols differ in nothing but how the texts are made.
    """

    p: bool
    i: bool
    t: bool
    r: bool


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Describe two numbers, their difference and its causes.

    ``agree``: the ids that the ``verdict`` follows from.  ``parting``: the first text that differs.
    ``difference``: left minus right over the shared items.  ``test``: of the credits.
    ``detectable``: the difference that so many items would show with probability 0.8.  All three
    are of the protocol's own mean, or of that over items if two protocols have different ones, and
    take subjects as given.  ``furthest``: the largest difference of a score, if both protocols are
    the same and have scores; ``moved``: the shared items with a score that differs.  ``cut``: the
    shared items with an answer that was cut, left and right.  They are in no test; ``low`` and
    ``high`` bound the difference over all shared items, NaN if no answer was cut.  ``figures``: by
    name of a :class:`~choicewise.ports.PairStatistic`, None unless :attr:`same_tokens`.
    """

    verdict: str
    agree: Agreeing
    left: Side
    right: Side
    axes: tuple[Axis, ...]
    parting: FirstDifference | None
    difference: Difference
    test: SignFlip
    detectable: float
    flips: Flips
    furthest: float
    moved: int | None
    cut: tuple[int, int] = (0, 0)
    low: float = math.nan
    high: float = math.nan
    figures: JsonMapping = field(default_factory=dict)

    @property
    def same_tokens(self) -> bool:
        """Check that both runs observed answers to the same tokens under one protocol."""
        if self.verdict not in ("same measurement", "comparable") or not self.agree.t:
            return False
        return not (self.left.logged or self.right.logged)

    @property
    def open(self) -> bool:
        """Check that answers that were cut could turn the difference round."""
        return self.low <= 0 <= self.high

    def as_json(self) -> JsonDict:
        """Return the comparison as JSON has it, each figure under its name."""
        content = asdict(self)
        figures = content.pop("figures")
        return {**content, **figures}


@dataclass(frozen=True, kw_only=True)
class FirstDifference:
    """Show the first item whose texts differ, from shortly before the first other character.

    ``part``: the first that differs of the texts that are sent or decide what is right.  ``place``:
    the number of characters of it that agree.  ``items``: the number of shared items with other
    texts.
    """

    item: str
    part: str
    place: int
    left: str
    right: str
    items: int
