"""Write pages, boards and single charts of runs: ``choicewise page`` and ``choicewise plot``."""

from __future__ import annotations

from collections.abc import Callable
from mimetypes import guess_type
from pathlib import Path
from typing import Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.options import refuse_without_use
from choicewise.cli.terminal import tell
from choicewise.errors import UsageError
from choicewise.ports import Site, find
from choicewise.util.text import command_line


def page(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", readable=False, help="Run folders, or folders that hold runs."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", readable=False, help="A .html file for a page, or a folder for a board."
        ),
    ],
    items: Annotated[
        int | None,
        typer.Option(
            "--items",
            min=0,
            help="Show N items in full, those that flip most first (default: as many as is quick).",
        ),
    ] = None,
    metric: options.Metrics = None,
) -> None:
    """Write a page: what the models scored, why the numbers differ, and whether the ranking holds.

    The page is one file that needs no network. Items that do not fit go into a folder beside it,
    which the page reads when it is served. If --out is a folder, the board of `choicewise serve` is
    written into it: models by protocols, and a page for every model, run and protocol. With
    --metric it has more metrics.
    """
    # A path without such an ending is a folder for a board, unless it names another kind of file.
    if out.suffix.lower() not in (".html", ".htm"):
        if guess_type(out.name)[0] is not None and not out.is_dir():
            raise UsageError(
                f"{out} ends in {out.suffix}; a page ends in .html, a board is a folder. "
                "`choicewise plot` writes a chart as SVG, PNG or PDF"
            )
        refuse_without_use("a board", items=items)
        site = find(Site, "board")
        # It is an extension of ours, which is always there.
        assert site is not None
        for line in site.write(folders, out, metric or ()):
            tell(line)
        return
    from choicewise.page.document import write_page
    from choicewise.util.text import counted

    written = write_page(folders, out, items, metric or ())
    tell(*(f"note: {note}" for note in written.notes))
    tell(
        f"wrote {written.page}, {written.bytes / 1e6:.1f} MB, with "
        f"{counted(written.inside, 'item')} in full"
    )
    if written.folder is not None:
        served = f"`{command_line('serve', *folders)}` shows all"
        tell(
            f"wrote {written.folder}, {counted(written.beside, 'further item')}; they "
            f"show when the page is served: {served}"
        )


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
    typed = {name: value for name, value in choices.items() if value is not None}
    spelled = {"models": "model", "start": "from", "end": "to"}
    unused = {spelled.get(name, name): typed[name] for name in typed if name not in kind.uses}
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
