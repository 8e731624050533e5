"""Long texts folded to a few lines, with white space visible and what is hidden counted."""

from choicewise.report.visible_text import visible, visible_line
from choicewise.report.words import count

FEWEST = 3
"""Lines that a beginning, a count of what is hidden and an end need."""


def folded(text: str, lines: int, width: int) -> list[str]:
    """``text`` in at most so many lines of at most ``width`` characters: its first line and its last ones.

    With fewer than :data:`FEWEST` lines its end on one line, where ⏎ stands for every end of a line.
    """
    shown = visible(text).split("\n")
    if lines < FEWEST:
        return [_end(visible_line(text), width)] if len(shown) > 1 else [cut(shown[0], width)]
    if len(shown) <= lines:
        return [cut(line, width) for line in shown]
    tail = shown[len(shown) - (lines - 2) :]
    hidden = shown[1 : len(shown) - len(tail)]
    mark = f"… {len(hidden):,} lines, {sum(map(len, hidden)):,} characters …"
    return [cut(line, width) for line in (shown[0], mark, *tail)]


def cut(line: str, width: int) -> str:
    """``line``, without its middle where it is longer than ``width``; what is hidden is counted."""
    if len(line) <= width:
        return line
    mark = f" … {len(line) - width:,} characters … "
    room = max(0, width - len(mark))
    return f"{line[: room - room // 2]}{mark}{line[len(line) - room // 2 :]}"[:width]


def size(text: str) -> str:
    """How long a text is, in words."""
    lines = text.count("\n") + 1
    return count(lines, "line") if lines > 1 else count(len(text), "character")


def _end(line: str, width: int) -> str:
    return line if len(line) <= width else f"…{line[len(line) - width + 1 :]}"
