"""Options that several commands share, declared once, and which of them have no use together."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from choicewise.errors import UsageError

OnBadItem = StrEnum("OnBadItem", ["error", "skip"])
"""What to do with a question that can't be used."""

ChatForm = StrEnum("ChatForm", ["turns", "message"])
"""How shots and query become the messages of a chat."""

Dtype = StrEnum("Dtype", ["float32", "bfloat16", "float16"])
"""Arithmetic of a local model; log-softmax is float32 in every case."""

Kind = StrEnum("Kind", ["local", "ray"])
"""Where the work of a run is done."""

# readable=False: whoever reads a path says that it can't be read, with the exit code of what it is.
Model = Annotated[
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
Mapping = Annotated[
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
