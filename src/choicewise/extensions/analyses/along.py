"""Answers along a thought: how the choices' probabilities move as a model thinks, and where the answer stops changing.

The thought of an item is cut after shares of its tokens and closed by the chat template's bytes, and the choices are
scored there (reading ``along-thought``).  All numbers of an :class:`AlongThought` are about the same items: those whose
thought was scored after every share.  Thoughts that were cut, and items without one, are counted beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from choicewise.protocols.between import as_accuracy
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import ALONG, READINGS
from choicewise.results.evidence import Column, Evidence, MissingReason
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.results.spans import ObservedPortion
from choicewise.scoring.decide import Decisions
from choicewise.scoring.intervals import micro, number
from choicewise.scoring.observed import Floats, Integers, Mask


@dataclass(frozen=True, slots=True)
class Point:
    """The answers of all items at one place: after a ``share`` of each thought, or within a number of ``tokens``.

    ``tokens``: the median that the thoughts have there, or the budget.  ``share``: None for a budget.  ``spent``: the
    mean.  ``accuracy`` and ``probability`` (mean share of the right choices in the softmax) with 95 % intervals.
    ``open``: the share of items whose answer still changes after this place.
    """

    share: float | None
    tokens: float
    spent: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    probability: float
    probability_low: float
    probability_high: float
    open: float


@dataclass(frozen=True, slots=True)
class Turns:
    """How many items change their answer along the thought, by what becomes of it from no thought to all of it.

    ``gained``: wrong without a thought, right with it; ``lost``: the other way; ``other``: another answer that counts
    as much; ``back``: the answer they began with.
    """

    gained: int
    lost: int
    other: int
    back: int

    @property
    def turned(self) -> int:
        """How many items change their answer at all."""
        return self.gained + self.lost + self.other + self.back


@dataclass(frozen=True, slots=True)
class AlongThought:
    """The answers along the thoughts of ``n`` items under one protocol.

    ``ended``: ``itself`` where the model ended its thoughts, ``limit`` where they were closed at ``thought_tokens``:
    never together.  ``whole``, ``closed``: how many items there are of each.  ``missing``: those of neither, by reason.
    ``thought_tokens``: the median of their tokens.  ``chance``: what guessing gives.  ``settled``: share of the thought
    → how many items answer the same from there on to the end; ``settled_share`` and ``settled_tokens`` are the medians
    of that place, and ``tokens_after`` the median of the tokens behind it.
    """

    protocol: str
    ended: str
    n: int
    whole: int
    closed: int
    missing: tuple[MissingReason, ...]
    thought_tokens: float
    chance: float
    points: tuple[Point, ...]
    budgets: tuple[Point, ...]
    settled: Mapping[float, int]
    settled_share: float
    settled_tokens: float
    tokens_after: float
    turns: Turns


def along_thoughts(run: Run) -> list[AlongThought]:
    """What the protocols of ``run`` say that ask along thoughts; two of one protocol with thoughts of both kinds.

    Protocols that differ only in the share that is their number say the same, and count once.
    """
    known: dict[Protocol, str] = {}
    for name, protocol in run.protocols.items():
        if READINGS[protocol.reading].along and not run.lacking({name: protocol}):
            known.setdefault(replace(as_accuracy(protocol), score="sum"), name)
    return [
        each
        for protocol, name in known.items()
        for each in _under(run, name, run.protocols[name], protocol)
    ]


BUDGETS = 10
"""Budgets in tokens that are shown at most."""

_THOUGHTS = Column("thoughts", compute=ObservedPortion.thoughts)


@dataclass(frozen=True)
class _Answers:
    """By share and item, [shares, items]: ``tokens`` before, ``prediction``, ``credit`` and ``probability``.

    ``guesses``: the credit that is expected of guessing, [items].
    """

    tokens: Floats
    prediction: Integers
    credit: Floats
    probability: Floats
    guesses: Floats

    def among(self, items: Mask) -> _Answers:
        tokens, prediction = self.tokens[:, items], self.prediction[:, items]
        return _Answers(
            tokens,
            prediction,
            self.credit[:, items],
            self.probability[:, items],
            self.guesses[items],
        )

    @property
    def settled(self) -> Integers:
        """The first share from which on the answer of each item stays the same, [items]."""
        same = self.prediction == self.prediction[-1]
        return np.asarray(len(same) - np.cumprod(same[::-1], axis=0).sum(axis=0), dtype=np.int64)


def _under(run: Run, name: str, own: Protocol, plain: Protocol) -> Iterator[AlongThought]:
    softmax = replace(plain, metric="norm-prob", golds=own.golds, temperature=own.temperature)
    asked = {
        (metric.metric, score): replace(metric, score=score)
        for metric in (plain, softmax)
        for score in ALONG
    }
    measured = run.under({" ".join(key): protocol for key, protocol in asked.items()}).measurements
    acc = [measured[" ".join(key)] for key in asked if key[0] == "acc"]
    probable = [measured[" ".join(key)] for key in asked if key[0] == "norm-prob"]
    evidence = run.evidence.gather({plain.prompt_digest: [_THOUGHTS]})[plain.prompt_digest]
    yield from _kinds(name, acc, probable, evidence)


def _kinds(
    name: str, acc: Sequence[Measurement], probable: Sequence[Measurement], evidence: Evidence
) -> Iterator[AlongThought]:
    tokens, forced = evidence.column(_THOUGHTS)
    prediction, credit = (
        np.array([getattr(each, column) for each in acc]) for column in ("prediction", "credit")
    )
    probability = np.array([each.credit for each in probable])
    answers = _Answers(tokens, prediction, credit, probability, acc[-1].guesses)
    unknown = np.isnan(answers.credit) | np.isnan(answers.probability) | np.isnan(tokens)
    scored = np.asarray(~unknown.any(axis=0), dtype=np.bool_)
    missing = acc[-1].missing_reasons(np.ones(len(scored), dtype=np.bool_))
    counts = int((scored & ~forced).sum()), int((scored & forced).sum())
    kinds = {"itself": scored & ~forced, "limit": scored & forced}
    for ended, among in kinds.items():
        if among.any() or (ended == "itself" and not scored.any()):
            yield _along(name, ended, answers.among(among), counts, missing)


def _along(
    name: str,
    ended: str,
    answers: _Answers,
    counts: tuple[int, int],
    missing: tuple[MissingReason, ...],
) -> AlongThought:
    n, shares, settled = answers.tokens.shape[1], list(ALONG.values()), answers.settled
    item = np.arange(n)
    points, budgets = list[Point](), list[Point]()
    if n:
        points = [_point(answers, np.full(n, place), share) for place, share in enumerate(shares)]
        for budget in _budgets(answers.tokens):
            place = (answers.tokens <= budget).sum(axis=0) - 1
            budgets.append(_point(answers, place, None, budget))
    whole, at = answers.tokens[-1], answers.tokens[settled, item]
    return AlongThought(
        *(name, ended, n, *counts, missing),
        thought_tokens=_median(whole),
        chance=float(answers.guesses.mean()) if n else math.nan,
        points=tuple(points),
        budgets=tuple(budgets),
        settled={share: int((settled == place).sum()) for place, share in enumerate(shares)},
        settled_share=_median(np.array(shares)[settled]),
        settled_tokens=_median(at),
        tokens_after=_median(whole - at),
        turns=_turns(answers),
    )


def _point(
    answers: _Answers, place: Integers, share: float | None, budget: float | None = None
) -> Point:
    """The answers with each item at its ``place`` among the shares."""
    item = np.arange(len(place))
    tokens, prediction = answers.tokens[place, item], answers.prediction[place, item]
    right = micro(Decisions.uncompared(prediction, answers.credit[place, item]))
    probability = micro(
        Decisions.uncompared(prediction, answers.probability[place, item]), counted=False
    )
    probable = number(probability, METRICS["norm-prob"])
    return Point(
        share=share,
        tokens=_median(tokens) if budget is None else budget,
        spent=float(tokens.mean()),
        accuracy=right.value,
        accuracy_low=right.ci_low,
        accuracy_high=right.ci_high,
        probability=probable.value,
        probability_low=probable.ci_low,
        probability_high=probable.ci_high,
        open=float((answers.settled > place).mean()),
    )


def _budgets(tokens: Floats) -> list[float]:
    """Powers of two within which half of the thoughts have their first cut, below the longest thought."""
    longest = int(tokens[-1].max())
    powers = [
        2**power
        for power in range(longest.bit_length())
        if _median(tokens[1]) <= 2**power < longest
    ]
    return [float(power) for power in powers[-BUDGETS:]]


def _turns(answers: _Answers) -> Turns:
    first, last = answers.prediction[0], answers.prediction[-1]
    moved = answers.credit[-1] - answers.credit[0]
    changed = (answers.prediction != last).any(axis=0)
    gained, lost, back = moved > 0, moved < 0, first == last
    other = changed & ~(gained | lost | back)
    counts = [changed & gained, changed & lost, other, changed & back & ~(gained | lost)]
    return Turns(*(int(each.sum()) for each in counts))


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else math.nan
