"""Draw single charts of runs: ``choicewise plot``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.terminal import tell
from choicewise.errors import UsageError

FORMATS = (".svg", ".png", ".pdf", ".json")
"""Endings of files for a chart; JSON is its Vega-Lite specification."""


def plot(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR... CHART",
            help="Run folders, or folders that hold runs; then strip, ladder, effects, bump, "
            "ranks, pair, chain, calibration, steps or along.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            readable=False,
            help="The file: .svg, .png, .pdf or .json (Vega-Lite).",
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="A model of the runs; two for pair. Repeatable."),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="The first protocol of the ladder.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="The last protocol of the ladder.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            help="Highlight it (strip), put it first (bump), show only it (ranks, steps, along).",
        ),
    ] = None,
    rank: Annotated[
        bool | None,
        typer.Option(
            "--rank/--value", help="Draw ranks or values (strip and bump).", show_default=False
        ),
    ] = None,
    metric: options.Metrics = None,
) -> None:
    """Draw one chart of the page into a file.

    strip: all scores of a model. ladder: the steps from one score to another. effects: what each
    axis changes. bump: models over protocols. ranks: whether the ranking holds. pair: two models
    compared. steps: a score over the checkpoints of training runs. along: answers along a model's
    thoughts.
    """
    from choicewise.page.charts.kinds import chart_kinds, draw, find_kind
    from choicewise.page.study import read_study
    from choicewise.util.files import disk_errors, new_file

    *folders, name = arguments
    # People type the chart first, as a subcommand: then a folder's name would look like a chart's.
    charts = [kind.name for kind in chart_kinds()]
    if arguments[0] in charts and name not in charts:
        raise UsageError(f"{arguments[0]} comes before the run folders; name the chart last")
    kind = find_kind(name)
    if not folders:
        raise UsageError(f"no run folder; name it before {name}")
    _check_file(out)
    choices: dict[str, Any] = {
        "models": model,
        "start": start,
        "end": end,
        "protocol": protocol,
        "rank": rank,
    }
    # An option that this chart ignores is refused: the reader would trust that it had an effect.
    spelled = {"models": "model", "start": "from", "end": "to"}
    typed: dict[str, Any] = {}
    unused: dict[str, Any] = {}
    for choice, value in choices.items():
        if value is None:
            continue
        typed[choice] = value
        if choice not in kind.uses:
            unused[spelled.get(choice, choice)] = value
    if not kind.metrics:
        unused["metric"] = metric
    options.refuse_without_use(f"the chart {name}", **unused)
    study = read_study(map(Path, folders), metric or (), alone=metric is not None, needed=True)
    tell(*(f"note: {note}" for note in study.notes))
    chart = draw(name, study, **typed)
    drawings: dict[str, Callable[[], str | bytes]] = {
        ".svg": chart.svg,
        ".png": chart.png,
        ".pdf": chart.pdf,
        ".json": chart.json,
    }
    content = drawings[out.suffix.lower()]()
    if isinstance(content, str):
        content = content.encode()
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with new_file(out) as partial:
        partial.write_bytes(content)
    tell(f"wrote {out}")


def _check_file(out: Path) -> None:
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file in it, such as {out / 'chart.svg'}")
    if out.suffix.lower() not in FORMATS:
        raise UsageError(f"{out} has no known ending; use one of {', '.join(FORMATS)}")
