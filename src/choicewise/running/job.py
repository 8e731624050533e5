"""The job: models, data, protocols and how they are asked, as a plan file, a command line or a call says it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    model_validator,
)

from choicewise.data.benchmarks import ANY, benchmark, benchmark_of, local_folder, open_benchmark
from choicewise.data.dataset import Columns, Dataset, columns_of, mapping_table, read_mapping
from choicewise.data.files import read_toml
from choicewise.data.hub import DATASET, MODEL, Download, commit_of, hub_name
from choicewise.data.open import dataset_name, open_dataset
from choicewise.errors import DataError, MissingData, UsageError, did_you_mean
from choicewise.models.kinds import model_kind, refusal
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.protocols.between import MARK, split_changes
from choicewise.protocols.catalogue import (
    having_score,
    in_chat,
    resolve,
    spelled,
    suite,
    suite_names,
)
from choicewise.protocols.panel import with_panels
from choicewise.protocols.protocol import Protocol, signature
from choicewise.records import Selection
from choicewise.requests.blocks import (
    has_shots,
    list_sections,
    misfit,
    with_split,
    without_examples,
)
from choicewise.requests.render import RenderedRequests
from choicewise.running.answer import checked_executor
from choicewise.running.examples import (
    checked_shots,
    selectors_with_shots,
    ways_without_examples,
    without_shots,
)
from choicewise.running.shards import Share, share_of
from choicewise.running.work import Work
from choicewise.util.files import SETTINGS, folder_name, read_text
from choicewise.util.text import bytes_of, check_name


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
                    check_name(each, key)
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
        return ", ".join(
            [self.name, *(f"{key} {value}" for key, value in given.items() if value is not None)]
        )

    @property
    def _location(self) -> str:
        """The folder, the name on the Hub or the address, without further options in the name."""
        return model_kind(self.name).location(self.name)

    @property
    def folder(self) -> str:
        """What the folder of its runs is called, where that is not taken."""
        location = self._location
        if os.path.isdir(location):
            return folder_name(Path(location).resolve().name)
        return folder_name(model_kind(self.name).folder(self.name))

    @property
    def state(self) -> object:
        """What changes when the model of that name becomes another: its files, or its commit on the Hub."""
        on_hub = None if os.path.exists(self._location) else hub_name(self._location)
        commit = None if on_hub is None else commit_of(on_hub, MODEL)
        folders = [
            Path(name) for name in (self._location, self.adapter) if name and os.path.isdir(name)
        ]
        return self.label, [state_of(folder) for folder in folders], commit

    def in_chat(self, protocols: Mapping[str, Protocol]) -> dict[str, Protocol]:
        """The protocols as this model is asked: in a chat where that is wanted."""
        return in_chat(protocols, self.chat, self.system)

    def load(
        self,
        progress: Download | None = None,
        say: Callable[[str], None] = lambda line: None,
        **more: Any,
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

    def as_read(self, data: Dataset) -> DataChoice:
        """The same with what was guessed of the columns of ``data``, so that it is read so again."""
        if not data.guess or data.columns is None:
            return self
        return self.model_copy(update={"mapping": mapping_table(data.columns)})


class Job(Loading):
    """What is asked: every one of ``models`` under ``protocols``, on ``data`` or the benchmarks' own.

    Options of loading are those of all models.  ``subjects``, ``limit``, ``sample``, ``seed`` and ``shots``: as of
    :func:`choicewise.evaluate`, as ``executor``, ``workers``, ``shard``.  ``score``: only the protocols that decide by
    it.  ``panel``: with that of each protocol.  ``include_path`` and ``allow_task_code``: of the harness's tasks.
    ``without_missing``: benchmarks whose data are nowhere are left out.
    """

    models: Annotated[tuple[Annotated[ModelChoice, _or_text("name")], ...], Strict(False)] = ()
    protocols: Annotated[
        tuple[Annotated[_Text, AfterValidator(spelled)], ...], Field(min_length=1), Strict(False)
    ]
    shots: Annotated[int | str | None, BeforeValidator(checked_shots)] = None
    score: _Text | None = None
    panel: bool = False
    data: (
        Annotated[
            tuple[Annotated[DataChoice, _or_text("path")], ...], Field(min_length=1), Strict(False)
        ]
        | None
    ) = None
    subjects: _Texts | None = None
    limit: _Count | None = None
    sample: _Count | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    on_bad_item: Literal["error", "skip"] = "error"
    include_path: Annotated[tuple[_Text, ...], Strict(False)] = ()
    allow_task_code: bool = False
    executor: Annotated[str, AfterValidator(checked_executor)] = "local"
    workers: _Count | None = None
    shard: Annotated[str, AfterValidator(lambda text: str(share_of(text)))] | None = None
    without_missing: bool = False

    @property
    def chosen(self) -> dict[str, Any]:
        """The part of the data that is asked, as evaluate and plan take it."""
        part = {name: getattr(self, name) for name in ("subjects", "limit", "sample", "seed")}
        return {**part, "skip_bad_items": self.on_bad_item == "skip"}

    @property
    def selection(self) -> Selection:
        """The part of the data that is asked.  Raises UsageError where its words don't go together."""
        return Selection.of(self.subjects, self.limit, self.sample, self.seed)

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
        names = ("include_path", "allow_task_code", "executor", "workers", "shard")
        return {name: getattr(self, name) for name in names}

    def of_run(self, model: ModelChoice, opened: OpenedSource) -> Job:
        """The part of the job that is one run, as a manifest keeps it: of ``model`` on the data that are ``opened``."""
        source = opened.source
        changes: dict[str, Any] = dict.fromkeys([*Loading.model_fields, "score"])
        if isinstance(self.shots, int):
            changes["shots"] = None  # the protocols say it
        changes["models"] = (model,)
        named_one_by_one = source.score is not None or not source.selectors
        changes["protocols"] = tuple(opened.protocols) if named_one_by_one else source.selectors
        own = [choice for choice in self.data or () if choice.path == source.path]
        changes["data"] = tuple(choice.as_read(opened.data) for choice in own[:1]) or None
        return self.model_copy(update=changes)

    def as_read(self, data: Dataset) -> Job:
        """The same with what was guessed of the columns of ``data``."""
        return self.model_copy(
            update={"data": tuple(choice.as_read(data) for choice in self.data or ()) or None}
        )


def read_plan(path: Path) -> Job:
    """The job in the file ``path``, whose keys stand in docs/design/suites.md.

    Paths in it are relative to the folder where the command runs.  Raises UsageError, naming file and keys, with
    everything that is wrong.
    """
    try:
        table = read_toml(read_text(path, SETTINGS))
    except OSError as error:
        raise UsageError(
            f"{path} can't be read: {error.strerror}; name the file of a plan"
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    try:
        return job_of({"models": None, **table})
    except UsageError as error:
        raise error.within(str(path)) from error


def job_of(table: Mapping[str, Any]) -> Job:
    """The job that a table with these keys says.  Raises UsageError, naming keys, with everything that is wrong."""
    given = {key: value for key, value in table.items() if value is not None}
    lacking = [
        f"{key} is missing" for key, value in table.items() if value is None and key == "models"
    ]
    try:
        job = Job.model_validate(given)
    except ValidationError as error:
        problems = list(dict.fromkeys(map(_problem, error.errors(include_url=False))))
        raise UsageError.of_problems([*lacking, *problems]) from error
    if lacking:
        raise UsageError(lacking[0])
    _ = job.selection  # whose words go together
    return job


def state_of(path: Path) -> list[tuple[str, int, int]]:
    """The name, size (bytes) and time (ns) of every file in the folder, or beside the file, at ``path``, in order."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob("*") if path.exists() else ()
    states = ((str(file), file.stat()) for file in files if file.is_file())
    return sorted((name, state.st_size, state.st_mtime_ns) for name, state in states)


_KEYS = {*Job.model_fields, *ModelChoice.model_fields, *DataChoice.model_fields}


@dataclass(frozen=True)
class Source:
    """A dataset that is not opened yet.

    ``selectors`` are resolved as ``recipes``, which name this dataset.  ``benchmark``: whose data they are; None where
    ``path`` stands for all that the selectors name.  ``path``: where the data lie, None for the benchmark's own;
    ``columns``: what their columns mean, where that is declared.  ``fitting``: protocols that can't ask what the data
    hold are left out.  ``lenient``: protocols that the data have no examples for are asked without shots.  ``score``:
    as of a job, as ``panel``.  ``matched``: the selectors are those of several that these data are of the benchmark of.
    """

    selectors: tuple[str, ...]
    benchmark: str | None
    path: str | None = None
    columns: Columns | None = None
    on_bad_item: str = "error"
    fitting: bool = False
    lenient: bool = False
    score: str | None = None
    panel: bool = False
    recipes: Mapping[str, Protocol] = field(default_factory=dict, repr=False)
    matched: bool = False

    @property
    def name(self) -> str:
        """The benchmark, or where the data lie."""
        return self.benchmark or self.path or ""

    def open(self, progress: Download | None = None) -> Dataset:
        """The dataset; ``progress`` hears of a download.

        Raises DataError where it is not there, or a row can't be used.
        """
        if self.path is None:
            return open_benchmark(self.name, on_bad_item=self.on_bad_item, progress=progress)
        return open_dataset(
            self.path, on_bad_item=self.on_bad_item, columns=self.columns, progress=progress
        )

    def protocols(
        self, data: Dataset, subjects: Sequence[str] | None = None
    ) -> dict[str, Protocol]:
        """What the selectors mean for ``data``, with their panels where these are asked.

        Ways between protocols pass by what it has no shots for.
        """
        own = self._own(data, subjects)
        if not self.panel:
            return own
        return {
            name: each
            for name, each in with_panels(own).items()
            if name in own or not misfit(each, data, subjects)
        }

    def _own(self, data: Dataset, subjects: Sequence[str] | None) -> dict[str, Protocol]:
        if not any(MARK in selector for selector in self.selectors):
            return dict(self.recipes)
        selectors = ways_without_examples(self.selectors, data) if self.lenient else self.selectors
        named = _about(
            self.benchmark, resolve(*selectors, possible=partial(has_shots, data, subjects))
        )
        return named if self.score is None else having_score(named, self.score)

    def asking(
        self, data: Dataset, named: Mapping[str, Protocol]
    ) -> tuple[dict[str, Protocol], str]:
        """The protocols as ``data`` is asked under them, and the line of :func:`without_shots`."""
        if not self.lenient:
            return dict(named), ""
        asked = without_examples(data, named)
        return asked, without_shots(data.name, self.selectors, self.recipes, asked)

    @property
    def rendered(self) -> Sequence[RenderedRequests]:
        """The requests of protocols that were rendered elsewhere, once the dataset is open."""
        return ()

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know of the source, once it is open."""
        return ()

    @property
    def state_digest(self) -> str:
        """A digest of the protocols, and of where the data lie, with the sizes and times of their files."""
        if self.path is not None:  # the files on this machine, or the commit on the Hub
            on_hub = dataset_name(self.path)
            state: object = (
                state_of(Path(self.path)) if on_hub is None else commit_of(on_hub, DATASET)
            )
        else:
            folder = local_folder(self.name)
            state = benchmark(self.name).revision if folder is None else state_of(folder)
        signatures = {name: signature(recipe) for name, recipe in self.recipes.items()}
        content = [signatures, self.path, repr(self.columns), self.on_bad_item, state]
        content += ["error"] * (self.path is not None and not self.lenient) + ["panel"] * self.panel
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def sources_of(
    job: Job, selectors: Sequence[str] | None = None, fitting: bool = False
) -> list[Source]:
    """The datasets of ``job``: its own that name no benchmark, or else the benchmarks', its own in their place.

    ``selectors``: those of its protocols that the catalogue knows; ``fitting``: as of the source.  The catalogue
    resolves them here, once.  Raises UsageError, ProtocolError, and DataError for a benchmark that nothing is known of.
    """
    own, data = (
        selectors_with_shots(job.protocols if selectors is None else selectors, job.shots),
        job.data or (),
    )
    recipes = resolve(*own)
    if job.score is not None:
        recipes = having_score(recipes, job.score)
    named = {each.benchmark: each for each in data if each.benchmark is not None}
    alone = [each for each in data if each.benchmark is None]
    if named and alone:
        raise UsageError(
            f"data: {alone[0].path} says no benchmark and others do; say it of all or of none"
        )
    how: dict[str, Any]
    if alone and not own:
        raise UsageError(
            f"data: every protocol has data of its own, and {alone[0].path} is asked by none"
        )
    if alone:
        for name in own:
            if (plain := split_changes(name)[0]) in suite_names() and len(
                parts := suite(plain).parts
            ) > 1:
                asked = ", ".join(part.benchmark for part in parts)
                raise UsageError(
                    f"{plain} asks {asked}, and one dataset was named for all of them; leave it out"
                )
        how = {
            "fitting": fitting,
            "lenient": job.shots is None,
            "score": job.score,
            "panel": job.panel,
        }
        fits = _matched(own, recipes, alone) if len(alone) > 1 else {}
        return [
            Source(
                chosen,
                None,
                each.path,
                each.columns,
                job.on_bad_item,
                **how,
                recipes=mine,
                matched=each.path in fits,
            )
            for each in alone
            for chosen, mine in [fits.get(each.path, (own, recipes))]
        ]
    if homeless := [name for name, recipe in recipes.items() if recipe.benchmark == ANY]:
        raise UsageError(f"{homeless[0]} fits every dataset and has none of its own; name the data")
    sources = []
    for name in dict.fromkeys(benchmark(recipe.benchmark).name for recipe in recipes.values()):
        place = named.pop(name, None)
        path, columns = (None, None) if place is None else (place.path, place.columns)
        how = {
            "lenient": path is not None and job.shots is None,
            "score": job.score,
            "panel": job.panel,
        }
        sources.append(
            Source(own, name, path, columns, job.on_bad_item, **how, recipes=_about(name, recipes))
        )
    if named:
        asked = ", ".join(each.name for each in sources)
        raise UsageError(f"data: no protocol asks {min(named)}; they ask {asked}")
    return sources


_Part = tuple[tuple[str, ...], Mapping[str, Protocol]]


def _matched(
    selectors: Sequence[str], recipes: Mapping[str, Protocol], data: Sequence[DataChoice]
) -> dict[str, _Part]:
    """By path what is asked on each of several data: selectors, and the protocols that they mean.

    A protocol is asked on the data of its own benchmark where such are among them, else on those of none.  Empty where
    no data are of a benchmark that is asked.  Raises UsageError for data that nothing is left to ask on.
    """
    asked = dict.fromkeys(
        recipe.benchmark for recipe in recipes.values() if recipe.benchmark != ANY
    )
    of = {each.path: benchmark_of(each.path, asked) for each in data}
    if not any(name in asked for name in of.values()) or any(
        MARK in selector for selector in selectors
    ):
        return {}
    others = [path for path, name in of.items() if name not in asked] or [*of]
    places = {name: [path for path in of if of[path] == name] or others for name in asked} | {
        ANY: [*of]
    }
    parts: dict[str, _Part] = {}
    for path in of:
        own = {name: recipe for name, recipe in recipes.items() if path in places[recipe.benchmark]}
        if not own:
            raise UsageError(
                f"data: {path} is asked by none, as every protocol has data of its own benchmark; leave it out, or "
                "say the benchmark of all"
            )
        meant = {
            selector: [name for name in resolve(selector) if name in recipes]
            for selector in selectors
        }
        whole = (each for each, names in meant.items() if names and own.keys() >= {*names})
        some = (
            name
            for names in meant.values()
            if not own.keys() >= {*names}
            for name in names
            if name in own
        )
        parts[path] = (*whole, *some), own
    return parts


@dataclass(frozen=True)
class OpenedSource:
    """A dataset and what it is asked.  ``work``: as of :attr:`choicewise.requests.blocks.Block.work`.

    ``left_out``: why protocols can't ask it, each reason with their names.  ``without``: that examples for
    shots are lacking, on a line (:func:`without_shots`).
    """

    source: Source
    data: Dataset
    protocols: Mapping[str, Protocol]
    work: int
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    without: str = ""


@dataclass(frozen=True)
class Task:
    """One run of a job, resolved: a ``model``, and the ``work`` that it is asked.

    ``share``: the part of it that this process asks, None for all.  ``kept``: the job as the manifest keeps it, None
    where model or data have no name; ``command``: the words of the command that asks it.
    """

    model: Model
    work: Work
    share: Share | None = None
    kept: Job | None = None
    command: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        model: Model,
        opened: OpenedSource,
        protocols: Mapping[str, Protocol],
        job: Job,
        *,
        rendered: Sequence[RenderedRequests] = (),
        kept: Job | None = None,
        command: Sequence[str] = (),
    ) -> Task:
        """What ``job`` asks ``model`` about the data that are ``opened``, under ``protocols``; errors as of Work.

        ``rendered``: further requests that were rendered elsewhere.
        """
        requests = [*opened.source.rendered, *rendered]
        work = Work.of(
            model, opened.data, protocols, job.selection, requests, job.on_bad_item == "skip"
        )
        return cls(model, work, None if job.shard is None else share_of(job.shard), kept, command)


UNMEASURED = 1_000_000
"""Units of work of a run that is the only one; it can be told in so many parts how far it is."""


def open_source(
    source: Source, job: Job, progress: Download | None = None, measured: bool = True
) -> OpenedSource:
    """The dataset of ``source``.  Raises DataError for data that are not there, and items and shots that won't do.

    Unless ``measured``, items and shots are not looked at, and the work counts as :data:`UNMEASURED`.
    """
    data = source.open(progress)
    named = source.protocols(data, job.subjects)
    left_out: dict[str, list[str]] = {}
    if source.fitting:
        for name, recipe in named.items():
            (asked,) = source.asking(data, {name: recipe})[0].values()
            if reason := misfit(asked, data, job.subjects):
                left_out.setdefault(reason, []).append(name)
        if sum(map(len, left_out.values())) == len(named):
            raise DataError(
                "no protocol can ask it", [f"{names[0]}: {why}" for why, names in left_out.items()]
            )
        without = {name for names in left_out.values() for name in names}
        named = {name: recipe for name, recipe in named.items() if name not in without}
    named, lacking = source.asking(data, named)
    if not measured:
        return OpenedSource(source, data, named, UNMEASURED, left_out, lacking)
    recipes = {name: with_split(recipe, data) for name, recipe in named.items()}
    sections = list_sections(data, recipes, job.selection)
    work = Work(
        data=data,
        protocols=recipes,
        sections=sections,
        rendered=source.rendered,
        skip_bad_items=job.on_bad_item == "skip",
    )
    stretches = list(work.stretches())
    work.check(stretches)
    return OpenedSource(
        source, data, named, sum(block.work for block in work.blocks(stretches)), left_out, lacking
    )


def open_all(
    sources: Sequence[Source], job: Job, progress: Download | None = None, measured: bool = True
) -> tuple[dict[str, OpenedSource], dict[str, DataError]]:
    """By name every source that can be opened, and why the others can't; arguments as of :func:`open_source`."""
    opened: dict[str, OpenedSource] = {}
    failed: dict[str, DataError] = {}
    for source in sources:
        try:
            opened[source.name] = open_source(source, job, progress, measured)
        except DataError as error:
            failed[source.name] = error
    return opened, failed


def refuse(failed: Mapping[str, DataError], without_missing: bool = False) -> None:
    """Raise what is wrong with the data of several benchmarks, all at once; nothing where nothing is.

    ``without_missing``: data that are nowhere are no error.
    """
    missing = [error for error in failed.values() if isinstance(error, MissingData)]
    wrong = [error for error in failed.values() if not isinstance(error, MissingData)]
    if wrong:
        if len(wrong) == 1:
            raise wrong[0]
        lines = [
            line
            for error in wrong
            for line in (error.message, *(f"  {part}" for part in error.problems))
        ]
        raise DataError(f"the questions of {len(wrong)} benchmarks can't be used", lines)
    if missing and not without_missing:
        names = [name for error in missing for name in error.benchmarks]
        if len(missing) == 1:
            raise missing[0]
        raise MissingData(
            f"the questions of {len(names)} benchmarks are nowhere", [*_told(missing)], names
        )


def _about(benchmark: str | None, recipes: Mapping[str, Protocol]) -> dict[str, Protocol]:
    return {
        name: recipe for name, recipe in recipes.items() if benchmark in (None, recipe.benchmark)
    }


def _told(missing: Sequence[MissingData]) -> list[str]:
    return list(
        dict.fromkeys(part for error in missing for part in (error.message, *error.problems))
    )


def _revisions(model: ModelChoice, common: Loading) -> Iterator[ModelChoice]:
    """The model with the options that all have and it has a use for, once for each of its revisions."""
    name = model.name
    kind = model_kind(name)
    given = model.options
    if model.memory is not None:
        given["memory"] = model.memory
    message = refusal(name, given)
    if message:
        raise UsageError(f"models: {message}")
    if model.revisions is not None and kind.revisions:
        raise UsageError(f"models: {kind.display(name)} {kind.revisions}")
    options: dict[str, Any] = {}
    for option, value in {**common.options, **given}.items():
        if option in kind.takes:
            options[option] = value
    options["memory"] = model.memory or common.memory
    whole = model.model_copy(update={**dict.fromkeys(_OPTIONS), **options, "revisions": None})
    if model.revisions is None:
        yield whole
        return
    for revision in model.revisions:
        inside = f"{name}/{revision}" if os.path.isdir(name) else f"{name}@{revision}"
        yield whole.model_copy(update={"name": inside})


def _problem(error: Mapping[str, Any]) -> str:
    """What pydantic says of a key, in our words."""
    # the name of a union's member stands among the keys
    path = [
        part
        for part in error["loc"]
        if isinstance(part, int) or part in _KEYS or part == error["loc"][-1]
    ]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(
        "."
    )
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
