"""Where tables and texts are printed: texts as they are, but for what a terminal would obey."""

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from choicewise.report.visible_text import disarmed

_WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing limits it."""


class _Plain(Console):
    """A console that shows texts as they are, but for what a terminal would obey."""

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(disarmed(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text):
            renderable = Text(disarmed(renderable.plain), style=renderable.style)
        return super().render(renderable, options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # what a reader that left means is for the caller to say


def console() -> Console:
    """Where results go: stdout, as wide as the terminal.  Text is printed as it is, never read as markup."""
    width = None if sys.stdout.isatty() else _WIDE
    return _Plain(width=width, highlight=False, markup=False, emoji=False)
