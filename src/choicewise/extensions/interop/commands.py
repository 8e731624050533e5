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
from choicewise.util.text import safe, short, wrapped

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
            help="Files or folders that another tool wrote, or one bundle.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            readable=False,
            help="The run folder of one log, or the folder for those of several.",
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option("--from", help="The format, where it is not recognised: harness, table, ..."),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            readable=False,
            help="The file with the totals, where it is not beside the samples.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="The model's name, where the files don't say it, or say another."
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="The same for the task's name.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer", readable=False, help="A tokenizer folder: counts tokens of the texts."
        ),
    ] = None,
    answers: Annotated[
        list[Path] | None,
        typer.Option(
            "--answers",
            readable=False,
            help="What an engine answered to a bundle of `choicewise requests`: Parquet or CSV. Repeatable.",
        ),
    ] = None,
    output: options.Output,
) -> None:
    """Make run folders of other tools' logs, or of answers to a bundle, and print what they say.

    Reads samples of lm-evaluation-harness 0.4 with the results beside them, its 0.3 write-out, run folders of HELM,
    logs of Inspect, details of lighteval, and CSV, Parquet or JSON Lines with the columns item, choice, loglikelihood,
    gold.
    Every score that the log allows is computed; the report says what it lacks for the others. The same command
    again changes nothing.
    """
    output.check()
    from choicewise.cli.report import print_folders
    from choicewise.extensions.training.bundles.bundle import is_bundle, open_bundle

    if answers:
        if len(paths) != 1:
            raise UsageError(
                f"--answers are those to one bundle, and {len(paths)} paths are named; name the bundle alone"
            )
        only_for_logs = {"from": format, "results": results, "task": task, "tokenizer": tokenizer}
        options.refuse_without_use("answers to a bundle have", **only_for_logs)
        _import_answers(open_bundle(paths[0]), answers, out, model)
        print_folders([out], output)
        return
    for path in paths:
        if is_bundle(path):
            raise UsageError(
                f"{path} is a bundle of requests; name what an engine answered: --answers FILE"
            )
    from choicewise.extensions.interop.logs.import_log import (
        counted,
        read_logs,
        renamed,
        write_logs,
    )

    logs = read_logs(paths, format, results)
    if not logs:
        raise UsageError(f"{', '.join(map(str, paths))}: there is no log in it")
    logs = renamed(logs, model, task)
    if tokenizer is not None:
        logs = counted(logs, tokenizer)

    wants_everything = output.json or output.every or output.ids
    if len(logs) == 1 and not wants_everything:
        # The lines of one log go above its report, so that both fit on the first screen.
        (imported,) = write_logs(logs, out)
        print_folders([out], output, above=_print_log(imported))
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
            f"note: sums alone of {answers.only_sums:,} of {bundle.scored.questions:,} questions: what needs single"
            " tokens has no number"
        )
    lacks_ranks = answers.ranks is None or (answers.ranks < 0).any()
    if RANK in bundle.record.needs and lacks_ranks:
        tell(
            "note: answers without ranks: items where a protocol must know which token is the likeliest may be missing"
        )
    tell(
        f"wrote {out} of {bundle.record.rows:,} rows that {answers.engine} answered for {answers.model}"
    )


def _tell_imported(imported: Imported) -> None:
    """Say what was imported, and what of it was not used or disagrees."""
    tell(_title(imported), *(f"  {remark}" for remark in _remarks(imported)))


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


def _print_log(imported: Imported) -> int:
    """Print what was imported and the log's totals, and return how many lines that took, at most
    four.
    """
    from choicewise.extensions.interop.logs.import_log import totals_line
    from choicewise.report.brief import WIDTH

    talk = [short(_title(imported), WIDTH)]
    remarks = "; ".join(_remarks(imported))
    if remarks:
        talk.append(f"  {shorten(safe(remarks), WIDTH - 2, placeholder=' … (--all)')}")
    totals = totals_line(imported)
    if totals.endswith(":"):
        totals += " --all"
    lines = wrapped(totals, WIDTH)
    tell(*talk)
    show(*lines)
    return len(talk) + len(lines)


Table = StrEnum("Table", ["numbers", "models"])
"""The tables of a paper: every number, or models by benchmarks."""


def export(
    folders: options.RunFolders,
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORMAT", help="The format; docs/export.md says what each is for."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", readable=False, help="A new folder, or a file where the format is one file."
        ),
    ],
    table: Annotated[
        Table | None,
        typer.Option(
            "--table",
            help="Of latex and markdown: every number (unless given), or models by benchmarks, one number each.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol", help="Only these, or further ones the runs can score. Repeatable."
        ),
    ] = None,
    metric: options.Metrics = None,
    incomplete: Annotated[
        bool,
        typer.Option(
            "--incomplete", help="Export runs that are not complete as they are, marked as such."
        ),
    ] = False,
    url: Annotated[
        str,
        typer.Option(
            "--url",
            help="Where the evaluation can be looked at, for formats that have a place for it.",
        ),
    ] = "",
    organization: Annotated[
        str, typer.Option("--organization", help="Who evaluated, in the same way.")
    ] = "",
    json: options.Json = False,
) -> None:
    """Write the numbers of runs for other tools: the harness, Every Eval Ever, the Hub, tables, logs.

    No model is needed. Every file that was written is a line of the output. An earlier export of the same runs is
    replaced in one step; anything else at --out is left alone, and refused.
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
        typer.Argument(metavar="ARGUMENT...", help="What follows `lm_eval` on an existing line."),
    ] = None,
) -> None:
    """Run lm-evaluation-harness, every argument unchanged, with one more model: choicewise.

    An existing line works with `choicewise lm-eval` for `lm_eval` and `--model choicewise` for `--model hf`.
    """
    from choicewise.extensions.interop.lm_eval import run_harness

    run_harness(arguments or [])
