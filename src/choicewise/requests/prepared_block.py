"""What a block of items asks a model, and the rows that remember which answer belongs where."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from choicewise.data.item import Item
from choicewise.protocols.protocol import Protocol as Recipe
from choicewise.questions import Conclusion
from choicewise.records.rows import RequestRow, SpanRow
from choicewise.requests.fitting import FittedRequest, fit_requests
from choicewise.requests.readings import asker
from choicewise.requests.request import Request
from choicewise.tokens.byte_probability import TokenQuestion
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.tokenizer import Tokenizer

BlockQuestion = TokenQuestion | Conclusion
"""Everything that a block may ask: a conclusion becomes a span when its generation is there."""

_NO_CHOICE = ChoiceQuestion(None)
"""Of a question that no boundary policy made: it has no flags and no corrections."""


class Answerer(Protocol):
    """What preparing needs to know of a model: its tokenizer and its window (input tokens)."""

    window: int
    tokenizer: Tokenizer


@dataclass
class PreparedBlock:
    """Rows of the run folder's ``requests`` and ``spans`` tables, and the unique questions to the model by key."""

    requests: list[RequestRow] = field(default_factory=list)
    spans: list[SpanRow] = field(default_factory=list)
    wanted: dict[str, BlockQuestion] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        """Input tokens when every choice of every protocol is a sequence of its own, as usually asked."""
        return sum(self.wanted[row.key].inputs for row in self.spans if row.key is not None)

    def add(self, protocol: Recipe, requests: Sequence[Request], model: Answerer) -> None:
        """Fit and tokenize ``requests`` of one protocol, and ask them as its reading asks."""
        prompt, reading = PromptRows(self, protocol, model), asker(protocol.reading)
        fitted = fit_requests(protocol, requests, model, reading.reserve(prompt, requests))
        for each in fitted:
            if each.missing is not None:
                self.refuse(protocol, each.request.item, each.missing)
        reading.ask(prompt, [each for each in fitted if each.missing is None])

    def add_null(self, protocol: Recipe, null: str, requests: Sequence[Request], model: Answerer) -> None:
        """Ask for the continuations of ``requests`` after the ``null`` context, each distinct text once."""
        asker(protocol.reading).ask_null(PromptRows(self, protocol, model), null, requests)

    def refuse(self, protocol: Recipe, item: Item, reason: str) -> None:
        """Remember an item that can't be asked under a protocol, and why."""
        row = RequestRow(protocol.prompt_digest, item.id, item.subject, item.gold, missing=reason)
        self.requests.append(row)


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Takes the rows and questions of one protocol's prompt into ``block``, as its reading makes them."""

    block: PreparedBlock
    protocol: Recipe
    model: Answerer

    def add_request(self, fitted: FittedRequest, tokens_dropped: int = 0) -> None:
        """The row of a request that is asked; ``tokens_dropped``: the greatest number over its choices."""
        request = fitted.request
        self.block.requests.append(
            RequestRow(
                self.protocol.prompt_digest,
                request.item.id,
                request.item.subject,
                request.item.gold,
                context=fitted.context,
                continuations=request.continuations,
                options=request.options,
                shots=fitted.shots,
                shots_dropped=fitted.shots_dropped,
                tokens_dropped=tokens_dropped,
            )
        )

    def add_span(
        self,
        item: str,
        place: tuple[int, int],
        question: BlockQuestion | None,
        *,
        null: str | None = None,
        context: str | None = None,
        continuation: str = "",
        context_tokens: int = 0,
        tokens_dropped: int = 0,
        choice: ChoiceQuestion = _NO_CHOICE,
    ) -> None:
        """Ask ``question``, and the row that says what it answers.

        ``place``: its choice and its part of that choice.  ``choice``: flags, corrections and why it is missing.
        """
        self.block.spans.append(
            SpanRow(
                prompt=self.protocol.prompt_digest,
                item=item,
                choice=place[0],
                part=place[1],
                null=null,
                context=context,
                continuation=continuation,
                key=self._want(question),
                context_tokens=context_tokens,
                tokens_dropped=tokens_dropped,
                before=self._want(choice.before),
                after=self._want(choice.after),
                merged=choice.merged,
                noncanonical=choice.noncanonical,
                lossy=choice.lossy,
                unknown=choice.unknown,
                bos=choice.bos,
                missing=choice.missing,
            )
        )

    def _want(self, question: BlockQuestion | None) -> str | None:
        """Register a question; its key."""
        if question is None:
            return None
        key = question.key
        self.block.wanted.setdefault(key, question)
        return key
