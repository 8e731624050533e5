"""What servers answer, read strictly: anything that is not what was asked for is no answer, never a wrong one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.json_answer import JSON
from choicewise.questions import NOT_FIRST, UNKNOWN

ABOVE = 1e-6
"""Nats by which a log-probability may exceed 0, as rounding makes it."""

_ID = re.compile("token_id:[0-9]{1,9}")

STAND_IN = -9000.0
"""Log-probabilities at and below it stand for others: vLLM writes -9999 for minus infinity and for unknown ones."""


def number(value: Any) -> float:
    """``value`` as a log-probability (nats, at most 0); raises Unanswerable where it can be none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unanswerable(f"the server gives {_shown(value)} in place of a log-probability")
    if isinstance(value, float) and not math.isfinite(value):
        raise Unanswerable(f"the server gives {value} as a log-probability")
    if value > ABOVE:
        raise Unanswerable(f"the server gives {_shown(value)} as a log-probability, which is above 0")
    if value <= STAND_IN:
        raise Unanswerable(
            f"the server gives {_shown(value)} as a log-probability, which stands for one that it does not know"
        )
    return min(float(value), 0.0)


def choice(answer: JSON) -> Mapping[str, Any]:
    """The one choice of an answer; Unanswerable where there are more or none, or it has another ``index`` than 0."""
    given = items(answer, "choices")
    if len(given) != 1:
        raise Unanswerable(f"the server answers with {len(given)} choices in place of 1")
    index = given[0].get("index") if isinstance(given[0], dict) else None
    if isinstance(index, bool) or index != 0:
        raise Unanswerable(f"the server numbers its choices wrongly ({_shown(index)})")
    only: Mapping[str, Any] = given[0]
    return only


def items(where: Any, name: str) -> list[Any]:
    """The list that the object ``where`` holds as ``name``; Unanswerable where there is none."""
    value = where.get(name) if isinstance(where, dict) else None
    if not isinstance(value, list):
        raise Unanswerable(f"the server gives {_shown(value)} in place of {name}")
    return value


def part(where: Any, name: str) -> Mapping[str, Any]:
    """The object that the object ``where`` holds as ``name``; Unanswerable where there is none."""
    value = where.get(name) if isinstance(where, dict) else None
    if not isinstance(value, dict):
        raise Unanswerable(f"the server gives {_shown(value)} in place of {name}")
    return value


def text(where: Any, name: str) -> str:
    """The text that the object ``where`` holds as ``name``; Unanswerable where there is none."""
    value = where.get(name) if isinstance(where, dict) else None
    if not isinstance(value, str):
        raise Unanswerable(f"the server gives {_shown(value)} in place of {name}")
    return value


def check_prompt(answer: JSON, tokens: int) -> None:
    """Raise Unanswerable where the server says that it read another number of tokens than the ``tokens`` sent."""
    usage = answer.get("usage")
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if isinstance(counted, int) and not isinstance(counted, bool) and counted != tokens:
        more = "an added BOS?" if counted == tokens + 1 else "another tokenizer, or a text that it cuts?"
        raise Unanswerable(f"the server read {_shown(counted)} tokens where {tokens} were sent ({more})")


def check_ids(given: Sequence[Any], sent: Sequence[int]) -> None:
    """Raise Unanswerable where the tokens that a server names are not those ``sent``."""
    if len(given) != len(sent):
        raise Unanswerable(
            f"the server gives log-probabilities of {len(given)} tokens where {len(sent)} were asked for"
        )
    for place, (one, other) in enumerate(zip(given, sent, strict=True)):
        if one != other:
            raise Unanswerable(f"the server gives a log-probability of token {_shown(one)}, not {other}, at {place}")


def named_id(name: str) -> int | None:
    """The id in ``token_id:ID``, as servers name tokens that are asked for by id; None for any other name.

    An id has at most nine digits, so that it fits into 32 bits.
    """
    return int(name.removeprefix("token_id:")) if _ID.fullmatch(name) else None


def named_logprobs(listed: Any) -> dict[int, float]:
    """id → log-probability of an object whose names are ``token_id:ID``; Unanswerable for other names."""
    if not isinstance(listed, dict):
        raise Unanswerable(f"the server gives {_shown(listed)} in place of the log-probabilities of a token")
    ids = {named_id(name): value for name, value in listed.items()}
    if None in ids or len(ids) != len(listed):
        raise Unanswerable("the server names tokens by their text though asked to name them by id")
    return {token: value for token, value in ids.items() if token is not None}


def rank(logprob: float, listed: Any) -> int:
    """0 where none of the ``listed`` likeliest tokens (name → nats) is likelier, else what is known of the rank."""
    if not isinstance(listed, dict) or not listed:
        return UNKNOWN
    return 0 if logprob >= max(map(number, listed.values())) else NOT_FIRST


def is_text(spelled: bytes) -> bool:
    """Whether ``spelled`` is UTF-8 by itself."""
    try:
        spelled.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shown(value: Any) -> str:
    """What stands in place of something, in a few characters."""
    return "nothing" if value is None else repr(value)[:40]
