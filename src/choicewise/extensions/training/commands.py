"""The command ``choicewise requests``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.terminal import print_json, progress, show, show_download, tell
from choicewise.errors import UsageError
from choicewise.util.text import command_line, counted


@options.grouped
def requests(
    *,
    tokenizer: Annotated[
        str,
        typer.Option(
            "--tokenizer",
            help="Tokenizer of the model that will answer: a folder, Hub name, bundled:NAME, "
            "or bytes. Its weights are not read.",
        ),
    ],
    data: options.Data = None,
    protocol: options.Protocols,
    out: Annotated[
        Path, typer.Option("--out", readable=False, help="A new folder for the bundle.")
    ],
    window: Annotated[
        int | None,
        typer.Option(
            "--window",
            min=1,
            help="Longest input in tokens (default: from config.json beside the tokenizer).",
        ),
    ] = None,
    shots: options.Shots = None,
    score: options.Score = None,
    part: options.Part,
    chat: options.Chat = None,
    system: options.System = None,
    tasks: options.Tasks,
    json: options.Json = False,
) -> None:
    """Write the prompts of protocols as tokens for your own engine; `choicewise import` reads its answers.

    A bundle holds one dataset. Protocols that need more than log-probabilities of given tokens
    (generated answers, masked models) are left out by name.
    """
    from choicewise.extensions.run.sources import open_all, refuse
    from choicewise.extensions.training.bundles.bundle import ROWS
    from choicewise.extensions.training.bundles.write import write_bundle
    from choicewise.protocols.catalogue import in_chat
    from choicewise.running.job import job_of

    given = {**part.given, **part.data(data), **tasks.given}
    job = job_of({"protocols": protocol, "shots": options.shots_of(shots), "score": score, **given})
    sources = options.sources_of(job)
    if len(sources) > 1:
        names = ", ".join(source.name for source in sources)
        raise UsageError(
            f"a bundle holds one dataset, but these protocols use {len(sources)} "
            f"({names}); write a bundle for each, or name --data"
        )
    opened, failed = open_all(sources, job, show_download(), measured=False)
    refuse(failed)
    (source,) = opened.values()
    chat_rendering = None if chat is None else str(chat)
    with progress("requests") as report:
        bundle = write_bundle(
            tokenizer=tokenizer,
            data=source.data,
            protocols=in_chat(source.protocols, chat_rendering, system),
            out=out,
            window=window,
            rendered=source.source.rendered,
            progress=report,
            **job.chosen,
        )
    tell(*source.left_out_lines)
    options.tell_notes(source, job)
    record = bundle.record
    if record.refused:
        tell(
            "note: if your engine has a server, `choicewise run --model server:URL#NAME` "
            "can run the protocols that no bundle holds (docs/servers.md)"
        )
    for reason, count in record.missing.items():
        tell(f"note: {counted(count, 'request')} left out: {reason}")
    if json:
        fields = {name: getattr(record, name) for name in _JSON_FIELDS}
        print_json({"bundle": str(out), **fields})
    else:
        show(
            f"{counted(len(record.protocols), 'protocol')} on {record.dataset}: "
            f"{counted(record.rows, 'row')} of"
            f" {record.tokens:,} tokens ({record.unique_tokens:,} unique), {record.scored:,} to "
            "score; the longest row"
            f" has {record.longest:,}",
            f"digest {record.digest}",
        )
    line = command_line("import", out, "--answers", "FILE", "--out", "RUN")
    tell(f"wrote {out}; run your engine on {out / ROWS}, then import its answers with `{line}`")


_JSON_FIELDS = (
    "digest",
    "dataset",
    "protocols",
    "refused",
    "missing",
    "window",
    "rows",
    "tokens",
    "unique_tokens",
    "scored",
    "longest",
    "needs",
)
"""Fields of the bundle's record that ``--json`` prints."""
