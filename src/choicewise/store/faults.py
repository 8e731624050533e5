"""What is wrong with a folder, what repairs it, and what an examination came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Remedy(StrEnum):
    """What repairs a fault.  Nothing that was observed is ever deleted: it is set aside, under ``damaged/``."""

    put_back = "put back"
    """The copy of the file takes its place."""
    ask_again = "ask again"
    """The block is set aside, and the run's own line asks again what it held."""
    write_again = "write again"
    """The item table is written again from the data, as the run's own line does, the summary from the observations."""
    copy = "copy"
    """What a link names takes the place of the link."""
    set_aside = "set aside"
    remove = "remove"
    by_hand = "by hand"
    """Only a person can: the problem says what to do."""
    none = "none"
    """It does no harm: nothing depends on it, or the next run mends it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``kind`` in a word or two; ``path``: where, relative to the folder; ``problem`` in words.

    ``block``: the name of the block that it makes useless, empty where it makes none so.
    """

    kind: str
    path: str
    problem: str
    remedy: Remedy
    block: str = ""

    @property
    def harmful(self) -> bool:
        """Whether it is damage, and not only worth saying."""
        return self.remedy is not Remedy.none


@dataclass(slots=True)
class Examined:
    """What an examination of the ``folder`` of a run, or of several, came to.

    ``state``: complete, not complete, running (another process writes to it; then nothing else is said), lost (no
    manifest can be read).  ``blocks``: how many there are, and ``items``: how many places they are about.
    ``line``: what asks again what was lost.  ``done``: what was repaired, a line each.
    """

    folder: str
    state: str
    faults: list[Fault] = field(default_factory=list)
    blocks: int = 0
    items: int = 0
    unanswered: int = 0
    line: str = ""
    done: list[str] = field(default_factory=list)

    @property
    def harmed(self) -> list[Fault]:
        """The faults that are damage."""
        return [fault for fault in self.faults if fault.harmful]
