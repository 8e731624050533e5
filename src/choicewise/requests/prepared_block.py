"""What a block of items asks a model, and the rows that remember which answer belongs where."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.protocols.protocol import Protocol
from choicewise.records.rows import RequestRow, SpanRow
from choicewise.requests.blocks import Block
from choicewise.requests.fitting import fit_requests
from choicewise.requests.prompt_rows import Answerer, BlockQuestion, PromptRows
from choicewise.requests.readings import asker
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.request import Request
from choicewise.requests.schedule import request_source


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
    for ask in block.asks:
        digest = ask.protocol.prompt_digest
        if digest not in requests:
            source = request_source(ask.protocol, data, rendered)
            requests[digest] = []
            for request in source.requests(block.subject, block.items, block.start):
                if isinstance(request, Request):
                    requests[digest].append(request)
                elif not skip_bad_items:
                    raise request.reason
                elif ask.null is None:
                    prepared.refuse(ask.protocol, request.item, str(request.reason))
        if ask.null is None:
            prepared.add(ask.protocol, requests[digest], model)
        else:
            prepared.add_null(ask.protocol, ask.null, requests[digest], model)
    return prepared
