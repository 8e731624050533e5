"""A table for a paper, before it is spelled in a markup language: plain texts, numbers with their marks, notes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its ``text``, the 95 % ``interval`` that stands below or after it, and the numbers of its notes."""

    text: str
    interval: str = ""
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A line below a table: ``mark`` as cells have it, 0 for none; ``code``, such as a signature, is set as it is."""

    text: str
    mark: int = 0
    code: str = ""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """One table.  ``name``: a word of a-z, 0-9 and hyphens to refer to it; ``heads``: of the columns; the first column
    is text, the others are numbers unless ``texts`` has their place."""

    name: str
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[Note, ...]
    texts: frozenset[int] = frozenset((0,))
