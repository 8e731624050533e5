"""Keep values within a budget, and small texts that outlive the process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from choicewise.errors import StoreError
from choicewise.util.files import write_text
from choicewise.util.text import text_digest

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Keep values by key; the least recently used go first.  Several threads may use it.

    ``budget``: the greatest sum of the values' ``size``, by default their number.
    """

    def __init__(self, budget: int, size: Callable[[Value], int] = lambda value: 1) -> None:
        self._budget = budget
        self._size = size
        self._used = 0
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """Return the value of ``key``, None if it is not there."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, and forget others if there is no space."""
        with self._lock:
            if key in self._values:
                self._used -= self._size(self._values.pop(key))
            self._values[key] = value
            self._used += self._size(value)
            while self._used > self._budget and self._values:
                _, oldest = self._values.popitem(last=False)
                self._used -= self._size(oldest)


def read_user_cache(kind: str, key: str) -> str | None:
    """Return the text that an earlier process stored under ``key`` in the folder ``kind``, None
    without one.

    The folder lies in ``$XDG_CACHE_HOME/choicewise`` (by default in ``~/.cache``).  An entry is one
    file, named after the hash of its key.  All of it may be deleted at any time, and a damaged
    entry is none.
    """
    with suppress(OSError, ValueError):
        check, text = _entry(kind, key).read_text(encoding="utf-8").split("\n", 1)
        if check == text_digest(key + text):
            return text
    return None


def write_user_cache(kind: str, key: str, text: str) -> None:
    """Store ``text``, or nothing if the folder is read-only or another process writes the same."""
    entry = _entry(kind, key)
    with suppress(OSError, StoreError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_text(entry, f"{text_digest(key + text)}\n{text}")


def user_cache_folder(kind: str, key: str) -> Path:
    """Return the folder, there or not, for the files that belong to ``key`` (a file name) among
    those of a ``kind``.
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home)
    # The specification has relative paths ignored.
    if not base.is_absolute():
        base = Path("~/.cache").expanduser()
    return base / "choicewise" / kind / key


def _entry(kind: str, key: str) -> Path:
    return user_cache_folder(kind, text_digest(key))
