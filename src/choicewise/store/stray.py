"""What lies in a run folder and is not of the run: leftovers, unlisted blocks, links, pickles, other files."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from choicewise.records.fault import Fault, Remedy
from choicewise.records.format import BLOCK_FOLDER, ITEM_FILE, MANIFEST, SUMMARY
from choicewise.records.manifest import Manifest
from choicewise.store.atomic import PARTIAL
from choicewise.store.copies import copy_of
from choicewise.store.leftovers import unlisted_blocks
from choicewise.store.tables import SCHEMAS, damage

ASIDE = "damaged"
"""The folder inside a run folder that takes what is set aside."""

OWN = frozenset({MANIFEST, copy_of(Path(MANIFEST)).name, ITEM_FILE, SUMMARY, BLOCK_FOLDER, ASIDE})
"""Names in a run folder."""

_FILES = frozenset(f"{table}.parquet" for table in SCHEMAS)
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib", ".dill")
_AHEAD = 3600
"""Seconds that a file may be newer than the clock says."""


def stray_faults(run: Path, manifest: Manifest) -> Iterator[Fault]:
    """Everything in the folder ``run`` that its ``manifest`` does not explain; nothing outside is read."""
    yield from _leftovers(run, manifest)
    listed = {block.name for block in manifest.blocks}
    unlisted = {path.name for path in unlisted_blocks(run, manifest)}
    for path in sorted(run.iterdir()):
        if path.is_symlink():
            yield _link(run, path, manifest)
        elif path.name not in OWN and not path.name.endswith(PARTIAL):
            yield _foreign(run, path, inside=False)
    folder = run / BLOCK_FOLDER
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        if path.name in unlisted:
            continue
        if path.is_symlink():
            yield _link(run, path, manifest)
        elif path.name not in listed or not path.is_dir():
            yield _foreign(run, path, inside=True)
        else:
            for file in sorted(path.iterdir()):
                if file.is_symlink():
                    yield _link(run, file, manifest)
                elif file.name not in _FILES:
                    yield _foreign(run, file, inside=True)
    yield from _ahead(run)


def _leftovers(run: Path, manifest: Manifest) -> Iterator[Fault]:
    unfinished = sorted(run.glob(f"*{PARTIAL}"))
    for path in (*unfinished, *unlisted_blocks(run, manifest)):
        where = path.relative_to(run).as_posix()
        if path.name.endswith(PARTIAL):
            yield Fault("leftover", where, "is what a write left that was killed; it counts for nothing", Remedy.remove)
        else:
            problem = "is a block that the manifest does not list, so that it counts for nothing"
            yield Fault("unlisted block", where, problem, Remedy.set_aside)


def _link(run: Path, path: Path, manifest: Manifest) -> Fault:
    """A link: where its content is the run's, the content can take its place."""
    where = path.relative_to(run).as_posix()
    target = os.readlink(path)
    outside = not path.resolve().is_relative_to(run.resolve())
    problem = f"is a link to {target}{', outside the run folder' if outside else ''}"
    listed = {block.name: block for block in manifest.blocks}
    files = {ITEM_FILE: manifest.files.get(ITEM_FILE)}
    if path.name == BLOCK_FOLDER and path.parent == run and path.is_dir():
        return Fault("link", where, problem, Remedy.copy)
    if path.parent.name in listed:
        files = dict(listed[path.parent.name].files)
    if path.name in listed and path.parent.name == BLOCK_FOLDER:
        record = listed[path.name].files
        if all(not damage(path / name, record.get(name)) for name in _FILES):
            return Fault("link", where, problem, Remedy.copy)
    elif path.name in files and not damage(path, files[path.name]):
        return Fault("link", where, problem, Remedy.copy)
    return Fault("link", where, f"{problem}, and what it names is not the run's", Remedy.set_aside)


def _foreign(run: Path, path: Path, inside: bool) -> Fault:
    where = path.relative_to(run).as_posix()
    if _is_pickle(path):
        problem = "is a pickle, which runs code when it is opened; no run has one, and nothing here opens it"
        return Fault("pickle", where, problem, Remedy.set_aside)
    problem = "is not of the run, and nothing reads it"
    return Fault("foreign", where, problem, Remedy.set_aside if inside else Remedy.none)


def _is_pickle(path: Path) -> bool:
    if path.is_dir() or not path.is_file():
        return False
    if path.suffix.lower() in _PICKLES:
        return True
    try:
        with path.open("rb") as file:
            head = file.read(2)
    except OSError:
        return False
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5  # the protocol of a pickle


def _ahead(run: Path) -> Iterator[Fault]:
    limit = time.time() + _AHEAD
    files = [path for path in run.rglob("*") if not path.is_symlink() and path.is_file()]
    count = sum(path.stat().st_mtime > limit for path in files)
    if count:
        problem = f"{count} files are dated in the future: a clock went wrong, and nothing depends on it"
        yield Fault("clock", ".", problem, Remedy.none)
