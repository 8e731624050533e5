"""The way from one protocol to another, an axis at a time.

The order is that of the axes in the signature (:data:`ORDER`).  Where changing one axis alone would give a protocol
that means nothing (:mod:`~.consistency`), the fewest further axes are taken, the first in order.  Those of them that
can change before it do; the others change together with it, because no protocol lies between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import combinations

from choicewise.errors import ProtocolError
from choicewise.protocols.protocol import Protocol

ORDER = tuple(axis.name for axis in fields(Protocol))
"""The axes in the order in which they change: what is asked before what is made of the answers."""

Axes = tuple[str, ...]
"""Axes that change together, in order."""


def differing(left: Protocol, right: Protocol) -> Axes:
    """The axes in which two protocols differ, in order."""
    return tuple(name for name in ORDER if getattr(left, name) != getattr(right, name))


def path(start: Protocol, end: Protocol) -> list[tuple[Axes, Protocol]]:
    """The steps from ``start`` to ``end``: the axes that change, and the protocol that this gives; the last is ``end``.

    Read backwards, ``path(end, start)`` goes from ``start`` to ``end`` as well and changes the last axes first.
    """
    steps, here = [], start
    while rest := differing(here, end):
        needed = _fewest(here, end, rest[0], rest[1:])
        axes = min(_parts(here, end, needed), key=len)
        here = _moved(here, end, axes)
        steps.append((axes, here))
    return steps


@lru_cache(maxsize=4096)
def inseparable(left: Protocol, right: Protocol) -> bool:
    """Whether no protocol lies between two: none that has on each axis the value of one or of the other."""
    axes = differing(left, right)
    return all(len(part) == len(axes) for part in _parts(left, right, axes))


def _parts(here: Protocol, end: Protocol, axes: Axes) -> Iterator[Axes]:
    """For each of ``axes`` the fewest of them that can change with it from ``here`` to ``end``, in order."""
    for axis in axes:
        yield _fewest(here, end, axis, [other for other in axes if other != axis])


def _fewest(here: Protocol, end: Protocol, first: str, rest: Sequence[str]) -> Axes:
    """``first`` and the fewest of ``rest`` that have to change with it from ``here`` to ``end``.

    As few at a time are added as solve a problem and make no other; ``end`` has none, so there always are some.
    """
    chosen: Axes = (first,)
    problems = _problems(here, end, chosen)
    while problems:
        added, problems = next(_solutions(here, end, chosen, rest, problems))
        chosen += added
    return tuple(name for name in ORDER if name in chosen)


def _solutions(
    here: Protocol, end: Protocol, chosen: Axes, rest: Sequence[str], problems: frozenset[str]
) -> Iterator[tuple[Axes, frozenset[str]]]:
    """Axes to add to those ``chosen``, the fewest first, with the problems that are left then."""
    further = [name for name in rest if name not in chosen]
    for size in range(1, len(further) + 1):
        for added in combinations(further, size):
            left = _problems(here, end, chosen + added)
            if left < problems:
                yield added, left


def _problems(here: Protocol, end: Protocol, axes: Axes) -> frozenset[str]:
    """What is wrong with ``here`` when it has these axes of ``end``."""
    try:
        _moved(here, end, axes)
    except ProtocolError as error:
        return frozenset(error.parts)
    return frozenset()


def _moved(here: Protocol, end: Protocol, axes: Axes) -> Protocol:
    return replace(here, **{name: getattr(end, name) for name in axes})
