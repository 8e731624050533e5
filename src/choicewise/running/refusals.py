"""Which protocols a model can't be asked under, and why, found out before anything is asked."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.errors import DataError, ModelError
from choicewise.models.model import SERVER, Model
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import supported_readings
from choicewise.questions import Conclusion, Question
from choicewise.requests.blocks import Block, Section, list_sections
from choicewise.requests.prepared_block import prepare_block
from choicewise.requests.prompt_rows import BlockQuestion
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.schedule import list_asks, no_chat, unsupported, with_split
from choicewise.results.refused import by_reason, refused_lines
from choicewise.tokens.byte_probability import ByteProbability
from choicewise.tokens.coverings import parts

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

    A model behind a server is shown the questions about the first items of ``sections``; others answer every question
    of a kind that they support, and a finished run is shown without making any.  What is wrong with items is no matter.
    """
    refused: dict[str, str] = {}
    by_prompt: dict[frozenset[str], str | None] = {}
    for name, protocol in protocols.items():
        reason = lacking(model, protocol)
        if reason is None and model.device == SERVER:
            prompt = frozenset(ask.name for ask in list_asks({name: protocol}))
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
    if reason is None and protocol.chat != "none":
        reason = no_chat(protocol, model.name, model.tokenizer.chat)
    return reason


def check_all(model: Model, data: Dataset, protocols: Mapping[str, Protocol]) -> None:
    """ModelError where ``model`` can't be asked under one of ``protocols``, which only make sense together."""
    recipes = {name: with_split(recipe, data) for name, recipe in protocols.items()}
    if refused := refusals(model, data, recipes, list_sections(data, recipes, None, 1)):
        refuse_all(model, refused)


def refuse_all(model: Model, refused: Mapping[str, str]) -> None:
    """ModelError: there is no protocol that the model can be asked under."""
    readings = supported_readings(model.supports)
    advice = f"it can be asked with reading {' or '.join(readings)}: use such a protocol, or another model"
    reasons = by_reason(refused)
    if len(reasons) == 1:
        ((reason, names),) = reasons.items()
        which = f"protocol {names[0]}" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more protocols"
        raise ModelError(f"{reason}; {which} can't be asked; {advice}")
    raise ModelError(
        f"{model.name} can be asked under none of {len(refused)} protocols; {advice}", refused_lines(refused)
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
    section = next((each for each in sections if each.split == protocol.split and len(each.items)), None)
    if section is None:
        return None
    asks = list_asks({"": protocol})
    block = Block(section.split, section.subject, 0, section.items[:TRIED], asks, 0)
    try:
        prepared = prepare_block(data, block, model, skip_bad_items=True, rendered=rendered)
    except ModelError as error:
        if protocol.chat == "none":
            raise
        return error.message  # the chat template's
    if not prepared.wanted and prepared.requests:
        raise DataError(prepared.requests[0].missing or "nothing is asked")
    objections = (model.objection(each) for wanted in prepared.wanted.values() for each in asked_parts(wanted))
    return next((objection for objection in objections if objection is not None), None)


def asked_parts(question: BlockQuestion) -> Iterator[Question]:
    """What the model is asked for ``question``; a conclusion as if the text before it had its full length."""
    match question:
        case Conclusion():
            yield question.generation
            yield question.after(np.zeros(question.generation.limit, dtype=np.int32))
        case ByteProbability():
            yield from parts(question)
        case _:
            yield question
