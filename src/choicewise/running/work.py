"""What a run has to ask, what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Self, cast

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError, ModelError, ProtocolError
from choicewise.models.kinds import kind_of
from choicewise.models.model import Model, ServedModel
from choicewise.protocols.catalogue import entries
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import supported_readings
from choicewise.questions import Conclusion, Prompt, Span
from choicewise.records import Selection, ServerRecord
from choicewise.requests.blocks import (
    ALL,
    Block,
    RequestSpec,
    Section,
    cut_blocks,
    list_request_specs,
    list_sections,
    no_chat,
    no_empty_context,
    open_thought,
    prepare_block,
    refuse_problems,
    settled,
    unasked,
    unsupported,
    with_split,
)
from choicewise.requests.render import RenderedRequests
from choicewise.requests.request import BlockPrompt
from choicewise.results.run import by_reason, refused_lines
from choicewise.store.folder import RunFolder
from choicewise.tokens.byte_coverings import ByteProbability, parts
from choicewise.tokens.tokenizer import Tokenizer, common_prefix

Stretch = tuple[Section, int, int, list[RequestSpec]]
"""Items ``start`` to ``stop`` (exclusive) of a section, and the ways in which they are still to be asked."""


@dataclass(frozen=True)
class Work:
    """The items of ``sections`` under ``protocols``, each of which names its split.

    ``refused``: protocols that the model can't be asked under, with the reason.  ``selection``: what of the data the
    sections are.
    """

    data: Dataset
    protocols: Mapping[str, Protocol]
    sections: Sequence[Section]
    rendered: Sequence[RenderedRequests] = ()
    skip_bad_items: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    selection: Selection = ALL

    @classmethod
    def of(
        cls,
        model: Model,
        data: Dataset,
        protocols: Mapping[str, Protocol],
        selection: Selection = ALL,
        rendered: Sequence[RenderedRequests] = (),
        skip_bad_items: bool = False,
    ) -> Self:
        """What is selected of ``data``.

        Warns of protocols that the model can't be asked under, which are no part of the work, and of a sample that is
        all of the data or nothing of a subject.  Raises ModelError where no protocol is left, DataError and UsageError
        for a selection that there is not, and DataError where no item is of a kind that a protocol asks.
        """
        recipes = {name: with_split(recipe, data) for name, recipe in protocols.items()}
        sections = list_sections(data, recipes, selection)
        others = unasked(recipes, data, sections)
        if recipes and len(others) == len(recipes):
            raise DataError("no protocol can ask it", refused_lines(others))
        refused = others | refusals(model, data, recipes, sections, rendered)
        if recipes and len(refused) == len(recipes):
            refuse_all(model, refused)
        for line in refused_lines(refused):
            warnings.warn(f"{line}; the other protocols are asked", stacklevel=4)
        recipes = {name: recipe for name, recipe in recipes.items() if name not in refused}
        selection, said = settled(data, recipes, selection)
        if said:
            warnings.warn(said, stacklevel=4)
        sections = list_sections(data, recipes, selection)
        return cls(data, recipes, sections, rendered, skip_bad_items, refused, selection)

    @cached_property
    def specs(self) -> Sequence[RequestSpec]:
        """All ways of asking, each once."""
        return list_request_specs(self.protocols)

    @property
    def questions(self) -> int:
        """Items times the ways of asking about them."""
        return sum((stop - start) * len(specs) for _, start, stop, specs in self.stretches())

    def stretches(self, folder: RunFolder | None = None) -> Iterator[Stretch]:
        """Everything that ``folder`` lacks."""
        for section in self.sections:
            specs = {spec.name: spec for spec in self.specs if spec.protocol.split == section.split}
            count = len(section.items)
            whole = iter([(0, count, list(specs))])
            lacking = (
                whole
                if folder is None
                else folder.missing(section.split, section.subject, count, specs)
            )
            for start, stop, names in lacking:
                yield section, start, stop, [specs[name] for name in names]

    def check(self, stretches: Sequence[Stretch]) -> None:
        """DataError for all items that can't be asked, unless they are to be skipped."""
        if not self.skip_bad_items:
            refuse_problems(self.data, stretches, self.rendered)

    def blocks(self, stretches: Sequence[Stretch]) -> list[Block]:
        """The same in blocks that fit in memory."""
        return [
            block
            for stretch in stretches
            for block in cut_blocks(*stretch, self.data, self.rendered)
        ]


_CHOICES = (
    *("to keep the bread from drying out overnight", "a small yellow boat on the quiet river"),
    *("because nobody had remembered to close it", "seventeen kilometres north of the old harbour"),
    "every second Thursday of the month",
)


def _quiz(count: int) -> Dataset:
    items = (
        Item(str(number), f"Which of these is right, {number}?", _CHOICES[:count], (0,))
        for number in range(2)
    )
    return Dataset(f"{count} choices", {"test": tuple(items)})


QUIZZES = tuple(map(_quiz, (4, 2, 5)))
"""Questions with choices of several words, which no tokenizer has as one token."""


@dataclass(frozen=True, slots=True)
class Servable:
    """Names of the catalogue's protocols.

    ``served``: those that the model can be asked under; ``refused``: the others, with the reason.  ``chats``: those of
    the refused ones that it can be asked under in a chat.  ``untried``: those that these questions don't fit; of them
    is known only that the model lacks nothing that they always need.
    """

    served: tuple[str, ...]
    refused: Mapping[str, str]
    chats: tuple[str, ...]
    untried: tuple[str, ...]


def servable(model: Model) -> Servable:
    """What ``model`` can be asked under, without shots; nothing is asked."""
    served, chats, untried, refused = list[str](), list[str](), list[str](), dict[str, str]()
    for name, protocol in (
        (name, each) for entry in entries() for name, each in entry.protocols.items()
    ):
        reason = lacking(model, protocol)
        if reason is None:
            try:
                reason = _unservable(model, replace(protocol, split=None, shots=0))
            except (DataError, ProtocolError):
                untried.append(name)
                continue
        if reason is None:
            served.append(name)
        else:
            refused[name] = reason
            if model.tokenizer.chat is not None and _in_chat(model, protocol):
                chats.append(name)
    return Servable(tuple(served), refused, tuple(chats), tuple(untried))


def _in_chat(model: Model, protocol: Protocol) -> bool:
    """Whether the model can be asked under the protocol where everything stands in one message."""
    try:
        chat = replace(protocol, split=None, shots=0, chat="message")
        return lacking(model, chat) is None and _unservable(model, chat) is None
    except (DataError, ProtocolError):
        return False


def _unservable(model: Model, protocol: Protocol) -> str | None:
    """What the model says against the first questions that the protocol fits; DataError where it fits none."""
    for data in QUIZZES:
        own = with_split(protocol, data)
        try:
            return objection(model, data, own, list_sections(data, {"": own}))
        except DataError as error:
            unfit = error
    raise unfit


TRIED = 16
"""Items whose questions a server may object to: the first of a section."""


def refusals(
    model: Model,
    data: Dataset,
    protocols: Mapping[str, Protocol],
    sections: Sequence[Section],
    rendered: Sequence[RenderedRequests] = (),
) -> dict[str, str]:
    """By name why protocols can't be asked: kinds of question, chats without a template, and what the model says.

    A model that another program computes is shown the questions about the first items of ``sections``; others answer
    every question of a kind that they support, and a finished run is shown without making any.  What is wrong with
    items is no matter.
    """
    refused: dict[str, str] = {}
    by_prompt: dict[frozenset[str], str | None] = {}
    for name, protocol in protocols.items():
        reason = lacking(model, protocol)
        if reason is None and kind_of(model).remote:
            prompt = frozenset(spec.name for spec in list_request_specs({name: protocol}))
            if prompt not in by_prompt:
                try:
                    by_prompt[prompt] = objection(model, data, protocol, sections, rendered)
                except DataError:  # said with all that is wrong with the data
                    by_prompt[prompt] = None
            reason = by_prompt[prompt]
        if reason is not None:
            refused[name] = reason
    return refused


def lacking(model: Model, protocol: Protocol) -> str | None:
    """What ``model`` lacks for every question under ``protocol``; None where it lacks nothing."""
    reason = unsupported(protocol, model.name, model.supports)
    if reason is None:
        reason = no_empty_context(protocol, model.tokenizer)
    if reason is None and protocol.chat != "none":
        reason = no_chat(protocol, model.name, model.tokenizer.chat)
    if reason is None and protocol.chat != "none":
        try:
            reason = open_thought(protocol, model.name, model.tokenizer.chat)
        except ModelError as error:
            reason = error.message
    return reason


def check_all(model: Model, data: Dataset, protocols: Mapping[str, Protocol]) -> None:
    """ModelError where ``model`` can't be asked under one of ``protocols``, which only make sense together."""
    recipes = {name: with_split(recipe, data) for name, recipe in protocols.items()}
    if refused := refusals(model, data, recipes, list_sections(data, recipes, Selection(limit=1))):
        refuse_all(model, refused)


def refuse_all(model: Model, refused: Mapping[str, str]) -> None:
    """ModelError: there is no protocol that the model can be asked under."""
    readings = supported_readings(model.supports)
    advice = f"it can be asked with reading {' or '.join(readings)}: use such a protocol, or another model"
    reasons = by_reason(refused)
    if len(reasons) == 1:
        ((reason, names),) = reasons.items()
        which = (
            f"protocol {names[0]}"
            if len(names) == 1
            else f"{names[0]} and {len(names) - 1} more protocols"
        )
        raise ModelError(f"{reason}; {which} can't be asked; {advice}")
    raise ModelError(
        f"{model.name} can be asked under none of {len(refused)} protocols; {advice}",
        refused_lines(refused),
    )


def objection(
    model: Model,
    data: Dataset,
    protocol: Protocol,
    sections: Sequence[Section],
    rendered: Sequence[RenderedRequests] = (),
) -> str | None:
    """What the model says against the first questions under ``protocol``, None for nothing.

    Raises DataError where none of them can be made.
    """
    section = next(
        (each for each in sections if each.split == protocol.split and len(each.items)), None
    )
    if section is None:
        return None
    specs = list_request_specs({"": protocol})
    drawn = None if section.drawn is None else section.drawn[:TRIED]
    block = Block(section.split, section.subject, 0, section.items[:TRIED], specs, 0, drawn)
    try:
        prepared = prepare_block(data, block, model, skip_bad_items=True, rendered=rendered)
    except ModelError as error:
        if protocol.chat == "none":
            raise
        return error.message  # the chat template's
    if not prepared.wanted and prepared.requests:
        raise DataError(prepared.requests[0].missing or "nothing is asked")
    objections = (
        model.objection(each)
        for wanted in prepared.wanted.values()
        for each in asked_parts(wanted, model.tokenizer)
    )
    return next((objection for objection in objections if objection is not None), None)


def asked_parts(question: BlockPrompt, tokenizer: Tokenizer) -> Iterator[Prompt]:
    """What a model with this ``tokenizer`` is asked; a conclusion as if the text before it had its full length."""
    match question:
        case Conclusion():
            yield question.generation
            yield question.after(np.zeros(question.longest, dtype=np.int32))
        case ByteProbability():
            yield from parts(question, tokenizer)
        case _:
            yield question


TEXT: Final = "The capital of France is"
ENDINGS: Final = (" Paris", " banana")
"""The true one, and the silly one."""


@dataclass(frozen=True, slots=True)
class Plausible:
    """The log-probability (nats) of each of ``ENDINGS`` after ``TEXT``, and whether it is an upper bound.

    ``objection``: why they are not known; then both are None.
    """

    true: float | None = None
    silly: float | None = None
    true_at_most: bool = False
    silly_at_most: bool = False
    objection: str = ""

    @property
    def text(self) -> str:
        """The same in words."""
        if self.true is None or self.silly is None:
            return f"can't be asked: {self.objection}"
        true, silly = (
            f"{'at most ' if bound else ''}{nats:.2f}"
            for nats, bound in ((self.true, self.true_at_most), (self.silly, self.silly_at_most))
        )
        said = f"after {TEXT!r}, {ENDINGS[0]!r} has {true} nats and {ENDINGS[1]!r} {silly}"
        if self.true > self.silly and not self.true_at_most:
            return f"{said}: the true ending is likelier"
        if self.true_at_most:
            return f"{said}: which is likelier is not known"
        return (
            f"{said}: the true ending is not likelier; doubt the model, unless it knows no English"
        )


def plausible(model: Model) -> Plausible:
    """Ask ``model`` for both; raises ModelError where its server fails."""
    objection = ""
    for special in (True, False):
        alone, *wholes = model.tokenizer.encode(
            [TEXT, *(TEXT + ending for ending in ENDINGS)], special=special
        )
        begins = common_prefix([alone, *wholes])
        spans = [Span(whole[:begins], whole[begins:]) for whole in wholes]
        objections = [_implausible(model, span) for span in spans]
        objection = next(filter(None, objections), "")
        if not objection:
            answers = dict(model.answer(spans))
            reasons = [answers[place].missing for place in range(2)]
            if objection := next(filter(None, reasons), ""):
                continue
            true, silly = (
                float(answers[place].logprobs.sum(dtype="float64")) for place in range(2)
            )
            return Plausible(true, silly, bool(answers[0].at_most), bool(answers[1].at_most))
    return Plausible(objection=objection)


def _implausible(model: Model, span: Span) -> str | None:
    if Span not in model.supports:
        return "the model gives no log-probabilities of texts"
    if not len(span.context):
        return "the tokenizer puts nothing before the endings"
    return model.objection(span)


def server_record(model: Model) -> ServerRecord | None:
    """What the run folder keeps of the server that ``model`` is behind; None for other models."""
    served = served_model(model)
    return None if served is None else served.record


def note_change(folder: RunFolder, model: Model) -> None:
    """Probe the server once more, after the last question, and keep in ``folder`` what it answers otherwise.

    Warns of that, and where the server can't be asked any more.
    """
    served = served_model(model)
    if served is None or folder.manifest.server is None:
        return
    before = kind_of(model).closing_record(folder.path, folder.manifest, served.record)
    folder.note_server(before)
    try:
        now = replace(before, probes=dict(served.probe_now()), named=served.record.named)
    except ModelError as error:
        warnings.warn(
            f"the server was not probed again after the last question: {error}", stacklevel=3
        )
        return
    if lines := before.differences(now):
        folder.note_changed("; ".join(lines))
        warnings.warn(
            f"the server answers otherwise than at the beginning of the run: {'; '.join(lines)}",
            stacklevel=3,
        )


def how_asked(model: Model) -> list[str]:
    """Lines that say how the server that ``model`` is behind is asked, and what to know of that; none for others."""
    if (served := served_model(model)) is None:
        return []
    record = served.record
    asked = f"{record.model} behind {record.software or 'a server'} is asked by {record.route or 'nothing'}"
    return [asked, *(f"note: {note}" for note in served.notes)]


def served_model(model: Model) -> ServedModel | None:
    """``model`` where it is behind a server; None for others."""
    return cast(ServedModel, model) if hasattr(model, "probe_now") else None
