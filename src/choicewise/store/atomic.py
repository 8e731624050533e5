"""Writing so that a reader sees a complete file or none, whatever happens in between.

A file (or folder) is written under a temporary name beside its place, flushed to the disk, then renamed: a kill, a
crash or a full disk leaves the old state, and at most a file with the suffix ``.partial``, which the next run removes.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from choicewise.errors import StoreError

PARTIAL = ".partial"


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError that says what is safe and what to do next."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            problem = f"the disk is full while writing {path}"
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
        yield partial
        sync(partial)
        partial.replace(path)
        sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` (UTF-8) in one step."""
    with new_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``path`` when the block ends well, and disappears when it does not."""
    partial = path.with_name(path.name + PARTIAL)
    with disk_errors(path):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            for file in partial.iterdir():
                sync(file)
            if path.exists():  # a block that the manifest does not list, so its content can't be checked
                shutil.rmtree(path)
            partial.rename(path)
            sync(path.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
