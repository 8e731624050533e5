"""Whether the model behind a server is the same at the end of a run as at its beginning."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast

from choicewise.errors import ModelError
from choicewise.models.model import Model
from choicewise.questions import Question
from choicewise.records.manifest import ServerRecord
from choicewise.store.folder import RunFolder


class _Facts(Protocol):
    model: str
    route: str
    root: str
    software: str
    tokenizer: str
    probes: Mapping[str, float]
    noise: float


class Served(Protocol):
    """What a model behind a server has beside what every model has."""

    notes: Sequence[str]

    @property
    def front(self) -> tuple[int, ...] | None:
        """The tokens that the server puts before a text; None where it does not say."""

    @property
    def facts(self) -> _Facts:
        """What is to be kept of it."""

    def probe_again(self) -> Mapping[str, float]:
        """The probe's log-probabilities (nats) as the server gives them now, by text; raises ModelError."""

    def requests_for(self, questions: Sequence[Question]) -> int:
        """How many requests ``questions`` take."""


def server_record(model: Model) -> ServerRecord | None:
    """What the run folder keeps of the server that ``model`` is behind; None for other models."""
    if (served := served_model(model)) is None:
        return None
    facts = served.facts
    names = facts.model, facts.route, facts.root, facts.software, facts.tokenizer
    return ServerRecord(*names, dict(facts.probes), facts.noise)


def note_change(folder: RunFolder, model: Model) -> None:
    """Probe the server once more, after the last question, and keep in ``folder`` what it answers otherwise.

    Warns of that, and where the server can't be asked any more.
    """
    before = folder.manifest.server
    if (served := served_model(model)) is None or before is None:
        return
    try:
        now = replace(before, probes=dict(served.probe_again()))
    except ModelError as error:
        warnings.warn(f"the server was not probed again after the last question: {error}", stacklevel=3)
        return
    if lines := before.differences(now):
        folder.note_changed("; ".join(lines))
        warnings.warn(
            f"the server answers otherwise than at the beginning of the run: {'; '.join(lines)}", stacklevel=3
        )


def served_model(model: Model) -> Served | None:
    """``model`` where it is behind a server; None for others."""
    return cast(Served, model) if hasattr(model, "probe_again") else None
