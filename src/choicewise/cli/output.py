"""Results on stdout: as JSON, or as tables and lines for people."""

from collections.abc import Iterable
from json import dumps

from choicewise.results.json_value import json_value


def print_json(content: object) -> None:
    """``content`` as JSON (:func:`choicewise.results.json_value.json_value`)."""
    print(dumps(json_value(content), ensure_ascii=False, indent=1))


def print_parts(parts: Iterable[object]) -> None:
    """Each part, a table or text, with an empty line after it."""
    from choicewise.report.table import console

    out = console()
    for part in parts:
        out.print(part)
        out.print()
