"""Declare the options that several commands share, in groups, and make a job of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from choicewise.cli.terminal import show_download, tell
from choicewise.errors import UsageError, not_applicable

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset
    from choicewise.models.model import Model
    from choicewise.records import Manifest
    from choicewise.running.job import Job, OpenedSource, Source


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the fields of its groups, which are dataclasses, as its options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            groups[name] = kind
            annotations = get_type_hints(kind, include_extras=True)
            for option in fields(kind):
                declared = inspect.Parameter(
                    option.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=option.default,
                    annotation=annotations[option.name],
                )
                parameters.append(declared)
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind))

    def flat(**values: Any) -> None:
        for name, kind in groups.items():
            names = [option.name for option in fields(kind) if option.name in values]
            values[name] = kind(**{option: values.pop(option) for option in names})
        command(**values)

    flat.__name__ = command.__name__
    flat.__doc__ = command.__doc__
    flat.__module__ = command.__module__
    # typer reads the options of a command from its signature and annotations.
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


OnBadItem = StrEnum("OnBadItem", ["error", "skip"])
"""What to do with a question that can't be used."""

ChatForm = StrEnum("ChatForm", ["turns", "message"])
"""How shots and query become the messages of a chat."""

Dtype = StrEnum("Dtype", ["float32", "bfloat16", "float16", "fp16", "bf16"])
"""Arithmetic of a local model; log-softmax is float32 in every case."""


def shots_of(text: str | None) -> int | str | None:
    """Return the value of ``--shots`` for a job, which refuses other words than it knows."""
    if text is not None and text.isascii() and text.isdigit():
        return int(text)
    return text


class OptionGroup:
    """Options of a group count as given if they differ from their defaults."""

    @property
    def given(self) -> dict[str, Any]:
        """Return the given options by the names of a job, which are those of
        :func:`choicewise.load_model`.
        """
        values = {}
        for option in fields(self):  # type: ignore[arg-type]
            value = getattr(self, option.name)
            # A mapping is a part of the data (:meth:`Part.data`).
            if value != option.default and option.name != "mapping":
                values["subjects" if option.name == "subject" else option.name] = _plain(value)
        return values


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(str, value))
    if isinstance(value, int):
        return value
    return str(value)


@dataclass(frozen=True, kw_only=True)
class Loading(OptionGroup):
    """Options that say how the model is loaded."""

    dtype: ModelDtype = None
    device: Device = None
    window: Window = None
    batch_tokens: BatchTokens = None
    adapter: Adapter = None
    products: Products = None
    tokenizer: Tokenizer = None

    def load(self, model: str) -> Model:
        """Load the model.

        UsageError for options that its kind has no use for, ModelError if it can't be loaded.
        """
        refuse_foreign(model, **self.given)
        from choicewise.models.load import load_model

        return load_model(model, progress=show_download(), say=tell, **self.given)


@dataclass(frozen=True, kw_only=True)
class Part(OptionGroup):
    """Options that select items, and say what becomes of bad ones."""

    subject: Subjects = None
    limit: Limit = None
    sample: Sample = None
    seed: Seed = None
    on_bad_item: BadItems = OnBadItem.error
    mapping: MappingFile = None

    def data(self, *paths: object | None) -> dict[str, Any]:
        """Return the data at ``paths`` (None: none) for a job.

        UsageError for a mapping without data.
        """
        named = [str(path) for path in paths if path is not None]
        if not named:
            refuse_without_use("a benchmark's own data", mapping=self.mapping)
            return {}
        mapping = {}
        if self.mapping is not None:
            mapping["mapping"] = str(self.mapping)
        return {"data": [{"path": path, **mapping} for path in named]}


@dataclass(frozen=True)
class Tasks(OptionGroup):
    """Options about task files of the harness."""

    include_path: IncludePath = None
    allow_task_code: AllowTaskCode = False


@dataclass(frozen=True)
class Output(OptionGroup):
    """Options that say how much of the numbers is printed, and in which form."""

    every: All = False
    ids: Ids = False
    json: Json = False

    def check(self) -> None:
        """Raise UsageError for two forms at once."""
        if self.json:
            refuse_without_use(
                "--json, which prints every number with its ids", all=self.every, ids=self.ids
            )


def sources_of(job: Job) -> list[Source]:
    """Return the sources of the items of ``job``; refusals name options as they are typed."""
    from choicewise.running.job import sources_of

    return sources_of(job, spelled_option)


def resuming_command(manifest: Manifest, folder: Path, protocols: Sequence[str]) -> str:
    """Return the command that adds ``protocols`` to the run in ``folder``, from the job that it was
    begun with.

    Tells on stderr if the run does not know the paths of model and data.
    """
    from choicewise.page.reproduce import run_line

    # Runs that Python made know models and data as objects, not by their paths.
    if not manifest.job:
        tell("note: this run has no paths of model and data; replace their names in its command")
    return run_line(manifest, protocols, folder)


def line_of(run: Path, manifest: Manifest) -> str:
    """Return the command that resumes a run, from the job that its manifest keeps."""
    if manifest.imported is not None:
        return f"the `choicewise import` command that made {run}"
    from choicewise.page.reproduce import selectors
    from choicewise.results.run import asked_protocols
    from choicewise.running.job import split_tasks

    tasks, _ = split_tasks(manifest.job.get("protocols", ()))
    names = tasks or selectors(asked_protocols(run, manifest))
    return resuming_command(manifest, run, names)


def tell_reading(dataset: Dataset, notes: Sequence[str], changes: Sequence[str]) -> None:
    """Tell on stderr how the data were read, with ``notes`` of their source.

    ``changes``: what protocols change to fit them.
    """
    lines = list(notes)
    if dataset.guess:
        lines.append(f"columns detected in {dataset.guess} (override with --mapping FILE)")
    lines += dataset.notes
    lines += [f"{change}; `--shots error` stops here" for change in changes]
    tell(*(f"note: {line}" for line in lines if line))


def tell_notes(source: OpenedSource, job: Job) -> None:
    """Tell on stderr how the data were read, of items with equal choices, and of content that
    protocols leave out.
    """
    from choicewise.data.items import BLANK, duplicate_choices
    from choicewise.requests.blocks import list_sections, unused_by

    dataset = source.data
    tell_reading(dataset, source.source.notes, source.changes)
    repeated = []
    for section in list_sections(dataset, source.protocols, job.selection):
        repeated += [item.id for item in section.items if duplicate_choices(item)]
    if len(repeated) == 1:
        tell(f"note: item {repeated[0]} has two equal choices")
    elif repeated:
        tell(f"note: {len(repeated)} items have two equal choices: {repeated[0]}, ...")
    for content, names in unused_by(source.protocols, dataset.content).items():
        columns = []
        for name in content:
            if name == BLANK:
                columns.append("the blank _ in the questions")
            else:
                columns.append(f"field {name}")
        tell(f"note: {first_of(names)} leave out part of the questions: {' and '.join(columns)}")


def first_of(names: Sequence[str]) -> str:
    """Return the first of ``names``, with the number of the others."""
    if len(names) == 1:
        return names[0]
    return f"{names[0]} and {len(names) - 1} more"


def _comma_separated(texts: list[str] | None) -> list[str] | None:
    """Split the values of ``--metric``; None if no name is left."""
    names = []
    for text in texts or ():
        names += [name.strip() for name in text.split(",") if name.strip()]
    return names or None


# readable=False: the function that reads a path says that it can't be read, with the exit code of what it is.
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME",
        help="A folder, ORG/NAME@REVISION on the Hub, bundled:NAME, vllm:NAME, server:URL#NAME,"
        " decisions:URL#NAME, or fake:hash (instant, for a first try).",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        readable=False,
        help="CSV, JSONL, Parquet, an MMLU folder, a Hub dataset (ORG/NAME:CONFIG@REVISION) or"
        " bundled:merrowick (default: each benchmark's own data).",
    ),
]
Protocols = Annotated[
    list[str],
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="A protocol, family (mmlu), suite (leaderboard/v1), signature, TOML file, harness task"
        " (lm-eval:TASK), or all between two (P..Q). Repeatable.",
    ),
]
IncludePath = Annotated[
    list[Path] | None,
    typer.Option(
        "--include-path",
        metavar="DIR",
        readable=False,
        help="A folder with your own harness task files. Repeatable.",
    ),
]
AllowTaskCode = Annotated[
    bool,
    typer.Option(
        "--allow-task-code",
        help="Run the Python code that your own task files name. Read that code first.",
    ),
]
Adapter = Annotated[
    Path | None,
    typer.Option(
        "--adapter",
        metavar="DIR",
        readable=False,
        help="A PEFT adapter to load on top of the model.",
    ),
]
Chat = Annotated[
    ChatForm | None,
    typer.Option(
        "--chat",
        help="Use the model's chat template: examples as separate turns, or all in one message.",
    ),
]
System = Annotated[
    str | None, typer.Option("--system", metavar="TEXT", help="System prompt of chats.")
]
Subjects = Annotated[
    list[str] | None,
    typer.Option("--subject", metavar="NAME", help="Run only this subject. Repeatable."),
]
Shots = Annotated[
    str | None,
    typer.Option(
        "--shots",
        metavar="N",
        help="Few-shot examples (default: as published; 0 if your file has none). 'error': stop"
        " instead.",
    ),
]
Score = Annotated[
    str | None,
    typer.Option(
        "--score",
        metavar="NAME",
        help="Compute only this score where a protocol has it: acc_norm, char_mean_bare, ...",
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME,...",
        callback=_comma_separated,
        help="Show other metrics: bpb, prob, brier, ece, ... (docs/statistics.md lists all).",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", min=1, help="Use only the first N questions of each subject."
    ),
]
Sample = Annotated[
    int | None,
    typer.Option(
        "--sample",
        metavar="N",
        min=1,
        help="Draw N questions at random, in proportion to the size of the subjects.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="S",
        min=0,
        help="Seed of --sample; the same seed draws the same questions (default: 1).",
    ),
]
BadItems = Annotated[
    OnBadItem,
    typer.Option("--on-bad-item", help="Stop at a question that can't be used, or skip it."),
]
MappingFile = Annotated[
    Path | None,
    typer.Option(
        "--mapping",
        metavar="FILE",
        readable=False,
        help="A TOML file that names the columns of question, choices and answer (docs/data.md).",
    ),
]
RunFolders = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR...", readable=False, help="Run folders, or folders that hold runs."
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", readable=False, help="A run folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
All = Annotated[
    bool, typer.Option("--all", help="Print every score in its own line, and explain the warnings.")
]
Ids = Annotated[
    bool,
    typer.Option(
        "--ids", help="Print every score with the ids of protocol, texts, tokens, model and data."
    ),
]
ModelDtype = Annotated[
    Dtype | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        help="float32, bfloat16 or float16 (default: float32 on a CPU, else the checkpoint's).",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="cpu, cuda, cuda:1, auto: all GPUs (default: fastest).",
    ),
]
Window = Annotated[
    int | None,
    typer.Option(
        "--window",
        metavar="N",
        min=1,
        help="Longest input in tokens (default: from config.json or the server).",
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="NAME",
        help="Tokenizer of a server's model: a folder, Hub name or bundled one (default: the one with"
        " the server's model name).",
    ),
]
Products = Annotated[
    str | None,
    typer.Option(
        "--products",
        metavar="LIBRARY",
        help="Library for float32 on a CPU: torch or onednn (default: onednn on AMD, where it is"
        " twice as fast).",
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        metavar="N",
        min=1,
        help="Tokens per batch; halved automatically if memory runs out.",
    ),
]


def refuse_without_use(target: str, **given: object) -> None:
    """Raise UsageError if one of the options ``given`` by name has no effect on ``target``.

    An option that was not given is None or False.
    """
    useless = []
    for name, value in given.items():
        if value is not None and value is not False:
            useless.append(spelled_option(name))
    if useless:
        raise UsageError(not_applicable(useless, target))


def refuse_lacking(needed: Mapping[str, object], advice: str) -> None:
    """Raise UsageError if an option of ``needed`` (by name) was not given."""
    lacking = [f"--{name}" for name, value in needed.items() if not value]
    if lacking:
        raise UsageError(f"{' and '.join(lacking)} missing: {advice}")


def refuse_foreign(model: str, **given: object) -> None:
    """Raise UsageError for options (by name, None if not given) that this kind of ``model`` does
    not take.

    Raises ModelError if the name can't be of its kind.
    """
    from choicewise.models.kinds import refusal

    names = [name for name, value in given.items() if value is not None]
    message = refusal(model, names, spelled_option)
    if message:
        raise UsageError(message)


def spelled_option(name: str) -> str:
    """Return how an option is written on the command line."""
    return f"--{name.replace('_', '-')}"
