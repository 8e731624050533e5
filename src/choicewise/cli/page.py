"""Write pages and boards of runs: ``choicewise page``."""

from __future__ import annotations

from mimetypes import guess_type
from pathlib import Path
from typing import Annotated

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
