"""What a block of items asks a model, and the rows that remember which answer belongs where."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Span
from choicewise.records.rows import RequestRow, SpanRow
from choicewise.requests.blocks import Block
from choicewise.requests.fitting import fit_requests
from choicewise.requests.prompt_rows import Answerer, BlockQuestion, PromptRows
from choicewise.requests.readings import asker
from choicewise.requests.readings.null_group import NullGroup
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.request import Request
from choicewise.requests.schedule import request_source
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.encodings import Encodings
from choicewise.tokens.tokenizer import Tokenizer


@dataclass
class PreparedBlock:
    """Rows of the run folder's ``requests`` and ``spans`` tables, and the unique questions to the model by key.

    ``inputs``: tokens when every choice of every protocol is a sequence of its own, as usually asked.  ``deepest``:
    those of the longest question.  ``null_choices``: choices after null contexts, by how they are asked.  ``repeated``:
    likewise, the spans that several prompts and items share, with their inputs.
    """

    requests: list[RequestRow] = field(default_factory=list)
    spans: list[SpanRow] = field(default_factory=list)
    wanted: dict[str, BlockQuestion] = field(default_factory=dict)
    inputs: int = 0
    deepest: int = 0
    null_choices: dict[Hashable, dict[NullGroup, list[ChoiceQuestion]]] = field(default_factory=dict)
    repeated: dict[Hashable, dict[NullGroup, tuple[list[SpanRow], int]]] = field(default_factory=dict)
    _encodings: dict[tuple[str, bool], Encodings] = field(default_factory=dict)

    def add(self, protocol: Protocol, requests: Sequence[Request], model: Answerer) -> None:
        """Fit and tokenize ``requests`` of one protocol, and ask them as its reading asks."""
        prompt, reading = PromptRows(self, protocol, model), asker(protocol.reading)
        fitted = fit_requests(prompt, requests, reading.reserve(prompt, requests))
        for each in fitted:
            if each.missing is not None:
                self.refuse(protocol, each.request.item, each.missing)
        reading.ask(prompt, [each for each in fitted if each.missing is None])

    def add_null(self, protocol: Protocol, null: str, requests: Sequence[Request], model: Answerer) -> None:
        """Ask for the continuations of ``requests`` after the ``null`` context, each distinct text once."""
        asker(protocol.reading).ask_null(PromptRows(self, protocol, model), null, requests)

    def want_ranks(self, start: int) -> None:
        """Ask for the ranks of the tokens of all spans from the row ``start`` on."""
        for row in self.spans[start:]:
            question = None if row.key is None else self.wanted[row.key]
            if isinstance(question, Span):
                question.ranked = True

    def encodings(self, tokenizer: Tokenizer, bos: str, enclosed: bool = False) -> Encodings:
        """The tokens of texts of the block so far, with what ``bos`` adds; ``enclosed`` as there."""
        how = bos, enclosed
        if how not in self._encodings:
            self._encodings[how] = Encodings(tokenizer, bos, enclosed)
        return self._encodings[how]

    def forget_sequences(self) -> None:
        """Free the tokens of whole texts, which hardly two prompts share and which are long."""
        for encodings in self._encodings.values():
            encodings.sequences.clear()

    def forget_texts(self) -> None:
        """Free what only preparing needs."""
        self._encodings.clear()
        self.null_choices.clear()
        self.repeated.clear()

    def refuse(self, protocol: Protocol, item: Item, reason: str) -> None:
        """Remember an item that can't be asked under a protocol, and why."""
        row = RequestRow(protocol.prompt_digest, item.id, item.subject, item.gold, missing=reason)
        self.requests.append(row)


def prepare_block(
    data: Dataset,
    block: Block,
    model: Answerer,
    skip_bad_items: bool,
    rendered: Sequence[RenderedRequests] = (),
) -> PreparedBlock:
    """Render, fit and tokenize the items of ``block`` for every one of its asks.

    Raises DataError for an item that can't be asked; with ``skip_bad_items`` it is refused, with the reason.
    """
    prepared = PreparedBlock()
    requests: dict[str, list[Request]] = {}
    items = tuple(block.items)  # each of them is made once, however often it is asked
    for ask in block.asks:
        digest = ask.protocol.prompt_digest
        if digest not in requests:
            template = None if ask.protocol.chat == "none" else model.tokenizer.chat
            source = request_source(ask.protocol, data, rendered, template)
            requests[digest] = []
            for request in source.requests(block.subject, items, block.start):
                if isinstance(request, Request):
                    requests[digest].append(request)
                elif not skip_bad_items:
                    raise request.reason
                elif ask.null is None:
                    prepared.refuse(ask.protocol, request.item, str(request.reason))
        before = len(prepared.spans)
        if ask.null is None:
            prepared.add(ask.protocol, requests[digest], model)
        else:
            prepared.add_null(ask.protocol, ask.null, requests[digest], model)
        if ask.ranked:
            prepared.want_ranks(before)
        prepared.forget_sequences()
    prepared.forget_texts()
    return prepared
