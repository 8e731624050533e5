"""Who leads among several models, whether their order is the same under every protocol, and what it turns on."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from choicewise.results.ranks import measured_as
from choicewise.results.row import Row
from choicewise.scoring.statistics.rank_interval import ranks

NAMED = 2
"""So few protocols are named; of more it is said what they have in common."""

Contest = Mapping[str, Row]
"""The numbers of several models that were measured the same way, by model; none is NaN."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The axis of the protocols (or their family, or the group) that tells best where a model leads.

    With ``values`` the model is first under ``first`` of ``count`` protocols, with others under ``otherwise`` of
    ``others``.
    """

    axis: str
    values: tuple[str, ...]
    first: int
    count: int
    otherwise: int
    others: int


@dataclass(frozen=True, slots=True)
class Lead:
    """The order of the models that were measured the same way on one dataset.

    ``models``: the best first, by how often each is first alone, then by its median.  ``contests``: numbers (a
    protocol each, or a protocol and group where ``grouped``) that at least two models have.  The best model is
    ``first`` under so many of them, ``tied`` of which with others at exactly the same value; ``level``: further models
    that are first alone as often.  ``behind``: the protocols where another leads.  ``same_order``: no two models change
    places anywhere.
    """

    dataset: str
    data: str
    models: tuple[str, ...]
    contests: int
    grouped: bool
    first: int
    tied: int
    level: tuple[str, ...]
    behind: tuple[str, ...]
    same_order: bool
    turn: Turn | None

    @property
    def leader(self) -> str | None:
        """The model that is first alone more often than any other; None where there is none."""
        return self.models[0] if self.first > self.tied and not self.level else None


def lead(rows: Sequence[Row]) -> Lead | None:
    """Who leads on the one dataset of ``rows``; None where no two models were measured the same way."""
    contests = _contests(rows)
    if not contests:
        return None
    wins: Counter[str] = Counter()
    values: dict[str, list[float]] = {}
    for contest in contests:
        leaders = _leaders(contest)
        wins.update(leaders if len(leaders) == 1 else ())
        for model, row in contest.items():
            values.setdefault(model, []).append(row.value)
    models = sorted(values, key=lambda model: (-wins[model], -sorted(values[model])[len(values[model]) // 2]))
    best = models[0]
    own = [contest for contest in contests if best in contest]
    ahead = [best in _leaders(contest) for contest in own]
    lost = [contest for contest, first in zip(own, ahead, strict=True) if not first]
    return Lead(
        dataset=rows[0].dataset,
        data=rows[0].data,
        models=tuple(models),
        contests=len(own),
        grouped=len({row.subject for row in rows}) > 1,
        first=sum(ahead),
        tied=sum(len(_leaders(contest)) > 1 and first for contest, first in zip(own, ahead, strict=True)),
        level=tuple(model for model in models[1:] if wins[model] == wins[best]),
        behind=tuple(contest[best].protocol for contest in lost),
        same_order=_same_order(contests),
        turn=_turn([contest[best] for contest in own], ahead) if len(lost) > NAMED else None,
    )


def _contests(rows: Sequence[Row]) -> list[Contest]:
    alike: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        if not math.isnan(row.value):
            alike.setdefault(measured_as(row), {})[row.model] = row
    return [contest for contest in alike.values() if len(contest) > 1]


def _ranks(contest: Contest) -> dict[str, int]:
    return dict(zip(contest, ranks([row.value for row in contest.values()]).tolist(), strict=True))


def _leaders(contest: Contest) -> list[str]:
    return [model for model, rank in _ranks(contest).items() if rank == 1]


def _same_order(contests: Sequence[Contest]) -> bool:
    """Whether the models can be put in one order that no contest contradicts."""
    above: dict[str, set[str]] = {}
    for placed in map(_ranks, contests):
        for model, rank in placed.items():
            above.setdefault(model, set()).update(other for other, lower in placed.items() if lower > rank)
    return not any(model in above.get(other, ()) for model, others in above.items() for other in others)


def _turn(rows: Sequence[Row], ahead: Sequence[bool]) -> Turn | None:
    """The family where it tells more of where ``ahead`` holds than saying the same always; an axis that tells most."""
    values = {"family": [row.family for row in rows], "group": [row.subject for row in rows]}
    axes = [_axes(row) for row in rows]
    values |= {axis: [each[axis] for each in axes] for axis in axes[0]}
    turns = [_split(axis, own, ahead) for axis, own in values.items()]
    best = min(turns, key=lambda turn: _wrong(turn) + len(turn.values))  # of several, the first
    usual = min(sum(ahead), len(ahead) - sum(ahead))
    if _wrong(turns[0]) < usual:
        return turns[0]
    return best if 4 * _wrong(best) <= usual and best.others else None


def _axes(row: Row) -> dict[str, str]:
    """Every axis of the row's protocol as its signature spells it."""
    return {axis: value for axis, _, value in (part.partition(":") for part in row.signature.split("|"))}


def _split(axis: str, values: Sequence[str], ahead: Sequence[bool]) -> Turn:
    """Those values apart with which the model is mostly behind."""
    counts, firsts = Counter(values), Counter(value for value, first in zip(values, ahead, strict=True) if first)
    behind = tuple(value for value, count in counts.items() if 2 * firsts[value] < count)
    first, count = (sum(each[value] for value in behind) for each in (firsts, counts))
    return Turn(axis, behind, first, count, sum(ahead) - first, len(values) - count)


def _wrong(turn: Turn) -> int:
    """Protocols where the model is first against what the axis tells, or behind against it."""
    return turn.first + turn.others - turn.otherwise
