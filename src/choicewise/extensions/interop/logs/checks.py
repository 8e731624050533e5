"""Checks of a log: its items can be used, and its values follow from its answers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.verdicts import HARNESS
from choicewise.logs import Log, LoggedChoice, LoggedItem
from choicewise.util.text import has_half_character

ROUNDING = 1e-5
"""By how much a share may differ that another tool computed of the same numbers."""


class Checks:
    """Counts where a log says something else of its items."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._checked: Counter[str] = Counter()
        self._wrong: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self._unknown: set[str] = set()

    def add(self, item: LoggedItem) -> None:
        """Check one item; what is missing has nothing to be checked against."""
        if item.missing:
            return
        verdicts = self._log.verdicts or HARNESS
        for name, said in item.recorded.items():
            if (verdict := verdicts.get(name)) is None:
                self._unknown.add(name)
                continue
            follows = verdict(self._log, item)
            if math.isnan(follows) or math.isnan(said):
                continue
            self._checked[name] += 1
            if abs(said - follows) > ROUNDING:
                self._wrong[name] += 1
                self._first.setdefault(
                    name, f"{item.id}: the log says {said:g}, its answers {follows:g}"
                )

    def notes(self) -> tuple[str, ...]:
        """What differs, in words.

        Raises DataError where that is ``acc``: then the right choices were read otherwise than the tool knew them.
        """
        differing = {
            name: f"{name} of {count:,} of {self._checked[name]:,} items is another than its own answers give, "
            f"such as {self._first[name]}"
            for name, count in self._wrong.items()
        }
        if "acc" in differing:
            raise DataError(
                f"the {self._log.tool} log of {self._log.model} on {self._log.task} does not agree with itself: "
                f"{differing['acc']}"
            )
        return tuple(differing.values())

    def unused(self) -> tuple[str, ...]:
        """The log's values of items that are not imported, in words."""
        unknown = ", ".join(sorted(self._unknown))
        return (
            (f"values {unknown}, of which it is not known how they follow from the answers",)
            if unknown
            else ()
        )


def checked_item(item: LoggedItem, tool: str) -> LoggedItem:
    """``item`` with log-likelihoods that are numbers or missing.

    A NaN is a missing choice, and a right choice that is none of the choices makes the item missing.  Raises DataError
    for what no log-likelihoods are, an item without choices, and texts that no file can store.
    """
    where = f"item {item.id!r} of {tool}"
    if not item.choices:
        raise DataError(f"{where} has no choices")
    if item.options is not None and len(item.options) != len(item.choices):
        raise DataError(
            f"{where} has {len(item.options)} options and {len(item.choices)} log-likelihoods"
        )
    texts = [
        item.id,
        item.subject,
        item.context,
        item.question,
        *(item.options or ()),
        item.generated,
    ]
    texts += [text for choice in item.choices for text in (choice.text, choice.context)]
    if has_half_character("".join(text for text in texts if text is not None)):
        raise DataError(f"{where} holds a lone surrogate, half a character that no file can store")
    choices = tuple(
        _checked(choice, f"{where}, choice {place}") for place, choice in enumerate(item.choices)
    )
    wrong = [index for index in item.gold if not 0 <= index < len(choices)]
    gold = tuple(sorted({index for index in item.gold if 0 <= index < len(choices)}))
    missing = None
    if wrong:
        missing = (
            f"the right choice is {wrong[0]}, and there are {len(choices)} choices, counted from 0"
        )
    elif not gold:
        missing = "the log does not say which choice is right"
    return replace(item, choices=choices, gold=gold, missing=missing)


def _checked(choice: LoggedChoice, where: str) -> LoggedChoice:
    for name in ("loglikelihood", "unconditional"):
        value = getattr(choice, name)
        if value is not None and value > 1e-3:  # nats that rounding may lift it above 0
            raise DataError(
                f"{where} has the {name} {value}, and a log-likelihood is never above 0; is it a "
                "loss, or a probability?"
            )
    if choice.tokens is not None and choice.tokens < 1:
        raise DataError(f"{where} has {choice.tokens} tokens; a scored choice has at least one")
    if choice.missing or choice.loglikelihood is None:
        return replace(
            choice,
            loglikelihood=None,
            missing=choice.missing or "the log has no log-likelihood of it",
        )
    if math.isnan(choice.loglikelihood):
        return replace(choice, loglikelihood=None, missing="the log says NaN")
    lost = choice.unconditional is not None and math.isnan(choice.unconditional)
    return replace(choice, unconditional=None) if lost else choice
