"""CSV, JSONL, Parquet, text as rows."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import tomllib
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from choicewise.errors import DataError, UnusableRow
from choicewise.util.files import TABLE, open_file
from choicewise.util.jsonio import DEEPEST, TOO_DEEP, is_deep
from choicewise.util.text import quoted

_INTEGER: Final = re.compile("0|-?[1-9][0-9]*")
Value = TypeVar("Value")
LONGEST: Final = 200_000  # characters of a Python literal: a hundred times RACE's
Row = dict[str, Any]  # a row by the names of its columns
_PACKED: Final = (
    b"\x1f\x8b",
    b"PK\x03",
    b"\x28\xb5\x2f",
)  # how files begin that gzip, zip and zstd wrote
_BUFFER: Final = (
    1 << 18
)  # bytes of a column that are read at a time; else whole columns of a million rows are
_PARQUET_CHUNK: Final = 2048  # rows that are Python values at a time
LONGEST_LINE: Final = (
    16_000_000  # bytes of a line; a row of the longest published contexts has 5,000,000
)
_DATA_AT_ONCE: Final = 250_000_000  # bytes that a Parquet file of some megabytes may take in memory
_QUOTED: Final = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""
_NEXT: Final = re.compile(rf"\s*({_QUOTED})\s*(,|\Z)")
_CSV_CHUNK: Final = 1000  # rows that are read at a time
_SHEETS: Final = (".csv", ".tsv")  # how files end that spreadsheets show
_DELIMITERS: Final = ",;\t"  # of the cells of a sheet; the first where several part a header alike
_SEPARATOR_LINE: Final = re.compile(r"sep=[,;\t]\r?\n")  # what Excel writes above the header
_HEADER_LINES: Final = 50  # lines that a header may go over


class Number(str):
    """A JSON number as it is spelled (``1e5`` stays ``1e5``), and no text of the same spelling."""

    __slots__ = ()


def text(cell: object, column: str) -> str:
    """The cell as text, unchanged; an integer has only one.

    Raises UnusableRow for null, true/false, anything nested, and other numbers: 1.50 or 1e5 become another text in the
    next tool, and in a binary file their spelling is lost.
    """
    if isinstance(cell, Number):
        if not _INTEGER.fullmatch(cell):
            raise UnusableRow(
                f"column {column} holds the number {cell}, which other tools spell otherwise; quote it"
            )
        return str(cell)
    if isinstance(cell, str | int) and not isinstance(cell, bool):
        return str(cell)
    if cell is None:
        raise UnusableRow(f"column {column} is null where a text is needed")
    if isinstance(cell, float):
        raise UnusableRow(
            f"column {column} holds the binary number {cell!r}, whose spelling is lost; store it as text"
        )
    kinds = {bool: "true or false", list: "a list", dict: "a nested object", bytes: "bytes"}
    kind = kinds.get(type(cell), f"a {type(cell).__name__}")
    raise UnusableRow(f"column {column} holds {kind} where a text is needed")


def is_number(cell: object) -> bool:
    """Whether the source holds a number here, rather than a text that looks like one."""
    return isinstance(cell, Number | int | float) and not isinstance(cell, bool)


def spell(cell: object, column: str) -> str:
    """Any other cell as text: texts as they are, everything else as JSON, numbers in their own spelling.

    Raises UnusableRow for bytes, which are no text.
    """
    return str(cell) if isinstance(cell, str) else _json(cell, column)


def value_at(row: Mapping[str, Any], path: str) -> object:
    """The row's cell under a column's name, or under a path into nested columns (``question.stem``).

    Raises UnusableRow when this row has no such column.
    """
    if path in row:
        return row[path]
    value: object = row
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise UnusableRow(f"column {path} is missing")
        value = value[part]
    return value


def repeated(values: Sequence[Value]) -> Value | None:
    """The first value that is there more than once; None when all differ."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def list_in(text: str, column: str) -> object:
    """What ``text`` spells in JSON, or the texts of a flat list in the spelling of Python (``['a', "b's"]``), as in
    the choices of MuSR on the Hub.

    Raises UnusableRow where it spells neither.
    """
    try:
        return _JSON_TEXT.decode(text)
    except (ValueError, RecursionError, UnusableRow) as error:
        if (texts := _python_texts(text.strip())) is not None:
            return texts
        problem = f"column {column} holds a text where a list of choices is needed"
        raise UnusableRow(f"{problem}; {_list_remedy(text)}") from error


def _list_remedy(text: str) -> str:
    """Return what to do about a ``text`` that is no list."""
    if text.lstrip().startswith(("[", "{")):
        return 'pandas or numpy printed it: save the table with df.to_json("quiz.jsonl", orient="records", lines=True)'
    return (
        "write it as a JSON list, give each choice its own column,"
        ' or name what parts the choices in a mapping, as choices_split = "|"'
    )


def read_list(cell: object, column: str) -> list[Any]:
    """The list of ``column``: as it is, or read from a literal, which runs no code.

    Raises UnusableRow for anything else, and for a text of more than ``LONGEST`` characters.
    """
    value = cell
    if isinstance(cell, str):
        if len(cell) > LONGEST:
            raise UnusableRow(
                f"column {column} holds {len(cell)} characters; a list in it has {LONGEST} at most"
            )
        try:
            value = literal_eval(cell)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise UnusableRow(
                f"column {column} holds a text that is no list: {cell[:40]!r}"
            ) from error
    if not isinstance(value, list):
        raise UnusableRow(f"column {column} holds no list")
    return value


_FIRST_LIST: Final = re.compile(r'"([^"\\]+)"\s*:\s*\[\s*\{')
_PEEKED: Final = 1 << 16  # characters in which the first list of a JSON file is looked for


def json_remedy(path: Path) -> str:
    """Return the command that makes JSON Lines of a file with other JSON; empty if it holds no list of objects."""
    with open_file(path) as file:
        beginning = file.read(_PEEKED).decode(errors="replace").lstrip("\ufeff \t\r\n")
    content = f"pathlib.Path({str(path)!r}).read_text(encoding='utf-8')"
    rows = f"json.loads({content})"
    inside = _FIRST_LIST.search(beginning)
    if isinstance(_row(beginning.partition("\n")[0]), dict) and "\n" in beginning:
        return f"it holds JSON Lines: rename it to {path.stem}.jsonl"
    elif beginning.startswith("{") and re.search(r"\}\r?\n\{", beginning):
        # A text in JSON holds no line break, so that only the ends of objects match.
        rows = f"json.loads('[' + re.sub(r'}}\\s*\\n{{', '}},{{', {content}) + ']')"
    elif inside is not None and not beginning.startswith("["):
        rows += f"[{inside[1]!r}]"
    elif not beginning.startswith("["):
        return ""
    target = f"{path.stem}.jsonl" if path.suffix != ".jsonl" else f"{path.stem}-lines.jsonl"
    program = f"import json, pathlib, re; [print(json.dumps(row)) for row in {rows}]"
    return f'write a line for each question: python -c "{program}" > {quoted(target)}'


def cells(path: Path, delimiter: str = ",") -> Iterator[list[str]]:
    """Every row that is not a blank line, header or not, as texts: no text becomes a number or a missing value.

    ``delimiter`` stands between the cells.  Raises DataError when the file is not UTF-8, or a quote is never closed or
    closed inside a cell: the cells after it can't be separated, so no row can be skipped.
    """
    return filter(None, _sheet(path, delimiter))


def _sheet(path: Path, delimiter: str) -> Iterator[list[str]]:
    """The rows of :func:`cells` and the blank lines between them, which have no cells."""
    reader = csv.reader(_lines(path), strict=True, delimiter=delimiter)
    rows: list[list[str]] | None = None
    while rows is None or rows:
        limit = csv.field_size_limit()  # the csv module has one limit for the whole process
        try:
            csv.field_size_limit(max(limit, LONGEST_LINE))
            rows = list(islice(reader, _CSV_CHUNK))
        except csv.Error as error:
            where = f"{path} is no CSV, at line {reader.line_num} (from 1)"
            raise DataError(f"{where}: {error}; check its quotes") from error
        finally:
            csv.field_size_limit(limit)
        yield from rows


def csv_rows(path: Path) -> Iterator[Row | UnusableRow]:
    """Every row after the header by the header's names, or why its cells don't fit the header.

    The cells are parted by what parts the header: commas, semicolons or tabs.  Raises DataError as `cells` does, and
    when two columns of the header have the same name.
    """
    rows = cells(path, _delimiter(path))
    full_header = next(rows, [])
    header = _named_columns(path, full_header)
    if (name := repeated(header)) is not None:
        raise DataError(f"{path}: the header names two columns {name!r}; rename one of them")
    for row in _without_empty_end(rows):
        if len(row) == len(full_header) and not any(row[len(header) :]):
            yield dict(zip(header, row, strict=False))
        else:
            yield UnusableRow(f"{len(row)} cells under a header of {len(header)}")


def _named_columns(path: Path, header: list[str]) -> list[str]:
    """Return the ``header`` without the several empty names at its end that spreadsheets leave.

    Raises DataError for a title above the header.
    """
    count = len(header)
    while count and not header[count - 1].strip():
        count -= 1
    if len(header) - count < 2:
        return header
    if count == 1:
        raise DataError(
            f"{path}: row 1 names one column, {header[0]!r}, and leaves {len(header) - 1} without a name;"
            " delete the rows above the header"
        )
    return header[:count]


def _without_empty_end(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield ``rows`` without those at the end that hold no text, which spreadsheets leave."""
    empty: list[list[str]] = []
    for row in rows:
        if any(row):
            yield from empty
            yield row
            empty = []
        else:
            empty.append(row)


def read_text(path: Path) -> str:
    """The text of a file, line ends unchanged, without the byte order mark that some editors put at its start.

    Raises DataError with the offset and line of the first byte that is not UTF-8, or when the file can't be read.
    """
    return "".join(text_lines(path))


def text_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[str]:
    r"""The same text line by line, each with the ``\n`` that ends it; no other character ends a line.

    Raises DataError as `read_text` does, once it comes to the place, and for a line of more than ``longest`` bytes.
    """
    offset = 0
    try:
        with open_file(path, TABLE) as file:
            start = file.read(len(codecs.BOM_UTF8))
            if start.startswith(_PACKED):
                raise DataError(
                    f"{path} is compressed; unpack it, for instance with: gunzip or unzip"
                )
            file.seek(len(codecs.BOM_UTF8) if start == codecs.BOM_UTF8 else 0)
            offset = file.tell()
            lines = iter(partial(file.readline, longest + 1), b"")
            for number, line in enumerate(lines, start=1):
                if len(line) > longest:
                    raise DataError(
                        f"{path}, line {number} (from 1), has more than {longest:,} bytes; is it a table?"
                    )
                try:
                    yield line.decode()
                except UnicodeDecodeError as error:
                    byte, offset = line[error.start], offset + error.start
                    encoding = "cp1252"
                    doubt = " (put its encoding in place of cp1252, if it is not Western European)"
                    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                        encoding = "utf-16"
                        doubt = ""
                    target = path.with_name(f"utf8-{path.name}")
                    raise DataError(
                        f"{path} is not UTF-8: byte 0x{byte:02x} at offset {offset} (line {number}, from 1);"
                        f' save it from Excel as "CSV UTF-8", or convert it{doubt}:'
                        f" iconv -f {encoding} -t utf-8 {quoted(path)} > {quoted(target)}"
                    ) from error
                offset += len(line)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error


def parquet_rows(path: Path) -> Iterator[Row | UnusableRow]:
    """Every row by the columns' names.  Raises DataError for a damaged file or a column that holds broken text."""
    import pyarrow as pa

    from choicewise.util.tables import open_parquet, unpacked

    try:
        with open_file(path, TABLE) as content:
            file = open_parquet(content, buffer_size=_BUFFER)
            unpacked(content, at_once=_DATA_AT_ONCE)
            # Each thread would keep memory of its own.
            for batch in file.iter_batches(_PARQUET_CHUNK, use_threads=False):
                names = batch.schema.names
                columns = []
                for name, column in zip(names, batch.columns, strict=True):
                    try:
                        columns.append(column.to_pylist())
                    except UnicodeDecodeError as error:
                        raise DataError(
                            f"{path}: column {name} holds bytes that are not UTF-8: {error}"
                        ) from error
                yield from (
                    dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
                )
        pa.default_memory_pool().release_unused()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}") from error


class RowPlace(NamedTuple):
    """A row of a file, counted from 0 without ``header`` rows and blank lines; the text of it is made when needed."""

    file: Path
    row: int
    header: int = 1

    @property
    def number(self) -> int:
        """The row as programs number it that show the file: rows of a sheet and lines of JSONL from 1."""
        above = self.header if self.file.suffix in _SHEETS else 0
        filled: Iterator[bool]
        with suppress(DataError, OSError):  # the file is gone, or damaged further up
            if self.file.suffix in _SHEETS:
                filled = map(bool, _sheet(self.file, _delimiter(self.file) if self.header else ","))
            elif self.file.suffix == ".jsonl":
                filled = (not _is_blank(line) for line in text_lines(self.file))
            else:
                return self.row
            numbers = (number for number, each in enumerate(filled, start=1) if each)
            return next(islice(numbers, self.row + above, None), self.row + above + 1)
        return self.row + above + 1

    def __str__(self) -> str:
        if self.file.suffix == ".jsonl":
            return f"{self.file}, line {self.number} (counted from 1)"
        sheet = self.file.suffix in _SHEETS
        how = (
            ("the header is row 1" if self.header else "counted from 1")
            if sheet
            else "counted from 0"
        )
        return f"{self.file}, row {self.number} ({how})"


def read_toml(text: str) -> dict[str, Any]:
    """The table that ``text`` declares.  Raises ValueError for what is no TOML, or is nested more than DEEPEST deep."""
    if _DEEP_KEY.search(text):  # the time and memory for a key grow with the square of its parts
        raise ValueError(TOO_DEEP)
    try:
        table = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if is_deep(table):
        raise ValueError(TOO_DEEP)
    return table


_KEY_PART: Final = rf"(?:[\w-]+|{_QUOTED})"
_DEEP_KEY: Final = re.compile(
    rf"^[ \t\[]*(?:{_KEY_PART}[ \t]*\.[ \t]*){{{DEEPEST},}}{_KEY_PART}[ \t]*[=\]]", re.MULTILINE
)
"""A key of TOML, before its value or as the name of a table, with more parts than tables may stand in one another."""


def _json(cell: object, column: str) -> str:
    if isinstance(cell, bytes):
        raise UnusableRow(
            f"column {column} holds bytes, which are no text; write the file without that column"
        )
    if isinstance(cell, Number):
        return str(cell)
    if isinstance(cell, list | tuple):
        return "[" + ", ".join(_json(part, column) for part in cell) + "]"
    if isinstance(cell, dict):
        return (
            "{"
            + ", ".join(
                f"{_json(key, column)}: {_json(part, column)}" for key, part in cell.items()
            )
            + "}"
        )
    return json.dumps(cell, ensure_ascii=False, default=str)


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


def _lines(path: Path) -> Iterator[str]:
    r"""The lines of a sheet, which may also end in ``\r``, as files of old Macintoshes do.

    Excel's first line ``sep=;`` is left out: it is no row in Excel either.
    """
    for number, line in enumerate(text_lines(path)):
        if number == 0 and _SEPARATOR_LINE.fullmatch(line):
            continue
        if "\r" in line:
            yield from io.StringIO(line, newline="")
        else:
            yield line


def _delimiter(path: Path) -> str:
    """What parts the header of a sheet into the most cells."""
    head = [*islice(_lines(path), _HEADER_LINES)]

    def width(delimiter: str) -> int:
        with suppress(csv.Error):
            return len(next(filter(None, csv.reader(head, strict=True, delimiter=delimiter)), []))
        return 0

    return max(_DELIMITERS, key=width)


def _is_blank(line: str) -> bool:
    return not line.strip(" \t\r\n")


def _refuse_constant(constant: str) -> object:
    raise UnusableRow(f"the line holds {constant}, which is no JSON")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise UnusableRow(f"key {repeated([key for key, _ in pairs])!r} is there twice")
    return row


_JSON_TEXT, _ROW = (
    json.JSONDecoder(
        parse_int=Number,
        parse_float=Number,
        parse_constant=_refuse_constant,
        object_pairs_hook=hook,
    )
    for hook in (None, _refuse_repeated_keys)
)


def _row(line: str) -> dict[str, Any] | UnusableRow:
    try:
        row = _ROW.decode(line)
    except UnusableRow as reason:
        return reason
    except json.JSONDecodeError as error:
        return UnusableRow(
            f"the line is no JSON: {error.msg.removesuffix(' at')} at character {error.pos}"
        )
    except RecursionError:
        return UnusableRow("the line is nested too deeply")
    # Most rows are flat, and a count is faster than a look at each value.
    if line.count("[") + line.count("{") > DEEPEST and is_deep(row):
        return UnusableRow("the line is nested too deeply")
    return row if isinstance(row, dict) else UnusableRow("the line holds no JSON object")


ROW_READERS: Final[Mapping[str, Callable[[Path], Iterator[Row | UnusableRow]]]] = {
    # JSON strings may hold U+2028 and other line ends unescaped
    ".jsonl": lambda path: (_row(line) for line in text_lines(path) if not _is_blank(line)),
    **dict.fromkeys(_SHEETS, csv_rows),
    ".parquet": parquet_rows,
}
"""File suffix → what reads the file's rows: each by the columns' names, or why it can't be read."""
