"""Numbers and flags of logs, which some write as text."""

from __future__ import annotations

import math
from typing import Any

from choicewise.errors import DataError

NOTHING = frozenset({"", "none", "null", "na", "n/a", "nan"})
"""Texts that stand for no number, in lower case."""

_FLAGS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False, "yes": True, "no": False}


def number(cell: Any, where: str) -> float | None:
    """``cell`` as a number, None where there is none (null, NaN, an empty text).

    Raises DataError saying ``where`` for anything else, true and false included, and for a number that has no float.
    """
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in NOTHING):
        return None
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        raise DataError(f"{where} is {_shown(cell)}, which is no number")
    try:
        value = float(cell)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{where} is {_shown(cell)}, which is no number") from error
    return None if math.isnan(value) else value


def flag(cell: Any, where: str) -> bool | None:
    """``cell`` as true or false, None where it is neither; DataError saying ``where`` for anything else."""
    if cell is None or isinstance(cell, bool):
        return cell
    text = str(cell).strip().lower()
    if text in NOTHING:
        return None
    if text not in _FLAGS:
        raise DataError(f"{where} is {_shown(cell)}, which is neither true nor false")
    return _FLAGS[text]


def index(cell: Any) -> int | None:
    """``cell`` as a whole number, None where it is none."""
    if isinstance(cell, bool):
        return None
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    text = str(cell).strip() if isinstance(cell, str | int) else ""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


def _shown(cell: Any) -> str:
    text = repr(cell)
    return text if len(text) <= 60 else f"{text[:57]}..."
