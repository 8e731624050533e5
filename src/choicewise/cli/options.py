"""Option groups as dataclasses: ModelOptions, DataOptions, RunOptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli.terminal import progress, show_download, tell, typed_words
from choicewise.errors import UsageError
from choicewise.interchange.harness_tasks.files import split_tasks

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset
    from choicewise.models.model import Model
    from choicewise.protocols.between import Possible
    from choicewise.protocols.protocol import Protocol
    from choicewise.records import Manifest
    from choicewise.results.run import Run
    from choicewise.running.sources import Chosen, Source, SweepModel
    from choicewise.running.workers import Parallel


def load_one(
    model: str,
    *,
    dtype: str | None,
    device: str | None,
    window: int | None,
    adapter: Path | None,
    tokenizer: str | None,
) -> Model:
    """The model of these options; UsageError for those that this kind of model has no use for, ModelError as loading.

    Tells on stderr where an adapter names another model than the one that it is put into.
    """
    refuse_foreign(model, tokenizer, window, dtype=dtype, device=device, adapter=adapter)
    from choicewise.models.load import load_model

    progress = show_download()
    loaded = load_model(
        model,
        dtype=dtype,
        device=device,
        window=window,
        adapter=adapter,
        tokenizer=tokenizer,
        progress=progress,
        say=tell,
    )
    tell_other_base(model, adapter)
    return loaded


OnBadItem = StrEnum("OnBadItem", ["error", "skip"])
"""What to do with a question that can't be used."""

ChatForm = StrEnum("ChatForm", ["turns", "message"])
"""How shots and query become the messages of a chat."""

Dtype = StrEnum("Dtype", ["float32", "bfloat16", "float16"])
"""Arithmetic of a local model; log-softmax is float32 in every case."""

Kind = StrEnum("Kind", ["local", "ray"])
"""Where the work of a run is done."""


@dataclass(frozen=True)
class Evaluation:
    """The options of a command that evaluates, by their names."""

    model: str
    data: Path | None
    subject: list[str] | None
    limit: int | None
    on_bad_item: OnBadItem
    mapping: Path | None
    dtype: Dtype | None
    device: str | None
    window: int | None
    batch_tokens: int | None
    chat: ChatForm | None = None
    system: str | None = None
    adapter: Path | None = None
    include_path: list[Path] | None = None
    allow_task_code: bool = False
    tokenizer: str | None = None
    executor: Kind = Kind.local
    workers: int | None = None

    @property
    def parallel(self) -> Parallel:
        """How the work is spread."""
        from choicewise.running.workers import Parallel

        return Parallel(str(self.executor), self.workers)

    def refuse_foreign(self, **more: object) -> None:
        """UsageError for options that this kind of model has no use for; ``more``: of local models, beside these."""
        local = {name: getattr(self, name) for name in ("dtype", "device", "batch_tokens", "adapter")}
        if self.model.startswith("server:"):
            local |= spread(self.executor, self.workers)
        refuse_foreign(self.model, self.tokenizer, self.window, **local, **more)

    @property
    def command(self) -> tuple[str, ...]:
        """The words that say the same in the command line of a run that goes on."""
        given = {"--model": self.model, "--data": self.data, "--limit": self.limit, "--mapping": self.mapping}
        given |= {"--dtype": self.dtype, "--device": self.device, "--window": self.window, "--adapter": self.adapter}
        given |= {"--tokenizer": self.tokenizer}
        given |= {"--on-bad-item": self.on_bad_item} if self.on_bad_item == OnBadItem.skip else {}
        words = [(name, _word(value)) for name, value in given.items() if value is not None]
        words += [("--subject", subject) for subject in self.subject or ()]
        words += [("--include-path", _word(folder)) for folder in self.include_path or ()]
        flags = ("--allow-task-code",) if self.allow_task_code else ()
        return (*(word for pair in words for word in pair), *flags)

    @property
    def chosen(self) -> dict[str, Any]:
        """The part of the data that is asked, as evaluate and plan take it."""
        skip = self.on_bad_item == OnBadItem.skip
        return {"subjects": self.subject, "limit": self.limit, "skip_bad_items": skip}

    @property
    def part(self) -> Chosen:
        """The same as several runs take it."""
        from choicewise.running.sources import Chosen

        return Chosen(None if self.subject is None else tuple(self.subject), *[*self.chosen.values()][1:])

    def resolve(self, selectors: Sequence[str]) -> dict[str, Protocol]:
        """The protocols of the selectors, but for those of harness tasks, as they are asked; errors as of each.

        What is wrong with them is said before any data are opened.
        """
        from choicewise.protocols.catalogue import resolve

        tasks, others = split_tasks(selectors)
        if tasks:
            chat = {"chat": self.chat, "system": self.system}
            refuse_without_use(f"{tasks[0]} is asked as the harness asks without a chat and has", **chat)
        return self.chats(resolve(*others))

    def chats(self, recipes: Mapping[str, Protocol]) -> dict[str, Protocol]:
        """The protocols as they are asked: in a chat where that is wanted."""
        from choicewise.protocols.catalogue import in_chat

        return in_chat(recipes, self.chat, self.system)

    def sources(self, selectors: Sequence[str]) -> list[Source]:
        """Where the questions come from, as :func:`sources_of`."""
        given = self.data, self.mapping, self.on_bad_item, self.subject, self.include_path, self.allow_task_code
        return sources_of(selectors, *given)

    def open(
        self, source: Source, resolve: Callable[[Possible], dict[str, Protocol]] | None = None
    ) -> tuple[Dataset, dict[str, Protocol]]:
        """The dataset of ``source``, and what it is asked under, or what ``resolve`` gives of all that has shots."""
        from choicewise.requests.blocks import has_shots

        dataset = source.open(show_download())
        if resolve is None:
            named = source.protocols(dataset, self.subject)
        else:
            named = resolve(partial(has_shots, dataset, self.subject))
        recipes = self.chats(named)
        tell_notes(dataset, recipes, self.subject, self.limit, source.notes)
        return dataset, recipes

    @property
    def planned(self) -> SweepModel:
        """The model, as several runs take it."""
        from choicewise.running.sources import SweepModel

        names = ("dtype", "device", "window", "batch_tokens", "adapter", "tokenizer")
        local = {name: getattr(self, name) for name in names}
        named = {name: value for name, value in local.items() if value is not None}
        given = {name: value if isinstance(value, int) else str(value) for name, value in named.items()}
        chat = None if self.chat is None else str(self.chat)
        return SweepModel(self.model, given, chat, self.system)

    def load(self, dtype: str | None = None) -> Model:
        """The model, in another arithmetic if ``dtype`` names one."""
        from choicewise.models.load import load_model

        local: dict[str, Any] = {"window": self.window, "batch_tokens": self.batch_tokens}
        local |= self.parallel.loading(self.device)
        local |= {"adapter": self.adapter, "tokenizer": self.tokenizer, "progress": show_download(), "say": tell}
        model = load_model(self.model, dtype=dtype or self.dtype, **local)
        tell_other_base(self.model, self.adapter)
        tell_server(model)
        return model

    def into(self, out: Path, model: Model, dataset: Dataset, recipes: Mapping[str, Protocol], **more: Any) -> Run:
        """The run in folder ``out``; ``more``: as evaluate takes it."""
        from choicewise.running.evaluate import evaluate

        _tell_system_texts(model, recipes)
        chosen = self.chosen | more | {"command": self.command, "typed": typed_words.get()}
        chosen |= {"executor": str(self.executor), "workers": self.workers}
        with progress(model.name, lambda: model.computed) as report:
            return evaluate(model=model, data=dataset, protocols=recipes, out=out, progress=report, say=tell, **chosen)


def spread(executor: Kind, workers: int | None) -> dict[str, object]:
    """The options that spread the work, by name, None where they were not given."""
    return {"executor": None if executor == Kind.local else executor, "workers": workers}


def tell_notes(
    dataset: Dataset,
    recipes: Mapping[str, Protocol],
    subject: list[str] | None,
    limit: int | None,
    notes: Sequence[str] = (),
) -> None:
    """What the user should know of the questions, on stderr; ``notes``: what their source says of them."""
    tell(*(f"note: {note}" for note in notes))
    _tell_repeated_choices(dataset, recipes, subject, limit)
    _tell_unused_content(dataset, recipes)


def sources_of(
    selectors: Sequence[str],
    data: Path | None,
    mapping: Path | None,
    on_bad_item: OnBadItem,
    subject: list[str] | None,
    include_path: Sequence[Path] | None = None,
    allow_task_code: bool = False,
) -> list[Source]:
    """Where the questions come from that the protocols are asked about: several where they name several benchmarks.

    Raises UsageError for options that do not go together with that.
    """
    from choicewise.data.dataset import read_mapping
    from choicewise.running.sources import Source, benchmark_sources, refuse_one_dataset

    tasks, selectors = split_tasks(selectors)
    sources: list[Source] = []
    if tasks:
        from choicewise.interchange.harness_tasks.as_protocols import task_sources

        refuse_without_use(f"{tasks[0]} has data of its own and", data=data, mapping=mapping)
        sources += task_sources(tasks, include_path or (), allow_task_code, on_bad_item)
    else:
        own = {"include_path": include_path or None, "allow_task_code": allow_task_code}
        refuse_without_use("protocols without a task of the harness (lm-eval:TASK) have", **own)
    if data is not None:
        refuse_one_dataset(selectors)
        columns = None if mapping is None else read_mapping(mapping)
        return [Source(tuple(selectors), None, str(data), columns, on_bad_item)]
    refuse_without_use("a benchmark's own data have", mapping=mapping)
    sources += benchmark_sources(selectors, on_bad_item)
    if len(sources) > 1:
        refuse_without_use("several benchmarks, with subjects of their own, have", subject=subject)
    return sources


def _tell_repeated_choices(
    dataset: Dataset, recipes: Mapping[str, Protocol], subject: list[str] | None, limit: int | None
) -> None:
    from choicewise.data.items import duplicate_choices
    from choicewise.requests.blocks import list_sections

    sections = list_sections(dataset, recipes, subject, limit)
    repeated = [item.id for section in sections for item in section.items if duplicate_choices(item)]
    if len(repeated) == 1:
        tell(f"note: item {repeated[0]} shows the same choice twice and is kept")
    elif repeated:
        tell(f"note: {len(repeated)} items show the same choice twice and are kept: {repeated[0]}, ...")


def _tell_unused_content(dataset: Dataset, recipes: Mapping[str, Protocol]) -> None:
    from choicewise.data.items import BLANK
    from choicewise.protocols.signature import unused_by

    for content, names in unused_by(recipes, dataset.content).items():
        fields = " and ".join("the blank _ in the questions" if name == BLANK else f"field {name}" for name in content)
        more = f" and {len(names) - 1} more" * (len(names) > 1)
        tell(f"note: {names[0]}{more} leave out what belongs to the questions: {fields}")


def _tell_system_texts(model: Model, recipes: Mapping[str, Protocol]) -> None:
    chats = [name for name, each in recipes.items() if each.chat != "none" and (each.system or each.header)]
    if chats and (template := model.tokenizer.chat) is not None and not template.takes_system:
        more = f" and {len(chats) - 1} more" * (len(chats) > 1)
        tell(f"note: the chat template of {model.name} takes no system text; none is sent under {chats[0]}{more}")


def tell_server(model: Model) -> None:
    """Tell on stderr how the server that ``model`` is behind is asked."""
    from choicewise.running.work import how_asked

    tell(*how_asked(model))


def tell_other_base(model: str, adapter: Path | None) -> None:
    """Tell on stderr where an adapter names another model than the one that it is put into."""
    if adapter is not None:
        from choicewise.models.local.files import read_adapter

        if (base := read_adapter(adapter).made_for_another(model)) is not None:
            tell(f"note: the adapter {adapter} says that it was trained beside {base}, not {model}")


def _word(value: object) -> str:
    return f"./{value}" if isinstance(value, Path) and str(value).startswith("-") else str(value)


# readable=False: whoever reads a path says that it can't be read, with the exit code of what it is.
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        help="A model folder, a name on the Hub (ORG/NAME@REVISION), one that is bundled (bundled:merrow-bpe-2048), one"
        " behind a server (server:http://HOST:PORT/v1#NAME), or fake:hash, fake:oracle, fake:anti-oracle.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        readable=False,
        help="A folder in the original MMLU layout, JSONL, CSV, Parquet (file or folder), or a dataset on the Hub"
        " (ORG/NAME:CONFIG@REVISION), or bundled:merrowick; the benchmarks' own data unless given.",
    ),
]
Protocols = Annotated[
    list[str],
    typer.Option(
        "--protocol",
        help="A catalogue name, a suite (leaderboard/v1), a family (mmlu), a signature, a TOML file, or all between "
        "two: P..Q; or lm-eval:TASK, a task of LM Evaluation Harness. Repeatable.",
    ),
]
IncludePath = Annotated[
    list[Path] | None,
    typer.Option("--include-path", readable=False, help="A folder with further task files of the harness. Repeatable."),
]
AllowTaskCode = Annotated[
    bool,
    typer.Option("--allow-task-code", help="Run Python code that the harness tasks asked for name: read it first."),
]
Adapter = Annotated[
    Path | None,
    typer.Option("--adapter", readable=False, help="The folder of an adapter that PEFT trained beside the model."),
]
Chat = Annotated[
    ChatForm | None,
    typer.Option("--chat", help="Ask in a chat by the model's template, with shots as turns or all in one message."),
]
System = Annotated[str | None, typer.Option("--system", help="The system text of chats.")]
Subjects = Annotated[list[str] | None, typer.Option("--subject", help="Only this subject. Repeatable.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N questions of each subject.")]
BadItems = Annotated[
    OnBadItem, typer.Option("--on-bad-item", help="Stop at a question that can't be used, or skip it.")
]
MappingFile = Annotated[
    Path | None,
    typer.Option(
        "--mapping",
        readable=False,
        help="A TOML file saying which columns hold question, choices and answer; its keys stand in docs/data.md.",
    ),
]
WithoutMissing = Annotated[
    bool, typer.Option("--without-missing", help="Go on without benchmarks whose data are not there.")
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", readable=False, help="A run folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
All = Annotated[bool, typer.Option("--all", help="Show every number where there are many, not their families alone.")]
ModelDtype = Annotated[Dtype | None, typer.Option("--dtype", help="float32 on a CPU, the checkpoint's own elsewhere.")]
Device = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, cuda:1, ..., auto (spread over all GPUs); the fastest one there is."),
]
Window = Annotated[
    int | None,
    typer.Option(
        "--window", min=1, help="Most input tokens; config.json of the model, or its server, says it unless given."
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        help="Of a model behind a server: a folder, a name on the Hub, or one that is bundled; found by the name that"
        " the server gives unless named.",
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option("--batch-tokens", min=1, help="Tokens computed at once; halved automatically when memory runs out."),
]

Executor = Annotated[
    Kind,
    typer.Option(
        "--executor",
        help="Where the model computes: on this machine, or on the Ray cluster that RAY_ADDRESS names (else one that is"
        " started on this machine).",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Copies of the model that compute at once, each in a process of its own, on a GPU of its own where there"
        " are several; with Ray as many as the cluster has room for unless given.",
    ),
]


def refuse_without_use(chosen: str, **given: object) -> None:
    """UsageError when one of the options ``given`` (by name, ``None`` or ``False`` when it was not) does nothing here.

    ``chosen`` is the reason, the beginning of the message: ``fake:hash has``.
    """
    useless = [
        f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None and value is not False
    ]
    if useless:
        names = " and ".join(useless)
        raise UsageError(f"{chosen} no use for {names}; leave {names} out")


def refuse_foreign(model: str, tokenizer: str | None = None, window: int | None = None, **local: object) -> None:
    """UsageError for options (by name, None when not given) that have no use for this kind of ``model``.

    ``local``: those of models that are computed here.  Raises ModelError for a server's address that is none.
    """
    if model.startswith("fake:"):
        refuse_without_use(f"{model} has", tokenizer=tokenizer, window=window, **local)
    elif model.startswith("server:"):
        from choicewise.models.server.address import ServerAddress

        address = ServerAddress.parse(model)  # before anything is written that would repeat a secret in it
        refuse_without_use(f"{address} is computed by its server and has", **local)
    else:
        refuse_without_use(
            f"{model} brings its own tokenizer, as all but models behind servers do, and has", tokenizer=tokenizer
        )


def begun_words(manifest: Manifest) -> tuple[str, ...]:
    """Model, data and selection of a run as a line says them: as it was begun, or else by their names.

    Says so on stderr where names are not known to be paths.
    """
    if manifest.command:
        return manifest.command
    model, selection = manifest.model, manifest.selection
    words = ["--model", model.name, "--data", manifest.dataset.name]
    if not model.name.startswith("fake:"):
        words += ["--dtype", model.arithmetic, "--device", model.device, "--window", str(model.window)]
    words += [word for subject in selection.subjects or () for word in ("--subject", subject)]
    words += [] if selection.limit is None else ["--limit", str(selection.limit)]
    tell("note: the run does not say where model and data lie; their names stand in its line for the paths")
    return tuple(words)
