"""A run folder repaired, fault by fault; what was observed is set aside, never deleted.

Every repair is one atomic step or leaves something that the next examination names, so that a repair that was killed
is repeated.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from choicewise.errors import StoreError
from choicewise.records.fault import Fault, Remedy
from choicewise.records.format import BLOCK_FOLDER, ITEM_FILE, MANIFEST
from choicewise.records.manifest import FileRecord, Manifest
from choicewise.records.tables import OBSERVATIONS
from choicewise.store.atomic import disk_errors, new_file, new_folder, remove, sync, write_text
from choicewise.store.block_faults import first_rows
from choicewise.store.copies import copy_of
from choicewise.store.files import read_text
from choicewise.store.folder import RunFolder
from choicewise.store.manifest import read_manifest, write_manifest
from choicewise.store.resume import usable_blocks
from choicewise.store.stray import ASIDE
from choicewise.store.tables import block_file, read_table

WriteFile = Callable[[Path, Manifest], dict[str, FileRecord]]
"""Writes a file of a run again, and returns it by name; StoreError where it can't."""


def repair(run: Path, faults: Sequence[Fault], writers: Mapping[str, WriteFile]) -> Iterator[str]:
    """Repair what can be, under the lock of the folder; a line about each thing that was done.

    ``writers``: by the names of the files that can be written again.
    """
    with disk_errors(run):
        for fault in faults:
            if fault.remedy is Remedy.put_back:
                yield _put_back(run, fault)
                return  # what else is wrong is judged by the manifest that is there now
        yield from _ask_again(run, [fault for fault in faults if fault.remedy is Remedy.ask_again])
        # Strays come first: a block that is written again takes nothing foreign along.
        for fault in sorted(faults, key=lambda fault: fault.remedy is Remedy.leave_out):
            if not os.path.lexists(run / fault.path) and fault.remedy is not Remedy.write_again:
                continue  # it went with the block that it lay in
            match fault.remedy:
                case Remedy.remove:
                    remove(run / fault.path)
                    yield f"{fault.path} was removed: it {fault.problem}"
                case Remedy.set_aside:
                    yield f"{fault.path} was set aside as {_set_aside(run, run / fault.path)}: it {fault.problem}"
                case Remedy.copy:
                    _copy_in(run / fault.path)
                    yield f"{fault.path}, which was a link, holds its content now"
                case Remedy.leave_out:
                    yield _leave_out(run, fault)
                case Remedy.write_again:
                    yield _write_again(run, fault, writers[fault.path])


def _put_back(run: Path, fault: Fault) -> str:
    text = read_text(copy_of(run / MANIFEST))
    aside = _copy_aside(run, run / MANIFEST) if (run / MANIFEST).is_file() else ""
    write_text(run / MANIFEST, text)
    return f"{MANIFEST} {fault.problem}: its copy was put back{f'; the old one is {aside}' if aside else ''}"


def _ask_again(run: Path, faults: Sequence[Fault]) -> Iterator[str]:
    """Take the blocks off the manifest in one step, then set them aside."""
    if not faults:
        return
    manifest = read_manifest(run)
    names = {fault.block for fault in faults}
    blocks = usable_blocks(manifest.blocks, [block for block in manifest.blocks if block.name in names])
    write_manifest(run, replace(manifest, blocks=blocks, complete=False))
    reasons = {fault.block: f"{fault.path} {fault.problem}" for fault in faults}
    kept = {block.name for block in blocks}
    for block in manifest.blocks:
        if block.name in kept:
            continue
        path = run / BLOCK_FOLDER / block.name
        reason = reasons.get(block.name, "it names observations that a damaged block held")
        where = f"set aside as {_set_aside(run, path)}" if os.path.lexists(path) else "left out"
        yield f"block {block.name} was {where}, to be asked again: {reason}"


def _set_aside(run: Path, path: Path) -> str:
    """Move what is at ``path``, itself a link or not, below ``damaged/``; returns where it is, relative to the run."""
    free = _free(run, path)
    path.rename(free)
    sync(path.parent)
    return free.relative_to(run).as_posix()


def _copy_aside(run: Path, path: Path) -> str:
    free = _free(run, path)
    shutil.copyfile(path, free)
    return free.relative_to(run).as_posix()


def _free(run: Path, path: Path) -> Path:
    folder = run / ASIDE
    if folder.is_symlink():
        raise StoreError(f"{folder} is a link; remove it, what is damaged goes there")
    folder.mkdir(exist_ok=True)
    name = "-".join(path.relative_to(run).parts)
    free, number = folder / name, 2
    while os.path.lexists(free):
        free, number = folder / f"{name}-{number}", number + 1
    return free


def _copy_in(path: Path) -> None:
    """Put the content of what a link names in the place of the link."""
    if path.is_dir():
        with new_folder(path) as partial:
            shutil.copytree(path, partial, dirs_exist_ok=True)
    else:
        with new_file(path) as partial:
            shutil.copyfile(path, partial)


def _leave_out(run: Path, fault: Fault) -> str:
    folder = RunFolder(run, read_manifest(run))
    name = Path(fault.path).parts[1]
    (block,) = (block for block in folder.manifest.blocks if block.name == name)
    path = block_file(run, block, "observations")
    table = read_table(path, OBSERVATIONS, block.files.get(path.name))
    first = first_rows(run, folder.manifest.blocks, name)
    folder.replace_observations(name, table.filter(pa.chunked_array([first])))
    return f"{len(table) - first.true_count:,} doubled observations of block {name} were left out"


def _write_again(run: Path, fault: Fault, write: WriteFile) -> str:
    manifest = read_manifest(run)
    try:
        files = write(run, manifest)
    except StoreError as error:
        return f"{fault.path} {fault.problem}; {error.message}"
    write_manifest(run, replace(manifest, files={**manifest.files, **files}))
    return f"{fault.path} was written again from the {'data' if fault.path == ITEM_FILE else 'observations'}"
