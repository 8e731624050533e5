"""JSON Lines of a log, with their places, so that they can be read again in any order."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from choicewise.data.text_file import text_lines
from choicewise.errors import DataError

HEAD = 65_536
"""Bytes of a file that are read to recognise it."""


def objects(path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(line, counted from 1, byte offset, object) of every line of ``path`` that is not empty.

    Raises DataError naming file and line for one that is cut off, no JSON, or no object, and for a file that is not
    UTF-8 or can't be read.
    """
    with path.open("rb") as file:
        offset = len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
    for number, line in enumerate(text_lines(path), start=1):
        if line.strip():
            yield number, offset, parsed(line, f"{path}, line {number}")
        offset += len(line.encode())


def object_at(path: Path, offset: int) -> dict[str, Any]:
    """The object of the line that begins at that byte of ``path``, which was read before."""
    with path.open("rb") as file:
        file.seek(offset)
        return parsed(file.readline().decode(), f"{path}, byte {offset}")


def parsed(line: str, where: str) -> dict[str, Any]:
    """The object that ``line`` spells; DataError saying ``where`` for anything else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        cut = "" if line.endswith("\n") else ", and the file ends there; was its writing cut off? Copy it again"
        raise DataError(f"{where}: no JSON ({error}){cut}") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: no JSON object, but {type(row).__name__}")
    return row


def first_object(path: Path) -> dict[str, Any]:
    """The object on the first line of ``path``, or that the whole file is; empty where there is none."""
    try:
        with path.open("rb") as file:
            start = file.read(HEAD).removeprefix(codecs.BOM_UTF8).decode(errors="replace")
    except OSError:
        return {}
    line = start.lstrip().partition("\n")[0]
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}
