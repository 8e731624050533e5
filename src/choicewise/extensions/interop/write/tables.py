"""Write rows of the report, items and scores as CSV and Parquet.

Texts stay as they are if the file is for programs; a spreadsheet could take a text for a formula.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from choicewise.extensions.interop.export import begins_with
from choicewise.extensions.interop.write.common import (
    AnsweredItem,
    answered_items,
    export_study,
    incomplete_notes,
    model_names,
    over_items,
)
from choicewise.page.study import Study
from choicewise.ports import Export
from choicewise.protocols.protocol import short_signature
from choicewise.protocols.readings import READINGS
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.scoring.observed import row_of
from choicewise.table import spreadsheet_text, table_csv
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.tables import write_parquet

_TEXT = pa.string()
_LABEL = pa.dictionary(pa.int32(), _TEXT)
_NUMBER = pa.float64()
_COUNT = pa.int64()
_INDEX = pa.int16()
_FLAG = pa.bool_()
"""Types of columns; a label is a text that many rows share."""

ITEM_SCHEMA = pa.schema(
    {
        "model": _TEXT,
        "task": _TEXT,
        "item": _TEXT,
        "subject": _TEXT,
        "question": _TEXT,
        "choice": _INDEX,
        "gold": _FLAG,
        "context": _TEXT,
        "text": _TEXT,
        "loglikelihood": _NUMBER,
        "unconditional": _NUMBER,
        "tokens": pa.int32(),
        "is_greedy": _FLAG,
        "aggregation": _TEXT,
    },
    metadata={b"choicewise": b"items"},
)
"""A row per model, task, item and choice.

``task``: the protocols of a run that show the model one prompt, by the start of their names, and
the data if several are exported. ``choice``: its index, from 0; ``gold``: whether it is right;
``context``: the text before it if the choices of an item have different ones, else null; ``text``:
the continuation that was scored, with the space it starts with. ``loglikelihood`` and
``unconditional`` (after the empty context): nats. ``aggregation``: of the task's protocols, micro,
macro or both.
"""


@dataclass(slots=True)
class _Prompt:
    """Hold the protocols that show the model one prompt, the null contexts that they need, and the
    averages of subjects that they take.
    """

    protocols: list[str] = field(default_factory=list)
    nulls: list[str] = field(default_factory=list)
    aggregations: dict[str, None] = field(default_factory=dict)


def _prompts(run: Run) -> dict[str, _Prompt]:
    """Return the prompts whose protocols read one log-likelihood of each choice, by digest."""
    prompts: dict[str, _Prompt] = {}
    for name, protocol in run.protocols.items():
        if READINGS[protocol.reading].one_likelihood:
            prompt = prompts.setdefault(protocol.prompt_digest, _Prompt())
            prompt.protocols.append(name)
            prompt.aggregations[over_items(protocol.aggregation)] = None
            if protocol.null == "":
                prompt.nulls = [""]
    return prompts


def _task_names(prompts: Mapping[str, _Prompt]) -> dict[str, str]:
    """Return a name for each prompt, which no other prompt of the run has."""
    names = {digest: _common_start(prompt.protocols) for digest, prompt in prompts.items()}
    counts = Counter(names.values())
    for digest, prompt in prompts.items():
        if counts[names[digest]] > 1:
            names[digest] = prompt.protocols[0]
    return names


def _common_start(names: Sequence[str]) -> str:
    """Return the start that all names have up to a colon or slash, or the first name."""
    first = names[0]
    if len(names) == 1:
        return first
    for mark in reversed(list(re.finditer("[:/]", first))):
        start = first[: mark.start()]
        if all(name.startswith((f"{start}:", f"{start}/")) for name in names):
            return start
    return first


def _item_rows(model: str, task: str, aggregation: str, item: AnsweredItem) -> Iterator[JsonDict]:
    for index, choice in enumerate(item.choices):
        context = choice.context
        if context == item.context:
            # Readers know a text that all choices follow from the question.
            context = None
        yield {
            "model": model,
            "task": task,
            "item": item.id,
            "subject": item.subject,
            "question": item.question,
            "choice": index,
            "gold": index in item.gold,
            "context": context,
            "text": choice.continuation,
            "loglikelihood": _number(choice.loglikelihood),
            "unconditional": _number(choice.after_null.get("")),
            "tokens": choice.tokens,
            "is_greedy": choice.greedy,
            "aggregation": aggregation,
        }


def _number(value: float | None) -> float | None:
    if value is None or math.isnan(value):
        return None
    return value


def _item_tables(export: Export) -> Iterator[pa.Table]:
    """Yield every choice of every item that was read as one log-likelihood, by run, item and
    prompt.
    """
    waiting: list[JsonDict] = []
    datasets = {run.manifest.dataset.name for run in export.runs}
    for run, model in zip(export.runs, model_names(export.runs), strict=True):
        prompts = _prompts(run)
        tasks = _task_names(prompts)
        if len(datasets) > 1:
            dataset = run.manifest.dataset.name
            tasks = {digest: f"{task} on {dataset}" for digest, task in tasks.items()}
        nulls = {digest: prompt.nulls for digest, prompt in prompts.items()}
        for digest, item in answered_items(run, nulls):
            aggregation = ", ".join(prompts[digest].aggregations)
            waiting += _item_rows(model, tasks[digest], aggregation, item)
            # So many rows are some megabytes, and few enough to be made a table at once.
            if len(waiting) >= 20_000:
                yield pa.Table.from_pylist(waiting, ITEM_SCHEMA)
                waiting.clear()
        run.release()
    yield pa.Table.from_pylist(waiting, ITEM_SCHEMA)


def _left_out(export: Export) -> list[str]:
    """Return a line per run that is not complete, and per run with protocols that read no
    log-likelihood of each choice.
    """
    lines = incomplete_notes(export)
    for run in export.runs:
        names = []
        for name, protocol in run.protocols.items():
            if not READINGS[protocol.reading].one_likelihood:
                names.append(name)
        if names:
            lines.append(
                f"{run.folder}: left out {', '.join(names)}, "
                "which have no log-likelihood of every choice"
            )
    return lines


SCORE_SCHEMA = pa.schema(
    {
        "model": _LABEL,
        "dataset": _LABEL,
        "protocol": _LABEL,
        "id": _LABEL,
        "subject": _LABEL,
        "item": _LABEL,
        "choice": _INDEX,
        "gold": _FLAG,
        "score": _NUMBER,
        "predicted": _FLAG,
        "credit": _NUMBER,
        "missing": _FLAG,
    },
    metadata={b"choicewise": b"scores"},
)
"""A row per model, dataset, protocol, item and choice.

``id``: of the protocol. ``choice``: its index, from 0. ``gold``, ``predicted``: whether it is
right, and chosen. ``score``: null if it is missing, if only an upper bound is known, and for
protocols that read generated text. ``credit``: of the item, in each of its rows.
"""


def _scores(run: Run, measured: Measurement, model: str) -> pa.Table:
    evidence = measured.evidence
    item_of_row = row_of(evidence.item_offsets)
    choice = evidence.choices["choice"].to_numpy()
    scores = measured.known_scores
    if scores is None:
        scores = np.full(len(item_of_row), np.nan)
    # A dictionary of one text, to which all rows point: the text in each row would fill the file.
    zeros = pa.array(np.zeros(len(item_of_row), dtype=np.int32))

    def label(text: str) -> pa.DictionaryArray:
        """Return a column in which each row has this text."""
        return pa.DictionaryArray.from_arrays(zeros, [text])

    columns = {
        "model": label(model),
        "dataset": label(run.manifest.dataset.name),
        "protocol": label(measured.name),
        "id": label(short_signature(measured.protocol)),
        "subject": evidence.choices["subject"].dictionary_encode(),
        "item": evidence.choices["item"].dictionary_encode(),
        "choice": pa.array(choice, _INDEX),
        "gold": evidence.right,
        # From pandas: NaN becomes null.
        "score": pa.array(scores, from_pandas=True),
        "predicted": measured.prediction[item_of_row] == choice,
        "credit": pa.array(measured.credit[item_of_row], from_pandas=True),
        "missing": measured.decisions.missing[item_of_row],
    }
    return pa.table(columns, schema=SCORE_SCHEMA)


def _score_tables(export: Export) -> Iterator[pa.Table]:
    for run, model in zip(export.runs, model_names(export.runs), strict=True):
        for measured in run.measurements.values():
            yield _scores(run, measured, model)
        run.release()


def _for_spreadsheet(table: pa.Table) -> pa.Table:
    """Return the table with texts that a spreadsheet shows and never computes."""
    for index, column in enumerate(table.schema):
        if not pa.types.is_dictionary(column.type):
            continue
        encoded = table[column.name].combine_chunks()
        texts = [spreadsheet_text(text) for text in encoded.dictionary.to_pylist()]
        cells = pa.array(texts, _TEXT).take(encoded.indices)
        table = table.set_column(index, column.name, cells)
    return table


_ROW_COLUMNS = {
    "model": _TEXT,
    "dataset": _TEXT,
    "data": _TEXT,
    "selection": _TEXT,
    "subject": _TEXT,
    "protocol": _TEXT,
    "signature": _TEXT,
    "family": _TEXT,
    "id": _TEXT,
    "i": _TEXT,
    "t": _TEXT,
    "r": _TEXT,
    "metric": _TEXT,
    "value": _NUMBER,
    "se": _NUMBER,
    "interval": _TEXT,
    "ci_low": _NUMBER,
    "ci_high": _NUMBER,
    "low": _NUMBER,
    "high": _NUMBER,
    "n": _COUNT,
    "missing": _COUNT,
    "invalid": _COUNT,
    "ties": _COUNT,
    "near_ties": _COUNT,
    "noise": _NUMBER,
    "skipped": _COUNT,
    "shots_dropped": _COUNT,
    "truncated": _COUNT,
    "merged": _COUNT,
    "noncanonical": _COUNT,
    "lossy": _COUNT,
    "unknown": _COUNT,
    "diagnosis": _TEXT,
    "unused": _TEXT,
    "rank": _COUNT,
    "rank_low": _COUNT,
    "rank_high": _COUNT,
    "lead_p": _NUMBER,
    "missing_reasons": _TEXT,
    "skipped_reasons": _TEXT,
    "model_source": _TEXT,
    "dataset_source": _TEXT,
    "unlisted": _COUNT,
    "server_changed": _TEXT,
    "calibrated": _NUMBER,
    "answers": _TEXT,
    "population": _COUNT,
    "rounding": _TEXT,
    "flags": _TEXT,
    "alarms": _TEXT,
    "chance": _NUMBER,
    "complete": _FLAG,
    "mean_of_parts": _NUMBER,
    "normalised": _FLAG,
    "parts": _TEXT,
}
"""Columns of the JSON of a number and of the averages of suites. A value that is neither text nor
number is JSON in a text.
"""


@cache
def row_schema() -> pa.Schema:
    """Return the columns of a table of numbers and of averages of suites."""
    return pa.schema(_ROW_COLUMNS, metadata={b"choicewise": b"rows"})


def row_table(study: Study) -> pa.Table:
    """Return the rows of all runs under the names of their models, then the averages of suites,
    whose metric is ``average``.

    Values are shares of 1, or in the unit of the metric. A missing number is null.
    """
    is_complete = {run.label: run.manifest.complete for run in study.runs}
    names = {run.label: run.manifest.model.name for run in study.runs}
    contents = []
    for row in (*study.rows, *study.other_metrics):
        label = row.identity.model
        content = row.with_model(names[label]).as_json()
        content["complete"] = is_complete[label]
        contents.append(content)
    # Averages have fewer keys than numbers, and some that numbers lack.
    contents += [average.as_json() for average in study.averages]
    schema = row_schema()
    rows = []
    for content in contents:
        rows.append({column.name: _cell(content, column) for column in schema})
    return pa.Table.from_pylist(rows, schema)


def _cell(content: JsonMapping, column: pa.Field) -> Any:
    value = content.get(column.name)
    if value is None or isinstance(value, str) or column.type != _TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class CsvForm:
    """Write CSV by pyarrow, for millions of rows.

    ``heads``: the spelled names of the columns. ``tables``: yields the content, a table at a time.
    ``notes``: returns what is left out, and why. Lines end in a line feed, which is the only end
    that pyarrow before 26 has.
    """

    heads: Sequence[str]
    tables: Callable[[Export], Iterator[pa.Table]]
    notes: Callable[[Export], Sequence[str]]

    def write(self, export: Export, out: Path) -> Sequence[str]:
        """Write the ``export`` to the file ``out``, and return what is left out."""
        import pyarrow.csv as pc

        options = pc.WriteOptions(include_header=False, quoting_style="needed")
        with out.open("wb") as file:
            file.write(f"{','.join(self.heads)}\n".encode())
            for table in self.tables(export):
                pc.write_csv(table, file, options)
        return self.notes(export)

    def replaces(self, file: Path) -> bool:
        """Return whether ``file`` begins with the columns."""
        return begins_with(file, ",".join(self.heads))


@dataclass(frozen=True, kw_only=True)
class ParquetForm:
    """Write Parquet of one schema; ``tables`` and ``notes`` are those of :class:`CsvForm`."""

    schema: pa.Schema
    tables: Callable[[Export], Iterator[pa.Table]]
    notes: Callable[[Export], Sequence[str]]

    def write(self, export: Export, out: Path) -> Sequence[str]:
        """Write the ``export`` to the file ``out``, and return what is left out."""
        write_parquet(out, self.tables(export), self.schema)
        return self.notes(export)

    def replaces(self, file: Path) -> bool:
        """Return whether the metadata of ``file`` name this schema."""
        import pyarrow.parquet as pq

        try:
            metadata = dict(pq.read_schema(file).metadata or {})
        except (OSError, pa.ArrowException):
            return False
        return metadata.items() >= self.schema.metadata.items()


def write_row_csv(export: Export, out: Path) -> Sequence[str]:
    """Write the rows of the report to the file ``out``, for a spreadsheet."""
    table = row_table(export_study(export))
    out.write_text(table_csv(table.column_names, table.to_pylist()), encoding="utf-8", newline="")
    return ()


FORMS: Mapping[str, CsvForm | ParquetForm] = {
    "parquet": ParquetForm(
        schema=row_schema(),
        tables=lambda export: iter([row_table(export_study(export))]),
        notes=lambda export: (),
    ),
    "items-csv": CsvForm(
        heads=[f'"{name}"' for name in ITEM_SCHEMA.names], tables=_item_tables, notes=_left_out
    ),
    "items-parquet": ParquetForm(schema=ITEM_SCHEMA, tables=_item_tables, notes=_left_out),
    "scores-csv": CsvForm(
        heads=SCORE_SCHEMA.names,
        tables=lambda export: map(_for_spreadsheet, _score_tables(export)),
        notes=incomplete_notes,
    ),
    "scores-parquet": ParquetForm(
        schema=SCORE_SCHEMA, tables=_score_tables, notes=incomplete_notes
    ),
}
"""The tables by the names of their writers."""
