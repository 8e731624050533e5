"""The rows and questions of one protocol's prompt, as its reading makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from choicewise.protocols.protocol import Protocol as Recipe
from choicewise.protocols.readings import READINGS
from choicewise.questions import Blanks, Conclusion, Cosine, MaskedLoss, Rendition, Span
from choicewise.records.rows import RequestRow, SpanRow
from choicewise.requests.request import FittedRequest
from choicewise.tokens.byte_probability import TokenQuestion
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from choicewise.requests.prepared_block import PreparedBlock

BlockQuestion = TokenQuestion | Conclusion
"""Everything that a block may ask: a conclusion becomes a span when its generation is there."""

_NO_CHOICE = ChoiceQuestion(None)
"""Of a question that no boundary policy made: it has no flags and no corrections."""


class Answerer(Protocol):
    """What preparing needs to know of a model: its tokenizer and its window (input tokens)."""

    @property
    def window(self) -> int:
        """The most input tokens."""

    @property
    def tokenizer(self) -> Tokenizer:
        """From texts to the model's tokens."""


class PromptRows:
    """Adds the rows and questions of one protocol's prompt to ``block``.

    ``limit``: the most input tokens, the model's window or the protocol's own limit where that is lower.
    ``encodings``: the tokens of the texts, which all prompts of the block share.
    """

    def __init__(self, block: PreparedBlock, protocol: Recipe, model: Answerer) -> None:
        self.block = block
        self.protocol = protocol
        self.limit = model.window if protocol.limit is None else min(protocol.limit, model.window)
        self.encodings = block.encodings(model.tokenizer, protocol.bos, READINGS[protocol.reading].enclosed)

    def add_request(self, fitted: FittedRequest, tokens_dropped: int = 0) -> None:
        """The row of a request that is asked; ``tokens_dropped``: the greatest number over its choices."""
        request, item = fitted.request, fitted.request.item
        texts = (fitted.context, request.continuations, request.options)
        counts = (fitted.shots, fitted.shots_dropped, tokens_dropped)
        row = RequestRow(self.protocol.prompt_digest, item.id, item.subject, item.gold, *texts, *counts)
        self.block.requests.append(row)

    def add_span(
        self,
        item: str,
        place: tuple[int, int],
        question: BlockQuestion | None,
        *,
        null: str | None = None,
        context: str | None = None,
        continuation: str = "",
        choice: ChoiceQuestion = _NO_CHOICE,
    ) -> None:
        """Ask ``question``, and the row that says what it answers.

        ``place``: its choice and its part of that choice.  ``choice``: flags, corrections, tokens dropped, why missing.
        """
        key = before = after = None
        tokens = 0
        if question is not None:
            key, tokens = self._want(question), _context_tokens(question)
            self.block.inputs += question.inputs
        if choice.before is not None:
            before = self._want(choice.before)
        if choice.after is not None:
            after = self._want(choice.after)
        row = SpanRow(
            self.protocol.prompt_digest,
            item,
            *place,
            null,
            context,
            continuation,
            key,
            tokens,
            choice.tokens_dropped,
            before,
            after,
            choice.merged,
            choice.noncanonical,
            choice.lossy,
            choice.unknown,
            choice.bos,
            choice.missing,
        )
        self.block.spans.append(row)

    def last_spans(self, count: int) -> tuple[list[SpanRow], int]:
        """The last ``count`` spans and their inputs."""
        rows = self.block.spans[-count:]
        return rows, sum(self.block.wanted[row.key].inputs for row in rows if row.key is not None)

    def repeat_spans(self, item: str, rows: Sequence[SpanRow], inputs: int) -> None:
        """Add the same spans for ``item`` under this prompt; other items and prompts have them, too."""
        prompt = self.protocol.prompt_digest
        self.block.spans += [SpanRow(prompt, item, *row[2:]) for row in rows]
        self.block.inputs += inputs

    def _want(self, question: BlockQuestion) -> str:
        """Register a question; its key."""
        key = question.key
        self.block.wanted.setdefault(key, question)
        self.block.deepest = max(self.block.deepest, question.inputs)
        return key


def _context_tokens(question: BlockQuestion) -> int:
    """Tokens before the scored ones; those of a generation that a conclusion follows are not counted."""
    match question:
        case Span():
            return len(question.context)
        case MaskedLoss():
            return len(question.span.context)
        case Cosine():
            return len(question.left)
        case Blanks():
            return int(question.places[0])
        case Rendition():
            return len(question.source)
        case Conclusion():
            return len(question.generation.context) + len(question.span.context)
        case _:
            return len(question.context)
