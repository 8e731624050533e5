"""Files of logs: which reader recognises them, and their JSON, lines and archives."""

from __future__ import annotations

import codecs
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Final, TextIO
from zlib import crc32

from choicewise.data.files import text_lines
from choicewise.errors import DataError, UsageError, did_you_mean
from choicewise.logs import Log, Unreadable
from choicewise.ports import LogReader, all_of, find
from choicewise.util.files import TABLE, open_file, read_bytes
from choicewise.util.jsonio import read_json


def readers() -> list[LogReader]:
    """Return all readers in the order in which a file is tried."""
    return sorted(
        all_of(LogReader), key=lambda reader: reader.generic
    )  # stable: the others keep their order


def find_reader(name: str) -> LogReader:
    """Return the reader of the format of that ``name``; UsageError if there is none."""
    reader = find(LogReader, name)
    if reader is None:
        names = [reader.name for reader in readers()]
        raise UsageError(f"no format of logs is called {name!r}; {did_you_mean(name, names)}")
    return reader


def recognise(path: Path) -> LogReader:
    """Return the first reader that recognises ``path``; DataError if none does, or if it can't be read."""
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
    formats = "; ".join(f"{reader.name}: {reader.summary}" for reader in readers())
    raise DataError(
        f"{path} is no log that is known ({formats}); name its format, or write the columns of a table"
    )


def unreadable(tool: str, path: Path, error: DataError) -> Log:
    """Return a log of a file that can't be read, so that its model is not known."""
    return Log(
        tool=tool,
        model="unknown",
        task=path.stem,
        items=Unreadable(error),
        settings={"file": path.name},
    )


NOTHING = frozenset({"", "none", "null", "na", "n/a", "nan"})
"""Texts that stand for no number, in lower case."""

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


def objects_among(values: Any) -> list[dict[str, Any]]:
    """Return the JSON objects in a list that may be absent, without what else it holds."""
    return [value for value in values or () if isinstance(value, dict)]


def _shown(cell: Any) -> str:
    text = repr(cell)
    return text if len(text) <= 60 else f"{text[:57]}..."


LONGEST: Final = 1 << 28
"""Characters of one part: of a sample with all its events, a few million are usual."""

_CHUNK: Final = 1 << 20
_SPACE: Final = " \t\r\n"
_AFTER: Final = frozenset(",:]} \t\r\n")
_DECODER: Final = json.JSONDecoder()


def parts(path: Path, streamed: str) -> Iterator[tuple[str, Any]]:
    """Every member of the object in ``path`` by its key; those of the array ``streamed`` come one by one.

    A file that is an array gives its elements with the key ``streamed``.  Raises DataError naming the place where the
    file ends too early or is no JSON.
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
    """What the JSON file at ``path`` holds.  Raises DataError where it is no JSON, or can't be read."""
    try:
        return json_value(read_bytes(path), str(path))
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error


def json_value(data: bytes, name: str) -> Any:
    """What ``data`` spells in JSON; DataError naming ``name`` where it spells none."""
    try:
        return read_json(data.decode("utf-8-sig"))
    except ValueError as error:
        raise DataError(
            f"{name} is no JSON: {_said(error)}; was it cut off? copy it again"
        ) from error


class _Parts:
    """The text of a file as far as it has been read and not yet used."""

    def __init__(self, name: str, file: TextIO) -> None:
        self._name, self._text, self._used, self._before = name, "", 0, 0
        self._file = file

    def read(self, streamed: str) -> Iterator[tuple[str, Any]]:
        if (opening := self._next()) not in "[{":
            raise self._error("it begins with no object")
        return self._members(streamed, streamed, named=opening == "{")

    def _members(self, key: str, streamed: str, named: bool) -> Iterator[tuple[str, Any]]:
        """(key, value) of every member of the object that begins here, or of the array, which has one key for all."""
        self._used += 1
        end = "}" if named else "]"
        while self._next() != end:
            if named:
                key = self._value()
                if not isinstance(key, str) or self._next() != ":":
                    raise self._error("a key is expected")
                self._used += 1
            if named and key == streamed and self._next() == "[":
                yield from self._members(key, streamed, named=False)
            else:
                yield key, self._value()
            if self._next() not in (",", end):
                raise self._error("a comma is expected")
            self._used += self._next() == ","
        self._used += 1

    def _next(self) -> str:
        """The next character that is no space."""
        while True:
            while self._used < len(self._text) and self._text[self._used] in _SPACE:
                self._used += 1
            if self._used < len(self._text):
                return self._text[self._used]
            if not self._more(_CHUNK):
                raise self._error("it ends too early")

    def _value(self) -> Any:
        self._next()
        chunk = _CHUNK
        while True:
            reason: Exception | None = None
            try:
                value, end = _DECODER.raw_decode(self._text, self._used)
            except (ValueError, RecursionError) as error:
                reason = error
            else:
                if self._text[end : end + 1] in _AFTER or not self._more(
                    chunk
                ):  # else a number that goes on
                    self._used = end
                    return value
                continue
            if isinstance(reason, RecursionError) or not self._more(chunk):
                raise self._error(_said(reason)) from reason
            chunk *= 2

    def _more(self, characters: int) -> bool:
        """Whether there was more to read."""
        if len(self._text) - self._used > LONGEST:
            raise self._error(f"one part of it has more than {LONGEST} characters")
        try:
            text = self._file.read(characters)
        except UnicodeDecodeError as error:
            raise self._error(f"it is not UTF-8: {error.reason}") from error
        self._before += self._used
        self._text, self._used = self._text[self._used :] + text, 0
        return bool(text)

    def _error(self, reason: str) -> DataError:
        place = self._before + self._used
        return DataError(
            f"{self._name} is no JSON after character {place}: {reason}; was it cut off? copy it again"
        )


def _said(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg.removesuffix(" at")
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


@contextmanager
def laid_out_by(tool: str, path: Path) -> Iterator[None]:
    """DataError in place of what a value of another kind than expected leads to."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is laid out otherwise than the releases of {tool} that are read ({type(error).__name__}: {error});"
            " is it of another version, or edited?"
        ) from error


def objects(path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(line, counted from 1, byte offset, object) of every line of ``path`` that is not empty.

    Raises DataError naming file and line for one that is cut off, no JSON, or no object, and for a file that is not
    UTF-8 or can't be read.
    """
    with open_file(path) as file:
        offset = len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
    for number, line in enumerate(text_lines(path, LONGEST), start=1):
        if line.strip():
            yield number, offset, parsed(line, f"{path}, line {number}")
        offset += len(line.encode())


def parsed(line: str, where: str) -> dict[str, Any]:
    """The object that ``line`` spells; DataError saying ``where`` for anything else."""
    try:
        row = read_json(line)
    except ValueError as error:
        cut = (
            ""
            if line.endswith("\n")
            else ", and the file ends there; was its writing cut off? Copy it again"
        )
        raise DataError(f"{where}: no JSON ({error}){cut}") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: no JSON object, but {type(row).__name__}")
    return row


def head(path: Path) -> str:
    """What the file begins with, without blanks; nothing where it can't be read."""
    try:
        with open_file(path) as file:
            return file.read(65_536).decode(errors="replace").lstrip("\ufeff \n\r\t")
    except OSError:
        return ""


def begins_a_list(path: Path, *keys: str) -> bool:
    """Whether the file begins with a JSON list of objects that have these ``keys``."""
    start = head(path)
    return start.startswith("[") and all(f'"{key}"' in start for key in keys)


def first_object(path: Path) -> dict[str, Any]:
    """The object on the first line of ``path``, or that the whole file is; empty where there is none."""
    try:
        row = read_json(head(path).partition("\n")[0])
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


@dataclass(frozen=True)
class Rows:
    """The objects of a file, which can be read again: of JSON Lines from the disk, of one JSON list from memory.

    ``places``: (key, where it begins or its place in the list) of each, in the order in which they come.
    """

    path: Path
    places: Sequence[tuple[Any, int]]
    listed: list[dict[str, Any]] | None

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        if self.listed is not None:
            yield from ((key, self.listed[place]) for key, place in self.places)
            return
        with open_file(self.path) as file:
            for key, place in self.places:
                file.seek(place)
                yield key, parsed(file.readline().decode(), f"{self.path}, byte {place}")


def read_rows(path: Path, is_list: bool, key: Callable[[dict[str, Any], str], Any]) -> Rows:
    """The objects of ``path``, a JSON list or JSON Lines, in the order of the ``key`` of (object, where it stands).

    Raises DataError, with the place, for what is no object.
    """
    if not is_list:
        lines = [(key(row, f"{path}, line {line}"), offset) for line, offset, row in objects(path)]
        return Rows(path, sorted(lines), None)
    listed = whole(path)
    if wrong := [place for place, row in enumerate(listed) if not isinstance(row, dict)]:
        raise DataError(f"{path}: entry {wrong[0]} (counted from 0) is no JSON object")
    return Rows(
        path, sorted((key(row, f"{path}, entry {at}"), at) for at, row in enumerate(listed)), listed
    )


LARGEST: Final = 1 << 28
"""Bytes of one member, unpacked."""

ZSTANDARD: Final = 93
"""The number of Zstandard among the methods of zip, which Python's own module reads from 3.14."""

_LOCAL_HEADER: Final = 30


class Packed:
    """The members of an open archive by name."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, file: IO[bytes]) -> None:
        self._path, self._archive, self._file = path, archive, file
        self.names = tuple(dict.fromkeys(archive.namelist()))
        members, size = archive.infolist(), path.stat().st_size
        if sum(member.compress_size for member in members) > size:
            raise DataError(f"{path} holds members that overlap, which no log has; don't open it")

    def read(self, name: str) -> bytes:
        """The bytes of a member, unpacked.  Raises DataError where it is damaged, encrypted or far too large."""
        member = self._archive.getinfo(name)
        if member.flag_bits & 1:
            raise DataError(
                f"{self._path}: {name} is encrypted; unpack the log and pack it again without a password"
            )
        try:
            with self._open(member) as stream:
                data = bytearray()
                while (chunk := stream.read(_CHUNK)) and len(data) <= LARGEST:
                    data += chunk
        except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise DataError(
                f"{self._path}: {name} can't be unpacked: {error}; copy the log again"
            ) from error
        if len(data) > LARGEST:
            raise DataError(
                f"{self._path}: {name} unpacks to more than {LARGEST} bytes, which no log does; don't open it"
            )
        if crc32(data) != member.CRC:
            raise DataError(
                f"{self._path}: {name} is damaged (its checksum differs); copy the log again"
            )
        return bytes(data)

    def _open(self, member: zipfile.ZipInfo) -> Any:
        """A member as a stream of its unpacked bytes."""
        if member.compress_type != ZSTANDARD:
            return self._archive.open(member)
        import pyarrow as pa

        self._file.seek(member.header_offset)
        header = self._file.read(_LOCAL_HEADER)
        skipped = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        self._file.seek(member.header_offset + _LOCAL_HEADER + skipped)
        return pa.CompressedInputStream(
            pa.BufferReader(self._file.read(member.compress_size)), "zstd"
        )


@contextmanager
def unpacked(path: Path) -> Iterator[Packed]:
    """The archive ``path``, open.  Raises DataError where it is no zip archive, or one that no log is."""
    try:
        with open_file(path, TABLE) as file, zipfile.ZipFile(path) as archive:
            yield Packed(path, archive, file)
    except zipfile.BadZipFile as error:
        raise DataError(
            f"{path} is no zip archive, or cut off: {error}; copy the log again"
        ) from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}") from error
