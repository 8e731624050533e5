"""Show one item of a run: ``choicewise explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.terminal import print_json, print_parts, show


def explain(
    folder: options.RunFolder,
    item: Annotated[str, typer.Option("--item", help="The item's id.")],
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol", help="Show only these protocols, or others with the same prompts."
        ),
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show whole prompts and every scored token.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show an item's prompts, its scores, and what every protocol decides.

    Prompts show a line end as ⏎, a tab as ␉, and spaces at an edge or in a row as ␠. No model is
    needed.
    """
    if json:
        options.refuse_without_use("--json, which shows every token", tokens=tokens)
    from choicewise.extensions.explain.item_report import explanation_lines, explanation_parts
    from choicewise.models.kinds import answering_kind
    from choicewise.results.explain import explain as explain_item
    from choicewise.results.run import open_run
    from choicewise.results.sweep import one_run

    run = open_run(one_run(folder))
    kind = answering_kind(run.manifest)
    explanation = explain_item(run.choose(protocol), item)
    if json:
        print_json(explanation)
    elif tokens:
        show(*explanation_lines(explanation, kind))
    else:
        print_parts(explanation_parts(explanation, kind=kind))
        show(
            "S: sum of log-probabilities in nats; [ ]: chosen. --tokens shows whole "
            "prompts and every token"
        )
