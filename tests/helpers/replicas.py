"""Replicas that live in this process, answer at once and die when a test wants it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from choicewise.engine import Shard
from choicewise.extensions.cluster.replica import Answered, Replica, ReplicaDied
from choicewise.models.model import Model
from choicewise.records import OBSERVATIONS
from choicewise.running.observe import observe
from choicewise.store.tables import make_table

Fate = Callable[[int, int | None], Exception | None]
"""What (replica, shard) raises instead of the answer, or of its loading (shard None); None: nothing."""


class ReplicasHere:
    """``size`` replicas that all ask ``model``; ``fate`` says what goes wrong. ``loads`` and ``answers`` count by
    replica and by shard; ``short``: what they lack, so that none ever loads."""

    def __init__(self, model: Model, size: int, fate: Fate = lambda replica, number: None) -> None:
        self.model, self.fate = model, fate
        self.loads: list[int] = []
        self.answers: list[int] = []
        self.short: str | None = None
        self.ended: set[int] = set()
        self.numbers: dict[str, int] = {}
        self.all: list[Replica] = [_ReplicaHere(self, number) for number in range(size)]

    def lacking(self) -> str | None:
        return self.short


class _ReplicaHere:
    def __init__(self, them: ReplicasHere, number: int) -> None:
        self.them, self.number, self.dead = them, number, False

    def load(self) -> Future[None]:
        if self.them.short is not None:
            return Future()
        self.dead = False
        self.them.loads.append(self.number)
        return done(self.them.fate(self.number, None))

    def answer(self, shard: Shard) -> Future[Answered]:
        them = self.them
        number = them.numbers.setdefault(next(iter(shard.questions)), len(them.numbers))
        if self.dead:
            return done(DEAD)
        if error := them.fate(self.number, number):
            self.dead = True
            return done(error)
        them.answers.append(number)
        rows = list(observe(them.model, shard.questions))
        return done(Answered(make_table(OBSERVATIONS, rows), 10 * len(rows), None))

    def end(self) -> None:
        self.them.ended.add(self.number)


def done(outcome: Any) -> Future[Any]:
    """A future with this result, or this error."""
    future = Future[Any]()
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
    return future


DEAD = ReplicaDied("killed by the test")
