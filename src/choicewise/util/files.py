"""Replace files and folders in one step, keep second copies, lock folders, and read within limits.

A file or folder is written under a temporary name beside its place, flushed to the disk, then
renamed: a kill, a crash or a full disk leaves the old state, and at most a file or folder with the
suffix ``.partial``, which the next write removes.  A copy is written after the file itself: it has
the same content, or that of an earlier write.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from choicewise.errors import StoreError
from choicewise.util.text import text_digest

PARTIAL = ".partial"

# Bytes of a file with a table, on the disk.
TABLE = 8_000_000_000


def copy_of(path: Path) -> Path:
    """Return the path of the copy of the file at ``path``."""
    return path.with_suffix(f".copy{path.suffix}")


def write_twice(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` (UTF-8) in one step, then its copy."""
    write_text(path, text)
    write_text(copy_of(path), text)


def renew_copy(path: Path) -> None:
    """Write the copy of the file at ``path`` again, unless it is the same or the folder is
    read-only.
    """
    copy = copy_of(path)
    with suppress(OSError, StoreError):
        text = read_bytes(path)
        if not copy.is_file() or read_bytes(copy) != text:
            write_text(copy, text.decode("utf-8"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep a second process out; the lock disappears with the process, however it ends.

    Raises StoreError if another process has it, and if the file system has no such locks.
    """
    with disk_errors(path):
        folder = os.open(path, os.O_RDONLY)
    try:
        if not _lock(path, folder, fcntl.LOCK_EX):
            raise StoreError(
                f"another process is writing to {path}; wait for it, or choose another folder"
            )
        yield
    finally:
        os.close(folder)


def is_locked(path: Path) -> bool:
    """Return whether another process is writing to the folder now.  Raises StoreError as
    :func:`locked`.
    """
    try:
        folder = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}; make it readable") from error
    try:
        return not _lock(path, folder, fcntl.LOCK_SH)
    finally:
        os.close(folder)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError that says what is safe and what to do next."""
    try:
        yield
    except OSError as error:
        safe = "your earlier answers are safe"
        if error.errno == errno.ENOSPC:
            problem = f"the disk is full while writing {path}"
            advice = f"{safe}; free some space and run the same command again"
        elif error.errno == errno.EDQUOT:
            problem = f"your disk quota is used up while writing {path}"
            advice = f"{safe}; free some space and run the same command again"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            problem = f"{path} can't be written: {error.strerror}"
            advice = "choose another folder"
        else:
            problem = f"{path} can't be written: {error}"
            advice = safe
        raise StoreError(f"{problem}; {advice}") from error


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which replaces ``path`` in one step if the block ends well."""
    partial = path.with_name(path.name + PARTIAL)
    with disk_errors(path):
        # A link there would be written through.
        remove(partial)
        try:
            yield partial
            sync(partial)
            partial.replace(path)
        except BaseException:
            # It may be what fills the disk.
            with suppress(OSError):
                remove(partial)
            raise
        sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` (UTF-8) in one step."""
    with new_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` if the block ends well, and disappears if it
    does not.

    A folder that is there is replaced by two renames; :func:`put_back` undoes the first if a kill
    came between.  Raises StoreError if another process is writing the same folder.
    """
    with disk_errors(path), _partial_folder(path) as partial:
        try:
            yield partial
            for folder, _, files in os.walk(partial, topdown=False):
                for name in files:
                    sync(Path(folder, name))
                sync(Path(folder))
            replace_folder(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def replace_folder(new: Path, path: Path) -> None:
    """Give the folder ``new`` the name ``path``, then delete what had that name."""
    before = _before(path)
    if os.path.lexists(path):
        path.rename(before)
    try:
        new.rename(path)
    except BaseException:
        put_back(path)
        raise
    sync(path.parent)
    # The new folder is in place, so a failure here is none: the next write removes the old one.
    with suppress(OSError):
        remove(before)


@contextmanager
def _partial_folder(path: Path) -> Iterator[Path]:
    """Make the empty temporary folder that becomes ``path``, under a lock that ends with the
    process.
    """
    partial = path.with_name(path.name + PARTIAL)
    # A link or a file of that name is no folder of ours.
    if partial.is_symlink() or (partial.exists() and not partial.is_dir()):
        remove(partial)
    partial.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        if _is_written_elsewhere(partial, descriptor):
            raise StoreError(
                f"another process is writing to {path}; wait for it, or choose another folder"
            )
        put_back(path)
        # The folder is emptied, not removed: a process that has made it may not have locked it yet.
        for leftover in partial.iterdir():
            remove(leftover)
        yield partial
    finally:
        os.close(descriptor)


def _is_written_elsewhere(partial: Path, descriptor: int) -> bool:
    """Lock the folder ``partial``, open as ``descriptor``.

    Return whether another process has it or has had it.
    """
    try:
        if not _lock(partial, descriptor, fcntl.LOCK_EX):
            return True
    except StoreError:
        # The file system has no locks, so nobody can be kept out.
        return False
    # Before the lock was free, its owner may have given the folder its final name.
    return not (partial.exists() and os.path.samestat(os.fstat(descriptor), partial.stat()))


def put_back(path: Path) -> None:
    """Undo a replacement of the folder ``path`` that was killed between its two steps."""
    before = _before(path)
    if not os.path.lexists(before):
        return
    if os.path.lexists(path):
        remove(before)
    else:
        before.rename(path)


def remove(path: Path) -> None:
    """Delete the file, the link (not its target) or the folder at ``path``, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def move(path: Path, to: Path) -> None:
    """Rename the file, folder or link at ``path``, for good."""
    path.rename(to)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Refused(OSError):
    """A file is not read, or not unpacked; ``strerror`` says why in words that follow a colon."""

    def __init__(self, reason: str, path: Path | None = None) -> None:
        super().__init__(errno.EINVAL, reason)
        self.filename = str(path) if path is not None else None

    def __str__(self) -> str:
        return str(self.strerror)


def open_file(path: Path, limit: int | None = None) -> BufferedReader:
    """Open the regular file at ``path``, or at the end of a link there, for reading, with at most
    ``limit`` bytes.

    Never waits for a pipe or a device.  Raises OSError, which is Refused for what is no regular
    file or too large.
    """
    # Before it is opened: to open some devices does something.
    _check(path, os.stat(path), limit)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _check(path, os.fstat(descriptor), limit)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


DOCUMENT = 200_000_000
"""Bytes of a JSON document: enough for a manifest with a million skipped rows."""


def read_bytes(path: Path, limit: int = DOCUMENT) -> bytes:
    """Return the content of the file at ``path``.  Raises OSError as :func:`open_file`."""
    with open_file(path, limit) as file:
        size = os.fstat(file.fileno()).st_size
        # With a larger number, such as the limit, Python would reserve the memory.
        content = file.read(size + 1)
    if len(content) > size:
        raise Refused("it grows while it is read", path)
    return content


SETTINGS = 10_000_000
"""Bytes of a file that people write by hand: a protocol, a plan, a mapping."""


def read_text(path: Path, limit: int = DOCUMENT) -> str:
    """Return the text of the file at ``path``.

    Raises OSError as :func:`open_file`, and UnicodeDecodeError, a ValueError, if it is not UTF-8.
    """
    return read_bytes(path, limit).decode("utf-8")


def _lock(path: Path, folder: int, kind: int) -> bool:
    try:
        fcntl.flock(folder, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Some network file systems lock nothing, or no folders: two processes could not be kept
        # apart there.
        raise StoreError(
            f"the file system of {path} can't lock it ({error.strerror}), so a second "
            "process could write too; choose a folder on a local disk"
        ) from error
    return True


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before{PARTIAL}")


_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def _check(path: Path, status: os.stat_result, limit: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise Refused(f"it is {kind}, not a file", path)
    if limit is not None and status.st_size > limit:
        raise Refused(f"it has {status.st_size:,} bytes; at most {limit:,} are read", path)


LONGEST = 100
"""Characters of a folder's name; file systems take 255 bytes, and tools add to it."""


def folder_name(name: str) -> str:
    """Return ``name`` as a folder: at most ``LONGEST`` letters, digits, dots, hyphens, underscores
    and at signs.
    """
    plain = re.sub(r"[^\w.@+-]+", "-", name, flags=re.ASCII).strip("-.") or "unnamed"
    if len(plain) > LONGEST:
        digest = text_digest(name)
        plain = f"{plain[: LONGEST - 9]}-{digest[:8]}"
    return plain


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return ``name``, with a number if it is taken."""
    # Names that differ in their case alone are one on some disks.
    used = {other.casefold() for other in taken}
    number = 2
    free = name
    while free.casefold() in used:
        free = f"{name}-{number}"
        number += 1
    return free
