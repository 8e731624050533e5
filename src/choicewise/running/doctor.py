"""What is damaged in run folders, and its repair."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.dataset import Dataset
from choicewise.errors import ChoicewiseError, StoreError
from choicewise.records import (
    BLOCK_FOLDER,
    ITEM_FILE,
    ITEMS,
    MANIFEST,
    OBSERVATIONS,
    SPANS,
    SUMMARY,
    SWEEP,
    BlockRecord,
    FileRecord,
    Manifest,
    Sweep,
)
from choicewise.requests.blocks import list_sections, with_split
from choicewise.results.run import asked_protocols, count_items
from choicewise.results.summary import rewrite_summary, summary_fault
from choicewise.running.evaluate import item_rows
from choicewise.store.faults import Examined, Fault, Remedy
from choicewise.store.folder import (
    is_sweep,
    leftovers,
    read_manifest,
    read_sweep,
    unlisted_blocks,
    usable_blocks,
    write_manifest,
)
from choicewise.store.shards import part_of
from choicewise.store.tables import (
    SCHEMAS,
    block_file,
    damage,
    damaged_blocks,
    other_version,
    read_columns,
    unanswered_keys,
    write_items,
)
from choicewise.util.files import (
    PARTIAL,
    copy_of,
    disk_errors,
    is_locked,
    locked,
    move,
    new_file,
    new_folder,
    open_file,
    read_text,
    remove,
    write_text,
)

ROUNDS = 6
"""How often a folder is examined and repaired at most: a repair can uncover what could not be judged before."""

RUNNING = "running"

_Record = TypeVar("_Record", Manifest, Sweep)

LineOf = Callable[[Path, Manifest], str]
"""The command that resumes a run."""


def examine_runs(folder: Path) -> Iterator[Examined]:
    """Every run in ``folder``, or the run that it is, examined; nothing is changed, and nobody is kept out.

    Raises StoreError where it is no run folder and no folder of runs.
    """
    if not (folder / MANIFEST).exists() and is_sweep(folder):
        yield _sweep(folder)
    for run in _runs(folder):
        yield _examined(run)


def repair_runs(folder: Path, write_items: WriteFile, line_of: LineOf) -> Iterator[Examined]:
    """The same, with everything repaired that can be.

    ``write_items`` writes the item table again from the data, ``line_of`` says what asks again what was set aside.  A
    run that another process writes to is not touched.
    """
    if not (folder / MANIFEST).exists() and is_sweep(folder):
        yield _repaired_sweep(folder)
    for run in _runs(folder):
        if is_locked(run):
            yield Examined(str(run), RUNNING)
            continue
        with locked(run):
            examined = _repaired(run, write_items)
            manifest, _ = _usable(run, MANIFEST, "manifest", read_manifest)
            if manifest is not None and not manifest.complete:
                examined.line = line_of(run, manifest)
        yield examined


def _examined(run: Path) -> Examined:
    for _ in range(ROUNDS):
        if is_locked(run):
            break
        before = _stamp(run)
        examined = examine(run)
        if not is_locked(run) and _stamp(run) == before:
            return examined
    return Examined(str(run), RUNNING)


def _stamp(run: Path) -> object:
    """What changes whenever a run writes."""
    with suppress(OSError):
        stat = (run / MANIFEST).stat()
        return stat.st_ino, stat.st_mtime_ns
    return None


def _repaired(run: Path, write_items: WriteFile) -> Examined:
    writers = {ITEM_FILE: write_items, SUMMARY: rewrite_summary}
    done: dict[str, None] = {}
    for _ in range(ROUNDS):
        examined = examine(run)
        if not examined.harmed:
            break
        new = list(_repair(run, examined.faults, writers))
        done |= dict.fromkeys(new)
        if not new:
            break
    examined.done = list(done)
    return examined


def _runs(folder: Path) -> list[Path]:
    """The runs that ``folder`` stands for, those whose manifest is lost among them."""
    names = MANIFEST, copy_of(Path(MANIFEST)).name
    if any((folder / name).exists() for name in names):
        return [folder]
    if is_sweep(folder):
        for name in (SWEEP, copy_of(Path(SWEEP)).name):
            with suppress(StoreError):
                cells = [folder / cell.folder for cell in read_sweep(folder, name).cells]
                return [run for run in dict.fromkeys(cells) if any((run / each).exists() for each in names)]
    with disk_errors(folder):
        within = {path.parent for name in names for path in (*folder.glob(f"*/{name}"), *folder.glob(f"*/*/{name}"))}
    if not within:
        raise StoreError(f"{folder} is no run folder and holds none; name one that `choicewise run` made")
    return sorted(within)


def _sweep(folder: Path) -> Examined:
    """What the folder of a sweep says of itself."""
    if is_locked(folder):
        return Examined(str(folder), RUNNING)
    return Examined(str(folder), "sweep", _usable(folder, SWEEP, "sweep", read_sweep)[1])


def _repaired_sweep(folder: Path) -> Examined:
    examined, path = _sweep(folder), folder / SWEEP
    if examined.state == RUNNING or not examined.harmed or examined.faults[0].remedy is Remedy.by_hand:
        return examined
    with locked(folder), disk_errors(path):
        text = read_text(copy_of(path))
        if path.exists():
            path.rename(path.with_name(f"{path.name}.damaged"))
        write_text(path, text)
    done = f"{SWEEP} {examined.faults[0].problem}: its copy was put back"
    return Examined(str(folder), "sweep", done=[done])


def rewrite_items(
    run: Path, manifest: Manifest, open_data: Callable[[Path, Manifest], Dataset]
) -> dict[str, FileRecord]:
    """Write the item table of ``run`` from what ``open_data`` opens; returns the file by name.

    Raises StoreError where the data can't be opened, or are not those of the run: then nothing is written.
    """
    try:
        data = open_data(run, manifest)
    except ChoicewiseError as error:
        raise StoreError(f"its data can't be opened: {error.message}") from error
    if data.digest != manifest.dataset.digest:
        raise StoreError(f"what lies where its data lay are other data ({data.digest[:12]} by their digest)")
    recipes = {name: with_split(each, data) for name, each in asked_protocols(run, manifest).items()}
    sections = list_sections(data, recipes, manifest.selection)
    if missing := {block.split for block in manifest.blocks} - {section.split for section in sections}:
        raise StoreError(f"its protocols test no items of split {', '.join(sorted(missing))}")
    return write_items(run, chain.from_iterable(item_rows(sections).values()))


_ASIDE = "damaged"
"""The folder inside a run folder that takes what is set aside."""


def examine(run: Path) -> Examined:
    """What there is in the run folder ``run``, and what is wrong with it; StoreError where ``run`` is no run folder."""
    manifest, lost = _usable(run, MANIFEST, "manifest", read_manifest)
    if manifest is None:
        return Examined(str(run), "lost", lost)
    state = "complete" if manifest.complete else "not complete"
    examined = Examined(str(run), state if manifest.shard is None else f"{part_of(manifest.shard)}, {state}", lost)
    examined.blocks, examined.items, faults = len(manifest.blocks), count_items(manifest.blocks), examined.faults
    faults += _copy(run, manifest) if not lost else ()
    faults += _items(run, manifest)
    stray = list(_stray_faults(run, manifest))
    broken = _file_faults(run, manifest.blocks)
    harmed = {fault.block for fault in broken}
    faults += broken
    whole = [block for block in manifest.blocks if block.name not in harmed]
    part = manifest.shard is not None and not manifest.shard.whole
    faults += [] if part else _dangling_faults(run, whole, harmed=bool(broken))
    faults += stray
    if not harmed:
        examined.unanswered = len(unanswered_keys(run, manifest))
    if (fault := summary_fault(run, manifest, not examined.harmed)) is not None:
        faults.append(fault)
    if (run / _ASIDE).is_dir() and (count := sum(1 for _ in (run / _ASIDE).iterdir())):
        problem = f"holds what was set aside before ({count}); delete it when you need it no more"
        faults.append(Fault("set aside", f"{_ASIDE}/", problem, Remedy.none))
    return examined


def _usable(folder: Path, name: str, kind: str, read: Callable[..., _Record]) -> tuple[_Record | None, list[Fault]]:
    """What ``read`` makes of the file ``name``, or of its copy where that is lost, and what is wrong with it.

    Raises StoreError where there is neither.
    """
    path, copy = folder / name, copy_of(folder / name)
    try:
        return read(folder), []
    except StoreError as error:
        problem = _said(error, path)
        if not path.exists() and not copy.exists():
            raise
    if "can't be read" in problem or "version" in problem:
        return None, [Fault(kind, name, problem, Remedy.by_hand)]
    with suppress(StoreError):
        return read(folder, copy.name), [Fault(kind, name, problem, Remedy.put_back)]
    why = "damaged, too" if copy.exists() else "missing"
    problem += f"; its copy is {why}: evaluate again into a new folder"
    return None, [Fault(kind, name, problem, Remedy.by_hand)]


WriteFile = Callable[[Path, Manifest], dict[str, FileRecord]]
"""Writes a file of a run again, and returns it by name; StoreError where it can't."""


def _repair(run: Path, faults: Sequence[Fault], writers: Mapping[str, WriteFile]) -> Iterator[str]:
    """Repair what can be, under the lock of the folder; a line about each thing that was done."""
    with disk_errors(run):
        for fault in faults:
            if fault.remedy is Remedy.put_back:
                yield _put_back(run, fault)
                return  # what else is wrong is judged by the manifest that is there now
        yield from _repair_by_asking(run, [fault for fault in faults if fault.remedy is Remedy.ask_again])
        for fault in faults:
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
                case Remedy.write_again:
                    yield _rewrite(run, fault, writers[fault.path])


def _copy(run: Path, manifest: Manifest) -> list[Fault]:
    """The copy of a manifest that is whole: it counts for nothing, and the next write renews it."""
    name = copy_of(run / MANIFEST).name
    try:
        if read_manifest(run, name) == manifest:
            return []
        problem = "says what was true one write earlier"
    except StoreError as error:
        problem = _said(error, run / name) if (run / name).exists() else "is missing"
    return [Fault("copy", name, f"{problem}; the next run renews it", Remedy.none)]


def _said(error: StoreError, path: Path) -> str:
    """What an error says of the file at ``path``, without its name and without advice."""
    return error.message.split("; ")[0].removeprefix(f"{path} ")


def _items(run: Path, manifest: Manifest) -> list[Fault]:
    """What is wrong with the item table."""
    path = run / ITEM_FILE
    reason = damage(path, manifest.files.get(ITEM_FILE)) or other_version(path, ITEMS)
    if reason and reason.startswith("can't be read") and path.is_file():
        return [Fault("unreadable", ITEM_FILE, f"{reason}; make it readable", Remedy.by_hand)]
    return [Fault("item table", ITEM_FILE, reason, Remedy.write_again)] if reason else []


def _put_back(run: Path, fault: Fault) -> str:
    path, aside = run / MANIFEST, ""
    text = read_text(copy_of(path))
    if path.is_file():
        free = _free(run, path)
        shutil.copyfile(path, free)
        aside = f"; the old one is {free.relative_to(run).as_posix()}"
    write_text(path, text)
    return f"{MANIFEST} {fault.problem}: its copy was put back{aside}"


def _repair_by_asking(run: Path, faults: Sequence[Fault]) -> Iterator[str]:
    """Take the blocks off the manifest in one step, then set them aside."""
    if not faults:
        return
    manifest = read_manifest(run)
    names = {fault.block for fault in faults}
    blocks = usable_blocks(manifest.blocks, [block for block in manifest.blocks if block.name in names])
    write_manifest(run, replace(manifest, blocks=blocks, complete=False))
    reasons = {fault.block: f"{fault.path} {fault.problem}" for fault in faults}
    present = {block.name for block in blocks}
    for block in manifest.blocks:
        if block.name in present:
            continue
        path = run / BLOCK_FOLDER / block.name
        reason = reasons.get(block.name, "it names observations that a damaged block held")
        where = f"set aside as {_set_aside(run, path)}" if os.path.lexists(path) else "left out"
        yield f"block {block.name} was {where}, to be asked again: {reason}"


def _set_aside(run: Path, path: Path) -> str:
    """Move what is at ``path``, itself a link or not, below ``damaged/``; returns where it is, relative to the run."""
    free = _free(run, path)
    move(path, free)
    return free.relative_to(run).as_posix()


def _free(run: Path, path: Path) -> Path:
    folder = run / _ASIDE
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


def _rewrite(run: Path, fault: Fault, write: WriteFile) -> str:
    manifest = read_manifest(run)
    try:
        files = write(run, manifest)
    except StoreError as error:
        return f"{fault.path} {fault.problem}; {error.message}"
    write_manifest(run, replace(manifest, files={**manifest.files, **files}))
    return f"{fault.path} was written again from the {'data' if fault.path == ITEM_FILE else 'observations'}"


def _file_faults(run: Path, blocks: Sequence[BlockRecord]) -> list[Fault]:
    """The blocks that are not what was written."""
    faults = []
    for broken in damaged_blocks(run, blocks):
        where = broken.path.relative_to(run).as_posix()
        split, subject, start, stop = broken.block.place
        about = f"{broken.reason}; the block holds items {start + 1} to {stop} of {subject} ({split})"
        if broken.reason.startswith("can't be read") and broken.path.is_file():
            faults.append(Fault("unreadable", where, f"{about}; make it readable", Remedy.by_hand, broken.block.name))
        else:
            faults.append(Fault("damaged block", where, about, Remedy.ask_again, broken.block.name))
    return faults


_KEYS = ("key", "before", "after")


def _dangling_faults(run: Path, blocks: Sequence[BlockRecord], harmed: bool) -> list[Fault]:
    """Blocks with spans that name observations which no block holds.

    ``harmed``: whether other blocks are damaged, which may hold them: then they come again with those.
    """
    tables = (read_columns(block_file(run, block, "observations"), OBSERVATIONS, ["key"]) for block in blocks)
    held = [table["key"].combine_chunks() for table in tables]
    keys = pa.concat_arrays(held) if held else pa.array([], pa.string())
    faults = []
    for block in blocks:
        spans = read_columns(block_file(run, block, "spans"), SPANS, _KEYS)
        named = pc.unique(pa.concat_arrays([spans[name].combine_chunks() for name in _KEYS]))
        lacking = pc.sum(pc.and_(pc.invert(pc.is_in(named, keys)), pc.is_valid(named))).as_py() or 0
        if lacking:
            where = f"{BLOCK_FOLDER}/{block.name}/spans.parquet"
            problem = f"names {lacking:,} observations that no block holds"
            problem += "; they may lie in the damaged ones, and come again with those" if harmed else ""
            remedy, useless = (Remedy.none, "") if harmed else (Remedy.ask_again, block.name)
            faults.append(Fault("lost observations", where, problem, remedy, useless))
    return faults


_OWN = frozenset({MANIFEST, copy_of(Path(MANIFEST)).name, ITEM_FILE, SUMMARY, BLOCK_FOLDER, _ASIDE})
"""Names in a run folder."""

_FILES = frozenset(f"{table}.parquet" for table in SCHEMAS)


def _stray_faults(run: Path, manifest: Manifest) -> Iterator[Fault]:
    """Everything in the folder ``run`` that its ``manifest`` does not explain; nothing outside is read."""
    listed = {block.name for block in manifest.blocks}
    unlisted = {*unlisted_blocks(run, manifest)}
    for path in leftovers(run, manifest):
        where = path.relative_to(run).as_posix()
        if path.name.endswith(PARTIAL):
            yield Fault("leftover", where, "is what a write left that was killed; it counts for nothing", Remedy.remove)
        else:
            problem = "is a block that the manifest does not list, so that it counts for nothing"
            yield Fault("unlisted block", where, problem, Remedy.set_aside)
    for path, own in _entries(run, listed):
        if path in unlisted:
            continue
        if path.is_symlink():
            yield _link(run, path, manifest)
        elif not own:
            yield _foreign(run, path)


def _entries(run: Path, listed: Collection[str]) -> Iterator[tuple[Path, bool]]:
    """Everything in the folder but what is inside links and strange folders, and whether a run has such a thing."""
    yield from ((path, path.name in _OWN or path.name.endswith(PARTIAL)) for path in sorted(run.iterdir()))
    folder = run / BLOCK_FOLDER
    for block in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        own = block.name in listed and block.is_dir()
        yield block, own
        if own and not block.is_symlink():
            yield from ((file, file.name in _FILES) for file in sorted(block.iterdir()))


def _link(run: Path, path: Path, manifest: Manifest) -> Fault:
    """A link: where its content is the run's, the content can take its place."""
    where = path.relative_to(run).as_posix()
    target = os.readlink(path)
    outside = not path.resolve().is_relative_to(run.resolve())
    problem = f"is a link to {target}{', outside the run folder' if outside else ''}"
    listed: dict[str, Mapping[str, FileRecord | None]] = {block.name: block.files for block in manifest.blocks}
    files = listed.get(path.parent.name, {ITEM_FILE: manifest.files.get(ITEM_FILE)})
    if path.name == BLOCK_FOLDER and path.parent == run:
        own = path.is_dir()
    elif path.name in listed and path.parent.name == BLOCK_FOLDER:
        own = all(not damage(path / name, listed[path.name].get(name)) for name in _FILES)
    else:
        own = path.name in files and not damage(path, files[path.name])
    if own:
        return Fault("link", where, problem, Remedy.copy)
    return Fault("link", where, f"{problem}, and what it names is not the run's", Remedy.set_aside)


def _foreign(run: Path, path: Path) -> Fault:
    where = path.relative_to(run).as_posix()
    if _is_pickle(path):
        problem = "is a pickle, which runs code when it is opened; no run has one, and nothing here opens it"
        return Fault("pickle", where, problem, Remedy.set_aside)
    remedy = Remedy.none if path.parent == run else Remedy.set_aside
    return Fault("foreign", where, "is not of the run, and nothing reads it", remedy)


_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib", ".dill")


def _is_pickle(path: Path) -> bool:
    if not path.is_file():
        return False
    if path.suffix.lower() in _PICKLES:
        return True
    try:
        with open_file(path) as file:
            head = file.read(2)
    except OSError:
        return False
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5  # the protocol of a pickle
