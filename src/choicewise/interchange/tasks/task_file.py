"""Reading a task file as data: nothing in it is imported or run, and every key has its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from choicewise.errors import ProtocolError

FUNCTION = "!function"
"""The tag of a value that the harness imports, and so runs, while it reads a file."""

LARGEST = 5_000_000
"""Bytes of a task file; those of the harness have up to some hundred thousand."""


class Place(NamedTuple):
    """Where a key stands: a file, and a line counted from 1."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


class Code(NamedTuple):
    """A value that names Python code: the ``key`` it belongs to (``fewshot_config.samples``), and what it names."""

    place: Place
    key: str
    names: str

    def __str__(self) -> str:
        return f"{self.place}: {self.key}: {self.names}"


class CodeName(str):
    """The text of a ``!function`` value, which stands for what the harness would import."""


@dataclass(frozen=True)
class TaskFile:
    """A task file with everything that it includes.

    ``config``: its keys, those of the file over those it includes; ``places``: where each of them stands; ``files``:
    itself and what it includes; ``code``: all that names code there, also where another file's key replaces it, as the
    harness imports that all the same.
    """

    path: Path
    config: dict[str, Any]
    places: dict[str, Place]
    files: tuple[Path, ...]
    code: tuple[Code, ...]


@dataclass
class _Reading:
    """The files of one chain of includes, in the order in which they were read."""

    seen: list[Path] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)


def read_task_file(path: Path) -> TaskFile:
    """The file at ``path``, merged with what it includes as the harness merges (lm_eval/tasks/_yaml_loader.py, 0.4.13).

    Raises ProtocolError, with file and line, for what is no YAML, has a tag but ``!function``, is no mapping, includes
    what is not there, or includes a file twice or itself.
    """
    reading = _Reading()
    config, places = _merged(path.expanduser().resolve(), reading, ())
    return TaskFile(path, config, places, tuple(reading.seen), tuple(reading.code))


def _merged(path: Path, reading: _Reading, heirs: tuple[Path, ...]) -> tuple[dict[str, Any], dict[str, Place]]:
    if path in heirs:
        circle = " includes ".join(str(each) for each in (*heirs[heirs.index(path) :], path))
        raise ProtocolError(f"{circle}: a circle; remove one of the includes")
    if path in reading.seen:
        raise ProtocolError(f"{path} is included twice by {heirs[0]}, which the harness refuses; include it once")
    reading.seen.append(path)
    own, own_places = _read(path, reading)
    includes = own.pop("include", [])
    config: dict[str, Any] = {}
    places: dict[str, Place] = {}
    for name in includes if isinstance(includes, list) else [includes]:
        if not isinstance(name, str) or isinstance(name, CodeName):
            raise ProtocolError(f"{own_places['include']}: include is {name!r}; it must be the name of a file")
        inner = (path.parent / name).expanduser().resolve()
        if not inner.is_file():
            raise ProtocolError(f"{own_places['include']}: include names {name}, and {inner} is no file")
        more, more_places = _merged(inner, reading, (*heirs, path))
        more.pop("task_list", None)
        config, places = {**config, **more}, {**places, **more_places}
    return {**config, **own}, {**places, **own_places}


def _read(path: Path, reading: _Reading) -> tuple[dict[str, Any], dict[str, Place]]:
    import yaml

    try:
        if path.stat().st_size > LARGEST:
            raise ProtocolError(f"{path} has more than {LARGEST:,} bytes; it is no task file")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProtocolError(f"{path} can't be read: {error.strerror}; name a task file") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(node, yaml.MappingNode):
            raise ProtocolError(f"{path} holds no keys; write a task as `task: NAME` and so on")
        reading.code += (Code(Place(path, line), key, spelled) for line, key, spelled in _code(node, "", set()))
        places = {str(key.value): Place(path, key.start_mark.line + 1) for key, _ in node.value}
        config = yaml.load(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = path if mark is None else Place(path, mark.line + 1)
        raise ProtocolError(f"{where}: no valid task file: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ProtocolError(f"{path} is no valid task file: {str(error)[:200] or type(error).__name__}") from error
    if wrong := [key for key in config if not isinstance(key, str)]:
        raise ProtocolError(f"{path}: key {wrong[0]!r} is no text; write it in quotes")
    return config, places


def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """As the harness's with functions unresolved."""

    def name(loader: Any, node: Any) -> CodeName:
        return CodeName(loader.construct_scalar(node))

    Loader.add_constructor(FUNCTION, name)
    return Loader


def _code(node: Any, key: str, seen: set[int]) -> Iterator[tuple[int, str, str]]:
    """(line, key, text) of every ``!function`` below a node of YAML, which anchors can make a circle."""
    import yaml

    if id(node) in seen:
        return
    seen.add(id(node))
    if node.tag == FUNCTION:
        yield node.start_mark.line + 1, key or "the file", str(node.value)
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _code(name, f"{key}.{name.value}".strip("."), seen)
            yield from _code(value, f"{key}.{name.value}".strip("."), seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _code(value, f"{key}[{number}]", seen)
