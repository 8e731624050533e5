"""``choicewise page``: everything about one or several runs in one file for a browser."""

from pathlib import Path
from typing import Annotated

import typer

from choicewise.cli.output import command_line, tell
from choicewise.web.number import count


def page(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", readable=False, help="Run folders.")],
    out: Annotated[Path, typer.Option("--out", readable=False, help="The page, which ends in .html.")],
    items: Annotated[
        int | None,
        typer.Option("--items", min=0, help="So many items in full, those that flip most first; as many as is quick."),
    ] = None,
) -> None:
    """Write a page that shows what the models scored, why the numbers differ, and whether the order holds.

    One file that opens from disk and needs no network. Items in full for which it has no room stand in a folder beside
    it, which the page reads when it is served.
    """
    from choicewise.web.page.write import write_page

    written = write_page(folders, out, items)
    tell(f"wrote {written.page}, {written.bytes / 1e6:.1f} MB, with {count(written.inside, 'item')} in full")
    if written.folder is not None:
        served = f"`{command_line('serve', *folders)}` shows all"
        tell(f"wrote {written.folder}, {count(written.beside, 'further item')}, for a page that is served; {served}")
