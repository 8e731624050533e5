"""The job: models, data, protocols and options, from a plan file, a command line or a call."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

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

from choicewise.data.dataset import Columns, Dataset, columns_of, mapping_table, read_mapping
from choicewise.data.open import dataset_name, open_dataset
from choicewise.errors import DataError, UsageError, did_you_mean, not_applicable
from choicewise.models.kinds import DTYPES, model_kind, refusal
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.ports import TaskLibrary, find
from choicewise.protocols.between import MARK, split_changes
from choicewise.protocols.catalogue import (
    having_score,
    in_chat,
    resolve,
    spelled,
    suite,
    suite_names,
)
from choicewise.protocols.protocol import Protocol, Protocols, signature
from choicewise.records import Selection
from choicewise.requests.blocks import (
    has_shots,
    list_sections,
    misfit,
    with_split,
)
from choicewise.requests.render import RenderedRequests
from choicewise.running.answer import HERE, checked_executor
from choicewise.running.fitting import (
    Fitted,
    Fitting,
    checked_shots,
    fit,
    selectors_with_shots,
    ways_on,
)
from choicewise.running.shards import Share, share_of
from choicewise.running.work import Work
from choicewise.util.files import folder_name
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.text import bytes_of, check_name, listed, text_digest

if TYPE_CHECKING:
    from choicewise.data.hub import Download


def _size(text: object) -> object:
    if not isinstance(text, str) or bytes_of(text) < 10**6:
        raise ValueError('a size from 1 MB up, as in "12 GB"')
    return text


Products = Literal["torch", "onednn"]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16"],
    BeforeValidator(lambda name: DTYPES.get(str(name), name)),
]
_Text = Annotated[str, Field(min_length=1)]
_Count = Annotated[int, Field(ge=1)]
_Texts = Annotated[tuple[_Text, ...], Field(min_length=1), Strict(False)]


class _Value(BaseModel):
    """``main_key``: the only key of the table that a text stands for."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    main_key: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _refuse_secrets(cls, given: Any) -> Any:
        if cls.main_key and isinstance(given, str):
            given = {cls.main_key: given}
        if not isinstance(given, Mapping):
            return given
        for key, value in given.items():
            # A system prompt may look like a key, and is sent to the model alone.
            if key == "system":
                continue
            for part in value if isinstance(value, list | tuple) else [value]:
                if isinstance(part, str) or key == "mapping":
                    check_name(part, key)
        return given


class Loading(_Value):
    """Hold how models are loaded: the arguments of :func:`choicewise.load_model`.

    ``memory``: what a copy of the model takes of GPUs, or of main memory on a CPU, as in "12 GB".
    """

    dtype: Dtype | None = None
    device: _Text | None = None
    window: _Count | None = None
    batch_tokens: _Count | None = None
    tokenizer: _Text | None = None
    adapter: _Text | None = None
    products: Products | None = None
    memory: Annotated[str, BeforeValidator(_size)] | None = None

    @property
    def options(self) -> JsonDict:
        """Return the arguments that were given, but for ``memory``."""
        return self.model_dump(include=_OPTIONS, exclude_none=True)


_OPTIONS = Loading.model_fields.keys() - {"memory"}


class ModelChoice(Loading):
    """Name a model, and how it is loaded and prompted.

    ``name``: as for :func:`choicewise.load_model`.  ``revisions``: folders inside its folder, or
    revisions on the Hub; each is a model.  ``chat`` and ``system``: as for
    :func:`choicewise.protocols.catalogue.in_chat`.
    """

    main_key: ClassVar[str] = "name"
    name: _Text
    revisions: _Texts | None = None
    chat: Literal["turns", "message"] | None = None
    system: _Text | None = None

    @property
    def label(self) -> str:
        """Return the name with all options, which is unique in a job."""
        options = {**self.options, "chat": self.chat, "system": self.system}
        parts = [f"{key} {value}" for key, value in options.items() if value is not None]
        return ", ".join([self.name, *parts])

    @property
    def _location(self) -> str:
        """Return the folder, the name on the Hub or the address, without options in the name."""
        return model_kind(self.name).location(self.name)

    @property
    def folder(self) -> str:
        """Return the name for the folder of its runs, if that is free."""
        location = self._location
        if os.path.isdir(location):
            return folder_name(Path(location).resolve().name)
        return folder_name(model_kind(self.name).folder(self.name))

    @property
    def state(self) -> object:
        """Return what changes with the model behind the name: its files, or its commit on the Hub."""
        location = self._location
        commit = None
        if not os.path.exists(location):
            from choicewise.data.hub import MODEL, commit_of, hub_name

            on_hub = hub_name(location)
            if on_hub is not None:
                commit = commit_of(on_hub, MODEL)
        folders = []
        for path in (location, self.adapter):
            if path and os.path.isdir(path):
                folders.append(state_of(Path(path)))
        return self.label, folders, commit

    def in_chat(self, protocols: Protocols) -> dict[str, Protocol]:
        """Return the protocols for this model, in a chat if it is to have one."""
        return in_chat(protocols, self.chat, self.system)

    def load(
        self,
        progress: Download | None = None,
        say: Callable[[str], None] = lambda line: None,
        **options: Any,
    ) -> Model:
        """Load the model; ``options`` override those of the job.

        ``progress`` reports a download, and ``say`` gets lines about waits for a server.  Raises
        ModelError.
        """
        return load_model(self.name, progress=progress, say=say, **{**self.options, **options})


class DataChoice(_Value):
    """Name data, the ``benchmark`` that they replace, and the meaning of their columns.

    ``mapping``: a file or a table.
    """

    main_key: ClassVar[str] = "path"
    path: _Text
    benchmark: _Text | None = None
    mapping: _Text | JsonDict | None = None

    @property
    def columns(self) -> Columns | None:
        """Return the columns of the mapping.  Raises UsageError and DataError."""
        if isinstance(self.mapping, dict):
            return columns_of(self.mapping, "mapping")
        return None if self.mapping is None else read_mapping(Path(self.mapping))

    def as_read(self, data: Dataset) -> DataChoice:
        """Return a copy with the columns that were guessed for ``data``, to be read so again."""
        if not data.guess or data.columns is None:
            return self
        return self.model_copy(update={"mapping": mapping_table(data.columns)})


class Job(Loading):
    """Hold what is evaluated: ``models`` under ``protocols``, on ``data`` or the benchmarks' data.

    Options of loading are for all models.  ``subjects``, ``limit``, ``sample``, ``seed``,
    ``shots``, ``executor``, ``workers`` and ``shard``: as for :func:`choicewise.evaluate`.
    ``score``: take only protocols that decide by it.  ``panel``: add the panel of every protocol.
    ``include_path`` and ``allow_task_code``: for tasks of the harness.  ``without_missing``: leave
    out benchmarks whose data are not found.
    """

    models: Annotated[tuple[ModelChoice, ...], Strict(False)] = ()
    protocols: Annotated[
        tuple[Annotated[_Text, AfterValidator(spelled)], ...], Field(min_length=1), Strict(False)
    ]
    shots: Annotated[int | str | None, BeforeValidator(checked_shots)] = None
    score: _Text | None = None
    panel: bool = False
    data: Annotated[tuple[DataChoice, ...], Field(min_length=1), Strict(False)] | None = None
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
    def chosen(self) -> JsonDict:
        """Return the arguments of evaluate that select items."""
        return {
            "subjects": self.subjects,
            "limit": self.limit,
            "sample": self.sample,
            "seed": self.seed,
            "skip_bad_items": self.on_bad_item == "skip",
        }

    @property
    def selection(self) -> Selection:
        """Return the selection of items.  Raises UsageError if its options exclude each other."""
        return Selection.of(self.subjects, self.limit, self.sample, self.seed)

    @property
    def choices(self) -> list[ModelChoice]:
        """Return every revision of every model, with all of its options.

        Raises UsageError for a model that is named twice, or that does not take its options.
        """
        choices: list[ModelChoice] = []
        for model in self.models:
            choices += _revisions(model, self)
        counts = Counter(choice.label for choice in choices)
        twice = [label for label, count in counts.items() if count > 1]
        if twice:
            raise UsageError(f"models: {min(twice)} is named twice")
        return choices

    @property
    def of_command(self) -> JsonDict:
        """Return the options that a command line has beside a plan."""
        names = ("include_path", "allow_task_code", "executor", "workers", "shard")
        return {name: getattr(self, name) for name in names}

    def of_run(self, model: ModelChoice, opened: OpenedSource) -> Job:
        """Return the job of one run, for its manifest: ``model`` on the data that are ``opened``."""
        source = opened.source
        # The choice of the model has all options of loading, and recipes have the score.
        changes: JsonDict = dict.fromkeys([*Loading.model_fields, "score"])
        if isinstance(self.shots, int):
            changes["shots"] = None  # the protocols contain it
        changes["models"] = (model,)
        is_named_by_selectors = source.score is None and bool(source.selectors)
        changes["protocols"] = (
            source.selectors if is_named_by_selectors else tuple(opened.protocols)
        )
        changes["data"] = None
        for choice in self.data or ():
            if choice.path == source.path:
                changes["data"] = (choice.as_read(opened.data),)
                break
        return self.model_copy(update=changes)

    def for_model(self, model: ModelChoice) -> Job:
        """Return the job of one model in one process."""
        return self.model_copy(update={"models": (model,), "executor": HERE, "workers": None})

    def as_read(self, data: Dataset) -> Job:
        """Return a copy with the columns that were guessed for ``data``."""
        choices = tuple(choice.as_read(data) for choice in self.data or ())
        return self.model_copy(update={"data": choices or None})


def job_of(table: JsonMapping) -> Job:
    """Make a job of a table with its keys.  Raises UsageError with the keys and all faults.

    A value None is no value; only ``models`` may not have it.
    """
    values = {key: value for key, value in table.items() if value is not None}
    problems = []
    if "models" in table and table["models"] is None:
        problems.append("models is missing")
    try:
        job = Job.model_validate(values)
    except ValidationError as error:
        problems += dict.fromkeys(map(_problem, error.errors(include_url=False)))
        raise UsageError.of_problems(problems) from error
    if problems:
        raise UsageError(problems[0])
    _ = job.selection  # raises if its options exclude each other
    if job.shard is not None and (job.executor != HERE or (job.workers or 1) > 1):
        raise UsageError(
            "one process computes a shard; leave workers and executor out, and use more shards"
        )
    return job


def state_of(path: Path) -> list[tuple[str, int, int]]:
    """List the path, size (bytes) and time (ns) of the files in the folder, or beside the file."""
    if path.is_dir():
        files = path.rglob("*")
    elif path.exists():
        # Other splits may lie beside a file of data.
        files = path.parent.glob("*")
    else:
        return []
    states = []
    for file in files:
        if file.is_file():
            status = file.stat()
            states.append((str(file), status.st_size, status.st_mtime_ns))
    return sorted(states)


_KEYS = {*Job.model_fields, *ModelChoice.model_fields, *DataChoice.model_fields}


@dataclass(frozen=True)
class Source:
    """Describe a dataset that is not opened yet.

    ``selectors``: names of protocols, which the catalogue resolves to ``recipes``; both are for
    this dataset.  ``benchmark``: whose data they are, None if ``path`` replaces all.  ``path``: of
    the data, None for the benchmark's.  ``columns``: their meaning, if it is declared.
    ``fitting``: leave out protocols that do not fit the data.  ``lenient``: drop the shots of
    protocols for which the data have no examples.  ``flexible``: change their split and number of
    choices to those of the data.  ``score`` and ``panel``: as in a job.
    ``one_of_several``: True if several data were named.  ``matched``: True if these are of the
    benchmark of the selectors.  ``dataset``: the data, if they are open already.
    """

    selectors: tuple[str, ...]
    benchmark: str | None
    _: KW_ONLY
    path: str | None = None
    columns: Columns | None = None
    on_bad_item: str = "error"
    fitting: bool = False
    lenient: bool = False
    flexible: bool = False
    score: str | None = None
    panel: bool = False
    recipes: Protocols = field(default_factory=dict, repr=False)
    matched: bool = False
    one_of_several: bool = False
    dataset: Dataset | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Return the benchmark, or the path of the data."""
        return self.benchmark or self.path or ""

    def open(self, progress: Download | None = None) -> Dataset:
        """Open the dataset; ``progress`` reports a download.

        Raises DataError if it does not exist, or if a row can't be used.
        """
        if self.dataset is not None:
            return self.dataset
        if self.path is None:
            from choicewise.data.benchmarks import open_benchmark

            return open_benchmark(self.name, on_bad_item=self.on_bad_item, progress=progress)
        return open_dataset(
            self.path, on_bad_item=self.on_bad_item, columns=self.columns, progress=progress
        )

    def protocols(
        self, data: Dataset, subjects: Sequence[str] | None = None
    ) -> dict[str, Protocol]:
        """Resolve the selectors for ``data``, with panels if they are wanted.

        Ways between two protocols avoid those that the data have no shots for.
        """
        protocols = dict(self.recipes)
        if any(MARK in selector for selector in self.selectors):
            selectors = self.selectors
            if self.lenient or self.flexible:
                selectors = ways_on(self._fitting(data), selectors)
            # The protocols on a way between two depend on the data, so they are not in recipes.
            resolved = resolve(*selectors, possible=partial(has_shots, data, subjects))
            protocols = _of_benchmark(self.benchmark, resolved)
            if self.score is not None:
                protocols = having_score(protocols, self.score)
        if not self.panel:
            return protocols
        from choicewise.protocols.panel import with_panels

        return {
            name: protocol
            for name, protocol in with_panels(protocols).items()
            if name in protocols or not misfit(protocol, data, subjects)
        }

    def fitted(
        self,
        data: Dataset,
        protocols: Protocols,
        subjects: Sequence[str] | None = None,
    ) -> Fitted:
        """Return ``protocols`` with what must change so that they can ask the data.

        Without those that still do not fit, if this source leaves them out.  Raises DataError if
        none can.
        """
        fitting = self._fitting(data)
        fitting = replace(fitting, leaves_out=self.fitting, subjects=subjects)
        return fit(fitting, protocols, self.selectors, self.recipes)

    def _fitting(self, data: Dataset) -> Fitting:
        return Fitting(data, drops_shots=self.lenient, is_flexible=self.flexible)

    @property
    def rendered(self) -> Sequence[RenderedRequests]:
        """Return the requests that another tool rendered, once the dataset is open."""
        return ()

    @property
    def notes(self) -> Sequence[str]:
        """Return notes for the user, once the dataset is open."""
        return ()

    @property
    def state_digest(self) -> str:
        """Return a digest of the protocols, and of the state of the data."""
        state: object
        if self.path is None:
            from choicewise.data.benchmarks import benchmark, local_folder

            folder = local_folder(self.name)
            state = benchmark(self.name).revision if folder is None else state_of(folder)
        else:
            on_hub = dataset_name(self.path)
            if on_hub is None:
                state = state_of(Path(self.path))
            else:
                from choicewise.data.hub import DATASET, commit_of

                state = commit_of(on_hub, DATASET)
        signatures = {name: signature(recipe) for name, recipe in self.recipes.items()}
        content = [signatures, self.path, repr(self.columns), self.on_bad_item, state]
        # Added only if set, so that the digests of earlier versions stay.
        if self.path is not None and not self.lenient:
            content.append("error")
        if self.panel:
            content.append("panel")
        return text_digest(json.dumps(content))


_TASK = re.compile(r"([a-z][a-z0-9-]*):.+", re.DOTALL)


def library_of(selector: str) -> TaskLibrary | None:
    """Return the library whose task ``selector`` names, ``lm-eval:arc_easy``, or None."""
    task = _TASK.fullmatch(selector)
    if task is None:
        return None
    return find(TaskLibrary, task[1])


def split_tasks(selectors: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the selectors that name tasks, and the others."""
    tasks: list[str] = []
    others: list[str] = []
    for selector in selectors:
        if library_of(selector) is None:
            others.append(selector)
        else:
            tasks.append(selector)
    return tasks, others


def sources_of(job: Job, spelled: Callable[[str], str] = str) -> list[Source]:
    """Return the datasets of ``job``: its data, or those of the benchmarks of its protocols and tasks.

    Data that name a benchmark replace that one's; protocols that do not fit other data are left
    out.  Selectors are resolved here, once.  ``spelled``: from the name of an option to the user's
    spelling.  Raises UsageError for an option that no source of the job takes, ProtocolError, and
    DataError for an unknown benchmark.
    """
    tasks, others = split_tasks(selectors_with_shots(job.protocols, job.shots))
    sources = []
    if others or job.data:
        sources += _catalogue_sources(job, tuple(others))
    refused = _refusal(job, tasks, spelled)
    if refused:
        raise UsageError(refused)
    selectors_of_library: dict[TaskLibrary, list[str]] = {}
    for task in tasks:
        library = library_of(task)
        assert library is not None
        selectors_of_library.setdefault(library, []).append(task)
    for library, selectors in selectors_of_library.items():
        sources += library.sources(selectors, job)
    return sources


TASK_OPTIONS = ("include_path", "allow_task_code")
"""Options of a job that only tasks take."""


def _refusal(job: Job, tasks: Sequence[str], spelled: Callable[[str], str]) -> str:
    """Return why an option of ``job`` is refused beside its ``tasks``, "" if none is."""
    given = [option for option in TASK_OPTIONS if getattr(job, option)]
    if not tasks:
        return _without_use(
            "protocols without a task of the harness (lm-eval:TASK)", given, spelled
        )
    first = tasks[0]
    if job.score:
        return _without_use(
            f"{first}, which names its own metrics (such as {first}:acc_norm)", ["score"], spelled
        )
    for task in tasks:
        library = library_of(task)
        assert library is not None
        useless = [option for option in given if option not in library.takes]
        if useless:
            return _without_use(task, useless, spelled)
    for model in job.models:
        chat = [option for option in ("chat", "system") if getattr(model, option)]
        if chat:
            return _without_use(
                f"{first}, which runs as the harness runs it, without a chat", chat, spelled
            )
    return ""


def _without_use(target: str, useless: Sequence[str], spelled: Callable[[str], str]) -> str:
    if not useless:
        return ""
    return not_applicable(list(map(spelled, useless)), target)


def _catalogue_sources(job: Job, selectors: tuple[str, ...]) -> list[Source]:
    """Return the datasets of the protocols ``selectors``, which the catalogue has."""
    recipes = resolve(*selectors)
    if job.score is not None:
        recipes = having_score(recipes, job.score)
    base = Source(
        selectors,
        None,
        on_bad_item=job.on_bad_item,
        score=job.score,
        panel=job.panel,
        recipes=recipes,
    )
    replacing = {}
    alone = []
    for choice in job.data or ():
        if choice.benchmark is None:
            alone.append(choice)
        else:
            replacing[choice.benchmark] = choice
    if not alone:
        return _benchmark_sources(base, job, replacing)
    if replacing:
        raise UsageError(
            f"data: {alone[0].path} has no benchmark, but others have; give one to all or to none"
        )
    if not selectors:
        raise UsageError(
            f"data: every protocol has its own data, so {alone[0].path} would not be used"
        )
    _refuse_suites(selectors)
    base = replace(base, fitting=job.shots != "error")
    if len(alone) == 1:
        return [_with_data(base, alone[0], job)]
    parts = _matched(selectors, recipes, alone)
    sources = []
    for choice in alone:
        source = replace(_with_data(base, choice, job), one_of_several=True)
        part = parts.get(choice.path)
        if part is not None:
            of_part = _selectors_of(part, selectors, recipes)
            source = replace(source, selectors=of_part, recipes=part, matched=True)
        sources.append(source)
    return sources


def _with_data(source: Source, choice: DataChoice, job: Job) -> Source:
    """Return ``source`` with data that replace its benchmark's."""
    return replace(
        source,
        path=choice.path,
        columns=choice.columns,
        lenient=job.shots is None,
        flexible=is_flexible(job),
    )


def is_flexible(job: Job) -> bool:
    """Check that protocols may be changed to fit data that replace their benchmark's."""
    return job.shots != "error" and job.on_bad_item == "error"


def _refuse_suites(selectors: Sequence[str]) -> None:
    """Raise UsageError for a suite of several benchmarks, which one dataset can't replace."""
    for selector in selectors:
        name, _ = split_changes(selector)
        if name in suite_names():
            parts = suite(name).parts
            if len(parts) > 1:
                names = ", ".join(part.benchmark for part in parts)
                raise UsageError(
                    f"{name} needs {names}, so one dataset can't be named for it; leave the data "
                    "out"
                )


def _benchmark_sources(base: Source, job: Job, replacing: Mapping[str, DataChoice]) -> list[Source]:
    from choicewise.data.benchmarks import ANY, benchmark

    for name, recipe in base.recipes.items():
        if recipe.benchmark == ANY:
            raise UsageError(f"{name} has no data of its own; name the data")
    names = dict.fromkeys(benchmark(recipe.benchmark).name for recipe in base.recipes.values())
    sources = []
    for name in names:
        source = replace(base, benchmark=name, recipes=_of_benchmark(name, base.recipes))
        if name in replacing:
            source = _with_data(source, replacing[name], job)
        sources.append(source)
    # A mistyped benchmark would leave its data unused without a word.
    useless = replacing.keys() - names
    if useless:
        raise UsageError(f"data: no protocol uses {min(useless)}; they use {', '.join(names)}")
    return sources


def _matched(
    selectors: Sequence[str], recipes: Protocols, data: Sequence[DataChoice]
) -> dict[str, dict[str, Protocol]]:
    """Return for each of several data, by path, the protocols of its benchmark.

    Protocols of a benchmark that none of the data are of are for the data of no benchmark.  Empty
    if no data are of a benchmark of the protocols.  Raises UsageError for data without a protocol.
    """
    from choicewise.data.benchmarks import ANY, benchmark_of

    wanted = dict.fromkeys(recipe.benchmark for recipe in recipes.values())
    wanted.pop(ANY, None)
    benchmark_by_path = {choice.path: benchmark_of(choice.path, wanted) for choice in data}
    covered = wanted.keys() & benchmark_by_path.values()
    if not covered or any(MARK in selector for selector in selectors):
        return {}
    has_others = not set(benchmark_by_path.values()) <= wanted.keys()
    parts = {}
    for path, data_benchmark in benchmark_by_path.items():
        takes_homeless = data_benchmark not in wanted or not has_others
        chosen = {}
        for name, recipe in recipes.items():
            if recipe.benchmark in (ANY, data_benchmark):
                chosen[name] = recipe
            elif takes_homeless and recipe.benchmark not in covered:
                chosen[name] = recipe
        if not chosen:
            raise UsageError(
                f"data: {path} would not be used, as every protocol has its own "
                "benchmark's data; leave it out, or give every dataset its benchmark"
            )
        parts[path] = chosen
    return parts


def _selectors_of(
    chosen: Protocols, selectors: Sequence[str], recipes: Protocols
) -> tuple[str, ...]:
    """Return the selectors whose protocols were all chosen, and the names of the others chosen."""
    whole = []
    single: list[str] = []
    for selector in selectors:
        # A score or an option may have removed some of its protocols.
        names = [name for name in resolve(selector) if name in recipes]
        if not chosen.keys() >= set(names):
            single += [name for name in names if name in chosen]
        elif names:
            whole.append(selector)
    return (*whole, *single)


@dataclass(frozen=True)
class OpenedSource:
    """Hold an open dataset and its protocols.

    ``work``: as in :attr:`choicewise.requests.blocks.Block.work`.  ``left_out``: why protocols do
    not fit the data → their names.  ``changes``: lines about the changes of protocols that fit.
    ``checked``: True if all items and shots can be used.
    """

    source: Source
    data: Dataset
    protocols: Protocols
    work: int
    _: KW_ONLY
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    changes: Sequence[str] = ()
    checked: bool = False

    @property
    def left_out_lines(self) -> list[str]:
        """Say which protocols are left out, and why."""
        lines = []
        for reason, names in self.left_out.items():
            which = listed(names, _MOST_NAMES)
            name = self.source.name
            lines.append(f"{name} runs without {which}: {reason}")
        return lines


_MOST_NAMES = 8
"""Protocols that a line names; the others are counted."""


@dataclass(frozen=True)
class Task:
    """Hold a run of a job: a ``model``, and the ``work`` to be done with it.

    ``share``: the part that this process does, None for all.  ``kept``: the job for the manifest,
    None if model or data have no name; ``command``: the words of the command line.
    ``checked``: True if all items and shots can be used.
    """

    model: Model
    work: Work
    _: KW_ONLY
    share: Share | None = None
    kept: Job | None = None
    command: Sequence[str] = ()
    checked: bool = False

    @classmethod
    def of(
        cls,
        model: Model,
        opened: OpenedSource,
        protocols: Protocols,
        job: Job,
        *,
        rendered: Sequence[RenderedRequests] = (),
        kept: Job | None = None,
        command: Sequence[str] = (),
    ) -> Task:
        """Select the work of ``job``; errors as of :meth:`choicewise.running.work.Work.of`.

        ``rendered``: requests that another tool rendered, beside those of the source.
        """
        requests = [*opened.source.rendered, *rendered]
        skips = job.on_bad_item == "skip"
        work = Work.of(model, opened.data, protocols, job.selection, requests, skips)
        # Protocols that the data refuse are kept with those that the model refuses.
        refused = dict(work.refused)
        for reason, names in opened.left_out.items():
            refused |= dict.fromkeys(names, reason)
        work = replace(work, refused=refused)
        share = None if job.shard is None else share_of(job.shard)
        return cls(model, work, share=share, kept=kept, command=command, checked=opened.checked)


UNMEASURED = 1_000_000
"""Units of work of a run that is the only one: its progress can be shown in so many steps."""


def open_source(
    source: Source,
    job: Job,
    progress: Download | None = None,
    measured: bool = True,
    checked: bool = False,
) -> OpenedSource:
    """Open the dataset of ``source``, and check items and shots.

    If not ``measured``, the work is :data:`UNMEASURED`, and items and shots are only checked if
    ``checked``.  Raises DataError for missing data, and for items and shots that can't be used.
    """
    data = source.open(progress)
    protocols = source.protocols(data, job.subjects)
    left_out: dict[str, Sequence[str]] = {}
    if source.one_of_several:
        # Each protocol is for the data that fit it as published, if any of them do.
        with suppress(DataError):
            as_published = replace(source, flexible=False)
            fitted = as_published.fitted(data, protocols, job.subjects)
            left_out.update(fitted.left_out)
            protocols = {name: protocols[name] for name in fitted.typed.values()}
    fitted = source.fitted(data, protocols, job.subjects)
    work_units = UNMEASURED
    if measured or checked:
        recipes = {name: with_split(recipe, data) for name, recipe in fitted.protocols.items()}
        work = Work(
            data=data,
            protocols=recipes,
            sections=list_sections(data, recipes, job.selection),
            rendered=source.rendered,
            skip_bad_items=job.on_bad_item == "skip",
        )
        stretches = list(work.stretches())
        work.check(stretches)
        if measured:
            work_units = sum(block.work for block in work.blocks(stretches))
    return OpenedSource(
        source,
        data,
        fitted.protocols,
        work_units,
        left_out=left_out | dict(fitted.left_out),
        changes=fitted.notes,
        checked=measured or checked,
    )


def _of_benchmark(name: str | None, recipes: Protocols) -> dict[str, Protocol]:
    if name is None:
        return dict(recipes)
    return {key: recipe for key, recipe in recipes.items() if recipe.benchmark == name}


def _revisions(model: ModelChoice, common: Loading) -> Iterator[ModelChoice]:
    """Yield every revision of the model, with the common options that its kind takes."""
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
    options: JsonDict = {}
    for option, value in {**common.options, **given}.items():
        if option in kind.takes:
            options[option] = value
    options["memory"] = model.memory or common.memory
    whole = model.model_copy(update={**dict.fromkeys(_OPTIONS), **options, "revisions": None})
    if model.revisions is None:
        yield whole
        return
    for revision in model.revisions:
        # Revisions of a folder are folders in it, those on the Hub are branches or commits.
        inside = f"{name}/{revision}" if os.path.isdir(name) else f"{name}@{revision}"
        yield whole.model_copy(update={"name": inside})


def _problem(error: JsonMapping) -> str:
    """Describe an error of pydantic."""
    where = ""
    for part in error["loc"]:
        # Pydantic puts the name of a union's member among the keys.
        if isinstance(part, int):
            where += f"[{part}]"
        elif part in _KEYS or part == error["loc"][-1]:
            where += f".{part}"
    where = where.lstrip(".")
    match error["type"]:
        case "extra_forbidden":
            nested: dict[str, type[_Value]] = {"models": ModelChoice, "data": DataChoice}
            keys = nested.get(str(error["loc"][0]), Job).model_fields
            return f"{where} is not a key; {did_you_mean(str(error['loc'][-1]), list(keys))}"
        case "missing":
            return f"{where} is missing"
        case "model_type":
            return f"{where} is {error['input']!r}; it must be a name or a table"
        case "greater_than_equal":
            return f"{where} is {error['input']!r}; it must be at least {error['ctx']['ge']}"
        case "value_error":
            return f"{where} is {error['input']!r}; it must be {error['ctx']['error']}"
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"{where} is {error['input']!r}; {message.replace('input should', 'it must')}"
