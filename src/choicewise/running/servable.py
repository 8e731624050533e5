"""Which protocols of the catalogue a model can be asked under, judged by a few questions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import DataError, ProtocolError
from choicewise.models.model import Model
from choicewise.protocols.catalogue import entries
from choicewise.protocols.protocol import Protocol
from choicewise.requests.blocks import list_sections
from choicewise.requests.schedule import with_split
from choicewise.running.refusals import lacking, objection

_CHOICES = (
    *("to keep the bread from drying out overnight", "a small yellow boat on the quiet river"),
    *("because nobody had remembered to close it", "seventeen kilometres north of the old harbour"),
    "every second Thursday of the month",
)


def _quiz(count: int) -> Dataset:
    items = (Item(str(number), f"Which of these is right, {number}?", _CHOICES[:count], (0,)) for number in range(2))
    return Dataset(f"{count} choices", {"test": tuple(items)})


QUIZZES = tuple(map(_quiz, (4, 2, 5)))
"""Questions with choices of several words, which no tokenizer has as one token."""


@dataclass(frozen=True, slots=True)
class Servable:
    """Names of the catalogue's protocols.

    ``served``: those that the model can be asked under; ``refused``: the others, with the reason.  ``chats``: those of
    the refused ones that it can be asked under in a chat.  ``untried``: those that these questions don't fit; of them
    is known only that the model lacks nothing that they always need.
    """

    served: tuple[str, ...]
    refused: Mapping[str, str]
    chats: tuple[str, ...]
    untried: tuple[str, ...]


def servable(model: Model) -> Servable:
    """What ``model`` can be asked under, without shots; nothing is asked."""
    served, chats, untried, refused = list[str](), list[str](), list[str](), dict[str, str]()
    for name, protocol in ((name, each) for entry in entries() for name, each in entry.protocols.items()):
        reason = lacking(model, protocol)
        if reason is None:
            try:
                reason = _objection(model, replace(protocol, split=None, shots=0))
            except (DataError, ProtocolError):
                untried.append(name)
                continue
        if reason is None:
            served.append(name)
        else:
            refused[name] = reason
            if model.tokenizer.chat is not None and _in_chat(model, protocol):
                chats.append(name)
    return Servable(tuple(served), refused, tuple(chats), tuple(untried))


def _in_chat(model: Model, protocol: Protocol) -> bool:
    """Whether the model can be asked under the protocol where everything stands in one message."""
    try:
        chat = replace(protocol, split=None, shots=0, chat="message")
        return lacking(model, chat) is None and _objection(model, chat) is None
    except (DataError, ProtocolError):
        return False


def _objection(model: Model, protocol: Protocol) -> str | None:
    """What the model says against the first questions that the protocol fits; DataError where it fits none."""
    for data in QUIZZES:
        own = with_split(protocol, data)
        try:
            return objection(model, data, own, list_sections(data, {"": own}, None, None))
        except DataError as error:
            unfit = error
    raise unfit
