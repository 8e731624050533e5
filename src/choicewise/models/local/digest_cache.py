"""Digests of model folders, remembered between processes, because reading gigabytes takes seconds.

An entry of the user's cache is named after all that the digest was made of: path, size, inode and times of every file.
A file that changed in any way has another entry.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from choicewise.models.local import user_cache

SETTLED = 2.0
"""Seconds after which a change of a file shows in its times on every file system."""


def remembered(files: Sequence[Path], how: str, compute: Callable[[], str]) -> str:
    """The digest (64 hex) that ``compute`` makes of ``files``; ``how`` names the way, as another has other entries.

    What ``compute`` raises is raised, and nothing is remembered.
    """
    stats = [(str(file.resolve()), file.stat()) for file in files]
    seen = [[path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev] for path, stat in stats]
    key = json.dumps([how, seen])
    if (digest := user_cache.read("digests", key)) is not None:
        return digest
    digest = compute()
    changed = max((max(stat.st_mtime, stat.st_ctime) for _, stat in stats), default=0.0)
    if time.time() - changed > SETTLED:
        user_cache.write("digests", key, digest)
    return digest
