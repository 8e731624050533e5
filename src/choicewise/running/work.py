"""Selects the items and protocols of a run, and refuses protocols that the model does not support."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self, cast

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.errors import DataError, ModelError, NoProtocol
from choicewise.models.kinds import kind_of
from choicewise.models.model import Model, ServedModel
from choicewise.protocols.protocol import Protocol, Protocols
from choicewise.protocols.readings import supported_readings
from choicewise.questions import Conclusion, Generation, Prompt, Span
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
    settle_sample,
    unsupported,
    with_split,
    without_items,
)
from choicewise.requests.render import RenderedRequests
from choicewise.requests.request import BlockPrompt
from choicewise.results.run import by_reason, refused_lines
from choicewise.store.folder import RunFolder
from choicewise.tokens.byte_coverings import ByteProbability, parts
from choicewise.tokens.tokenizer import Tokenizer

Stretch = tuple[Section, int, int, list[RequestSpec]]
"""Items ``start`` to ``stop`` (exclusive) of a section, and the requests to make about them."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Hold the items of ``sections`` and the ``protocols`` to evaluate them under.

    Every protocol names its split.  ``refused``: protocols that the model does not support, with
    the reason.  ``selection``: the part of the data that the sections are.
    """

    data: Dataset
    protocols: Protocols
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
        protocols: Protocols,
        selection: Selection = ALL,
        rendered: Sequence[RenderedRequests] = (),
        skip_bad_items: bool = False,
    ) -> Self:
        """Select items of ``data``, and the protocols that the model supports.

        Warns of refused protocols, and of a sample that is all of the data or nothing of a subject.
        Raises ModelError if no protocol is left, DataError and UsageError for a selection that does
        not exist, and DataError if no item is of a kind that a protocol needs.
        """
        recipes = {name: with_split(protocol, data) for name, protocol in protocols.items()}
        sections = list_sections(data, recipes, selection)
        empty = without_items(recipes, data, sections)
        if recipes and len(empty) == len(recipes):
            raise DataError("no protocol fits the data", refused_lines(empty))
        refused = empty | refusals(model, data, recipes, sections, rendered)
        if recipes and len(refused) == len(recipes):
            refuse_all(model, refused)
        # The warnings name the line that called evaluate, four frames up.
        for line in refused_lines(refused):
            warnings.warn(f"{line}; the other protocols run", stacklevel=4)
        recipes = {name: recipe for name, recipe in recipes.items() if name not in refused}
        selection, warning = settle_sample(data, recipes, selection)
        if warning:
            warnings.warn(warning, stacklevel=4)
        return cls(
            data=data,
            protocols=recipes,
            # Listed again, as refused protocols may have splits that no other has.
            sections=list_sections(data, recipes, selection),
            rendered=rendered,
            skip_bad_items=skip_bad_items,
            refused=refused,
            selection=selection,
        )

    @cached_property
    def specs(self) -> Sequence[RequestSpec]:
        """List the distinct requests of the protocols."""
        return list_request_specs(self.protocols)

    @property
    def questions(self) -> int:
        """Count the items times the requests about them."""
        return sum((stop - start) * len(specs) for _, start, stop, specs in self.stretches())

    def stretches(self, folder: RunFolder | None = None) -> Iterator[Stretch]:
        """Yield the requests that ``folder`` lacks, or all."""
        for section in self.sections:
            specs = {spec.name: spec for spec in self.specs if spec.protocol.split == section.split}
            count = len(section.items)
            if folder is None:
                yield section, 0, count, list(specs.values())
                continue
            missing = folder.missing(section.split, section.subject, count, specs)
            for start, stop, names in missing:
                yield section, start, stop, [specs[name] for name in names]

    def check(self, stretches: Sequence[Stretch]) -> None:
        """Raise DataError for items that fit no request, unless they are to be skipped."""
        if self.skip_bad_items:
            return
        names: dict[str, str] = {}
        for name, protocol in self.protocols.items():
            names.setdefault(protocol.prompt_digest, name)
        refuse_problems(self.data, stretches, self.rendered, names)

    def blocks(self, stretches: Sequence[Stretch]) -> list[Block]:
        """Cut ``stretches`` into blocks that fit in memory."""
        blocks: list[Block] = []
        for stretch in stretches:
            blocks += cut_blocks(*stretch, self.data, self.rendered)
        return blocks


TRIED = 16
"""Items whose prompts are shown to a server's client for objections: the first of a section."""

# Readings that fit a line of advice; most models have many more.
_FEW = 4


def refusals(
    model: Model,
    data: Dataset,
    protocols: Protocols,
    sections: Sequence[Section],
    rendered: Sequence[RenderedRequests] = (),
) -> dict[str, str]:
    """Return protocol name → why the model does not support it.

    The reason is the kind of prompt, a chat without a template, or an objection of the model.  Only
    models in another program see prompts, those of the first items; others answer every prompt of a
    kind that they support.  Faults of items are no reason.
    """
    refused: dict[str, str] = {}
    objections: dict[frozenset[str], str] = {}
    for name, protocol in protocols.items():
        reason = lacking(model, protocol)
        if not reason and kind_of(model).remote:
            # Many protocols differ only in scores, and need the same requests.
            requests = frozenset(spec.name for spec in list_request_specs({name: protocol}))
            if requests not in objections:
                try:
                    objections[requests] = objection(model, data, protocol, sections, rendered)
                except DataError:
                    # Work.check reports it, together with all other faults of the data.
                    objections[requests] = ""
            reason = objections[requests]
        if reason:
            refused[name] = reason
    return refused


def lacking(model: Model, protocol: Protocol) -> str:
    """Return what ``model`` lacks for every prompt of ``protocol``, or an empty text."""
    reason = unsupported(protocol, model.name, model.supports)
    if not reason:
        reason = no_empty_context(protocol, model.tokenizer)
    if not reason and protocol.chat != "none":
        reason = no_chat(protocol, model.name, model.tokenizer.chat)
    if not reason and protocol.chat != "none":
        try:
            reason = open_thought(protocol, model.name, model.tokenizer.chat)
        except ModelError as error:
            reason = error.message
    return reason or ""


def check_all(model: Model, data: Dataset, protocols: Protocols) -> None:
    """Raise ModelError if ``model`` does not support one of ``protocols``, which need each other."""
    recipes = {name: with_split(protocol, data) for name, protocol in protocols.items()}
    refused = refusals(model, data, recipes, list_sections(data, recipes, Selection(limit=1)))
    if refused:
        refuse_all(model, refused)


def refuse_all(model: Model, refused: Mapping[str, str]) -> None:
    """Raise ModelError: the model supports none of the protocols."""
    instead = _supported(model)
    readings = supported_readings(model.supports)
    advice = "Use another protocol, or another model"
    if len(readings) < _FEW:
        advice = f"Use a protocol with reading {' or '.join(readings)}, or another model"
    if instead:
        advice = f"Use {', '.join(f'{option} {value}' for option, value in instead.items())}"
    reasons = by_reason(refused)
    if len(reasons) == 1:
        ((reason, names),) = reasons.items()
        which = names[0]
        if len(names) > 1:
            which = f"{names[0]} and {len(names) - 1} more protocols"
        message = f"{model.name} can't run {which}: {reason}. {advice}"
        raise NoProtocol(message, instead=instead)
    message = f"{model.name} can run none of {len(refused)} protocols. {advice}"
    raise NoProtocol(message, refused_lines(refused), instead)


def _supported(model: Model) -> dict[str, str]:
    """Return options of a run that a model supports which only generates, else none."""
    if Generation not in model.supports or Span in model.supports:
        return {}
    instead = {"protocol": "options/free-simple-evals"}
    # The template of a served chat model is the server's, and its completions may be absent.
    template = model.tokenizer.chat
    if template is not None and template.is_served:
        instead["chat"] = "message"
    return instead


def objection(
    model: Model,
    data: Dataset,
    protocol: Protocol,
    sections: Sequence[Section],
    rendered: Sequence[RenderedRequests] = (),
) -> str:
    """Return the model's objection to the first prompts of ``protocol``, or an empty text.

    Raises DataError if no prompt can be made of the first items.
    """
    for section in sections:
        if section.split == protocol.split and len(section.items):
            break
    else:
        return ""
    items = section.items[:TRIED]
    block = Block(
        split=section.split,
        subject=section.subject,
        start=0,
        items=items,
        positions=section.positions(0, len(items)),
        specs=list_request_specs({"": protocol}),
        work=0,
    )
    try:
        prepared = prepare_block(data, block, model, skip_bad_items=True, rendered=rendered)
    except ModelError as error:
        if protocol.chat == "none":
            raise
        # The chat template refuses the messages.
        return error.message
    if not prepared.wanted and prepared.requests:
        raise DataError(prepared.requests[0].missing or "no prompt")
    for question in prepared.wanted.values():
        for prompt in prompts_of(question, model.tokenizer):
            reason = model.objection(prompt)
            if reason:
                return reason
    return ""


def prompts_of(question: BlockPrompt, tokenizer: Tokenizer) -> Iterator[Prompt]:
    """Yield the prompts of ``question``; of a conclusion as if its generation had its full length."""
    match question:
        case Conclusion():
            yield question.generation
            yield question.after(np.zeros(question.longest, dtype=np.int32))
        case ByteProbability():
            yield from parts(question, tokenizer)
        case _:
            yield question


def server_record(model: Model) -> ServerRecord | None:
    """Return the record of the server behind ``model``; None for a local model."""
    served = served_model(model)
    return None if served is None else served.record


def note_change(folder: RunFolder, model: Model) -> None:
    """Probe the server once more after the last prompt, and keep in ``folder`` what has changed.

    Warns of changes, and if the server can't be probed.
    """
    served = served_model(model)
    if served is None or folder.manifest.server is None:
        return
    # Some kinds only know at the end what the record holds, such as repeated questions.
    before = kind_of(model).closing_record(folder.path, folder.manifest, served.record)
    folder.note_server(before)
    try:
        after = replace(before, probes=dict(served.probe_now()), named=served.record.named)
    except ModelError as error:
        warnings.warn(
            f"the server could not be probed again after the last question: {error}", stacklevel=3
        )
        return
    changes = "; ".join(before.differences(after))
    if changes:
        folder.note_server(replace(before, changed=changes))
        warnings.warn(
            f"the server answers differently than at the start of the run: {changes}",
            stacklevel=3,
        )


def how_asked(model: Model) -> list[str]:
    """Return lines about the server behind ``model`` and its notes; none for a local model."""
    served = served_model(model)
    if served is None:
        return []
    record = served.record
    software = record.software or "unnamed server"
    lines = [f"server: {software}, model {record.model}, route {record.route or 'none'}"]
    lines += [f"note: {note}" for note in served.notes]
    return lines


def served_model(model: Model) -> ServedModel | None:
    """Return ``model`` if it is behind a server, else None."""
    return cast(ServedModel, model) if hasattr(model, "probe_now") else None
