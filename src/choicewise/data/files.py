"""Read files of CSV, JSON Lines, Parquet and text, row by row."""

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
from typing import Any, NamedTuple, TypeVar

from choicewise.errors import DataError, UnusableRow
from choicewise.util.files import TABLE, open_file
from choicewise.util.jsonio import DEEPEST, TOO_DEEP, JsonDict, JsonMapping, is_deep
from choicewise.util.text import quoted

Value = TypeVar("Value")
Row = JsonDict
"""A row by the names of its columns."""

LONGEST = 200_000  # characters of a Python literal: a hundred times RACE's
# Bytes of a line; a row of the longest published contexts has 5,000,000.
LONGEST_LINE = 16_000_000
_INTEGER = re.compile("0|-?[1-9][0-9]*")
# How files begin that gzip, zip and zstd wrote.
_PACKED = (b"\x1f\x8b", b"PK\x03", b"\x28\xb5\x2f")
# Bytes of a column that are read at a time; else whole columns of a million rows are.
_BUFFER = 1 << 18
_PARQUET_CHUNK = 2048  # rows that are Python values at a time
_DATA_AT_ONCE = 250_000_000  # bytes that a Parquet file of some megabytes may take in memory
_QUOTED = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""
_NEXT = re.compile(rf"\s*({_QUOTED})\s*(,|\Z)")
_CSV_CHUNK = 1000  # rows that are read at a time
_SHEETS = (".csv", ".tsv")  # how files end that spreadsheets show
# Signs between the cells of a sheet; the first if several part a header into as many.
_DELIMITERS = ",;\t"
_SEPARATOR_LINE = re.compile(r"sep=[,;\t]\r?\n")  # which Excel writes above the header
_HEADER_LINES = 50  # lines that a header may go over
_FIRST_LIST = re.compile(r'"([^"\\]+)"\s*:\s*\[\s*\{')
_PEEKED = 1 << 16  # characters in which the first list of a JSON file is looked for


class Number(str):
    """A JSON number as it is spelled (``1e5`` stays ``1e5``), and no text of the same spelling."""

    __slots__ = ()


def text(cell: object, column: str) -> str:
    """Return the cell as text, unchanged; an integer can be spelled in only one way.

    Raises UnusableRow for null, true/false, anything nested, and other numbers: 1.50 or 1e5 become
    another text in the next tool, and in a binary file their spelling is lost.
    """
    if isinstance(cell, Number):
        if not _INTEGER.fullmatch(cell):
            raise UnusableRow(
                f"column {column} has the number {cell}, which other tools may rewrite; put it in "
                "quotes"
            )
        return str(cell)
    if isinstance(cell, str | int) and not isinstance(cell, bool):
        return str(cell)
    if cell is None:
        raise UnusableRow(f"column {column} is null; it needs a text")
    if isinstance(cell, float):
        raise UnusableRow(
            f"column {column} has the binary number {cell!r}; store it as text to keep its spelling"
        )
    kinds = {bool: "true or false", list: "a list", dict: "a nested object", bytes: "bytes"}
    kind = kinds.get(type(cell), f"a {type(cell).__name__}")
    raise UnusableRow(f"column {column} has {kind}; it needs a text")


def is_number(cell: object) -> bool:
    """Check that a cell is a number in its source, and no text that looks like one."""
    return isinstance(cell, Number | int | float) and not isinstance(cell, bool)


def spell(cell: object, column: str) -> str:
    """Return any cell as text: texts as they are, else JSON, with numbers as they are spelled.

    Raises UnusableRow for bytes, which are no text.
    """
    if isinstance(cell, str):
        return str(cell)
    return _json(cell, column)


def value_at(row: JsonMapping, path: str) -> object:
    """Return the cell under a column's name, or a path into nested columns (``question.stem``).

    Raises UnusableRow if this row has no such column.
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
    """Return the first value that is there more than once; None if all differ."""
    for value, count in Counter(values).items():
        if count > 1:
            return value
    return None


def list_in(text: str, column: str) -> object:
    """Return what ``text`` spells in JSON, or the texts of a flat list as Python spells it.

    The choices of MuSR on the Hub are such a list (``['a', "b's"]``).  Raises UnusableRow if it is
    neither.
    """
    try:
        return _JSON_TEXT.decode(text)
    except (ValueError, RecursionError, UnusableRow) as error:
        texts = _python_texts(text.strip())
        if texts is not None:
            return texts
        remedy = (
            "write it as a JSON list, give each choice its own column,"
            ' or set choices_split = "|" in a mapping'
        )
        if text.lstrip().startswith(("[", "{")):
            remedy = (
                "pandas or numpy printed it; save the table with"
                ' df.to_json("quiz.jsonl", orient="records", lines=True)'
            )
        problem = f"column {column} is a text; it needs a list of choices"
        raise UnusableRow(f"{problem}; {remedy}") from error


def read_list(cell: object, column: str) -> list[Any]:
    """Return the list of ``column``: as it is, or read from a literal, which runs no code.

    Raises UnusableRow for anything else, and for a text of more than ``LONGEST`` characters.
    """
    value = cell
    if isinstance(cell, str):
        if len(cell) > LONGEST:
            raise UnusableRow(
                f"column {column} has {len(cell)} characters; a list can have {LONGEST}"
            )
        try:
            value = literal_eval(cell)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise UnusableRow(f"column {column} is not a list: {cell[:40]!r}") from error
    if not isinstance(value, list):
        raise UnusableRow(f"column {column} is not a list")
    return value


def json_remedy(path: Path) -> str:
    """Return the command that makes JSON Lines of a file with other JSON.

    It is empty if the file holds no list of objects.
    """
    with open_file(path) as file:
        beginning = file.read(_PEEKED).decode(errors="replace").lstrip("\ufeff \t\r\n")
    content = f"pathlib.Path({_in_single_quotes(str(path))}).read_text(encoding='utf-8-sig')"
    rows = f"json.loads({content})"
    inside = _FIRST_LIST.search(beginning)
    if isinstance(_row(beginning.partition("\n")[0]), dict) and "\n" in beginning:
        return f"it is JSON Lines; rename it to {path.stem}.jsonl"
    if beginning.startswith("{") and re.search(r"\}\r?\n\{", beginning):
        # A text in JSON holds no line break, so that only the ends of objects match.
        rows = f"json.loads('[' + re.sub(r'}}\\s*\\n{{', '}},{{', {content}) + ']')"
    elif inside is not None and not beginning.startswith("["):
        rows += f"[{inside[1]!r}]"
    elif not beginning.startswith("["):
        return ""
    target = f"{path.stem}.jsonl"
    if path.suffix == ".jsonl":
        target = f"{path.stem}-lines.jsonl"
    program = f"import json, pathlib, re; [print(json.dumps(row)) for row in {rows}]"
    return f'write one line per question: python -c "{program}" > {quoted(target)}'


def _in_single_quotes(text: str) -> str:
    """Return a text as Python's ``repr`` spells it, never in the quotes that the shell needs."""
    # It takes single quotes for a text with a double one, apostrophes or not.
    spelled = repr('"' + text)
    return "'" + spelled.removeprefix("'\"")


def cells(path: Path, delimiter: str = ",") -> Iterator[list[str]]:
    """Yield every row that is not a blank line, header or not, as texts.

    No text becomes a number or a missing value.  ``delimiter`` parts the cells.  Raises DataError
    if the file is not UTF-8, or a quote is never closed or closed inside a cell: the cells after it
    can't be separated, so that no row can be skipped.
    """
    return filter(None, _sheet(path, delimiter))


def _sheet(path: Path, delimiter: str) -> Iterator[list[str]]:
    """Yield the rows of :func:`cells` and the blank lines, which have no cells."""
    reader = csv.reader(_lines(path), strict=True, delimiter=delimiter)
    rows: list[list[str]] | None = None
    while rows is None or rows:
        # The csv module has one limit for the whole process.
        limit = csv.field_size_limit()
        try:
            csv.field_size_limit(max(limit, LONGEST_LINE))
            rows = list(islice(reader, _CSV_CHUNK))
        except csv.Error as error:
            where = f"{path} is not valid CSV at line {reader.line_num} (from 1)"
            raise DataError(f"{where}: {error}; check its quotes") from error
        finally:
            csv.field_size_limit(limit)
        yield from rows


def csv_rows(path: Path) -> Iterator[Row | UnusableRow]:
    """Yield every row after the header by the header's names, or why its cells don't fit it.

    The cells are parted as the header: by commas, semicolons or tabs.  Raises DataError as
    :func:`cells`, and if two columns of the header have the same name.
    """
    delimiter = _delimiter(path)
    rows = cells(path, delimiter)
    full_header = next(rows, [])
    header = _named_columns(path, full_header)
    name = repeated(header)
    if name is not None:
        raise DataError(f"{path}: the header has two columns {name!r}; rename one of them")
    for row in _without_empty_end(rows):
        fault = _space_before_quotes(row)
        if not fault and delimiter == "\t":
            fault = _glued_rows(row)
        if fault:
            yield UnusableRow(fault)
        elif len(row) == len(full_header) and not any(row[len(header) :]):
            yield dict(zip(header, row, strict=False))
        else:
            yield UnusableRow(f"{len(row)} cells under a header of {len(header)}")


def _space_before_quotes(row: list[str]) -> str:
    """Return what to do about a cell whose quotes were taken for a part of its text, or ""."""
    for cell in row:
        if cell.startswith(' "') and cell.endswith('"'):
            return f"a cell has a space before its quotes: {cell[:40]!r}; remove it"
    return ""


def _glued_rows(row: list[str]) -> str:
    """Return what to do about a cell with tabs and line breaks, which holds a row of its own, or "".

    A quote is the first character of a text, and the next one the last of its column below.
    """
    for cell in row:
        if "\n" in cell and cell.count("\t") >= len(row) - 1:
            return (
                f"a cell goes from one row into the next: {cell[:40]!r}; double the quotes of the "
                "texts, and put cells with quotes in quotes"
            )
    return ""


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
            f"{path}: row 1 has one name, {header[0]!r}, for {len(header)} columns; delete the "
            "rows above the header"
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


def text_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[str]:
    r"""Yield the text of a file line by line, with the ``\n`` that alone ends a line.

    A byte order mark at its start is left out.  Raises DataError with the offset and line of the
    first byte that is not UTF-8, once it comes to it, for a line of more than ``longest`` bytes,
    and if the file can't be read.
    """
    offset = 0
    try:
        with open_file(path, TABLE) as file:
            start = file.read(len(codecs.BOM_UTF8))
            if start.startswith(_PACKED):
                raise DataError(f"{path} is compressed; unpack it with gunzip or unzip")
            file.seek(len(codecs.BOM_UTF8) if start == codecs.BOM_UTF8 else 0)
            offset = file.tell()
            lines = iter(partial(file.readline, longest + 1), b"")
            for number, line in enumerate(lines, start=1):
                if len(line) > longest:
                    raise DataError(
                        f"{path}, line {number} (from 1), has over {longest:,} bytes; check that "
                        "it is a table"
                    )
                try:
                    yield line.decode()
                except UnicodeDecodeError as error:
                    at = f"offset {offset + error.start} (line {number}, from 1)"
                    byte = line[error.start]
                    raise DataError(
                        f"{path} is not UTF-8: byte 0x{byte:02x} at {at}; "
                        f"{_conversion(path, start)}"
                    ) from error
                offset += len(line)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error


def _conversion(path: Path, start: bytes) -> str:
    """Return how to make UTF-8 of a file that begins with the bytes ``start``."""
    encoding = "cp1252"
    doubt = " (replace cp1252 if it is not Western European)"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
        doubt = ""
    target = path.with_name(f"utf8-{path.name}")
    return (
        f'save it in Excel as "CSV UTF-8", or convert it{doubt}:'
        f" iconv -f {encoding} -t utf-8 {quoted(path)} > {quoted(target)}"
    )


def parquet_rows(path: Path) -> Iterator[Row | UnusableRow]:
    """Yield every row by the columns' names.

    Raises DataError for a damaged file or a column that holds broken text.
    """
    import pyarrow as pa

    from choicewise.util.tables import open_parquet, unpacked

    try:
        with open_file(path, TABLE) as content:
            file = open_parquet(content, buffer_size=_BUFFER)
            unpacked(content, at_once=_DATA_AT_ONCE)
            name = repeated(file.schema_arrow.names)
            if name is not None:
                raise DataError(f"{path} has two columns {name!r}; rename one of them")
            codes = _codes_out_of_order(file.schema_arrow.metadata or {})
            # Every thread would keep memory for itself.
            for batch in file.iter_batches(_PARQUET_CHUNK, use_threads=False):
                names = batch.schema.names
                columns = []
                for name, column in zip(names, batch.columns, strict=True):
                    try:
                        values = column.to_pylist()
                    except UnicodeDecodeError as error:
                        raise DataError(
                            f"{path}: column {name} has bytes that are not UTF-8: {error}"
                        ) from error
                    if name in codes:
                        values = [codes[name].get(value, value) for value in values]
                    columns.append(values)
                for row in zip(*columns, strict=True):
                    yield dict(zip(names, row, strict=True))
        pa.default_memory_pool().release_unused()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"can't read {path} as Parquet: {error}") from error


def _codes_out_of_order(metadata: Mapping[bytes, bytes]) -> dict[str, dict[int, str]]:
    """Return column → code → answer, for answers that ``datasets`` stored as codes.

    Only for codes that do not count the choices from the first: if none of the answers is A, the
    code 0 may be B, and 0 may be yes.
    """
    codes = {}
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        for column, feature in features.items():
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
                names = [str(name) for name in feature["names"]]
                if _are_answers_out_of_order(names):
                    codes[column] = dict(enumerate(names))
    return codes


def _are_answers_out_of_order(names: list[str]) -> bool:
    """Check that names of codes are letters or digits which skip one, or yes and no in this order."""
    text = "".join(names).lower()
    if text in ("yesno", "truefalse"):
        return True
    are_labels = len(text) == len(names) and re.fullmatch("[a-j]+|[0-9]+", text)
    counted = ("abcdefghij", "0123456789", "123456789")
    return bool(are_labels) and not any(series.startswith(text) for series in counted)


class RowPlace(NamedTuple):
    """A row of a file, counted from 0 without ``header`` rows and blank lines.

    Its text is made when needed.
    """

    file: Path
    row: int
    header: int = 1

    @property
    def number(self) -> int:
        """Return the row as programs number it: rows of a sheet and lines of JSONL from 1."""
        if self.file.suffix not in (*_SHEETS, ".jsonl"):
            return self.row
        left = self.row
        if self.file.suffix in _SHEETS:
            left += self.header
        last = left + 1
        with suppress(DataError, OSError):
            # The file is gone, or damaged further up.
            for number, is_filled in enumerate(self._filled(), start=1):
                if is_filled and left == 0:
                    return number
                left -= is_filled
        return last

    def _filled(self) -> Iterator[bool]:
        """Yield for each line or row of the file if it is not blank."""
        if self.file.suffix == ".jsonl":
            for line in text_lines(self.file):
                yield not _is_blank(line)
        else:
            delimiter = _delimiter(self.file) if self.header else ","
            yield from map(bool, _sheet(self.file, delimiter))

    def __str__(self) -> str:
        if self.file.suffix == ".jsonl":
            return f"{self.file}, line {self.number} (counted from 1)"
        how = "counted from 0"
        if self.file.suffix in _SHEETS:
            how = "the header is row 1" if self.header else "counted from 1"
        return f"{self.file}, row {self.number} ({how})"


def read_toml(text: str) -> JsonDict:
    """Return the table that ``text`` declares.

    Raises ValueError if it is no TOML, or is nested more than DEEPEST deep.
    """
    # The time and memory for a key grow with the square of its parts.
    if _DEEP_KEY.search(text):
        raise ValueError(TOO_DEEP)
    try:
        table = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if is_deep(table):
        raise ValueError(TOO_DEEP)
    return table


# A key of TOML, before its value or as the name of a table, with more parts than tables may be
# nested.
_KEY_PART = rf"(?:[\w-]+|{_QUOTED})"
_DEEP_KEY = re.compile(
    rf"^[ \t\[]*(?:{_KEY_PART}[ \t]*\.[ \t]*){{{DEEPEST},}}{_KEY_PART}[ \t]*[=\]]", re.MULTILINE
)


def _json(cell: object, column: str) -> str:
    if isinstance(cell, bytes):
        raise UnusableRow(f"column {column} has bytes, not text; write the file without it")
    if isinstance(cell, Number):
        return str(cell)
    if isinstance(cell, list | tuple):
        parts = [_json(part, column) for part in cell]
        return f"[{', '.join(parts)}]"
    if isinstance(cell, dict):
        parts = [f"{_json(key, column)}: {_json(part, column)}" for key, part in cell.items()]
        return f"{{{', '.join(parts)}}}"
    return json.dumps(cell, ensure_ascii=False, default=str)


def _python_texts(text: str) -> list[str] | None:
    """Return the texts of a list in the spelling of Python; None if it is none."""
    if not text.startswith("[") or not text.endswith("]"):
        return None
    inside = text[1:-1]
    position = 0
    texts = []
    while position < len(inside):
        literal = _NEXT.match(inside, position)
        if literal is None:
            return None
        try:
            texts.append(str(literal_eval(literal[1])))
        except (ValueError, SyntaxError):
            # An escape that is none.
            return None
        position = literal.end()
    return texts


def _lines(path: Path) -> Iterator[str]:
    r"""Yield the lines of a sheet, which may also end in ``\r``, as in files of old Macintoshes.

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
    """Return the sign that parts the header of a sheet into the most cells, as it does the next row."""
    head = list(islice(_lines(path), _HEADER_LINES))
    return max(_DELIMITERS, key=partial(_width, head))


def _width(head: list[str], delimiter: str) -> tuple[bool, int]:
    """Return if two rows of ``head`` have as many cells, more than one, and those of the first."""
    widths = []
    with suppress(csv.Error):
        for row in filter(None, csv.reader(head, strict=True, delimiter=delimiter)):
            widths.append(len(row))
            if len(widths) == 2:
                break
    first = widths[0] if widths else 0
    return first > 1 and widths[1:] == [first], first


def _is_blank(line: str) -> bool:
    return not line.strip(" \t\r\n")


def _refuse_constant(constant: str) -> object:
    raise UnusableRow(f"{constant} is not valid JSON")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> JsonDict:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise UnusableRow(f"key {repeated([key for key, _ in pairs])!r} appears twice")
    return row


_decoder = partial(
    json.JSONDecoder,
    parse_int=Number,
    parse_float=Number,
    parse_constant=_refuse_constant,
)
_JSON_TEXT = _decoder()
_ROW = _decoder(object_pairs_hook=_refuse_repeated_keys)


def _row(line: str) -> Row | UnusableRow:
    """Read a line of JSONL, or return why it can't be used."""
    try:
        row = _ROW.decode(line)
    except UnusableRow as reason:
        return reason
    except json.JSONDecodeError as error:
        return UnusableRow(
            f"not valid JSON: {error.msg.removesuffix(' at')} at character {error.pos}"
        )
    except RecursionError:
        return UnusableRow("JSON is nested too deeply")
    # Most rows are flat, and a count is faster than a look at each value.
    if line.count("[") + line.count("{") > DEEPEST and is_deep(row):
        return UnusableRow("JSON is nested too deeply")
    if not isinstance(row, dict):
        return UnusableRow("the line is not a JSON object")
    return row


def json_rows(path: Path) -> Iterator[Row | UnusableRow]:
    """Yield the object on every line, or why it can't be used.

    Strings in JSON may hold U+2028 and other line ends unescaped.
    """
    for line in text_lines(path):
        if not _is_blank(line):
            yield _row(line)


ROW_READERS: Mapping[str, Callable[[Path], Iterator[Row | UnusableRow]]] = {
    ".jsonl": json_rows,
    **dict.fromkeys(_SHEETS, csv_rows),
    ".parquet": parquet_rows,
}
"""Ending of a file → what yields its rows by the columns' names, or why one can't be read."""


def first_row(file: Path) -> Row:
    """Return the first row of a file that can be read; empty if none can."""
    for row in ROW_READERS[file.suffix](file):
        if isinstance(row, dict):
            return row
    return {}
