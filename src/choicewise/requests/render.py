"""Render the requests of items from the templates of a protocol, or read those that were rendered
elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from choicewise.data.dataset import Dataset
from choicewise.data.decisions import DESCRIPTIONS, kind_of
from choicewise.data.files import text_lines
from choicewise.data.items import Item
from choicewise.data.rows import LETTERS
from choicewise.errors import DataError
from choicewise.protocols.preparations import (
    BATCHED,
    is_for,
    more_options,
    moves_labels,
    prepare,
    shown_order,
)
from choicewise.protocols.protocol import NEUTRAL, Protocol, begins, chat_text, fill, names_choice
from choicewise.protocols.readings import (
    ALONG,
    CONTENT_FREE,
    DRAWING,
    MOST,
    READINGS,
    VIEWS,
    Order,
    template_arguments,
)
from choicewise.protocols.shots import drawn_items, is_same, sample, shown_to_themselves
from choicewise.requests.prompters import PROMPTERS
from choicewise.requests.request import Chat, Request, View, joined
from choicewise.util.jsonio import JsonDict, exact_json, lines_digest, read_json
from choicewise.util.text import listed

if TYPE_CHECKING:
    from choicewise.tokens.chat_template import ChatTemplate

Value = TypeVar("Value")


@dataclass(frozen=True)
class RenderedRequests:
    """Requests as they are sent: one context and its continuations, or a context for each
    continuation.

    ``digest`` (64 hex) identifies them; their protocols name it on the axis ``requests``.
    """

    name: str
    requests_by_item: dict[str, Request]

    @cached_property
    def digest(self) -> str:
        """Return the sha256 over item, contexts, continuations and gold of every request, in order."""
        lines = []
        for request in self.requests_by_item.values():
            item = request.item
            texts = [request.query, request.proposals, request.continuations]
            lines.append([item.id, item.subject, *texts, request.gold])
        return lines_digest(lines)

    @property
    def dataset(self) -> Dataset:
        """Return the items of the requests as a dataset with the split ``test``."""
        items = tuple(request.item for request in self.requests_by_item.values())
        return Dataset(self.name, {"test": items})

    def protocol(self, benchmark: str, **axes: Any) -> Protocol:
        """Return a protocol of these requests.

        ``axes``: what does not render, such as ``reading`` and ``score``.
        """
        values = {**NEUTRAL, **axes}
        return Protocol(benchmark=benchmark, split="test", requests=self.digest, **values)

    def problems(
        self, subject: str, items: Sequence[Item], positions: Sequence[int] | None = None
    ) -> Iterator[tuple[str, DataError]]:
        """Yield the id of every item without a request, and why."""
        for request in self.requests(subject, items):
            if isinstance(request, Refusal):
                yield request.item.id, request.reason

    def requests(
        self, subject: str, items: Sequence[Item], positions: Sequence[int] | None = None
    ) -> Iterator[Request | Refusal]:
        """Yield the request of each item, or a refusal."""
        for item in items:
            request = self.requests_by_item.get(item.id)
            if request is None:
                problem = (
                    f"{self.name} has no request for item {item.id!r}; render it too, or use the "
                    "same dataset"
                )
                yield Refusal(item, DataError(problem))
            else:
                yield request


def read_rendered(path: str | Path) -> RenderedRequests:
    """Read the requests of a JSON Lines file, as `choicewise prompts` prints them.

    A line: ``{"item", "subject", "context", "continuations", "gold"}``, or ``contexts``, parallel
    to ``continuations``, in place of ``context``.  ``gold`` is an index or a list of them.  Raises
    DataError naming the line, also for one that has several texts of a choice, a chain of thought
    or a set of options.
    """
    return rendered_requests(Path(path).stem, _rows(Path(path)))


def rendered_requests(name: str, rows: Iterable[JsonDict]) -> RenderedRequests:
    """Return the requests of ``rows``, each a line of :func:`read_rendered`.

    DataError for a row that is none.
    """
    by_item: dict[str, Request] = {}
    for number, row in enumerate(rows):
        try:
            request = _request(row, number)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{name}: request {number} (counted from 0) is malformed: {error!r}"
            ) from error
        if request.item.id in by_item:
            raise DataError(
                f"{name}: request {number} (counted from 0) repeats the item {request.item.id!r}"
            )
        by_item[request.item.id] = request
    if not by_item:
        raise DataError(f"{name} has no requests")
    return RenderedRequests(name, by_item)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An item without a request, and why."""

    item: Item
    reason: DataError


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """Render requests from the templates of ``protocol``, with shots from ``data``, in chats with
    ``template``.

    Items are those at ``positions`` of one subject, by default its first ones.
    """

    protocol: Protocol
    data: Dataset
    template: ChatTemplate | None = None

    def problems(
        self, subject: str, items: Sequence[Item], positions: Sequence[int] | None = None
    ) -> Iterator[tuple[str, DataError]]:
        """Yield the items that :meth:`requests` would refuse, or the subject if it has too few rows
        for shots.

        Cheaper than rendering: an item may be its own shot, have the wrong choices or fail to be
        prepared.
        """
        if positions is None:
            positions = range(len(items))
        try:
            # Shots for no item at all: this checks only that there are rows to draw from.
            sample(self.protocol, self.data, subject, range(0))
            for item in shown_to_themselves(self.protocol, self.data, subject, items, positions):
                yield item.id, self._shown_to_itself(item)
        except DataError as problem:
            yield subject, problem
        for item in items:
            if not suits(self.protocol, item):
                continue
            try:
                _prepared(self.protocol, item)
            except DataError as problem:
                yield item.id, problem

    def requests(
        self, subject: str, items: Sequence[Item], positions: Sequence[int] | None = None
    ) -> Iterator[Request | Refusal]:
        """Yield a request or a refusal for each item of the protocol's kind."""
        if positions is None:
            positions = range(len(items))
        shots = sample(self.protocol, self.data, subject, positions)
        drawn: frozenset[str] = frozenset()
        if self.protocol.views in DRAWING:
            split = self.protocol.split or self.data.evaluated
            drawn = drawn_items(self.data, split, self.protocol.seed or 0)
        for item, examples in zip(items, shots, strict=True):
            if not suits(self.protocol, item):
                continue
            if any(is_same(item, shot) for shot in examples):
                yield Refusal(item, self._shown_to_itself(item))
                continue
            try:
                yield render(self.protocol, item, examples, item.id in drawn, self.template)
            except DataError as reason:
                yield Refusal(item, reason)

    def _shown_to_itself(self, item: Item) -> DataError:
        return DataError(
            f"item {item.id} is one of its own shots: split {self.protocol.shot_split!r} has it, "
            "too; "
            "remove the row there, or skip bad items"
        )


def suits(protocol: Protocol, item: Item) -> bool:
    """Return whether the protocol is for items of this kind, with so many choices, and its
    preparation, too.
    """
    if not is_for(protocol.prepare, item):
        return False
    if protocol.kind == "any":
        return True
    return protocol.kind == kind_of(item) and protocol.choices in (None, len(item.choices))


def render(
    protocol: Protocol,
    item: Item,
    shots: Sequence[Item],
    drawn: bool = False,
    template: ChatTemplate | None = None,
) -> Request:
    """Render the request of ``item`` after ``shots``.

    Some views show an item that is ``drawn`` in several orders.

    ``template``: of a protocol that is a chat.

    Raises DataError if the item or a shot doesn't have the choices or columns that the protocol
    shows, and ProtocolError if another template than header and question has a hole that nothing
    fills.
    """
    reading = READINGS[protocol.reading]
    item, question, options = _shown(protocol, item)
    order: Order = ()
    moves = True
    if moves_labels(protocol.prepare):
        order, moves = shown_order(protocol.prepare, len(options))
    shown_item, shown_options = _in_order(protocol, item, options, order, moves)
    holes = _question_holes(protocol, shown_item, question, shown_options)
    labelled = _by_choice(_labelled(protocol, shown_item, shown_options), order)
    lines = [chat_text(protocol, protocol.continuation)]
    if reading.several:
        lines = lines[0].split("\n")
    parts = []
    for choice_holes in labelled:
        parts.append(tuple(fill(line, choice_holes, axis="continuation") for line in lines))
    proposals = []
    if protocol.proposal:
        proposals = [
            fill(protocol.proposal, choice_holes, axis="proposal") for choice_holes in labelled
        ]
    header_holes = holes
    if protocol.shots:
        # Before shots a header would give away the item that comes after them.
        header_holes = {**item.fields, "subject": item.subject.replace("_", " ")}
    header = fill(protocol.header, header_holes, axis="header")
    listed: tuple[str, ...] = ()
    after = ""
    if reading.unordered:
        listed = tuple(_lines(protocol, item, options))
        after = _after_options(protocol, _question_holes(protocol, item, question, options))
    return Request(
        item=item,
        header=header,
        shots=tuple(_shot(protocol, shot) for shot in shots),
        query=fill(protocol.question, holes, axis="question"),
        separator=protocol.separator,
        continuations=tuple(map("\n".join, parts)),
        options=options,
        gold=item.gold,
        parts=tuple(parts),
        proposals=tuple(proposals),
        views=tuple(_views(protocol, item, question, options, drawn)),
        chat=_chat(protocol, header, shots, template),
        listed=listed,
        after=after,
        order=order,
        batched=protocol.prepare == BATCHED,
    )


def _chat(
    protocol: Protocol, header: str, shots: Sequence[Item], template: ChatTemplate | None
) -> Chat | None:
    if protocol.chat == "none":
        return None
    turns = None
    if protocol.chat == "turns":
        turns = tuple(_turn(protocol, shot) for shot in shots)
    return Chat(
        system=joined(protocol.system, header, protocol.separator),
        turns=turns,
        begins=begins(protocol),
        template=template,
        arguments=template_arguments(protocol.template),
        close=protocol.thought == "close",
    )


def rendered_line(request: Request, reading: str) -> JsonDict:
    """Return a request as a line of :func:`read_rendered`: the texts of ``reading`` before they are
    fitted.

    If a choice has several texts, ``choices``, parallel to ``continuations``, says which choice
    each is of, and ``gold`` counts choices.  ``proposal`` follows every chain of thought, and the
    continuations follow it.  ``set``: the options that the context shows in no order, and what it
    ends with after them.  ``along``: the shares of the thought after which the model scores the
    continuations; the contexts are those without a thought.
    """
    declared = READINGS[reading]
    contexts = []
    continuations: list[str] = []
    choices = []
    groups = PROMPTERS[reading].texts(request)
    for group in groups:
        contexts += [group.context] * len(group.continuations)
        continuations += group.continuations
        choices += [slot.choice for slot in group.slots]
    line: JsonDict = {"item": request.item.id, "subject": request.item.subject}
    if any(group.differs for group in groups):
        line["contexts"] = contexts
    else:
        line["context"] = contexts[0]
    line["continuations"] = continuations
    line["gold"] = list(request.gold)
    if len(choices) > len(request.options):
        line["choices"] = choices
    if "chains" in declared.takes:
        line["proposal"] = request.proposals[0]
    if declared.unordered:
        line["set"] = {"options": list(request.listed), "after": request.after}
    if declared.along:
        line["along"] = list(ALONG.values())
    return line


def _rows(path: Path) -> Iterator[JsonDict]:
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = read_json(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not valid JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: not a JSON object")
        yield row


_NOT_READ = {
    "choices": "several texts of a choice",
    "proposal": "a sampled chain of thought",
    "set": "options as a set",
    "along": "shares of the model's own thought",
}
"""Keys of lines that can't be read back, and what they stand for."""


def _request(row: JsonDict, number: int) -> Request:
    for key, meaning in _NOT_READ.items():
        if key in row:
            raise ValueError(f"its key {key} calls for {meaning}; render it with another protocol")
    continuations = _texts(row["continuations"])
    contexts: tuple[str, ...] = ()
    if "contexts" in row:
        contexts = _texts(row["contexts"])
    context = "" if contexts else row["context"]
    if not isinstance(context, str) or len(contexts) not in (0, len(continuations)):
        raise ValueError("it needs a context, or as many contexts as continuations")
    # Lines of other programs have one right answer as a number.
    gold = row["gold"]
    if not isinstance(gold, list):
        gold = [gold]
    if not gold or not all(_is_index(index, len(continuations)) for index in gold):
        raise ValueError(f"gold {gold} does not index its {len(continuations)} continuations")
    subject = str(row.get("subject") or "")
    item = Item(str(row.get("item", number)), context, continuations, tuple(sorted(gold)), subject)
    return Request(
        item=item,
        header="",
        shots=(),
        query=context,
        separator="",
        continuations=continuations,
        options=continuations,
        gold=item.gold,
        parts=tuple((continuation,) for continuation in continuations),
        proposals=contexts,
    )


def _is_index(value: Any, length: int) -> bool:
    return isinstance(value, int) and 0 <= value < length


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise TypeError("continuations and contexts are lists of texts")
    return tuple(values)


def _views(
    protocol: Protocol, item: Item, question: str, options: tuple[str, ...], drawn: bool
) -> Iterator[View]:
    first, *orders = VIEWS[protocol.views](len(options), drawn)
    for order in orders:
        yield _ordered(protocol, item, question, options, order)
    if protocol.views == "content-free":
        for text in CONTENT_FREE:
            empty = replace(item, fields=dict.fromkeys(item.fields, text))
            texts = (text,) * len(options)
            yield replace(_ordered(protocol, empty, text, texts, first), content=False)


def _ordered(
    protocol: Protocol, item: Item, question: str, options: tuple[str, ...], order: Order
) -> View:
    item, ordered = _in_order(protocol, item, options, order)
    continuation = chat_text(protocol, protocol.continuation)
    texts = [
        fill(continuation, holes, axis="continuation")
        for holes in _labelled(protocol, item, ordered)
    ]
    return View(_query(protocol, item, question, ordered), tuple(_by_choice(texts, order)))


def _in_order(
    protocol: Protocol, item: Item, options: Sequence[str], order: Order, moves: bool = True
) -> tuple[Item, Sequence[str]]:
    """Return the item with its descriptions, and its options, in the ``order`` in which they are
    shown.

    ``order``: empty for the given one.  ``moves``: whether the options move with it; else yes and
    no stay.
    """
    if not order:
        return item, options
    if protocol.described is not None:
        descriptions = _descriptions(item, len(order))
        ordered = exact_json([descriptions[option] for option in order])
        item = replace(item, fields={**item.fields, DESCRIPTIONS: ordered})
    if moves:
        options = [options[option] for option in order]
    return item, options


def _by_choice(ordered: Sequence[Value], order: Order) -> list[Value]:
    """Put values in an ``order`` back into the order of the choices."""
    if not order:
        return list(ordered)
    by_choice = sorted(zip(order, ordered, strict=True), key=itemgetter(0))
    return [value for _, value in by_choice]


@lru_cache(maxsize=1024)
def _shot(protocol: Protocol, item: Item) -> str:
    """Render a solved example; remembered, as the items of a subject mostly show the same ones."""
    query, holes = _solved(protocol, item)
    return query + fill(protocol.answer, holes, axis="answer")


@lru_cache(maxsize=1024)
def _turn(protocol: Protocol, item: Item) -> tuple[str, str]:
    """Render a solved example as what the user and the assistant say."""
    query, holes = _solved(protocol, item)
    answer = fill(protocol.answer, holes, axis="answer")
    proposal = ""
    if names_choice(protocol.proposal):
        proposal = fill(protocol.proposal, holes, axis="proposal")
    # What a reading appends to the query of the item belongs to the user's words in a shot, too.
    if proposal and answer.startswith(proposal):
        return query + proposal, answer.removeprefix(proposal).lstrip()
    return query, fill(protocol.answer.lstrip(), holes, axis="answer")


def _solved(protocol: Protocol, item: Item) -> tuple[str, dict[str, str]]:
    """Return the query of a solved example, and the holes of its right choice."""
    item, question, options = _shown(protocol, item, shot=True)
    holes = _labelled(protocol, item, options)[item.gold[0]]
    return _query(protocol, item, question, options), holes


def _query(protocol: Protocol, item: Item, question: str, options: Sequence[str]) -> str:
    holes = _question_holes(protocol, item, question, options)
    return fill(protocol.question, holes, axis="question")


def _question_holes(
    protocol: Protocol, item: Item, question: str, options: Sequence[str]
) -> dict[str, str]:
    """Return what fills the holes of the axis ``question``."""
    lines = []
    if protocol.lists_options:
        lines = _lines(protocol, item, options)
    last = len(options) - 1
    return {
        "last_letter": protocol.labels[last : last + 1],
        "last_level": str(last),
        **item.fields,
        "question": question,
        "options": "".join(lines),
        "subject": item.subject.replace("_", " "),
    }


def _lines(protocol: Protocol, item: Item, options: Sequence[str]) -> list[str]:
    labelled = _labelled(protocol, item, options)
    if protocol.described is None:
        return [fill(protocol.option, holes, axis="option") for holes in labelled]
    lines = []
    for holes, description in zip(labelled, _descriptions(item, len(labelled)), strict=True):
        if description is None:
            lines.append(fill(protocol.option, holes, axis="option"))
        else:
            described = {**holes, "description": description}
            lines.append(fill(protocol.described, described, axis="described"))
    return lines


def _descriptions(item: Item, options: int) -> list[str | None]:
    """Return the description of every option as a preparation wrote it; None for none.

    A text without content describes every option.
    """
    # Content-free views replace every field by their text, which is no JSON.
    try:
        descriptions = json.loads(item.fields.get(DESCRIPTIONS, "[]"))
    except ValueError:
        descriptions = [item.fields[DESCRIPTIONS]] * options
    valid = isinstance(descriptions, list) and all(
        isinstance(description, str | None) for description in descriptions
    )
    if not valid:
        raise DataError(
            f"item {item.id} has descriptions that are no texts: use prepare=decision, or another "
            "of its kind"
        )
    return [*descriptions, *[None] * (options - len(descriptions))][:options]


def _after_options(protocol: Protocol, holes: dict[str, str]) -> str:
    """Return the end of the query after the options, by which these are found in a context."""
    query = fill(protocol.question, holes, axis="question")
    # A character that the query does not contain marks where the options are.
    mark = next(char for char in map(chr, count()) if char not in query)
    marked = fill(protocol.question, {**holes, "options": mark}, axis="question")
    _, _, after = marked.partition(mark)
    return after


def _labelled(protocol: Protocol, item: Item, options: Sequence[str]) -> list[dict[str, str]]:
    """Return the holes of every option.

    An option beyond the letters has none, and no template shows its letter.
    """
    labelled = _option_holes(protocol.labels, tuple(options))
    if item.fields:
        return [{**item.fields, **holes} for holes in labelled]
    return labelled


# Many protocols show the options of an item.
@lru_cache(maxsize=1024)
def _option_holes(labels: str, options: tuple[str, ...]) -> list[dict[str, str]]:
    labelled = []
    for index, option in enumerate(options):
        holes = {}
        if index < len(labels):
            holes["letter"] = labels[index]
        holes["choice"] = option
        holes["Choice"] = option[:1].upper() + option[1:]
        holes["CHOICE"] = option.upper()
        labelled.append(holes)
    return labelled


PANDAS_NA = frozenset(
    [
        "",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "None",
        "n/a",
        "nan",
        "null",
    ]
)
"""Fields that ``pandas.read_csv`` (2.0 and later) reads as missing by default, and that then print
as ``nan``.
"""


def _shown(protocol: Protocol, item: Item, shot: bool = False) -> tuple[Item, str, tuple[str, ...]]:
    item = _prepared(protocol, item, shot)
    question = item.question
    options = item.choices
    # Scripts that read the data with pandas asked the model about "nan".
    if protocol.quirk == "pandas-na":
        question = _as_pandas(question)
        options = tuple(map(_as_pandas, options))
    if protocol.strip in ("question", "all"):
        question = question.strip()
    if protocol.strip == "all":
        options = tuple(option.strip() for option in options)
    return item, question, options


def _prepared(protocol: Protocol, item: Item, shot: bool = False) -> Item:
    """Return the item that templates show; DataError if a text or a choice is missing."""
    _check_choices(protocol, item)
    prepared = prepare(protocol.prepare, item, shot)
    lacking = protocol.item_fields - prepared.fields.keys()
    if lacking:
        columns = listed(sorted(lacking))
        raise DataError(f"item {item.id} has no column {columns}; add the text, or skip bad items")
    return prepared


def _as_pandas(text: str) -> str:
    return "nan" if text in PANDAS_NA else text


def _check_choices(protocol: Protocol, item: Item) -> None:
    count = len(item.choices)
    problem = choice_problem(protocol, count)
    if not problem:
        return
    changes = choice_changes(protocol, [count])
    if _has_many_orders(protocol, count):
        changes.append("views=cyclic")
    remedy = ""
    if changes:
        remedy = f", or add @{','.join(changes)} to the protocol's name"
    raise DataError(
        f"item {item.id} of subject {item.subject!r} has {count} choices, {problem}; "
        f"correct the item, or skip bad items{remedy}"
    )


def choice_problem(protocol: Protocol, count: int) -> str:
    """Return why ``protocol`` can't ask a question with so many choices, or an empty text."""
    if protocol.choices not in (None, count):
        return f"the protocol asks for {protocol.choices}"
    if _has_many_orders(protocol, count):
        return f"and views full shows every order of at most {MOST}"
    if _lacks_letters(protocol, count):
        return f"the protocol has {len(protocol.labels)} letters"
    return ""


def choice_changes(protocol: Protocol, counts: Collection[int]) -> list[str]:
    """Return the axes, ``AXIS=VALUE``, with which ``protocol`` asks so many choices.

    There are as many letters as needed, if the alphabet has them.  Typed questions are chosen by
    their number of choices, so their protocols need no change.
    """
    changes: list[str] = []
    if protocol.kind != "any":
        return changes
    if any(protocol.choices not in (None, count) for count in counts):
        changes.append("choices=any")
    most = max(counts, default=0)
    options = most + more_options(protocol.prepare)
    if _lacks_letters(protocol, most) and options <= len(LETTERS):
        changes.append(f"letters={LETTERS[:options]}")
    return changes


def _has_many_orders(protocol: Protocol, count: int) -> bool:
    return protocol.views == "full" and count + more_options(protocol.prepare) > MOST


def _lacks_letters(protocol: Protocol, count: int) -> bool:
    """Check that there are too few letters for so many choices, and that each needs one.

    It does if a template shows it, or a rule may read it from generated text.
    """
    if count + more_options(protocol.prepare) <= len(protocol.labels):
        return False
    if READINGS[protocol.reading].text:
        return True
    templates = [protocol.proposal, protocol.continuation]
    if protocol.lists_options:
        templates.append(protocol.option)
    if protocol.shots:
        templates.append(protocol.answer)
    return any("{letter}" in template for template in templates)
