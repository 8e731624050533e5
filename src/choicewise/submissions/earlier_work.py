"""What earlier workers sent of a submission, put where the sweep goes on with it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from choicewise.errors import StoreError
from choicewise.records.format import MANIFEST, SWEEP
from choicewise.store.atomic import disk_errors, new_file, new_folder
from choicewise.store.copies import copy_of
from choicewise.store.manifest import read_manifest
from choicewise.submissions.client import BoardClient
from choicewise.submissions.leased_work import LeasedWork
from choicewise.submissions.listing import checked_listing
from choicewise.submissions.trouble import TooMuch, WrongPart


def take_earlier(client: BoardClient, work: LeasedWork, folder: Path, check: Callable[[], None]) -> int:
    """Put the files that the board has of ``work`` into the sweep ``folder``; the number of runs that came.

    A run that is further here is kept.  Each run is put there in one step.  ``check`` is called between files, to
    raise what ends it.  Raises WrongPart for a listing or parts that are no sweep's, NotTaken and LeaseLost as the
    client, and StoreError where the disk does not take it.
    """
    try:
        listing = checked_listing(work.files)
    except TooMuch as error:
        raise WrongPart(error.message) from error
    runs: dict[str, dict[str, str]] = defaultdict(dict)
    for path, sha in listing.items():
        if path.count("/") > 1:
            run, name = "/".join(path.split("/")[:2]), "/".join(path.split("/")[2:])
            runs[run][name] = sha
    if runs and SWEEP not in listing:
        raise WrongPart(f"{SWEEP} is not among them")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    came = 0
    for run, files in runs.items():
        if MANIFEST in files and _further(client.get(work, files[MANIFEST]), folder / run):
            _take(client, work, files, folder / run, check)
            came += 1
    if SWEEP in listing and not (folder / SWEEP).exists():
        _write(folder / SWEEP, client.get(work, listing[SWEEP]))
    return came


def _take(
    client: BoardClient, work: LeasedWork, files: Mapping[str, str], run: Path, check: Callable[[], None]
) -> None:
    """The run, complete or not there at all."""
    with disk_errors(run):
        run.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(run) as made:
        for name, sha in files.items():
            check()
            content = client.get(work, sha)
            with disk_errors(run):
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                (made / name).write_bytes(content)


def _further(manifest: bytes, run: Path) -> bool:
    """Whether the run of this ``manifest`` has more than what is in the folder ``run``."""
    try:
        content = json.loads(manifest)
        there = bool(content["complete"]), len(content["blocks"])
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise WrongPart(f"the manifest of {run.name} that was sent is none") from error
    try:
        here = read_manifest(run)
    except StoreError:
        return True
    return there > (here.complete, len(here.blocks))


def _write(path: Path, content: bytes) -> None:
    with new_file(path) as partial:
        partial.write_bytes(content)
    with new_file(copy_of(path)) as partial:
        partial.write_bytes(content)
