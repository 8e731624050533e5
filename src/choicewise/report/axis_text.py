"""What changes on an axis, in few characters."""

from collections.abc import Sequence

from choicewise.report.visible_text import safe
from choicewise.results.comparison import Axis

WIDTH = 44
"""Characters for an axis with its two values."""

_BEFORE = 4
"""Characters shown before the first one that differs, where there is no room for all."""


def axes_text(axes: Sequence[Axis]) -> str:
    """One axis with its values; of several the names alone, but the first three where there are more than four."""
    if len(axes) == 1:
        return change_text(axes[0])
    names = [axis.axis for axis in axes]
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return safe(", ".join(shown))


def change_text(axis: Axis) -> str:
    """``ties first → split``; long texts from shortly before they differ."""
    left, right, room = axis.left, axis.right, WIDTH - len(axis.axis) - 4
    if len(left) + len(right) > room:
        pairs = zip(left, right, strict=False)
        same = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))
        left, right = (_shortened(text, max(0, same - _BEFORE), room // 2) for text in (left, right))
    return safe(f"{axis.axis} {_edged(left)} → {_edged(right)}")


def _edged(text: str) -> str:
    """In quotes where its ends would not be seen."""
    return f'"{text}"' if text.strip() != text or not text else text


def _shortened(text: str, start: int, width: int) -> str:
    """At most ``width`` characters of ``text``, from ``start`` on; all of it where it fits."""
    if len(text) <= width:
        return text
    cut = ("…" if start else "") + text[start:]
    return cut if len(cut) <= width else cut[: width - 1] + "…"
