"""Writing the page of several runs, and beside it the items in full for which it has no room."""

import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from choicewise.errors import UsageError
from choicewise.store.atomic import disk_errors, new_folder, write_text
from choicewise.web.number import count
from choicewise.web.page.content import Content
from choicewise.web.page.document import document
from choicewise.web.page.full_items import inside_items
from choicewise.web.page.items import FEW
from choicewise.web.page.parts import Part, make_parts
from choicewise.web.study import read_study

_PART = re.compile(r"\d+-\d+\.json")


@dataclass(frozen=True, slots=True)
class Written:
    """The page, how many bytes it has, how many items stand in it in full, and the folder with further ones."""

    page: Path
    bytes: int
    inside: int
    folder: Path | None
    beside: int


def write_page(runs: Iterable[str | Path], out: Path, items: int | None = None) -> Written:
    """Write the page of ``runs`` to the file ``out``.

    ``items``: so many of those that flip most are written in full, in the page as far as there is room and else beside
    it; None: as many as are made quickly.  Raises UsageError for an ``out`` that can't be a page and StoreError for one
    that can't be written, before anything is computed.
    """
    beside = out.with_suffix(".items")
    _check(out, beside)
    content = Content(read_study(runs))
    inside = inside_items(content, items)
    parts: list[Part] = []
    if rest := inside.rest(content, _most(content, items)):
        with new_folder(beside) as partial:
            for part, held in make_parts(content, rest):
                (partial / part.name).write_bytes(held)
                parts.append(part)
    elif beside.exists():  # of an earlier page, as was checked
        with disk_errors(beside):
            shutil.rmtree(beside)
    text = document(content, today(), inside, parts, beside.name if parts else "")
    write_text(out, text)
    return Written(
        out, len(text.encode()), inside.count, beside if parts else None, sum(len(each.items) for each in parts)
    )


def today() -> str:
    """The day a page is made, ``21 Nov 2026``; the environment may say another one (``SOURCE_DATE_EPOCH``)."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    return time.strftime("%-d %b %Y", time.gmtime(int(seconds) if seconds.isdigit() else None))


def _most(content: Content, items: int | None) -> int:
    """How many items of a dataset are written in full."""
    if items is not None:
        return items
    every = sum(len(each.index.ids) * len(each.places) for each in content.listed)
    return every if every <= FEW else 0


def _check(out: Path, beside: Path) -> None:
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file in it, such as {out / 'page.html'}")
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{out} does not end in .html; name the page such as {out.name}.html")
    if beside.exists():
        foreign = (
            [] if not beside.is_dir() else [file.name for file in beside.iterdir() if not _PART.fullmatch(file.name)]
        )
        if foreign or not beside.is_dir():
            what = f"holds {count(len(foreign), 'other file')}, such as {foreign[0]}" if foreign else "is a file"
            raise UsageError(f"{beside} is for the items of the page and {what}; give the page another name")
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists():
            out.open("ab").close()
        else:
            out.touch()
            out.unlink()
