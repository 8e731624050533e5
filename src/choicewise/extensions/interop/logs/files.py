"""Find the reader of a log, and read the JSON, the lines, the cells and the archives of logs."""

from __future__ import annotations

import codecs
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, TextIO, TypeGuard
from zlib import crc32

from choicewise.data.files import text_lines
from choicewise.errors import DataError, UsageError, did_you_mean
from choicewise.logs import Log, Unreadable
from choicewise.ports import LogReader, all_of, find
from choicewise.records import MANIFEST
from choicewise.util.files import TABLE, open_file, read_bytes
from choicewise.util.jsonio import JsonDict, JsonMapping, read_json
from choicewise.util.text import command_line, short


def readers() -> list[LogReader]:
    """Return all readers in the order in which a file is tried."""
    # The sort is stable: readers of a tool keep their order, and those of any table come last.
    return sorted(all_of(LogReader), key=lambda reader: reader.generic)


def find_reader(name: str) -> LogReader:
    """Return the reader of the format ``name``.  Raises UsageError if there is none."""
    reader = find(LogReader, name)
    if reader is None:
        names = [reader.name for reader in readers()]
        raise UsageError(f"no format of logs is called {name!r}; {did_you_mean(name, names)}")
    return reader


def recognise(path: Path) -> LogReader:
    """Return the first reader that recognises ``path``.

    Raises DataError if none does, or if it can't be read.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if not path.is_dir():
        try:
            open_file(path).close()
        except OSError as error:
            raise DataError(f"{path} can't be read: {error.strerror}") from error
    for reader in readers():
        if reader.recognises(path):
            return reader
    if (path / MANIFEST).exists():
        raise DataError(f"{path} is a run already; `{command_line('report', path)}` shows it")
    formats = "; ".join(f"{reader.name}: {reader.summary}" for reader in readers())
    raise DataError(
        f"{path} is not a log of a known format ({formats}); name its format, or convert it to a "
        "table"
    )


def unreadable(tool: str, path: Path, error: DataError) -> Log:
    """Return the log of a file that can't be read, whose model is not known."""
    return Log(
        tool=tool,
        model="unknown",
        task=path.stem,
        items=Unreadable(error),
        settings={"file": path.name},
    )


NOTHING = frozenset({"", "none", "null", "na", "n/a", "nan"})
"""Texts that mark a cell without a value, in lower case."""

_FLAGS = {
    "true": True,
    "false": False,
    "1": True,
    "0": False,
    "1.0": True,
    "0.0": False,
    "yes": True,
    "no": False,
}


def number(cell: Any, where: str) -> float | None:
    """Return the number in a cell, None if it is null, NaN or an empty text.

    Raises DataError, naming ``where``, for anything else, for true and false, and for a number that
    is too large for a float.
    """
    if cell is None:
        return None
    if isinstance(cell, str) and cell.strip().lower() in NOTHING:
        return None
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        raise DataError(f"{where} is {short(repr(cell), 60)}, not a number")
    try:
        value = float(cell)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{where} is {short(repr(cell), 60)}, not a number") from error
    if math.isnan(value):
        return None
    return value


def flag(cell: Any, where: str) -> bool | None:
    """Return the true or false in a cell, None if it has no value.

    Raises DataError, naming ``where``, for anything else.
    """
    if cell is None or isinstance(cell, bool):
        return cell
    text = str(cell).strip().lower()
    if text in NOTHING:
        return None
    if text not in _FLAGS:
        raise DataError(f"{where} is {short(repr(cell), 60)}, not true or false")
    return _FLAGS[text]


# A longer number is an id, and no index.
_INDEX = re.compile("-?[0-9]{1,9}")


def index(cell: Any) -> int | None:
    """Return the whole number in a cell, None if it is none."""
    if isinstance(cell, bool):
        return None
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    if not isinstance(cell, str | int):
        return None
    text = str(cell).strip()
    if _INDEX.fullmatch(text) is None:
        return None
    return int(text)


def objects_among(values: Any) -> list[JsonDict]:
    """Return the JSON objects in a list that may be absent, without what else it holds."""
    return [value for value in values or () if isinstance(value, dict)]


def mapping(value: Any) -> JsonMapping:
    """Return a JSON object, empty if ``value`` is anything else."""
    if not isinstance(value, dict):
        return {}
    return value


def is_finite(value: Any) -> TypeGuard[float]:
    """Return whether a JSON value is a number, neither NaN nor infinite."""
    return isinstance(value, int | float) and math.isfinite(value)


LONGEST = 1 << 28
"""Characters of one part: of a sample with all its events, a few million are usual."""

_CHUNK = 1 << 20
_SPACE = " \t\r\n"
_AFTER = frozenset(",:]} \t\r\n")
_DECODER = json.JSONDecoder()


def parts(path: Path, streamed: str) -> Iterator[tuple[str, Any]]:
    """Yield the key and the value of every member of the object in ``path``.

    An array with the key ``streamed`` is yielded one element at a time, under that key, and so is a
    file that is an array.  Raises DataError with the position if the file ends too early or is no
    JSON.
    """
    try:
        with (
            open_file(path, TABLE) as content,
            TextIOWrapper(content, encoding="utf-8-sig", newline="") as file,
        ):
            yield from _Parts(str(path), file).read(streamed)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error


def whole(path: Path) -> Any:
    """Return the content of a JSON file.  Raises DataError if it is no JSON, or can't be read."""
    try:
        return json_value(read_bytes(path), str(path))
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error


def json_value(data: bytes, name: str) -> Any:
    """Return the value of JSON ``data``.  Raises DataError, with ``name``, if it is none."""
    try:
        return read_json(data.decode("utf-8-sig"))
    except ValueError as error:
        raise DataError(
            f"{name} is not valid JSON: {_reason(error)}; was it cut off? copy it again"
        ) from error


class _Parts:
    """Read a JSON file member by member; hold the text that has been read and not yet parsed."""

    def __init__(self, name: str, file: TextIO) -> None:
        self._name = name
        self._file = file
        self._text = ""
        # The next character in the text, and the characters before the text.
        self._position = 0
        self._before = 0

    def read(self, streamed: str) -> Iterator[tuple[str, Any]]:
        """Yield the members of the file, for which see :func:`parts`."""
        opening = self._next()
        if opening not in "[{":
            raise self._error("it begins with no object")
        return self._members(streamed, streamed, named=opening == "{")

    def _members(self, key: str, streamed: str, named: bool) -> Iterator[tuple[str, Any]]:
        """Yield the members of this object, or the elements of this array under ``key``."""
        self._position += 1
        end = "]"
        if named:
            end = "}"
        while self._next() != end:
            if named:
                key = self._key()
            if named and key == streamed and self._next() == "[":
                yield from self._members(key, streamed, named=False)
            else:
                yield key, self._value()
            following = self._next()
            if following == ",":
                self._position += 1
            elif following != end:
                raise self._error("a comma is expected")
        self._position += 1

    def _key(self) -> str:
        key = self._value()
        if not isinstance(key, str) or self._next() != ":":
            raise self._error("a key is expected")
        self._position += 1
        return key

    def _next(self) -> str:
        """Return the next character that is no space."""
        while True:
            while self._position < len(self._text) and self._text[self._position] in _SPACE:
                self._position += 1
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._read_further(_CHUNK):
                raise self._error("it ends too early")

    def _value(self) -> Any:
        self._next()
        chunk = _CHUNK
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except RecursionError as error:
                raise self._error(_reason(error)) from error
            except ValueError as error:
                # Perhaps the value goes on in the next chunk.
                if not self._read_further(chunk):
                    raise self._error(_reason(error)) from error
                chunk *= 2
                continue
            # A number at the end of the text may go on, too.
            if self._text[end : end + 1] in _AFTER or not self._read_further(chunk):
                self._position = end
                return value

    def _read_further(self, characters: int) -> bool:
        """Read on in the file, and return whether it had more characters."""
        if len(self._text) - self._position > LONGEST:
            raise self._error(f"one part of it has more than {LONGEST} characters")
        try:
            text = self._file.read(characters)
        except UnicodeDecodeError as error:
            raise self._error(f"it is not UTF-8: {error.reason}") from error
        self._before += self._position
        self._text = self._text[self._position :] + text
        self._position = 0
        return bool(text)

    def _error(self, reason: str) -> DataError:
        position = self._before + self._position
        return DataError(
            f"{self._name} is not valid JSON after character {position}: {reason}; was it cut off? "
            "copy it again"
        )


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg.removesuffix(" at")
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error)


@contextmanager
def laid_out_by(tool: str, path: Path) -> Iterator[None]:
    """Raise DataError in place of the error that a value of an unexpected kind leads to."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} does not have the layout of the releases of {tool} that can be imported "
            f"({type(error).__name__}: {error}); is it of another version, or edited?"
        ) from error


def objects(path: Path) -> Iterator[tuple[int, int, JsonDict]]:
    """Yield the line (from 1), the byte offset and the object of every line that is not empty.

    Raises DataError with file and line for a line that is cut off, no JSON, or no object, and for a
    file that is not UTF-8 or can't be read.
    """
    offset = 0
    with open_file(path) as file:
        if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
            offset = len(codecs.BOM_UTF8)
    for line_number, line in enumerate(text_lines(path, LONGEST), start=1):
        if line.strip():
            yield line_number, offset, parsed(line, f"{path}, line {line_number}")
        offset += len(line.encode())


def parsed(line: str, where: str) -> JsonDict:
    """Return the object in ``line``.  Raises DataError, naming ``where``, for anything else."""
    try:
        row = read_json(line)
    except ValueError as error:
        cut = ""
        if not line.endswith("\n"):
            cut = ", and the file ends there; was its writing cut off? Copy it again"
        raise DataError(f"{where}: not valid JSON ({error}){cut}") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object, but {type(row).__name__}")
    return row


def head(path: Path) -> str:
    """Return the beginning of a file without white space, "" if it can't be read."""
    try:
        with open_file(path) as file:
            return file.read(65_536).decode(errors="replace").lstrip("\ufeff \n\r\t")
    except OSError:
        return ""


def begins_a_list(path: Path, *keys: str) -> bool:
    """Return whether the file begins with a JSON list of objects that have these ``keys``."""
    start = head(path)
    return start.startswith("[") and all(f'"{key}"' in start for key in keys)


def first_object(path: Path) -> JsonMapping:
    """Return the object on the first line of ``path``, empty if there is none."""
    try:
        return mapping(read_json(head(path).partition("\n")[0]))
    except ValueError:
        return {}


@dataclass(frozen=True)
class Rows:
    """Iterate the keys and objects of a file, again and again.

    ``places``: the key of each object with its byte offset, or its index in ``listed``, sorted.
    ``listed``: the objects of a file that is one JSON list, None for JSON Lines.
    """

    path: Path
    places: Sequence[tuple[Any, int]]
    listed: list[JsonDict] | None

    def __iter__(self) -> Iterator[tuple[Any, JsonDict]]:
        if self.listed is not None:
            for key, index in self.places:
                yield key, self.listed[index]
            return
        # Lines are read from the disk again, because a file may not fit into memory.
        with open_file(self.path) as file:
            for key, offset in self.places:
                file.seek(offset)
                yield key, parsed(file.readline().decode(), f"{self.path}, byte {offset}")


def read_rows(path: Path, is_list: bool, key: Callable[[JsonDict, str], Any]) -> Rows:
    """Return the objects of ``path``, a JSON list or JSON Lines, sorted by their keys.

    ``key``: returns the key of an object, given it and its name in errors.  Raises DataError for an
    entry that is no object.
    """
    places = []
    if not is_list:
        for line_number, offset, row in objects(path):
            places.append((key(row, f"{path}, line {line_number}"), offset))
        return Rows(path, sorted(places), None)
    listed = whole(path)
    for number, row in enumerate(listed):
        if not isinstance(row, dict):
            raise DataError(f"{path}: entry {number} (counted from 0) is not a JSON object")
    for number, row in enumerate(listed):
        places.append((key(row, f"{path}, entry {number}"), number))
    return Rows(path, sorted(places), listed)


LARGEST = 1 << 28
"""Bytes of one member, unpacked."""

ZSTANDARD = 93
"""The number of Zstandard among the methods of zip, which Python's module reads from 3.14."""

_LOCAL_HEADER = 30


class Packed:
    """Read the members of an open archive by their ``names``."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, file: IO[bytes]) -> None:
        self._path = path
        self._archive = archive
        self._file = file
        self.names = tuple(dict.fromkeys(archive.namelist()))
        # A small archive may unpack to terabytes if its members share their bytes.
        size = sum(member.compress_size for member in archive.infolist())
        if size > path.stat().st_size:
            raise DataError(f"{path} has overlapping members, as no log does; don't open it")

    def read(self, name: str) -> bytes:
        """Return the bytes of a member.  Raises DataError if it is damaged, encrypted or large."""
        member = self._archive.getinfo(name)
        if member.flag_bits & 1:
            raise DataError(
                f"{self._path}: {name} is encrypted; unpack the log and pack it again without a "
                "password"
            )
        data = bytearray()
        try:
            with self._open(member) as stream:
                # The size that the archive declares may be false.
                while len(data) <= LARGEST:
                    chunk = stream.read(_CHUNK)
                    if not chunk:
                        break
                    data += chunk
        except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise DataError(
                f"{self._path}: {name} can't be unpacked: {error}; copy the log again"
            ) from error
        if len(data) > LARGEST:
            raise DataError(
                f"{self._path}: {name} unpacks to more than {LARGEST} bytes, which no log does; "
                "don't open it"
            )
        if crc32(data) != member.CRC:
            raise DataError(
                f"{self._path}: {name} is damaged (its checksum differs); copy the log again"
            )
        return bytes(data)

    def _open(self, member: zipfile.ZipInfo) -> Any:
        """Open a stream of the unpacked bytes of a member."""
        if member.compress_type != ZSTANDARD:
            return self._archive.open(member)
        import pyarrow as pa

        self._file.seek(member.header_offset)
        header = self._file.read(_LOCAL_HEADER)
        # The local header ends with a name and an extra field, whose lengths it holds.
        name_length = int.from_bytes(header[26:28], "little")
        extra_length = int.from_bytes(header[28:30], "little")
        self._file.seek(member.header_offset + _LOCAL_HEADER + name_length + extra_length)
        packed = pa.BufferReader(self._file.read(member.compress_size))
        return pa.CompressedInputStream(packed, "zstd")


@contextmanager
def unpacked(path: Path) -> Iterator[Packed]:
    """Open the archive ``path``.  Raises DataError if it is no zip archive, or suspicious."""
    try:
        with open_file(path, TABLE) as file, zipfile.ZipFile(path) as archive:
            yield Packed(path, archive, file)
    except zipfile.BadZipFile as error:
        raise DataError(
            f"{path} is not a zip archive, or was cut off: {error}; copy the log again"
        ) from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}") from error
