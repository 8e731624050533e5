"""One request to a server, and which parts of which questions its answer holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from choicewise.models.server.json_answer import JSON
from choicewise.questions import Question, TokenScores


class Part(NamedTuple):
    """Part ``number`` of question ``question``, an index among those asked."""

    question: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """What is posted to ``path``, and how its answer is read.

    ``read`` gives the scores of each of ``parts``, in order, and raises Unanswerable where the answer is not what was
    asked for.
    """

    path: str
    body: dict[str, Any]
    parts: Sequence[Part]
    read: Callable[[JSON], Sequence[TokenScores]]


class OnePart:
    """The part of a way of asking that says that an answer comes whole."""

    def parts(self, question: Question) -> int:
        """One."""
        return 1

    def joined(self, question: Question, parts: Sequence[TokenScores]) -> TokenScores:
        """The one part."""
        return parts[0]


class Route(Protocol):
    """A way of asking.  ``cost``: in words, what it costs; ``supports``: the kinds of question it answers."""

    @property
    def name(self) -> str:
        """How it asks, in a few words."""

    @property
    def cost(self) -> str:
        """What it costs, in words."""

    @property
    def supports(self) -> frozenset[type]:
        """The kinds of question that it answers."""

    def objection(self, question: Question) -> str | None:
        """Why it can't answer ``question``, of a kind that it supports; None where it can."""

    def parts(self, question: Question) -> int:
        """Of how many parts the answer to ``question`` is put together."""

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """The requests for ``questions`` (index among those asked, question), in the order that is best for a cache.

        Every part of every question is in exactly one of them.
        """

    def joined(self, question: Question, parts: Sequence[TokenScores]) -> TokenScores:
        """The answer to ``question`` from its parts."""
