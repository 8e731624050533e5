"""Writes Parquet files, and says how much memory one takes before it is read.

A few kilobytes can stand for terabytes: a dictionary of one long text and a billion references to it, pages that
compress well, lists of a billion nulls.  What the end of the file says of sizes is not what a reader goes by, so the
heads of all pages are read instead, which are, and which say how many values a page has and how long it is unpacked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from choicewise.util.files import Refused

_FOOTER = 10_000_000  # bytes of the end of a file that says where everything lies
IN_ALL = 100_000_000_000  # bytes that it may take in all, where it is read piece by piece
_RATIO = 20
_PAGES = 1_000_000  # pages of a file
_TEXTS_AT_ONCE = 50_000_000  # bytes of texts that are counted at once
_BOOLEAN, _INT32, _INT64, _INT96, _FLOAT, _DOUBLE, _TEXT, _FIXED = range(8)
_WIDTHS = {_BOOLEAN: 1, _INT32: 4, _INT64: 8, _INT96: 12, _FLOAT: 4, _DOUBLE: 8, _TEXT: 4}
_LEVELS = 4  # bytes of what says of a value whether it is there and which list it belongs to
_DATA, _INDEX, _DICTIONARY, _DATA_2 = range(4)
_HEADS = (
    1 << 12,
    1 << 17,
    1 << 24,
)  # bytes that are read to have the head of a page, until it is there


def write_parquet(
    out: Path | BinaryIO,
    tables: pa.Table | Iterable[pa.Table],
    schema: pa.Schema | None = None,
    *,
    repeated: Sequence[str] | bool = True,
    statistics: bool = True,
) -> None:
    """One Parquet file (zstd) of a table, or of several with the same ``schema``, a row group each at least.

    ``repeated``: the columns in which repetitions are looked for.  ``statistics``: whether it says the least and the
    greatest value of each column.
    """
    parts = [tables] if isinstance(tables, pa.Table) else tables
    schema = tables.schema if isinstance(tables, pa.Table) else schema
    options = {"compression": "zstd", "use_dictionary": repeated, "write_statistics": statistics}
    with pq.ParquetWriter(out, schema, **options) as writer:
        for table in parts:
            writer.write_table(table)


def open_parquet(file: BinaryIO, buffer_size: int = 0) -> pq.ParquetFile:
    """The Parquet file, of which ``buffer_size`` bytes of a column are read at a time (0: all of it).

    Raises Refused where its footer is too large, ArrowException or OSError for what is none.
    """
    content = _tail(file)[0]
    if len(content) > _FOOTER:
        raise Refused(f"its footer has more than {_FOOTER:,} bytes")
    try:
        return pq.ParquetFile(file, buffer_size=buffer_size, pre_buffer=False)
    except UnicodeDecodeError as error:
        raise Refused(f"its columns have no names ({error})") from error


AT_ONCE = 4_000_000_000
"""Bytes that a table may take in memory at once; more where it has a twentieth of that on the disk."""


def unpacked(
    file: BinaryIO,
    columns: Sequence[str] | None = None,
    whole: bool = True,
    at_once: int | None = None,
) -> int:
    """Bytes that the ``columns`` (None: all) of a Parquet ``file`` take in memory; at most.

    Raises Refused where that is too much, of all of it where it is read as a ``whole``, else of one row group, and
    where the file is damaged.  ``at_once``: what it may take, by default AT_ONCE.
    """
    content, size = _tail(file)
    limit, total, pages = max(AT_ONCE if at_once is None else at_once, _RATIO * size), 0, 0
    for number, chunks in enumerate(_row_groups(content)):
        sizes: list[tuple[_Chunk, _Size]] = []
        for chunk in chunks:
            if columns is None or chunk.path[0] in columns:
                size_of_chunk = _size(file, chunk)
                sizes.append((chunk, size_of_chunk))
                pages += size_of_chunk.pages
                if pages > _PAGES:
                    raise Refused(f"it has more than {_PAGES:,} pages")
        before = total if whole else 0
        taken = sum(each.sure + each.referred + each.fronted for _, each in sizes)
        if before + taken > limit or total + taken > IN_ALL:
            taken = sum(each.sure for _, each in sizes)
            for chunk, each in sizes:
                if before + taken > limit:
                    break  # it is too much without the texts, which take time to count
                if each.fronted:
                    taken += _fronted(file, number, chunk, each, limit - before - taken)
                elif each.referred:
                    taken += _referred(file, number, chunk, each.referred)
        total += taken
        if before + taken > limit or total > IN_ALL:
            most = limit if before + taken > limit else IN_ALL
            size = max(before + taken, total)
            raise Refused(f"it would take {size:,} bytes of memory, and at most {most:,} are used")
    return total


class _Chunk(NamedTuple):
    """A column of a row group: the number of it, its type, its path, and where its pages lie."""

    place: int
    kind: int
    width: int
    path: list[str]
    start: int
    length: int
    values: int


def _tail(file: BinaryIO) -> tuple[bytes, int]:
    """The footer, but for what is beyond the most that one may have, and the size of the file."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    length = min(int.from_bytes(file.read(8)[:4], "little"), _FOOTER + 1)
    file.seek(max(0, size - 8 - length))
    return file.read(length), size


def _row_groups(footer: bytes) -> Iterator[list[_Chunk]]:
    """The columns of every row group, read here: where one lacks what it must have, Arrow ends the process."""
    try:
        content, _ = _structure(footer, 0)
        lengths = [element.get(2, 0) for element in content[2].values() if not element.get(5)]
        for group in content[4].values():
            chunks = []
            for place, column in enumerate(group[1].values()):
                about, kind = column[3], column[3][1]
                start, dictionary = about[9], about.get(11, 0)
                start = dictionary if 0 < dictionary < start else start
                width = lengths[place] if kind == _FIXED else _WIDTHS[kind]
                path = [part.decode() for part in about[3].values()]
                chunks.append(_Chunk(place, kind, width, path, start, about[7], about[5]))
                if min(width, start, about[7], about[5]) < 0:
                    raise ValueError(chunks[-1])
            yield chunks
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise Refused("its footer is damaged") from error


_PLAIN, _PLAIN_DICTIONARY, _LENGTHS, _REFERENCES = 0, 2, 6, 8
"""Encodings of texts: as they are, as references (of both versions), lengths and then texts."""


class _Size(NamedTuple):
    """Bytes that a column of a row group takes in memory.

    ``sure``: without texts that are references (``referred``, at most) or begin as the text before (``fronted``, at
    most); ``pages``: how many it has; ``longest``: bytes of the longest page, which no text of it exceeds.
    """

    sure: int
    referred: int
    fronted: int
    pages: int
    longest: int


def _size(file: BinaryIO, chunk: _Chunk) -> _Size:
    texts, width = chunk.kind == _TEXT, _LEVELS + chunk.width
    sure = dictionary = references = fronted = pages = longest = 0
    for kind, size, values, encoding in _pages(file, chunk):
        pages += 1
        longest = max(longest, size)
        sure += size + values * width
        if kind == _DICTIONARY:
            dictionary = max(dictionary, size)
        elif texts and encoding in (_PLAIN_DICTIONARY, _REFERENCES):
            references += values
        elif texts and encoding not in (_PLAIN, _LENGTHS):
            fronted += values * size  # each may repeat the one before
    return _Size(sure, references * dictionary, fronted, pages, longest)


def _fronted(file: BinaryIO, group: int, chunk: _Chunk, size: _Size, limit: int) -> int:
    """The bytes of texts that begin as the one before, counted up to ``limit`` or a little more."""
    if len(chunk.path) > 1:
        return size.fronted  # a row of a list may have any number of texts
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
    """The same bytes of texts that are references, counted, where the texts can be read once each; else at most."""
    path = ".".join(chunk.path)
    table = pq.ParquetFile(file, read_dictionary=[path])
    leaves = [leaf for field in table.schema_arrow for leaf in _leaves(field.type)]
    if len(leaves) <= chunk.place or not pa.types.is_dictionary(leaves[chunk.place]):
        return most
    column = table.read_row_group(group, columns=[path], use_threads=False)
    return sum(_text_bytes(part) for each in column.columns for part in each.chunks)


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    if not kind.num_fields or pa.types.is_dictionary(kind):
        yield kind
    for number in range(0 if pa.types.is_dictionary(kind) else kind.num_fields):
        yield from _leaves(kind.field(number).type)


def _text_bytes(array: pa.Array) -> int:
    if isinstance(array, pa.DictionaryArray):
        return (
            pc.sum(pc.binary_length(array.dictionary).take(array.indices).cast(pa.int64())).as_py()
            or 0
        )
    parts = array.flatten() if array.type.num_fields else []
    return sum(map(_text_bytes, parts if isinstance(parts, list) else [parts]))


def _pages(file: BinaryIO, chunk: _Chunk) -> Iterator[tuple[int, int, int, int]]:
    """The pages that a reader reads: until all values are there, or the column ends.

    Of each, as its head says it, the kind, the bytes it has unpacked, how many values, and how they are encoded.
    """
    place, seen = chunk.start, 0
    end = place + chunk.length + 100  # readers add as much for what an early writer left out
    while seen < chunk.values and place < end:
        head, length = _head(file, place)
        try:
            kind, size, packed = head[1], head[2], head[3]
            values, encoding = 0, -1
            if kind == _DATA:
                values, encoding = head[5][1], head[5][2]
            elif kind == _DATA_2:
                values, encoding = head[8][1], head[8][4]
            if min(size, packed, values) < 0:
                raise _damaged(place)
        except (KeyError, TypeError) as error:
            raise _damaged(place) from error
        yield kind, size, values, encoding
        seen += values
        place += length + packed


def _head(file: BinaryIO, place: int) -> tuple[dict[int, Any], int]:
    for most in _HEADS:
        try:
            file.seek(place)
            content = file.read(most)
            return _structure(content, 0)
        except IndexError:
            continue
        except ValueError as error:
            raise _damaged(place) from error
    raise _damaged(place)


def _damaged(place: int) -> Refused:
    return Refused(f"what lies at byte {place:,} is no page")


# Thrift's compact protocol, in which heads of pages are written: as much as it takes to read or skip any value

_DEEPEST = 16  # structures and lists inside each other
_BYTES_OF = {
    1: 1,
    2: 1,
    3: 1,
    7: 8,
}  # of a value of that kind: true, false, a byte, a number with a point
_IS_STRUCTURE = -1  # in the place of the number of elements that a list has


def _structure(content: bytes, at: int) -> tuple[dict[int, Any], int]:
    """The fields by number, and where what follows begins.  IndexError where it goes on beyond ``content``.

    Structures and lists inside are read by the same loop, as footers have thousands: ``outer`` has those that go on
    when ``inside`` ends, each with the number of its last value, the kind of its values, and how many a list has.
    """
    root = dict[int, Any]()
    inside, number, kind, size = root, 0, 0, _IS_STRUCTURE
    outer = [(root, 0, 0, _IS_STRUCTURE)]
    while outer:
        if size == _IS_STRUCTURE:
            head = content[at]
            at += 1
            ended = head == 0
            kind = head & 15
            number += head >> 4
            if 0 < head < 16:
                number, at = _varint(content, at)
                number >>= 1  # its lowest bit is the sign
        else:
            ended = number == size
            number += 1
        if ended:
            inside, number, kind, size = outer.pop()
            continue
        value: Any
        inner, count = 0, _IS_STRUCTURE
        match kind:
            case 1 | 2 if size == _IS_STRUCTURE:
                value = kind == 1
            case 1 | 2 | 3 | 7:
                at += _BYTES_OF[kind]
                value = content[at - 1]
            case 4 | 5 | 6 | 8:  # whole numbers, and texts behind their lengths
                value, at = content[at], at + 1
                if value > 127:
                    value, at = _varint(content, at - 1)
                if kind == 8:
                    value, at = content[at : at + value], at + value
                else:
                    value = (value >> 1) ^ -(value & 1)
            case 9 | 10:  # lists and sets
                inner, count, at = content[at] & 15, content[at] >> 4, at + 1
                if count == 15:
                    count, at = _varint(content, at)
                value = {}
            case 12:
                value = {}
            case _:
                raise ValueError("no head of a page")
        inside[number] = value
        if isinstance(value, dict):
            outer.append((inside, number, kind, size))
            inside, number, kind, size = value, 0, inner, count
            if len(outer) > _DEEPEST:
                raise ValueError("too deep")
    return root, at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("too long a number")
