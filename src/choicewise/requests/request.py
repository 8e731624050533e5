"""One request, chat turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from choicewise.data.items import Item
from choicewise.errors import DataError, ModelError
from choicewise.tokens.chat_template import ChatTemplate, Message

_EXAMPLES = 3  # items that are named where many are wrong in the same way


@dataclass(frozen=True, slots=True)
class View:
    """One version of a query, and the continuations after it: one per choice, whichever place it has there.

    ``content``: whether it shows the item; else it shows a text without content.
    """

    query: str
    continuations: tuple[str, ...]
    content: bool = True


class Turn(NamedTuple):
    """A solved example: what the user says and what the assistant answers."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Chat:
    """How the texts of one request become messages, and these a text.

    ``system``: the system text, with the header.  ``turns``: the shots as turns, or None where they stand in the
    message of the query.  ``begins``: whether a proposal is what the assistant has begun to say, and else a part of
    what the user says.  ``template``: the model's; None where no model is known.

    As ``fewshot_context`` of lm-evaluation-harness does it, with ``fewshot_as_multiturn`` or without
    (lm_eval/api/task.py at 4e7e0d4).
    """

    system: str
    turns: tuple[Turn, ...] | None
    begins: bool
    template: ChatTemplate | None

    def text(self, shots: Sequence[str], separator: str, query: str, proposal: str = "") -> str:
        """What the model reads before it continues; ModelError without a template, or where that fails.

        ``shots``: those that fit, as texts; as many turns stand for them.
        """
        if self.template is None:
            raise ModelError("a chat needs the chat template of a model; name the model")
        return self.template.render(self.messages(shots, separator, query, proposal))

    def messages(self, shots: Sequence[str], separator: str, query: str, proposal: str = "") -> list[Message]:
        """The messages of such a text."""
        messages = [Message("system", self.system)] if self.system else []
        for turn in (self.turns or ())[: len(shots)]:
            messages += [Message("user", turn.question), Message("assistant", turn.answer)]
        asked = query if self.begins else query + proposal
        messages.append(Message("user", asked if self.turns is not None else separator.join([*shots, asked])))
        if self.begins and proposal:
            messages.append(Message("assistant", proposal.lstrip()))
        return messages


@dataclass(frozen=True, slots=True)
class Request:
    """The texts of one item.

    ``options`` are the choices as shown, after quirk and strip; ``continuations`` the texts scored, one per choice.
    Where a reading scores several texts of a choice, ``parts`` holds them and ``continuations`` has them one a line.
    ``proposals`` follow the query, one per choice; empty where all choices share the context.  ``views`` are the
    versions of the query after the first, which is ``query``.  ``chat``: how these texts become a chat, if they do.
    """

    item: Item
    header: str
    shots: tuple[str, ...]
    query: str
    separator: str
    continuations: tuple[str, ...]
    options: tuple[str, ...]
    gold: tuple[int, ...]
    parts: tuple[tuple[str, ...], ...]
    proposals: tuple[str, ...] = ()
    views: tuple[View, ...] = ()
    chat: Chat | None = None

    def text(self, shots: int | None = None) -> str:
        """Header, the first ``shots`` shots (all of them when None) and the query, joined by the separator."""
        return self.header + self.separator.join([*self.shots[:shots], self.query])

    def context(self, shots: int | None = None) -> str:
        """What the choices come after: :meth:`text`, or the same as a chat; ModelError where its template fails."""
        if self.chat is None:
            return self.text(shots)
        return self.chat.text(self.shots[:shots], self.separator, self.query)

    def with_query(self, context: str, query: str) -> str:
        """``context``, which ends with the query, with another one."""
        if self.chat is None:
            return context.removesuffix(self.query) + query
        return self.chat.text(self.shots, self.separator, query)

    def with_proposal(self, context: str, proposal: str) -> str:
        """``context`` and a proposal after its query."""
        if self.chat is None:
            return context + proposal
        return self.chat.text(self.shots, self.separator, self.query, proposal)


@dataclass(frozen=True, slots=True)
class FittedRequest:
    """A request with a context that fits, or the reason why there is none (``missing``).

    ``shots`` are part of ``context``, ``shots_dropped`` are not.  ``cut_end`` says that the context still has too many
    tokens and the protocol has its end cut; the reading, which holds the tokens, does that and counts them.
    """

    request: Request
    context: str
    shots: int
    shots_dropped: int = 0
    cut_end: bool = False
    missing: str | None = None

    @property
    def kept(self) -> Request:
        """The request without the shots that were dropped."""
        return replace(self.request, shots=self.request.shots[: self.shots]) if self.shots_dropped else self.request


def joined(system: str | None, header: str, separator: str) -> str:
    """The system text and the header as one, with ``separator`` between where no white space is."""
    if not system or not header:
        return system or header
    return system + ("" if system[-1].isspace() or header[0].isspace() else separator) + header


class Problems:
    """Collects errors about items and subjects, in memory that does not grow with their number."""

    def __init__(self) -> None:
        self._examples: dict[str, list[str]] = {}
        self._counts: dict[str, Counter[str]] = {}

    def add(self, errors: Iterable[tuple[str, DataError]], subject: str, prompt: str) -> None:
        """What is wrong in ``subject`` for one ``prompt``, each with the name of the item or subject it is about."""
        for name, error in errors:
            text = str(error)
            kind = text.replace(name, "").replace(repr(subject), "")
            self._counts.setdefault(kind, Counter())[prompt] += 1
            examples = self._examples.setdefault(kind, [])
            if len(examples) < _EXAMPLES and text not in examples:
                examples.append(text)

    def refuse(self, dataset: str) -> None:
        """DataError that lists everything, if anything is wrong."""
        lines: list[str] = []
        for kind, examples in self._examples.items():
            more = max(self._counts[kind].values()) - len(examples)  # several prompts mostly meet the same items
            lines += [*examples, *([f"... and {more} more like it"] if more > 0 else [])]
        if len(lines) == 1:
            raise DataError(lines[0])
        if lines:
            raise DataError(f"{dataset} can't be asked under these protocols", lines)
