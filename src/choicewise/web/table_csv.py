"""Rows as CSV that a spreadsheet reads as text and numbers, and never computes."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from choicewise.report.visible_text import safe


def table_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows (mappings) as CSV.  A text that a spreadsheet would compute begins with an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_field(row.get(name)) for name in columns] for row in rows)
    return file.getvalue()


def _field(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, tuple | list):
        value = " ".join(map(str, value))
    return spreadsheet_text(value) if isinstance(value, str) else str(value)


def spreadsheet_text(value: str) -> str:
    """``value`` on one line, after an apostrophe where a spreadsheet would compute it."""
    text = safe(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
