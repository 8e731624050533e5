"""Check which protocols of the catalogue a model supports, and if its answers are plausible."""

from __future__ import annotations

from dataclasses import dataclass, replace

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError, ProtocolError
from choicewise.models.model import Model
from choicewise.protocols.catalogue import entries
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Span
from choicewise.requests.blocks import list_sections, with_split
from choicewise.running.work import lacking, objection
from choicewise.tokens.tokenizer import common_prefix

_CHOICES = (
    "to keep the bread from drying out overnight",
    "a small yellow boat on the quiet river",
    "because nobody had remembered to close it",
    "seventeen kilometres north of the old harbour",
    "every second Thursday of the month",
)


def _quiz(count: int) -> Dataset:
    items = []
    for number in range(2):
        question = f"Which of these is right, {number}?"
        items.append(Item(str(number), question, _CHOICES[:count], (0,)))
    return Dataset(f"{count} choices", {"test": tuple(items)})


@dataclass(frozen=True)
class Servable:
    """Sort the protocols of the catalogue by whether a model supports them.

    ``refused``: unsupported ones, with the reason; ``chats``: those of them that the model supports
    in a chat.  ``untried``: protocols that the trial items do not fit; the model has all that their
    prompts always need.
    """

    served: tuple[str, ...]
    refused: dict[str, str]
    chats: tuple[str, ...]
    untried: tuple[str, ...]


def servable(model: Model) -> Servable:
    """Sort the protocols of the catalogue, without shots, without computing anything."""
    # Their choices have several words, which no tokenizer has as one token.
    quizzes = [_quiz(4), _quiz(2), _quiz(5)]
    served: list[str] = []
    chats: list[str] = []
    untried: list[str] = []
    refused: dict[str, str] = {}
    for entry in entries():
        for name, protocol in entry.protocols.items():
            try:
                reason = lacking(model, protocol)
                if not reason:
                    reason = _objection(model, replace(protocol, split=None, shots=0), quizzes)
            except (DataError, ProtocolError):
                untried.append(name)
                continue
            if not reason:
                served.append(name)
                continue
            refused[name] = reason
            if model.tokenizer.chat is not None and _is_servable_in_chat(model, protocol, quizzes):
                chats.append(name)
    return Servable(tuple(served), refused, tuple(chats), tuple(untried))


def _is_servable_in_chat(model: Model, protocol: Protocol, quizzes: list[Dataset]) -> bool:
    """Return True if the model supports the protocol with everything in one message."""
    try:
        chat = replace(protocol, split=None, shots=0, chat="message")
        return not (lacking(model, chat) or _objection(model, chat, quizzes))
    except (DataError, ProtocolError):
        return False


def _objection(model: Model, protocol: Protocol, quizzes: list[Dataset]) -> str:
    """Return the objection to the first items that fit the protocol; DataError if none does."""
    for data in quizzes:
        recipe = with_split(protocol, data)
        try:
            return objection(model, data, recipe, list_sections(data, {"": recipe}))
        except DataError as error:
            misfit = error
    raise misfit


TEXT = "The capital of France is"
TRUE_ENDING = " Paris"
SILLY_ENDING = " banana"


@dataclass(frozen=True, kw_only=True)
class Plausible:
    """Hold the log-probabilities (nats) of a true and a silly ending of ``TEXT``.

    ``true_at_most`` and ``silly_at_most``: True for upper bounds.  ``objection``: why they are
    unknown; both are None then.
    """

    true: float | None = None
    silly: float | None = None
    true_at_most: bool = False
    silly_at_most: bool = False
    objection: str = ""

    @property
    def text(self) -> str:
        """Describe the result in a sentence."""
        if self.true is None or self.silly is None:
            return f"not checked: {self.objection}"
        true = f"at most {self.true:.2f}" if self.true_at_most else f"{self.true:.2f}"
        silly = f"at most {self.silly:.2f}" if self.silly_at_most else f"{self.silly:.2f}"
        numbers = f"after {TEXT!r}, {TRUE_ENDING!r} has {true} nats and {SILLY_ENDING!r} {silly}"
        if self.true > self.silly and not self.true_at_most:
            return f"{numbers}: the true ending is more likely, as it should be"
        if self.true_at_most:
            return f"{numbers}: which one is more likely is unknown"
        return (
            f"{numbers}: the true ending is not more likely. Doubt the model, unless it knows "
            "no English"
        )


def plausible(model: Model) -> Plausible:
    """Score both endings with ``model``; ModelError if its server fails."""
    objection = ""
    texts = [TEXT, TEXT + TRUE_ENDING, TEXT + SILLY_ENDING]
    # Some servers do not score after special tokens, such as BOS.
    for special in (True, False):
        sequences = model.tokenizer.encode(texts, special=special)
        start = common_prefix(sequences)
        spans = [Span(sequence[:start], sequence[start:]) for sequence in sequences[1:]]
        objection = _first_text([_implausible(model, span) for span in spans])
        if objection:
            continue
        answers = dict(model.answer(spans))
        true = answers[0]
        silly = answers[1]
        objection = _first_text([true.missing, silly.missing])
        if not objection:
            return Plausible(
                true=float(true.logprobs.sum(dtype="float64")),
                silly=float(silly.logprobs.sum(dtype="float64")),
                true_at_most=bool(true.at_most),
                silly_at_most=bool(silly.at_most),
            )
    return Plausible(objection=objection)


def _first_text(texts: list[str | None]) -> str:
    return next(filter(None, texts), "")


def _implausible(model: Model, span: Span) -> str | None:
    if Span not in model.supports:
        return "the model returns no log-probabilities of texts"
    if not len(span.context):
        return "the tokenizer puts nothing before the endings"
    return model.objection(span)
