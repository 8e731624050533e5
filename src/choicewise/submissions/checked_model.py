"""A submitted model that was checked and opened: what a sweep asks, under the name that was submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from choicewise.data.download_bars import Download
from choicewise.models.model import Model
from choicewise.running.sweep_model import SweepModel


@dataclass(frozen=True)
class CheckedModel(SweepModel):
    """``name`` and ``options`` are what was submitted, the same on every worker; ``opened`` is that model here.

    On what device it runs here, and at which commit its revision is, does not change what its runs are called.
    """

    opened: Model = field(kw_only=True, repr=False, compare=False)

    @property
    def state(self) -> object:
        """What changes when the model of that name becomes another: its digest."""
        return self.label, self.opened.digest

    def load(self, progress: Download | None = None, say: Callable[[str], None] = lambda line: None) -> Model:
        """The model, which is there already."""
        return self.opened
