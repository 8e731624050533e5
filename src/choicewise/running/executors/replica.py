"""A copy of the model somewhere, that answers shards: what it is sent, and what it sends back."""

import platform
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from choicewise import __version__
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.models.recipe import Recipe
from choicewise.models.selfcheck import SelfCheck
from choicewise.records.tables import OBSERVATIONS
from choicewise.running.executors.shards import Shard
from choicewise.running.observe import observe
from choicewise.store.tables import make_table


@dataclass(frozen=True)
class Identity:
    """What a replica loaded, and where: the driver compares it with its own."""

    digest: str
    dtype: str
    window: int
    version: str
    host: str = ""

    @classmethod
    def of(cls, model: Model) -> "Identity":
        """That of ``model`` in this process."""
        return cls(model.digest, model.dtype, model.window, __version__, platform.node())

    def differences(self, own: "Identity") -> list[str]:
        """What it is otherwise than ``own``, in words; the host may be another."""
        words = {"digest": "weights or configuration", "dtype": "dtype", "window": "window", "version": "Choicewise"}
        pairs = [(what, getattr(self, name), getattr(own, name)) for name, what in words.items()]
        return [f"{what}: {_short(there)} there, {_short(here)} here" for what, there, here in pairs if there != here]


@dataclass(frozen=True)
class Answered:
    """The ``observations`` of shard ``number``, as a table of the run folder.

    ``computed``: input tokens for it, without those of a self-check; None where they are not counted.
    """

    number: int
    observations: pa.Table
    computed: int | None
    selfcheck: SelfCheck | None


class Replica:
    """The model of a ``recipe``, loaded here; errors as of load_model."""

    def __init__(self, recipe: Recipe, device: str | None = None) -> None:
        options: dict[str, Any] = dict(recipe.options)
        if device is not None:
            options["device"] = device
        self._model = load_model(recipe.name, **options)

    def load(self) -> Identity:
        """Have the weights in memory; what was loaded."""
        self._model.check(0)
        return Identity.of(self._model)

    def answer(self, number: int, shard: Shard) -> Answered:
        """The answers to all of a shard; errors as of the model."""
        self._model.check(shard.depth)  # whose tokens no run counts
        before = self._model.computed
        rows = list(observe(self._model, shard.complete(self._model.tokenizer)))
        computed = None if before is None else (self._model.computed or 0) - before
        return Answered(number, make_table(OBSERVATIONS, rows), computed, self._model.check(0))


def last_words(error: Exception) -> str:
    """What a replica died of that nobody foresaw, and where, in one line; the whole of it is printed."""
    traceback.print_exception(error)
    words = traceback.format_exception_only(error)[-1].strip()
    place = traceback.extract_tb(error.__traceback__)[-1:]
    return words + "".join(f", {Path(frame.filename).name} line {frame.lineno}" for frame in place)


def _short(value: object) -> object:
    return value[:12] if isinstance(value, str) else value
