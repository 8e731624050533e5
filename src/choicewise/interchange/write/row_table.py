"""The rows of a report as one table, for programs and spreadsheets: every number in full, with its signature."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa

from choicewise.interchange.place import begins_with, one_file
from choicewise.interchange.write import Export, Writer
from choicewise.interchange.write.shown_runs import shown_runs
from choicewise.results.row import Row
from choicewise.web.study import Study
from choicewise.web.table_csv import table_csv

_TYPES = {
    str: pa.string(),
    float: pa.float64(),
    int: pa.int64(),
    int | None: pa.int64(),
    float | None: pa.float64(),
    bool: pa.bool_(),
}
"""Types of a column by that of the field; anything else is JSON as text."""

_MARK = {b"choicewise": b"rows"}
"""In the schema of a Parquet file: whose it is."""


@cache
def row_schema() -> pa.Schema:
    """A column per field of :class:`~choicewise.results.row.Row`, and what the averages of suites have beside them."""
    columns = {name: _TYPES.get(kind, pa.string()) for name, kind in get_type_hints(Row).items()}
    columns |= {"flags": pa.string(), "alarms": pa.string(), "chance": pa.float64(), "complete": pa.bool_()}
    columns |= {"mean_of_parts": pa.float64(), "normalised": pa.bool_(), "parts": pa.string()}
    return pa.schema(columns, metadata=_MARK)


def row_table(study: Study) -> pa.Table:
    """The rows of all runs under the names of their models, then the averages of suites, whose metric is ``average``.

    Values are shares of 1; of the metric perplexity they are perplexities.  A number that is not there is null.
    """
    whole = {run.label: run.manifest.complete for run in study.runs}
    names = {run.label: run.manifest.model.name for run in study.runs}
    rows = [
        {**replace(row, model=names[row.model]).as_json(), "complete": whole[row.model]}
        for row in (*study.rows, *study.apart)
    ]
    averages = [each.as_json() for each in study.averages]
    schema = row_schema()
    return pa.Table.from_pylist([_plain(each, schema) for each in (*rows, *averages)], schema)


def _plain(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    return {field.name: _value(row.get(field.name), field.type) for field in schema}


def _value(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, str) or value is None or kind != pa.string():
        return value
    return json.dumps(value, ensure_ascii=False)


def _write_csv(export: Export, out: Path) -> Sequence[str]:
    table = row_table(shown_runs(export))
    out.write_text(table_csv(table.column_names, table.to_pylist()), encoding="utf-8", newline="")
    return ()


def _write_parquet(export: Export, out: Path) -> Sequence[str]:
    import pyarrow.parquet as pq

    pq.write_table(row_table(shown_runs(export)), out, compression="zstd")
    return ()


def csv_of(columns: Sequence[str]) -> Callable[[Path], bool]:
    """Whether a file begins with these columns."""
    return begins_with(",".join(columns))


def parquet_of(schema: pa.Schema) -> Callable[[Path], bool]:
    """Whether a file is Parquet with the mark of this schema."""

    def is_ours(path: Path) -> bool:
        import pyarrow.parquet as pq

        try:
            return dict(pq.read_schema(path).metadata or {}).items() >= schema.metadata.items()
        except (OSError, pa.ArrowException):
            return False

    return is_ours


CSV = Writer(
    "the rows of `choicewise report` in full for a spreadsheet; a text that it would compute begins with an apostrophe",
    _write_csv,
    one_file(csv_of(row_schema().names)),
)

PARQUET = Writer(
    "the rows of `choicewise report` in full, for pandas, Polars, DuckDB or R",
    _write_parquet,
    one_file(parquet_of(row_schema())),
)
