"""Rows, items, scores as CSV/Parquet.

Texts stand as they are: these files are for programs, and a spreadsheet could take a text for a formula.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from choicewise.extensions.interop.export import begins_with
from choicewise.extensions.interop.write.common import (
    AnsweredItem,
    answered_items,
    model_names,
    not_whole,
    shown_runs,
)
from choicewise.page.study import Study
from choicewise.ports import Export
from choicewise.protocols.protocol import short_signature
from choicewise.protocols.readings import READINGS
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.scoring.observed import row_of
from choicewise.table import spreadsheet_text, table_csv
from choicewise.util.tables import write_parquet

ITEM_SCHEMA = pa.schema(
    {name: pa.string() for name in ("model", "task", "item", "subject", "question")}
    | {
        "choice": pa.int16(),
        "gold": pa.bool_(),
        "context": pa.string(),
        "text": pa.string(),
        "loglikelihood": pa.float64(),
    }
    | {"unconditional": pa.float64(), "tokens": pa.int32(), "is_greedy": pa.bool_()},
    metadata={b"choicewise": b"items"},
)
"""A row per model, task, item and choice.

``task``: the protocols of a run that show the model the same prompt, by the name that they begin with, and the data
where several are exported.  ``choice``: its index, from 0; ``gold``: whether it is right; ``context``: what stands
before it where the choices of an item have contexts of their own, else null; ``text``: the continuation that was
scored, with the space it starts with.  ``loglikelihood`` and ``unconditional`` (after the empty context): nats.
"""


def _prompts(run: Run) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Prompt → what it is called, and the null contexts that are wanted, of protocols that ask for a log-likelihood."""
    asked = {
        name: each for name, each in run.protocols.items() if READINGS[each.reading].one_likelihood
    }
    alike: dict[str, list[str]] = {}
    nulls: dict[str, list[str]] = {}
    for name, protocol in asked.items():
        alike.setdefault(protocol.prompt_digest, []).append(name)
        empty = [""] if protocol.null == "" else []
        nulls[protocol.prompt_digest] = nulls.get(protocol.prompt_digest) or empty
    shared = {prompt: _shared(own) for prompt, own in alike.items()}
    stems = list(shared.values())
    names = {
        prompt: stem if stems.count(stem) == 1 else alike[prompt][0]
        for prompt, stem in shared.items()
    }
    return names, nulls


def _shared(names: Sequence[str]) -> str:
    """What the names begin with, up to a colon or slash; the first of them where that is nothing."""
    if len(names) == 1:
        return names[0]
    starts = [names[0][: mark.start()] for mark in re.finditer("[:/]", names[0])]
    shared = [
        start
        for start in starts
        if all(name.startswith((f"{start}:", f"{start}/")) for name in names)
    ]
    return shared[-1] if shared else names[0]


def _rows(model: str, task: str, item: AnsweredItem) -> Iterator[dict[str, Any]]:
    about = {
        "model": model,
        "task": task,
        "item": item.id,
        "subject": item.subject,
        "question": item.question,
    }
    for place, each in enumerate(item.choices):
        yield about | {
            "choice": place,
            "gold": place in item.gold,
            "context": None if each.context == item.context else each.context,
            "text": each.continuation,
            "loglikelihood": _number(each.loglikelihood),
            "unconditional": _number(each.after_null.get("")),
            "tokens": each.tokens,
            "is_greedy": each.greedy,
        }


def _number(value: float | None) -> float | None:
    return None if value is None or value != value else value


def _item_tables(export: Export) -> Iterator[pa.Table]:
    """Every choice of every item that was asked for one log-likelihood, by run, item and prompt."""
    waiting: list[dict[str, Any]] = []
    several = len({run.manifest.dataset.name for run in export.runs}) > 1
    for run, model in zip(export.runs, model_names(export.runs), strict=True):
        names, nulls = _prompts(run)
        end = f" on {run.manifest.dataset.name}" if several else ""
        for prompt, item in answered_items(run, nulls):
            waiting += _rows(model, names[prompt] + end, item)
            if len(waiting) >= 20_000:
                yield pa.Table.from_pylist(waiting, ITEM_SCHEMA)
                waiting.clear()
        run.release()
    yield pa.Table.from_pylist(waiting, ITEM_SCHEMA)


def _left_out(export: Export) -> list[str]:
    """A line per run that is not complete, or has protocols that ask for no log-likelihood of each choice."""
    lines = not_whole(export.runs)
    for run in export.runs:
        names = [
            name
            for name, each in run.protocols.items()
            if not READINGS[each.reading].one_likelihood
        ]
        if names:
            lines.append(
                f"{run.folder}: left out {', '.join(names)}, which ask for no log-likelihood of each choice"
            )
    return lines


SCORE_SCHEMA = pa.schema(
    {
        name: pa.dictionary(pa.int32(), pa.string())
        for name in ("model", "dataset", "protocol", "id", "subject", "item")
    }
    | {
        "choice": pa.int16(),
        "gold": pa.bool_(),
        "score": pa.float64(),
        "predicted": pa.bool_(),
        "credit": pa.float64(),
    }
    | {"missing": pa.bool_()},
    metadata={b"choicewise": b"scores"},
)
"""A row per model, dataset, protocol, item and choice.

``id``: the protocol's.  ``choice``: its index, from 0.  ``gold``, ``predicted``: whether it is right, and chosen.
``score``: null where missing, where only an upper bound is known, and for protocols that read generated text.
``credit``: of the item, in each of its rows.
"""


def _scores(run: Run, measured: Measurement, model: str) -> pa.Table:
    evidence = measured.evidence
    item = row_of(evidence.item_offsets)
    named = {"model": model, "dataset": run.manifest.dataset.name, "protocol": measured.name}
    named["id"] = short_signature(measured.protocol)
    everywhere = pa.array(np.zeros(len(item), dtype=np.int32))
    choices = evidence.choices
    choice = choices["choice"].to_numpy()
    known = measured.known_scores
    scores = np.full(len(item), np.nan) if known is None else known
    columns = {
        **{
            name: pa.DictionaryArray.from_arrays(everywhere, [text]) for name, text in named.items()
        },
        **{name: choices[name].dictionary_encode() for name in ("subject", "item")},
        "choice": pa.array(choice, pa.int16()),
        "gold": evidence.right,
        "score": pa.array(scores, from_pandas=True),
        "predicted": measured.prediction[item] == choice,
        "credit": pa.array(measured.credit[item], from_pandas=True),
        "missing": measured.decisions.missing[item],
    }
    return pa.table({name: columns[name] for name in SCORE_SCHEMA.names}, schema=SCORE_SCHEMA)


def _score_tables(export: Export) -> Iterator[pa.Table]:
    for run, model in zip(export.runs, model_names(export.runs), strict=True):
        for measured in run.measurements.values():
            yield _scores(run, measured, model)
        run.release()


def _spelled(table: pa.Table) -> pa.Table:
    """The same with texts as a spreadsheet shows them and never computes them."""
    for place, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            encoded = table[column.name].combine_chunks()
            texts = pa.array(
                [spreadsheet_text(text) for text in encoded.dictionary.to_pylist()], pa.string()
            )
            table = table.set_column(place, column.name, texts.take(encoded.indices))
    return table


_ROW_COLUMNS = {
    "model": pa.string(),
    "dataset": pa.string(),
    "data": pa.string(),
    "selection": pa.string(),
    "subject": pa.string(),
    "protocol": pa.string(),
    "signature": pa.string(),
    "family": pa.string(),
    "id": pa.string(),
    "i": pa.string(),
    "t": pa.string(),
    "r": pa.string(),
    "metric": pa.string(),
    "value": pa.float64(),
    "se": pa.float64(),
    "interval": pa.string(),
    "ci_low": pa.float64(),
    "ci_high": pa.float64(),
    "low": pa.float64(),
    "high": pa.float64(),
    "n": pa.int64(),
    "missing": pa.int64(),
    "invalid": pa.int64(),
    "ties": pa.int64(),
    "near_ties": pa.int64(),
    "noise": pa.float64(),
    "skipped": pa.int64(),
    "shots_dropped": pa.int64(),
    "truncated": pa.int64(),
    "merged": pa.int64(),
    "noncanonical": pa.int64(),
    "lossy": pa.int64(),
    "unknown": pa.int64(),
    "diagnosis": pa.string(),
    "unused": pa.string(),
    "rank": pa.int64(),
    "rank_low": pa.int64(),
    "rank_high": pa.int64(),
    "lead_p": pa.float64(),
    "missing_reasons": pa.string(),
    "skipped_reasons": pa.string(),
    "model_source": pa.string(),
    "dataset_source": pa.string(),
    "unlisted": pa.int64(),
    "server_changed": pa.string(),
    "calibrated": pa.float64(),
    "answers": pa.string(),
    "population": pa.int64(),
    "rounding": pa.string(),
    "flags": pa.string(),
    "alarms": pa.string(),
    "chance": pa.float64(),
    "complete": pa.bool_(),
    "mean_of_parts": pa.float64(),
    "normalised": pa.bool_(),
    "parts": pa.string(),
}
"""Columns of the JSON of a number and of the averages of suites; what is no text or number is JSON as text."""


@cache
def row_schema() -> pa.Schema:
    """Return the columns of a table of numbers, and what the averages of suites have beside them."""
    return pa.schema(_ROW_COLUMNS, metadata={b"choicewise": b"rows"})


def row_table(study: Study) -> pa.Table:
    """The rows of all runs under the names of their models, then the averages of suites, whose metric is ``average``.

    Values are shares of 1, those of other metrics in the unit of the metric.  A number that is not there is null.
    """
    whole = {run.label: run.manifest.complete for run in study.runs}
    names = {run.label: run.manifest.model.name for run in study.runs}
    rows = [
        {
            **row.with_model(names[row.identity.model]).as_json(),
            "complete": whole[row.identity.model],
        }
        for row in (*study.rows, *study.other_metrics)
    ]
    averages = [each.as_json() for each in study.averages]
    schema = row_schema()
    return pa.Table.from_pylist(
        [
            {field.name: _value(each.get(field.name), field.type) for field in schema}
            for each in (*rows, *averages)
        ],
        schema,
    )


def _value(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, str) or value is None or kind != pa.string():
        return value
    return json.dumps(value, ensure_ascii=False)


def _no_notes(export: Export) -> Sequence[str]:
    return ()


def _incomplete(export: Export) -> Sequence[str]:
    return not_whole(export.runs)


def _row_tables(export: Export) -> Iterator[pa.Table]:
    yield row_table(shown_runs(export))


def _spelled_score_tables(export: Export) -> Iterator[pa.Table]:
    return map(_spelled, _score_tables(export))


@dataclass(frozen=True, kw_only=True)
class CsvForm:
    """CSV by pyarrow, for millions of rows.

    ``heads``: the columns, as they are spelled.  ``tables``: the content, a table at a time.  ``notes``: what is left
    out, and why.  Lines end as pyarrow ends them, with a line feed: before its 26 it knows no other end.
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
    """Parquet of one schema; ``tables`` and ``notes`` as in :class:`CsvForm`."""

    schema: pa.Schema
    tables: Callable[[Export], Iterator[pa.Table]]
    notes: Callable[[Export], Sequence[str]]

    def write(self, export: Export, out: Path) -> Sequence[str]:
        """Write the ``export`` to the file ``out``, and return what is left out."""
        write_parquet(out, self.tables(export), self.schema)
        return self.notes(export)

    def replaces(self, file: Path) -> bool:
        """Return whether ``file`` says of itself that it is of this schema."""
        import pyarrow.parquet as pq

        try:
            metadata = dict(pq.read_schema(file).metadata or {})
        except (OSError, pa.ArrowException):
            return False
        return metadata.items() >= self.schema.metadata.items()


def write_row_csv(export: Export, out: Path) -> Sequence[str]:
    """Write the rows of the report to the file ``out``, for a spreadsheet."""
    table = row_table(shown_runs(export))
    out.write_text(table_csv(table.column_names, table.to_pylist()), encoding="utf-8", newline="")
    return ()


FORMS: Mapping[str, CsvForm | ParquetForm] = {
    "parquet": ParquetForm(schema=row_schema(), tables=_row_tables, notes=_no_notes),
    "items-csv": CsvForm(
        heads=[f'"{name}"' for name in ITEM_SCHEMA.names], tables=_item_tables, notes=_left_out
    ),
    "items-parquet": ParquetForm(schema=ITEM_SCHEMA, tables=_item_tables, notes=_left_out),
    "scores-csv": CsvForm(
        heads=SCORE_SCHEMA.names, tables=_spelled_score_tables, notes=_incomplete
    ),
    "scores-parquet": ParquetForm(schema=SCORE_SCHEMA, tables=_score_tables, notes=_incomplete),
}
"""The tables by the names of their writers."""
