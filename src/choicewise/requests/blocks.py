"""Which items are asked together, in what order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, pairwise
from math import ceil
from typing import Final

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.data.items import BLANK, Item
from choicewise.errors import ChoicewiseError, DataError, ModelError, ProtocolError
from choicewise.protocols.between import change_axes
from choicewise.protocols.catalogue import entries
from choicewise.protocols.preparations import change_of, fields_shown
from choicewise.protocols.protocol import CHOICE, CORRECTED, LABELLED, Protocol, begins, holes
from choicewise.protocols.readings import CORRECTION_NEEDS, READINGS, template_arguments
from choicewise.protocols.shots import FRESH, has_examples, sample
from choicewise.questions import Decision, Span
from choicewise.records import Place, Selection
from choicewise.requests.generated import inside_thought
from choicewise.requests.prompters import add_null_prompts, add_prompts
from choicewise.requests.render import Refusal, RenderedRequests, TemplateSource, suits
from choicewise.requests.request import Answerer, PreparedBlock, Request
from choicewise.tokens.chat_template import ChatTemplate, ServedChat
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer

TRIED: Final = 10  # items by which a protocol is found to fit a dataset
_EXAMPLES = 3  # items that are named where many are wrong in the same way
CHARACTERS = 3  # of one token, in the estimate: few, so that blocks are rather too small

ROW_TOKENS, REQUEST_TOKENS = 175, 250
"""As many tokens take the memory of a choice (its question, key and row), and of a request beside its text."""


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
    for spec in block.specs:
        digest = spec.protocol.prompt_digest
        if digest not in requests:
            template = None if spec.protocol.chat == "none" else model.tokenizer.chat
            source = request_source(spec.protocol, data, rendered, template)
            requests[digest] = []
            for request in source.requests(block.subject, items, block.positions):
                if isinstance(request, Request):
                    requests[digest].append(request)
                elif not skip_bad_items:
                    raise request.reason
                elif spec.null is None:
                    prepared.refuse(spec.protocol, request.item, str(request.reason))
        before = len(prepared.spans)
        if spec.null is None:
            add_prompts(prepared, spec.protocol, requests[digest], model)
        else:
            add_null_prompts(prepared, spec.protocol, spec.null, requests[digest], model)
        for row in prepared.spans[before:] if spec.ranked else ():
            if row.key is not None and isinstance(question := prepared.wanted[row.key], Span):
                question.ranked = True
        prepared.forget_sequences()
    prepared.forget_texts()
    return prepared


@dataclass(frozen=True)
class Section:
    """The selected items of one subject.

    ``drawn``: which positions of the subject they have; the first ones where nothing was drawn.
    """

    split: str
    subject: str
    items: Sequence[Item]
    drawn: tuple[int, ...] | None = None

    def positions(self, start: int, stop: int) -> Sequence[int]:
        """The positions of its items ``start`` to ``stop`` (exclusive) in the subject, by which shots are drawn."""
        return range(start, stop) if self.drawn is None else self.drawn[start:stop]


@dataclass(frozen=True)
class RequestSpec:
    """One way of asking about every item: a protocol's request, or its continuations after a null context.

    ``ranked``: a protocol that shares it scores by how many tokens are likelier.
    """

    protocol: Protocol
    null: str | None = None
    ranked: bool = False

    @property
    def name(self) -> str:
        """What the manifest calls it: protocols that share it share the observations."""
        return self.protocol.prompt_digest + ("" if self.null is None else f"|{self.null}")


@dataclass(frozen=True)
class Block:
    """Items of one subject, from position ``start`` of its section on, and the ways of asking about them.

    ``work`` grows with what is computed for them: about the characters that are computed.  ``drawn``: as of a section.
    """

    split: str
    subject: str
    start: int
    items: Sequence[Item]
    specs: Sequence[RequestSpec]
    work: int
    drawn: tuple[int, ...] | None = None

    @property
    def extent(self) -> Place:
        """Split, subject, start and stop: where the run folder keeps what was observed of it."""
        return self.split, self.subject, self.start, self.start + len(self.items)

    @property
    def positions(self) -> Sequence[int]:
        """The positions of its items in the subject, by which shots are drawn."""
        return range(self.start, self.start + len(self.items)) if self.drawn is None else self.drawn


ALL = Selection()
"""All of the data."""


def list_sections(
    data: Dataset, protocols: Mapping[str, Protocol], selection: Selection = ALL
) -> list[Section]:
    """The items of every split that the protocols test, as far as they are selected; no subject without any.

    Raises DataError when there is no such split, and UsageError when there is no such subject.
    """
    return [
        each
        for split in tested_splits(data, protocols)
        for each in _selected(data, split, selection)
    ]


def _selected(data: Dataset, split: str, selection: Selection) -> Iterator[Section]:
    if selection.sample is None or selection.seed is None:
        for subject in data.choose(split, selection.subjects):
            yield Section(split, subject, data.rows(split, subject)[: selection.limit])
        return
    for subject, drawn in data.sample(
        split, selection.sample, selection.seed, selection.subjects
    ).items():
        if drawn:
            items = data.rows(split, subject).take(np.array(drawn, dtype=np.int64))
            yield Section(split, subject, items, drawn)


def tested_splits(data: Dataset, protocols: Mapping[str, Protocol]) -> list[str]:
    """The splits that the protocols test, each once.  Raises DataError where nothing says which that is."""
    return list(dict.fromkeys(each.split or data.evaluated for each in protocols.values()))


def settled(
    data: Dataset, protocols: Mapping[str, Protocol], selection: Selection
) -> tuple[Selection, str]:
    """``selection`` with what its sample is drawn from, and what to say about it in words, mostly nothing.

    A sample of as many items as there are is no sample.  Raises as :func:`list_sections`.
    """
    if selection.sample is None or selection.seed is None:
        return selection, ""
    sizes = {
        split: {
            subject: len(data.rows(split, subject))
            for subject in data.choose(split, selection.subjects)
        }
        for split in tested_splits(data, protocols)
    }
    most = max((sum(own.values()) for own in sizes.values()), default=0)
    asked = f"sample of {selection.sample:,} of {data.name}"
    if selection.sample >= most:
        whole = replace(selection, sample=None, seed=None)
        return whole, f"{asked}: all {most:,} questions are asked" if sizes else ""
    split, own = next(iter(sizes.items()))
    shares = data.sample(split, selection.sample, selection.seed, selection.subjects)
    empty = [subject for subject, drawn in shares.items() if not drawn]
    said = (
        f"{asked}: no question of {len(empty)} of the {len(own)} subjects, as {empty[0]}"
        if empty
        else ""
    )
    return replace(selection, drawn_from=sizes), said


BLOCK_TOKENS = 16_000_000
"""What the requests of a block hold in memory, by an estimate, in tokens of 8 bytes with their text: some 130 MB."""


def cut_blocks(
    section: Section,
    start: int,
    stop: int,
    specs: Sequence[RequestSpec],
    data: Dataset,
    rendered: Sequence[RenderedRequests],
) -> Iterator[Block]:
    """The items ``start`` to ``stop`` (exclusive) of a section in as few blocks of about one size as fit in memory."""
    items = section.items[start:stop]
    choices = np.fromiter((1 + sum(map(len, item.choices)) for item in items), dtype=np.int64)
    texts = choices + np.fromiter((len(item.question) for item in items), dtype=np.int64)
    cost = _cost(section, start, int(texts[0]), specs, data, rendered)
    held_once, held_by_character, shared, fresh, contexts, nulls = cost
    held = held_once + held_by_character * texts
    total = held.sum()
    number = (
        (np.cumsum(held) - held / 2) * ceil(total / BLOCK_TOKENS) // total
    )  # an item goes where its middle lies
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(items)]
    for first, end in pairwise(edges):
        of_items = contexts * int(texts[first:end].sum()) + nulls * int(choices[first:end].sum())
        work = shared + fresh * (end - first) + of_items
        drawn = None if section.drawn is None else section.drawn[start + first : start + end]
        yield Block(
            section.split, section.subject, start + first, items[first:end], specs, work, drawn
        )


def askable(dataset: Dataset, items: Sequence[Item]) -> dict[str, str]:
    """Entry of the catalogue → why its first protocol can't ask one of ``items``; nothing where it can ask all.

    What a protocol can ask need not be what it was published for.
    """
    reasons = {}
    for entry in entries():
        try:
            source = TemplateSource(
                with_split(next(iter(entry.protocols.values())), dataset), dataset
            )
            given = (each for item in items for each in source.requests(item.subject, [item]))
            reasons[entry.name] = next(
                (each.reason.message for each in given if isinstance(each, Refusal)), ""
            )
        except ChoicewiseError as refused:
            reasons[entry.name] = refused.message
    return reasons


def misfit(protocol: Protocol, dataset: Dataset, subjects: Sequence[str] | None = None) -> str:
    """Why ``protocol`` can ask none of the first items of ``dataset``; nothing where it can ask one of them."""
    try:
        recipe = with_split(protocol, dataset)
        split = recipe.split or dataset.evaluated
        for subject in dataset.choose(split, subjects):  # the first one that has items for it
            items = list(
                islice(
                    (each for each in dataset.rows(split, subject) if suits(recipe, each)), TRIED
                )
            )
            if items:
                break
        asked = list(TemplateSource(recipe, dataset).requests(subject, items))
    except (DataError, ProtocolError) as reason:
        return reason.message
    if not asked:
        return _of_other_kinds(recipe, dataset)
    refusals = [each for each in asked if isinstance(each, Refusal)]
    return refusals[0].reason.message if len(refusals) == len(asked) else ""


def unasked(
    protocols: Mapping[str, Protocol], dataset: Dataset, sections: Sequence[Section]
) -> dict[str, str]:
    """By name why protocols ask no item of ``sections``: all are of other kinds than theirs."""
    return {
        name: _of_other_kinds(each, dataset)
        for name, each in protocols.items()
        if (each.kind != "any" or change_of(each.prepare))
        and not any(suits(each, item) for own in sections for item in own.items)
    }


def _of_other_kinds(protocol: Protocol, dataset: Dataset) -> str:
    if change := change_of(protocol.prepare):
        return f"{change} is for no question of {dataset.name}"
    number = "" if protocol.choices is None else f" with {protocol.choices} choices"
    return f"it asks questions of kind {protocol.kind}{number}, of which {dataset.name} has none"


def unused(protocol: Protocol, content: Iterable[str]) -> tuple[str, ...]:
    """Those of the fields ``content`` that the protocol does not show, in their order.

    A blank in the question is used where labels answer for the choices; a choice that is scored after the question does
    not fill it.  A protocol that leaves out the question itself does so on purpose, and of requests that were rendered
    elsewhere nothing is known.
    """
    shown = holes(protocol.question).union(fields_shown(protocol.prepare))
    if protocol.requests is not None or "question" not in shown:
        return ()
    fills = (holes(protocol.continuation) | holes(protocol.proposal)).isdisjoint(CHOICE)
    return tuple(name for name in content if name not in shown and not (name == BLANK and fills))


def unused_by(
    protocols: Mapping[str, Protocol], content: Iterable[str]
) -> dict[tuple[str, ...], list[str]]:
    """Content → the protocols that leave just that out; nothing for those that leave nothing out."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, protocol in protocols.items():
        groups.setdefault(unused(protocol, content), []).append(name)
    groups.pop((), None)
    return groups


def with_split(protocol: Protocol, dataset: Dataset) -> Protocol:
    """``protocol`` with a named split: its own, or the one ``dataset`` is evaluated on (DataError if it has none)."""
    return protocol if protocol.split is not None else replace(protocol, split=dataset.evaluated)


def has_shots(data: Dataset, subjects: Sequence[str] | None, protocol: Protocol) -> bool:
    """Whether ``data`` has the rows that the shots of ``protocol`` are drawn from, for all or the named subjects."""
    recipe = with_split(protocol, data)
    try:
        for subject in data.choose(recipe.split or data.evaluated, subjects):
            sample(recipe, data, subject, range(0))
    except DataError:
        return False
    return True


def without_examples(data: Dataset, protocols: Mapping[str, Protocol]) -> dict[str, Protocol]:
    """``protocols``, those with shots that no split of ``data`` has examples for without shots, and named so."""
    asked: dict[str, Protocol] = {}
    for name, protocol in protocols.items():
        own = {name: protocol}
        with suppress(DataError):  # without the split that is tested it can't be asked at all
            if protocol.shots and not has_examples(with_split(protocol, data), data):
                own = change_axes(own, "shots=0")
        asked |= own
    return asked


def list_request_specs(protocols: Mapping[str, Protocol]) -> list[RequestSpec]:
    """Every way of asking that the protocols need, each once."""
    specs = [
        RequestSpec(each, null)
        for each in protocols.values()
        for null in dict.fromkeys((None, each.null))
    ]
    ranked = {spec.name for spec in specs if spec.protocol.outside != "keep"}
    return [
        replace(spec, ranked=name in ranked)
        for name, spec in {spec.name: spec for spec in specs}.items()
    ]


def refuse_problems(
    data: Dataset,
    stretches: Iterable[tuple[Section, int, int, Sequence[RequestSpec]]],
    rendered: Sequence[RenderedRequests],
) -> None:
    """DataError that lists what rendering would refuse later: too few rows for shots, items with the wrong choices.

    ``stretches``: sections, the positions of their first item and after their last, and how these are asked.
    Cheap, and done before the model starts, so that hours of work don't end at a bad row; in memory that does not grow
    with the number of bad ones.
    """
    examples: dict[str, list[str]] = {}
    counts: dict[str, Counter[str]] = {}
    for section, start, stop, specs in stretches:
        items, subject = section.items[start:stop], section.subject
        for digest, protocol in {
            spec.protocol.prompt_digest: spec.protocol for spec in specs
        }.items():
            positions = section.positions(start, stop)
            for name, error in request_source(protocol, data, rendered).problems(
                subject, items, positions
            ):
                text = str(error)
                kind = text.replace(name, "").replace(repr(subject), "")
                counts.setdefault(kind, Counter())[digest] += 1
                named = examples.setdefault(kind, [])
                if len(named) < _EXAMPLES and text not in named:
                    named.append(text)
    lines: list[str] = []
    for kind, named in examples.items():
        more = max(counts[kind].values()) - len(named)  # several prompts mostly meet the same items
        lines += [*named, *([f"... and {more} more like it"] if more > 0 else [])]
    if len(lines) == 1:
        raise DataError(lines[0])
    if lines:
        raise DataError(f"{data.name} can't be asked under these protocols", lines)


def unsupported(protocol: Protocol, model: str, supports: frozenset[type]) -> str | None:
    """Which kinds of question ``protocol`` needs and ``model``, which ``supports`` these, lacks; None where none."""
    needs = READINGS[protocol.reading].needs + (
        CORRECTION_NEEDS if protocol.boundary in CORRECTED else ()
    )
    lacking = [kind.__name__ for kind in dict.fromkeys(needs) if kind not in supports]
    if not lacking:
        return None
    if Decision in supports and Span not in supports:
        return (
            f"{model} is a decision endpoint, which gives a probability per option and no log-probability of any text; "
            f"it can be asked under {' and '.join(_endpoint_entries(True))}"
        )
    if needs == (Decision,):
        layouts = ", ".join(_endpoint_entries(False))
        return f"{model} is no decision endpoint (decisions:URL#NAME); ask a plain model under a layout: {layouts}"
    return (
        f"{model} does not support {' and '.join(lacking)}, which reading {protocol.reading} needs"
    )


@cache
def _endpoint_entries(sent: bool) -> list[str]:
    """The entries of typed questions that are ``sent`` to an endpoint, or the layouts of endpoints on plain models."""
    typed = [entry for entry in entries() if next(iter(entry.protocols.values())).kind != "any"]
    needs = {
        each.name: READINGS[next(iter(each.protocols.values())).reading].needs for each in typed
    }
    return sorted(name for name, kinds in needs.items() if (Decision in kinds) == sent)


def no_chat(protocol: Protocol, model: str, template: ChatTemplate | None) -> str | None:
    """Why ``model`` can't be asked under ``protocol``: a chat that it has no ``template`` for; None where it can.

    Where the server renders the chat, nobody here knows which token a label is after it.  A template that takes no
    system text would leave out a question that stands in it.
    """
    if isinstance(template, ServedChat) and protocol.boundary in LABELLED:
        return (
            f"the server of {model} renders the chat, so which token a label is after it is not known; name the "
            "tokenizer of a model with a chat template"
        )
    if protocol.chat == "none":
        return None
    if template is not None:
        specs = not holes(protocol.header).isdisjoint(("question", "options"))
        if specs and not template.takes_system:
            return f"the chat template of {model} takes no system text, in which this protocol asks the question"
        return None
    plain = f"; as plain text it is asked under {', '.join(_layouts_without_chat())}"
    return (
        f"{model} has no chat template (chat_template in tokenizer_config.json, or chat_template.jinja), so it is "
        f"no chat model, and this is a chat{plain if protocol.boundary in LABELLED else ''}"
    )


@cache
def _layouts_without_chat() -> list[str]:
    first = [(entry.name, next(iter(entry.protocols.values()))) for entry in entries()]
    return [name for name, each in first if each.boundary in LABELLED and each.chat == "none"]


def open_thought(protocol: Protocol, model: str, template: ChatTemplate | None) -> str | None:
    """Why ``model`` can't be asked under ``protocol``: options would be scored inside a thought; None where it can.

    Raises ModelError where its ``template`` fails, or where it can't close a thought that is to be closed.
    """
    if protocol.chat == "none" or template is None:
        return None
    told = template_arguments(protocol.template)
    opened = template.opens(told, "The answer is" if begins(protocol) else "")
    reading = READINGS[protocol.reading]
    if reading.along and template.text and not (opened or template.may_think):
        return (
            f"the chat template of {model} knows no thought, along which reading {protocol.reading} would ask; use "
            "reading loglikelihood, or a model that thinks"
        )
    if reading.along or (protocol.thought == "close" and (opened or not template.text)):
        template.closing(told)
    elif opened and not reading.text:
        return f"the chat template of {model} {inside_thought(opened)}"
    return None


def no_empty_context(protocol: Protocol, tokenizer: Tokenizer) -> str | None:
    """Return why nothing is scored after the empty text as ``protocol`` asks; None if it does not ask, or one can."""
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
    """Where the requests of ``protocol`` come from; ProtocolError where they were rendered elsewhere and not passed.

    ``template``: of chats, which have no text without it.
    """
    if protocol.requests is None:
        return TemplateSource(protocol, data, template)
    for requests in rendered:
        if requests.digest == protocol.requests:
            return requests
    raise ProtocolError(
        f"the requests {protocol.requests[:12]} of a protocol were rendered elsewhere and are not at hand; "
        "pass them to evaluate(rendered=[...])"
    )


def _cost(
    section: Section,
    start: int,
    own: int,
    specs: Sequence[RequestSpec],
    data: Dataset,
    rendered: Sequence[RenderedRequests],
) -> tuple[float, float, int, int, int, int]:
    """What asking costs, judged by item ``start``, which has ``own`` characters.

    Tokens in memory by an item, and for each character of it; characters to compute by a block, and for each item
    beside its own text; how many contexts that text stands in, and how many null contexts its choices follow.
    """
    held, held_by_character, shared, fresh, contexts, nulls = 1.0, 0.0, 0, 0, 0, 0
    for spec in specs:
        source = request_source(spec.protocol, data, rendered)
        item, position = section.items[start : start + 1], section.positions(start, start + 1)
        for request in source.requests(section.subject, item, position):
            if not isinstance(request, Request):
                continue
            rows = sum(map(len, request.parts)) + sum(
                len(view.continuations) for view in request.views
            )
            held += rows * ROW_TOKENS
            if spec.null is not None:
                nulls += 1
                continue
            around, copies = (
                max(len(request.text()) - own, 0),
                (len(request.proposals) or 1) + len(request.views),
            )
            held += copies * (around / CHARACTERS + REQUEST_TOKENS)
            held_by_character += copies / CHARACTERS
            contexts += copies
            if spec.protocol.sampler in FRESH:
                fresh += around
            else:
                shared += around
    return held, held_by_character, shared, fresh, contexts, nulls
