"""A run's page where its own document can't be made: what it measured, how far it is, and how to get it again."""

from typing import Any

from choicewise.web.board.library import Shelf
from choicewise.web.board.links import Links
from choicewise.web.board.listed_run import ListedRun, State
from choicewise.web.board.page import rendered
from choicewise.web.board.selectors import selectors


def run_page(shelf: Shelf, run: ListedRun, links: Links, **further: Any) -> str:
    """The page of any run, as HTML."""
    words = "is complete." if run.state is State.READ else f"is {run.state}."
    protocols = [] if run.manifest is None else selectors(run.manifest.protocols)
    return rendered("run.html.j2", shelf, links, run=run, words=words, protocols=protocols, **further)
