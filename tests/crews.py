"""A crew whose replicas live in this process and die when a test wants it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from choicewise.models.model import Model
from choicewise.records import OBSERVATIONS
from choicewise.running.executor import Shard
from choicewise.running.replica import Answered, Happened, Identity, Lost
from choicewise.running.work import observe
from choicewise.store.tables import make_table

Fate = Callable[[int, int | None], Happened | None]
"""What happens to (replica, shard) instead of the answer, or of its loading (shard None); None: nothing."""


class CrewHere:
    """``size`` replicas that all ask ``model``; ``fate`` says what goes wrong.

    One report a call, of the replica that had none for the longest.  ``answers`` counts them by shard.
    """

    def __init__(self, model: Model, size: int, fate: Fate = lambda member, number: None) -> None:
        self.size, self.fate = size, fate
        self.started: list[int] = []
        self.answers: list[int] = []
        self.short: str | None = None
        self.ended = False
        self._model = model
        self._jobs: dict[int, deque[tuple[int, Shard] | None]] = {}
        self._turns: deque[int] = deque()

    def start(self, member: int) -> None:
        self.started.append(member)
        if self.short is None:
            self._jobs[member] = deque([None])
            self._turns.append(member)

    def ask(self, member: int, number: int, shard: Shard) -> None:
        self._jobs[member].append((number, shard))

    def wait(self, seconds: float) -> list[tuple[int, Happened]]:
        for _ in range(len(self._turns)):
            member = self._turns[0]
            self._turns.rotate(-1)
            if self._jobs[member]:
                job = self._jobs[member].popleft()
                happened = self.fate(member, None if job is None else job[0])
                return [(member, happened or self._done(job))]
        return []

    def _done(self, job: tuple[int, Shard] | None) -> Happened:
        if job is None:
            return Identity.of(self._model)
        number, shard = job
        self.answers.append(number)
        rows = list(observe(self._model, shard.questions))
        return Answered(number, make_table(OBSERVATIONS, rows), 10 * len(rows), None)

    def lacking(self) -> str | None:
        return self.short

    def end_member(self, member: int) -> None:
        if member in self._jobs:
            del self._jobs[member]
            self._turns.remove(member)

    def end(self) -> None:
        self.ended = True


DEAD = Lost("killed by the test")
