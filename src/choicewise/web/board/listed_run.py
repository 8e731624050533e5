"""A run folder as the board lists it: what it measured, or why nothing of it is shown."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from choicewise.records.manifest import Manifest
from choicewise.results.row import Row
from choicewise.web.board.artefact import Artefact


class State(StrEnum):
    """How far a run is, in the word that a cell shows instead of a number."""

    READ = "read"
    WAITING = "being read"
    INCOMPLETE = "incomplete"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, eq=False)
class ListedRun:
    """One run folder at one moment.

    ``id`` stands in addresses and does not change while the run grows; ``label`` is the folder below the one that is
    served.  ``version`` is the sha256 of its manifest.  ``reason`` says in words why a run is not read.  ``manifest``
    has no blocks, which a board has no use for and which take memory; None where it can't be read.  ``computed`` is the
    id ``#R`` of the model as it was computed.  ``rows`` are not ranked; only complete runs have them, and
    ``artefacts``.
    """

    id: str
    label: str
    folder: Path
    state: State
    version: str
    reason: str = ""
    manifest: Manifest | None = None
    computed: str = ""
    rows: tuple[Row, ...] = ()
    artefacts: tuple[Artefact, ...] = ()

    @property
    def model(self) -> str:
        """The name of the model; the label where it is not known."""
        return self.label if self.manifest is None else self.manifest.model.name
