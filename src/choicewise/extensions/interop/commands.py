"""The commands ``import``, ``export`` and ``lm-eval``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.terminal import print_json, progress, show, tell
from choicewise.errors import UsageError
from choicewise.util.text import safe, short

if TYPE_CHECKING:
    from choicewise.extensions.interop.logs.import_log import Imported
    from choicewise.extensions.training.bundles.bundle import Bundle


MANY = 20
"""Logs that have lines of their own on stderr; of a greater number only the count is written."""


@options.grouped
def import_logs(
    *,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            readable=False,
            help="Files or folders of another tool, or one bundle.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            readable=False,
            help="The run folder; several logs get a folder each in it.",
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option("--from", help="The format, if it is not recognized: harness, table, ..."),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            readable=False,
            help="The file with the totals, if it is not in the folder of the samples.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="The model's name (default: from the files)."),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="The task's name (default: from the files).")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer", readable=False, help="A tokenizer folder, to count the tokens of texts."
        ),
    ] = None,
    answers: Annotated[
        list[Path] | None,
        typer.Option(
            "--answers",
            readable=False,
            help="An engine's answers to a bundle of `choicewise requests`: Parquet or CSV. "
            "Repeatable.",
        ),
    ] = None,
    output: options.Output,
) -> None:
    """Make run folders from other tools' logs, or from answers to a bundle, and print the report.

    It reads samples of lm-evaluation-harness 0.4 (with results) and 0.3 (write-out), HELM run folders,
    Inspect logs, lighteval details, and CSV, Parquet or JSON Lines with the columns item, choice,
    loglikelihood, gold. All scores that the log allows are computed; the report names what is missing
    for the others.
    """
    output.check()
    from choicewise.cli.report import print_folders
    from choicewise.extensions.training.bundles.bundle import is_bundle, open_bundle

    if answers:
        if len(paths) != 1:
            raise UsageError(
                f"--answers needs one bundle, not {len(paths)} paths; name only the bundle"
            )
        only_for_logs = {"from": format, "results": results, "task": task, "tokenizer": tokenizer}
        options.refuse_without_use("answers to a bundle", **only_for_logs)
        _import_answers(open_bundle(paths[0]), answers, out, model)
        print_folders([out], output)
        return
    for path in paths:
        if is_bundle(path):
            raise UsageError(
                f"{path} is a bundle of requests; add the engine's answers: --answers FILE"
            )
    from choicewise.extensions.interop.logs.import_log import (
        counted,
        read_logs,
        renamed,
        write_logs,
    )

    logs = read_logs(paths, format, results)
    if not logs:
        raise UsageError(f"no log found in {', '.join(map(str, paths))}")
    logs = renamed(logs, model, task)
    if tokenizer is not None:
        logs = counted(logs, tokenizer)

    wants_everything = output.json or output.every or output.ids
    if len(logs) == 1 and not wants_everything:
        # The lines of one log go above its report, so that both fit on the first screen.
        (imported,) = write_logs(logs, out)
        print_folders([out], output, above=_tell_log(imported))
        return
    if len(logs) <= MANY:
        write_logs(logs, out, _tell_imported)
    else:
        write_logs(logs, out)
    print_folders([out], output)
    if len(logs) > 1:
        tell(f"imported {len(logs)} logs into {out}")


def _import_answers(bundle: Bundle, files: list[Path], out: Path, model: str | None) -> None:
    """Make a run of the answers in ``files``, and say what they lack."""
    from choicewise.extensions.training.bundles.answers import read_answers, write_run
    from choicewise.extensions.training.bundles.bundle import RANK

    with progress("import") as report:
        answers = read_answers(bundle, files, model)
        write_run(bundle, answers, out, report)
    if answers.only_sums:
        tell(
            f"note: {answers.only_sums:,} of {bundle.scored.questions:,} questions have "
            "only sums: scores that need single tokens are missing"
        )
    lacks_ranks = answers.ranks is None or (answers.ranks < 0).any()
    if RANK in bundle.record.needs and lacks_ranks:
        tell(
            "note: the answers have no ranks: items may be missing if a protocol needs "
            "the most likely token"
        )
    tell(
        f"wrote {out} of {bundle.record.rows:,} rows that {answers.engine} answered for "
        f"{answers.model}"
    )


def _tell_imported(imported: Imported) -> None:
    """Tell what was imported, the log's own numbers, and what disagrees or was not used."""
    from choicewise.report.logged import log_line

    lines = [_title(imported)]
    numbers = log_line(imported.record)
    if numbers:
        lines.append(f"  {numbers}")
    lines += [f"  {remark}" for remark in _remarks(imported)]
    tell(*lines)


def _title(imported: Imported) -> str:
    log = imported.log
    items = sum(imported.state.subjects.values())
    return f"{log.model} on {log.task}: {items:,} items of {log.tool}"


def _remarks(imported: Imported) -> list[str]:
    """Return lines on what disagrees, then on what was not used."""
    remarks = [f"warning: {note}" for note in imported.state.notes]
    for column in (*imported.log.unused, *imported.state.unused):
        remarks.append(f"not used: {column}")
    return remarks


def _tell_log(imported: Imported) -> int:
    """Tell what was imported, and return how many lines that took, at most two."""
    from choicewise.report.brief import WIDTH

    lines = [short(_title(imported), WIDTH)]
    remarks = "; ".join(_remarks(imported))
    if remarks:
        lines.append(f"  {shorten(safe(remarks), WIDTH - 2, placeholder=' … (--all)')}")
    tell(*lines)
    return len(lines)


Table = StrEnum("Table", ["numbers", "models"])
"""The tables of a paper: every number, or models by benchmarks."""


def export(
    folders: options.RunFolders,
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORMAT", help="The format (docs/export.md describes them)."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", readable=False, help="A new folder, or a file for formats of one file."
        ),
    ],
    table: Annotated[
        Table | None,
        typer.Option(
            "--table",
            help="For latex and markdown: every score (default), or models by benchmarks.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol", help="Only these protocols, or more that the runs can score. Repeatable."
        ),
    ] = None,
    metric: options.Metrics = None,
    incomplete: Annotated[
        bool,
        typer.Option("--incomplete", help="Also export incomplete runs, marked as incomplete."),
    ] = False,
    url: Annotated[
        str,
        typer.Option(
            "--url",
            help="Address of the evaluation, for formats that store it.",
        ),
    ] = "",
    organization: Annotated[
        str,
        typer.Option("--organization", help="Name of the evaluator, for formats that store it."),
    ] = "",
    json: options.Json = False,
) -> None:
    """Write scores for other tools: the harness, Every Eval Ever, the Hub, tables, logs.

    No model is needed. The output lists every written file. An earlier export of the same runs is
    replaced; any other content of --out is refused.
    """
    from choicewise.extensions.interop.export import export as write

    filled = write(
        folders,
        form,
        out,
        protocols=protocol,
        metrics=metric,
        incomplete=incomplete,
        url=url,
        organization=organization,
        table=table,
    )
    tell(*(f"note: {note}" for note in filled.notes))
    if json:
        files = []
        for file in filled.files:
            files.append({"path": str(file), "bytes": file.stat().st_size})
        print_json({"format": form, "out": str(out), "files": files, "notes": filled.notes})
    else:
        show(*map(str, filled.files))


def lm_eval(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENT...", help="What follows `lm_eval` in your command."),
    ] = None,
) -> None:
    """Run lm-evaluation-harness with choicewise as a model; all arguments are passed on.

    In your command, replace `lm_eval` by `choicewise lm-eval`, and `--model hf` by `--model choicewise`.
    """
    from choicewise.extensions.interop.lm_eval import run_harness

    run_harness(arguments or [])
