"""The way from one protocol to another, an axis at a time.

The order is that of the axes in the signature (:data:`ORDER`).  Where changing one axis alone would give a protocol
that means nothing (:mod:`~.consistency`), the fewest further axes are taken, the first in order.  Those of them that
can change before it do; the others change together with it, because no protocol lies between.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
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


Possible = Callable[[Protocol], bool]
"""Whether some data can be asked as a protocol wants."""


def path(start: Protocol, end: Protocol, possible: Possible = lambda protocol: True) -> list[tuple[Axes, Protocol]]:
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
    return all(len(part) == len(axes) for part in _Moves(left, right, lambda protocol: True).parts(axes))


@dataclass(frozen=True, slots=True)
class _Moves:
    """What can change from ``here`` on the way to ``end``."""

    here: Protocol
    end: Protocol
    possible: Possible

    def parts(self, axes: Axes) -> Iterator[Axes]:
        """For each of ``axes`` the fewest of them that can change with it, in order."""
        for axis in axes:
            yield self.fewest(axis, [other for other in axes if other != axis])

    def fewest(self, first: str, rest: Sequence[str]) -> Axes:
        """``first`` and the fewest of ``rest`` that have to change with it.

        As few at a time are added as solve a problem and make no other; ``end`` has none, so there always are some.
        """
        chosen: Axes = (first,)
        problems = self._problems(chosen)
        while problems:
            added, problems = next(self._solutions(chosen, rest, problems))
            chosen += added
        return tuple(name for name in ORDER if name in chosen)

    def _solutions(
        self, chosen: Axes, rest: Sequence[str], problems: frozenset[str]
    ) -> Iterator[tuple[Axes, frozenset[str]]]:
        """Axes to add to those ``chosen``, the fewest first, with the problems that remain."""
        further = [name for name in rest if name not in chosen]
        for size in range(1, len(further) + 1):
            for added in combinations(further, size):
                remaining = self._problems(chosen + added)
                if remaining < problems:
                    yield added, remaining

    def _problems(self, axes: Axes) -> frozenset[str]:
        """What is wrong with ``here`` when it has these axes of ``end``."""
        try:
            moved = replace(self.here, **{name: getattr(self.end, name) for name in axes})
        except ProtocolError as error:
            return frozenset(error.parts)
        return frozenset() if moved == self.end or self.possible(moved) else frozenset(["the data"])
