"""Rows of a JSON Lines file, one object a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from choicewise.data.cell import Number, UnusableRow, repeated
from choicewise.data.text_file import text_lines


def jsonl_rows(path: Path) -> Iterator[dict[str, Any] | UnusableRow]:
    """Every line that is not blank: the object it holds, numbers in their own spelling, or why it holds none.

    Raises DataError when the file is not UTF-8.
    """
    for line in text_lines(path):  # JSON strings may hold U+2028 and other line ends unescaped
        if line.strip(" \t\r\n"):
            yield _row(line)


def _row(line: str) -> dict[str, Any] | UnusableRow:
    try:
        row = _ROW.decode(line)
    except UnusableRow as reason:
        return reason
    except json.JSONDecodeError as error:
        return UnusableRow(f"the line is no JSON: {error.msg.removesuffix(' at')} at character {error.pos}")
    except RecursionError:
        return UnusableRow("the line is nested too deeply")
    return row if isinstance(row, dict) else UnusableRow("the line holds no JSON object")


def parse_json(text: str) -> Any:
    """What a JSON text holds, numbers in their own spelling.  Raises UnusableRow for NaN and infinities."""
    return _TEXT.decode(text)


def _refuse_constant(constant: str) -> object:
    raise UnusableRow(f"the line holds {constant}, which is no JSON")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise UnusableRow(f"key {repeated([key for key, _ in pairs])!r} is there twice")
    return row


_TEXT, _ROW = (
    json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse_constant, object_pairs_hook=hook)
    for hook in (None, _refuse_repeated_keys)
)
