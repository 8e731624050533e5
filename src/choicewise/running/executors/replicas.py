"""Shards and the replicas that answer them: every shard is answered once, whichever replica dies on the way."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from choicewise.errors import ModelError
from choicewise.running.executors.crew import Crew, Happened, Lost, Refused
from choicewise.running.executors.replica import Answered, Identity
from choicewise.running.executors.shards import Shard

AHEAD = 2
"""Shards that a replica has at most: the one that it computes, and the next, so that it never waits."""

DEATHS = 3
"""Replicas that may die over one shard, or before any answer, until the run ends with the reason.  After so many that
died before they had loaded the model there is one fewer: it would be started on the same bad node for ever."""

PATIENCE = 60.0
"""Seconds to wait for the first replica where nothing is free for it."""

PAUSE = 10.0
"""Seconds between two lines that say what is waited for."""

LATE = 16
"""Answered shards per replica that may wait until those before them are answered."""

BEAT = 0.5
"""Seconds to wait for something to happen, at most."""


class ReplicasLost(ModelError):
    """The machines are the reason that nothing is answered, or the model is too much for them."""


@dataclass
class _Asked:
    shard: Shard
    deaths: int = 0


@dataclass
class Replicas:
    """Hands shards to the replicas of a ``crew``, and keeps their answers until they are taken.

    ``own``: what the driver itself knows of the model; a replica that loaded another one gets nothing to answer.
    ``patience``: seconds to wait for the first replica where the crew lacks something; None: for as long as it takes.
    While ``patient`` says so, waiting does not count.
    """

    crew: Crew
    own: Identity
    patience: float | None = PATIENCE
    patient: Callable[[], bool] = lambda: False
    answered: dict[int, Answered] = field(default_factory=dict)
    _shards: dict[int, _Asked] = field(default_factory=dict)
    _waiting: deque[int] = field(default_factory=deque)
    _members: dict[int, list[int]] = field(default_factory=dict)
    """Of every replica that is there, or being started, the shards that it has."""
    _loaded: set[int] = field(default_factory=set)
    _started: int = 0
    _refused: int = 0
    _submitted: int = 0
    _deaths: int = 0
    _stillborn: int = 0

    def begin(self, say: Callable[[str], None], safe_point: Callable[[], None] = lambda: None) -> None:
        """Begin a run, without what an earlier one asked and did not wait for.

        ``say`` gets a line when a replica dies, is refused or is waited for.  ``safe_point`` is called now and then,
        and may raise.
        """
        self.answered.clear()
        self._waiting.clear()
        self._shards.clear()
        self._say, self._safe_point = say, safe_point
        self._began = self._said = monotonic()

    @property
    def wants(self) -> bool:
        """Whether further shards should be submitted, so that no replica has to wait."""
        return len(self._waiting) < AHEAD * self.crew.size and len(self.answered) < LATE * self.crew.size

    def submit(self, shard: Shard) -> int:
        """Have a shard answered; its number."""
        number, self._submitted = self._submitted, self._submitted + 1
        self._shards[number] = _Asked(shard)
        self._waiting.append(number)
        return number

    def advance(self, seconds: float = BEAT) -> None:
        """Start replicas that are missing, hand out shards, and wait at most so long for something to happen.

        ModelError where no replica can be had, or a shard can't be answered.
        """
        self._safe_point()
        self.staff()
        self._hand_out()
        for member, happened in self.crew.wait(seconds):
            if member in self._members:
                self._take(member, happened)
        self._hand_out()
        if self._loaded:
            self._began = self._said = monotonic()
        else:
            self._complain()

    def staff(self) -> None:
        """Start replicas until there are as many as there should be."""
        while len(self._members) < self.crew.size - self._refused:
            self._members[self._started] = []
            self.crew.start(self._started)
            self._started += 1

    def _hand_out(self) -> None:
        for round_ in range(AHEAD):  # one for each before a second for any, and none where few are left
            for member in sorted(self._loaded):
                if len(self._waiting) > round_ * len(self._loaded) and len(self._members[member]) <= round_:
                    number = self._waiting.popleft()
                    self._members[member].append(number)
                    self.crew.ask(member, number, self._shards[number].shard)

    def _take(self, member: int, happened: Happened) -> None:
        match happened:
            case Identity():
                if differences := happened.differences(self.own):
                    reason = f"has another model under the same name ({'; '.join(differences)})"
                    self._refuse(member, ReplicasLost(f"the replica on {happened.host} {reason}"))
                else:
                    self._loaded.add(member)
                    self._stillborn = 0
            case Answered(number=number):
                self._deaths = 0
                self._members[member].remove(number)
                if self._shards.pop(number, None) is not None:
                    self.answered[number] = happened
            case Refused(error=error):
                if member in self._loaded:
                    raise error
                self._refuse(member, error)
            case Lost(reason=reason):
                self._lose(member, reason)

    def _refuse(self, member: int, error: Exception) -> None:
        """Go on without a replica that could not be used, and without another in its place."""
        self._refused += 1
        self._drop(member)
        if not self._members:
            raise error
        self._say(f"{error}; the run goes on without it")

    def _lose(self, member: int, reason: str) -> None:
        """Put back what a dead replica had; the first of it may be what killed it."""
        asked = [number for number in self._members[member] if number in self._shards]
        self._waiting.extendleft(reversed(asked))
        self._stillborn += member not in self._loaded
        self._deaths += 1
        if asked:
            first = self._shards[asked[0]]
            first.deaths += 1
            if first.deaths >= DEATHS:
                raise ReplicasLost(f"{DEATHS} replicas died over the same questions; the last one: {reason}")
        if self._deaths >= max(DEATHS, 2 * self.crew.size):
            raise ReplicasLost(f"{self._deaths} replicas died one after the other; the last one: {reason}")
        if self._stillborn >= DEATHS:
            self._stillborn = 0
            start = f"{DEATHS} replicas died before they had loaded the model"
            self._refuse(member, ReplicasLost(f"{start}; the last one: {reason}"))
        else:
            self._drop(member)
            self._say(f"a replica died ({reason}); what it was asked is asked again")

    def _drop(self, member: int) -> None:
        self._loaded.discard(member)
        del self._members[member]
        self.crew.end_member(member)

    def _complain(self) -> None:
        """Say what is waited for, and end where that has taken too long."""
        now = monotonic()
        if now - self._said < PAUSE:
            return
        self._said = now
        if (lacking := self.crew.lacking()) is None:
            self._began = now  # a replica is being loaded, which may take long
            return
        if self.patient():
            self._began = now
        elif self.patience is not None and now - self._began >= self.patience:
            raise ReplicasLost(f"no replica could start within {self.patience:.0f} s: {lacking}")
        self._say(f"waiting for the first replica: {lacking}")
