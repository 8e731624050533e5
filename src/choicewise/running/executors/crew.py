"""Where replicas live: what a crew of them is asked, and what happens to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from choicewise.errors import ChoicewiseError
from choicewise.running.executors.replica import Answered, Identity
from choicewise.running.executors.shards import Shard


@dataclass(frozen=True)
class Lost:
    """A replica is gone, with all that it was asked; ``reason`` says in words what is known of it."""

    reason: str


@dataclass(frozen=True)
class Refused:
    """A replica said no, and would say so again: its model can't be loaded, or can't answer as asked."""

    error: ChoicewiseError


Happened = Identity | Answered | Refused | Lost
"""What a replica reports: first what it loaded, then answers; or why there will be none."""


class Crew(Protocol):
    """Replicas by number, each in a process of its own."""

    @property
    def size(self) -> int:
        """How many there should be; it may change."""

    def start(self, member: int) -> None:
        """Begin to start replica ``member`` (a number that was not used before); what it loaded is reported later."""

    def ask(self, member: int, number: int, shard: Shard) -> None:
        """Send shard ``number`` to a replica, which answers one after the other."""

    def wait(self, seconds: float) -> Sequence[tuple[int, Happened]]:
        """What happened to which replicas since the last call; waits at most so long for something to happen."""

    def end_member(self, member: int) -> None:
        """Let one replica go."""

    def lacking(self) -> str | None:
        """What replicas wait for that were started, in words: resources that are not free; None where nothing."""

    def end(self) -> None:
        """Let all of them go; nothing more is reported."""
