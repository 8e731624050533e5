"""Write Parquet files, and measure how much memory one takes before it is read.

A few kilobytes can stand for terabytes: a dictionary of one long text and a billion references to
it, pages that compress well, lists of a billion nulls.  Readers do not go by the sizes in the
footer, so the heads of all pages are read instead, which say how many values a page has and how
many bytes it has unpacked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from choicewise.util.files import Refused

# Bytes of the footer, which says where everything lies.
_FOOTER = 10_000_000

# Bytes that a file may take in all if it is read piece by piece.
IN_ALL = 100_000_000_000
_RATIO = 20

# Pages of a file.
_PAGES = 1_000_000

# Bytes of texts that are counted at once.
_TEXTS_AT_ONCE = 50_000_000

# Types of values, kinds of pages and encodings of texts, as Parquet numbers them.
_BOOLEAN, _INT32, _INT64, _INT96, _FLOAT, _DOUBLE, _TEXT, _FIXED = range(8)
_DATA, _INDEX, _DICTIONARY, _DATA_2 = range(4)
_WIDTHS = {_BOOLEAN: 1, _INT32: 4, _INT64: 8, _INT96: 12, _FLOAT: 4, _DOUBLE: 8, _TEXT: 4}
_PLAIN = 0
_PLAIN_DICTIONARY = 2
_LENGTHS = 6
_REFERENCES = 8

# Bytes of a value's levels: whether it is there, and which list it belongs to.
_LEVELS = 4

# Bytes that are read to find the head of a page, until it is there.
_HEADS = (1 << 12, 1 << 17, 1 << 24)


def write_parquet(
    out: Path | BinaryIO,
    tables: pa.Table | Iterable[pa.Table],
    schema: pa.Schema | None = None,
    *,
    repeated: Sequence[str] | bool = True,
    statistics: bool = True,
) -> None:
    """Write a Parquet file (zstd) of a table, or of several with the same ``schema``, at least one
    row group each.

    ``repeated``: the columns in which repetitions are looked for.  ``statistics``: whether it holds
    the least and the greatest value of each column.
    """
    if isinstance(tables, pa.Table):
        schema = tables.schema
        tables = [tables]
    options = {"compression": "zstd", "use_dictionary": repeated, "write_statistics": statistics}
    with pq.ParquetWriter(out, schema, **options) as writer:
        for table in tables:
            writer.write_table(table)


def open_parquet(file: BinaryIO, buffer_size: int = 0) -> pq.ParquetFile:
    """Open a Parquet file, of which ``buffer_size`` bytes of a column are read at a time (0: all of
    it).

    Raises Refused if its footer is too large, and ArrowException or OSError for other files.
    """
    footer, _ = _tail(file)
    if len(footer) > _FOOTER:
        raise Refused(f"its footer has more than {_FOOTER:,} bytes")
    try:
        return pq.ParquetFile(file, buffer_size=buffer_size, pre_buffer=False)
    except UnicodeDecodeError as error:
        raise Refused(f"its columns have no names ({error})") from error


AT_ONCE = 4_000_000_000
"""Bytes that a table may take in memory at once, or twenty times its bytes on the disk if that is
more.
"""


def unpacked(
    file: BinaryIO,
    columns: Sequence[str] | None = None,
    whole: bool = True,
    at_once: int | None = None,
    counted: bool = False,
) -> int:
    """Return the most bytes that the ``columns`` (None: all) of a Parquet ``file`` take in memory.

    Raises Refused if that is too much, of the file if it is read as a ``whole``, else of one row
    group, and if the file is damaged.  ``at_once``: the bytes that it may take, by default AT_ONCE.
    ``counted``: texts that repeat are counted in any case, not only if they may be too much.
    """
    footer, file_size = _tail(file)
    if at_once is None:
        at_once = AT_ONCE
    limit = max(at_once, _RATIO * file_size)
    total = 0
    pages = 0
    for number, chunks in enumerate(_row_groups(footer)):
        group = []
        for chunk in chunks:
            if columns is None or chunk.path[0] in columns:
                size = _size(file, chunk)
                group.append((chunk, size))
                pages += size.pages
                if pages > _PAGES:
                    raise Refused(f"it has more than {_PAGES:,} pages")
        before = total if whole else 0
        room = limit - before
        taken = sum(size.sure + size.referred + size.fronted for _, size in group)
        # Counting the texts takes time, so it is done only if the bound is too much.
        if counted or taken > room or total + taken > IN_ALL:
            taken = _counted(file, number, group, room)
        total += taken
        if taken > room:
            raise _too_large(max(before + taken, total), limit)
        if total > IN_ALL:
            raise _too_large(total, IN_ALL)
    return total


def _too_large(size: int, most: int) -> Refused:
    return Refused(f"it would take {size:,} bytes of memory; at most {most:,} are used")


def _counted(file: BinaryIO, number: int, group: Sequence[tuple[_Chunk, _Size]], room: int) -> int:
    """Return the bytes of a row group with its texts counted, until they exceed ``room``."""
    taken = sum(size.sure for _, size in group)
    for chunk, size in group:
        if taken > room:
            break
        if size.fronted:
            taken += _fronted(file, number, chunk, size, room - taken)
        elif size.referred:
            taken += _referred(file, number, chunk, size.referred)
    return taken


class _Chunk(NamedTuple):
    """A column of a row group: its number, its type, its path, and where its pages lie."""

    number: int
    kind: int
    width: int
    path: list[str]
    start: int
    length: int
    values: int


def _tail(file: BinaryIO) -> tuple[bytes, int]:
    """Return the footer, at most one byte more than it may have, and the size of the file."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    length = min(int.from_bytes(file.read(8)[:4], "little"), _FOOTER + 1)
    file.seek(max(0, size - 8 - length))
    return file.read(length), size


def _row_groups(footer: bytes) -> Iterator[list[_Chunk]]:
    """Yield the columns of every row group, read here because Arrow ends the process if one lacks a
    field.
    """
    try:
        content, _ = _structure(footer, 0)
        lengths = [element.get(2, 0) for element in content[2].values() if not element.get(5)]
        for group in content[4].values():
            chunks = []
            for number, column in enumerate(group[1].values()):
                metadata = column[3]
                kind = metadata[1]
                start = metadata[9]
                dictionary = metadata.get(11, 0)
                # The page of the dictionary, if there is one, comes before those of the data.
                if 0 < dictionary < start:
                    start = dictionary
                chunk = _Chunk(
                    number=number,
                    kind=kind,
                    width=lengths[number] if kind == _FIXED else _WIDTHS[kind],
                    path=[part.decode() for part in metadata[3].values()],
                    start=start,
                    length=metadata[7],
                    values=metadata[5],
                )
                if min(chunk.width, chunk.start, chunk.length, chunk.values) < 0:
                    raise ValueError(chunk)
                chunks.append(chunk)
            yield chunks
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise Refused("its footer is damaged") from error


class _Size(NamedTuple):
    """The bytes that a column of a row group takes in memory.

    ``sure``: without texts that are references (``referred``, at most) or begin as the text before
    (``fronted``, at most); ``pages``: the number of pages; ``longest``: bytes of the longest page,
    which no text of it exceeds.
    """

    sure: int
    referred: int
    fronted: int
    pages: int
    longest: int


def _size(file: BinaryIO, chunk: _Chunk) -> _Size:
    is_text = chunk.kind == _TEXT
    width = _LEVELS + chunk.width
    sure = dictionary = references = fronted = pages = longest = 0
    for kind, size, values, encoding in _pages(file, chunk):
        pages += 1
        longest = max(longest, size)
        sure += size + values * width
        if kind == _DICTIONARY:
            dictionary = max(dictionary, size)
        elif is_text and encoding in (_PLAIN_DICTIONARY, _REFERENCES):
            references += values
        elif is_text and encoding not in (_PLAIN, _LENGTHS):
            # Every text may repeat the one before.
            fronted += values * size
    return _Size(sure, references * dictionary, fronted, pages, longest)


def _fronted(file: BinaryIO, group: int, chunk: _Chunk, size: _Size, limit: int) -> int:
    """Count the bytes of texts that begin as the one before, up to ``limit`` or a little more."""
    # A row of a list may have any number of texts.
    if len(chunk.path) > 1:
        return size.fronted
    rows = max(1, _TEXTS_AT_ONCE // max(1, size.longest))
    taken = 0
    table = pq.ParquetFile(file)
    for batch in table.iter_batches(
        rows, row_groups=[group], columns=chunk.path, use_threads=False
    ):
        taken += batch.nbytes
        if taken > limit:
            break
    return taken


def _referred(file: BinaryIO, group: int, chunk: _Chunk, most: int) -> int:
    """Count the bytes of texts that are references.

    ``most`` if Arrow can't read the texts once each.
    """
    path = ".".join(chunk.path)
    table = pq.ParquetFile(file, read_dictionary=[path])
    leaves: list[pa.DataType] = []
    for field in table.schema_arrow:
        leaves += _leaves(field.type)
    if len(leaves) <= chunk.number or not pa.types.is_dictionary(leaves[chunk.number]):
        return most
    column = table.read_row_group(group, columns=[path], use_threads=False)
    return sum(_text_bytes(part) for array in column.columns for part in array.chunks)


def _leaves(kind: pa.DataType) -> list[pa.DataType]:
    if not kind.num_fields or pa.types.is_dictionary(kind):
        return [kind]
    leaves = []
    for number in range(kind.num_fields):
        leaves += _leaves(kind.field(number).type)
    return leaves


def _text_bytes(array: pa.Array) -> int:
    if isinstance(array, pa.DictionaryArray):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return pc.sum(lengths.cast(pa.int64())).as_py() or 0
    if not array.type.num_fields:
        return 0
    parts = array.flatten()
    if isinstance(parts, list):
        return sum(map(_text_bytes, parts))
    return _text_bytes(parts)


def _pages(file: BinaryIO, chunk: _Chunk) -> Iterator[tuple[int, int, int, int]]:
    """Yield the pages that a reader reads: until all values are there, or the column ends.

    For each, by its head, the kind, the bytes it has unpacked, the number of values, and their
    encoding.
    """
    position = chunk.start
    seen = 0
    # Readers add as much for bytes that an early writer left out.
    end = position + chunk.length + 100
    while seen < chunk.values and position < end:
        head, length = _head(file, position)
        try:
            kind = head[1]
            size = head[2]
            packed = head[3]
            values = 0
            encoding = -1
            if kind == _DATA:
                values = head[5][1]
                encoding = head[5][2]
            elif kind == _DATA_2:
                values = head[8][1]
                encoding = head[8][4]
            if min(size, packed, values) < 0:
                raise _damaged(position)
        except (KeyError, TypeError) as error:
            raise _damaged(position) from error
        yield kind, size, values, encoding
        seen += values
        position += length + packed


def _head(file: BinaryIO, position: int) -> tuple[dict[int, Any], int]:
    for length in _HEADS:
        file.seek(position)
        content = file.read(length)
        try:
            return _structure(content, 0)
        except IndexError:
            continue
        except ValueError as error:
            raise _damaged(position) from error
    raise _damaged(position)


def _damaged(position: int) -> Refused:
    return Refused(f"what lies at byte {position:,} is no page")


# Heads of pages are written in Thrift's compact protocol; what follows reads or skips any value of
# it.

# Structures and lists inside each other.
_DEEPEST = 16

# Bytes of a value of a kind: true, false, a byte, a number with a point.
_BYTES_OF = {1: 1, 2: 1, 3: 1, 7: 8}

# Kinds of values.
_FLAGS = (1, 2)
_NUMBERS = (4, 5, 6)
_BINARY = 8
_LISTS = (9, 10)
_STRUCTURE = 12

# In place of the number of elements that a list has.
_IS_STRUCTURE = -1


def _structure(content: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Return the fields by number, and the end of the structure.

    IndexError if it goes on beyond ``content``.

    Structures and lists inside are read by the same loop, as footers have thousands: ``outer`` has
    those that go on when ``inside`` ends, each with the number of its last value, the kind of its
    values, and the size of a list.
    """
    root = dict[int, Any]()
    whole = (root, 0, 0, _IS_STRUCTURE)
    inside, number, kind, size = whole
    outer = [whole]
    while outer:
        if size == _IS_STRUCTURE:
            head = content[at]
            at += 1
            ended = head == 0
            kind = head & 15
            number += head >> 4
            if 0 < head < 16:
                number, at = _varint(content, at)
                # The lowest bit is the sign.
                number >>= 1
        else:
            ended = number == size
            number += 1
        if ended:
            inside, number, kind, size = outer.pop()
            continue
        value: Any = {}
        inner_kind = 0
        inner_size = _IS_STRUCTURE
        # There are thousands of values, so only long numbers and rare kinds call a function.
        if kind in _LISTS:
            inner_kind = content[at] & 15
            inner_size = content[at] >> 4
            is_long = inner_size == 15
            inner_size, at = _varint(content, at + 1) if is_long else (inner_size, at + 1)
        elif kind in _NUMBERS:
            value, at = _varint(content, at) if content[at] > 127 else (content[at], at + 1)
            value = (value >> 1) ^ -(value & 1)
        elif kind == _BINARY:
            length, at = _varint(content, at) if content[at] > 127 else (content[at], at + 1)
            value = content[at : at + length]
            at += length
        elif kind in _FLAGS and size == _IS_STRUCTURE:
            # A flag of a structure has its value in its kind.
            value = kind == _FLAGS[0]
        elif kind != _STRUCTURE:
            value, at = _byte(content, at, kind)
        inside[number] = value
        if isinstance(value, dict):
            outer.append((inside, number, kind, size))
            inside = value
            number = 0
            kind = inner_kind
            size = inner_size
            if len(outer) > _DEEPEST:
                raise ValueError("too deep")
    return root, at


def _byte(content: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return the last byte of a value that only has to be skipped, and where it ends."""
    if kind not in _BYTES_OF:
        raise ValueError("no head of a page")
    at += _BYTES_OF[kind]
    return content[at - 1], at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("too long a number")
