"""A model behind a server: what a run keeps of it, and whether it is the same after the last question."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast

from choicewise.errors import ModelError
from choicewise.models.model import Model
from choicewise.questions import Question
from choicewise.records.manifest import ServerRecord
from choicewise.store.folder import RunFolder


class ServedModel(Protocol):
    """What a model behind a server has beside what every model has."""

    notes: Sequence[str]

    @property
    def front(self) -> tuple[int, ...] | None:
        """The tokens that the server puts before a text; None where it does not say."""

    @property
    def takes(self) -> int | None:
        """Tokens of prompt and answer that the server says it takes; None where it does not say."""

    @property
    def record(self) -> ServerRecord:
        """What a run keeps of it."""

    def probe_again(self) -> Mapping[str, float]:
        """The probe's log-probabilities (nats) as the server gives them now, by text; raises ModelError."""

    def requests_for(self, questions: Sequence[Question]) -> int:
        """How many requests ``questions`` take."""


def server_record(model: Model) -> ServerRecord | None:
    """What the run folder keeps of the server that ``model`` is behind; None for other models."""
    served = served_model(model)
    return None if served is None else served.record


def note_change(folder: RunFolder, model: Model) -> None:
    """Probe the server once more, after the last question, and keep in ``folder`` what it answers otherwise.

    Warns of that, and where the server can't be asked any more.
    """
    before = folder.manifest.server
    if (served := served_model(model)) is None or before is None:
        return
    try:
        now = replace(before, probes=dict(served.probe_again()), named=served.record.named)
    except ModelError as error:
        warnings.warn(f"the server was not probed again after the last question: {error}", stacklevel=3)
        return
    if lines := before.differences(now):
        folder.note_changed("; ".join(lines))
        warnings.warn(
            f"the server answers otherwise than at the beginning of the run: {'; '.join(lines)}", stacklevel=3
        )


def how_asked(model: Model) -> list[str]:
    """Lines that say how the server that ``model`` is behind is asked, and what to know of that; none for others."""
    if (served := served_model(model)) is None:
        return []
    record = served.record
    asked = f"{record.model} behind {record.software or 'a server'} is asked by {record.route or 'nothing'}"
    return [asked, *(f"note: {note}" for note in served.notes)]


def served_model(model: Model) -> ServedModel | None:
    """``model`` where it is behind a server; None for others."""
    return cast(ServedModel, model) if hasattr(model, "probe_again") else None
