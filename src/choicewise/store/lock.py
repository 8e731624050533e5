"""One process at a time writes to a folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from choicewise.errors import StoreError
from choicewise.store.atomic import disk_errors


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep a second process out; the lock disappears with the process, however it ends.

    Raises StoreError where another process has it, and where the file system has no such locks.
    """
    with disk_errors(path):
        folder = os.open(path, os.O_RDONLY)
    try:
        if not _lock(path, folder, fcntl.LOCK_EX):
            raise StoreError(f"another process is writing to {path}; wait for it, or choose another folder")
        yield
    finally:
        os.close(folder)


def is_locked(path: Path) -> bool:
    """Whether another process is writing to the folder now; nobody is kept out.  StoreError as :func:`locked`."""
    try:
        folder = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}; make it readable") from error
    try:
        return not _lock(path, folder, fcntl.LOCK_SH)
    finally:
        os.close(folder)


def _lock(path: Path, folder: int, kind: int) -> bool:
    try:
        fcntl.flock(folder, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Some network file systems lock nothing, or no folders: two processes could not be kept apart there.
        raise StoreError(
            f"the file system of {path} can't lock it ({error.strerror}), so a second process could not be kept out; "
            "choose a folder on a disk of this machine"
        ) from error
    return True
