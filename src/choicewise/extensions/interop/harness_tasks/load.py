"""The harness's own TaskManager finds tasks and loads them; its templates are filled within bounds."""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
    Place,
    TaskFile,
    check_folder,
    further_code,
    read_task_file,
)
from choicewise.tokens.chat_template import CHARACTERS, TEMPLATES, TOO_LONG
from choicewise.util.cache import BoundedCache
from choicewise.util.files import read_bytes
from choicewise.util.isolate import BoundedProcess, Record, serve

OLDEST = (0, 4, 12)
"""The first release whose TaskManager loads tasks and groups as objects of their own."""

SEEDS = {"random": 0, "numpy": 1234, "shots": 1234}
"""How the harness seeds what it draws with, unless told otherwise (lm_eval/evaluator.py, simple_evaluate)."""


def harness_version() -> str:
    """The installed release of the harness; UsageError where there is none, or one that is too old."""
    try:
        installed = version("lm_eval")
    except PackageNotFoundError as error:
        raise UsageError(
            f"tasks of the harness need its package: {install_line('harness')}"
        ) from error
    numbers = tuple(int(part) for part in installed.split(".")[:3] if part.isdigit())
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(
            f"lm_eval {installed} is installed, and tasks need {oldest} or later: pip install -U lm_eval"
        )
    return installed


@dataclass(frozen=True)
class TaskTree:
    """The tasks (``leaves``) of what was named, in the harness's order.

    ``group``: the keys of the group, None for a task and a tag; ``is_tag``: whether it is one.  ``files``: all that
    will be read; ``code``: all that would run of files that the harness does not come with.  ``names``: of which it is.
    """

    name: str
    group: tuple[str, ...] | None
    is_tag: bool
    leaves: tuple[Leaf, ...]
    files: tuple[Path, ...]
    code: tuple[Code, ...]
    names: TaskNames


class TaskNames:
    """The tasks, groups and tags of the folders ``include`` and of the harness, as its own TaskManager lists them.

    The harness reads all its 13,000 files for that, which takes ten seconds; so it is asked, once a process, for names
    that the folders lack.
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
        self._shipped, self._include = Path(lm_eval.tasks.__file__).resolve().parent, include
        for folder in include:
            check_folder(folder)
        with quiet():
            self.manager = TaskManager(
                include_defaults=False, include_path=[str(folder) for folder in include]
            )

    def tree(self, name: str) -> TaskTree:
        """The tree of a task, group or tag, or of a task file; nothing of it is run.

        Raises ProtocolError for a name that stands nowhere, a group that holds itself, and what is no task file.
        """
        if name.endswith((".yaml", ".yml")):
            path = Path(name)
            if not path.is_file():
                raise ProtocolError(
                    f"{path} is no file; name a task file, or a task of the harness by its name"
                )
            top: TaskFile | None = (file := read_task_file(path))
            own = next(
                (
                    file.keys[key][0]
                    for key in ("group", "task")
                    if key in file.keys and file.keys[key][0]
                ),
                None,
            )
            if not isinstance(own, str):
                raise ProtocolError(
                    f"{path} has neither `task: NAME` nor `group: NAME`, so it is a template; name a task"
                )
            name = own
        elif (entry := self._entry(name)) is None:
            raise self._unknown(name)
        else:
            top = None if entry.yaml_path is None else read_task_file(entry.yaml_path)
        read: list[TaskFile] = []
        leaves = tuple(
            self._named(name, {}, (), read) if top is None else self._tasks(name, top, {}, (), read)
        )
        calls = [
            *(each for file in read for each in file.code),
            *(each for leaf in leaves for each in further_code(leaf)),
        ]
        code = dict.fromkeys(
            each for each in calls if not each.place.file.is_relative_to(self._shipped)
        )
        files = dict.fromkeys(path for file in read for path in file.files)
        group = tuple(top.keys) if top is not None and top.is_group else None
        return TaskTree(name, group, top is None, leaves, tuple(files), tuple(code), self)

    def _named(
        self, name: str, overrides: Keys, above: tuple[str, ...], read: list[TaskFile]
    ) -> Iterator[Leaf]:
        """The tasks under a name, with ``overrides`` over their own keys.

        ``above``: the groups that it is in; ``read`` gets the files that the harness will read for it.
        """
        if (entry := self._entry(name)) is None:
            raise self._unknown(name)
        if entry.yaml_path is not None:
            yield from self._tasks(name, read_task_file(entry.yaml_path), overrides, above, read)
        for each in sorted(entry.tags) if entry.yaml_path is None else ():
            yield from self._named(each, overrides, above, read)

    def _tasks(
        self,
        name: str,
        file: TaskFile,
        overrides: Keys,
        above: tuple[str, ...],
        read: list[TaskFile],
    ) -> Iterator[Leaf]:
        """Those of a file, likewise."""
        if name in above:
            raise ProtocolError(
                f"{' holds '.join((*above, name))}: groups in a circle; remove one of them"
            )
        read.append(file)
        keys = {**file.keys, **overrides}
        if file.is_group:
            here = file.keys["task"][1] if "task" in file.keys else Place(file.files[0], 1)
            yield from self._members(name, file.keys, here, overrides, (*above, name), read)
        else:
            yield Leaf(str(keys["task"][0]) if "task" in keys else name, keys)

    def _members(
        self,
        group: str,
        keys: Keys,
        here: Place,
        overrides: Keys,
        above: tuple[str, ...],
        read: list[TaskFile],
    ) -> Iterator[Leaf]:
        """Those of a group with these ``keys``; its list of them stands ``here``."""
        merged = {**{key: each for key, each in keys.items() if key not in GROUP_KEYS}, **overrides}
        members = keys["task"][0] if "task" in keys else None
        if not isinstance(members, str | list) or not members:
            raise ProtocolError(
                f"{here}: group {group} names no tasks; write `task:` and a list of names"
            )
        for member in [members] if isinstance(members, str) else members:
            own: Keys = (
                {key: (value, here) for key, value in member.items()}
                if isinstance(member, dict)
                else {}
            )
            kind = "group" if "group" in own else "task"
            name = own[kind][0] if kind in own else member
            if not isinstance(name, str):
                raise ProtocolError(
                    f"{here}: group {group} holds {member!r}; it must be a name, or keys with `task`"
                )
            more = {**merged, **{key: each for key, each in own.items() if key != "group"}}
            if self._entry(name) is not None:
                yield from self._named(name, more, above, read)
            elif kind == "group":  # one that is spelled out
                yield from self._members(f"{group}::{name}", own, here, merged, above, read)
            elif "dataset_path" in more or "class" in more:  # likewise a task
                yield Leaf(f"{group}::{name}", {**more, "task": (f"{group}::{name}", here)})
            else:
                raise self._unknown(name).within(f"{here}: group {group}")

    def _entry(self, name: str) -> Any | None:
        """What the harness lists under a name; None where that is nothing."""
        index = self.manager.task_index
        if name not in index:
            for known, entry in _shipped_index().items():
                index.setdefault(known, entry)
        return index.get(name)

    def _unknown(self, name: str) -> ProtocolError:
        """The error about a name that stands nowhere, or in a file that the harness left out as it can't be read."""
        for path in (path for folder in self._include for path in sorted(folder.rglob("*.yaml"))):
            try:
                if re.search(rf"\b{re.escape(name)}\b", read_bytes(path).decode(errors="replace")):
                    read_task_file(path)
            except ProtocolError as error:
                return error.within(f"task {name}")
            except OSError:
                continue
        return ProtocolError(
            f"no task, group or tag of the harness is called {name!r}; {did_you_mean(name, self.manager.task_index)} "
            "(a task file's name ends in .yaml, and further folders of task files can be named)"
        )


@lru_cache(maxsize=1)
def _shipped_index() -> Mapping[str, Any]:
    from lm_eval.tasks import TaskManager

    with quiet():
        index = TaskManager().task_index
    for entry in index.values():
        entry.cfg = (
            None  # the harness reads the file when it loads it, and the keys of all take 100 MB
        )
    return index


def load_tree(
    tree: TaskTree, spelled: str, templates: TaskTemplates
) -> tuple[list[Any], Any | None]:
    """The harness's task objects in their order, with their data, and its group object; None for a task or a tag.

    ``spelled``: the name or the path of the file whose ``tree`` was checked before.

    Raises DataError for data that are not there, ProtocolError for what the harness itself refuses.
    """
    with quiet(), bounded_templates(templates):
        try:
            loaded = tree.names.manager.load(spelled)
        except ChoicewiseError as error:
            raise error.within(f"task {tree.name}") from error
        except Exception as error:
            raise _explained(error, tree) from error
    groups = loaded.get("groups") or {}
    return list(loaded["tasks"].values()), groups.get(tree.name) if tree.group is not None else None


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
    said = f"{type(chain[-1]).__name__}: {' '.join(str(chain[-1]).split())[:300]}"
    if any(isinstance(each, absent) for each in chain):
        paths = dict.fromkeys(
            " ".join(filter(None, (str(leaf.get("dataset_path")), leaf.get("dataset_name"))))
            for leaf in tree.leaves
        )
        more = f" and {len(paths) - 1} more" * (len(paths) > 1)
        return DataError(
            f"task {tree.name}: its data, {next(iter(paths), '')}{more}, are not there ({said}); load them once with "
            "network, or let a task file that includes this one name local files: `dataset_path: json` and "
            "`dataset_kwargs: {data_files: {test: FILE.jsonl}}`"
        )
    if any(isinstance(each, DatasetGenerationError) for each in chain):
        return DataError(f"task {tree.name}: its data can't be read ({said}); correct the files")
    return ProtocolError(f"task {tree.name}: the harness can't load it ({said})")


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and no log lines of the harness, and its own random seeds; all of it as it was afterwards."""
    import datasets
    import numpy as np

    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "lm-eval")]
    levels = [logger.level for logger in loggers]
    bars = datasets.are_progress_bars_disabled()
    states = random.getstate(), np.random.get_state()
    with ExitStack() as stack:
        for logger, level in zip(loggers, levels, strict=True):
            stack.callback(logger.setLevel, level)
            logger.setLevel(logging.CRITICAL)
        if not bars:
            datasets.disable_progress_bars()
            stack.callback(datasets.enable_progress_bars)
        stack.callback(random.setstate, states[0])
        stack.callback(np.random.set_state, states[1])
        random.seed(SEEDS["random"])
        np.random.seed(SEEDS["numpy"])
        yield


class TaskTemplates(BoundedProcess):
    """Fills Jinja templates as the harness does, but in a sandbox and within the bounds of its base.

    The same texts come out but for templates that reach for Python's insides, which fail, and for rows with values that
    JSON does not know (pictures, times), which a template can't see.
    """

    module, limits = "choicewise.extensions.interop.harness_tasks.load", TEMPLATES
    called = "a template of the task"
    remedy = "correct the template, or the rows that it is filled with"
    error = ProtocolError

    def __init__(self) -> None:
        super().__init__()
        self.filters: dict[str, Any] = {}
        # the harness fills the same template with the same row several times
        self._texts = BoundedCache[tuple[str, str], str](20_000)

    def from_string(self, template: str) -> SimpleNamespace:
        """The template, as an environment of Jinja gives it."""
        return SimpleNamespace(render=lambda **doc: self.fill(template, doc))

    def fill(self, template: str, doc: Mapping[str, Any]) -> str:
        """``template`` filled with the fields of ``doc``.  Raises ProtocolError where it fails or exceeds a bound."""
        spelled = _spelled(doc)
        key = template, spelled
        if (known := self._texts.get(key)) is not None:
            return known
        try:
            ((text,),) = self._ask({"templates": [template], "docs": [json.loads(spelled)]})[
                "texts"
            ]
        except ProtocolError as error:
            raise ProtocolError(f"{error.message} (template {template[:80]!r})") from error
        self._texts.put(key, text)
        return str(text)

    def fill_all(
        self, templates: Sequence[str], docs: Sequence[Mapping[str, Any]]
    ) -> Iterator[list[str]]:
        """The texts of all ``templates`` for each of ``docs``."""
        for start in range(0, len(docs), 50):  # so many rows are sent at once
            portion = [json.loads(_spelled(doc)) for doc in docs[start : start + 50]]
            yield from self._ask({"templates": list(templates), "docs": portion})["texts"]


@contextmanager
def bounded_templates(templates: TaskTemplates) -> Iterator[None]:
    """While this lasts, the harness fills all its templates by ``templates``."""
    from lm_eval import utils

    before = utils.env
    utils.env = templates
    try:
        yield
    finally:
        utils.env = before


def _spelled(doc: Mapping[str, Any]) -> str:
    """The row as JSON, without the fields that it can't hold."""
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
    """What the process does: ``{"texts"}``, a list for each document, for ``{"templates", "docs"}``.

    It has the harness's environment, in a sandbox: what begins with an underscore, and so reaches code, is refused.
    """
    from jinja2 import BaseLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(
        loader=BaseLoader(), undefined=StrictUndefined, keep_trailing_newline=True
    )
    # the filter that the harness adds (lm_eval/utils.py, 0.4.13)
    environment.filters["regex_replace"] = lambda string, pattern, repl, count=0: re.sub(
        pattern, repl, string, count=count
    )
    compiled = dict[str, Any]()

    def answer(question: Record) -> Record:
        texts, size = [], 0
        for template in question["templates"]:
            if template not in compiled:
                compiled[template] = environment.from_string(template)
        for doc in question["docs"]:
            texts.append([compiled[template].render(**doc) for template in question["templates"]])
            size += sum(map(len, texts[-1]))
            if size > CHARACTERS:
                return {"failed": TOO_LONG}
        return {"texts": texts}

    return answer


if __name__ == "__main__":
    serve(_prepare_filling)
