"""The fixed Parquet schemas of a run folder, and the marks its rows use.  All columns can hold nulls."""

from typing import Any

import pyarrow as pa

from choicewise.records.rows import ItemRow, ObservationRow, RequestRow, SpanRow

FLOAT32 = ":float32"
"""Suffix of an observation's key: the same question, answered by a float32 copy of a 16-bit model."""

GENERATED = -1
"""The choice index of a generation, which belongs to no choice."""


def _schema(row: Any) -> pa.Schema:
    """One column per field, of the type in the field's annotation."""
    return pa.schema([(name, kind.__metadata__[0]) for name, kind in row.__annotations__.items()])


LATER = frozenset({"token_count", "greedy", "at_most", "missing"})
"""Columns that files of earlier versions lack; there they are null."""

ITEMS, REQUESTS, SPANS, OBSERVATIONS = map(_schema, (ItemRow, RequestRow, SpanRow, ObservationRow))
