"""An item of a log as it can be kept, or why it can't."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from choicewise.data.cell import has_half_character
from choicewise.errors import DataError
from choicewise.interchange.logs.log import LoggedChoice, LoggedItem

ABOVE = 1e-3
"""Nats that rounding may lift a log-likelihood above 0."""

NAN = "the log says NaN"


@dataclass(frozen=True, slots=True)
class KeptItem:
    """An item whose log-likelihoods are numbers or missing; ``missing``: why it can't be scored at all."""

    item: LoggedItem
    missing: str | None = None

    @property
    def contexts(self) -> tuple[str | None, ...]:
        """The contexts of the choices, where any has its own; else none."""
        own = tuple(choice.context for choice in self.item.choices)
        return own if any(context is not None for context in own) else ()

    @property
    def question(self) -> str:
        """The question to show: the data's own, else what the choices were scored after."""
        item = self.item
        shown = item.question if item.question is not None else item.context
        if shown is None:
            shown = "\n".join(context for context in self.contexts if context is not None) or None
        return "(the log has no text of the question)" if shown is None else shown

    @property
    def options(self) -> tuple[str, ...]:
        """The choices to show: the data's own, else what was scored."""
        if self.item.options is not None:
            return self.item.options
        texts = (choice.text for choice in self.item.choices)
        return tuple(
            f"(choice {place}: the log has no text)" if text is None else text.removeprefix(" ")
            for place, text in enumerate(texts)
        )


def kept_item(item: LoggedItem, tool: str) -> KeptItem:
    """``item`` checked.

    A NaN is a missing choice, and a right choice that is none of the choices makes the item missing.  Raises DataError
    for what no log-likelihoods are, an item without choices, and texts that no file can store.
    """
    where = f"item {item.id!r} of {tool}"
    if not item.choices:
        raise DataError(f"{where} has no choices")
    if item.options is not None and len(item.options) != len(item.choices):
        raise DataError(f"{where} has {len(item.options)} options and {len(item.choices)} log-likelihoods")
    texts = [item.id, item.subject, item.context, item.question, *(item.options or ()), item.generated]
    texts += [text for choice in item.choices for text in (choice.text, choice.context)]
    if has_half_character("".join(text for text in texts if text is not None)):
        raise DataError(f"{where} holds a lone surrogate, half a character that no file can store")
    choices = tuple(_kept(choice, f"{where}, choice {place}") for place, choice in enumerate(item.choices))
    wrong = [index for index in item.gold if not 0 <= index < len(choices)]
    gold = tuple(sorted({index for index in item.gold if 0 <= index < len(choices)}))
    missing = None
    if wrong:
        missing = f"the right choice is {wrong[0]}, and there are {len(choices)} choices, counted from 0"
    elif not gold:
        missing = "the log does not say which choice is right"
    return KeptItem(replace(item, choices=choices, gold=gold), missing)


def _kept(choice: LoggedChoice, where: str) -> LoggedChoice:
    for name in ("loglikelihood", "unconditional"):
        value = getattr(choice, name)
        if value is not None and value > ABOVE:
            raise DataError(
                f"{where} has the {name} {value}, and a log-likelihood is never above 0; is it a "
                "loss, or a probability?"
            )
    if choice.tokens is not None and choice.tokens < 1:
        raise DataError(f"{where} has {choice.tokens} tokens; a scored choice has at least one")
    missing = choice.missing or (NAN if choice.loglikelihood is not None and math.isnan(choice.loglikelihood) else None)
    if missing or choice.loglikelihood is None:
        return replace(choice, loglikelihood=None, missing=missing or "the log has no log-likelihood of it")
    lost = choice.unconditional is not None and math.isnan(choice.unconditional)
    return replace(choice, unconditional=None) if lost else choice
