"""Small files that say what all the others mean are kept twice, so that one of them can be lost.

The copy is written after the file itself: it says the same, or what was true one write earlier.
"""

from contextlib import suppress
from pathlib import Path

from choicewise.errors import StoreError
from choicewise.store.atomic import write_text
from choicewise.store.files import read_bytes


def copy_of(path: Path) -> Path:
    """Where the copy of the file at ``path`` lies."""
    return path.with_suffix(f".copy{path.suffix}")


def write_twice(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` (UTF-8) in one step, then its copy likewise."""
    write_text(path, text)
    write_text(copy_of(path), text)


def renew_copy(path: Path) -> None:
    """Make the copy say what the file at ``path`` says; nothing where it does, or where the folder is read-only."""
    text, copy = read_bytes(path), copy_of(path)
    with suppress(OSError, StoreError):
        if not copy.is_file() or read_bytes(copy) != text:
            write_text(copy, text.decode("utf-8"))
