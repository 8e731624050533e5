"""Load by the harness's TaskManager."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from unittest import mock

from choicewise.errors import ChoicewiseError, DataError, ProtocolError, UsageError
from choicewise.interchange.harness_tasks.files import TaskTree
from choicewise.tokens.chat_template import TEMPLATES
from choicewise.util.cache import BoundedCache
from choicewise.util.isolate import BoundedProcess

OLDEST = (0, 4, 12)
"""The first release whose TaskManager loads tasks and groups as objects of their own."""

SEEDS = {"random": 0, "numpy": 1234, "shots": 1234}
"""How the harness seeds what it draws with, unless told otherwise (lm_eval/evaluator.py, simple_evaluate)."""

_OFFLINE = ("OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError", "ConnectTimeout", "ConnectError")
_ABSENT = ("DatasetNotFoundError", "DataFilesNotFoundError", "FileNotFoundError", "RepositoryNotFoundError", *_OFFLINE)


@dataclass(frozen=True)
class LoadedTasks:
    """The harness's task objects in their order, and its group object; None for a task or a tag."""

    tasks: tuple[Any, ...]
    group: Any | None


def harness_version() -> str:
    """The installed release of the harness; UsageError where there is none, or one that is too old."""
    try:
        installed = version("lm_eval")
    except PackageNotFoundError as error:
        raise UsageError("tasks of the harness need its package: pip install 'choicewise[harness]'") from error
    numbers = tuple(int(part) for part in installed.split(".")[:3] if part.isdigit())
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(f"lm_eval {installed} is installed, and tasks need {oldest} or later: pip install -U lm_eval")
    return installed


def shipped_tasks() -> Path:
    """The folder of the task files that the harness comes with."""
    harness_version()
    try:
        import lm_eval.tasks
    except ImportError as error:
        raise UsageError(f"the package lm_eval can't be imported ({error}); install it with all it needs") from error
    return Path(lm_eval.tasks.__file__).parent


def load_tree(tree: TaskTree, spelled: str, include: Sequence[Path], templates: TaskTemplates) -> LoadedTasks:
    """What ``spelled``, a name or the path of a file, means to the harness, with its data; ``tree``: as checked before.

    Raises DataError for data that are not there, ProtocolError for what the harness itself refuses.
    """
    from lm_eval.tasks import TaskManager

    wanted = {path.resolve() for path in tree.files}
    with quiet(), bounded_templates(templates), _only(wanted):
        try:
            manager = TaskManager(include_path=[str(path) for path in include])
            loaded = manager.load(spelled)
        except ChoicewiseError as error:
            raise error.within(f"task {tree.name}") from error
        except Exception as error:
            raise _explained(error, tree) from error
    groups = loaded.get("groups") or {}
    return LoadedTasks(tuple(loaded["tasks"].values()), groups.get(tree.name) if tree.group is not None else None)


def _explained(error: Exception, tree: TaskTree) -> ChoicewiseError:
    names = {kind.__name__ for each in _chain(error) for kind in type(each).__mro__}
    first = list(_chain(error))[-1]
    said = f"{type(first).__name__}: {' '.join(str(first).split())[:300]}"
    if names.intersection(_ABSENT):
        paths = dict.fromkeys(
            " ".join(filter(None, (str(leaf.config.get("dataset_path")), leaf.config.get("dataset_name"))))
            for leaf in tree.leaves
        )
        more = f" and {len(paths) - 1} more" * (len(paths) > 1)
        return DataError(
            f"task {tree.name}: its data, {next(iter(paths), '')}{more}, are not there ({said}); load them once with "
            "network, or let a task file that includes this one name local files: `dataset_path: json` and "
            "`dataset_kwargs: {data_files: {test: FILE.jsonl}}`"
        )
    if "DatasetGenerationError" in names:
        return DataError(f"task {tree.name}: its data can't be read ({said}); correct the files")
    return ProtocolError(f"task {tree.name}: the harness can't load it ({said})")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it came from, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


@contextmanager
def _only(files: set[Path]) -> Iterator[None]:
    """The harness looks at no other task files than ``files``; a release that looks in another way looks at all."""
    from lm_eval.tasks import _index

    listed = getattr(_index.TaskIndex, "_iter_yaml_files", None)
    if listed is None:
        yield
        return

    def chosen(root: Path) -> Iterator[Path]:
        inside = (path for path in files if path.is_relative_to(root.resolve()) and path.suffix == ".yaml")
        return iter(sorted((root / path.relative_to(root.resolve()) for path in inside), key=Path.as_posix))

    with mock.patch.object(_index.TaskIndex, "_iter_yaml_files", staticmethod(chosen)):
        yield


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


REMEMBERED = 20_000
"""Texts that are remembered: the harness fills the same template with the same row several times."""

PORTION = 50
"""Rows that are sent at once."""


class TaskTemplates(BoundedProcess):
    """Fills Jinja templates as the harness does, but in a sandbox and within the bounds of its base.

    The same texts come out but for templates that reach for Python's insides, which fail, and for rows with values that
    JSON does not know (pictures, times), which a template can't see.
    """

    module, limits = "choicewise.interchange.harness_tasks.template_worker", TEMPLATES
    called = "a template of the task"
    remedy = "correct the template, or the rows that it is filled with"
    error = ProtocolError

    def __init__(self) -> None:
        super().__init__()
        self.filters: dict[str, Any] = {}
        self._texts = BoundedCache[tuple[str, str], str](REMEMBERED)

    def from_string(self, template: str) -> FilledTemplate:
        """The template, as an environment of Jinja gives it."""
        return FilledTemplate(self, template)

    def fill(self, template: str, doc: Mapping[str, Any]) -> str:
        """``template`` filled with the fields of ``doc``.  Raises ProtocolError where it fails or exceeds a bound."""
        spelled = _spelled(doc)
        key = template, spelled
        if (known := self._texts.get(key)) is not None:
            return known
        try:
            ((text,),) = self._ask({"templates": [template], "docs": [json.loads(spelled)]})["texts"]
        except ProtocolError as error:
            raise ProtocolError(f"{error.message} (template {template[:80]!r})") from error
        self._texts.put(key, text)
        return str(text)

    def fill_all(self, templates: Sequence[str], docs: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
        """The texts of all ``templates`` for each of ``docs``."""
        for start in range(0, len(docs), PORTION):
            portion = [json.loads(_spelled(doc)) for doc in docs[start : start + PORTION]]
            yield from self._ask({"templates": list(templates), "docs": portion})["texts"]


class FilledTemplate:
    """One template, to be filled with the fields of a row."""

    def __init__(self, templates: TaskTemplates, text: str) -> None:
        self._templates, self._text = templates, text

    def render(self, **doc: Any) -> str:
        """The text."""
        return self._templates.fill(self._text, doc)


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
