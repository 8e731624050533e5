"""Rows of a JSON Lines file, one object a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from choicewise.data.cell import Number, UnusableRow
from choicewise.data.text_file import read_text


def jsonl_rows(path: Path) -> Iterator[dict[str, Any] | UnusableRow]:
    """Every line that is not blank: the object it holds, numbers in their own spelling, or why it holds none.

    Raises DataError when the file is not UTF-8.
    """
    # Only "\n" ends a line: JSON strings may hold U+2028 and other line ends unescaped.
    for line in read_text(path).split("\n"):
        if line.strip(" \t\r"):
            yield _row(line)


def _row(line: str) -> dict[str, Any] | UnusableRow:
    try:
        row = json.loads(
            line,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse_constant,
            object_pairs_hook=_refuse_repeated_keys,
        )
    except UnusableRow as reason:
        return reason
    except json.JSONDecodeError as error:
        return UnusableRow(f"the line is no JSON: {error.msg} at character {error.pos}")
    except RecursionError:
        return UnusableRow("the line is nested too deeply")
    return row if isinstance(row, dict) else UnusableRow("the line holds no JSON object")


def _refuse_constant(constant: str) -> object:
    raise UnusableRow(f"the line holds {constant}, which is no JSON")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise UnusableRow(f"key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return row
