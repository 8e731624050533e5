"""Declare what this extension adds: readers of other tools' logs, writers of their formats, tasks
of the harness, and the commands ``import``, ``export`` and ``lm-eval``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from choicewise.ports import (
    Command,
    Export,
    Extension,
    LogReader,
    TaskLibrary,
    Writer,
    calls,
    returns,
)

if TYPE_CHECKING:
    from choicewise.running.job import Job, Source


class HarnessTasks(TaskLibrary):
    """Make protocols and data of tasks of LM Evaluation Harness."""

    name = "lm-eval"
    summary = "tasks of LM Evaluation Harness"
    takes = frozenset({"include_path", "allow_task_code"})

    def sources(self, selectors: Sequence[str], job: Job) -> Sequence[Source]:
        """Return a source for each task or group, checked and not loaded."""
        from choicewise.extensions.interop.harness_tasks.as_protocols import task_sources

        folders = [Path(folder) for folder in job.include_path]
        return task_sources(selectors, folders, job.allow_task_code, job.on_bad_item)


class HarnessLogs(LogReader):
    """Read logs of lm-evaluation-harness since 0.4."""

    name = "harness"
    summary = "samples of lm-evaluation-harness 0.4, with the results beside them"
    recognises = calls("choicewise.extensions.interop.logs.harness:recognises")
    read = calls("choicewise.extensions.interop.logs.harness:read_logs")


class HarnessV0Logs(LogReader):
    """Read logs of lm-evaluation-harness before 0.4."""

    name = "harness-v0"
    summary = "write-out of lm-evaluation-harness 0.3"
    recognises = calls("choicewise.extensions.interop.logs.harness_v0:recognises")
    read = calls("choicewise.extensions.interop.logs.harness_v0:read_logs")


class HelmLogs(LogReader):
    """Read run folders of HELM."""

    name = "helm"
    summary = "HELM's run folders of multiple choice (scenario_state.json)"
    recognises = calls("choicewise.extensions.interop.logs.helm:recognises")
    read = calls("choicewise.extensions.interop.logs.helm:read_logs")
    verdicts = returns("choicewise.extensions.interop.logs.helm:VERDICTS")


class InspectLogs(LogReader):
    """Read logs of Inspect."""

    name = "inspect-log"
    summary = "Inspect's .eval archives and .json logs of multiple choice"
    recognises = calls("choicewise.extensions.interop.logs.inspect:recognises")
    read = calls("choicewise.extensions.interop.logs.inspect:read_logs")
    verdicts = returns("choicewise.extensions.interop.logs.inspect:VERDICTS")


class LightevalLogs(LogReader):
    """Read details of lighteval."""

    name = "lighteval"
    summary = "lighteval's details (details_*.parquet, with results_*.json)"
    recognises = calls("choicewise.extensions.interop.logs.lighteval:recognises")
    read = calls("choicewise.extensions.interop.logs.lighteval:read_logs")
    verdicts = returns("choicewise.extensions.interop.logs.lighteval:VERDICTS")


class TableLogs(LogReader):
    """Read tables of log-likelihoods, which any tool may write."""

    name = "table"
    summary = "a table of log-likelihoods with the columns item, choice, loglikelihood, gold"
    generic = True
    recognises = calls("choicewise.extensions.interop.logs.table:recognises")
    read = calls("choicewise.extensions.interop.logs.table:read_logs")


class HarnessResults(Writer):
    """Write results and samples as lm-evaluation-harness does."""

    name = "harness"
    summary = "LM Evaluation Harness: results_DATE.json and samples_TASK_DATE.jsonl, by model"
    write = calls("choicewise.extensions.interop.write.harness:write")


class EveryEvalEver(Writer):
    """Write records of Every Eval Ever."""

    name = "every-eval-ever"
    summary = (
        "Every Eval Ever, schema 0.3.0: a record and its samples per run, in the layout of the "
        "data store"
    )
    has_source = True
    write = calls("choicewise.extensions.interop.write.every_eval_ever:write_every_eval_ever")


class EvalResults(Writer):
    """Write results for the cards of models on the Hub."""

    name = "eval-results"
    summary = "the Hub's .eval_results: a YAML file per score for the model's repository"
    has_source = True
    write = calls("choicewise.extensions.interop.write.every_eval_ever:write_eval_results")


class RowCsv(Writer):
    """Write rows of the report, for a spreadsheet."""

    name = "csv"
    summary = (
        "the rows of `choicewise report` in full for a spreadsheet; a text that it would compute "
        "begins with an apostrophe"
    )
    output = "file"
    write = calls("choicewise.extensions.interop.write.tables:write_row_csv")

    def replaces(self, file: Path) -> bool:
        """Return whether ``file`` is an earlier export of this format."""
        from choicewise.extensions.interop.export import begins_with
        from choicewise.extensions.interop.write.tables import row_schema

        return begins_with(file, ",".join(row_schema().names))


class _TableFile(Writer):
    """Write a file of one table."""

    output = "file"

    def write(self, export: Export, out: Path) -> Sequence[str]:
        """Write the ``export`` to ``out``, and return what is left out."""
        from choicewise.extensions.interop.write.tables import FORMS

        return FORMS[self.name].write(export, out)

    def replaces(self, file: Path) -> bool:
        """Return whether ``file`` is an earlier export of this format."""
        from choicewise.extensions.interop.write.tables import FORMS

        return FORMS[self.name].replaces(file)


class RowParquet(_TableFile):
    """Write rows of the report, for programs."""

    name = "parquet"
    summary = "the rows of `choicewise report` in full, for pandas, Polars, DuckDB or R"


class _ItemFile(_TableFile):
    """Write a table that ``choicewise import`` recognises by the ending of its name."""

    def check(self, out: Path) -> None:
        """Raise UsageError if ``out`` can't be of this format."""
        from choicewise.errors import UsageError

        ending = f".{self.name.removeprefix('items-')}"
        if out.suffix.lower() != ending:
            raise UsageError(
                f"{out} does not end in {ending}, by which import recognizes it; add that ending"
            )


_ITEMS = "the log-likelihood of every choice with its text, as `choicewise import` reads it"


class ItemCsv(_ItemFile):
    """Write log-likelihoods of items as CSV."""

    name = "items-csv"
    summary = f"{_ITEMS}; texts are unchanged"


class ItemParquet(_ItemFile):
    """Write log-likelihoods of items as Parquet."""

    name = "items-parquet"
    summary = _ITEMS


_SCORES = "a row per protocol, item and choice: score, gold, prediction, credit"


class ScoreCsv(_TableFile):
    """Write scores of items, for a spreadsheet."""

    name = "scores-csv"
    summary = f"{_SCORES}; for a spreadsheet"


class ScoreParquet(_TableFile):
    """Write scores of items, for programs."""

    name = "scores-parquet"
    summary = _SCORES


class _PaperTables(Writer):
    """Write tables for readers: every number, or models by benchmarks with the signatures in a file
    beside it.
    """

    output = "file"
    tables = ("numbers", "models")

    def write(self, export: Export, out: Path) -> Sequence[str]:
        """Write the ``export`` to ``out``, and return what is left out."""
        from choicewise.extensions.interop.write.models_table import write_models
        from choicewise.extensions.interop.write.paper import FORMS, write_numbers

        if export.table == "models":
            write_models(FORMS[self.name], export, out)
        else:
            write_numbers(FORMS[self.name], export, out)
        return []

    def replaces(self, file: Path) -> bool:
        """Return whether ``file`` is an earlier export of this format."""
        from choicewise.extensions.interop.export import begins_with
        from choicewise.extensions.interop.write.paper import FORMS

        return begins_with(file, FORMS[self.name].first)

    def endings(self, table: str) -> Sequence[str]:
        """Return the ending of the file of signatures, for the table of models."""
        return [".signatures"] if table == "models" else []


_NUMBERS = "models by protocols, 95 % intervals, signatures below"


class Latex(_PaperTables):
    """Write tables of a paper."""

    name = "latex"
    summary = f"tables in LaTeX for a paper (booktabs): {_NUMBERS}"


class Markdown(_PaperTables):
    """Write tables of a README."""

    name = "markdown"
    summary = f"tables in Markdown for a README or an issue: {_NUMBERS}"


class InspectView(Writer):
    """Write logs that Inspect shows."""

    name = "inspect"
    summary = (
        "logs for Inspect View and Inspect's data frames, one per run and protocol (extra: inspect)"
    )
    write = calls("choicewise.extensions.interop.write.inspect:write")


class Wandb(Writer):
    """Write runs of Weights & Biases, which its program sends."""

    name = "wandb"
    summary = (
        "offline runs of Weights & Biases in a folder: numbers, rows, page, signatures (extra: "
        "wandb)"
    )
    output = "store"

    check = calls("choicewise.extensions.interop.write.trackers:check_wandb")
    write = calls("choicewise.extensions.interop.write.trackers:write_wandb")


class Mlflow(Writer):
    """Write runs of MLflow, in a folder or on a server."""

    name = "mlflow"
    summary = (
        "runs in MLflow: numbers, rows, page, signatures; a folder, or http(s)://... of a server "
        "(extra: mlflow)"
    )
    output = "store"

    check = calls("choicewise.extensions.interop.write.trackers:check_mlflow")
    write = calls("choicewise.extensions.interop.write.trackers:write_mlflow")


class ExportCommand(Command):
    """Add ``choicewise export``."""

    name = "export"
    summary = "Write scores for other tools."
    app = returns("choicewise.extensions.interop.commands:export")


class ImportCommand(Command):
    """Add ``choicewise import``."""

    name = "import"
    summary = "Make run folders from other tools' logs."
    app = returns("choicewise.extensions.interop.commands:import_logs")


class LmEvalCommand(Command):
    """Add ``choicewise lm-eval``."""

    name = "lm-eval"
    summary = "Run lm-evaluation-harness with choicewise as a model."
    passes_on = True
    app = returns("choicewise.extensions.interop.commands:lm_eval")


EXTENSION = Extension(
    "interop",
    [
        HarnessLogs(),
        HarnessV0Logs(),
        HelmLogs(),
        InspectLogs(),
        LightevalLogs(),
        TableLogs(),
        HarnessResults(),
        EveryEvalEver(),
        EvalResults(),
        RowCsv(),
        RowParquet(),
        Markdown(),
        Latex(),
        ScoreCsv(),
        ScoreParquet(),
        ItemCsv(),
        ItemParquet(),
        InspectView(),
        Wandb(),
        Mlflow(),
        HarnessTasks(),
        ExportCommand(),
        ImportCommand(),
        LmEvalCommand(),
    ],
    names={
        "export": "choicewise.extensions.interop.export",
        "import_log": "choicewise.extensions.interop.logs.import_log",
        "load_harness_tasks": "choicewise.extensions.interop.harness_tasks.as_protocols",
    },
)
