"""Writing so that a reader sees a complete file or none, whatever happens in between.

A file (or folder) is written under a temporary name beside its place, flushed to the disk, then renamed: a kill, a
crash or a full disk leaves the old state, and at most a file with the suffix ``.partial``, which the next run removes.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from choicewise.errors import StoreError
from choicewise.store.exchange import exchange

PARTIAL = ".partial"


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError that says what is safe and what to do next."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = "the disk is full" if error.errno == errno.ENOSPC else "your quota of the disk is used up"
            problem = f"{full} while writing {path}"
            advice = "what was written before is safe; free some space and repeat the same run"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            problem, advice = f"{path} can't be written: {error.strerror}", "choose another folder"
        else:
            problem, advice = f"{path} can't be written: {error}", "what was written before is safe"
        raise StoreError(f"{problem}; {advice}") from error


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary name that replaces ``path`` in one step when the block ends well."""
    partial = path.with_name(path.name + PARTIAL)
    with disk_errors(path):
        remove(partial)  # what lies there may be a link, and would be written through
        try:
            yield partial
            sync(partial)
            partial.replace(path)
        except BaseException:
            with suppress(OSError):
                remove(partial)  # it may be what fills the disk
            raise
        sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` (UTF-8) in one step."""
    with new_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``path`` when the block ends well, and disappears when it does not.

    A folder that is there is replaced: in one step where the system can exchange two folders.
    """
    partial = path.with_name(path.name + PARTIAL)
    with disk_errors(path):
        put_back(path)
        remove(partial)
        partial.mkdir(parents=True)
        try:
            yield partial
            for folder, _, files in os.walk(partial, topdown=False):
                for name in files:
                    sync(Path(folder, name))
                sync(Path(folder))
            _put_in_place(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _put_in_place(partial: Path, path: Path) -> None:
    if os.path.lexists(path) and not exchange(partial, path):
        before = _before(path)
        path.rename(before)
        try:
            partial.rename(path)
        except BaseException:
            before.rename(path)
            raise
    elif not os.path.lexists(path):
        partial.rename(path)
    sync(path.parent)
    for old in (partial, _before(path)):
        with suppress(OSError):  # what is new is in its place; the next write removes this
            remove(old)


def put_back(path: Path) -> None:
    """Undo a replacement of the folder ``path`` that was killed between its two steps."""
    before = _before(path)
    if os.path.lexists(before):
        remove(before) if os.path.lexists(path) else before.rename(path)


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before{PARTIAL}")


def remove(path: Path) -> None:
    """Delete the file, the link (not what it names) or the folder at ``path``; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
