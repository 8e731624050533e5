"""Which task files there are, by the names in them, with no more of them read as YAML than is asked for.

The harness reads all its 13,000 files to know the names in them, which takes ten seconds; looking for one name in their
texts takes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from choicewise.errors import ProtocolError, did_you_mean
from choicewise.interchange.tasks.task_file import TaskFile, read_task_file

_IGNORED = {"__pycache__", ".ipynb_checkpoints"}
_NAMED = re.compile(
    r"""^["']?(?:task|group)["']?[ \t]*:[ \t]*["']?([^\s"'\[\]{}]+)["']?[ \t]*(?:#.*)?$""", re.MULTILINE
)
_INCLUDE = re.compile(r"""^["']?include["']?[ \t]*:[ \t]*((?:\n?[ \t]*-.*)+|.*)$""", re.MULTILINE)


@dataclass(frozen=True)
class Named:
    """What a name stands for: the ``file`` of a task or group; for a tag none, but the names of the tasks with it."""

    name: str
    file: TaskFile | None
    tagged: tuple[str, ...] = ()

    @property
    def is_group(self) -> bool:
        """Whether it is a group of tasks."""
        return self.file is not None and "group" in self.file.config and "class" not in self.file.config


class TaskNames:
    """The names of tasks, groups and tags in the files below ``roots``, of which later ones come before earlier ones.

    Within a root the first file in order has a name that several files have, as in the harness
    (lm_eval/tasks/_index.py, 0.4.13).
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)

    def find(self, name: str) -> Named | None:
        """What ``name`` stands for; None where it stands nowhere.

        Raises ProtocolError where the only file that has it can't be read.
        """
        broken: list[ProtocolError] = []
        for root in reversed(self.roots):
            for path in _named(root).get(name, ()):
                try:
                    file = read_task_file(path)
                except ProtocolError as error:
                    broken.append(error)
                    continue
                if name in (file.config.get("task"), file.config.get("group")):
                    return Named(name, file)
            if tagged := tuple(sorted(set(_tagged(root, name)))):
                return Named(name, None, tagged)
        if broken:
            raise broken[0].within(f"task {name}")
        return None

    def unknown(self, name: str) -> ProtocolError:
        """The error about a name that stands nowhere."""
        known = sorted({known for root in self.roots for known in _named(root)})
        return ProtocolError(
            f"no task, group or tag of the harness is called {name!r}; {did_you_mean(name, known)} (a task file's name "
            "ends in .yaml, and further folders of task files can be named)"
        )


@lru_cache(maxsize=8)
def _texts(root: Path) -> dict[Path, str]:
    """The text of every task file below ``root``, in the harness's order."""
    paths = (path for path in root.glob("**/*.yaml") if not _IGNORED.intersection(path.parts) and path.is_file())
    return {path: _text(path) for path in sorted(paths, key=Path.as_posix)}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@lru_cache(maxsize=8)
def _named(root: Path) -> dict[str, list[Path]]:
    """The files that seem to define a task or group, by its name."""
    names: dict[str, list[Path]] = {}
    for path, text in _texts(root).items():
        for name in dict.fromkeys(_NAMED.findall(text)):
            names.setdefault(name, []).append(path)
    return names


def _tagged(root: Path, tag: str) -> Iterator[str]:
    """The tasks that have ``tag``, in their own file or in one that it includes."""
    included: dict[Path, str] = {}
    for path, text in _texts(root).items():
        if not any(tag in each for each in _with_includes(path, text, included, 0)):
            continue
        try:
            config = read_task_file(path).config
        except ProtocolError:
            continue  # the harness leaves it out, too
        tags = config.get("tag")
        if tag in (tags if isinstance(tags, list) else [tags]) and isinstance(name := config.get("task"), str):
            yield name


def _with_includes(path: Path, text: str, included: dict[Path, str], depth: int) -> Iterator[str]:
    """The text of a file, and those of the files that it includes; ``included`` remembers them."""
    yield text
    if depth > 8 or "include" not in text:
        return
    for names in _INCLUDE.findall(text):
        for name in re.findall(r"""[^\s"',\[\]-][^\s"',\[\]]*""", names):
            inner = path.parent / name
            if inner not in included:
                included[inner] = _text(inner)
            yield from _with_includes(inner, included[inner], included, depth + 1)
