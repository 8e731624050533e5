"""Other tools' logs by the name of their format: one file per tool, named like it, with its ``READER``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import cast

from choicewise.errors import DataError, UsageError, did_you_mean
from choicewise.interchange.logs.log import Log

Read = Callable[[Sequence[Path], Path | None], Iterator[Log]]
"""From the files (or folders) of a format, and the file of their results where that is named, to what they say.

One log per model and task, whether one file holds several or several hold one.  Raises DataError naming file and line.
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """How one tool's logs are read.

    ``about``: the tool and its files, in words.  ``recognises``: whether a path is of it, from its name or its first
    few thousand bytes; it never raises.
    """

    about: str
    recognises: Callable[[Path], bool]
    read: Read


READERS = ("harness", "harness-v0", "helm", "inspect-log", "lighteval", "table")
"""The formats, in the order in which a path is tried."""


@cache
def reader(name: str) -> Reader:
    """The reader of the format of that name; UsageError for one that nobody knows."""
    if name not in READERS:
        raise UsageError(f"no format of logs is called {name!r}; {did_you_mean(name, READERS)}")
    return cast(Reader, import_module(f"{__name__}.{name.replace('-', '_')}").READER)


def recognise(path: Path) -> str:
    """The name of the format of ``path``.  Raises DataError where there is nothing, or nothing that is known."""
    if not path.exists():
        raise DataError(f"{path} does not exist")
    for name in READERS:
        if reader(name).recognises(path):
            return name
    known = "; ".join(f"{name}: {reader(name).about}" for name in READERS)
    raise DataError(f"{path} is no log that is known ({known}); name its format, or write the columns of a table")
