"""The board as a folder of files that opens from disk: the same pages as served, and nothing else to load."""

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from choicewise.errors import UsageError
from choicewise.store.atomic import disk_errors, write_text
from choicewise.web.board.artefact import artefact_content
from choicewise.web.board.library import Shelf
from choicewise.web.board.links import Filed, board_file
from choicewise.web.board.listed_run import State
from choicewise.web.board.model_page import model_page, model_record
from choicewise.web.board.page import board_page
from choicewise.web.board.protocol_page import protocol_page, sheet
from choicewise.web.board.records import as_json, board_csv, board_record
from choicewise.web.board.run_document import run_document
from choicewise.web.board.run_page import run_page
from choicewise.web.board.run_strip import run_strip
from choicewise.web.board.slug import slug
from choicewise.web.board.view import View
from choicewise.web.environment import static_text

FIRST = "index.html"
"""The page to open."""


def check_place(out: Path) -> None:
    """UsageError when ``out`` is a file, or a folder with other things than a board."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; a page ends in .html, and a board is written into a folder")
    if out.is_dir() and any(out.iterdir()) and not (out / FIRST).exists():
        raise UsageError(f"{out} holds other files and no board; choose an empty or new folder")


def write_board(shelf: Shelf, out: Path) -> Path:
    """Write the board into the folder ``out`` and return its first page.

    Raises StoreError where nothing can be written.  What lies there under other names stays.
    """
    with disk_errors(out):
        return _written(shelf, out)


def _written(shelf: Shelf, out: Path) -> Path:
    for name, content in board_files(shelf):
        file = out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            write_text(file, content)
    return out / FIRST


def board_files(shelf: Shelf) -> Iterator[tuple[str, str | bytes]]:
    """Every file by its name, relative to the folder; the first page comes last, when all that it names is there."""
    frame = _frame()
    below = Filed(1)
    whole = View(columns="all")
    for model in shelf.board.models:
        yield f"model/{slug(model)}.html", model_page(shelf, model, below, **frame)
        yield f"model/{slug(model)}.json", as_json(model_record(shelf, model))
    for p in dict.fromkeys(column.p.removeprefix("#") for column in shelf.board.columns):
        asked = sheet(shelf, p)
        if asked is not None:
            yield f"protocol/{p}.html", protocol_page(shelf, asked, below, **frame)
    for run in shelf.board.runs:
        if run.state is State.READ:
            yield f"strip/{run.id}.svg", run_strip(run.folder)
            yield f"run/{run.id}.html", run_document(run.folder, "../index.html")
        else:
            yield f"run/{run.id}.html", run_page(shelf, run, below, **frame)
        for artefact in run.artefacts:
            content = artefact_content(artefact.file, run.folder, run.rows)
            if content is not None:
                yield f"artefact/{artefact.name}", content
    yield "board.json", as_json(board_record(shelf, whole))
    yield "board.csv", board_csv(shelf, whole)
    families = dict.fromkeys(column.family for column in shelf.board.columns)
    for view in (*(View(family=(name,)) for name in families), whole, View()):
        yield board_file(view), board_page(shelf, view, Filed(), **frame)


def _frame() -> dict[str, object]:
    """What every page holds: its look, its script, and the policy that allows these two and nothing else."""
    from markupsafe import Markup

    style = static_text("page.css", "board.css")
    script = f'(() => {{\n"use strict";\n{static_text("board.js")}}})();'
    policy = (
        f"default-src 'none'; script-src '{_source(script)}'; style-src '{_source(style)}'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"style": Markup(style), "script": Markup(script), "policy": policy}


def _source(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
