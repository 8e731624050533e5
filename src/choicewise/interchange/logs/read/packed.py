"""A zip archive of another tool, read with bounds: nothing is unpacked to disk, and no member can grow without end."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final
from zlib import crc32

from choicewise.errors import DataError

LARGEST: Final = 1 << 28
"""Bytes of one member, unpacked."""

GROWTH: Final = 2000
"""Times a member may grow when it is unpacked, beyond its first megabyte; logs grow about tenfold."""

ZSTANDARD: Final = 93
"""The number of Zstandard among the methods of zip, which Python's own module reads from 3.14."""

_LOCAL_HEADER: Final = 30
_CHUNK: Final = 1 << 20


class Packed:
    """The members of an open archive by name."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, file: IO[bytes]) -> None:
        self._path, self._archive, self._file = path, archive, file
        self.names = tuple(dict.fromkeys(archive.namelist()))
        members, size = archive.infolist(), path.stat().st_size
        odd = [
            name for name in self.names if name.startswith(("/", "\\")) or ".." in name.split("/") or ":" in name[:2]
        ]
        if odd:
            raise DataError(f"{path} holds a member called {odd[0]!r}, which no log has; don't open it")
        if sum(member.compress_size for member in members) > size:
            raise DataError(f"{path} holds members that overlap, which no log has; don't open it")

    def read(self, name: str) -> bytes:
        """The bytes of a member, unpacked.  Raises DataError where it is damaged, encrypted or far too large."""
        member = self._archive.getinfo(name)
        most = min(LARGEST, _CHUNK + GROWTH * member.compress_size)
        if member.flag_bits & 1:
            raise DataError(f"{self._path}: {name} is encrypted; unpack the log and pack it again without a password")
        try:
            data = _bounded(self._open(member), most)
        except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise DataError(f"{self._path}: {name} can't be unpacked: {error}; copy the log again") from error
        if data is None:
            raise DataError(f"{self._path}: {name} unpacks to more than {most} bytes, which no log does; don't open it")
        if crc32(data) != member.CRC:
            raise DataError(f"{self._path}: {name} is damaged (its checksum differs); copy the log again")
        return data

    def _open(self, member: zipfile.ZipInfo) -> Any:
        """A member as a stream of its unpacked bytes."""
        if member.compress_type != ZSTANDARD:
            return self._archive.open(member)
        import pyarrow as pa

        self._file.seek(member.header_offset)
        header = self._file.read(_LOCAL_HEADER)
        skipped = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        self._file.seek(member.header_offset + _LOCAL_HEADER + skipped)
        return pa.CompressedInputStream(pa.BufferReader(self._file.read(member.compress_size)), "zstd")


def _bounded(stream: Any, most: int) -> bytes | None:
    """All of a stream, or None where it has more than ``most`` bytes."""
    data = bytearray()
    with stream:
        while chunk := stream.read(min(_CHUNK, most + 1 - len(data))):
            data += chunk
            if len(data) > most:
                return None
    return bytes(data)


@contextmanager
def unpacked(path: Path) -> Iterator[Packed]:
    """The archive ``path``, open.  Raises DataError where it is no zip archive, or one that no log is."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(path) as archive:
            yield Packed(path, archive, file)
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is no zip archive, or cut off: {error}; copy the log again") from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}") from error
