"""What rows say in short: their spread, who leads, what is a guess, and models that change places."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import Protocol

import numpy as np

from choicewise.protocols.panel import asks_changes
from choicewise.protocols.protocol import parse_signature, signature
from choicewise.results.guessing import Guessing, guess, guessing, merged
from choicewise.results.measurement import shared_items
from choicewise.results.outcomes import Outcome, Outcomes, distinct, left_open, measured_as, ranked
from choicewise.results.rows import Row
from choicewise.scoring.significance import LEVEL, SignFlip, holm, is_significant, sign_flip


class Measured(Protocol):
    """A run's numbers: its rows, and the credit of every item."""

    @property
    def rows(self) -> Sequence[Row]:
        """One per protocol and group."""

    @property
    def outcomes(self) -> Outcomes:
        """Of every protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversalContest:
    """Two models under one protocol: the share of the ``n`` items both scored that each has right; the paired test.

    ``first``: of the numbers of its prompt.  ``guessed``: neither number is better than guessing.  ``p``: of the test,
    after Holm's correction.
    """

    protocol: str
    left: float
    right: float
    n: int
    first: bool
    guessed: bool
    test: SignFlip
    p: float

    @property
    def difference(self) -> float:
        """Left minus right."""
        return self.left - self.right


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
    """Left is better than right under the protocol of ``start``, and worse under that of ``end``.

    ``tests``: how many the p values are corrected for.
    """

    dataset: str
    left: str
    right: str
    start: ReversalContest
    end: ReversalContest
    tests: int


def reversal(runs: Sequence[Measured]) -> Reversal | None:
    """Of all pairs of models and protocols the clearest: the smaller of the two differences is the greatest there is.

    Every model is tested against every other one under every protocol that asks both the same, on the items both
    scored.  None where no two change places significantly, each time with the better one better than guessing.  A
    prompt's first number comes before its others: two ways to ask say more than two ways to count.
    """
    pairs = [
        (one, other, _reversal_contests(one, other))
        for one, other in combinations(runs, 2)
        if one.outcomes.digest == other.outcomes.digest
    ]
    adjusted = iter(holm([contest.p for *_, contests in pairs for contest in contests]).tolist())
    tests = sum(len(contests) for *_, contests in pairs)
    reversals = []
    for one, other, contests in pairs:
        corrected = [replace(contest, p=next(adjusted)) for contest in contests]
        clear = [each for each in corrected if is_significant(each.p, each.n) and not each.guessed]
        for chosen in ([each for each in clear if each.first], clear):
            start = max(chosen, key=lambda each: each.difference, default=None)
            end = min(chosen, key=lambda each: each.difference, default=None)
            if start and end and start.difference > 0 > end.difference:
                reversals.append(
                    Reversal(
                        dataset=one.outcomes.dataset,
                        left=one.outcomes.model,
                        right=other.outcomes.model,
                        start=start,
                        end=end,
                        tests=tests,
                    )
                )
    return max(reversals, key=_clarity, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The numbers of one model on one dataset, a number per protocol (and group, where ``grouped``).

    ``count`` of them are there; ``unmeasured`` are NaN, as no item was scored.  ``items``: the fewest and the most
    that one was asked about.  ``lowest`` and ``highest`` are rows (the first of several), ``median`` a share of 1.
    ``guessing``: how many are better than guessing.
    """

    model: str
    dataset: str
    data: str
    count: int
    unmeasured: int
    grouped: bool
    items: tuple[int, int]
    lowest: Row | None
    median: float
    highest: Row | None
    guessing: Guessing


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """The order of the models that were measured the same way on one dataset.

    ``models``: the best first, by how often each is first alone, then by its median.  ``contests``: numbers (a
    protocol each, or a protocol and group where ``grouped``) that at least two models have over the same items.  The
    best model is ``first`` under so many of them, ``tied`` of which with others at exactly the same value, or ``open``
    of which as answers were cut that could turn the order round; ``significant``: how many of its leads alone are, None
    where they were not tested; ``level``: further models that are first alone as often.  ``behind``: the protocols
    where another leads.  ``same_order``: no two models change places anywhere.  ``items``: the most of a contest.
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
    items: int
    open: int = 0
    significant: int | None = None

    @property
    def alone(self) -> int:
        """How many times the best model is first and no other is as good."""
        return self.first - self.tied

    @property
    def leader(self) -> str | None:
        """The model that is first alone more often than any other; None where there is none."""
        return self.models[0] if self.alone and not self.level else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the rows of one or several runs say.

    ``numbers``: per model and dataset, in the order of the rows.  ``leads``: per dataset with several models, who
    leads.  ``other_items``: whether several models were measured the same way, on whatever items.  ``missing``: the row
    that lacks the most items, and ``lacking``, how many rows lack any.  ``incomplete``: what the runs that go on have
    by now, in the words of their selection.  ``other_metrics``: rows whose values are no shares of 1 and belong to none
    of these.
    """

    numbers: tuple[Numbers, ...]
    leads: tuple[Lead, ...]
    other_items: bool
    missing: Row | None
    lacking: int
    incomplete: tuple[str, ...]
    other_metrics: tuple[Row, ...]

    @property
    def count(self) -> int:
        """How many numbers there are in all."""
        return sum(each.count for each in self.numbers)

    @property
    def guessing(self) -> Guessing:
        """How many of them are better than guessing."""
        return merged([numbers.guessing for numbers in self.numbers])

    @property
    def models(self) -> tuple[str, ...]:
        """The models, each once."""
        return tuple(dict.fromkeys(each.model for each in self.numbers))

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets by their short digests, each once."""
        return tuple(dict.fromkeys(each.data for each in self.numbers))


def finding(rows: Sequence[Row]) -> Finding:
    """What ``rows`` say of questions as they are, or of changed ones where there are no others.

    A protocol that stands there under two names counts once.  A model that was computed in several ways under one
    protocol counts as several, named with their ids (``#R``).
    """
    rows = unchanged(rows)
    other_metrics, rows = (
        tuple(row for row in rows if not row.share),
        distinct([row for row in rows if row.share]),
    )
    runs: dict[tuple[str, str], list[Row]] = {}
    datasets: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault((row.model, row.data), []).append(row)
        datasets.setdefault(row.data, []).append(row)
    leads = (lead(own) for own in datasets.values())
    measured: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        measured.setdefault(measured_as(row), []).append(row)
    without = [row for row in rows if row.missing]
    lacking = [
        row for row in without if row.n
    ] or without  # those without any number are counted by themselves
    return Finding(
        numbers=tuple(map(_numbers, runs.values())),
        leads=tuple(each for each in leads if each is not None),
        other_items=any(sum(row.n > 0 for row in own) > 1 for own in measured.values()),
        missing=max(lacking, key=lambda row: row.missing, default=None),
        lacking=len(lacking),
        incomplete=tuple(dict.fromkeys(_incomplete([*rows, *other_metrics]))),
        other_metrics=other_metrics,
    )


def unchanged(rows: Sequence[Row]) -> Sequence[Row]:
    """Those of questions as they are, where there are such: a panel's others are no ways to ask these."""
    return [row for row in rows if not asks_changes([parse_signature(row.signature)])] or rows


NAMED = 2
"""So few protocols are named; of more it is said what they have in common."""


def lead(rows: Sequence[Row]) -> Lead | None:
    """Who leads on the one dataset of ``rows``; None where no two models were measured the same way.

    By the ranks of the rows (:func:`~choicewise.results.outcomes.bounded`); without any, by those of their values.
    """
    contests = _lead_contests(rows if any(row.rank for row in rows) else ranked(rows))
    if not contests:
        return None
    wins: Counter[str] = Counter()
    values: dict[str, list[float]] = {}
    for contest in contests:
        leaders = _leaders(contest)
        wins.update(leaders if len(leaders) == 1 else ())
        for model, row in contest.items():
            if row.rank is not None or model in leaders:
                values.setdefault(model, []).append(row.value)
    models = sorted(
        values, key=lambda model: (-wins[model], -sorted(values[model])[len(values[model]) // 2])
    )
    best = models[0]
    own = [contest for contest in contests if best in contest]
    ahead_of_rest = [_leaders(contest) for contest in own]
    alone = [ahead == [best] for ahead in ahead_of_rest]
    lost = [contest for contest, ahead in zip(own, ahead_of_rest, strict=True) if best not in ahead]
    ps = [contest[best].lead_p for contest, is_alone in zip(own, alone, strict=True) if is_alone]
    tested = [p for p in ps if p is not None]
    return Lead(
        dataset=rows[0].dataset,
        data=rows[0].data,
        models=tuple(models),
        contests=len(own),
        grouped=len({row.subject for row in rows}) > 1,
        first=len(own) - len(lost),
        tied=len(own) - len(lost) - sum(alone),
        level=tuple(model for model in models[1:] if wins[model] == wins[best]),
        behind=tuple(contest[best].protocol for contest in lost),
        same_order=_same_order(contests),
        turn=_turn([contest[best] for contest in own], alone) if len(lost) > NAMED else None,
        items=max((contest[best].n for contest in own), default=0),
        open=sum(
            len(ahead) > len(_first(contest))
            for contest, ahead in zip(own, ahead_of_rest, strict=True)
        ),
        significant=sum(p <= LEVEL for p in tested) if tested else None,
    )


def _clarity(each: Reversal) -> tuple[bool, float]:
    return each.start.first and each.end.first, min(each.start.difference, -each.end.difference)


def _reversal_contests(one: Measured, other: Measured) -> list[ReversalContest]:
    """One per protocol whose values are shares of 1 and that sent both models the same texts; p is not corrected."""
    theirs = {each.protocol.digest: each for each in other.outcomes.shares.outcomes}
    own, others = ({(row.signature, row.i): row for row in each.rows} for each in (one, other))
    shown = [key for key in own.keys() & others.keys() if not left_open(own[key], others[key])]
    guessed = {key[0]: guess(own[key]) and guess(others[key]) for key in shown}
    firsts = {each.protocol.prompt_digest: each.name for each in reversed(one.outcomes.outcomes)}
    contests = [
        _contest(
            each,
            theirs[each.protocol.digest],
            each.name == firsts[each.protocol.prompt_digest],
            guessed[signature(each.protocol)],
        )
        for each in one.outcomes.shares.outcomes
        if each.protocol.digest in theirs and signature(each.protocol) in guessed
    ]
    return [each for each in contests if not math.isnan(each.p)]


def _contest(one: Outcome, other: Outcome, first: bool, guessed: bool) -> ReversalContest:
    _, places = shared_items((one, other))
    credits = np.array(
        [each.credit[place] for each, place in zip((one, other), places, strict=True)]
    )
    known = credits[:, ~np.isnan(credits).any(axis=0)]
    test = sign_flip(*known)
    left, right = known.mean(axis=1).tolist() if known.size else (math.nan, math.nan)
    return ReversalContest(
        protocol=one.name,
        left=left,
        right=right,
        n=known.shape[1],
        first=first,
        guessed=guessed,
        test=test,
        p=test.p,
    )


_INCOMPLETE = re.compile(r"(?:^|, )(incomplete(?:: [\d,]+ of [\d,]+ items)?)$")
"""How :func:`choicewise.results.rows.selection` ends for a run that goes on."""


def _numbers(rows: Sequence[Row]) -> Numbers:
    known = [row for row in rows if not math.isnan(row.value)]
    asked = [row.n + row.missing for row in rows]
    return Numbers(
        model=rows[0].model,
        dataset=rows[0].dataset,
        data=rows[0].data,
        count=len(known),
        unmeasured=len(rows) - len(known),
        grouped=len({row.subject for row in rows}) > 1,
        items=(min(asked), max(asked)),
        lowest=min(known, key=lambda row: row.value, default=None),
        median=median(row.value for row in known) if known else math.nan,
        highest=max(known, key=lambda row: row.value, default=None),
        guessing=guessing(known),
    )


def _incomplete(rows: Iterable[Row]) -> Iterable[str]:
    for row in rows:
        if part := _INCOMPLETE.search(row.selection):
            yield part[1]


_LeadContest = Mapping[str, Row]
"""The numbers of several models that were measured the same way, by model; none is NaN."""


def _lead_contests(rows: Sequence[Row]) -> list[_LeadContest]:
    """Group rows that were measured the same way, if two of them are ranked or answers that were cut leave it open."""
    alike: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        if not math.isnan(row.value):
            alike.setdefault(measured_as(row), {})[row.model] = row
    return [contest for contest in alike.values() if len(contest) > 1 and _has_order(contest)]


def _has_order(contest: _LeadContest) -> bool:
    return bool(_first(contest)) or len(_leaders(contest)) > 1


def _first(contest: _LeadContest) -> list[str]:
    return [model for model, row in contest.items() if row.rank == 1]


def _leaders(contest: _LeadContest) -> list[str]:
    """Those of rank 1, and those that may have it as answers were cut."""
    first = _first(contest) or [max(contest, key=lambda model: contest[model].value)]
    return [
        model
        for model in contest
        if model in first or any(left_open(contest[model], contest[own]) for own in first)
    ]


def _same_order(contests: Sequence[_LeadContest]) -> bool:
    """Whether the models can be put in one order that no contest contradicts."""
    above: dict[str, set[str]] = {}
    for contest in contests:
        placed = {model: row.rank for model, row in contest.items() if row.rank is not None}
        for model, rank in placed.items():
            above.setdefault(model, set()).update(
                other for other, lower in placed.items() if lower > rank
            )
    return not any(
        model in above.get(other, ()) for model, others in above.items() for other in others
    )


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
    return {
        axis: value for axis, _, value in (part.partition(":") for part in row.signature.split("|"))
    }


def _split(axis: str, values: Sequence[str], ahead: Sequence[bool]) -> Turn:
    """Those values apart with which the model is mostly behind."""
    counts, firsts = (
        Counter(values),
        Counter(value for value, first in zip(values, ahead, strict=True) if first),
    )
    behind = tuple(value for value, count in counts.items() if 2 * firsts[value] < count)
    first, count = (sum(each[value] for value in behind) for each in (firsts, counts))
    return Turn(
        axis=axis,
        values=behind,
        first=first,
        count=count,
        otherwise=sum(ahead) - first,
        others=len(values) - count,
    )


def _wrong(turn: Turn) -> int:
    """Protocols where the model is first against what the axis tells, or behind against it."""
    return turn.first + turn.others - turn.otherwise
