"""Measure how far a model's answers change if the question stays the same, by the panel of a
protocol.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

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

DRAWS = 2000
"""Samples of the bootstrap over cases."""

_ROUNDING = 1e-9
"""Difference up to which two probabilities are the same."""


# A predictor that gives every choice the same probability changes hardly at all and knows nothing,
# so that each figure stands beside the uniform predictor's, and beside the accuracy.
@dataclass(frozen=True)
class Rate:
    """Hold a mean over items, its 95 % interval by a bootstrap over cases, and the mean of a
    uniform predictor.
    """

    value: float
    low: float
    high: float
    uniform: float


@dataclass(frozen=True, kw_only=True)
class Check:
    """Hold what one check measured of ``n`` items.

    ``flips``: share of pairs of versions with another likeliest choice; of choices that tie, the
    first in the item's order counts. ``at_most``: the one-sided upper 95 % limit of a share of none
    of n, None if there are flips. ``net``: ``flips`` less those of one request that is sent twice.
    ``change``: mean over items of what :func:`measure_of` says. ``accuracy``: of the changed
    questions. ``versions``: the changed protocols. ``constant``: whether no probability of a served
    model changed.
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


@dataclass(frozen=True)
class NoneOfThese:
    """Hold the mean probability of "None of these" beside the right option (``added``) and in its
    place.
    """

    added: float | None
    for_right: float | None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Hold the checks of ``protocol`` and its ``accuracy`` on its ``n`` items; a uniform predictor
    has ``uniform``.

    ``computed``: whether the model is computed here, which computes a prompt once. ``repeated``:
    how many questions were sent twice; ``repeat_flips``: the share of them with another likeliest
    choice, None if there are none. ``places``: mean probability of the choice at each position,
    over all orders, of items with the commonest number of choices.
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
    """Return what the change of a check measures for questions of a kind."""
    if kind == "score" and check == "order":
        return "|E + E of the reverse - highest level|"
    return CHECKS[check].measure


def panels(run: Run) -> list[Panel]:
    """Return the panel of every protocol of ``run`` that was evaluated with changes."""
    names = {protocol: name for name, protocol in run.protocols.items()}
    panels_of_run = []
    changed: set[str] = set()
    for name, protocol in run.protocols.items():
        if name in changed:
            continue
        versions = defaultdict[str, list[str]](list)
        for variant in variants(name, protocol):
            (on_split,) = run.on_its_split({name: variant.protocol}).values()
            if on_split in names:
                versions[variant.check].append(names[on_split])
        for names_of_check in versions.values():
            changed.update(names_of_check)
        if versions:
            panels_of_run.append(_panel(run, name, versions))
    return panels_of_run


@dataclass(frozen=True)
class _Answers:
    """Hold the probabilities of an item's choices under one protocol, for items with a number.

    ``cases`` and ``gold`` are by item, too.
    """

    protocol: Protocol
    probabilities: Mapping[str, Floats]
    cases: Mapping[str, str]
    gold: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, measurement: Measurement) -> _Answers:
        evidence = measurement.evidence
        scores = measurement.known_scores
        assert scores is not None
        offsets = evidence.item_offsets
        by_item = np.split(choice_distribution(scores, offsets), offsets[1:-1])
        probabilities = {}
        for item, distribution in zip(evidence.ids, by_item, strict=True):
            if len(distribution) and not np.isnan(distribution).any():
                probabilities[item] = distribution
        return cls(
            protocol=measurement.protocol,
            probabilities=probabilities,
            cases=dict(zip(evidence.ids, evidence.subjects, strict=True)),
            gold=dict(zip(evidence.ids, evidence.gold, strict=True)),
        )

    def accuracy(self) -> float:
        """Return the share of items whose likeliest choice is right."""
        hits = [self.is_right(item, shares) for item, shares in self.probabilities.items()]
        if not hits:
            return math.nan
        return float(np.mean(hits))

    def is_right(self, item: str, probabilities: Floats) -> bool:
        return int(probabilities.argmax()) in self.gold[item]

    def chance(self) -> float:
        """Return the accuracy of guessing."""
        shares = []
        for item, distribution in self.probabilities.items():
            shares.append(len(self.gold[item]) / len(distribution))
        if not shares:
            return math.nan
        return float(np.mean(shares))

    def order(self, choices: int) -> tuple[int, ...]:
        """Return for each position the choice that the protocol shows there."""
        return shown_order(self.protocol.prepare, choices)[0]


def _panel(run: Run, name: str, versions: Mapping[str, Sequence[str]]) -> Panel:
    # The protocol itself is one of the orders, and what every other version is compared with.
    base = _Answers.of(run.measurements[name])
    server = run.manifest.server
    repeated = 0
    repeat_flips = None
    if server is not None and server.endpoint is not None and server.endpoint.repeated:
        repeated = server.endpoint.repeated
        repeat_flips = server.endpoint.flips / repeated
    # A prompt is computed once here, so that a repeat can't flip.
    flips_of_repeats = 0.0 if server is None else repeat_flips

    checks = []
    none = None
    orders = [base]
    for check, names in versions.items():
        changed = [_Answers.of(run.measurements[version]) for version in names]
        if check == "order":
            orders += changed
        if check == "none":
            none = _none_of_these(changed)
            changed = [
                answers
                for answers in changed
                if change_of(answers.protocol.prepare) == "none-added"
            ]
        differences = _differences(check, base, changed)
        if differences is not None:
            checks.append(
                Check(
                    check=check,
                    n=len(differences.cases),
                    versions=tuple(names),
                    flips=_rate(differences.flips, differences.uniform_flips, differences.cases),
                    at_most=_upper_limit(differences.flips),
                    net=_net(differences.flips, flips_of_repeats),
                    change=_rate(differences.change, differences.uniform_change, differences.cases),
                    accuracy=differences.accuracy,
                    constant=server is not None and float(differences.change.max()) < _ROUNDING,
                )
            )
    kind = base.protocol.kind
    if kind == "any":
        kind = "choice"
    return Panel(
        protocol=name,
        kind=kind,
        n=len(base.probabilities),
        accuracy=base.accuracy(),
        uniform=base.chance(),
        computed=server is None,
        repeated=repeated,
        repeat_flips=repeat_flips,
        checks=tuple(checks),
        none=none,
        places=_means_by_position(orders),
    )


@dataclass(frozen=True, kw_only=True)
class _Differences:
    """Hold for each item, [items], its case, the share of pairs that flip, and the change; and the
    accuracy.

    The uniform figures are those of a uniform predictor.
    """

    cases: list[str]
    flips: Floats
    change: Floats
    uniform_flips: Floats
    uniform_change: Floats
    accuracy: float


def _differences(check: str, base: _Answers, changed: Sequence[_Answers]) -> _Differences | None:
    """Compare the answers of each item with those under a change; None if no item has both."""
    compare = _COMPARISONS.get(check, _compare)
    if check == "order" and base.protocol.kind == "score":
        compare = _compare_levels
    figures_of_items = []
    cases = []
    accuracies = []
    for item, distribution in base.probabilities.items():
        versions = [answers for answers in changed if item in answers.probabilities]
        if check == "order":
            pairs = _pairs_of_orders(item, [base, *versions])
        else:
            pairs = [(distribution, answers.probabilities[item]) for answers in versions]
        # Changed versions may lack an item: a change that is not for it, or no answer of the
        # server.
        if not pairs:
            continue
        figures = []
        for left, right in pairs:
            of_model = compare(item, left, right)
            of_uniform = compare(item, _uniform(left), _uniform(right))
            figures.append(of_model + of_uniform)
        figures_of_items.append(np.mean(figures, axis=0))
        cases.append(base.cases[item])
        hits = []
        for answers in versions:
            probabilities = answers.probabilities[item]
            if check == "clone":
                probabilities = _merge_clone(item, probabilities)
            hits.append(base.is_right(item, probabilities))
        accuracies.append(float(np.mean(hits)))
    if not cases:
        return None
    # One row per item, so that an item with many orders weighs no more than one with two.
    flips, change, uniform_flips, uniform_change = np.array(figures_of_items).T
    return _Differences(
        cases=cases,
        flips=flips,
        change=change,
        uniform_flips=uniform_flips,
        uniform_change=uniform_change,
        accuracy=float(np.mean(accuracies)),
    )


def _uniform(probabilities: Floats) -> Floats:
    return np.full(len(probabilities), 1 / len(probabilities))


def _pairs_of_orders(item: str, versions: Sequence[_Answers]) -> list[tuple[Floats, Floats]]:
    """Return all pairs of orders of an item."""
    # Two changes can show a small number of choices in the same order; then one of them counts.
    by_order = {}
    for answers in versions:
        probabilities = answers.probabilities[item]
        by_order[answers.order(len(probabilities))] = probabilities
    return list(combinations(by_order.values(), 2))


Comparison = tuple[float, float]
"""1 if the likeliest choice is another, else 0; and the change of the probabilities."""


def _compare(item: str, left: Floats, right: Floats) -> Comparison:
    """Compare two distributions by their total variation distance."""
    return float(left.argmax() != right.argmax()), float(np.abs(left - right).sum() / 2)


def _compare_levels(item: str, left: Floats, right: Floats) -> Comparison:
    """Compare two distributions over the levels of a score by their expected levels."""
    flips, _ = _compare(item, left, right)
    return flips, abs(float(((left - right) * np.arange(len(left))).sum()))


def _compare_without_none(item: str, left: Floats, right: Floats) -> Comparison:
    """Leave out the added option "None of these" of ``right``, and compare."""
    return _compare(item, left, right[:-1] / max(right[:-1].sum(), _ROUNDING))


def _compare_with_clone(item: str, left: Floats, right: Floats) -> Comparison:
    """Compare the probability of a choice with that of its two copies in ``right``."""
    cloned = cloned_choice(item, len(left))
    merged = _merge_clone(item, right)
    flips, _ = _compare(item, left, merged)
    return flips, float(abs(merged[cloned] - left[cloned]))


def _compare_without_last(item: str, left: Floats, right: Floats) -> Comparison:
    """Leave out the last choice of ``left``, which ``right`` lacks, and compare."""
    return _compare(item, left[:-1] / max(left[:-1].sum(), _ROUNDING), right)


def _merge_clone(item: str, probabilities: Floats) -> Floats:
    """Add the probability of the copy, which is last, to that of its original."""
    merged = probabilities[:-1].copy()
    merged[cloned_choice(item, len(merged))] += probabilities[-1]
    return merged


_COMPARISONS: Mapping[str, Callable[[str, Floats, Floats], Comparison]] = {
    "none": _compare_without_none,
    "clone": _compare_with_clone,
    "drop": _compare_without_last,
}
"""Check → how the probabilities of an item are compared with the changed ones, if not by
:func:`_compare`.
"""


def _upper_limit(flips: Floats) -> float | None:
    if flips.any():
        return None
    # Of n items none flips with 5 % probability if the share is this limit (the "rule of three" is
    # its approximation).
    return float(1 - 0.05 ** (1 / len(flips)))


def _net(flips: Floats, flips_of_repeats: float | None) -> float | None:
    if flips_of_repeats is None:
        return None
    return float(flips.mean()) - flips_of_repeats


def _rate(values: Floats, uniform: Floats, cases: Sequence[str]) -> Rate:
    """Return the mean of ``values``, [items], with its interval by a bootstrap over cases."""
    groups = np.unique(cases, return_inverse=True)[1]
    if groups.max() + 1 < FEWEST:
        groups = np.arange(len(values))  # so few cases say nothing of their spread; items do
    sums = np.bincount(groups, values)
    counts = np.bincount(groups)
    low = high = math.nan
    if len(sums) > 1:
        random = np.random.default_rng(0)
        means = []
        for _ in range(DRAWS):
            drawn = random.integers(len(sums), size=len(sums))
            means.append(sums[drawn].sum() / counts[drawn].sum())
        low, high = np.quantile(means, (0.025, 0.975)).tolist()
    return Rate(float(values.mean()), low, high, uniform=float(uniform.mean()))


def _none_of_these(changed: Sequence[_Answers]) -> NoneOfThese:
    """Return the mean probability of the option that says none under each of the two changes that
    have it.
    """
    means = {}
    for answers in changed:
        change = change_of(answers.protocol.prepare)
        is_added = CHANGES[change].added == 1
        probabilities = []
        for item, distribution in answers.probabilities.items():
            option = -1 if is_added else answers.gold[item][0]
            probabilities.append(distribution[option])
        if probabilities:
            means[change] = float(np.mean(probabilities))
    return NoneOfThese(means.get("none-added"), means.get("none-for-right"))


def _means_by_position(orders: Sequence[_Answers]) -> tuple[float, ...]:
    """Return the mean probability at each position over the orders, of items that all of them have."""
    if len(orders) < 2:
        return ()
    base = orders[0].probabilities
    common = set(base)
    for answers in orders[1:]:
        common.intersection_update(answers.probabilities)
    shared = [item for item in base if item in common]
    counts = [len(base[item]) for item in shared]
    if not counts:
        return ()
    commonest = max(sorted(set(counts)), key=counts.count)
    by_order = {answers.order(commonest): answers.probabilities for answers in orders}
    rows = []
    for order, probabilities in by_order.items():
        for item in shared:
            if len(probabilities[item]) == commonest:
                rows.append(probabilities[item][list(order)])
    return tuple(np.mean(rows, axis=0).tolist())
