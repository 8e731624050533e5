"""``choicewise score``: every score of one question, without a run."""

from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.load_one import load_one
from choicewise.cli.output import print_json, print_parts


def score(
    model: options.Model,
    context: Annotated[str, typer.Option("--context", help="The text before the choices, as it stands.")],
    choice: Annotated[
        list[str], typer.Option("--choice", help="A continuation, its leading space included. Repeatable.")
    ],
    reading: Annotated[
        str | None,
        typer.Option(
            "--reading",
            help="loglikelihood; for a masked model pseudo-loglikelihood or pseudo-loglikelihood-within-word; for an "
            "encoder-decoder encoder-decoder. By default the first that the model can be asked with.",
        ),
    ] = None,
    boundary: Annotated[
        str | None,
        typer.Option(
            "--boundary",
            help="Which tokens are scored: joint, moved-space, separate, count, lcp (by default), last-token, heal, "
            "word, bytes. A masked model takes lcp or count, an encoder-decoder separate.",
        ),
    ] = None,
    premise: Annotated[
        str | None,
        typer.Option(
            "--premise",
            help="A text that names the domain and not the question, such as ' the answer is:'; dc_pmi and "
            "domain_conditional need it.",
        ),
    ] = None,
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    window: options.Window = None,
    adapter: options.Adapter = None,
    tokenizer: options.Tokenizer = None,
    json: options.Json = False,
) -> None:
    """Score each choice, as it stands, as a continuation of the context; log-probabilities in nats."""
    language_model = load_one(model, dtype=dtype, device=device, window=window, adapter=adapter, tokenizer=tokenizer)
    from choicewise.running.score_texts import score_texts

    table = score_texts(language_model, context, choice, reading=reading, boundary=boundary, premise=premise)
    if json:
        print_json(table.to_pylist())
        return
    from choicewise.report.table import table as empty_table

    rows = table.to_pylist()
    columns = empty_table("")
    for row in rows:
        columns.add_column(repr(row["choice"]), justify="right", overflow="fold")
    for name in table.column_names[1:]:
        columns.add_row(name, *(_cell(row[name]) for row in rows))
    print_parts([columns])


def _cell(value: float | int | str | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
