"""Write a table as the page's own macro draws it."""

from __future__ import annotations

from dataclasses import dataclass

from choicewise.table import Table, cell_texts, heading, is_text, notes_below, visible_columns

_CLASSES = {
    "warnings": "breaks",
    "most common change": "breaks",
    "ids": "code",
}
"""Column → the class of its cells, if not that of its kind."""


@dataclass(frozen=True)
class PageTable:
    """A table in texts: ``columns`` with the class of their cells, ``rows``, and the sentences
    below.
    """

    title: str
    columns: list[tuple[str, str]]
    rows: list[list[str]]
    lines: list[str]


def page_table(table: Table) -> PageTable:
    """Return a table as the page draws it."""
    columns = []
    for column in visible_columns(table):
        kind = "" if is_text(column) else "number"
        columns.append((heading(column).strip(), _CLASSES.get(column.name, kind)))
    return PageTable(table.title, columns, cell_texts(table), notes_below(table))
