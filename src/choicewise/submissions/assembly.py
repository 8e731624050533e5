"""From the parts of a submission to its runs in the folder of the board."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from choicewise.errors import StoreError
from choicewise.running.sweep_model import folder_name
from choicewise.store.atomic import disk_errors, remove, sync
from choicewise.submissions.examination import Examination, examined
from choicewise.submissions.listing import checked_listing
from choicewise.submissions.parts import Parts
from choicewise.submissions.submission import Submission

FOLDER = "submitted"
"""Of all that came from workers, in the folder of the board."""


def name_of(submission: Submission) -> str:
    """The folder of a submission's runs, which no other submission has: the id is in it."""
    return f"{folder_name(submission.wanted.name)[:80].rstrip('-.')}-{submission.id}"


def check_place(board: Path) -> None:
    """Raise StoreError where the folder of the board can't take runs, or would put them elsewhere."""
    place = board / FOLDER
    if place.is_symlink():
        raise StoreError(f"{place} is a link, and runs that are sent must not lie elsewhere; put a folder there")
    if os.path.lexists(place) and not place.is_dir():
        raise StoreError(f"{place} is no folder; move it away, as the runs of workers go there")
    if not os.access(board, os.W_OK | os.X_OK):
        raise StoreError(f"{board} can't be written, and the runs of workers go there; make it writable")


def assemble(submission: Submission, files: Mapping[str, str], parts: Parts, board: Path) -> tuple[str, Examination]:
    """Make the runs of a submission from its parts: examined first, then in the folder of the board in one step.

    Returns the folder, relative to the board's, and what is there.  Raises Damaged, and StoreError where the disk does
    not take it.
    """
    check_place(board)
    name = name_of(submission)
    place, made = board / FOLDER / name, board / FOLDER / f".{submission.id}"  # nobody looks for runs in the latter
    with disk_errors(place):
        remove(made)
        made.mkdir(parents=True)
        try:
            for path, sha256 in checked_listing(files).items():
                _put(parts.path(sha256), made / path)
            examination = examined(made)
            for folder, _, _ in os.walk(made, topdown=False):
                sync(Path(folder))
            remove(place)  # it is this submission's: an earlier try was ended before the queue knew of it
            made.rename(place)
            sync(place.parent)
        except BaseException:
            with suppress(OSError):
                shutil.rmtree(made)
            raise
    return f"{FOLDER}/{name}", examination


def _put(part: Path, path: Path) -> None:
    """The part under its name; its content once on the disk, where that can be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(part, path, follow_symlinks=False)
    except OSError:
        shutil.copyfile(part, path, follow_symlinks=False)
        sync(path)
    path.chmod(0o644)
