"""Change axes of protocols: by name, by metrics, or step by step from one to another.

Steps are taken in the order of the axes in the signature.  If a change of one axis alone gives a
protocol that means nothing, the fewest further axes change, the first in order.  Those of them that
can change before it do; the others change together with it, because no protocol lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

from choicewise import ports
from choicewise.errors import ProtocolError, UsageError, did_you_mean
from choicewise.protocols.metrics import METRIC_NAMES, METRICS
from choicewise.protocols.preparations import AFTER, changed_options
from choicewise.protocols.protocol import AXES, Protocol, Protocols, differing, read_axis
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.text import listed

MARK = ".."
"""Between the two ends of a way, such as ``mmlu/original..mmlu/helm``."""

Possible = Callable[[Protocol], bool]
"""Checks that some data can be asked under a protocol."""

Axes = tuple[str, ...]
"""Names of axes that change together, in order."""


def _any_data(protocol: Protocol) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class End:
    """Hold a protocol with its ``name``, and its ``label`` in the names of protocols between."""

    name: str
    protocol: Protocol
    label: str


def ends(selector: str, is_name: Callable[[str], bool]) -> tuple[str, str] | None:
    """Split a selector at the mark between two names, checked by ``is_name``; None without one.

    Paths (``../mine.toml``) and the templates of signatures may contain the mark as well.
    """
    start = selector.find(MARK, 1)
    while 0 < start < len(selector) - len(MARK):
        left = selector[:start]
        right = selector[start + len(MARK) :]
        if is_name(left) and is_name(right):
            return left, right
        start = selector.find(MARK, start + 1)
    return None


def protocols_between(
    start: End, end: End, names: Mapping[Protocol, str], possible: Possible = _any_data
) -> dict[str, Protocol]:
    """Return every protocol on the ways from ``start`` to ``end`` and back, the ends first.

    Protocols between are called ``START..END:axis`` after the first axis that changes to them, or
    by ``names``.  A split that only one end names is that of both.  ``possible``: see :func:`path`.
    """
    name_of = {start.protocol: start.name, end.protocol: end.name}
    split = start.protocol.split or end.protocol.split
    for first, last in ((start, end), (end, start)):
        here = replace(first.protocol, split=first.protocol.split or split)
        there = replace(last.protocol, split=last.protocol.split or split)
        for axes, protocol in path(here, there, possible)[:-1]:
            name = f"{first.label}{MARK}{last.label}:{axes[0]}"
            name_of.setdefault(protocol, names.get(protocol, name))
    return {name: protocol for protocol, name in name_of.items()}


def path(
    start: Protocol, end: Protocol, possible: Possible = _any_data
) -> list[tuple[Axes, Protocol]]:
    """Return the steps from ``start`` to ``end``: the axes that change, and the resulting protocol.

    The last step is to ``end``.  A protocol that is not ``possible`` is passed by, like one that
    means nothing.  Read backwards, ``path(end, start)`` goes from ``start`` to ``end`` as well and
    changes the last axes first.
    """
    steps = []
    here = start
    while rest := differing(here, end):
        moves = _Moves(here, end, possible)
        axes = min(moves.parts(moves.fewest(rest[0], rest[1:])), key=len)
        here = replace(here, **{name: getattr(end, name) for name in axes})
        steps.append((axes, here))
    return steps


@lru_cache(maxsize=4096)
def inseparable(left: Protocol, right: Protocol) -> bool:
    """Check that no protocol has on each axis the value of one of the two, but the two."""
    axes = differing(left, right)
    parts = _Moves(left, right, _any_data).parts(axes)
    return all(len(part) == len(axes) for part in parts)


CHANGES = "@"
"""Between a name and its changed axes, ``AXIS=VALUE`` with commas between."""


def split_changes(selector: str) -> tuple[str, str]:
    """Split a selector into the name and the text of its changes, "" without changes."""
    name, _, changes = selector.partition(CHANGES)
    return name, changes


def change_axes(protocols: Protocols, changes: str) -> dict[str, Protocol]:
    """Return the protocols with the axes that ``changes`` spells, under their new names.

    A protocol that has these axes already keeps its name; changes of other axes in its name stay.
    A change of the options (:data:`choicewise.protocols.preparations.AFTER`) comes after a
    protocol's preparation.  Raises ProtocolError if ``changes`` is malformed, or with all protocols
    that it does not fit.
    """
    values = _read_changes(changes)
    change = values.get("prepare")
    changed: dict[str, Protocol] = {}
    refused: dict[str, list[str]] = {}
    for name, protocol in protocols.items():
        axes = values
        if change in AFTER:
            # The source's changes to the texts stay.
            axes = {**values, "prepare": changed_options(protocol.prepare, change)}
        try:
            other = replace(protocol, **axes)
        except ProtocolError as error:
            refused.setdefault(str(error), []).append(name)
        else:
            changed[name if other == protocol else merge_changes(name, changes)] = other
    if not refused:
        return changed
    lines = [f"{', '.join(names)}: {reason}" for reason, names in refused.items()]
    if len(protocols) == 1:
        (reason,) = refused
        raise ProtocolError(f"{name}{CHANGES}{changes}: {reason}")
    count = sum(map(len, refused.values()))
    reason = f"{count} of {len(protocols)} protocols can't have {CHANGES}{changes}; leave them out"
    raise ProtocolError(reason, lines)


def _read_changes(changes: str) -> JsonDict:
    values = {}
    for change in changes.split(","):
        axis, equals, spelled = change.partition("=")
        if not equals:
            raise ProtocolError(
                f"{change!r} is not AXIS=VALUE; write NAME{CHANGES}AXIS=VALUE, such as shots=5"
            )
        values[axis] = read_axis(axis, spelled)
    return values


def merge_changes(name: str, changes: str) -> str:
    """Add ``changes`` to a name, in place of its changes of the same axes."""
    plain, before = split_changes(name)
    axes = {change.partition("=")[0] for change in changes.split(",")}
    kept = []
    for change in before.split(","):
        if change and change.partition("=")[0] not in axes:
            kept.append(change)
    return f"{plain}{CHANGES}{','.join([*kept, changes])}"


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise UsageError if a metric has no such name, here or in another tool."""
    names = [*METRICS, *METRIC_NAMES]
    for metric in metrics:
        if metric not in names and ports.find(ports.Metric, metric) is None:
            raise UsageError(f"no metric is called {metric!r}; {did_you_mean(metric, names)}")


@dataclass(frozen=True, slots=True)
class Applied:
    """Hold metrics under protocols: the resulting ``protocols`` by name.

    ``lacking``: by metric, the names of the protocols that can't have it, with the reasons.
    ``of``: the number of protocols that the metrics were applied to.
    """

    protocols: Protocols
    lacking: Mapping[str, Mapping[str, str]]
    of: int

    @property
    def lines(self) -> list[str]:
        """Say which protocols can't have a metric, in a line for each metric and reason."""
        names_of: dict[tuple[str, str], list[str]] = {}
        for metric, reasons in self.lacking.items():
            for name, reason in reasons.items():
                names_of.setdefault((metric, reason), []).append(name)
        lines = []
        for (metric, reason), names in names_of.items():
            lines.append(f"no {metric} under {listed(names, NAMED)}: {reason}")
        return lines


def apply_metrics(protocols: Protocols, metrics: Sequence[str]) -> Applied:
    """Return each different protocol that ``metrics`` make of ``protocols``.

    Metrics have our names or those of other tools.  If a metric needs certain scores, a protocol
    with another score stands for all with its prompt.  Raises UsageError if :func:`check_metrics`
    does.
    """
    check_metrics(metrics)
    name_of: dict[Protocol, str] = {protocol: name for name, protocol in protocols.items()}
    chosen: dict[str, Protocol] = {}
    lacking: dict[str, dict[str, str]] = {}
    for metric in metrics:
        axes: Mapping[str, str] = {"metric": metric}
        if metric in METRIC_NAMES:
            axes = METRIC_NAMES[metric].axes
        for name, protocol in protocols.items():
            try:
                values = _metric_values(protocol, axes)
                other = replace(protocol, **values)
            except ProtocolError as error:
                lacking.setdefault(metric, {})[name] = "; ".join(error.parts)
                continue
            if other not in name_of:
                name_of[other] = _name_under_metric(name, protocol, other, values, name_of)
            chosen.setdefault(name_of[other], other)
    return Applied(chosen, lacking, len(protocols))


def _metric_values(protocol: Protocol, axes: Mapping[str, str]) -> JsonDict:
    """Return the axes that give ``protocol`` the metric in ``axes``."""
    metric = METRICS[axes["metric"]]
    values: JsonDict = dict(axes)
    if metric.likelihood and protocol.null is not None:
        raise ProtocolError(f"score {protocol.score} is a difference of two log-likelihoods")
    if metric.scores and values.get("score", protocol.score) not in metric.scores:
        values["score"] = metric.scores[0]
    if metric.likelihood:
        values["outside"] = "keep"
    if metric.pooled and protocol.aggregation == "macro":
        values["aggregation"] = "micro"
    return values


def _name_under_metric(
    name: str,
    protocol: Protocol,
    other: Protocol,
    values: JsonMapping,
    name_of: Mapping[Protocol, str],
) -> str:
    """Name ``other``, which is ``protocol`` with ``values``."""
    changed = [axis for axis in values if axis in differing(protocol, other)]
    # The protocol's metric may not go with the scores that the new one needs.
    with suppress(ProtocolError):
        sibling = replace(other, metric=protocol.metric, aggregation=protocol.aggregation)
        if sibling in name_of:
            # Its name says the other axes, such as the score.
            name = name_of[sibling]
            changed = [axis for axis in changed if axis in ("metric", "aggregation")]
    if not changed:
        return name
    spelled = [f"{axis}={getattr(other, axis) or '-'}" for axis in changed]
    return merge_changes(name, ",".join(spelled))


def as_accuracy(protocol: Protocol) -> Protocol:
    """Return the protocol under accuracy, without the axes that only other metrics have."""
    return replace(protocol, metric="acc", golds="sum", temperature="1", aggregation="micro")


def under_metrics(protocols: Protocols, metrics: Sequence[str]) -> dict[str, Protocol]:
    """Return the protocols of :func:`apply_metrics`; UsageError if none can have a metric."""
    applied = apply_metrics(protocols, metrics)
    refuse_metrics([applied])
    return dict(applied.protocols)


def refuse_metrics(applied: Sequence[Applied]) -> None:
    """Raise UsageError, with reasons, if no protocol of several runs can have a metric."""
    if not applied:
        return
    for metric, reason_of in applied[0].lacking.items():
        if all(len(run.lacking.get(metric, ())) == run.of for run in applied):
            count = sum(run.of for run in applied)
            reasons = [f"{name}: {reason}" for name, reason in reason_of.items()]
            raise UsageError(f"none of {count} protocols has the metric {metric}", reasons[:NAMED])


NAMED = 3
"""Protocols that a line names; if there are more, it says how many."""


@dataclass(frozen=True, slots=True)
class _Moves:
    """Find what can change from ``here`` on the way to ``end``."""

    here: Protocol
    end: Protocol
    possible: Possible

    def parts(self, axes: Axes) -> Iterator[Axes]:
        for axis in axes:
            yield self.fewest(axis, [other for other in axes if other != axis])

    def fewest(self, first: str, rest: Sequence[str]) -> Axes:
        """Return ``first`` and the fewest of ``rest`` that have to change with it."""
        chosen: Axes = (first,)
        problems = self._problems(chosen)
        while problems:
            # All of them together have no problem, so that a wider choice is always found.
            for added in _subsets([name for name in rest if name not in chosen]):
                wider = chosen + added
                remaining = self._problems(wider)
                if remaining < problems:
                    break
            chosen = wider
            problems = remaining
        return tuple(name for name in AXES if name in chosen)

    def _problems(self, axes: Axes) -> frozenset[str]:
        try:
            moved = replace(self.here, **{name: getattr(self.end, name) for name in axes})
        except ProtocolError as error:
            return frozenset(error.parts)
        if moved == self.end or self.possible(moved):
            return frozenset()
        return frozenset(["the data"])


def _subsets(names: Sequence[str]) -> Iterator[Axes]:
    for size in range(1, len(names) + 1):
        yield from combinations(names, size)
