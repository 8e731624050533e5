"""What a selector of harness tasks says, what a task file says, and what of it is code.

The harness itself finds tasks, groups and tags, loads them and makes their requests (``load.py``).  Here its files are
read as data, with what they include, so that nothing of a stranger's file runs before it is known to be code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from choicewise.errors import ProtocolError, did_you_mean
from choicewise.util.files import read_text

PREFIX = "lm-eval:"
"""What every such name begins with."""

SHOTS = "shots"
"""The axis that the harness itself changes, as its option for the number of few-shot examples."""

_FILE = re.compile(r"(.*\.ya?ml)(?=$|:|@)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TaskSelector:
    """A task, group or tag by ``name``, or a task file by its path.

    ``metric``: one of its metrics, all when None.  ``shots``: few-shot examples, the task's own number when None.
    ``changes``: axes that differ, spelled as in ``NAME@AXIS=VALUE``; empty for none.
    """

    name: str
    metric: str | None = None
    shots: int | None = None
    changes: str = ""


def parse_task(selector: str) -> TaskSelector:
    """What a selector says: ``lm-eval:arc_easy:acc_norm@shots=5`` (the metric may stand last, too).

    Raises ProtocolError for one that says nothing or is malformed.
    """
    from choicewise.protocols.between import (
        CHANGES,
        split_changes,
    )  # which a line without tasks does not need

    spelled = selector.removeprefix(PREFIX)
    if match := _FILE.fullmatch(spelled):
        name, rest = match[1], match[2]
    else:
        place = re.search(
            "[:@]", spelled.replace("::", "\0\0")
        )  # groups inside groups are called GROUP::NAME
        name, rest = (
            (spelled[: place.start()], spelled[place.start() :]) if place else (spelled, "")
        )
    before, changes = split_changes(rest)
    changes, _, last = changes.partition(":")
    metric = before.removeprefix(":") or last or None
    if not name or (CHANGES in rest and not changes) or (last and before):
        raise ProtocolError(
            f"{selector!r} names no task; write {PREFIX}TASK, {PREFIX}TASK:METRIC, {PREFIX}TASK@shots=5 or "
            f"{PREFIX}PATH.yaml"
        )
    own = [change for change in changes.split(",") if change]
    shots = [change.partition("=")[2] for change in own if change.startswith(f"{SHOTS}=")]
    if any(not (each.isascii() and each.isdigit()) for each in shots) or len(shots) > 1:
        raise ProtocolError(
            f"{selector!r}: {SHOTS} is {', '.join(shots)!r}; it must be one whole number"
        )
    others = ",".join(change for change in own if not change.startswith(f"{SHOTS}="))
    return TaskSelector(name, metric, int(shots[0]) if shots else None, others)


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


Keys = Mapping[str, tuple[Any, Place]]
"""The value of each key, and where it stands."""


class TaskFile(NamedTuple):
    """A task file with everything that it includes.

    ``keys``: those of the file over those it includes; ``files``: itself and what it includes; ``code``: every
    ``!function`` there, also where another file's key replaces it, as the harness imports that all the same.
    """

    keys: Keys
    files: list[Path]
    code: list[Code]

    @property
    def is_group(self) -> bool:
        """Whether it is a group of tasks."""
        return "group" in self.keys and "class" not in self.keys


class Leaf(NamedTuple):
    """A task as it will be loaded: its ``name`` and its ``keys``."""

    name: str
    keys: Keys

    def get(self, key: str) -> Any:
        """The value of a key; None where it has none."""
        return self.keys[key][0] if key in self.keys else None


_FUNCTION = "!function"
"""The tag of a value that the harness imports, and so runs, while it reads a file."""

_LARGEST = 5_000_000
"""Bytes of a task file; those of the harness have up to some hundred thousand."""


class _CodeName(str):
    """The text of a ``!function`` value, which stands for what the harness would import."""


def read_task_file(path: Path) -> TaskFile:
    """The file at ``path``, merged with what it includes as the harness merges (lm_eval/tasks/_yaml_loader.py, 0.4.13).

    Raises ProtocolError, with file and line, for what is no YAML, has a tag but ``!function``, is no mapping, includes
    what is not there, or includes a file twice or itself.
    """
    files, code = list[Path](), list[Code]()
    return TaskFile(_merged(path.expanduser().resolve(), files, code, ()), files, code)


def _merged(
    path: Path, files: list[Path], code: list[Code], heirs: tuple[Path, ...]
) -> dict[str, tuple[Any, Place]]:
    """The keys of one file over those that it includes; they are added to ``files``, and what they call to ``code``."""
    if path in heirs:
        circle = " includes ".join(str(each) for each in (*heirs[heirs.index(path) :], path))
        raise ProtocolError(f"{circle}: a circle; remove one of the includes")
    if path in files:
        raise ProtocolError(
            f"{path} is included twice by {heirs[0]}, which the harness refuses; include it once"
        )
    files.append(path)
    own = _read(path, code)
    includes, here = own.pop("include", ([], Place(path, 1)))
    keys: dict[str, tuple[Any, Place]] = {}
    for name in includes if isinstance(includes, list) else [includes]:
        if not isinstance(name, str) or isinstance(name, _CodeName):
            raise ProtocolError(f"{here}: include is {name!r}; it must be the name of a file")
        inner = (path.parent / name).expanduser().resolve()
        if not inner.is_file():
            raise ProtocolError(f"{here}: include names {name}, and {inner} is no file")
        keys |= _merged(inner, files, code, (*heirs, path))
        keys.pop("task_list", None)
    return keys | own


def _read(path: Path, code: list[Code]) -> dict[str, tuple[Any, Place]]:
    """The keys of one file and their places; what it calls is added to ``code``."""
    import yaml

    try:
        text = read_text(path, _LARGEST)
    except OSError as error:
        raise ProtocolError(f"{path} can't be read: {error.strerror}; name a task file") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(node, yaml.MappingNode):
            raise ProtocolError(f"{path} holds no keys; write a task as `task: NAME` and so on")
        code += (
            Code(Place(path, line), key, spelled) for line, key, spelled in _calls(node, "", set())
        )
        places = {str(key.value): Place(path, key.start_mark.line + 1) for key, _ in node.value}
        config = yaml.load(text, Loader=_loader(yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = path if mark is None else Place(path, mark.line + 1)
        raise ProtocolError(
            f"{where}: no valid task file: {error.problem or error.context}"
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ProtocolError(
            f"{path} is no valid task file: {str(error)[:200] or type(error).__name__}"
        ) from error
    if wrong := [key for key in config if not isinstance(key, str)]:
        raise ProtocolError(f"{path}: key {wrong[0]!r} is no text; write it in quotes")
    return {key: (value, places.get(key, Place(path, 1))) for key, value in config.items()}


def _loader(base: Any) -> Any:
    """A loader of YAML like ``base``, with functions unresolved."""
    loader: Any = type("Loader", (base,), {})
    loader.add_constructor(_FUNCTION, lambda loader, node: _CodeName(loader.construct_scalar(node)))
    return loader


def _calls(node: Any, key: str, seen: set[int]) -> Iterator[tuple[int, str, str]]:
    """(line, key, text) of every ``!function`` below a node of YAML, which anchors can make a circle."""
    import yaml

    if id(node) in seen:
        return
    seen.add(id(node))
    if node.tag == _FUNCTION:
        yield node.start_mark.line + 1, key or "the file", str(node.value)
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            for each in (name, value):
                yield from _calls(each, f"{key}.{name.value}".strip("."), seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _calls(value, f"{key}[{number}]", seen)


_DEEPEST = 200
"""Levels of lists in lists; the parser in C that the harness uses ends the process some thousand levels below."""


def check_folder(folder: Path) -> None:
    """Raise ProtocolError for a file below ``folder`` that holds up or ends whoever reads it, as the harness reads all.

    That is a pipe, a device, and what is too large or too deep, also where a task file includes it.  Other faults of a
    file matter only to who asks for its tasks.
    """
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    waiting, seen = list(folder.rglob("*.yaml")), set[Path]()
    while waiting:
        try:
            path = waiting.pop().resolve()
            if path in seen or not path.exists():
                continue
            seen.add(path)
            if not path.is_file() or path.stat().st_size > _LARGEST:
                raise ProtocolError(
                    f"{path} is no task file, and the harness reads all of {folder}; remove it there"
                )
            depth, text = 0, path.read_bytes()
            for event in yaml.parse(text, Loader=base):
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
                    event, yaml.CollectionEndEvent
                )
                if depth > _DEEPEST:
                    raise ProtocolError(
                        f"{path} has more than {_DEEPEST} levels; remove it from {folder}"
                    )
            config = yaml.load(text, Loader=_loader(base))
        except (yaml.YAMLError, OSError, ValueError):
            continue
        includes = config.get("include") if isinstance(config, dict) else None
        names = includes if isinstance(includes, list) else [includes]
        waiting += [path.parent / name for name in names if isinstance(name, str)]


GROUP_KEYS = ("group", "group_alias", "task", "aggregate_metric_list", "metadata")
"""Keys of a group itself; all its others are overrides of its tasks."""

ASKED = ("multiple_choice", "loglikelihood")
"""Output types that are asked here."""

_PLAIN_FORMATS = ("json", "csv", "parquet", "arrow", "text")
"""Formats of data files that hold nothing but data; of the others of ``datasets``, some hold pickles or queries."""

_STRUCTURE = {"task", "tag", "group", "task_list", "class", "include"}
_UNUSED = {
    "use_prompt": "prompts of promptsource",
    "doc_to_image": "pictures",
    "doc_to_audio": "sound",
}


def further_code(leaf: Leaf) -> Iterator[Code]:
    """What of a task runs code though no ``!function`` says so: loading scripts, classes, metrics by name."""

    from lm_eval.api.registry import METRIC_REGISTRY

    def code(key: str, names: str) -> Code:
        return Code(leaf.keys[key.partition(".")[0]][1], key, names)

    kwargs, path, kind = leaf.get("dataset_kwargs"), leaf.get("dataset_path"), leaf.get("class")
    if isinstance(kwargs, dict) and kwargs.get("trust_remote_code"):
        yield code("dataset_kwargs.trust_remote_code", "the loading script of the data")
        if path is not None:
            yield code(
                "dataset_path", f"{path}: its loading script"
            )  # the other key may be of a trusted file
    if isinstance(path, str) and not isinstance(path, _CodeName) and _runs(path):
        yield code("dataset_path", f"{path}: a script, or a format that can hold code")
    if "class" in leaf.keys and not isinstance(kind, _CodeName):
        yield code("class", str(kind))
    for metric in leaf.get("metric_list") or ():
        name = metric.get("metric") if isinstance(metric, dict) else None
        if isinstance(name, str) and not isinstance(name, _CodeName):
            if metric.get("hf_evaluate"):
                yield code("metric_list", f"{name}: a script of the package evaluate")
            elif leaf.get("process_results") is None and name not in METRIC_REGISTRY:
                yield code(
                    "metric_list",
                    f"{name}: no metric of the harness, so a script of the package evaluate",
                )


def _runs(path: str) -> bool:
    """Whether opening the data at ``path`` can run code."""
    folder = Path(path)
    script = path.endswith(".py") or (folder.is_dir() and (folder / f"{folder.name}.py").exists())
    builder = path.isidentifier() and find_spec(f"datasets.packaged_modules.{path}") is not None
    return script or (builder and path not in _PLAIN_FORMATS)


def check_tasks(
    name: str,
    group: Collection[str] | None,
    leaves: Sequence[Leaf],
    code: Sequence[Code],
    allow_code: bool,
) -> None:
    """Raise ProtocolError with everything that keeps the tasks called ``name`` from being loaded.

    ``group``: the keys of the group, if it is one.  ``code`` is named with file and line, unless it is allowed.
    """
    problems = [problem for leaf in leaves for problem in _problems(leaf)]
    if group is not None:
        known = {*GROUP_KEYS, *_keys_of_tasks()[0], *_STRUCTURE}
        unknown = [key for key in group if key not in known]
        problems += [
            f"group {name}: {key} is no key; {did_you_mean(key, known)}" for key in unknown
        ]
    if problems:
        raise ProtocolError.of_problems(list(dict.fromkeys(problems)))
    if code and not allow_code:
        lines = [str(each) for each in dict.fromkeys(code)]
        more = [f"and {len(lines) - 24} more"] if len(lines) > 24 else []
        raise ProtocolError(
            f"task {name} runs Python code of its files with your rights: read it, and allow task code to ask the "
            "task all the same",
            [*lines[:24], *more],
        )


@lru_cache(maxsize=1)
def _keys_of_tasks() -> tuple[set[str], set[str]]:
    """The keys that the harness knows in a task, and in its ``fewshot_config``."""
    from lm_eval.api.task import TaskConfig
    from lm_eval.config.task import FewshotConfig

    return {axis.name for axis in fields(TaskConfig)}, {axis.name for axis in fields(FewshotConfig)}


def _problems(leaf: Leaf) -> Iterator[str]:
    if (output := leaf.get("output_type")) not in ASKED:
        unsaid = (
            " (it says none, which means generate_until)" if "output_type" not in leaf.keys else ""
        )
        output = "generate_until" if unsaid else output
        yield f"task {leaf.name} has output type {output}; here are asked {' and '.join(ASKED)}{unsaid}"
        return

    keys, shot_keys = _keys_of_tasks()
    known = keys | _STRUCTURE
    wrong = [
        (key, f"{key} is no key of a task; {did_you_mean(key, known)}")
        for key in leaf.keys
        if key not in known
    ]
    unused = [key for key in _UNUSED if leaf.get(key) is not None]
    wrong += [(key, f"{key}: tasks with {_UNUSED[key]} are not asked here") for key in unused]
    shots = leaf.get("fewshot_config")
    if isinstance(shots, dict):
        others = [str(key) for key in shots if key not in shot_keys]
        about = [
            f"{key} is no key of fewshot_config; {did_you_mean(key, shot_keys)}" for key in others
        ]
        wrong += [("fewshot_config", text) for text in about]
    elif shots is not None:
        wrong.append(("fewshot_config", f"fewshot_config is {shots!r}; it must hold keys"))
    filters = leaf.get("filter_list")
    for each in filters if isinstance(filters, list) else ():
        for step in each.get("filter", ()) if isinstance(each, dict) else ():
            if not isinstance(step, dict) or step.get("function") != "take_first":
                wrong.append(
                    (
                        "filter_list",
                        f"filter {step!r} changes what is scored; leave filter_list out",
                    )
                )
    number = leaf.get("num_fewshot")
    if number is not None and (not isinstance(number, int) or number < 0):
        wrong.append(
            ("num_fewshot", f"num_fewshot is {number!r}; it must be a whole number from 0 up")
        )
    yield from (f"{leaf.keys[key][1]}: {text}" for key, text in wrong)
