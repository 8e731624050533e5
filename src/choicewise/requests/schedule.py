"""What a run has to do: which ways of asking, over which blocks of items."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import DataError, ModelError, ProtocolError, UsageError
from choicewise.protocols.boundary import CORRECTED
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import CORRECTION_NEEDS, READINGS
from choicewise.records.manifest import Place
from choicewise.requests.prepared_block import PreparedBlock
from choicewise.requests.prompt_rows import Answerer
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.request import Request
from choicewise.requests.source import RequestSource, TemplateSource

EXAMPLES = 3
"""Items that are named where many are wrong in the same way."""

BLOCK = 2000
"""Items asked together, so that they share what they have in common, and few enough that they stay in memory."""


@dataclass(frozen=True)
class Ask:
    """One way of asking about every item: a protocol's request, or its continuations after a null context."""

    protocol: Protocol
    null: str | None = None

    @property
    def name(self) -> str:
        """What the manifest calls it: protocols that share it share the observations."""
        return self.protocol.prompt_digest + ("" if self.null is None else f"|{self.null}")


@dataclass(frozen=True)
class Block:
    """Up to ``BLOCK`` items of one subject, from position ``start`` of the subject on."""

    split: str
    subject: str
    start: int
    items: tuple[Item, ...]

    @property
    def place(self) -> Place:
        """Split, subject, start and stop: where the run folder keeps what was observed of it."""
        return self.split, self.subject, self.start, self.start + len(self.items)


def with_split(protocol: Protocol, dataset: Dataset) -> Protocol:
    """``protocol`` with a named split: its own, or the one ``dataset`` is evaluated on (DataError if it has none)."""
    return protocol if protocol.split is not None else replace(protocol, split=dataset.evaluated)


def list_asks(protocols: Mapping[str, Protocol]) -> list[Ask]:
    """Every way of asking that the protocols need, each once."""
    asks = [Ask(each, null) for each in protocols.values() for null in dict.fromkeys((None, each.null))]
    return list({ask.name: ask for ask in asks}.values())


def list_blocks(
    data: Dataset, protocols: Mapping[str, Protocol], subjects: Sequence[str] | None, limit: int | None
) -> list[Block]:
    """The items of every split that the protocols test, or of the named subjects, or the first ``limit`` of each.

    Raises DataError when there is no such split, and UsageError when there is no such subject or the limit is below 1.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}; it must be at least 1, or left out for all questions")
    blocks: list[Block] = []
    for split in dict.fromkeys(each.split or data.evaluated for each in protocols.values()):
        for subject in data.choose(split, subjects):
            items = data.rows(split, subject)[:limit]
            starts = range(0, len(items), BLOCK)
            blocks += [Block(split, subject, start, items[start : start + BLOCK]) for start in starts]
    return blocks


def check(
    data: Dataset, asks: Sequence[Ask], blocks: Sequence[Block], rendered: Sequence[RenderedRequests] = ()
) -> None:
    """DataError for all that rendering would refuse later: too few rows for shots, items with the wrong choices.

    Cheap, and done before the model starts, so that hours of work don't end at a bad row.  What is wrong in the same
    way is counted, and some of it is named.
    """
    examples: dict[str, list[str]] = {}
    counts: dict[str, Counter[str]] = {}
    for protocol in [ask.protocol for ask in asks if ask.null is None]:
        source = request_source(protocol, data, rendered)
        for block in [block for block in blocks if block.split == protocol.split]:
            for name, problem in source.problems(block.subject, block.items):
                kind = str(problem).replace(name, "").replace(repr(block.subject), "")
                counts.setdefault(kind, Counter())[protocol.prompt_digest] += 1
                shown = examples.setdefault(kind, [])
                if len(shown) < EXAMPLES and str(problem) not in shown:
                    shown.append(str(problem))
    lines: list[str] = []
    for kind, shown in examples.items():
        more = max(counts[kind].values()) - len(shown)  # several protocols mostly refuse the same items
        lines += [*shown, *([f"... and {more} more like it"] if more > 0 else [])]
    if len(lines) == 1:
        raise DataError(lines[0])
    if lines:
        raise DataError(f"{data.name} can't be asked under these protocols", lines)


def check_support(protocols: Mapping[str, Protocol], model: str, supports: frozenset[type]) -> None:
    """ModelError, naming the protocols, where their readings need kinds of question that ``model`` does not support."""
    for name, protocol in protocols.items():
        needs = READINGS[protocol.reading].needs + (CORRECTION_NEEDS if protocol.boundary in CORRECTED else ())
        if lacking := [kind.__name__ for kind in needs if kind not in supports]:
            raise ModelError(
                f"{model} does not support {' and '.join(lacking)}, which reading {protocol.reading} needs; "
                f"use another model, or leave protocol {name} out"
            )


def request_source(protocol: Protocol, data: Dataset, rendered: Sequence[RenderedRequests]) -> RequestSource:
    """Where the requests of ``protocol`` come from; ProtocolError where they were rendered elsewhere and not passed."""
    if protocol.requests is None:
        return TemplateSource(protocol, data)
    for requests in rendered:
        if requests.digest == protocol.requests:
            return requests
    raise ProtocolError(
        f"the requests {protocol.requests[:12]} of a protocol were rendered elsewhere and are not at hand; "
        "pass them to evaluate(rendered=[...])"
    )


def prepare_block(
    data: Dataset,
    block: Block,
    asks: Sequence[Ask],
    model: Answerer,
    skip_bad_items: bool,
    rendered: Sequence[RenderedRequests] = (),
) -> PreparedBlock:
    """Render, fit and tokenize the items of ``block`` for every one of ``asks``.

    Raises DataError for an item that can't be asked; with ``skip_bad_items`` it is refused, with the reason.
    """
    prepared = PreparedBlock()
    requests: dict[str, list[Request]] = {}
    for ask in asks:
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
