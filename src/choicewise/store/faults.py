"""What is wrong with a folder, what mends it, and what an examination came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Remedy(StrEnum):
    """What mends a fault."""

    drop = "drop"
    """The block is taken off the manifest, and the command of the run asks again what it held."""
    run_again = "run again"
    """The command of the run writes it again: the item table from the data, the summary from the observations."""
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
    ``line``: what asks again what was lost.  ``dropped``: the blocks that count no longer, a line each.
    """

    folder: str
    state: str
    faults: list[Fault] = field(default_factory=list)
    blocks: int = 0
    items: int = 0
    unanswered: int = 0
    line: str = ""
    dropped: list[str] = field(default_factory=list)

    @property
    def harmed(self) -> list[Fault]:
        """The faults that are damage."""
        return [fault for fault in self.faults if fault.harmful]
