"""Where a row stands, for messages."""

from pathlib import Path
from typing import NamedTuple


class RowPlace(NamedTuple):
    """A row of a file, counted from 0; the text of it is made when it is needed."""

    file: Path
    row: int

    def __str__(self) -> str:
        return f"{self.file}, row {self.row} (counted from 0)"
