"""Write the axes in which two protocols differ on one line."""

from __future__ import annotations

from collections.abc import Sequence

from choicewise.results.outcomes import Axis
from choicewise.util.text import common_start, safe, shortened

WIDTH = 44
"""Characters for an axis with its two values."""

_BEFORE = 4
"""Characters of a long value in front of the first one that differs."""


def axes_text(axes: Sequence[Axis]) -> str:
    """Return one axis with its values, or the names of several."""
    if len(axes) == 1:
        return change_text(axes[0])
    return axes_names(axes)


def axes_names(axes: Sequence[Axis]) -> str:
    """Return the names of axes, but only the first three if they are more than four."""
    names = [axis.axis for axis in axes]
    if len(names) > 4:
        names = [*names[:3], f"{len(names) - 3} more"]
    return safe(", ".join(names))


def change_text(axis: Axis) -> str:
    """Return ``ties first → split``.

    Long values begin shortly before the first character that differs.
    """
    left = axis.left
    right = axis.right
    room = WIDTH - len(axis.axis) - 4
    if len(left) + len(right) > room:
        start = max(0, common_start([left, right]) - _BEFORE)
        left = shortened(left, room // 2, start)
        right = shortened(right, room // 2, start)
    return safe(f"{axis.axis} {_edged(left)} → {_edged(right)}")


def _edged(text: str) -> str:
    """Return a value, in quotes if it is empty or its ends would not be seen."""
    if text and text.strip() == text:
        return text
    return f'"{text}"'
