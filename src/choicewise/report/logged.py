"""Put an imported log's own numbers in a line, beside those that its answers give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from choicewise.records import ImportRecord
from choicewise.util.text import percent, short

ROUNDING = 1e-5
"""Difference between two shares that rounding may make, as other tools compute them."""

PART = "items"
"""Setting of a log that lacks items of the task: how many it has, and how many there are."""

_LISTED = 3
"""Numbers of a log that the line lists; it counts the others."""

_NAME = 24
"""Columns of a number's name."""


def log_line(imported: ImportRecord | None) -> str:
    """Return the log's numbers in %, and those of its answers if they differ.

    "" if it has none, or the run is not imported.  Numbers that can't be recomputed are left out if
    there are others.
    """
    if imported is None:
        return ""
    log = "in the log"
    if PART in imported.settings:
        log += f" ({imported.settings[PART]})"
    names = [name for name in imported.recorded if name in imported.recomputed]
    if not names:
        shares = [name for name, value in imported.recorded.items() if _is_share(name, value)]
        if not shares:
            return ""
        return f"{_listed(imported.recorded, shares)} {log}; not recomputed"
    different = []
    for name in names:
        if abs(imported.recorded[name] - imported.recomputed[name]) > ROUNDING:
            different.append(name)
    # A number that differs is never among those that are only counted.
    if len(names) > _LISTED:
        names.sort(key=lambda name: name not in different)
    recomputed = "the same"
    if different:
        recomputed = _listed(imported.recomputed, different)
    return f"{_listed(imported.recorded, names)} {log}; recomputed: {recomputed}"


def _is_share(name: str, value: float) -> bool:
    return 0 <= value <= 1 and "stderr" not in name


def _listed(numbers: Mapping[str, float], names: Sequence[str]) -> str:
    words = [f"{short(name, _NAME)} {percent(numbers[name])}" for name in names[:_LISTED]]
    line = ", ".join(words)
    others = len(names) - len(words)
    if others:
        line += f" and {others} more"
    return line
