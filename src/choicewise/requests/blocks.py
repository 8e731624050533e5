"""Cut selected items into blocks, prepare a block for a model, and say which protocols can't be
used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, pairwise
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.data.items import BLANK, Item
from choicewise.errors import DataError, ModelError, ProtocolError
from choicewise.protocols.catalogue import entries
from choicewise.protocols.preparations import change_of, fields_shown
from choicewise.protocols.protocol import (
    CHOICE,
    CORRECTED,
    LABELLED,
    Protocol,
    Protocols,
    begins,
    holes,
)
from choicewise.protocols.readings import CORRECTION_NEEDS, READINGS, template_arguments
from choicewise.protocols.shots import FRESH, sample
from choicewise.questions import Decision, Span
from choicewise.records import Place, Selection
from choicewise.requests.generated import inside_thought
from choicewise.requests.prompters import add_prompts
from choicewise.requests.render import Refusal, RenderedRequests, TemplateSource, suits
from choicewise.requests.request import Answerer, PreparedBlock, Request
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.text import listed

if TYPE_CHECKING:
    from choicewise.tokens.chat_template import ChatTemplate

# Items that are made at once to find one that a protocol can ask.
_TRIED = 10

# Items that are named if many are wrong in the same way.
_EXAMPLES = 3

# Characters of one token, in the estimate: few, so that blocks are rather too small.
CHARACTERS = 3

# As many tokens take the memory of a choice: its prompt, key and row.
ROW_TOKENS = 175

# As many tokens take the memory of a request beside its text.
REQUEST_TOKENS = 250


def prepare_block(
    data: Dataset,
    block: Block,
    model: Answerer,
    skip_bad_items: bool,
    rendered: Sequence[RenderedRequests] = (),
) -> PreparedBlock:
    """Render, fit and tokenize the items of ``block`` for every one of its request specs.

    Raises DataError for an item without a request; with ``skip_bad_items`` it is refused, with the
    reason.
    """
    prepared = PreparedBlock()
    requests_of: dict[str, list[Request]] = {}
    ranked: set[str | None] = set()
    # Each item is made once, however many specs there are.
    items = tuple(block.items)
    for spec in block.specs:
        protocol = spec.protocol
        requests = requests_of.get(protocol.prompt_digest)
        if requests is None:
            requests = []
            template = None if protocol.chat == "none" else model.tokenizer.chat
            source = request_source(protocol, data, rendered, template)
            for request in source.requests(block.subject, items, block.positions):
                if isinstance(request, Request):
                    requests.append(request)
                elif not skip_bad_items:
                    raise request.reason
                elif spec.null is None:
                    prepared.refuse(protocol, request.item, str(request.reason))
            requests_of[protocol.prompt_digest] = requests
        uses_before = prepared.spans.uses
        add_prompts(prepared, protocol, requests, model, spec.null)
        if spec.ranked:
            ranked |= prepared.spans.keys_since(uses_before)
        prepared.forget_joined()
    # Only now, because a later spec may cut spans of an earlier one that it shares.
    for key in ranked:
        prompt = prepared.wanted.get(key or "")
        if isinstance(prompt, Span):
            prompt.ranked = True
    prepared.forget_texts()
    return prepared


@dataclass(frozen=True)
class Section:
    """The selected items of one subject.

    ``drawn``: their positions in the subject, None for its first items.
    """

    split: str
    subject: str
    items: Sequence[Item]
    drawn: tuple[int, ...] | None = None

    def positions(self, start: int, stop: int) -> Sequence[int]:
        """Return the positions in the subject of items ``start`` to ``stop`` (exclusive), by which
        shots are drawn.
        """
        if self.drawn is None:
            return range(start, stop)
        return self.drawn[start:stop]


@dataclass(frozen=True)
class RequestSpec:
    """The requests of one protocol about every item, or the continuations after its null context.

    ``ranked``: whether a protocol with these requests scores by how many tokens are likelier.
    """

    protocol: Protocol
    null: str | None = None
    ranked: bool = False

    @property
    def name(self) -> str:
        """Return its name in the manifest: protocols that share it share the observations."""
        if self.null is None:
            return self.protocol.prompt_digest
        return f"{self.protocol.prompt_digest}|{self.null}"


@dataclass(frozen=True, kw_only=True)
class Block:
    """Items of one subject, from position ``start`` of its section on, and the specs of their
    requests.

    ``positions``: those in the subject, by which shots are drawn.  ``work``: about the characters
    that are computed for them.
    """

    split: str
    subject: str
    start: int
    items: Sequence[Item]
    positions: Sequence[int]
    specs: Sequence[RequestSpec]
    work: int

    @property
    def extent(self) -> Place:
        """Return split, subject, start and stop, by which the run folder keeps its observations."""
        return self.split, self.subject, self.start, self.start + len(self.items)


ALL = Selection()
"""All of the data."""


def list_sections(data: Dataset, protocols: Protocols, selection: Selection = ALL) -> list[Section]:
    """List the selected items of every split that the protocols test; no subject without any.

    Raises DataError if there is no such split, and UsageError if there is no such subject.
    """
    sections = []
    for split in tested_splits(data, protocols):
        if selection.sample is None or selection.seed is None:
            for subject in data.choose(split, selection.subjects):
                items = data.rows(split, subject)[: selection.limit]
                sections.append(Section(split, subject, items))
            continue
        sample = data.sample(split, selection.sample, selection.seed, selection.subjects)
        for subject, drawn in sample.items():
            if drawn:
                items = data.rows(split, subject).take(np.array(drawn, dtype=np.int64))
                sections.append(Section(split, subject, items, drawn))
    return sections


def tested_splits(data: Dataset, protocols: Protocols) -> list[str]:
    """List the splits that the protocols test, each once.  Raises DataError if nothing says which
    that is.
    """
    return list(dict.fromkeys(protocol.split or data.evaluated for protocol in protocols.values()))


def settle_sample(
    data: Dataset, protocols: Protocols, selection: Selection
) -> tuple[Selection, str]:
    """Return ``selection`` with the sizes that its sample is drawn from, and a note about it,
    mostly empty.

    A sample of as many items as there are is no sample.  Raises as :func:`list_sections`.
    """
    if selection.sample is None or selection.seed is None:
        return selection, ""
    sizes = {}
    for split in tested_splits(data, protocols):
        subjects = data.choose(split, selection.subjects)
        sizes[split] = {subject: len(data.rows(split, subject)) for subject in subjects}
    largest = max((sum(by_subject.values()) for by_subject in sizes.values()), default=0)
    sample = f"sample of {selection.sample:,} of {data.name}"
    if selection.sample >= largest:
        whole = replace(selection, sample=None, seed=None)
        note = f"{sample}: all {largest:,} questions are run" if sizes else ""
        return whole, note
    first_split = next(iter(sizes))
    drawn = data.sample(first_split, selection.sample, selection.seed, selection.subjects)
    empty = [subject for subject, positions in drawn.items() if not positions]
    note = ""
    if empty:
        count = len(sizes[first_split])
        note = f"{sample}: no question of {len(empty)} of the {count} subjects, as {empty[0]}"
    return replace(selection, drawn_from=sizes), note


BLOCK_TOKENS = 16_000_000
"""The memory of the requests of a block, by an estimate, in tokens of 8 bytes with their text: some
130 MB.
"""


def cut_blocks(
    section: Section,
    start: int,
    stop: int,
    specs: Sequence[RequestSpec],
    data: Dataset,
    rendered: Sequence[RenderedRequests],
) -> Iterator[Block]:
    """Yield the items ``start`` to ``stop`` (exclusive) of a section in few blocks that fit in
    memory.
    """
    items = section.items[start:stop]
    choices = np.fromiter((1 + sum(map(len, item.choices)) for item in items), dtype=np.int64)
    texts = choices + np.fromiter((len(item.question) for item in items), dtype=np.int64)
    cost = _Cost.of(section, start, int(texts[0]), specs, data, rendered)
    # The first item stands for all: rendering every one would take as long as preparing them.
    memory = cost.item_tokens + cost.tokens_per_character * texts
    total = memory.sum()
    # An item goes into the block in which its middle lies.
    middles = np.cumsum(memory) - memory / 2
    number = middles * ceil(total / BLOCK_TOKENS) // total
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(items)]
    for first, end in pairwise(edges):
        yield Block(
            split=section.split,
            subject=section.subject,
            start=start + first,
            items=items[first:end],
            positions=section.positions(start + first, start + end),
            specs=specs,
            work=cost.work(end - first, int(texts[first:end].sum()), int(choices[first:end].sum())),
        )


def misfit(protocol: Protocol, dataset: Dataset, subjects: Sequence[str] | None = None) -> str:
    """Return why ``protocol`` can ask no item of ``dataset``, an empty text if it can ask one.

    It asks none if a column that it shows is missing.
    """
    try:
        recipe = with_split(protocol, dataset)
        split = recipe.split or dataset.evaluated
        chosen = dataset.choose(split, subjects)
    except DataError as error:
        return error.message
    items_of = {subject: dataset.rows(split, subject) for subject in chosen}
    reason = _missing_column(recipe, dataset, chain.from_iterable(items_of.values()))
    if reason:
        return reason
    for subject, items in items_of.items():
        try:
            for request in _requests(TemplateSource(recipe, dataset), subject, items):
                if isinstance(request, Request):
                    return ""
                reason = reason or request.reason.message
        except (DataError, ProtocolError) as error:
            reason = reason or error.message
    return reason or _of_other_kinds(recipe, dataset)


def _requests(
    source: TemplateSource, subject: str, items: Sequence[Item]
) -> Iterator[Request | Refusal]:
    # Made in parts, as the first request mostly ends the search.
    for start in range(0, len(items), _TRIED):
        part = items[start : start + _TRIED]
        yield from source.requests(subject, part, range(start, start + len(part)))


def _missing_column(protocol: Protocol, dataset: Dataset, items: Iterable[Item]) -> str:
    """Name the columns that ``protocol`` shows and no item has, and those of the data."""
    lacking = protocol.columns
    columns = {"question", "choices", "answer"}
    if dataset.columns is not None:
        columns = set(dataset.columns.used)
    for item in items:
        if not lacking:
            return ""
        lacking -= item.fields.keys()
        columns.update(item.fields)
    if not lacking:
        return ""
    return (
        f"{dataset.name} has no column {' or '.join(sorted(lacking))}, only "
        f"{listed(sorted(columns), 8)}; add the column, or rename another in the mapping"
    )


def without_items(
    protocols: Protocols, dataset: Dataset, sections: Sequence[Section]
) -> dict[str, str]:
    """Return by name why protocols have no item in ``sections``: all are of other kinds than
    theirs.
    """
    reasons = {}
    for name, protocol in protocols.items():
        takes_all = protocol.kind == "any" and not change_of(protocol.prepare)
        items = chain.from_iterable(section.items for section in sections)
        if not takes_all and not any(suits(protocol, item) for item in items):
            reasons[name] = _of_other_kinds(protocol, dataset)
    return reasons


def _of_other_kinds(protocol: Protocol, dataset: Dataset) -> str:
    change = change_of(protocol.prepare)
    if change:
        return f"{change} fits no question of {dataset.name}"
    number = ""
    if protocol.choices is not None:
        number = f" with {protocol.choices} choices"
    return f"it asks questions of kind {protocol.kind}{number}, but {dataset.name} has none"


def unused(protocol: Protocol, content: Iterable[str]) -> tuple[str, ...]:
    """Return the fields among ``content`` that the protocol does not show, in their order.

    A blank in the question is used if labels answer for the choices; a choice that is scored after
    the question does not fill it.  A protocol that leaves out the question itself does so on
    purpose, and of requests that were rendered elsewhere nothing is known.
    """
    fields = holes(protocol.question).union(fields_shown(protocol.prepare))
    if protocol.requests is not None or "question" not in fields:
        return ()
    answer_holes = holes(protocol.continuation) | holes(protocol.proposal)
    if answer_holes.isdisjoint(CHOICE):
        fields |= {BLANK}
    return tuple(name for name in content if name not in fields)


def unused_by(protocols: Protocols, content: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
    """Group protocols by the content that they leave out, without those that leave nothing out."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, protocol in protocols.items():
        groups.setdefault(unused(protocol, content), []).append(name)
    groups.pop((), None)
    return groups


def with_split(protocol: Protocol, dataset: Dataset) -> Protocol:
    """Return ``protocol`` with a named split, by default the one ``dataset`` is evaluated on
    (DataError without).
    """
    if protocol.split is not None:
        return protocol
    return replace(protocol, split=dataset.evaluated)


def has_shots(data: Dataset, subjects: Sequence[str] | None, protocol: Protocol) -> bool:
    """Return whether ``data`` has the rows for the shots of ``protocol``, in all or the named
    subjects.
    """
    recipe = with_split(protocol, data)
    try:
        for subject in data.choose(recipe.split or data.evaluated, subjects):
            sample(recipe, data, subject, range(0))
    except DataError:
        return False
    return True


def list_request_specs(protocols: Protocols) -> list[RequestSpec]:
    """List the request specs that the protocols need, each once."""
    specs: dict[str, RequestSpec] = {}
    for protocol in protocols.values():
        needed = [RequestSpec(protocol)]
        if protocol.null is not None:
            needed.append(RequestSpec(protocol, protocol.null))
        for spec in needed:
            ranked = protocol.outside != "keep"
            if spec.name in specs:
                ranked |= specs[spec.name].ranked
            specs[spec.name] = replace(spec, ranked=ranked)
    return list(specs.values())


@dataclass
class _Problem:
    """Count one kind of problem by the digest of the prompt, and keep a few examples of it."""

    examples: list[str] = field(default_factory=list)
    count_by_prompt: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """Return the examples, and how many others there are."""
        # Several prompts mostly meet the same items, so their counts must not be added.
        others = max(self.count_by_prompt.values()) - len(self.examples)
        if others <= 0:
            return self.examples
        return [*self.examples, f"... and {others} more like it"]


def refuse_problems(
    data: Dataset,
    stretches: Iterable[tuple[Section, int, int, Sequence[RequestSpec]]],
    rendered: Sequence[RenderedRequests],
    names: Mapping[str, str],
) -> None:
    """Raise DataError that lists what rendering would refuse: too few rows for shots, items with
    the wrong choices or without a text.

    ``stretches``: sections, the positions of their first item and after their last, and their
    request specs.  ``names``: prompt digest → protocol name.  Cheap, and done before the model
    starts, so that hours of work don't end at a bad row; in memory that does not grow with the
    number of bad ones.
    """
    problems: dict[str, _Problem] = {}
    for section, start, stop, specs in stretches:
        items = section.items[start:stop]
        positions = section.positions(start, stop)
        # A spec with a null context renders the same items, so that they are checked once.
        protocols = {spec.protocol.prompt_digest: spec.protocol for spec in specs}
        for digest, protocol in protocols.items():
            source = request_source(protocol, data, rendered)
            for name, error in source.problems(section.subject, items, positions):
                text = str(error)
                # Texts that differ only in these names are of one kind.
                kind = text.replace(name, "").replace(repr(section.subject), "")
                problem = problems.setdefault(kind, _Problem())
                problem.count_by_prompt[digest] += 1
                if len(problem.examples) < _EXAMPLES and text not in problem.examples:
                    problem.examples.append(text)
    lines: list[str] = []
    refused: dict[str, None] = {}
    for problem in problems.values():
        lines += problem.lines()
        refused |= dict.fromkeys(names[digest] for digest in problem.count_by_prompt)
    which = listed(list(refused))
    if len(lines) == 1:
        raise DataError(f"{which}: {lines[0]}")
    if lines:
        raise DataError(f"{data.name} does not fit {which}", lines)


def unsupported(protocol: Protocol, model: str, supports: frozenset[type]) -> str | None:
    """Return which kinds of prompt ``protocol`` needs and ``model`` does not support, None if it
    supports all.
    """
    needs = READINGS[protocol.reading].needs
    if protocol.boundary in CORRECTED:
        needs += CORRECTION_NEEDS
    lacking = [kind.__name__ for kind in dict.fromkeys(needs) if kind not in supports]
    if not lacking:
        return None
    if Decision in supports and Span not in supports:
        return (
            f"{model} is a decision endpoint without log-probabilities of texts; "
            f"use {' or '.join(_endpoint_entries(True))}"
        )
    if needs == (Decision,):
        layouts = ", ".join(_endpoint_entries(False))
        return f"{model} is no decision endpoint (decisions:URL#NAME); use a layout: {layouts}"
    if lacking[0] == "Span":
        return (
            f"{model} gives no log-probabilities of continuations, which reading "
            f"{protocol.reading} needs"
        )
    if lacking[0] == "Generation":
        return f"{model} generates no text, which reading {protocol.reading} needs"
    return (
        f"{model} does not support {' and '.join(lacking)}, which reading {protocol.reading} needs"
    )


@cache
def _endpoint_entries(sent: bool) -> list[str]:
    """Return the entries that are ``sent`` to an endpoint, or the layouts of endpoints on plain
    models.
    """
    names = []
    for entry in entries():
        protocol = entry.protocols[entry.headline]
        if protocol.kind != "any":
            is_sent = Decision in READINGS[protocol.reading].needs
            if is_sent == sent:
                names.append(entry.name)
    return sorted(names)


def no_chat(protocol: Protocol, model: str, template: ChatTemplate | None) -> str | None:
    """Return why ``model`` has no chat for ``protocol``, None if it has one or needs none.

    If the server renders the chat, the token of a label after it is not known here.  A template
    that takes no system text would leave out an item that is shown in it.
    """
    # Labels are scored by their tokens, which follow from the text that only the server has.
    if template is not None and template.is_served and protocol.boundary in LABELLED:
        return (
            f"the server of {model} renders the chat, which hides the tokens of labels; "
            "name the tokenizer of a model with a chat template"
        )
    if protocol.chat == "none":
        return None
    if template is not None:
        holes_of_header = holes(protocol.header)
        shows_item = "question" in holes_of_header or "options" in holes_of_header
        if shows_item and not template.takes_system:
            return (
                f"the chat template of {model} takes no system text, which holds the question here"
            )
        return None
    plain = ""
    if protocol.boundary in LABELLED:
        layouts = []
        for entry in entries():
            headline = entry.protocols[entry.headline]
            if headline.boundary in LABELLED and headline.chat == "none":
                layouts.append(entry.name)
        plain = f"; for plain text use {', '.join(layouts)}"
    return (
        f"{model} has no chat template (chat_template in tokenizer_config.json, or "
        "chat_template.jinja), "
        f"and this protocol is a chat{plain}"
    )


def open_thought(protocol: Protocol, model: str, template: ChatTemplate | None) -> str | None:
    """Return why options would be scored inside a thought of ``model``, None if they would not.

    Raises ModelError if its ``template`` fails, or if it can't close a thought that is to be
    closed.
    """
    if protocol.chat == "none" or template is None:
        return None
    arguments = template_arguments(protocol.template)
    begun = "The answer is" if begins(protocol) else ""
    opened = template.opens(arguments, begun)
    reading = READINGS[protocol.reading]
    if reading.along:
        if template.text and not opened and not template.may_think:
            return (
                f"the chat template of {model} knows no thought for reading {protocol.reading}; "
                "use reading loglikelihood, or a model that thinks"
            )
        template.closing(arguments)
    elif protocol.thought == "close" and (opened or not template.text):
        template.closing(arguments)
    elif opened and not reading.text:
        return f"the chat template of {model} {inside_thought(opened)}"
    return None


def no_empty_context(protocol: Protocol, tokenizer: Tokenizer) -> str | None:
    """Return why nothing can be scored after the empty text, None if it can or ``protocol`` does
    not need it.
    """
    if protocol.null != "":
        return None
    try:
        Encodings(tokenizer, protocol.bos, READINGS[protocol.reading].enclosed).context("")
    except ModelError as error:
        return error.message
    return None


def request_source(
    protocol: Protocol,
    data: Dataset,
    rendered: Sequence[RenderedRequests],
    template: ChatTemplate | None = None,
) -> TemplateSource | RenderedRequests:
    """Return the source of the requests of ``protocol``.

    ProtocolError if they were rendered elsewhere and not passed.

    ``template``: of chats, which have no text without it.
    """
    if protocol.requests is None:
        return TemplateSource(protocol, data, template)
    for requests in rendered:
        if requests.digest == protocol.requests:
            return requests
    raise ProtocolError(
        f"the requests {protocol.requests[:12]} of a protocol were rendered elsewhere; "
        "pass them to evaluate(rendered=[...])"
    )


@dataclass(kw_only=True)
class _Cost:
    """The cost of the requests of a section, judged by one of its items.

    ``item_tokens``: tokens in memory by an item, beside ``tokens_per_character`` of its text.
    ``shared``: characters to compute once in a block, at least one, so that a block without a
    question is a step of the progress.  ``fresh``: for each item beside its own text.
    ``contexts``: how many contexts hold the text of the item, and ``nulls``: how many null
    contexts its choices follow.
    """

    item_tokens: float = 1.0
    tokens_per_character: float = 0.0
    shared: int = 1
    fresh: int = 0
    contexts: int = 0
    nulls: int = 0

    @classmethod
    def of(
        cls,
        section: Section,
        index: int,
        characters: int,
        specs: Sequence[RequestSpec],
        data: Dataset,
        rendered: Sequence[RenderedRequests],
    ) -> _Cost:
        """Judge by the item at ``index``, which has so many ``characters``."""
        cost = cls()
        items = section.items[index : index + 1]
        positions = section.positions(index, index + 1)
        for spec in specs:
            source = request_source(spec.protocol, data, rendered)
            for request in source.requests(section.subject, items, positions):
                if isinstance(request, Refusal):
                    continue
                rows = sum(map(len, request.parts))
                rows += sum(len(view.continuations) for view in request.views)
                cost.item_tokens += rows * ROW_TOKENS
                if spec.null is not None:
                    cost.nulls += 1
                    continue
                around = max(len(request.text()) - characters, 0)
                copies = (len(request.proposals) or 1) + len(request.views)
                cost.item_tokens += copies * (around / CHARACTERS + REQUEST_TOKENS)
                cost.tokens_per_character += copies / CHARACTERS
                cost.contexts += copies
                if spec.protocol.sampler in FRESH:
                    cost.fresh += around
                else:
                    cost.shared += around
        return cost

    def work(self, items: int, characters: int, characters_of_choices: int) -> int:
        """Return about how many characters are computed for so many items."""
        texts = self.contexts * characters + self.nulls * characters_of_choices
        return self.shared + self.fresh * items + texts
