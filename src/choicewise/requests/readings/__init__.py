"""How each reading asks: one file per reading, named like it, with its ``ASKER``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from choicewise.protocols.protocol import Protocol as Recipe
    from choicewise.requests.fitting import FittedRequest
    from choicewise.requests.prepared_block import Answerer, PreparedBlock
    from choicewise.requests.request import Request


class Asker(Protocol):
    """How a reading asks."""

    def reserve(self, protocol: Recipe, requests: Sequence[Request], model: Answerer) -> list[int]:
        """For each request, the input tokens that must stay free after its context."""
        ...

    def ask(self, block: PreparedBlock, protocol: Recipe, fitted: Sequence[FittedRequest], model: Answerer) -> None:
        """Put the questions and rows of requests that fit into ``block``."""
        ...

    def ask_null(
        self, block: PreparedBlock, protocol: Recipe, null: str, requests: Sequence[Request], model: Answerer
    ) -> None:
        """Put the questions and rows for the continuations after the ``null`` context into ``block``."""
        ...


@cache
def asker(reading: str) -> Asker:
    """The asker of the reading of that name (:data:`choicewise.protocols.readings.READINGS`)."""
    return cast(Asker, import_module(f"{__name__}.{reading.replace('-', '_')}").ASKER)
