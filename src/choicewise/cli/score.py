"""``choicewise score``: every score of one question, asked on the spot."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer

from choicewise.cli import options


def score(
    model: options.Model,
    context: Annotated[str, typer.Option("--context", help="The text before the choices, as it stands.")],
    choice: Annotated[
        list[str], typer.Option("--choice", help="A continuation, its leading space included. Repeatable.")
    ],
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Score each choice, as it stands, as a continuation of the context; log-probabilities in nats."""
    from choicewise.models.load import load_model
    from choicewise.question import score as scored

    table = scored(load_model(model, dtype=dtype, device=device), context, choice)
    if json:
        print(dumps(table.to_pylist(), ensure_ascii=False, indent=1))
        return
    from rich.table import Table

    from choicewise.report.table import console

    shown = Table(box=None, pad_edge=False)
    for column in table.column_names:
        shown.add_column(column, justify="left" if column == "choice" else "right")
    for row in table.to_pylist():
        shown.add_row(*(_cell(value) for value in row.values()))
    console().print(shown)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    return repr(value)[1:-1] if isinstance(value, str) else str(value)
