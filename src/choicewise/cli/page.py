"""``choicewise page``: everything about one or several runs in one file for a browser, or their board in a folder."""

from mimetypes import guess_type
from pathlib import Path
from typing import Annotated

import typer

from choicewise.cli.options import refuse_without_use
from choicewise.cli.output import command_line, tell
from choicewise.errors import UsageError


def page(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", readable=False, help="Run folders, or folders that hold runs.")
    ],
    out: Annotated[
        Path, typer.Option("--out", readable=False, help="The page, which ends in .html, or a folder for a board.")
    ],
    items: Annotated[
        int | None,
        typer.Option("--items", min=0, help="So many items in full, those that flip most first; as many as is quick."),
    ] = None,
) -> None:
    """Write a page that shows what the models scored, why the numbers differ, and whether the order holds.

    One file that opens from disk and needs no network. Items in full for which it has no room stand in a folder beside
    it, which the page reads when it is served. Where --out is a folder, the board that `choicewise serve` shows is
    written into it as files: models by protocols, and a page for every model, run and protocol.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        if guess_type(out.name)[0] is not None and not out.is_dir():
            raise UsageError(
                f"{out} ends in {out.suffix}: a page ends in .html, and a board is written into a folder, whose name"
                " has no such ending; `choicewise plot` writes one chart as SVG, PNG or PDF"
            )
        refuse_without_use("a board has", items=items)
        _write_board(folders, out)
        return
    from choicewise.web.number import count
    from choicewise.web.page.write import write_page

    written = write_page(folders, out, items)
    tell(f"wrote {written.page}, {written.bytes / 1e6:.1f} MB, with {count(written.inside, 'item')} in full")
    if written.folder is not None:
        served = f"`{command_line('serve', *folders)}` shows all"
        tell(f"wrote {written.folder}, {count(written.beside, 'further item')}, for a page that is served; {served}")


def _write_board(folders: list[Path], out: Path) -> None:
    from choicewise.web.board.files import check_place, write_board
    from choicewise.web.board.library import read_shelf
    from choicewise.web.board.listed_run import State
    from choicewise.web.number import count

    check_place(out)
    shelf = read_shelf(folders)
    for run in shelf.board.runs:
        if run.state is not State.READ or run.reason:
            tell(
                f"{run.label} is {run.state}: {run.reason}"
                if run.state is not State.READ
                else f"{run.label}: {run.reason}"
            )
    first = write_board(shelf, out)
    models, runs = count(len(shelf.board.models), "model"), count(len(shelf.board.runs), "run")
    tell(f"wrote {first}, the board of {models} and {runs}; it opens from disk, and any web server can show {out}")
