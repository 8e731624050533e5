"""A row of lighteval's details as an item."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from choicewise.errors import DataError
from choicewise.interchange.logs.log import LoggedChoice, LoggedItem
from choicewise.interchange.logs.read.lighteval_row import Detail


def logged_item(given: Detail, subject: str, place: str) -> LoggedItem | None:
    """The item, or None where the row is no multiple-choice question: text was generated, or a text was scored."""
    if len(given.choices) < 2 or any(isinstance(each, str) for each in given.predictions):
        return None
    if not all(isinstance(index, int) for index in given.gold):
        raise DataError(f"{place} has gold {list(given.gold)}; it is an index, or a list of them, counted from 0")
    return LoggedItem(
        id=given.id,
        gold=tuple(sorted(set(given.gold))),
        choices=tuple(_choice(given, index) for index in range(len(given.choices))),
        context=given.context,
        subject=subject,
        question=given.question or None,
        recorded={name: float(value) for name, value in given.metrics.items() if _is_number(value)},
    )


def _choice(given: Detail, index: int) -> LoggedChoice:
    choices, said = len(given.choices), len(given.predictions)
    text, tokens = str(given.choices[index]), _token_count(given.tokens, index, choices)
    if said not in (choices, 2 * choices):
        return LoggedChoice(None, text, missing=f"the log has {said} predictions for {choices} choices")
    value, greedy = _likelihood(given, index)
    if not _is_number(value):
        return LoggedChoice(None, text, tokens=tokens, missing=f"its log-likelihood in the log is {value}")
    after_null = _likelihood(given, choices + index)[0] if said == 2 * choices else None
    unconditional = float(after_null) if _is_number(after_null) and after_null is not None else None
    return LoggedChoice(float(value), text, tokens=tokens, greedy=greedy, unconditional=unconditional)


def _likelihood(given: Detail, place: int) -> tuple[Any, bool | None]:
    """A log-likelihood and whether it was greedy, None where the row does not say."""
    value, flag = given.predictions[place], given.greedy[place] if place < len(given.greedy) else None
    if isinstance(value, list | tuple):
        value, flag = (*value, None, None)[:2]
    return value, None if flag is None else bool(flag)


def _token_count(tokens: Sequence[Any], index: int, choices: int) -> int | None:
    """How many tokens were scored; -1 fills the shorter rows of a batch."""
    if len(tokens) == 1 and isinstance(tokens[0], list) and len(tokens[0]) == choices > 1:
        return 1  # one token a choice, all from one request
    mine = tokens[index] if index < len(tokens) else None
    if not isinstance(mine, list | tuple):
        return None
    return sum(isinstance(token, int) and token >= 0 for token in mine) or None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value)
