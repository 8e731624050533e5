"""Small texts remembered between processes, in ``$XDG_CACHE_HOME/choicewise`` (by default in ``~/.cache``).

An entry is one file, named after the hash of its key.  All of it may be deleted at any time; a damaged entry is none,
and where nothing can be written nothing is remembered.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from threading import get_ident


def read(kind: str, key: str) -> str | None:
    """The text stored under ``key`` in the folder ``kind``; None where there is none, or a damaged one."""
    with suppress(OSError, ValueError):
        check, text = _entry(kind, key).read_text(encoding="utf-8").split("\n", 1)
        if check == _sha256(key + text):
            return text
    return None


def write(kind: str, key: str, text: str) -> None:
    """Store ``text``, in one step, so that nobody reads half of it."""
    entry = _entry(kind, key)
    draft = entry.with_name(f"{entry.name}.{os.getpid()}.{get_ident()}")
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(f"{_sha256(key + text)}\n{text}", encoding="utf-8")
        draft.replace(entry)


def _entry(kind: str, key: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home if Path(home).is_absolute() else Path("~/.cache").expanduser())
    return base / "choicewise" / kind / _sha256(key)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
