"""CSV, JSONL, Parquet, text as rows."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import tomllib
from ast import literal_eval
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from choicewise.data.items import Number, UnusableRow, repeated
from choicewise.errors import DataError

_QUOTED: Final = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""
_NEXT: Final = re.compile(rf"\s*({_QUOTED})\s*(,|\Z)")

LONGEST: Final = 200_000
"""Characters of a Python literal: a hundred times RACE's."""


def list_in(text: str, column: str) -> object:
    """What ``text`` spells in JSON, or the texts of a flat list in the spelling of Python (``['a', "b's"]``), as in
    the choices of MuSR on the Hub.

    Raises UnusableRow where it spells neither.
    """
    try:
        return parse_json(text)
    except (ValueError, RecursionError, UnusableRow) as error:
        if (texts := _python_texts(text.strip())) is not None:
            return texts
        raise UnusableRow(
            f"column {column} holds a text where a list of choices is needed; write it as a JSON list,"
            " or give each choice its own column"
        ) from error


def read_list(cell: object, column: str) -> list[Any]:
    """The list of ``column``: as it is, or read from a literal, which runs no code.

    Raises UnusableRow for anything else, and for a text of more than ``LONGEST`` characters.
    """
    value = cell
    if isinstance(cell, str):
        if len(cell) > LONGEST:
            raise UnusableRow(f"column {column} holds {len(cell)} characters; a list in it has {LONGEST} at most")
        try:
            value = literal_eval(cell)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise UnusableRow(f"column {column} holds a text that is no list: {cell[:40]!r}") from error
    if not isinstance(value, list):
        raise UnusableRow(f"column {column} holds no list")
    return value


def _python_texts(text: str) -> list[str] | None:
    if not (text.startswith("[") and text.endswith("]")):
        return None
    inside, place, texts = text[1:-1], 0, []
    while place < len(inside):
        literal = _NEXT.match(inside, place)
        if literal is None:
            return None
        try:
            texts.append(str(literal_eval(literal[1])))
        except (ValueError, SyntaxError):  # an escape that is none
            return None
        place = literal.end()
    return texts


CSV_CHUNK: Final = 1000
"""Rows that are read at a time."""


def cells(path: Path) -> Iterator[list[str]]:
    """Every row that is not a blank line, header or not, as texts: no text becomes a number or a missing value.

    Raises DataError when the file is not UTF-8, or a quote is never closed or closed inside a cell: the cells after it
    can't be separated, so no row can be skipped.
    """
    reader = csv.reader(_lines(path), strict=True)
    while rows := _next_rows(path, reader):
        yield from filter(None, rows)


def _lines(path: Path) -> Iterator[str]:
    r"""The lines of a file, which may also end in ``\r``, as files of old Macintoshes do."""
    for line in text_lines(path):
        if "\r" in line:
            yield from io.StringIO(line, newline="")
        else:
            yield line


def _next_rows(path: Path, reader: Any) -> list[list[str]]:
    limit = csv.field_size_limit()  # the csv module has one limit for the whole process
    try:
        csv.field_size_limit(max(limit, path.stat().st_size))
        return list(islice(reader, CSV_CHUNK))
    except csv.Error as error:
        raise DataError(f"{path} is no CSV, at line {reader.line_num} (from 1): {error}; check its quotes") from error
    finally:
        csv.field_size_limit(limit)


def csv_rows(path: Path) -> Iterator[dict[str, Any] | UnusableRow]:
    """Every row after the header by the header's names, or why its cells don't fit the header.

    Raises DataError as `cells` does, and when two columns of the header have the same name.
    """
    rows = cells(path)
    header = next(rows, [])
    if (name := repeated(header)) is not None:
        raise DataError(f"{path}: the header names two columns {name!r}; rename one of them")
    for row in rows:
        if len(row) == len(header):
            yield dict(zip(header, row, strict=True))
        else:
            yield UnusableRow(f"{len(row)} cells under a header of {len(header)}")


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
    return _JSON_TEXT.decode(text)


def _refuse_constant(constant: str) -> object:
    raise UnusableRow(f"the line holds {constant}, which is no JSON")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise UnusableRow(f"key {repeated([key for key, _ in pairs])!r} is there twice")
    return row


_JSON_TEXT, _ROW = (
    json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse_constant, object_pairs_hook=hook)
    for hook in (None, _refuse_repeated_keys)
)

_PACKED: Final = (b"\x1f\x8b", b"PK\x03", b"\x28\xb5\x2f")
"""How files begin that gzip, zip and zstd wrote."""


def read_text(path: Path) -> str:
    """The text of a file, line ends unchanged, without the byte order mark that some editors put at its start.

    Raises DataError with the offset and line of the first byte that is not UTF-8, or when the file can't be read.
    """
    return "".join(text_lines(path))


def text_lines(path: Path) -> Iterator[str]:
    r"""The same text line by line, each with the ``\n`` that ends it; no other character ends a line.

    Raises DataError as `read_text` does, once it comes to the place.
    """
    offset = 0
    try:
        with path.open("rb") as file:
            start = file.read(len(codecs.BOM_UTF8))
            if start.startswith(_PACKED):
                raise DataError(f"{path} is compressed; unpack it, for instance with: gunzip or unzip")
            file.seek(len(codecs.BOM_UTF8) if start == codecs.BOM_UTF8 else 0)
            offset = file.tell()
            for number, line in enumerate(file, start=1):
                try:
                    yield line.decode()
                except UnicodeDecodeError as error:
                    byte, offset = line[error.start], offset + error.start
                    wide = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                    raise DataError(
                        f"{path} is not UTF-8: byte 0x{byte:02x} at offset {offset} (line {number}, from 1);"
                        f" save it as UTF-8, for instance with: iconv -f {'utf-16' if wide else 'latin1'} -t utf-8"
                    ) from error
                offset += len(line)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error


BUFFER: Final = 1 << 18
"""Bytes of a column that are read at a time; else whole columns of a million rows are."""

PARQUET_CHUNK: Final = 2048
"""Rows that are Python values at a time."""


def parquet_rows(path: Path) -> Iterator[dict[str, Any] | UnusableRow]:
    """Every row by the columns' names.  Raises DataError for a damaged file or a column that holds broken text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(
                PARQUET_CHUNK, use_threads=False
            ):  # each thread would keep memory of its own
                names = batch.schema.names
                columns = [_cells(path, name, column) for name, column in zip(names, batch.columns, strict=True)]
                yield from (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        pa.default_memory_pool().release_unused()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}") from error


def _cells(path: Path, name: str, column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: column {name} holds bytes that are not UTF-8: {error}") from error


class RowPlace(NamedTuple):
    """A row of a file, counted from 0; the text of it is made when it is needed."""

    file: Path
    row: int

    def __str__(self) -> str:
        return f"{self.file}, row {self.row} (counted from 0)"


PIECES: Final = r"\*\*/|\*\*|\*|\?|\[[^\]]+\]"
"""What is more than itself in a pattern, as a regular expression."""


def fits(pattern: str, path: str) -> bool:
    """Whether ``path`` is what the ``pattern`` means.

    ``*`` and ``?`` stand for text without ``/``, ``**`` for any, ``**/`` for folders or none, ``[...]`` for one of
    these characters.  All ways to match are followed at once, in steps of the pattern: a regular expression would try
    them one after the other, which strangers can make last for years.
    """
    places = {0}
    for piece in re.split(f"({PIECES})", pattern):
        places = {end for place in places for end in _ends(piece, path, place)} if places else places
    return len(path) in places


def any_of(piece: str) -> str:
    """The regular expression of ``[...]``; nothing for another piece."""
    if len(piece) < 3 or piece[0] != "[":
        return ""
    inverted = "^" * (piece[1] == "!")
    return f"[{inverted}{re.escape(piece[1 + len(inverted) : -1]).replace(chr(92) + '-', '-')}]"


def _ends(piece: str, path: str, place: int) -> Iterator[int]:
    """Where a piece that begins at ``place`` may end."""
    if piece == "**":
        yield from range(place, len(path) + 1)
    elif piece == "**/":
        yield place
        yield from (at + 1 for at in range(place, len(path)) if path[at] == "/")
    elif piece == "*":
        slash = path.find("/", place)
        yield from range(place, (len(path) if slash < 0 else slash) + 1)
    elif piece == "?" or any_of(piece):
        if re.fullmatch(any_of(piece) or "[^/]", path[place : place + 1], re.DOTALL):
            yield place + 1
    elif path.startswith(piece, place):
        yield place + len(piece)


DEEPEST: Final = 100
"""Levels of lists and tables in each other; what reads them goes down a level at a time."""


def read_toml(text: str) -> dict[str, Any]:
    """The table that ``text`` declares.  Raises ValueError for what is no TOML, or is nested more than DEEPEST deep."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise _too_deep() from None
    layer: list[Any] = [table]
    for _ in range(DEEPEST):
        values = (value for each in layer for value in (each.values() if isinstance(each, dict) else each))
        layer = [value for value in values if isinstance(value, dict | list)]
        if not layer:
            return table
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"it is nested too deeply: lists and tables stand in each other at most {DEEPEST} deep")
