"""Columns that can't be read without a declared mapping, and the mapping to copy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from choicewise.data.answer_reader import CountingOpen
from choicewise.data.columns import Columns
from choicewise.data.proposal import none_fits, proposal
from choicewise.data.shapes import shape_of_columns
from choicewise.errors import DataError

_COPY = "declare a mapping, such as this one in a file of its own:"


class UnknownShape(DataError):
    """Columns that are of no known shape; its ``problems`` are the lines of a mapping in TOML that may fit them."""


def unknown_shape(file: Path, rows: Sequence[Mapping[str, Any]]) -> UnknownShape:
    """The error about a file whose columns are of no known shape; ``rows``: its first ones."""
    why = f"{file} has the columns {', '.join(rows[0])}, which are no known shape"
    return UnknownShape(f"{why}; {_COPY}", proposal(rows))


def open_counting(file: Path, rows: Sequence[Mapping[str, Any]], error: CountingOpen) -> UnknownShape:
    """The error about answers of a known shape that may count from 0 or from 1."""
    return UnknownShape(f"{file}: {error.message}, such as this one in a file of its own:", proposal(rows, doubtful=1))


def misread_shape(
    file: Path, rows: Sequence[Mapping[str, Any]], columns: Columns, error: DataError
) -> UnknownShape | None:
    """The error about a file of a known shape none of whose ``rows`` fit, where another mapping does fit them."""
    if not none_fits(rows, columns) or not (lines := proposal(rows))[0].startswith("# fits"):
        return None
    why = f"{file} has the columns of {shape_of_columns(columns)}, and no row can be read so: {error.parts[0]}"
    return UnknownShape(f"{why}; {_COPY}", lines)
