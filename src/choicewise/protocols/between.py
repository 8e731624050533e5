"""Protocols between two; changed axes.

The order is that of the axes in the signature.  Where changing one axis alone would give a protocol that means nothing,
the fewest further axes are taken, the first in order.  Those of them that can change before it do; the others change
together with it, because no protocol lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

from choicewise.errors import ProtocolError, UsageError, did_you_mean
from choicewise.protocols.metrics import METRIC_NAMES, METRICS
from choicewise.protocols.preparations import AFTER, changed_options
from choicewise.protocols.protocol import AXES, Protocol, read_axis
from choicewise.util.text import listed

MARK = ".."  # between the two ends, as in ``mmlu/original..mmlu/helm``
Possible = Callable[[Protocol], bool]  # whether some data can be asked as a protocol wants
Axes = tuple[str, ...]  # axes that change together, in order


@dataclass(frozen=True, slots=True)
class End:
    """A protocol with its ``name``, and what it is called in the names of protocols between."""

    name: str
    protocol: Protocol
    label: str


def ends(selector: str, known: Callable[[str], bool]) -> tuple[str, str] | None:
    """What stands on either side of the mark, where both are ``known``; None in any other text.

    Paths (``../mine.toml``) and the templates of signatures may hold the mark as well.
    """
    for place in range(1, len(selector) - len(MARK)):
        if selector.startswith(MARK, place):
            left, right = selector[:place], selector[place + len(MARK) :]
            if known(left) and known(right):
                return left, right
    return None


def protocols_between(
    start: End, end: End, names: Mapping[Protocol, str], possible: Possible = lambda protocol: True
) -> dict[str, Protocol]:
    """Every protocol on the ways from ``start`` to ``end`` and from ``end`` to ``start``, once each, the ends first.

    Those between are called ``START..END:axis`` after the first axis that changes to them, or as in ``names``.  A split
    that only one of the two names is that of both.  ``possible``: as in :func:`path`.
    """
    known = {start.protocol: start.name, end.protocol: end.name}
    split = start.protocol.split or end.protocol.split
    for first, last in ((start, end), (end, start)):
        here, there = (
            replace(each.protocol, split=each.protocol.split or split) for each in (first, last)
        )
        for axes, protocol in path(here, there, possible)[:-1]:
            known.setdefault(
                protocol, names.get(protocol, f"{first.label}{MARK}{last.label}:{axes[0]}")
            )
    return {name: protocol for protocol, name in known.items()}


def differing(left: Protocol, right: Protocol) -> Axes:
    """The axes in which two protocols differ, in order."""
    return tuple(name for name in AXES if getattr(left, name) != getattr(right, name))


def path(
    start: Protocol, end: Protocol, possible: Possible = lambda protocol: True
) -> list[tuple[Axes, Protocol]]:
    """The steps from ``start`` to ``end``: the axes that change, and the protocol that this gives; the last is ``end``.

    What is not ``possible`` is passed by as what means nothing is.  Read backwards, ``path(end, start)`` goes from
    ``start`` to ``end`` as well and changes the last axes first.
    """
    steps, here = [], start
    while rest := differing(here, end):
        moves = _Moves(here, end, possible)
        axes = min(moves.parts(moves.fewest(rest[0], rest[1:])), key=len)
        here = replace(here, **{name: getattr(end, name) for name in axes})
        steps.append((axes, here))
    return steps


@lru_cache(maxsize=4096)
def inseparable(left: Protocol, right: Protocol) -> bool:
    """Whether no protocol lies between two: none that has on each axis the value of one or of the other."""
    axes = differing(left, right)
    return all(
        len(part) == len(axes) for part in _Moves(left, right, lambda protocol: True).parts(axes)
    )


CHANGES = "@"
"""Between a name and the axes that differ, ``AXIS=VALUE`` each, with commas between, spelled as in signatures."""


def split_changes(selector: str) -> tuple[str, str]:
    """The name, and the text of its changes; empty where there are none."""
    name, _, changes = selector.partition(CHANGES)
    return name, changes


def change_axes(protocols: Mapping[str, Protocol], changes: str) -> dict[str, Protocol]:
    """The protocols with the axes that ``changes`` spells, each under its name with them.

    One that has these axes already keeps its name; changes that its name has before stay but for these axes.  A change
    of the options (:data:`choicewise.protocols.preparations.AFTER`) comes after a protocol's own preparation.  Raises
    ProtocolError for what is no change, or with all protocols that it does not fit.
    """
    values: dict[str, Any] = {}
    for change in changes.split(","):
        axis, equals, spelled = change.partition("=")
        if not equals:
            raise ProtocolError(
                f"{change!r} changes no axis; write NAME{CHANGES}AXIS=VALUE, such as shots=5"
            )
        values[axis] = read_axis(axis, spelled)
    adds = values.get("prepare") in AFTER  # beside what the source does to the texts
    changed: dict[str, Protocol] = {}
    refused: dict[str, list[str]] = {}
    for name, protocol in protocols.items():
        try:
            options = (
                {"prepare": changed_options(protocol.prepare, values["prepare"])} if adds else {}
            )
            other = replace(protocol, **{**values, **options})
        except ProtocolError as error:
            refused.setdefault(str(error), []).append(name)
        else:
            changed[name if other == protocol else merge_changes(name, changes)] = other
    if not refused:
        return changed
    if len(protocols) == 1:
        raise ProtocolError(f"{name}{CHANGES}{changes}: {next(iter(refused))}")
    lines = [f"{', '.join(names)}: {why}" for why, names in refused.items()]
    count = sum(map(len, refused.values()))
    why = f"{count} of {len(protocols)} protocols can't have {CHANGES}{changes}; name the others alone"
    raise ProtocolError(why, lines)


def merge_changes(name: str, changes: str) -> str:
    """``name`` with ``changes``, in place of those of the same axes that it has."""
    plain, before = split_changes(name)
    axes = {change.partition("=")[0] for change in changes.split(",")}
    kept = [
        change for change in before.split(",") if change and change.partition("=")[0] not in axes
    ]
    return f"{plain}{CHANGES}{','.join([*kept, changes])}"


def check_metrics(metrics: Sequence[str]) -> None:
    """UsageError for a name of a metric, here or elsewhere, that nobody knows."""
    known = [*METRICS, *METRIC_NAMES]
    if unknown := next((each for each in metrics if each not in known), None):
        raise UsageError(f"no metric is called {unknown!r}; {did_you_mean(unknown, known)}")


@dataclass(frozen=True, slots=True)
class Applied:
    """Metrics under protocols: the ``protocols`` that this gives by name, and which of the ``of`` can't have which.

    ``lacking``: by metric the names of those that can't have it, each with the reason.
    """

    protocols: Mapping[str, Protocol]
    lacking: Mapping[str, Mapping[str, str]]
    of: int

    @property
    def lines(self) -> list[str]:
        """What can't have a metric, a line for each metric and reason."""
        grouped: dict[tuple[str, str], list[str]] = {}
        for metric, reasons in self.lacking.items():
            for name, reason in reasons.items():
                grouped.setdefault((metric, reason), []).append(name)
        return [
            f"no {metric} under {listed(names, NAMED)}: {reason}"
            for (metric, reason), names in grouped.items()
        ]


def apply_metrics(protocols: Mapping[str, Protocol], metrics: Sequence[str]) -> Applied:
    """Everything that ``metrics``, names here or elsewhere, can be made of under ``protocols``; each once.

    Where a metric is made of certain scores alone, a protocol with another one stands for all with its prompt.  Raises
    UsageError as :func:`check_metrics`.
    """
    check_metrics(metrics)
    made: dict[Protocol, str] = {protocol: name for name, protocol in protocols.items()}
    chosen: dict[str, Protocol] = {}
    lacking: dict[str, dict[str, str]] = {}
    for wanted in metrics:
        axes = METRIC_NAMES[wanted].axes if wanted in METRIC_NAMES else {"metric": wanted}
        for name, protocol in protocols.items():
            try:
                own, other = _measured(protocol, axes)
            except ProtocolError as error:
                lacking.setdefault(wanted, {})[name] = str(error)
                continue
            base = None
            with suppress(
                ProtocolError
            ):  # the metric of before may not go with the scores that this one needs
                base = made.get(
                    replace(other, metric=protocol.metric, aggregation=protocol.aggregation)
                )
            named_axes = (
                own if base is None else ("metric", "aggregation")
            )  # the rest is what the other name says
            spelled = [f"{axis}={value}" for axis, value in own.items() if axis in named_axes]
            named = merge_changes(base or name, ",".join(spelled)) if spelled else base or name
            chosen.setdefault(made.setdefault(other, named), other)
    return Applied(chosen, lacking, len(protocols))


def as_accuracy(protocol: Protocol) -> Protocol:
    """The protocol under accuracy, without what other metrics alone have: golds, a temperature, bytes as weights."""
    return replace(protocol, metric="acc", golds="sum", temperature="1", aggregation="micro")


def under_metrics(protocols: Mapping[str, Protocol], metrics: Sequence[str]) -> dict[str, Protocol]:
    """The protocols of :func:`apply_metrics`; UsageError, with the reasons, for a metric that none of them can have."""
    applied = apply_metrics(protocols, metrics)
    refuse_metrics([applied])
    return dict(applied.protocols)


def refuse_metrics(applied: Sequence[Applied]) -> None:
    """UsageError, with the first reasons, for a metric that no protocol of several runs can have."""
    for metric in applied[0].lacking if applied else ():
        if all(len(each.lacking.get(metric, ())) == each.of for each in applied):
            count = sum(each.of for each in applied)
            reasons = [f"{name}: {reason}" for name, reason in applied[0].lacking[metric].items()]
            raise UsageError(f"none of {count} protocols has the metric {metric}", reasons[:NAMED])


NAMED = 3
"""Protocols that a line names; of more it says how many there are."""


def _measured(protocol: Protocol, axes: Mapping[str, str]) -> tuple[dict[str, Any], Protocol]:
    """The axes that give ``protocol`` the metric in ``axes``, as they are spelled, and what it is with them."""
    metric = METRICS[axes["metric"]]
    values: dict[str, Any] = dict(axes)
    if metric.likelihood and protocol.null is not None:
        raise ProtocolError(f"score {protocol.score} is a difference of two log-likelihoods")
    if metric.scores and values.get("score", protocol.score) not in metric.scores:
        values["score"] = metric.scores[0]
    if metric.likelihood:
        values["outside"] = "keep"
    if metric.pooled and protocol.aggregation == "macro":
        values["aggregation"] = "micro"
    other = replace(protocol, **values)
    return {
        axis: getattr(other, axis) or "-" for axis in values if axis in differing(protocol, other)
    }, other


@dataclass(frozen=True, slots=True)
class _Moves:
    """What can change from ``here`` on the way to ``end``."""

    here: Protocol
    end: Protocol
    possible: Possible

    def parts(self, axes: Axes) -> Iterator[Axes]:
        for axis in axes:
            yield self.fewest(axis, [other for other in axes if other != axis])

    def fewest(self, first: str, rest: Sequence[str]) -> Axes:
        """``first`` and the fewest of ``rest`` that have to change with it."""
        chosen: Axes = (first,)
        problems = self._problems(chosen)
        while problems:
            further = [name for name in rest if name not in chosen]
            added = (
                each for size in range(1, len(further) + 1) for each in combinations(further, size)
            )
            chosen = next(
                more for each in added if self._problems(more := chosen + each) < problems
            )
            problems = self._problems(chosen)
        return tuple(name for name in AXES if name in chosen)

    def _problems(self, axes: Axes) -> frozenset[str]:
        try:
            moved = replace(self.here, **{name: getattr(self.end, name) for name in axes})
        except ProtocolError as error:
            return frozenset(error.parts)
        return frozenset() if moved == self.end or self.possible(moved) else frozenset(["the data"])
