"""Collect the rows of the ``spans`` table, those that many requests have in common only once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from choicewise.records import SPANS, SpanRow
from choicewise.store.tables import make_table


class SpanRows:
    """Hold the rows of a block in groups, each of which many requests may use.

    Groups lack the columns that differ between requests: prompt, item, null context and context.
    """

    def __init__(self) -> None:
        self._rows: list[SpanRow] = []
        self._uses: list[tuple[range, str, str, str | None, str | None]] = []

    def add_group(self, rows: Iterable[SpanRow]) -> range:
        """Add a group, whose rows are in the table once it is used; return where it is."""
        start = len(self._rows)
        self._rows.extend(rows)
        return range(start, len(self._rows))

    def use(
        self, group: range, prompt: str, item: str, null: str | None, context: str | None
    ) -> None:
        """Append the rows of ``group`` to the table, with these columns."""
        self._uses.append((group, prompt, item, null, context))

    @property
    def uses(self) -> int:
        """Count the uses of groups so far."""
        return len(self._uses)

    def keys_since(self, uses: int) -> set[str | None]:
        """Return the keys in all groups that were used after so many ``uses``."""
        groups = {group for group, *_ in self._uses[uses:]}
        return {self._rows[index].key for index in chain.from_iterable(groups)}

    def __iter__(self) -> Iterator[SpanRow]:
        """Yield the rows of the table."""
        for group, prompt, item, null, context in self._uses:
            for row in self._rows[group.start : group.stop]:
                yield row._replace(prompt=prompt, item=item, null=null, context=context)

    def table(self) -> pa.Table:
        """Return the table of the rows."""
        if not self._uses:
            return SPANS.empty_table()
        groups, *columns = zip(*self._uses, strict=True)
        rows = np.fromiter(chain.from_iterable(groups), dtype=np.int64)
        use_of_row = np.repeat(np.arange(len(groups)), list(map(len, groups)))
        table = make_table(SPANS, self._rows).take(rows)
        for name, values in zip(("prompt", "item", "null", "context"), columns, strict=True):
            index = SPANS.get_field_index(name)
            field = SPANS.field(index)
            column = pa.array(values, field.type).take(pa.array(use_of_row))
            table = table.set_column(index, field, column)
        return table
