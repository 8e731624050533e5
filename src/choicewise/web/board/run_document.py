"""The page of one run on a board: the same document as that of a run alone."""

from pathlib import Path

from choicewise.web.page.content import Content
from choicewise.web.page.document import document
from choicewise.web.page.full_items import inside_items
from choicewise.web.page.write import today
from choicewise.web.study import read_study

ITEMS = 20
"""Items that it holds in full, those that flip most; a served board has a page for every item."""


def run_document(folder: Path, board: str) -> str:
    """The page of the complete run in ``folder``, as HTML with its own style, scripts and policy.

    ``board``: the address of the board.
    """
    content = Content(read_study([folder]))
    return document(content, today(), inside_items(content, ITEMS), board=board)
