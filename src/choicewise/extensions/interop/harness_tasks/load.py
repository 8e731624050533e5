"""Find and load tasks by the harness's TaskManager, and fill their templates within bounds."""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from choicewise.errors import (
    ChoicewiseError,
    DataError,
    ProtocolError,
    UsageError,
    did_you_mean,
    install_line,
)
from choicewise.extensions.interop.harness_tasks.files import (
    GROUP_KEYS,
    Code,
    Keys,
    Leaf,
    Position,
    TaskFile,
    check_folder,
    further_code,
    read_task_file,
)
from choicewise.tokens.chat_template import CHARACTERS, TEMPLATES, TOO_LONG
from choicewise.util.cache import BoundedCache
from choicewise.util.files import read_bytes
from choicewise.util.isolate import BoundedProcess, Record, serve
from choicewise.util.jsonio import JsonDict, JsonMapping

OLDEST = (0, 4, 12)
"""The first release whose TaskManager loads tasks and groups as objects of their own."""

SEEDS = {"random": 0, "numpy": 1234, "shots": 1234}
"""Default seeds of the harness (lm_eval/evaluator.py, simple_evaluate)."""


def harness_version() -> str:
    """Return the installed release of the harness.  Raises UsageError for none, or one too old."""
    try:
        installed = version("lm_eval")
    except PackageNotFoundError as error:
        raise UsageError(
            f"tasks of the harness need its package: {install_line('harness')}"
        ) from error
    numbers = tuple(int(part) for part in installed.split(".")[:3] if part.isdigit())
    # Older releases have no objects of groups.
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(
            f"lm_eval {installed} is installed, and tasks need {oldest} or later: pip install -U "
            "lm_eval"
        )
    return installed


@dataclass(frozen=True, kw_only=True)
class TaskTree:
    """Hold the tasks (``leaves``) of a name, in the harness's order.

    ``group``: the keys of the group, None for a task or a tag.  ``files``: all files to be read.
    ``code``: the code of files that the harness does not come with.  ``names``: all names, among
    which this one was found.
    """

    name: str
    group: tuple[str, ...] | None
    is_tag: bool
    leaves: tuple[Leaf, ...]
    files: tuple[Path, ...]
    code: tuple[Code, ...]
    names: TaskNames


class TaskNames:
    """List the tasks, groups and tags of the folders ``include`` and of the harness.

    The harness's TaskManager takes ten seconds to read the 13,000 files of the harness, so they are
    read only for a name that the folders lack, and once a process.
    """

    def __init__(self, include: Sequence[Path]) -> None:
        harness_version()
        try:
            import lm_eval.tasks
            from lm_eval.tasks import TaskManager
        except ImportError as error:
            raise UsageError(
                f"the package lm_eval can't be imported ({error}); install it with all it needs"
            ) from error
        self._shipped = Path(lm_eval.tasks.__file__).resolve().parent
        self._include = include
        for folder in include:
            check_folder(folder)
        with quiet():
            self.manager = TaskManager(include_defaults=False, include_path=list(map(str, include)))

    def tree(self, name: str) -> TaskTree:
        """Return the tree of a task, group or tag, or of a task file, without running any of it.

        Raises ProtocolError for an unknown name, a group that holds itself, and a file of no task.
        """
        top: TaskFile | None = None
        if name.endswith((".yaml", ".yml")):
            path = Path(name)
            if not path.is_file():
                raise ProtocolError(
                    f"{path} is not a file; name a task file or a task of the harness"
                )
            top = read_task_file(path)
            name = _name_in_file(path, top)
        else:
            entry = self.known_entry(name)
            if entry.yaml_path is not None:
                top = read_task_file(entry.yaml_path)
        walk = _Walk(self)
        if top is None:
            leaves = tuple(walk.named(name, {}, ()))
        else:
            leaves = tuple(walk.tasks(name, top, {}, ()))
        group = None
        if top is not None and top.is_group:
            group = tuple(top.keys)
        files: dict[Path, None] = {}
        calls: list[Code] = []
        for file in walk.files:
            files.update(dict.fromkeys(file.files))
            calls += file.code
        for leaf in leaves:
            calls += further_code(leaf)
        # The code that the harness comes with is trusted.
        code = [call for call in calls if not call.position.file.is_relative_to(self._shipped)]
        return TaskTree(
            name=name,
            group=group,
            is_tag=top is None,
            leaves=leaves,
            files=tuple(files),
            code=tuple(dict.fromkeys(code)),
            names=self,
        )

    def known_entry(self, name: str) -> Any:
        """Return the harness's entry of a name.  Raises ProtocolError if there is none."""
        entry = self.entry(name)
        if entry is None:
            raise self.unknown(name)
        return entry

    def entry(self, name: str) -> Any | None:
        """Return the harness's entry of a name, None if there is none."""
        index = self.manager.task_index
        if name not in index:
            for shipped_name, entry in _shipped_index().items():
                index.setdefault(shipped_name, entry)
        return index.get(name)

    def unknown(self, name: str) -> ProtocolError:
        """Return the error about a name without an entry."""
        # The harness leaves out a file that it can't read, so the name may be in one of these.
        for folder in self._include:
            for path in sorted(folder.rglob("*.yaml")):
                try:
                    text = read_bytes(path).decode(errors="replace")
                    if re.search(rf"\b{re.escape(name)}\b", text):
                        read_task_file(path)
                except ProtocolError as error:
                    return error.within(f"task {name}")
                except OSError:
                    continue
        return ProtocolError(
            f"no task, group or tag of the harness is called {name!r}; "
            f"{did_you_mean(name, self.manager.task_index)} "
            "(a task file's name ends in .yaml, and further folders of task files can be named)"
        )


def _name_in_file(path: Path, file: TaskFile) -> str:
    name = None
    for key in ("task", "group"):
        if key in file.keys:
            name = file.keys[key][0] or name
    if not isinstance(name, str):
        raise ProtocolError(
            f"{path} has neither `task: NAME` nor `group: NAME`, so it is a template; name a task"
        )
    return name


@dataclass(frozen=True)
class _Walk:
    """Walk down from a name to its tasks; ``files``: those that the harness will read for it.

    ``overrides``: keys that replace those of a task.  ``above``: the groups that it is in.
    """

    names: TaskNames
    files: list[TaskFile] = field(default_factory=list)

    def named(self, name: str, overrides: Keys, above: tuple[str, ...]) -> Iterator[Leaf]:
        """Yield the tasks of a name."""
        entry = self.names.known_entry(name)
        if entry.yaml_path is not None:
            yield from self.tasks(name, read_task_file(entry.yaml_path), overrides, above)
            return
        for tagged in sorted(entry.tags):
            yield from self.named(tagged, overrides, above)

    def tasks(
        self, name: str, file: TaskFile, overrides: Keys, above: tuple[str, ...]
    ) -> Iterator[Leaf]:
        """Yield the tasks of a file."""
        if name in above:
            raise ProtocolError(
                f"{' holds '.join((*above, name))}: groups in a circle; remove one of them"
            )
        self.files.append(file)
        keys = {**file.keys, **overrides}
        if file.is_group:
            position = Position(file.files[0], 1)
            if "task" in file.keys:
                _, position = file.keys["task"]
            yield from self._members(name, file.keys, position, overrides, (*above, name))
            return
        if "task" in keys:
            name = str(keys["task"][0])
        yield Leaf(name, keys)

    def _members(
        self, group: str, keys: Keys, position: Position, overrides: Keys, above: tuple[str, ...]
    ) -> Iterator[Leaf]:
        """Yield the tasks of a group with ``keys``, whose members are at ``position``."""
        group_overrides = {key: value for key, value in keys.items() if key not in GROUP_KEYS}
        group_overrides |= overrides
        members: Any = None
        if "task" in keys:
            members = keys["task"][0]
        if not isinstance(members, str | list) or not members:
            raise ProtocolError(
                f"{position}: group {group} names no tasks; write `task:` and a list of names"
            )
        if isinstance(members, str):
            members = [members]
        for member in members:
            member_keys: dict[str, tuple[Any, Position]] = {}
            name = member
            if isinstance(member, dict):
                member_keys = {key: (value, position) for key, value in member.items()}
                name = member.get("group", member.get("task", member))
            if not isinstance(name, str):
                raise ProtocolError(
                    f"{position}: group {group} holds {member!r}; it must be a name, or keys with "
                    "`task`"
                )
            merged = {**group_overrides, **member_keys}
            merged.pop("group", None)
            inner_name = f"{group}::{name}"
            if self.names.entry(name) is not None:
                yield from self.named(name, merged, above)
            elif "group" in member_keys:
                # Here a group is spelled out in place of a name, and below a task.
                yield from self._members(inner_name, member_keys, position, group_overrides, above)
            elif "dataset_path" in merged or "class" in merged:
                yield Leaf(inner_name, {**merged, "task": (inner_name, position)})
            else:
                raise self.names.unknown(name).within(f"{position}: group {group}")


@lru_cache(maxsize=1)
def _shipped_index() -> JsonMapping:
    from lm_eval.tasks import TaskManager

    with quiet():
        index = TaskManager().task_index
    for entry in index.values():
        # The harness reads the file again when it loads it, and the keys of all take 100 MB.
        entry.cfg = None
    return index


def load_tree(
    tree: TaskTree, spelled: str, templates: TaskTemplates
) -> tuple[list[Any], Any | None]:
    """Return the harness's task objects with their data, and its group object or None.

    ``spelled``: the name, or the path of the file, whose ``tree`` was checked.

    Raises DataError for data that do not exist, ProtocolError for a task that the harness refuses.
    """
    with quiet(), bounded_templates(templates):
        try:
            loaded = tree.names.manager.load(spelled)
        except ChoicewiseError as error:
            raise error.within(f"task {tree.name}") from error
        except Exception as error:
            raise _explained(error, tree) from error
    tasks = list(loaded["tasks"].values())
    if tree.group is None:
        return tasks, None
    groups = loaded.get("groups") or {}
    return tasks, groups.get(tree.name)


def _explained(error: BaseException, tree: TaskTree) -> ChoicewiseError:
    import httpx2
    from datasets.exceptions import DatasetGenerationError
    from huggingface_hub.errors import RepositoryNotFoundError

    absent = (
        FileNotFoundError,
        ConnectionError,
        RepositoryNotFoundError,
        httpx2.ConnectError,
        httpx2.ConnectTimeout,
    )
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    # The harness wraps the errors of datasets, and the first cause tells most.
    first = chain[-1]
    reason = f"{type(first).__name__}: {' '.join(str(first).split())[:300]}"
    if any(isinstance(link, absent) for link in chain):
        return DataError(
            f"task {tree.name}: its data, {_data_names(tree)}, are not on this machine ({reason}); "
            "load them "
            "once with network access, or name local files in a task file that includes this one: "
            "`dataset_path: json` and "
            "`dataset_kwargs: {data_files: {test: FILE.jsonl}}`"
        )
    if any(isinstance(link, DatasetGenerationError) for link in chain):
        return DataError(f"task {tree.name}: its data can't be read ({reason}); correct the files")
    return ProtocolError(f"task {tree.name}: the harness can't load it ({reason})")


def _data_names(tree: TaskTree) -> str:
    """Return the first of the datasets of the tasks, and how many others there are."""
    names: dict[str, None] = {}
    for leaf in tree.leaves:
        words = [str(leaf.get("dataset_path")), leaf.get("dataset_name")]
        names[" ".join(filter(None, words))] = None
    first, *others = names or [""]
    if others:
        return f"{first} and {len(others)} more"
    return first


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the harness and set its random seeds, and restore both afterwards."""
    import datasets
    import numpy as np

    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "lm-eval")]
    levels = [logger.level for logger in loggers]
    bars = datasets.are_progress_bars_disabled()
    state = random.getstate()
    numpy_state = np.random.get_state()
    with ExitStack() as stack:
        for logger, level in zip(loggers, levels, strict=True):
            stack.callback(logger.setLevel, level)
            logger.setLevel(logging.CRITICAL)
        if not bars:
            datasets.disable_progress_bars()
            stack.callback(datasets.enable_progress_bars)
        stack.callback(random.setstate, state)
        stack.callback(np.random.set_state, numpy_state)
        random.seed(SEEDS["random"])
        np.random.seed(SEEDS["numpy"])
        yield


class TaskTemplates(BoundedProcess):
    """Fill Jinja templates with the harness's texts, but in a sandbox and within bounds.

    Templates that reach for Python's insides fail, and values of rows that JSON can't hold
    (pictures, times) are not seen by a template.
    """

    module = "choicewise.extensions.interop.harness_tasks.load"
    limits = TEMPLATES
    called = "a template of the task"
    remedy = "correct the template, or the rows that it is filled with"
    error = ProtocolError

    def __init__(self) -> None:
        super().__init__()
        self.filters: JsonDict = {}
        # The harness fills the same template with the same row several times.
        self._texts = BoundedCache[tuple[str, str], str](20_000)

    def from_string(self, template: str) -> SimpleNamespace:
        """Return an object with the method ``render``, which an environment of Jinja returns."""
        return SimpleNamespace(render=lambda **doc: self.fill(template, doc))

    def fill(self, template: str, doc: JsonMapping) -> str:
        """Fill ``template`` from ``doc``.  Raises ProtocolError if it fails or is too long."""
        spelled = _spelled(doc)
        key = (template, spelled)
        cached = self._texts.get(key)
        if cached is not None:
            return cached
        question = {"templates": [template], "docs": [json.loads(spelled)]}
        try:
            ((text,),) = self._ask(question)["texts"]
        except ProtocolError as error:
            raise ProtocolError(f"{error.message} (template {template[:80]!r})") from error
        self._texts.put(key, text)
        return str(text)

    def fill_all(
        self, templates: Sequence[str], docs: Sequence[JsonMapping]
    ) -> Iterator[list[str]]:
        """Yield the texts of all ``templates`` for each of ``docs``."""
        # So many rows are sent at once.
        for start in range(0, len(docs), 50):
            portion = [json.loads(_spelled(doc)) for doc in docs[start : start + 50]]
            yield from self._ask({"templates": list(templates), "docs": portion})["texts"]


@contextmanager
def bounded_templates(templates: TaskTemplates) -> Iterator[None]:
    """Let the harness fill all its templates by ``templates``."""
    from lm_eval import utils

    before = utils.env
    utils.env = templates
    try:
        yield
    finally:
        utils.env = before


def _spelled(doc: JsonMapping) -> str:
    """Return the row as JSON, without the fields that JSON can't hold."""
    try:
        return json.dumps(dict(doc))
    except (TypeError, ValueError):
        return json.dumps({name: value for name, value in doc.items() if _fits(value)})


def _fits(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _prepare_filling() -> Callable[[Record], Record]:
    """Return the job of the process, from ``{"templates", "docs"}`` to ``{"texts"}`` by document.

    The environment is the harness's in a sandbox: names that begin with an underscore, and so reach
    code, are refused.
    """
    from jinja2 import BaseLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(
        loader=BaseLoader(), undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["regex_replace"] = _regex_replace
    compiled = JsonDict()

    def answer(question: Record) -> Record:
        for template in question["templates"]:
            if template not in compiled:
                compiled[template] = environment.from_string(template)
        texts = []
        size = 0
        for doc in question["docs"]:
            row = [compiled[template].render(**doc) for template in question["templates"]]
            texts.append(row)
            size += sum(map(len, row))
            if size > CHARACTERS:
                return {"failed": TOO_LONG}
        return {"texts": texts}

    return answer


def _regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    """Replace a pattern; the harness adds this filter to Jinja (lm_eval/utils.py, 0.4.13)."""
    return re.sub(pattern, repl, string, count=count)


if __name__ == "__main__":
    serve(_prepare_filling)
