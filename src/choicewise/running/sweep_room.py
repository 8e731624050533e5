"""Which models of a sweep compute at once on a cluster, and how many replicas each may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition
from time import monotonic

from choicewise.running.executors.needs import Needs, Node, Place, fit, largest

LOOK = 5.0
"""Seconds after which the nodes of the cluster are looked at again."""

BEAT = 0.5
"""Seconds between two looks of a model that waits."""


class Room:
    """What the ``nodes`` of a cluster have, for so many ``models``, each of which a thread evaluates.

    Models enter in order, each when a replica of it has room beside all that is there: so one that needs much is not
    kept waiting by small ones that come later.  While the next one may still come, each has one replica; where it has
    no room, or nobody waits, those that are there share what is free.
    """

    def __init__(self, nodes: Callable[[], Sequence[Node]], models: int) -> None:
        self._look, self._models = nodes, models
        self._nodes, self._looked = nodes(), monotonic()
        self._turn = 0
        self._passed: set[int] = set()
        self._inside: dict[int, RoomPlace] = {}
        self._next: Needs | None = None
        self._changed = Condition()

    @contextmanager
    def place(self, turn: int, ended: Callable[[], bool] = lambda: False) -> Iterator[Callable[[Needs], RoomPlace]]:
        """The place of model number ``turn``, free again when the ``with`` ends; it is no longer waited for then.

        What it gives is called with what a replica needs, and waits until the model may begin, or has ``ended``.  A
        model that needs more than there is enters alone.
        """
        try:
            yield lambda needs: self._enter(turn, needs, ended)
        finally:
            with self._changed:
                if self._inside.pop(turn, None) is None:
                    self._pass(turn)
                self._changed.notify_all()

    def _enter(self, turn: int, needs: Needs, ended: Callable[[], bool]) -> RoomPlace:
        with self._changed:
            while not ended():
                if turn == self._turn:
                    self._next = needs
                    if self._has_room(needs):
                        break
                self._changed.wait(BEAT)
            place = self._inside[turn] = RoomPlace(needs, self._replicas, self._others_compute)
            self._pass(turn)
            self._changed.notify_all()
        return place

    def _pass(self, turn: int) -> None:
        """Nobody waits for this one any more."""
        self._passed.add(turn)
        if turn == self._turn:
            self._next = None
        while self._turn in self._passed:
            self._turn += 1

    def _has_room(self, needs: Needs) -> bool:
        """Whether one more replica has room, wherever the others are.

        Where each has room for itself even if all needed the most that any of them does, none stands in another's way.
        Else all have to have their places before the next one is let in, as Ray may put one where that could have been.
        """
        if not self._inside:
            return True
        self._look_again()
        taken = self._taken()
        most = largest([*taken, needs])
        if len(taken) < sum(map(most.times, self._nodes)):
            return True
        return all(place.settled for place in self._inside.values()) and fit([*taken, needs], self._nodes)

    def _taken(self) -> list[Needs]:
        return [place.needs for place in self._inside.values() for _ in range(place.granted)]

    def _look_again(self) -> None:
        if monotonic() - self._looked > LOOK:
            self._nodes, self._looked = self._look(), monotonic()

    def _replicas(self, place: RoomPlace) -> int:
        with self._changed:
            self._look_again()
            if self._turn < self._models and (self._next is None or fit([*self._taken(), self._next], self._nodes)):
                return place.granted  # what is free is for the next one
            while place.granted < self._share(place.needs) and fit([*self._taken(), place.needs], self._nodes):
                place.granted += 1
            return place.granted

    def _share(self, needs: Needs) -> int:
        """How many replicas are a fair part of the cluster."""
        return sum(needs.times(node) for node in self._nodes) // max(1, len(self._inside))

    def _others_compute(self, place: RoomPlace) -> bool:
        with self._changed:
            return any(other.settled for other in self._inside.values() if other is not place)


class RoomPlace(Place):
    """The place of one model: as many replicas as were ``granted``, which are never fewer than before.

    ``settled``: whether the cluster has given one of them what it needs.
    """

    def __init__(
        self, needs: Needs, most: Callable[[RoomPlace], int], others_compute: Callable[[RoomPlace], bool]
    ) -> None:
        self.needs, self.granted, self.settled = needs, 1, False
        self._most, self._others_compute = most, others_compute

    def replicas(self) -> int:
        """How many replicas there may be now."""
        return self._most(self)

    def settle(self, there: bool) -> None:
        """Some replica is ``there``, or none any more."""
        self.settled = there

    @property
    def patient(self) -> bool:
        """Whether what it waits for may be held by another model of the sweep, which will end."""
        return self._others_compute(self)
