"""Digests of model folders, remembered between processes, because reading gigabytes takes seconds.

An entry is one small file in ``$XDG_CACHE_HOME/choicewise/digests`` (by default in ``~/.cache``), named after all that
the digest was made of: path, size, inode and times of every file.  A file that changed in any way has another entry, a
damaged entry is none, and a folder where nothing can be written is hashed each time.  All of it may be deleted.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import get_ident

SETTLED = 2.0
"""Seconds after which a change of a file shows in its times on every file system."""


def remembered(files: Sequence[Path], how: str, compute: Callable[[], str]) -> str:
    """The digest (64 hex) that ``compute`` makes of ``files``; ``how`` names the way, as another has other entries.

    What ``compute`` raises is raised, and nothing is remembered.
    """
    stats = [(str(file.resolve()), file.stat()) for file in files]
    seen = [[path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev] for path, stat in stats]
    key = _sha256(json.dumps([how, seen]))
    entry = _folder() / key
    with suppress(OSError, ValueError):
        digest, check = entry.read_text(encoding="ascii").split()
        if check == _sha256(key + digest):
            return digest
    digest = compute()
    changed = max((max(stat.st_mtime, stat.st_ctime) for _, stat in stats), default=0.0)
    if time.time() - changed > SETTLED:
        with suppress(OSError):
            _write(entry, f"{digest} {_sha256(key + digest)}\n")
    return digest


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return Path(home if Path(home).is_absolute() else Path("~/.cache").expanduser()) / "choicewise" / "digests"


def _write(entry: Path, text: str) -> None:
    """In one step, so that nobody reads half of it."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    draft = entry.with_name(f"{entry.name}.{os.getpid()}.{get_ident()}")
    draft.write_text(text, encoding="ascii")
    draft.replace(entry)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
