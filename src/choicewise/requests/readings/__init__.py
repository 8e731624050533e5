"""How each reading asks: one file per reading, named like it, with its ``ASKER``."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import cast

from choicewise.errors import ProtocolError
from choicewise.requests.prompt_rows import PromptRows
from choicewise.requests.readings.choice_group import ChoiceGroup, one_context
from choicewise.requests.request import FittedRequest, Request


class Asker:
    """How a reading asks, to be said by each."""

    def texts(self, request: Request) -> list[ChoiceGroup]:
        """Which texts are sent after which contexts, before these are fitted into a model's window."""
        return [one_context(request, request.context())]

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """For each request, the input tokens that must stay free after its context."""
        raise NotImplementedError

    def ask(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """Add the questions and rows of requests that fit."""
        raise NotImplementedError

    def ask_null(self, prompt: PromptRows, null: str, requests: Sequence[Request]) -> None:
        """Add the questions and rows for the continuations after the ``null`` context."""
        raise ProtocolError(f"reading {prompt.protocol.reading} has no score that compares with a null context")


@cache
def asker(reading: str) -> Asker:
    """The asker of the reading of that name (:data:`choicewise.protocols.readings.READINGS`)."""
    return cast(Asker, import_module(f"{__name__}.{reading.replace('-', '_')}").ASKER)
