"""The board as a folder of files that opens from disk: the same pages as served, and nothing else to load."""

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

from choicewise.store.atomic import write_text
from choicewise.web.board.artefact import artefact_content
from choicewise.web.board.library import Shelf
from choicewise.web.board.links import Filed, board_file
from choicewise.web.board.listed_run import ListedRun, State
from choicewise.web.board.model_page import model_page, model_record
from choicewise.web.board.page import board_page
from choicewise.web.board.protocol_page import protocol_page, sheet
from choicewise.web.board.records import as_json, board_csv, board_record
from choicewise.web.board.run_page import run_page
from choicewise.web.board.slug import slug
from choicewise.web.board.view import View
from choicewise.web.environment import static_text

Made = Callable[[ListedRun, str], str]
"""Makes something of a complete run, ``document`` or ``strip``."""


def write_board(shelf: Shelf, out: Path, made: Made) -> Path:
    """Write the board into the folder ``out`` and return its first page; ``made`` makes the pages and charts of runs.

    What lies there under other names stays.
    """
    for name, content in board_files(shelf, made):
        file = out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            write_text(file, content)
    return out / "index.html"


def board_files(shelf: Shelf, made: Made) -> Iterator[tuple[str, str | bytes]]:
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
            yield f"strip/{run.id}.svg", made(run, "strip")
            yield f"run/{run.id}.html", made(run, "document")
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
