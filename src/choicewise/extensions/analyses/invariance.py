"""The invariance panel: how far a model's answers change where the question stays the same.

Flips are of the likeliest choice, ties to the first of the item's own order, so that they are no flip.  A change is a
distance of probabilities, the softmax of the scores over the item's own choices.  A predictor that gives every choice
the same probability changes hardly at all: so each figure stands beside its, and beside the accuracy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from choicewise.protocols.changes import CHANGES, cloned_choice
from choicewise.protocols.panel import CHECKS, variants
from choicewise.protocols.preparations import change_of, shown_order
from choicewise.protocols.protocol import Protocol
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.scoring.decide import choice_distribution
from choicewise.scoring.intervals import FEWEST
from choicewise.scoring.observed import Floats

DRAWS: Final = 2000
"""Samples of the bootstrap over cases."""

_SAME: Final = 1e-9  # by which probabilities differ that are the same


@dataclass(frozen=True, slots=True)
class Rate:
    """A mean over items, its 95 % interval by a bootstrap over cases, and the same of a uniform predictor."""

    value: float
    low: float
    high: float
    uniform: float


@dataclass(frozen=True, slots=True)
class Check:
    """What one check measured of ``n`` items.

    ``flips``: share of pairs of versions with another likeliest choice; ``at_most``: the one-sided upper 95 % limit of
    a share of none of n, None where there are some.  ``net``: ``flips`` less those of the same request sent again.
    ``change``: mean over items of what :func:`measure_of` says.  ``accuracy``: of the changed questions.
    ``versions``: the protocols beside the panel's own.  ``constant``: whether no probability of a served model changed.
    """

    check: str
    n: int
    versions: tuple[str, ...]
    flips: Rate
    at_most: float | None
    net: float | None
    change: Rate
    accuracy: float
    constant: bool


@dataclass(frozen=True, slots=True)
class NoneOfThese:
    """Mean probability of "None of these" beside the right option (``added``) and in its place (``for_right``)."""

    added: float | None
    for_right: float | None


@dataclass(frozen=True, slots=True)
class Panel:
    """The checks of ``protocol``, on whose ``n`` items it has this ``accuracy``, a uniform predictor ``uniform``.

    ``repeated``: questions that were sent twice; ``repeat_flips``: the share with another likeliest choice; None where
    nothing was sent twice, which of a model that is computed here (``computed``) is 0: it computes a prompt once.
    ``places``: mean probability of the choice at each place, over all orders; of items with as many choices as most.
    """

    protocol: str
    kind: str
    n: int
    accuracy: float
    uniform: float
    computed: bool
    repeated: int
    repeat_flips: float | None
    checks: tuple[Check, ...]
    none: NoneOfThese | None
    places: tuple[float, ...]


def measure_of(kind: str, check: str) -> str:
    """What the change of a check is, of questions of a kind."""
    return (
        "|E + E of the reverse - highest level|"
        if (kind, check) == ("score", "order")
        else CHECKS[check].measure
    )


def panels(run: Run) -> list[Panel]:
    """The panel of every protocol of ``run`` that was asked with changes."""
    known = {protocol: name for name, protocol in run.protocols.items()}
    shown, others = list[Panel](), set[str]()
    for name, protocol in run.protocols.items():
        if name in others:
            continue
        asked = defaultdict[str, list[tuple[str, Protocol]]](list)
        for check, _, other in variants(name, protocol):
            (own,) = run.on_its_split({name: other}).values()
            if own in known:
                asked[check].append((known[own], own))
        others.update(other for versions in asked.values() for other, _ in versions)
        if asked:
            shown.append(_panel(run, name, asked))
    return shown


@dataclass(frozen=True)
class _Answers:
    """Probabilities of the own choices by item, of those with a number; each item's case and right choices."""

    protocol: Protocol
    probabilities: Mapping[str, Floats]
    cases: Mapping[str, str]
    gold: Mapping[str, Sequence[int]]

    def right(self, items: Sequence[str]) -> float:
        """The share of ``items`` whose likeliest choice is right."""
        return float(
            np.mean([int(self.probabilities[item].argmax()) in self.gold[item] for item in items])
        )


def _answers(measured: Measurement) -> _Answers:
    evidence, scores = measured.evidence, measured.known_scores
    assert scores is not None
    offsets = evidence.item_offsets
    parts = np.split(choice_distribution(scores, offsets), offsets[1:-1])
    ids, subjects, gold = evidence.ids, evidence.subjects, evidence.gold
    own = {
        item: part
        for item, part in zip(ids, parts, strict=True)
        if len(part) and not np.isnan(part).any()
    }
    return _Answers(
        measured.protocol,
        own,
        dict(zip(ids, subjects, strict=True)),
        dict(zip(ids, gold, strict=True)),
    )


def _panel(run: Run, name: str, asked: Mapping[str, Sequence[tuple[str, Protocol]]]) -> Panel:
    base = _answers(run.measurements[name])
    server = run.manifest.server
    endpoint = None if server is None else server.endpoint
    repeated = 0 if endpoint is None else endpoint.repeated
    repeat_flips = None if endpoint is None or not repeated else endpoint.flips / repeated
    checks = []
    none: dict[str, float | None] = {}
    orders = [base]
    for check, versions in asked.items():
        others = [_answers(run.measurements[other]) for other, _ in versions]
        if check == "order":
            orders += others
        if check == "none":
            none = {change_of(each.protocol.prepare): _of_none(each) for each in others}
            others = [each for each in others if change_of(each.protocol.prepare) == "none-added"]
        measured = _check(check, base, others)
        if measured is not None:
            names = tuple(other for other, _ in versions)
            checks.append(
                _summary(
                    check,
                    names,
                    measured,
                    0.0 if server is None else repeat_flips,
                    server is not None,
                )
            )
    items = [*base.probabilities]
    chance = [len(base.gold[item]) / len(base.probabilities[item]) for item in items]
    return Panel(
        protocol=name,
        kind=base.protocol.kind if base.protocol.kind != "any" else "choice",
        n=len(items),
        accuracy=base.right(items) if items else np.nan,
        uniform=float(np.mean(chance)) if items else np.nan,
        computed=server is None,
        repeated=repeated,
        repeat_flips=repeat_flips,
        checks=tuple(checks),
        none=NoneOfThese(none.get("none-added"), none.get("none-for-right")) if none else None,
        places=_places(orders) if len(orders) > 1 else (),
    )


@dataclass(frozen=True)
class _Measured:
    """Per item: its case, the share of pairs that flip, the change, both of a uniform predictor, and the accuracy."""

    cases: list[str]
    flips: Floats
    change: Floats
    uniform_flips: Floats
    uniform_change: Floats
    accuracy: float


def _check(check: str, base: _Answers, others: Sequence[_Answers]) -> _Measured | None:
    levels = base.protocol.kind == "score" and check == "order"
    compare = _level_distance if levels else _COMPARED.get(check, _distance)
    rows, cases, right = list[tuple[float, float, float, float]](), list[str](), list[float]()
    for item, own in base.probabilities.items():
        versions = [
            (each, each.probabilities[item]) for each in others if item in each.probabilities
        ]
        if check == "order":
            pairs = _pairs(base, own, versions)
        else:
            pairs = [(own, given) for _, given in versions]
        if not pairs:
            continue
        flat = [(_even(left), _even(right)) for left, right in pairs]
        figures = np.array(
            [
                (*compare(item, *pair), *compare(item, *even))
                for pair, even in zip(pairs, flat, strict=True)
            ]
        )
        rows.append(tuple(figures.mean(axis=0)))
        cases.append(base.cases[item])
        answered = [_merged(item, given) if check == "clone" else given for _, given in versions]
        right.append(float(np.mean([int(given.argmax()) in base.gold[item] for given in answered])))
    if not rows:
        return None
    flips, change, uniform_flips, uniform_change = np.array(rows).T
    return _Measured(cases, flips, change, uniform_flips, uniform_change, float(np.mean(right)))


def _even(probabilities: Floats) -> Floats:
    return np.full(len(probabilities), 1 / len(probabilities))


def _pairs(
    base: _Answers, own: Floats, versions: Sequence[tuple[_Answers, Floats]]
) -> list[tuple[Floats, Floats]]:
    """All pairs of orders of an item; of orders that are the same for so many choices one counts."""
    every = {
        shown_order(each.protocol.prepare, len(own))[0]: given
        for each, given in [(base, own), *versions]
    }
    return [*combinations(every.values(), 2)]


def _distance(item: str, left: Floats, right: Floats) -> tuple[float, float]:
    """Whether the likeliest choice is another, and the total variation distance."""
    return float(left.argmax() != right.argmax()), float(np.abs(left - right).sum() / 2)


def _level_distance(item: str, left: Floats, right: Floats) -> tuple[float, float]:
    return _distance(item, left, right)[0], abs(
        float(((left - right) * np.arange(len(left))).sum())
    )


def _without_none(item: str, left: Floats, right: Floats) -> tuple[float, float]:
    return _distance(item, left, right[:-1] / max(right[:-1].sum(), _SAME))


def _with_clone(item: str, left: Floats, right: Floats) -> tuple[float, float]:
    place, both = cloned_choice(item, len(left)), _merged(item, right)
    return _distance(item, left, both)[0], float(abs(both[place] - left[place]))


def _merged(item: str, probabilities: Floats) -> Floats:
    """With the probability of the copy, the last one, added to that of its original."""
    own = probabilities[:-1].copy()
    own[cloned_choice(item, len(own))] += probabilities[-1]
    return own


def _without_last(item: str, left: Floats, right: Floats) -> tuple[float, float]:
    return _distance(item, left[:-1] / max(left[:-1].sum(), _SAME), right)


_COMPARED: Mapping[str, Callable[[str, Floats, Floats], tuple[float, float]]] = {
    "none": _without_none,
    "clone": _with_clone,
    "drop": _without_last,
}
"""Check → how an item's probabilities are compared with those of the changed one; others by :func:`_distance`."""


def _summary(
    check: str, versions: tuple[str, ...], measured: _Measured, repeats: float | None, served: bool
) -> Check:
    n, flips, change, cases = len(measured.cases), measured.flips, measured.change, measured.cases
    return Check(
        check=check,
        n=n,
        versions=versions,
        flips=Rate(
            float(flips.mean()), *_interval(flips, cases), float(measured.uniform_flips.mean())
        ),
        at_most=None if flips.any() else 1 - 0.05 ** (1 / n),
        net=None if repeats is None else float(flips.mean()) - repeats,
        change=Rate(
            float(change.mean()), *_interval(change, cases), float(measured.uniform_change.mean())
        ),
        accuracy=measured.accuracy,
        constant=served and float(change.max()) < _SAME,
    )


def _interval(values: Floats, cases: Sequence[str]) -> tuple[float, float]:
    """The 95 % interval of the mean, by a bootstrap over cases, or over items where there are few cases."""
    groups = np.unique(cases, return_inverse=True)[1]
    if groups.max() + 1 < FEWEST:
        groups = np.arange(len(values))
    sums, counts = np.bincount(groups, values), np.bincount(groups)
    if len(sums) < 2:
        return float("nan"), float("nan")
    random = np.random.default_rng(0)
    draws = (random.integers(len(sums), size=len(sums)) for _ in range(DRAWS))
    means = [sums[drawn].sum() / counts[drawn].sum() for drawn in draws]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _of_none(answers: _Answers) -> float | None:
    """The mean probability of the option that says none: the added one, or that in the place of the right one."""
    last = CHANGES[change_of(answers.protocol.prepare)].more == 1
    own = [
        given[-1 if last else answers.gold[item][0]]
        for item, given in answers.probabilities.items()
    ]
    return float(np.mean(own)) if own else None


def _places(orders: Sequence[_Answers]) -> tuple[float, ...]:
    """The mean probability at each place over the orders, of items that all of them have."""
    shared = set.intersection(*(set(each.probabilities) for each in orders))
    counts = [len(orders[0].probabilities[item]) for item in shared]
    if not counts:
        return ()
    usual = max(set(counts), key=counts.count)
    seen = {shown_order(each.protocol.prepare, usual)[0]: each.probabilities for each in orders}
    rows = [
        given[item][list(order)]
        for order, given in seen.items()
        for item in shared
        if len(given[item]) == usual
    ]
    return tuple(map(float, np.mean(rows, axis=0)))
