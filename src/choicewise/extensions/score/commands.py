"""Score texts: ``choicewise score``."""

from __future__ import annotations

from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.options import Loading, grouped
from choicewise.cli.terminal import print_json, print_parts
from choicewise.table import Column, Table


@grouped
def score(
    *,
    model: options.ModelName,
    context: Annotated[
        str, typer.Option("--context", help="The text before the choices, used exactly as given.")
    ],
    choice: Annotated[
        list[str],
        typer.Option("--choice", help="A continuation, including its leading space. Repeatable."),
    ],
    reading: Annotated[
        str | None,
        typer.Option(
            "--reading",
            help="How to score: loglikelihood, pseudo-loglikelihood, "
            "pseudo-loglikelihood-within-word or encoder-decoder (default: the first that "
            "the model supports).",
        ),
    ] = None,
    boundary: Annotated[
        str | None,
        typer.Option(
            "--boundary",
            help="Which tokens count: joint, moved-space, separate, count, lcp (default), "
            "last-token, heal, word, bytes. Masked models take lcp or count, "
            "encoder-decoders separate.",
        ),
    ] = None,
    premise: Annotated[
        str | None,
        typer.Option(
            "--premise",
            help="A text that names the domain without the question, such as ' the answer is:' "
            "(for dc_pmi and domain_conditional).",
        ),
    ] = None,
    loading: Loading,
    json: options.Json = False,
) -> None:
    """Score each choice as a continuation of the context; log-probabilities in nats."""
    language_model = loading.load(model)
    from choicewise.extensions.score.score_texts import score_texts

    table = score_texts(
        language_model, context, choice, reading=reading, boundary=boundary, premise=premise
    )
    rows = table.to_pylist()
    if json:
        print_json(rows)
        return
    columns = [Column("score", heading=" ")]
    for index, row in enumerate(rows):
        columns.append(Column(f"choice {index}", "score", heading=repr(row["choice"])))
    cells = []
    # The first column is the choice, which the headings have.
    for name in table.column_names[1:]:
        scores = [row[name] for row in rows]
        cells.append([name, *scores])
    print_parts([Table(name="scores", title="", columns=columns, rows=cells, split=1)])
