"""``choicewise plot``: a chart of the page as an image."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.output import tell
from choicewise.errors import UsageError

FORMATS = (".svg", ".png", ".pdf", ".json")
"""What a chart can be written as; JSON is its Vega-Lite specification."""


def plot(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR... CHART",
            help="Run folders, or folders that hold runs; then strip, ladder, effects, bump, ranks or pair.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", readable=False, help="The file, which ends in .svg, .png, .pdf or .json (Vega-Lite)."),
    ],
    model: Annotated[
        list[str] | None, typer.Option("--model", help="A model among the runs; two for pair. Repeatable.")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help="The first protocol of the ladder.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="The last protocol of the ladder.")] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", help="Point it out (strip), put it first (bump), this alone (ranks).")
    ] = None,
    rank: Annotated[
        bool | None, typer.Option("--rank/--value", help="Ranks or values, of strip and bump.", show_default=False)
    ] = None,
) -> None:
    """Draw a chart of run folders into a file, as the page shows it.

    strip: all numbers of a model; ladder: from one number to another; effects: what each axis of the protocols does;
    bump: models over protocols; ranks: whether the order holds; pair: two models compared.
    """
    from choicewise.store.atomic import disk_errors, new_file
    from choicewise.web.charts.catalogue import draw, find_kind
    from choicewise.web.charts.kinds import KINDS
    from choicewise.web.study import read_study

    *folders, name = arguments
    charts = [kind.name for kind in KINDS]
    if arguments[0] in charts and name not in charts:
        raise UsageError(f"{arguments[0]} stands before the run folders; name the chart last")
    kind = find_kind(name)
    if not folders:
        raise UsageError(f"no run was named; the run folders stand before {name}")
    _check_place(out)
    given = {"models": model, "start": start, "end": end, "protocol": protocol, "rank": rank}
    spelled = {"models": "model", "start": "from", "end": "to"}
    unused = {spelled.get(choice, choice): value for choice, value in given.items() if choice not in kind.uses}
    options.refuse_without_use(f"{name} has", **unused)
    chart = draw(
        name, read_study(map(Path, folders)), **{key: value for key, value in given.items() if value is not None}
    )
    drawn: dict[str, Callable[[], str | bytes]]
    drawn = {".svg": chart.svg, ".png": chart.png, ".pdf": chart.pdf, ".json": chart.json}
    content = drawn[out.suffix.lower()]()
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with new_file(out) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
    tell(f"wrote {out}")


def _check_place(out: Path) -> None:
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file in it, such as {out / 'chart.svg'}")
    if out.suffix.lower() not in FORMATS:
        raise UsageError(f"{out} ends in none of {', '.join(FORMATS)}, so what to write is not known; name such a file")
