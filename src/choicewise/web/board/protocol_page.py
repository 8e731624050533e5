"""A protocol's spec sheet: what it asks, who published it, every axis, and the numbers under it."""

from dataclasses import dataclass
from typing import Any

from choicewise.protocols.catalogue import Entry, entries
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import parse_signature, signature
from choicewise.web.board.column import Column
from choicewise.web.board.library import Shelf
from choicewise.web.board.line import Line
from choicewise.web.board.links import Links
from choicewise.web.board.page import rendered
from choicewise.web.board.records import cell_record, column_record
from choicewise.web.shown_text import shown_line


@dataclass(frozen=True, slots=True)
class Sheet:
    """A protocol that the board has: its name, its columns, and what the catalogue says of it, if it knows it."""

    name: str
    p: str
    protocol: Protocol
    columns: tuple[Column, ...]
    entry: Entry | None

    @property
    def axes(self) -> list[tuple[str, str]]:
        """Every axis with its value: texts with their white space visible, the rest as the signature spells it."""
        spelled = (part.partition(":") for part in signature(self.protocol).split("|"))
        values = [(axis, value, getattr(self.protocol, axis)) for axis, _, value in spelled]
        return [(axis, shown_line(text) if isinstance(text, str) else value) for axis, value, text in values]


def sheet(shelf: Shelf, p: str) -> Sheet | None:
    """The protocol of that short id (without the number sign), if the board has one."""
    columns = tuple(column for column in shelf.board.columns if column.p == f"#{p}")
    if not columns:
        return None
    protocol = parse_signature(columns[0].key.signature)
    known = (entry for entry in entries() if protocol in entry.protocols.values())
    return Sheet(columns[0].protocol, columns[0].p, protocol, columns, next(known, None))


def protocol_page(shelf: Shelf, asked: Sheet, links: Links, **further: Any) -> str:
    """The spec sheet as HTML."""
    numbers = [(column, _ordered(shelf, column)) for column in asked.columns]
    return rendered(
        "protocol.html.j2",
        shelf,
        links,
        sheet=asked,
        numbers=numbers,
        signature=signature(asked.protocol),
        **further,
    )


def protocol_record(shelf: Shelf, asked: Sheet) -> dict[str, Any]:
    """The same as plain data."""
    entry = asked.entry
    about = {} if entry is None else {name: getattr(entry, name) for name in ("title", "citation", "source", "about")}
    return {
        "protocol": asked.name,
        "p": asked.p,
        "signature": signature(asked.protocol),
        "axes": dict(asked.axes),
        "entry": about or None,
        "columns": [
            {
                **column_record(column),
                "models": [
                    {"model": line.model, **cell_record(line.cells[column.id], shelf.ranges.get(column.id))}
                    for line in _ordered(shelf, column)
                ],
            }
            for column in asked.columns
        ],
    }


def _ordered(shelf: Shelf, column: Column) -> list[Line]:
    """The lines of a column, the best first, those without a number last."""
    lines = [line for line in shelf.board.lines if column.id in line.cells]
    return sorted(lines, key=lambda line: (line.cells[column.id].rank or len(lines) + 1, line.model))
