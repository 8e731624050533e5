"""What is damaged in run folders; damaged blocks can be dropped, and the command of the run asks them again."""

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
)
from choicewise.util.files import PARTIAL, copy_of, disk_errors, is_locked, locked, open_file
from choicewise.util.text import quoted

ROUNDS = 6
"""How often a folder is examined at most until nothing changes it meanwhile."""

RUNNING = "running"

_Record = TypeVar("_Record", Manifest, Sweep)

LineOf = Callable[[Path, Manifest], str]
"""The command that resumes a run."""


class Remedy(StrEnum):
    """What mends a fault."""

    drop = "drop"
    """The block is taken off the manifest, and the command of the run asks again what it held."""
    run_again = "run again"
    """The command of the run writes it again: the item table from the data, the summary from the observations."""
    by_hand = "by hand"
    """Only a person can: the problem says what to do."""
    none = "none"
    """It does no harm: nothing depends on it, or the next run mends it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``kind`` in a word or two; ``path``: where, relative to the folder; ``problem`` in words.

    ``block``: the name of the block that it makes useless, empty where it makes none so.
    """

    kind: str
    path: str
    problem: str
    remedy: Remedy
    block: str = ""

    @property
    def harmful(self) -> bool:
        """Whether it is damage, and not only worth saying."""
        return self.remedy is not Remedy.none


@dataclass(slots=True)
class Examined:
    """What an examination of the ``folder`` of a run, or of several, came to.

    ``state``: complete, not complete, running (another process writes to it; then nothing else is said), lost (no
    manifest can be read).  ``blocks``: how many there are, and ``items``: how many places they are about.
    ``line``: what asks again what was lost.  ``dropped``: the blocks that count no longer, a line each.
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
        """The faults that are damage."""
        return [fault for fault in self.faults if fault.harmful]


def examine_runs(folder: Path) -> Iterator[Examined]:
    """Every run in ``folder``, or the run that it is, examined; nothing is changed, and nobody is kept out.

    Raises StoreError where it is no run folder and no folder of runs.
    """
    if not (folder / MANIFEST).exists() and is_sweep(folder):
        yield _sweep(folder)
    for run in _runs(folder):
        yield _examined(run)


def drop_damaged_blocks(folder: Path, line_of: LineOf) -> Iterator[Examined]:
    """The same, and damaged blocks count no longer; ``line_of`` says what asks again what they held.

    Their files stay until that line removes them.  A run that another process writes to is not touched.
    """
    if not (folder / MANIFEST).exists() and is_sweep(folder):
        yield _sweep(folder)
    for run in _runs(folder):
        if is_locked(run):
            yield Examined(str(run), RUNNING)
            continue
        with locked(run):
            dropped = list[str]()
            while new := _drop(
                run, examined := examine(run)
            ):  # another block may need what one held
                dropped += new
            examined.dropped = dropped
            manifest, _ = _usable(run, MANIFEST, "manifest", read_manifest)
            if manifest is not None and not manifest.complete:
                examined.line = line_of(run, manifest)
        yield examined


def _drop(run: Path, examined: Examined) -> list[str]:
    """Take the damaged blocks off the manifest in one step; a line about each block that is not listed any more."""
    reasons = {}
    for fault in examined.faults:
        if fault.remedy is Remedy.drop:
            reasons[fault.block] = f"{fault.path} {fault.problem}"
    if not reasons or any(fault.path == MANIFEST for fault in examined.harmed):
        return []  # which blocks there are is said by a manifest that is whole
    manifest = read_manifest(run)
    blocks = usable_blocks(
        manifest.blocks, [block for block in manifest.blocks if block.name in reasons]
    )
    with disk_errors(run):
        write_manifest(run, replace(manifest, blocks=blocks, complete=False))
    lines = []
    for block in manifest.blocks:
        if block not in blocks:
            reason = reasons.get(block.name, "it names observations that a damaged block held")
            lines.append(f"block {block.name}: {reason}")
    return lines


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


def _runs(folder: Path) -> list[Path]:
    """The runs that ``folder`` stands for, those whose manifest is lost among them."""
    names = MANIFEST, copy_of(Path(MANIFEST)).name
    if any((folder / name).exists() for name in names):
        return [folder]
    if is_sweep(folder):
        for name in (SWEEP, copy_of(Path(SWEEP)).name):
            with suppress(StoreError):
                cells = [folder / cell.folder for cell in read_sweep(folder, name).cells]
                return [
                    run
                    for run in dict.fromkeys(cells)
                    if any((run / each).exists() for each in names)
                ]
    with disk_errors(folder):
        within = {
            path.parent
            for name in names
            for path in (*folder.glob(f"*/{name}"), *folder.glob(f"*/*/{name}"))
        }
    if not within:
        raise StoreError(
            f"{folder} is no run folder and holds none; name one that `choicewise run` made"
        )
    return sorted(within)


def _sweep(folder: Path) -> Examined:
    """What the folder of a sweep says of itself."""
    if is_locked(folder):
        return Examined(str(folder), RUNNING)
    return Examined(str(folder), "sweep", _usable(folder, SWEEP, "sweep", read_sweep)[1])


def examine(run: Path) -> Examined:
    """What there is in the run folder ``run``, and what is wrong with it; StoreError where ``run`` is no run folder."""
    manifest, lost = _usable(run, MANIFEST, "manifest", read_manifest)
    if manifest is None:
        return Examined(str(run), "lost", lost)
    state = "complete" if manifest.complete else "not complete"
    examined = Examined(
        str(run), state if manifest.shard is None else f"{part_of(manifest.shard)}, {state}", lost
    )
    examined.blocks, examined.items, faults = (
        len(manifest.blocks),
        count_items(manifest.blocks),
        examined.faults,
    )
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
    faults += _summary(run, manifest, compare=not examined.harmed)
    return examined


def _summary(run: Path, manifest: Manifest, compare: bool) -> list[Fault]:
    """What is wrong with the summary; ``compare``: whether its numbers are computed again."""
    if (problem := summary_problem(run, manifest)) is not None:
        words = f"{problem.words}; it counts for nothing and is written again"
        return [
            Fault("summary", SUMMARY, words, Remedy.none if problem.older else Remedy.run_again)
        ]
    if compare and (protocol := other_numbers(run, manifest)):
        words = f"says other numbers of {protocol} than follow from the observations; delete it"
        return [Fault("summary", SUMMARY, words, Remedy.by_hand)]
    return []


def _usable(
    folder: Path, name: str, kind: str, read: Callable[..., _Record]
) -> tuple[_Record | None, list[Fault]]:
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
        record = read(folder, copy.name)
        problem += f"; `cp {quoted(copy)} {quoted(path)}` puts back its copy"
        return record, [Fault(kind, name, problem, Remedy.by_hand)]
    why = "damaged, too" if copy.exists() else "missing"
    problem += f"; its copy is {why}: evaluate again into a new folder"
    return None, [Fault(kind, name, problem, Remedy.by_hand)]


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
    if reason := damage(path, manifest.files.get(ITEM_FILE)):
        if reason.startswith("can't be read") and path.is_file():
            return [Fault("unreadable", ITEM_FILE, f"{reason}; make it readable", Remedy.by_hand)]
        return [Fault("item table", ITEM_FILE, reason, Remedy.run_again)]
    if reason := other_version(path, ITEMS):
        return [
            Fault(
                "item table",
                ITEM_FILE,
                f"{reason}; evaluate again into a new folder",
                Remedy.by_hand,
            )
        ]
    return []


def _file_faults(run: Path, blocks: Sequence[BlockRecord]) -> list[Fault]:
    """The blocks that are not what was written."""
    faults = []
    for broken in damaged_blocks(run, blocks):
        where = broken.path.relative_to(run).as_posix()
        split, subject, start, stop = broken.block.extent
        about = (
            f"{broken.reason}; the block holds items {start + 1} to {stop} of {subject} ({split})"
        )
        if broken.reason.startswith("can't be read") and broken.path.is_file():
            faults.append(
                Fault(
                    "unreadable",
                    where,
                    f"{about}; make it readable",
                    Remedy.by_hand,
                    broken.block.name,
                )
            )
        else:
            faults.append(Fault("damaged block", where, about, Remedy.drop, broken.block.name))
    return faults


_KEYS = ("key", "before", "after")


def _dangling_faults(run: Path, blocks: Sequence[BlockRecord], harmed: bool) -> list[Fault]:
    """Blocks with spans that name observations which no block holds.

    ``harmed``: whether other blocks are damaged, which may hold them: then they come again with those.
    """
    tables = (
        read_columns(block_file(run, block, "observations"), OBSERVATIONS, ["key"])
        for block in blocks
    )
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
            problem += (
                "; they may lie in the damaged ones, and come again with those" if harmed else ""
            )
            remedy, useless = (Remedy.none, "") if harmed else (Remedy.drop, block.name)
            faults.append(Fault("lost observations", where, problem, remedy, useless))
    return faults


_OWN = frozenset({MANIFEST, copy_of(Path(MANIFEST)).name, ITEM_FILE, SUMMARY, BLOCK_FOLDER})
"""Names in a run folder."""

_FILES = frozenset(f"{table}.parquet" for table in SCHEMAS)


def _stray_faults(run: Path, manifest: Manifest) -> Iterator[Fault]:
    """Everything in the folder ``run`` that its ``manifest`` does not explain; nothing outside is read."""
    listed = {block.name for block in manifest.blocks}
    unlisted = {*unlisted_blocks(run, manifest)}
    for path in leftovers(run, manifest):
        what = "is a block that the manifest does not list"
        if path.name.endswith(PARTIAL):
            what = "is what a write left that was killed"
        where = path.relative_to(run).as_posix()
        yield Fault(
            "leftover",
            where,
            f"{what}; it counts for nothing, and the next run removes it",
            Remedy.none,
        )
    for path, own in _entries(run, listed):
        if path in unlisted:
            continue
        if path.is_symlink():
            yield _link(run, path)
        elif not own:
            yield _foreign(run, path)


def _entries(run: Path, listed: Collection[str]) -> Iterator[tuple[Path, bool]]:
    """Everything in the folder but what is inside links and strange folders, and whether a run has such a thing."""
    yield from (
        (path, path.name in _OWN or path.name.endswith(PARTIAL)) for path in sorted(run.iterdir())
    )
    folder = run / BLOCK_FOLDER
    for block in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        own = block.name in listed and block.is_dir()
        yield block, own
        if own and not block.is_symlink():
            yield from ((file, file.name in _FILES) for file in sorted(block.iterdir()))


def _link(run: Path, path: Path) -> Fault:
    """A link: a large run may lie on several disks, and what the manifest lists is checked wherever it lies."""
    outside = ", outside the run folder" if not path.resolve().is_relative_to(run.resolve()) else ""
    return Fault(
        "link",
        path.relative_to(run).as_posix(),
        f"is a link to {os.readlink(path)}{outside}",
        Remedy.none,
    )


def _foreign(run: Path, path: Path) -> Fault:
    where = path.relative_to(run).as_posix()
    if _is_pickle(path):
        problem = "is a pickle, which runs code when it is opened; no run has one, and nothing here opens it; delete it"
        return Fault("pickle", where, problem, Remedy.by_hand)
    return Fault("foreign", where, "is not of the run, and nothing reads it", Remedy.none)


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
