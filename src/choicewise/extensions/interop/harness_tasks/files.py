"""Read selectors and files of harness tasks, and find the code that they would run.

The harness finds tasks, groups and tags, loads them and makes their requests (``load.py``).  Here
its files are read as data, with their includes, so that no code of a stranger's file runs unseen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from choicewise.errors import ProtocolError, did_you_mean, first_lines
from choicewise.util.files import read_text

PREFIX = "lm-eval:"
"""Prefix of the name of every harness task."""

SHOTS = "shots"
"""Axis that the harness changes by its option for the number of few-shot examples."""

LISTED = 24
"""Lines of an error about the rows or the code of a task; it counts the others."""

_FILE = re.compile(r"(.*\.ya?ml)(?=$|:|@)(.*)", re.DOTALL)

# Groups inside groups are called GROUP::NAME.
_NAME = re.compile(r"((?:::|[^:@])*)(.*)", re.DOTALL)


@dataclass(frozen=True)
class TaskSelector:
    """Select a task, group or tag by ``name``, or a task file by its path.

    ``metric``: one of its metrics, None for all.  ``shots``: few-shot examples, None for the task's
    number.  ``changes``: axes that differ, spelled as in ``NAME@AXIS=VALUE``; empty for none.
    """

    name: str
    metric: str | None = None
    shots: int | None = None
    changes: str = ""


def parse_task(selector: str) -> TaskSelector:
    """Parse a selector such as ``lm-eval:arc_easy:acc_norm@shots=5``.

    The metric may also come last.
    Raises ProtocolError if it is malformed.
    """
    # A line without tasks does not need these modules.
    from choicewise.protocols.between import CHANGES, split_changes

    spelled = selector.removeprefix(PREFIX)
    match = _FILE.fullmatch(spelled) or _NAME.fullmatch(spelled)
    assert match is not None
    name = match[1]
    before, spelled_changes = split_changes(match[2])
    spelled_changes, _, last = spelled_changes.partition(":")
    metric = before.removeprefix(":") or last or None
    lacks_changes = CHANGES in match[2] and not spelled_changes
    has_two_metrics = bool(last and before)
    if not name or lacks_changes or has_two_metrics:
        raise ProtocolError(
            f"{selector!r} names no task; write {PREFIX}TASK, {PREFIX}TASK:METRIC, "
            f"{PREFIX}TASK@shots=5 or {PREFIX}PATH.yaml"
        )
    shots = []
    changes = []
    for change in filter(None, spelled_changes.split(",")):
        if change.startswith(f"{SHOTS}="):
            shots.append(change.partition("=")[2])
        else:
            changes.append(change)
    number = None
    if shots:
        if len(shots) > 1 or not re.fullmatch("[0-9]+", shots[0]):
            raise ProtocolError(
                f"{selector!r}: {SHOTS} is {', '.join(shots)!r}; it must be one whole number"
            )
        number = int(shots[0])
    return TaskSelector(name, metric, number, ",".join(changes))


class Position(NamedTuple):
    """Name the file and the line (from 1) of a key."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


class Code(NamedTuple):
    """Name Python code in the value of a ``key`` such as ``fewshot_config.samples``."""

    position: Position
    key: str
    names: str

    def __str__(self) -> str:
        return f"{self.position}: {self.key}: {self.names}"


Keys = Mapping[str, tuple[Any, Position]]
"""Value and position of each key."""


@dataclass(frozen=True)
class TaskFile:
    """Hold a task file with everything that it includes.

    ``keys``: those of the file over those it includes.  ``files``: itself and its includes.
    ``code``: every ``!function`` in them, also if another file's key replaces it, because the
    harness imports it all the same.
    """

    keys: Keys = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)

    @property
    def is_group(self) -> bool:
        """Return whether it is a group of tasks."""
        return "group" in self.keys and "class" not in self.keys


class Leaf(NamedTuple):
    """Hold the ``name`` and the ``keys`` of a task to be loaded."""

    name: str
    keys: Keys

    def get(self, key: str) -> Any:
        """Return the value of a key, None if it has none."""
        if key not in self.keys:
            return None
        value, _ = self.keys[key]
        return value


_FUNCTION = "!function"
"""Tag of a value that the harness imports, and so runs, while it reads a file."""

_LARGEST = 5_000_000
"""Bytes of a task file; those of the harness have up to some hundred thousand."""


class _CodeName(str):
    """Hold the text of a ``!function`` value, which the harness would import."""


def read_task_file(path: Path) -> TaskFile:
    """Read a task file, merged with its includes (lm_eval/tasks/_yaml_loader.py, 0.4.13).

    Raises ProtocolError, with file and line, for a file that is no YAML, has a tag but
    ``!function``, is no mapping, or includes an absent file, a file twice, or itself.
    """
    file = TaskFile()
    keys = _merged(path.expanduser().resolve(), file, ())
    return TaskFile(keys, file.files, file.code)


def _merged(path: Path, into: TaskFile, heirs: tuple[Path, ...]) -> dict[str, tuple[Any, Position]]:
    """Return the keys of a file over its includes'; add paths and code to ``into``."""
    if path in heirs:
        circle = (*heirs[heirs.index(path) :], path)
        names = " includes ".join(map(str, circle))
        raise ProtocolError(f"{names}: a circle; remove one of the includes")
    if path in into.files:
        raise ProtocolError(
            f"{path} is included twice by {heirs[0]}, which the harness refuses; include it once"
        )
    into.files.append(path)
    keys_of_file = _read(path, into.code)
    includes, position = keys_of_file.pop("include", ([], Position(path, 1)))
    if not isinstance(includes, list):
        includes = [includes]
    keys: dict[str, tuple[Any, Position]] = {}
    for name in includes:
        if not isinstance(name, str) or isinstance(name, _CodeName):
            raise ProtocolError(f"{position}: include is {name!r}; it must be the name of a file")
        inner = (path.parent / name).expanduser().resolve()
        if not inner.is_file():
            raise ProtocolError(f"{position}: include names {name}, and {inner} is no file")
        keys |= _merged(inner, into, (*heirs, path))
        # A list of tasks is not inherited.
        keys.pop("task_list", None)
    return keys | keys_of_file


def _read(path: Path, code: list[Code]) -> dict[str, tuple[Any, Position]]:
    """Return the keys of a file with their positions; its calls are added to ``code``."""
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
        code += _calls(node, path, "", set())
        config = yaml.load(text, Loader=_loader(yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where: Path | Position = path
        if mark is not None:
            where = Position(path, mark.line + 1)
        raise ProtocolError(
            f"{where}: not a valid task file: {error.problem or error.context}"
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ProtocolError(
            f"{path} is not a valid task file: {str(error)[:200] or type(error).__name__}"
        ) from error
    positions = {}
    for key, _ in node.value:
        positions[str(key.value)] = Position(path, key.start_mark.line + 1)
    keys = {}
    for key, value in config.items():
        if not isinstance(key, str):
            raise ProtocolError(f"{path}: key {key!r} is not a text; write it in quotes")
        # Keys of a merge (<<) have no position of their own.
        keys[key] = (value, positions.get(key, Position(path, 1)))
    return keys


def _loader(base: Any) -> Any:
    """Return a loader of YAML like ``base`` that leaves functions unresolved."""

    def code_name(loader: Any, node: Any) -> _CodeName:
        return _CodeName(loader.construct_scalar(node))

    loader: Any = type("Loader", (base,), {})
    loader.add_constructor(_FUNCTION, code_name)
    return loader


def _calls(node: Any, path: Path, key: str, seen: set[int]) -> Iterator[Code]:
    """Yield every ``!function`` in a node of YAML."""
    import yaml

    # Anchors can make the nodes a circle.
    if id(node) in seen:
        return
    seen.add(id(node))
    if node.tag == _FUNCTION:
        position = Position(path, node.start_mark.line + 1)
        yield Code(position, key or "the file", str(node.value))
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            inner_key = f"{key}.{name.value}".strip(".")
            yield from _calls(name, path, inner_key, seen)
            yield from _calls(value, path, inner_key, seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _calls(value, path, f"{key}[{number}]", seen)


_DEEPEST = 200
"""Levels of nested lists; some thousands end the process in the harness's parser."""


def check_folder(folder: Path) -> None:
    """Check the files below ``folder``, all of which the harness reads, and their includes.

    Raises ProtocolError for a pipe, a device, and a file that is too large or too deep, which would
    hold up or end the process.  Other faults of a file matter only to who selects its tasks.
    """
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    waiting = list(folder.rglob("*.yaml"))
    seen: set[Path] = set()
    while waiting:
        try:
            path = waiting.pop().resolve()
            if path in seen or not path.exists():
                continue
            seen.add(path)
            if not path.is_file() or path.stat().st_size > _LARGEST:
                raise ProtocolError(
                    f"{path} is not a task file, but the harness reads all of {folder}; remove it "
                    "there"
                )
            content = path.read_bytes()
            if _depth(content, base) > _DEEPEST:
                raise ProtocolError(
                    f"{path} has more than {_DEEPEST} levels; remove it from {folder}"
                )
            config = yaml.load(content, Loader=_loader(base))
        except (yaml.YAMLError, OSError, ValueError):
            continue
        if not isinstance(config, dict):
            continue
        includes = config.get("include")
        if not isinstance(includes, list):
            includes = [includes]
        waiting += [path.parent / name for name in includes if isinstance(name, str)]


def _depth(content: bytes, loader: Any) -> int:
    """Return how deep lists and mappings are nested, counted to one level beyond the limit."""
    import yaml

    depth = 0
    deepest = 0
    for event in yaml.parse(content, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            deepest = max(depth, deepest)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if deepest > _DEEPEST:
            break
    return deepest


GROUP_KEYS = ("group", "group_alias", "task", "aggregate_metric_list", "metadata")
"""Keys of a group itself; all others are overrides of its tasks."""

OUTPUT_TYPES = ("multiple_choice", "loglikelihood")
"""Output types of tasks that can be scored here."""

_PLAIN_FORMATS = ("json", "csv", "parquet", "arrow", "text")
"""Formats of plain data; of the others of ``datasets``, some hold pickles or queries."""

_STRUCTURE = {"task", "tag", "group", "task_list", "class", "include"}
_UNUSED = {
    "use_prompt": "prompts of promptsource",
    "doc_to_image": "pictures",
    "doc_to_audio": "sound",
}


def further_code(leaf: Leaf) -> Iterator[Code]:
    """Yield the code of a task without ``!function``: loading scripts, classes, metrics by name."""
    path = leaf.get("dataset_path")
    kwargs = leaf.get("dataset_kwargs")
    if isinstance(kwargs, dict) and kwargs.get("trust_remote_code"):
        position = leaf.keys["dataset_kwargs"][1]
        key = "dataset_kwargs.trust_remote_code"
        yield Code(position, key, "the loading script of the data")
        if path is not None:
            # A trusted file may hold the keyword, and another file the path.
            yield _key_code(leaf, "dataset_path", f"{path}: its loading script")
    if isinstance(path, str) and not isinstance(path, _CodeName) and _runs(path):
        names = f"{path}: a script, or a format that can hold code"
        yield _key_code(leaf, "dataset_path", names)
    if "class" in leaf.keys and not isinstance(leaf.get("class"), _CodeName):
        yield _key_code(leaf, "class", str(leaf.get("class")))
    for metric in leaf.get("metric_list") or ():
        script = _metric_script(leaf, metric)
        if script:
            yield _key_code(leaf, "metric_list", script)


def _key_code(leaf: Leaf, key: str, names: str) -> Code:
    _, position = leaf.keys[key]
    return Code(position, key, names)


def _metric_script(leaf: Leaf, metric: Any) -> str:
    """Return the script that computes a metric, in words, "" if the harness computes it."""
    from lm_eval.api.registry import METRIC_REGISTRY

    if not isinstance(metric, dict):
        return ""
    name = metric.get("metric")
    if not isinstance(name, str) or isinstance(name, _CodeName):
        return ""
    if metric.get("hf_evaluate"):
        return f"{name}: a script of the package evaluate"
    if leaf.get("process_results") is None and name not in METRIC_REGISTRY:
        return f"{name}: no metric of the harness, so a script of the package evaluate"
    return ""


def _runs(path: str) -> bool:
    """Return whether opening the data at ``path`` can run code."""
    if path.endswith(".py"):
        return True
    # The library datasets runs the script of a folder that has its name.
    folder = Path(path)
    if folder.is_dir() and (folder / f"{folder.name}.py").exists():
        return True
    if not path.isidentifier() or path in _PLAIN_FORMATS:
        return False
    return find_spec(f"datasets.packaged_modules.{path}") is not None


def check_tasks(
    name: str,
    group: Collection[str] | None,
    leaves: Sequence[Leaf],
    code: Sequence[Code],
    allow_code: bool,
) -> None:
    """Check that the tasks called ``name`` can be loaded.

    ``group``: the keys of the group, None for a task.  Raises ProtocolError with all problems, and
    with all ``code`` unless it is allowed.
    """
    problems: dict[str, None] = {}
    for leaf in leaves:
        problems.update(dict.fromkeys(_problems(leaf)))
    known_keys = {*GROUP_KEYS, *_task_keys()}
    for key in group or ():
        if key not in known_keys:
            problem = f"group {name}: {key} is not a key; {did_you_mean(key, known_keys)}"
            problems[problem] = None
    if problems:
        raise ProtocolError.of_problems(list(problems))
    # Problems come first: they remain if the code is allowed.
    if code and not allow_code:
        lines = list(map(str, dict.fromkeys(code)))
        raise ProtocolError(
            f"task {name} runs Python code of its files with your rights; read it, "
            "then allow task code",
            first_lines(lines, LISTED),
        )


@lru_cache(maxsize=1)
def _task_keys() -> set[str]:
    """Return the keys of a task that may be in a file."""
    from lm_eval.api.task import TaskConfig

    return _STRUCTURE.union(axis.name for axis in fields(TaskConfig))


def _problems(leaf: Leaf) -> Iterator[str]:
    """Yield why a task can't be scored here."""
    output_type = leaf.get("output_type")
    if output_type not in OUTPUT_TYPES:
        unsaid = ""
        if "output_type" not in leaf.keys:
            output_type = "generate_until"
            unsaid = " (it names none, which means generate_until)"
        yield (
            f"task {leaf.name} has output type {output_type}; it must be "
            f"{' or '.join(OUTPUT_TYPES)}{unsaid}"
        )
        return
    task_keys = _task_keys()
    problems = []
    for key in leaf.keys:
        if key not in task_keys:
            problems.append((key, f"{key} is not a key of a task; {did_you_mean(key, task_keys)}"))
    for key, use in _UNUSED.items():
        if leaf.get(key) is not None:
            problems.append((key, f"{key}: tasks with {use} can't be run here"))
    for problem in _shot_problems(leaf.get("fewshot_config")):
        problems.append(("fewshot_config", problem))
    for problem in _filter_problems(leaf.get("filter_list")):
        problems.append(("filter_list", problem))
    number = leaf.get("num_fewshot")
    if number is not None and (not isinstance(number, int) or number < 0):
        problem = f"num_fewshot is {number!r}; it must be a whole number from 0 up"
        problems.append(("num_fewshot", problem))
    for key, problem in problems:
        _, position = leaf.keys[key]
        yield f"{position}: {problem}"


def _shot_problems(config: Any) -> Iterator[str]:
    from lm_eval.config.task import FewshotConfig

    if config is None:
        return
    if not isinstance(config, dict):
        yield f"fewshot_config is {config!r}; it must hold keys"
        return
    shot_keys = [axis.name for axis in fields(FewshotConfig)]
    for key in map(str, config):
        if key not in shot_keys:
            yield f"{key} is not a key of fewshot_config; {did_you_mean(key, shot_keys)}"


def _filter_problems(filters: Any) -> Iterator[str]:
    """Yield the filters that change the answers; ``take_first`` keeps them."""
    if not isinstance(filters, list):
        return
    for pipeline in filters:
        if not isinstance(pipeline, dict):
            continue
        for step in pipeline.get("filter", ()):
            if not isinstance(step, dict) or step.get("function") != "take_first":
                yield f"filter {step!r} changes what is scored; leave filter_list out"
