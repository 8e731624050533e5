"""Observations one by one, whether they came so or as a table."""

from collections.abc import Iterator

import pyarrow as pa

from choicewise.records.rows import ObservationRow
from choicewise.running.executors.executor import Observed


def rows_of(observed: Observed) -> Iterator[ObservationRow]:
    """The rows of a table, or the one row."""
    if isinstance(observed, pa.Table):
        columns = [column.to_pylist() for column in observed.columns]
        yield from (ObservationRow(*values) for values in zip(*columns, strict=True))
    else:
        yield observed
