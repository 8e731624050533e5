"""Templates to texts; requests rendered elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

from choicewise.data.dataset import Dataset
from choicewise.data.decisions import DESCRIPTIONS, kind_of
from choicewise.data.files import read_text
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
from choicewise.protocols.protocol import NEUTRAL, Protocol, begins, fill, names_choice, said
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
from choicewise.tokens.chat_template import ChatTemplate
from choicewise.util.jsonio import exact_json, lines_digest, read_json


@dataclass(frozen=True)
class RenderedRequests:
    """Requests as they are sent: one context and its continuations, or a context for each continuation.

    ``digest`` (64 hex) identifies them and stands on the axis ``requests`` of their protocols.
    """

    name: str
    requests_by_item: dict[str, Request]

    @cached_property
    def digest(self) -> str:
        """sha256 over item, contexts, continuations and gold of every request, in order."""
        return lines_digest(
            [
                each.item.id,
                each.item.subject,
                each.query,
                each.proposals,
                each.continuations,
                each.gold,
            ]
            for each in self.requests_by_item.values()
        )

    @property
    def dataset(self) -> Dataset:
        """The items of the requests as a dataset with the split ``test``."""
        return Dataset(
            self.name, {"test": tuple(request.item for request in self.requests_by_item.values())}
        )

    def protocol(self, benchmark: str, **axes: Any) -> Protocol:
        """A protocol that asks these requests; ``axes``: what does not render, such as ``reading`` and ``score``."""
        return Protocol(
            benchmark=benchmark, split="test", requests=self.digest, **{**NEUTRAL, **axes}
        )

    def problems(
        self, subject: str, items: Sequence[Item], positions: Sequence[int] | None = None
    ) -> Iterator[tuple[str, DataError]]:
        """Every item without a request."""
        given = self.requests(subject, items)
        return ((each.item.id, each.reason) for each in given if isinstance(each, Refusal))

    def requests(
        self, subject: str, items: Sequence[Item], positions: Sequence[int] | None = None
    ) -> Iterator[Request | Refusal]:
        """The request of each item, or a refusal."""
        for item in items:
            problem = f"{self.name} has no request for item {item.id!r}; render it too, or use the same dataset"
            yield self.requests_by_item.get(item.id) or Refusal(item, DataError(problem))


def read_rendered(path: str | Path) -> RenderedRequests:
    """The requests in a JSON Lines file, as `choicewise prompts` prints them.

    A line: ``{"item", "subject", "context", "continuations", "gold"}``, or ``contexts``, parallel to ``continuations``,
    in place of ``context``.  ``gold`` is an index or a list of them.  Raises DataError naming the line, also for one
    that has several texts of a choice, a chain of thought or a set of options.
    """
    return rendered_requests(Path(path).stem, _rows(Path(path)))


def rendered_requests(name: str, rows: Iterable[dict[str, Any]]) -> RenderedRequests:
    """The requests in ``rows``, each as a line of :func:`read_rendered`; DataError for a row that is none."""
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
        raise DataError(f"{name} holds no requests")
    return RenderedRequests(name, by_item)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An item that can't be asked, and why."""

    item: Item
    reason: DataError


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """Requests rendered from the templates of ``protocol``, with shots from ``data``, in chats with ``template``.

    Items are those at ``positions`` of one subject, the first ones unless they are named.
    """

    protocol: Protocol
    data: Dataset
    template: ChatTemplate | None = None

    def problems(
        self, subject: str, items: Sequence[Item], positions: Sequence[int] | None = None
    ) -> Iterator[tuple[str, DataError]]:
        """What :meth:`requests` would refuse, after the name of the item or subject that it is about; cheaper.

        Too few rows for shots, and every item that is its own shot, has the wrong choices or can't be prepared.
        """
        try:
            sample(self.protocol, self.data, subject, range(0))
            places = range(len(items)) if positions is None else positions
            for item in shown_to_themselves(self.protocol, self.data, subject, items, places):
                yield item.id, self._shown_to_itself(item)
        except DataError as problem:
            yield subject, problem
        for item in items:
            if not suits(self.protocol, item):
                continue
            try:
                _check_choices(self.protocol, item)
                prepare(self.protocol.prepare, item)
            except DataError as problem:
                yield item.id, problem

    def requests(
        self, subject: str, items: Sequence[Item], positions: Sequence[int] | None = None
    ) -> Iterator[Request | Refusal]:
        """A request or a refusal for each item of the protocol's kind."""
        shots = sample(
            self.protocol, self.data, subject, range(len(items)) if positions is None else positions
        )
        drawn: frozenset[str] = frozenset()
        if self.protocol.views in DRAWING:
            drawn = drawn_items(
                self.data, self.protocol.split or self.data.evaluated, self.protocol.seed or 0
            )
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
            f"item {item.id} is one of its own shots: split {self.protocol.shot_split!r} has the same question, "
            "choices and answer, which would be shown; remove the row there, or skip bad items"
        )


def suits(protocol: Protocol, item: Item) -> bool:
    """Whether the protocol is for questions of the item's kind, with so many choices, and its change for the item.

    Others are no part of it.
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
    """The request of ``item`` after ``shots``; some views show an item that is ``drawn`` in several orders.

    ``template``: of a protocol that is a chat.

    Raises DataError when the item or a shot doesn't have the choices that the protocol expects, and ProtocolError when
    a template has a hole that the item doesn't fill.
    """
    item, question, options = _shown(protocol, item)
    order, moves = (
        shown_order(protocol.prepare, len(options))
        if moves_labels(protocol.prepare)
        else ((), True)
    )
    shown = _in_order(protocol, item, options, order, moves)
    asked = _asked(protocol, shown[0], question, shown[1])
    labelled = _by_choice(_labelled(protocol, *shown), order)
    continuation = said(protocol, protocol.continuation)
    lines = continuation.split("\n") if READINGS[protocol.reading].several else [continuation]
    parts = tuple(
        tuple(fill(line, holes, axis="continuation") for line in lines) for holes in labelled
    )
    # before shots a header would show what is asked after them
    known = {**item.fields, "subject": _spoken(item.subject)} if protocol.shots else asked
    header = fill(protocol.header, known, axis="header")
    chat = None
    if protocol.chat != "none":
        turns = tuple(_turn(protocol, shot) for shot in shots) if protocol.chat == "turns" else None
        system = joined(protocol.system, header, protocol.separator)
        told = template_arguments(protocol.template)
        chat = Chat(system, turns, begins(protocol), template, told, protocol.thought == "close")
    return Request(
        item=item,
        header=header,
        shots=tuple(_shot(protocol, shot) for shot in shots),
        query=fill(protocol.question, asked, axis="question"),
        separator=protocol.separator,
        continuations=tuple(map("\n".join, parts)),
        options=options,
        gold=item.gold,
        parts=parts,
        proposals=tuple(
            fill(protocol.proposal, holes, axis="proposal")
            for holes in labelled
            if protocol.proposal
        ),
        views=tuple(_views(protocol, item, question, options, drawn)),
        chat=chat,
        order=order,
        batched=protocol.prepare == BATCHED,
        **(_set(protocol, item, question, options) if READINGS[protocol.reading].unordered else {}),
    )


def rendered_line(request: Request, reading: str) -> dict[str, Any]:
    """A request as a line of :func:`read_rendered`: the texts that ``reading`` sends, before they are fitted.

    Where a choice has several texts, ``choices``, parallel to ``continuations``, says which choice each is of, and
    ``gold`` counts choices.  ``proposal`` follows every chain of thought, and the continuations follow it.  ``set``:
    the options that the context shows in no order, and what it ends with after them.  ``along``: after which shares of
    the thought that the model writes they are asked; the contexts are those without one.
    """
    groups = PROMPTERS[reading].texts(request)
    contexts = [group.context for group in groups for _ in group.continuations]
    places = [place for group in groups for place in group.places]
    line: dict[str, Any] = {"item": request.item.id, "subject": request.item.subject}
    line |= (
        {"contexts": contexts} if any(group.own for group in groups) else {"context": contexts[0]}
    )
    line |= {
        "continuations": [text for group in groups for text in group.continuations],
        "gold": list(request.gold),
    }
    if len(places) > len(request.options):
        line["choices"] = [choice for choice, _ in places]
    if "chains" in READINGS[reading].takes:
        line["proposal"] = request.proposals[0]
    if READINGS[reading].unordered:
        line["set"] = {"options": list(request.listed), "after": request.after}
    if READINGS[reading].along:
        line["along"] = list(ALONG.values())
    return line


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                row = read_json(line)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: no JSON: {error}") from error
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: no JSON object")
            yield row


def _request(row: dict[str, Any], number: int) -> Request:
    told = {
        "choices": "several texts of a choice",
        "proposal": "a sampled chain of thought",
        "set": "options as a set",
    }
    told["along"] = "shares of the model's own thought"
    for key, meaning in told.items():
        if key in row:
            raise ValueError(
                f"its key {key} says that it is asked with {meaning}; render it with another protocol"
            )
    continuations = _texts(row["continuations"])
    contexts = _texts(row["contexts"]) if "contexts" in row else ()
    context = "" if contexts else row["context"]
    gold = row["gold"] if isinstance(row["gold"], list) else [row["gold"]]
    if not isinstance(context, str) or (contexts and len(contexts) != len(continuations)):
        raise ValueError("it needs a context, or as many contexts as continuations")
    if not gold or not all(
        isinstance(index, int) and 0 <= index < len(continuations) for index in gold
    ):
        raise ValueError(f"gold {gold} does not index its {len(continuations)} continuations")
    subject = str(row.get("subject") or "")
    item = Item(str(row.get("item", number)), context, continuations, tuple(sorted(gold)), subject)
    parts = tuple((continuation,) for continuation in continuations)
    return Request(
        item, "", (), context, "", continuations, continuations, item.gold, parts, contexts
    )


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
            same = (text,) * len(options)
            yield replace(_ordered(protocol, empty, text, same, first), content=False)


def _ordered(
    protocol: Protocol, item: Item, question: str, options: tuple[str, ...], order: Order
) -> View:
    item, shown = _in_order(protocol, item, options, order)
    continuation = said(protocol, protocol.continuation)
    texts = [
        fill(continuation, holes, axis="continuation") for holes in _labelled(protocol, item, shown)
    ]
    return View(_query(protocol, item, question, shown), tuple(_by_choice(texts, order)))


def _in_order(
    protocol: Protocol, item: Item, options: Sequence[str], order: Order, moves: bool = True
) -> tuple[Item, Sequence[str]]:
    """The options in the ``order`` in which they are shown, and the item with their descriptions so.

    ``order``: empty for the given one.  ``moves``: whether their texts move, too; else yes and no keep their places.
    """
    if not order:
        return item, options
    if protocol.described is not None:
        own = _descriptions(item, len(order))
        item = replace(
            item,
            fields={**item.fields, DESCRIPTIONS: exact_json([own[option] for option in order])},
        )
    return item, [options[option] for option in order] if moves else options


def _by_choice(of_places: Sequence[Any], order: Order) -> list[Any]:
    """What stands at each place, by the option that counts there; ``order``: empty for the given one."""
    return (
        [of_places[place] for place in sorted(range(len(order)), key=order.__getitem__)]
        if order
        else [*of_places]
    )


@lru_cache(maxsize=1024)
def _shot(protocol: Protocol, item: Item) -> str:
    """A solved example; remembered, as the items of a subject mostly show the same ones."""
    item, question, options = _shown(protocol, item, shot=True)
    holes = _labelled(protocol, item, options)[item.gold[0]]
    return _query(protocol, item, question, options) + fill(protocol.answer, holes, axis="answer")


@lru_cache(maxsize=1024)
def _turn(protocol: Protocol, item: Item) -> tuple[str, str]:
    """A solved example as a turn of a chat."""
    item, question, options = _shown(protocol, item, shot=True)
    holes = _labelled(protocol, item, options)[item.gold[0]]
    asked, answer = (
        _query(protocol, item, question, options),
        fill(protocol.answer, holes, axis="answer"),
    )
    proposal = (
        fill(protocol.proposal, holes, axis="proposal") if names_choice(protocol.proposal) else ""
    )
    if proposal and answer.startswith(proposal):
        return asked + proposal, answer.removeprefix(proposal).lstrip()
    return asked, fill(protocol.answer.lstrip(), holes, axis="answer")


def _query(protocol: Protocol, item: Item, question: str, options: Sequence[str]) -> str:
    return fill(protocol.question, _asked(protocol, item, question, options), axis="question")


def _asked(protocol: Protocol, item: Item, question: str, options: Sequence[str]) -> dict[str, str]:
    """What fills the holes of the axis ``question``."""
    lines = _lines(protocol, item, options) if _lists_options(protocol) else []
    last = len(options) - 1
    of_last = {"last_letter": protocol.labels[last : last + 1], "last_level": str(last)}
    return {
        **of_last,
        **item.fields,
        "question": question,
        "options": "".join(lines),
        "subject": _spoken(item.subject),
    }


def _lists_options(protocol: Protocol) -> bool:
    return "{options}" in protocol.header + protocol.question


def _lines(protocol: Protocol, item: Item, options: Sequence[str]) -> list[str]:
    labelled = _labelled(protocol, item, options)
    if protocol.described is None:
        return [fill(protocol.option, holes, axis="option") for holes in labelled]
    return [
        fill(protocol.option, holes, axis="option")
        if description is None
        else fill(protocol.described, {**holes, "description": description}, axis="described")
        for holes, description in zip(labelled, _descriptions(item, len(labelled)), strict=True)
    ]


def _descriptions(item: Item, options: int) -> list[str | None]:
    """The description of every option as a preparation wrote it; None for none.

    A text without content describes every option.
    """
    try:
        descriptions = json.loads(item.fields.get(DESCRIPTIONS, "[]"))
    except ValueError:
        descriptions = [item.fields[DESCRIPTIONS]] * options
    if not (
        isinstance(descriptions, list)
        and all(isinstance(each, str | None) for each in descriptions)
    ):
        raise DataError(
            f"item {item.id} has descriptions that are no texts: use prepare=decision, or another of its kind"
        )
    return [*descriptions, *[None] * (options - len(descriptions))][:options]


def _set(protocol: Protocol, item: Item, question: str, options: Sequence[str]) -> dict[str, Any]:
    """The listed options and the end of the query after them, by which they are found in a context."""
    holes = _asked(protocol, item, question, options)
    query = fill(protocol.question, holes, axis="question")
    mark = next(char for char in map(chr, count()) if char not in query)
    _, _, after = fill(protocol.question, {**holes, "options": mark}, axis="question").partition(
        mark
    )
    return {"listed": tuple(_lines(protocol, item, options)), "after": after}


def _labelled(protocol: Protocol, item: Item, options: Sequence[str]) -> list[dict[str, str]]:
    """The holes of every option; those beyond the letters have no letter, and no template that would show one."""
    letters = chain(({"letter": letter} for letter in protocol.labels), repeat({}))
    cases = (
        {"choice": each, "Choice": each[:1].upper() + each[1:], "CHOICE": each.upper()}
        for each in options
    )
    return [{**item.fields, **letter, **case} for letter, case in zip(letters, cases, strict=False)]


PANDAS_NA = frozenset(
    [
        *(
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
        ),
        *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    ]
)
"""Fields that ``pandas.read_csv`` (2.0 and later) reads as missing by default, and that then print as ``nan``."""


def _shown(protocol: Protocol, item: Item, shot: bool = False) -> tuple[Item, str, tuple[str, ...]]:
    _check_choices(protocol, item)
    item = prepare(protocol.prepare, item, shot)
    question, options = item.question, item.choices
    if protocol.quirk == "pandas-na":
        question, *rest = ("nan" if text in PANDAS_NA else text for text in (question, *options))
        options = tuple(rest)
    if protocol.strip in ("question", "all"):
        question = question.strip()
    if protocol.strip == "all":
        options = tuple(option.strip() for option in options)
    return item, question, options


def _check_choices(protocol: Protocol, item: Item) -> None:
    number, letters = len(item.choices), protocol.labels
    shown = number + more_options(protocol.prepare)
    lacks_letters = shown > len(letters) and _needs_letters(protocol)
    changes = []
    if protocol.choices not in (None, number):
        problem = f"the protocol asks for {protocol.choices}"
        changes.append("choices=any")
    elif protocol.views == "full" and shown > MOST:
        problem = f"and views full shows every order of at most {MOST}"
        changes.append("views=cyclic")
    elif lacks_letters:
        problem = f"the protocol has {len(letters)} letters"
    else:
        return
    if lacks_letters and shown <= len(LETTERS):
        changes.append(f"letters={LETTERS[:shown]}")
    remedy = f", or add @{','.join(changes)} to the protocol's name" if changes else ""
    raise DataError(
        f"item {item.id} of subject {item.subject!r} has {number} choices, {problem}; "
        f"correct the item, or skip bad items{remedy}"
    )


def _needs_letters(protocol: Protocol) -> bool:
    """Whether every option has to have a letter: a template shows it, or a rule may read it from generated text."""
    templates = [protocol.proposal, protocol.continuation]
    templates += [protocol.option] if _lists_options(protocol) else []
    templates += [protocol.answer] if protocol.shots else []
    return READINGS[protocol.reading].text or any("{letter}" in template for template in templates)


def _spoken(subject: str) -> str:
    return subject.replace("_", " ")
