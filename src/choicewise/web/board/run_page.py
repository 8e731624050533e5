"""A run's page where its own document can't be made: what it measured, how far it is, and how to get it again."""

from typing import Any

from choicewise.protocols.signature import parse_signature
from choicewise.web.board.library import Shelf
from choicewise.web.board.links import Links
from choicewise.web.board.listed_run import ListedRun, State
from choicewise.web.board.page import rendered
from choicewise.web.page.again import selectors


def run_page(shelf: Shelf, run: ListedRun, links: Links, **further: Any) -> str:
    """The page of any run, as HTML."""
    words = "is complete." if run.state is State.READ else f"is {run.state}."
    return rendered("run.html.j2", shelf, links, run=run, words=words, protocols=asked_names(run), **further)


def asked_names(run: ListedRun) -> list[str]:
    """The fewest names that mean the protocols of a run; none where its manifest can't be read."""
    signatures = {} if run.manifest is None else run.manifest.protocols
    return selectors({name: parse_signature(text) for name, text in signatures.items()})
