"""Files that anybody may have put into a folder, read without trust: regular files alone, of a bounded size."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

DOCUMENT = 200_000_000
"""Bytes of a JSON document; a manifest of a million items has some hundred thousand, of a million skipped rows most."""

TABLE = 8_000_000_000
"""Bytes of a file with a table, as it lies on the disk."""

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


class Refused(OSError):
    """A file that is not read, or not unpacked; ``strerror`` says why in words that follow a colon."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EINVAL, reason)

    def __str__(self) -> str:
        return str(self.strerror)


def open_file(path: Path, limit: int | None = None) -> BufferedReader:
    """The regular file at ``path``, or that a link there names, for reading; it has at most ``limit`` bytes.

    Never waits for a pipe or a device.  Raises OSError, which is Refused for what is no regular file or too large.
    """
    _check(os.stat(path), limit)  # before it is opened: to open some devices does something
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _check(os.fstat(descriptor), limit)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, limit: int = DOCUMENT) -> bytes:
    """What the file at ``path`` holds.  Raises OSError as :func:`open_file`."""
    with open_file(path, limit) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1)  # asked for more, Python would reserve the memory
    if len(content) > size:
        raise Refused("it grows while it is read")
    return content


def read_text(path: Path) -> str:
    """The same of a JSON document, as text.  Raises UnicodeDecodeError, a ValueError, where it is not UTF-8."""
    return read_bytes(path).decode("utf-8")


def _check(status: os.stat_result, limit: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, not a file")
    if limit is not None and status.st_size > limit:
        raise _too_large(status.st_size, limit)


def _too_large(size: int, limit: int) -> Refused:
    return Refused(f"it has {size:,} bytes, and at most {limit:,} are read")
