"""``choicewise explain``: one item of a run in full."""

from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.output import print_json, show


def explain(
    folder: options.RunFolder,
    item: Annotated[str, typer.Option("--item", help="The item's id.")],
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="Only these protocols, or others that ask the same.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show the exact prompt, the tokens with their log-probabilities, and every protocol's decision.

    In the prompt ⏎ ends a line, ␠ is a space at its edge or beside another, ␉ a tab. No model is needed.
    """
    from choicewise.report.explanation_text import explanation_lines
    from choicewise.results.explanation import explain as explain_item
    from choicewise.results.run import open_run

    explanation = explain_item(open_run(folder).choose(protocol), item)
    if json:
        print_json(explanation)
    else:
        show(*explanation_lines(explanation))
