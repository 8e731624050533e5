"""The board as HTML."""

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from choicewise import __version__
from choicewise.report.visible_text import disarmed
from choicewise.results.diagnosis import FLAGS
from choicewise.web.board.cell_markup import MARKS, bar, cell_markup, doubts, guessed, spread_markup
from choicewise.web.board.layout import headings, order_of, sorted_by
from choicewise.web.board.library import Shelf
from choicewise.web.board.links import Links
from choicewise.web.board.listed_run import State
from choicewise.web.board.view import View, is_shown, shown
from choicewise.web.environment import environment

if TYPE_CHECKING:
    from markupsafe import Markup


def board_page(shelf: Shelf, view: View, links: Links, **further: Any) -> str:
    """The board in the state ``view``; ``further`` is what the frame of the page takes."""
    board = shelf.board
    seen = shown(board, view)
    cells = [line.cells[column.id] for line in seen.lines for column in seen.columns if column.id in line.cells]
    raised = {flag for cell in cells if cell.row is not None for flag in cell.row.diagnosis.flags}
    return rendered(
        "board.html.j2",
        shelf,
        links,
        board=board,
        view=view,
        seen=seen,
        headings=headings(board, seen.columns),
        families=Counter(column.family for column in board.columns),
        parts=dict.fromkeys((column.key.part, column.dataset) for column in board.columns),
        sorted_by=partial(sorted_by, seen),
        order_of=partial(order_of, seen),
        is_shown=is_shown,
        ranged=sum(column.measured > 1 for column in board.columns),
        flags=FLAGS,
        legend={MARKS[flag]: words for flag, words in FLAGS.items() if flag in raised},
        State=State,
        **further,
    )


def rendered(template: str, shelf: Shelf, links: Links, **context: Any) -> str:
    """A page of the board."""
    common = {"version": __version__, "shelf": shelf, "links": links, "View": View}
    words = {"doubts": doubts, "guessed": guessed, "breakable": breakable, "bar": bar}
    words |= {"cell_markup": cell_markup, "spread_markup": spread_markup}
    return environment().get_template(template).render(**common, **words, **context)


def breakable(text: str) -> "Markup":
    """``text`` with places where a line may break: after what parts the words of a name."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[/:_.-])(?=\w)", disarmed(text)))
