"""The job: models, data, protocols and how they are asked, as a plan file, a command line or a call says it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError, model_validator

from choicewise.data.dataset import Columns, columns_of, read_mapping
from choicewise.data.files import read_toml
from choicewise.data.hub import MODEL, Download, commit_of, hub_name
from choicewise.errors import UsageError, did_you_mean
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.models.server.address import PREFIX as SERVED
from choicewise.models.server.address import ServerAddress
from choicewise.protocols.catalogue import in_chat
from choicewise.protocols.protocol import Protocol
from choicewise.util.secrets import refuse_secret
from choicewise.util.text import bytes_of


def _size(text: object) -> object:
    if not isinstance(text, str) or bytes_of(text) < 10**6:
        raise ValueError('a size from 1 MB up, as in "12 GB"')
    return text


def _or_text(key: str) -> BeforeValidator:
    """A text stands for a table with this ``key`` alone."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


Dtype = Literal["float32", "bfloat16", "float16"]
_Text = Annotated[str, Field(min_length=1)]
_Count = Annotated[int, Field(ge=1)]
_Texts = Annotated[tuple[_Text, ...], Field(min_length=1), Strict(False)]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_secrets(cls, given: Any) -> Any:
        for key, value in given.items() if isinstance(given, Mapping) else ():
            for each in value if isinstance(value, list | tuple) else [value]:
                if key != "system" and (isinstance(each, str) or key == "mapping"):
                    refuse_secret(each, key)
        return given


class Loading(_Value):
    """How models are loaded: all of a job, or one; the fields are arguments of :func:`choicewise.load_model`.

    ``memory``: what a copy of the model takes of GPUs, or of main memory on a CPU, as in "12 GB".
    """

    dtype: Dtype | None = None
    device: _Text | None = None
    window: _Count | None = None
    batch_tokens: _Count | None = None
    tokenizer: _Text | None = None
    adapter: _Text | None = None
    memory: Annotated[str, BeforeValidator(_size)] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that were given."""
        return {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None}


_OPTIONS = tuple(name for name in Loading.model_fields if name != "memory")


class ModelChoice(Loading):
    """A model: its ``name``, as :func:`choicewise.load_model` takes it, and how it is loaded and asked.

    ``revisions``: folders inside its folder, or revisions on the Hub, each a model of its own.  ``chat`` and
    ``system``: as :func:`choicewise.protocols.catalogue.in_chat` takes them.
    """

    name: _Text
    revisions: _Texts | None = None
    chat: Literal["turns", "message"] | None = None
    system: _Text | None = None

    @property
    def label(self) -> str:
        """The name, and the options where there are any: no two models of a job have the same."""
        given = {**self.options, "chat": self.chat, "system": self.system}
        return ", ".join([self.name, *(f"{key} {value}" for key, value in given.items() if value is not None)])

    @property
    def folder(self) -> str:
        """What the folder of its runs is called, where that is not taken."""
        last = Path(self.name).resolve().name if os.path.isdir(self.name) else self.name
        if last.startswith(SERVED):
            last = last.rpartition("#")[2].removeprefix(SERVED)
        return folder_name(last)

    @property
    def state(self) -> object:
        """What changes when the model of that name becomes another: its files, or its commit on the Hub."""
        on_hub = None if os.path.exists(self.name) else hub_name(self.name)
        commit = None if on_hub is None else commit_of(on_hub, MODEL)
        folders = [Path(name) for name in (self.name, self.adapter) if name and os.path.isdir(name)]
        return self.label, [state_of(folder) for folder in folders], commit

    def asked(self, protocols: Mapping[str, Protocol]) -> dict[str, Protocol]:
        """The protocols as this model is asked: in a chat where that is wanted."""
        return in_chat(protocols, self.chat, self.system)

    def load(
        self, progress: Download | None = None, say: Callable[[str], None] = lambda line: None, **more: Any
    ) -> Model:
        """The model; ``progress`` hears of a download, ``say`` of waits for a server; ``more``: options that win.

        Raises ModelError.
        """
        return load_model(self.name, progress=progress, say=say, **{**self.options, **more})


class DataChoice(_Value):
    """Where questions lie, the ``benchmark`` whose place they take, and what their columns mean: a file or a table."""

    path: _Text
    benchmark: _Text | None = None
    mapping: _Text | dict[str, Any] | None = None

    @property
    def columns(self) -> Columns | None:
        """What the mapping says.  Raises UsageError and DataError."""
        if isinstance(self.mapping, dict):
            return columns_of(self.mapping, "mapping")
        return None if self.mapping is None else read_mapping(Path(self.mapping))


class Job(Loading):
    """What is asked: every one of ``models`` under ``protocols``, on ``data`` or the benchmarks' own.

    Options of loading are those of all models.  ``subjects`` and ``limit``: as of :func:`choicewise.evaluate`, as
    ``executor`` and ``workers``.  ``include_path`` and ``allow_task_code``: of the harness's tasks.
    ``without_missing``: benchmarks whose data are nowhere are left out.
    """

    models: Annotated[tuple[Annotated[ModelChoice, _or_text("name")], ...], Strict(False)] = ()
    protocols: _Texts
    data: Annotated[tuple[Annotated[DataChoice, _or_text("path")], ...], Field(min_length=1), Strict(False)] | None = (
        None
    )
    subjects: _Texts | None = None
    limit: _Count | None = None
    on_bad_item: Literal["error", "skip"] = "error"
    include_path: Annotated[tuple[_Text, ...], Strict(False)] = ()
    allow_task_code: bool = False
    executor: Literal["local", "ray"] = "local"
    workers: _Count | None = None
    without_missing: bool = False

    @property
    def chosen(self) -> dict[str, Any]:
        """The part of the data that is asked, as evaluate and plan take it."""
        return {"subjects": self.subjects, "limit": self.limit, "skip_bad_items": self.on_bad_item == "skip"}

    @property
    def choices(self) -> list[ModelChoice]:
        """Every model with all of its options, once for each of its revisions.

        Raises UsageError for a model that is named twice, or with options that it has no use for.
        """
        named = [model for each in self.models for model in _revisions(each, self)]
        labels = [model.label for model in named]
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise UsageError(f"models: {min(twice)} is named twice")
        return named

    @property
    def of_command(self) -> dict[str, Any]:
        """What a command line says beside a plan: where tasks lie, and where the models compute."""
        names = ("include_path", "allow_task_code", "executor", "workers")
        return {name: getattr(self, name) for name in names}

    def only(self, model: ModelChoice, **changes: Any) -> Job:
        """The part of the job that is one run: ``model``, and ``changes`` of data and protocols."""
        common = dict.fromkeys(Loading.model_fields)
        return self.model_copy(update={**common, "models": (model,), **changes})


def read_plan(path: Path) -> Job:
    """The job in the file ``path``, whose keys stand in docs/design/suites.md.

    Paths in it are relative to the folder where the command runs.  Raises UsageError, naming file and keys, with
    everything that is wrong.
    """
    try:
        table = read_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}; name the file of a plan") from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    try:
        return job_of({"models": None, **table})
    except UsageError as error:
        raise error.within(str(path)) from error


def job_of(table: Mapping[str, Any]) -> Job:
    """The job that a table with these keys says.  Raises UsageError, naming keys, with everything that is wrong."""
    given = {key: value for key, value in table.items() if value is not None}
    lacking = [f"{key} is missing" for key, value in table.items() if value is None and key == "models"]
    try:
        job = Job.model_validate(given)
    except ValidationError as error:
        problems = list(dict.fromkeys(map(_problem, error.errors(include_url=False))))
        raise UsageError.about([*lacking, *problems]) from error
    if lacking:
        raise UsageError(lacking[0])
    return job


def state_of(path: Path) -> list[tuple[str, int, int]]:
    """The name, size (bytes) and time (ns) of every file in the folder, or beside the file, at ``path``, in order."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob("*") if path.exists() else ()
    states = ((str(file), file.stat()) for file in files if file.is_file())
    return sorted((name, state.st_size, state.st_mtime_ns) for name, state in states)


LONGEST = 100
"""Characters of a folder's name; file systems take 255 bytes, and tools add to it."""


def folder_name(name: str) -> str:
    """``name`` as a folder: letters, digits, dots, hyphens, underscores and at signs, at most ``LONGEST`` of them."""
    plain = re.sub(r"[^\w.@+-]+", "-", name, flags=re.ASCII).strip("-.") or "unnamed"
    if len(plain) > LONGEST:
        plain = f"{plain[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return plain


def free_name(name: str, taken: Iterable[str]) -> str:
    """``name``, with a number where it is taken; names that differ in their case alone are one on some disks."""
    used, number, free = {each.casefold() for each in taken}, 2, name
    while free.casefold() in used:
        free, number = f"{name}-{number}", number + 1
    return free


def _revisions(model: ModelChoice, common: Loading) -> Iterator[ModelChoice]:
    """The model with the options that all have and it has a use for, once for each of its revisions."""
    name, own = model.name, model.options
    if name.startswith(SERVED):
        ServerAddress.parse(name)  # before anything is written that would repeat a secret in it
        own |= {} if model.memory is None else {"memory": model.memory}
    takes: Collection[str] = ("window", "tokenizer") if name.startswith(SERVED) else {*_OPTIONS} - {"tokenizer"}
    if name.startswith("fake:"):
        takes = ()
    elif useless := [key for key in own if key not in takes]:
        what = "is computed by its server" if name.startswith(SERVED) else "brings its own tokenizer"
        raise UsageError(f"models: {name} {what} and has no use for {' and '.join(useless)}")
    options = {key: value for key, value in {**common.options, **own}.items() if key in takes}
    options |= {"memory": model.memory or common.memory, "revisions": None}
    whole = model.model_copy(update=dict.fromkeys(_OPTIONS) | options)
    for revision in model.revisions or (None,):
        if revision is not None and name.startswith(SERVED):
            raise UsageError(f"models: {name} is the server's choice and has no use for revisions")
        inside = f"{name}/{revision}" if os.path.isdir(name) else f"{name}@{revision}"
        yield whole if revision is None else whole.model_copy(update={"name": inside})


def _problem(error: Mapping[str, Any]) -> str:
    """What pydantic says of a key, in our words."""
    # the name of a union's member stands among the keys
    path = [part for part in error["loc"] if isinstance(part, int) or part in _KEYS or part == error["loc"][-1]]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    match error["type"]:
        case "extra_forbidden":
            nested: dict[str, type[_Value]] = {"models": ModelChoice, "data": DataChoice}
            known = nested.get(str(error["loc"][0]), Job).model_fields
            return f"{where} is no key; {did_you_mean(str(error['loc'][-1]), list(known))}"
        case "missing":
            return f"{where} is missing"
        case "model_type":
            return f"{where} is {error['input']!r}; it must be a name or a table"
        case "greater_than_equal":
            return f"{where} is {error['input']!r}; it must be at least {error['ctx']['ge']}"
        case "value_error":
            return f"{where} is {error['input']!r}; it must be {error['ctx']['error']}"
    said = error["msg"][0].lower() + error["msg"][1:]
    return f"{where} is {error['input']!r}; {said.replace('input should', 'it must')}"


_KEYS = {*Job.model_fields, *ModelChoice.model_fields, *DataChoice.model_fields}
