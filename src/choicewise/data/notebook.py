"""How a notebook shows what a run or a dataset is."""

from collections.abc import Mapping
from html import escape


def html_table(title: str, facts: Mapping[str, object]) -> str:
    """A small table in HTML, everything escaped: a row per fact, the ``title`` above."""
    cells = ((escape(name), escape(str(value))) for name, value in facts.items())
    rows = "".join(f"<tr><th style='text-align:left'>{name}</th><td>{value}</td></tr>" for name, value in cells)
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"
