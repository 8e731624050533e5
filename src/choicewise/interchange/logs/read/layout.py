"""What is laid out otherwise than a tool's releases that were read is refused, and never a crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from choicewise.errors import DataError


@contextmanager
def laid_out_by(tool: str, path: Path) -> Iterator[None]:
    """DataError in place of what a value of another kind than expected leads to."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is laid out otherwise than the releases of {tool} that are read ({type(error).__name__}: {error});"
            " is it of another version, or edited?"
        ) from error
