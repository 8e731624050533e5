"""TOML that people write: plans, mappings and protocols."""

import tomllib
from typing import Any, Final

DEEPEST: Final = 100
"""Levels of lists and tables in each other; what reads them goes down a level at a time."""


def read_toml(text: str) -> dict[str, Any]:
    """The table that ``text`` declares.  Raises ValueError for what is no TOML, or is nested more than DEEPEST deep."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise _too_deep() from None
    layer: list[Any] = [table]
    for _ in range(DEEPEST):
        values = (value for each in layer for value in (each.values() if isinstance(each, dict) else each))
        layer = [value for value in values if isinstance(value, dict | list)]
        if not layer:
            return table
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"it is nested too deeply: lists and tables stand in each other at most {DEEPEST} deep")
