"""Examines run folders for damage, and drops damaged blocks, so that a rerun computes them again."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import StoreError
from choicewise.records import (
    BLOCK_FOLDER,
    ITEM_FILE,
    ITEMS,
    KEYS,
    MANIFEST,
    OBSERVATIONS,
    SPANS,
    SUMMARY,
    SWEEP,
    BlockRecord,
    Manifest,
    Sweep,
)
from choicewise.results.run import count_items
from choicewise.results.summary import other_numbers, summary_problem
from choicewise.store.folder import (
    is_sweep,
    leftovers,
    part_of,
    read_manifest,
    read_sweep,
    unlisted_blocks,
    usable_blocks,
    write_manifest,
)
from choicewise.store.tables import (
    SCHEMAS,
    block_file,
    damage,
    damaged_blocks,
    other_version,
    read_columns,
    unanswered_keys,
)
from choicewise.util.files import PARTIAL, copy_of, disk_errors, is_locked, locked, open_file
from choicewise.util.text import quoted

ROUNDS = 6
"""How often a folder is examined at most until nothing changes it meanwhile."""

RUNNING = "running"

_Record = TypeVar("_Record", Manifest, Sweep)

LineOf = Callable[[Path, Manifest], str]
"""A function that returns the command that resumes a run."""


class Remedy(StrEnum):
    """Name what repairs a fault."""

    drop = "drop"
    """The block is taken off the manifest, and a rerun computes it again."""
    run_again = "run again"
    """A rerun writes the file again: items from the data, the summary from the observations."""
    by_hand = "by hand"
    """Only a person can: the problem says how."""
    none = "none"
    """The fault is harmless: nothing depends on it, or the next run repairs it."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Describe a fault: its ``kind``, the ``path`` in the folder, and the ``problem`` in words.

    ``block``: the name of the block that is useless now, if any.
    """

    kind: str
    path: str
    problem: str
    remedy: Remedy
    block: str = ""

    @property
    def harmful(self) -> bool:
        """Return True for damage, False for a remark."""
        return self.remedy is not Remedy.none


@dataclass(kw_only=True)
class Examined:
    """Hold the result of the examination of a ``folder``.

    ``state``: complete, not complete, running (another process writes to it, and nothing was
    examined), or lost (no manifest can be read).  ``blocks`` and ``items``: how many there are;
    ``unanswered``: prompts without an answer.  ``line``: the command that computes the lost
    observations again.  ``dropped``: a line for each block that was dropped.
    """

    folder: str
    state: str
    faults: list[Fault] = field(default_factory=list)
    blocks: int = 0
    items: int = 0
    unanswered: int = 0
    line: str = ""
    dropped: list[str] = field(default_factory=list)

    @property
    def harmed(self) -> list[Fault]:
        """List the faults that are damage."""
        return [fault for fault in self.faults if fault.harmful]


def examine_runs(folder: Path) -> Iterator[Examined]:
    """Examine the run in ``folder``, or every run; nothing is changed or locked.

    Raises StoreError if it is no run folder and no folder of runs.
    """
    if not (folder / MANIFEST).exists() and is_sweep(folder):
        yield _examined_sweep(folder)
    for run in _runs(folder):
        yield _examined(run)


def drop_damaged_blocks(folder: Path, line_of: LineOf) -> Iterator[Examined]:
    """Examine the run in ``folder``, or every run, and drop damaged blocks from its manifest.

    Their files stay until the command of ``line_of`` removes them.  A run that another process
    writes to is not touched.
    """
    if not (folder / MANIFEST).exists() and is_sweep(folder):
        yield _examined_sweep(folder)
    for run in _runs(folder):
        if is_locked(run):
            yield Examined(folder=str(run), state=RUNNING)
            continue
        with locked(run):
            dropped: list[str] = []
            while True:
                examined = examine(run)
                lines = _drop(run, examined)
                if not lines:
                    break
                # Other blocks may name observations that a dropped block held.
                dropped += lines
            examined.dropped = dropped
            manifest, _ = _read_or_copy(run, MANIFEST, "manifest", read_manifest)
            if manifest is not None and not manifest.complete:
                examined.line = line_of(run, manifest)
        yield examined


def _drop(run: Path, examined: Examined) -> list[str]:
    """Take the damaged blocks off the manifest in one step; return a line for each of them."""
    reasons = {}
    for fault in examined.faults:
        if fault.remedy is Remedy.drop:
            reasons[fault.block] = f"{fault.path} {fault.problem}"
    # A damaged manifest does not say which blocks there are.
    if not reasons or any(fault.path == MANIFEST for fault in examined.harmed):
        return []
    manifest = read_manifest(run)
    useless = [block for block in manifest.blocks if block.name in reasons]
    blocks = usable_blocks(manifest.blocks, useless)
    with disk_errors(run):
        write_manifest(run, replace(manifest, blocks=blocks, complete=False))
    lines = []
    for block in manifest.blocks:
        if block not in blocks:
            reason = reasons.get(block.name, "it names answers that a damaged block held")
            lines.append(f"block {block.name}: {reason}")
    return lines


def _examined(run: Path) -> Examined:
    for _ in range(ROUNDS):
        if is_locked(run):
            break
        before = _stamp(run)
        examined = examine(run)
        # A folder that is written meanwhile looks damaged, and is examined again.
        if not is_locked(run) and _stamp(run) == before:
            return examined
    return Examined(folder=str(run), state=RUNNING)


def _stamp(run: Path) -> object:
    """Return what changes with every write to a run."""
    with suppress(OSError):
        stat = (run / MANIFEST).stat()
        return stat.st_ino, stat.st_mtime_ns
    return None


def _has_manifest(run: Path) -> bool:
    return (run / MANIFEST).exists() or copy_of(run / MANIFEST).exists()


def _runs(folder: Path) -> list[Path]:
    """List the runs of ``folder``, also those with only the copy of a manifest."""
    if _has_manifest(folder):
        return [folder]
    if is_sweep(folder):
        for name in (SWEEP, copy_of(Path(SWEEP)).name):
            with suppress(StoreError):
                cells = read_sweep(folder, name).cells
                runs = dict.fromkeys(folder / cell.folder for cell in cells)
                return list(filter(_has_manifest, runs))
    folders: set[Path] = set()
    with disk_errors(folder):
        for name in (MANIFEST, copy_of(Path(MANIFEST)).name):
            folders.update(path.parent for path in folder.glob(f"*/{name}"))
            folders.update(path.parent for path in folder.glob(f"*/*/{name}"))
    if not folders:
        raise StoreError(
            f"{folder} is not a run folder and holds none; name one that `choicewise run` made"
        )
    return sorted(folders)


def _examined_sweep(folder: Path) -> Examined:
    if is_locked(folder):
        return Examined(folder=str(folder), state=RUNNING)
    _, faults = _read_or_copy(folder, SWEEP, "sweep", read_sweep)
    return Examined(folder=str(folder), state="sweep", faults=faults)


def examine(run: Path) -> Examined:
    """Examine the run folder ``run``; StoreError if it is none."""
    manifest, lost = _read_or_copy(run, MANIFEST, "manifest", read_manifest)
    if manifest is None:
        return Examined(folder=str(run), state="lost", faults=lost)
    state = "complete" if manifest.complete else "not complete"
    is_part = False
    if manifest.shard is not None:
        state = f"{part_of(manifest.shard)}, {state}"
        is_part = not manifest.shard.whole
    faults = list(lost)
    if not lost:
        faults += _copy_faults(run, manifest)
    faults += _item_faults(run, manifest)
    broken = _file_faults(run, manifest.blocks)
    faults += broken
    useless = {fault.block for fault in broken}
    if not is_part:
        whole = [block for block in manifest.blocks if block.name not in useless]
        faults += _dangling_faults(run, whole, harmed=bool(broken))
    faults += _stray_faults(run, manifest)
    examined = Examined(
        folder=str(run),
        state=state,
        faults=faults,
        blocks=len(manifest.blocks),
        items=count_items(manifest.blocks),
    )
    if not useless:
        examined.unanswered = len(unanswered_keys(run, manifest))
    # Damaged observations would give other numbers than a right summary.
    examined.faults += _summary_faults(run, manifest, compare=not examined.harmed)
    return examined


def _summary_faults(run: Path, manifest: Manifest, compare: bool) -> list[Fault]:
    """Check the summary; ``compare``: True to compute its numbers again."""
    problem = summary_problem(run, manifest)
    if problem is not None:
        words = f"{problem.words}; it is ignored and rewritten"
        remedy = Remedy.none if problem.older else Remedy.run_again
        return [Fault(kind="summary", path=SUMMARY, problem=words, remedy=remedy)]
    protocol = other_numbers(run, manifest) if compare else ""
    if protocol:
        words = f"has other numbers of {protocol} than the stored answers give; delete it"
        return [Fault(kind="summary", path=SUMMARY, problem=words, remedy=Remedy.by_hand)]
    return []


def _read_or_copy(
    folder: Path, name: str, kind: str, read: Callable[..., _Record]
) -> tuple[_Record | None, list[Fault]]:
    """Read the file ``name``, or its copy if it is lost; return its faults, too.

    Raises StoreError if neither exists.
    """
    path = folder / name
    copy = copy_of(path)
    try:
        return read(folder), []
    except StoreError as error:
        problem = _problem_of(error, path)
        if not path.exists() and not copy.exists():
            raise
    record: _Record | None = None
    # The copy helps neither if the file can't be read, nor if another version wrote it.
    if "can't be read" not in problem and "version" not in problem:
        try:
            record = read(folder, copy.name)
            problem += f"; `cp {quoted(copy)} {quoted(path)}` restores it"
        except StoreError:
            why = "damaged, too" if copy.exists() else "missing"
            problem += f"; its copy is {why}: evaluate again into a new folder"
    return record, [Fault(kind=kind, path=name, problem=problem, remedy=Remedy.by_hand)]


def _copy_faults(run: Path, manifest: Manifest) -> list[Fault]:
    """Check the copy of a whole manifest."""
    name = copy_of(run / MANIFEST).name
    try:
        if read_manifest(run, name) == manifest:
            return []
        problem = "is older than the manifest"
    except StoreError as error:
        problem = "is missing"
        if (run / name).exists():
            problem = _problem_of(error, run / name)
    problem = f"{problem}; the next run renews it"
    return [Fault(kind="copy", path=name, problem=problem, remedy=Remedy.none)]


def _problem_of(error: StoreError, path: Path) -> str:
    """Return the message without the name of the file and without advice."""
    return error.message.split("; ")[0].removeprefix(f"{path} ")


def _item_faults(run: Path, manifest: Manifest) -> list[Fault]:
    """Check the item table."""
    path = run / ITEM_FILE
    kind = "item table"
    reason = damage(path, manifest.files.get(ITEM_FILE))
    remedy = Remedy.run_again
    if not reason:
        reason = other_version(path, ITEMS)
        if not reason:
            return []
        reason += "; evaluate again into a new folder"
        remedy = Remedy.by_hand
    elif reason.startswith("can't be read") and path.is_file():
        kind = "unreadable"
        reason += "; make it readable"
        remedy = Remedy.by_hand
    return [Fault(kind=kind, path=ITEM_FILE, problem=reason, remedy=remedy)]


def _file_faults(run: Path, blocks: Sequence[BlockRecord]) -> list[Fault]:
    """Check that the files of blocks are unchanged."""
    faults = []
    for broken in damaged_blocks(run, blocks):
        split, subject, start, stop = broken.block.extent
        kind = "damaged block"
        remedy = Remedy.drop
        problem = (
            f"{broken.reason}; the block holds items {start + 1} to {stop} of {subject} ({split})"
        )
        if broken.reason.startswith("can't be read") and broken.path.is_file():
            kind = "unreadable"
            remedy = Remedy.by_hand
            problem += "; make it readable"
        fault = Fault(
            kind=kind,
            path=broken.path.relative_to(run).as_posix(),
            problem=problem,
            remedy=remedy,
            block=broken.block.name,
        )
        faults.append(fault)
    return faults


def _dangling_faults(run: Path, blocks: Sequence[BlockRecord], harmed: bool) -> list[Fault]:
    """Check that the observations that spans name exist.

    ``harmed``: True if other blocks are damaged; the observations may be in them, and come again.
    """
    parts = [pa.array([], pa.string())]
    for block in blocks:
        table = read_columns(block_file(run, block, "observations"), OBSERVATIONS, ["key"])
        parts.append(table["key"].combine_chunks())
    keys = pa.concat_arrays(parts)
    faults = []
    for block in blocks:
        spans = read_columns(block_file(run, block, "spans"), SPANS, KEYS)
        named = pc.unique(pa.concat_arrays([spans[name].combine_chunks() for name in KEYS]))
        is_lacking = pc.and_(pc.invert(pc.is_in(named, keys)), pc.is_valid(named))
        lacking = pc.sum(is_lacking).as_py() or 0
        if not lacking:
            continue
        problem = f"names {lacking:,} answers that are in no block"
        remedy = Remedy.drop
        useless = block.name
        if harmed:
            useless = ""
            problem += "; they may be in the damaged blocks, and return with them"
            remedy = Remedy.none
        fault = Fault(
            kind="lost observations",
            path=f"{BLOCK_FOLDER}/{block.name}/spans.parquet",
            problem=problem,
            remedy=remedy,
            block=useless,
        )
        faults.append(fault)
    return faults


_RUN_NAMES = frozenset({MANIFEST, copy_of(Path(MANIFEST)).name, ITEM_FILE, SUMMARY, BLOCK_FOLDER})
"""Names in a run folder."""

_BLOCK_NAMES = frozenset(f"{table}.parquet" for table in SCHEMAS)


def _stray_faults(run: Path, manifest: Manifest) -> Iterator[Fault]:
    """Yield the files in ``run`` that the manifest does not explain; nothing outside is read."""
    listed = {block.name for block in manifest.blocks}
    unlisted = set(unlisted_blocks(run, manifest))
    for path in leftovers(run, manifest):
        problem = "is a block that the manifest does not list"
        if path.name.endswith(PARTIAL):
            problem = "is left over from a killed write"
        yield Fault(
            kind="leftover",
            path=path.relative_to(run).as_posix(),
            problem=f"{problem}; it is ignored, and the next run removes it",
            remedy=Remedy.none,
        )
    for path, is_expected in _entries(run, listed):
        if path in unlisted:
            continue
        if path.is_symlink():
            yield _link_fault(run, path)
        elif not is_expected:
            yield _foreign_fault(run, path)


def _entries(run: Path, listed: Collection[str]) -> Iterator[tuple[Path, bool]]:
    """Yield the paths in the folder, and True for those that a run has.

    The insides of links and of foreign folders are left out.
    """
    for path in sorted(run.iterdir()):
        yield path, path.name in _RUN_NAMES or path.name.endswith(PARTIAL)
    folder = run / BLOCK_FOLDER
    if not folder.is_dir() or folder.is_symlink():
        return
    for block in sorted(folder.iterdir()):
        is_block = block.name in listed and block.is_dir()
        yield block, is_block
        if is_block and not block.is_symlink():
            for file in sorted(block.iterdir()):
                yield file, file.name in _BLOCK_NAMES


def _link_fault(run: Path, path: Path) -> Fault:
    # A large run may lie on several disks; linked files of the manifest were checked above.
    is_inside = path.resolve().is_relative_to(run.resolve())
    outside = "" if is_inside else ", outside the run folder"
    return Fault(
        kind="link",
        path=path.relative_to(run).as_posix(),
        problem=f"is a link to {os.readlink(path)}{outside}",
        remedy=Remedy.none,
    )


def _foreign_fault(run: Path, path: Path) -> Fault:
    kind = "foreign"
    problem = "does not belong to the run, and nothing reads it"
    remedy = Remedy.none
    if _is_pickle(path):
        kind = "pickle"
        problem = (
            "is a pickle, which runs code when it is opened; no run has one, and nothing here "
            "opens it; delete it"
        )
        remedy = Remedy.by_hand
    where = path.relative_to(run).as_posix()
    return Fault(kind=kind, path=where, problem=problem, remedy=remedy)


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
    # A pickle begins with the byte 0x80 and the number of its protocol.
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5
