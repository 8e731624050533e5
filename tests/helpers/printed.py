"""Tables as commands print them, in as many columns as a test wants."""

from contextlib import redirect_stdout
from io import StringIO

from rich.console import RenderableType

from choicewise.report.tables import console
from choicewise.table import Table, terminal


def printed(*parts: RenderableType | Table, width: int = 80) -> list[str]:
    """The lines of ``parts`` on a console of ``width`` columns."""
    with redirect_stdout(StringIO()) as out:
        shown = console()
        shown.width = width
        for part in parts:
            shown.print(terminal(part, most=None) if isinstance(part, Table) else part)
    return [line.rstrip() for line in out.getvalue().splitlines()]
