"""The board: a server that shows folders of runs, takes submissions, and has them evaluated by workers.

``server.py`` serves what ``library.py`` knows of the folders; ``queue.py`` has the submissions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from choicewise.ports import Command, Extension, Site


class Board(Site):
    """The board as files, which any web server can show."""

    name = "board"
    summary = "models by protocols, and a page for every model, run and protocol"

    def write(self, folders: Sequence[Path], out: Path, metrics: Sequence[str]) -> Iterator[str]:
        """Write the board of all runs below ``folders`` into the folder ``out``, and yield lines."""
        from choicewise.extensions.board.files import write_files

        return write_files(folders, out, metrics)


class Serve(Command):
    """``choicewise serve``."""

    name = "serve"
    summary = "Show models by protocols of all runs in a browser."

    def app(self) -> Callable[..., None]:
        """Return the function."""
        from choicewise.extensions.board.commands import serve

        return serve


class Work(Command):
    """``choicewise work``."""

    name = "work"
    summary = "Evaluate the models that are submitted to a board."

    def app(self) -> Callable[..., None]:
        """Return the function."""
        from choicewise.extensions.board.commands import work

        return work


EXTENSION = Extension("board", [Board(), Serve(), Work()])
