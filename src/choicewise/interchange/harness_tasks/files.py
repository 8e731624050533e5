"""Which task files; what of them is code.

The package ``lm_eval`` reads the files, loads the data and makes the requests (:mod:`.loading`).  Either a protocol of
ours renders them, too, to the letter, or they are kept as they are (:mod:`.task_form`).

The harness reads all its 13,000 files to know the names in them, which takes ten seconds; looking for one name in their
texts takes one.

The rules are those of lm_eval/tasks/_factory.py (0.4.13), so that what is checked here is what the harness will load.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from choicewise.errors import ProtocolError, did_you_mean

ASKED = ("multiple_choice", "loglikelihood")
"""Output types that are asked here."""

DEFAULT = "generate_until"
"""The output type of a task that says none."""

PLAIN_FORMATS = ("json", "csv", "parquet", "arrow", "text")
"""Formats of data files that hold nothing but data; of the others of ``datasets``, some hold pickles or queries."""

_STRUCTURE = {"task", "tag", "group", "task_list", "class", "include"}
_UNUSED = {"use_prompt": "prompts of promptsource", "doc_to_image": "pictures", "doc_to_audio": "sound"}


def check_tree(tree: TaskTree, allow_code: bool) -> None:
    """Raise ProtocolError with everything that keeps a tree from being loaded.

    Code is named with its file and line, unless it is allowed.
    """
    problems = [problem for leaf in tree.leaves for problem in _problems(leaf)]
    if tree.group is not None:
        overrides = {*GROUP_KEYS, *_known_keys(), *_STRUCTURE}
        problems += [
            f"group {tree.name}: {key} is no key; {did_you_mean(key, overrides)}"
            for key in tree.group
            if key not in overrides
        ]
    if problems:
        raise ProtocolError.about(list(dict.fromkeys(problems)))
    if not allow_code and (code := [*tree.code, *(each for leaf in tree.leaves for each in _further_code(leaf))]):
        lines = [str(each) for each in dict.fromkeys(code)]
        more = [f"and {len(lines) - 24} more"] if len(lines) > 24 else []
        raise ProtocolError(
            f"task {tree.name} runs Python code of its files with your rights: read it, and allow task code to ask the "
            "task all the same",
            [*lines[:24], *more],
        )


def _problems(leaf: Leaf) -> Iterator[str]:
    output = leaf.config.get("output_type", DEFAULT)
    if output not in ASKED:
        yield (
            f"task {leaf.name} has output type {output}; here are asked {' and '.join(ASKED)}"
            + (" (it says none, which means generate_until)" if "output_type" not in leaf.config else "")
        )
        return
    known = {*_known_keys(), *_STRUCTURE}
    for key in leaf.config:
        if key not in known:
            yield f"{leaf.place(key)}: {key} is no key of a task; {did_you_mean(key, known)}"
    for key, what in _UNUSED.items():
        if leaf.config.get(key) is not None:
            yield f"{leaf.place(key)}: {key}: tasks with {what} are not asked here"
    shots = leaf.config.get("fewshot_config")
    if shots is not None and not isinstance(shots, dict):
        yield f"{leaf.place('fewshot_config')}: fewshot_config is {shots!r}; it must hold keys"
    for key in shots if isinstance(shots, dict) else ():
        if key not in (keys := _known_shot_keys()):
            yield f"{leaf.place('fewshot_config')}: {key} is no key of fewshot_config; {did_you_mean(str(key), keys)}"
    yield from _filter_problems(leaf)
    number = leaf.config.get("num_fewshot")
    if number is not None and (not isinstance(number, int) or number < 0):
        yield f"{leaf.place('num_fewshot')}: num_fewshot is {number!r}; it must be a whole number from 0 up"


def _filter_problems(leaf: Leaf) -> Iterator[str]:
    """Filters change answers before they are scored, which means something for generated text alone."""
    filters = leaf.config.get("filter_list")
    steps = (
        [step for each in filters if isinstance(each, dict) for step in each.get("filter", ())]
        if isinstance(filters, list)
        else []
    )
    for step in steps:
        if not isinstance(step, dict) or step.get("function") != "take_first":
            yield f"{leaf.place('filter_list')}: filter {step!r} changes what is scored; leave filter_list out"


def _further_code(leaf: Leaf) -> Iterator[Code]:
    """What runs code though no ``!function`` says so."""

    def code(key: str, names: str) -> Code:
        return Code(leaf.places.get(key.partition(".")[0], Place(Path(leaf.name), 0)), key, names)

    kwargs = leaf.config.get("dataset_kwargs") or {}
    if isinstance(kwargs, dict) and kwargs.get("trust_remote_code"):
        yield code("dataset_kwargs.trust_remote_code", "the loading script of the data")
    path = leaf.config.get("dataset_path")
    if isinstance(path, str) and not isinstance(path, CodeName) and _runs(path):
        yield code("dataset_path", f"{path}: a script, or a format that can hold code")
    if "class" in leaf.config and not isinstance(leaf.config["class"], CodeName):
        yield code("class", str(leaf.config["class"]))
    for metric in leaf.config.get("metric_list") or ():
        name = metric.get("metric") if isinstance(metric, dict) else None
        if isinstance(name, str) and not isinstance(name, CodeName):
            if metric.get("hf_evaluate"):
                yield code("metric_list", f"{name}: a script of the package evaluate")
            elif leaf.config.get("process_results") is None and name not in _known_metrics():
                yield code("metric_list", f"{name}: no metric of the harness, so a script of the package evaluate")


def _runs(path: str) -> bool:
    """Whether opening the data at ``path`` can run code."""
    from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

    if path in PLAIN_FORMATS:
        return False
    folder = Path(path)
    script = folder / f"{folder.name}.py"
    return path in _PACKAGED_DATASETS_MODULES or path.endswith(".py") or (folder.is_dir() and script.exists())


def _known_keys() -> Collection[str]:
    from lm_eval.api.task import TaskConfig

    return [axis.name for axis in fields(TaskConfig)]


def _known_shot_keys() -> Collection[str]:
    from lm_eval.config.task import FewshotConfig

    return [axis.name for axis in fields(FewshotConfig)]


def _known_metrics() -> Collection[str]:
    from lm_eval.api import registry

    return [*registry.METRIC_REGISTRY]


GROUP_KEYS = ("group", "group_alias", "task", "aggregate_metric_list", "metadata")
"""Keys of a group itself; all its others are overrides of its tasks."""


class Place(NamedTuple):
    """Where a key stands: a file, and a line counted from 1."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True)
class Leaf:
    """A task as it will be loaded: its ``name``, its ``config``, and where each key of it stands."""

    name: str
    config: Mapping[str, Any]
    places: Mapping[str, Place]

    def place(self, key: str) -> str:
        """Where a key stands, or the name where it stands nowhere."""
        return str(self.places.get(key, f"task {self.name}"))


class Code(NamedTuple):
    """A value that names Python code: the ``key`` it belongs to (``fewshot_config.samples``), and what it names."""

    place: Place
    key: str
    names: str

    def __str__(self) -> str:
        return f"{self.place}: {self.key}: {self.names}"


@dataclass(frozen=True)
class TaskTree:
    """The ``leaves`` of what was named.

    ``group``: the keys of the group, None for a task and a tag; ``is_tag``: whether it is one.  ``files``: all that
    will be read; ``code``: all that names code in them.
    """

    name: str
    group: Mapping[str, Any] | None
    leaves: tuple[Leaf, ...]
    files: tuple[Path, ...]
    code: tuple[Code, ...]
    is_tag: bool = False


def task_tree(name: str, names: TaskNames) -> TaskTree:
    """The tree of a task, group or tag, or of a task file.

    Raises ProtocolError for a name that stands nowhere, a group that holds itself, and what is no task file.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise ProtocolError(f"{path} is no file; name a task file, or a task of the harness by its name")
        file = read_task_file(path)
        own = file.config.get("group") or file.config.get("task")
        if not isinstance(own, str):
            raise ProtocolError(f"{path} has neither `task: NAME` nor `group: NAME`, so it is a template; name a task")
        named = Named(own, file)
    else:
        named = names.find(name) or _none(names, name)
    growing = _Growing(names)
    leaves = tuple(growing.leaves(named, {}, {}, ()))
    group = named.file.config if named.is_group and named.file is not None else None
    return TaskTree(
        named.name,
        group,
        leaves,
        tuple(dict.fromkeys(growing.files)),
        tuple(dict.fromkeys(growing.code)),
        named.file is None,
    )


def _none(names: TaskNames, name: str) -> Named:
    raise names.unknown(name)


class _Growing:
    """The files and the code of a tree, as they are met."""

    def __init__(self, names: TaskNames) -> None:
        self._names = names
        self.files: list[Path] = []
        self.code: list[Code] = []

    def leaves(
        self, named: Named, overrides: Mapping[str, Any], places: Mapping[str, Place], above: tuple[str, ...]
    ) -> Iterator[Leaf]:
        """The tasks of what was named, with ``overrides`` over their own keys."""
        if named.name in above:
            raise ProtocolError(f"{' holds '.join((*above, named.name))}: groups in a circle; remove one of them")
        if named.file is None:
            for name in named.tagged:
                yield from self.leaves(self._named(name, None), overrides, places, (*above, named.name))
            return
        self._add(named.file)
        if named.is_group:
            yield from self._members(named.name, named.file.config, named.file, overrides, places, above)
            return
        config = {**named.file.config, **overrides}
        yield Leaf(str(config.get("task", named.name)), config, {**named.file.places, **places})

    def _members(
        self,
        name: str,
        config: Mapping[str, Any],
        file: TaskFile,
        overrides: Mapping[str, Any],
        places: Mapping[str, Place],
        above: tuple[str, ...],
    ) -> Iterator[Leaf]:
        own = {key: value for key, value in config.items() if key not in GROUP_KEYS}
        merged = {**own, **overrides}
        here = file.places.get("task", Place(file.path, 1))
        merged_places = {**{key: file.places.get(key, here) for key in own}, **places}
        members = config.get("task")
        if not isinstance(members, str | list) or not members:
            raise ProtocolError(f"{here}: group {name} names no tasks; write `task:` and a list of names")
        for member in [members] if isinstance(members, str) else members:
            if isinstance(member, str):
                yield from self._member(name, member, merged, merged_places, here, above)
            elif isinstance(member, dict) and isinstance(member.get("group"), str):
                inner = member["group"]
                more = {**merged, **{key: value for key, value in member.items() if key != "group"}}
                more_places = {**merged_places, **dict.fromkeys(member, here)}
                if (known := self._names.find(inner)) is not None:
                    yield from self.leaves(known, more, more_places, (*above, name))
                else:
                    yield from self._members(f"{name}::{inner}", member, file, merged, merged_places, (*above, name))
            elif isinstance(member, dict) and isinstance(member.get("task"), str):
                more, more_places = {**merged, **member}, {**merged_places, **dict.fromkeys(member, here)}
                yield from self._member(name, member["task"], more, more_places, here, above)
            else:
                raise ProtocolError(f"{here}: group {name} holds {member!r}; it must be a name, or keys with `task`")

    def _member(
        self,
        group: str,
        name: str,
        overrides: Mapping[str, Any],
        places: Mapping[str, Place],
        here: Place,
        above: tuple[str, ...],
    ) -> Iterator[Leaf]:
        if (known := self._names.find(name)) is not None:
            own = overrides if known.is_group or known.file is None else {"task": name, **overrides}
            yield from self.leaves(known, own, places, (*above, group))
        elif "dataset_path" in overrides or "class" in overrides:  # a task that the group itself spells out
            yield Leaf(f"{group}::{name}", {**overrides, "task": f"{group}::{name}"}, places)
        else:
            raise self._names.unknown(name).within(f"{here}: group {group}")

    def _named(self, name: str, here: Place | None) -> Named:
        return self._names.find(name) or _none(self._names, name)

    def _add(self, file: TaskFile) -> None:
        self.files += file.files
        self.code += file.code


_IGNORED = {"__pycache__", ".ipynb_checkpoints"}
_NAMED = re.compile(
    r"""^["']?(?:task|group)["']?[ \t]*:[ \t]*["']?([^\s"'\[\]{}]+)["']?[ \t]*(?:#.*)?$""", re.MULTILINE
)
_INCLUDE = re.compile(r"""^["']?include["']?[ \t]*:[ \t]*((?:\n?[ \t]*-.*)+|.*)$""", re.MULTILINE)


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


FUNCTION = "!function"
"""The tag of a value that the harness imports, and so runs, while it reads a file."""

LARGEST = 5_000_000
"""Bytes of a task file; those of the harness have up to some hundred thousand."""


class CodeName(str):
    """The text of a ``!function`` value, which stands for what the harness would import."""


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

    @property
    def is_file(self) -> bool:
        """Whether it names a task file."""
        return self.name.endswith((".yaml", ".yml"))


def is_task(selector: str) -> bool:
    """Whether a selector of protocols names a harness task."""
    return selector.startswith(PREFIX)


def split_tasks(selectors: Iterable[str]) -> tuple[list[str], list[str]]:
    """The selectors that name harness tasks, and the others."""
    every = list(selectors)
    return [each for each in every if is_task(each)], [each for each in every if not is_task(each)]


def parse_task(selector: str) -> TaskSelector:
    """What a selector says: ``lm-eval:arc_easy:acc_norm@shots=5`` (the metric may stand last, too).

    Raises ProtocolError for one that says nothing or is malformed.
    """
    from choicewise.protocols.between import CHANGES, split_changes  # which a line without tasks does not need

    spelled = selector.removeprefix(PREFIX)
    if match := _FILE.fullmatch(spelled):
        name, rest = match[1], match[2]
    else:
        place = re.search("[:@]", spelled.replace("::", "\0\0"))  # groups inside groups are called GROUP::NAME
        name, rest = (spelled[: place.start()], spelled[place.start() :]) if place else (spelled, "")
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
        raise ProtocolError(f"{selector!r}: {SHOTS} is {', '.join(shots)!r}; it must be one whole number")
    others = ",".join(change for change in own if not change.startswith(f"{SHOTS}="))
    return TaskSelector(name, metric, int(shots[0]) if shots else None, others)
