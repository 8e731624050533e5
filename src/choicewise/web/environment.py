"""Where pages come from: the templates, with everything that is printed escaped and without hidden characters."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.report.command_line import quoted
from choicewise.report.table import percent
from choicewise.report.visible_text import disarmed
from choicewise.web import number
from choicewise.web.shown_text import shown

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"

LINKED = ("https://", "http://")
"""How an address begins that may become a link."""


@cache
def environment() -> "Environment":
    """Of all templates.  What is undefined is an error, and texts are escaped for HTML.

    Texts of data and models hold control characters, which change what a reader sees: their visible escapes are
    printed instead.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "percent": percent,
        "error": number.error,
        "points": number.points,
        "count": number.count,
        "listed": number.listed,
        "shortened": number.shortened,
        "visible": shown,
        "shell": quoted,
        "pair_with": lambda value, other: (value, other),
    }
    made.globals |= {"interval": number.interval, "ranks": number.ranks}
    made.tests |= {"address": is_address}
    return made


def is_address(text: str) -> bool:
    """Whether ``text`` is the address of a page, and nothing that a browser would run."""
    return text.startswith(LINKED) and not any(char.isspace() for char in text)


def static_text(*names: str) -> str:
    """The static files called so, one after the other."""
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in names)


def _printable(value: Any) -> Any:
    from markupsafe import Markup

    return disarmed(value) if isinstance(value, str) and not isinstance(value, Markup) else value
