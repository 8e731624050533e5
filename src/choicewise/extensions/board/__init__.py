"""The board: a server that shows folders of runs, takes submissions, and has them evaluated by
workers.

``server.py`` serves what ``library.py`` knows of the folders; ``queue.py`` has the submissions.
"""

from __future__ import annotations

from choicewise.ports import Command, Extension, Site, calls, returns


class Board(Site):
    """The board as files, which any web server can show."""

    name = "board"
    summary = "models by protocols, and a page for every model, run and protocol"
    write = calls("choicewise.extensions.board.files:write_files")


class Serve(Command):
    """``choicewise serve``."""

    name = "serve"
    summary = "Show a board of all runs in a browser."
    app = returns("choicewise.extensions.board.commands:serve")


class Work(Command):
    """``choicewise work``."""

    name = "work"
    summary = "Evaluate models submitted to a board."
    app = returns("choicewise.extensions.board.commands:work")


EXTENSION = Extension("board", [Board(), Serve(), Work()])
