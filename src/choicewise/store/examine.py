"""A run folder examined: everything that is wrong with its files, without a model and without changing anything."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow.compute as pc

from choicewise.errors import StoreError
from choicewise.records.fault import Examined, Fault, Remedy
from choicewise.records.format import ITEM_FILE, MANIFEST
from choicewise.records.manifest import Manifest
from choicewise.records.tables import ITEMS
from choicewise.store.block_faults import (
    dangling_faults,
    double_faults,
    file_faults,
    place_faults,
)
from choicewise.store.copies import copy_of
from choicewise.store.manifest import read_manifest
from choicewise.store.stray import ASIDE, stray_faults
from choicewise.store.tables import damage, other_version, read_batches
from choicewise.store.unanswered import unanswered_keys

Summary = Callable[[Path, Manifest, bool], Fault | None]
"""What is wrong with the summary of a run, of which nothing else is damaged if the last argument says so."""


def examine(run: Path, summary: Summary = lambda *_: None) -> Examined:
    """What there is in the run folder ``run``, and what is wrong with it.

    ``summary``: says what is wrong with the kept summary.  Raises StoreError where ``run`` is no run folder.
    """
    manifest, lost = usable_manifest(run)
    if manifest is None:
        return Examined(str(run), "lost", lost)
    examined = Examined(str(run), "complete" if manifest.complete else "not complete", lost)
    examined.blocks, faults = len(manifest.blocks), examined.faults
    faults += _copy(run, manifest) if not lost else ()
    counts, item_faults = _items(run, manifest)
    faults += item_faults
    stray = list(stray_faults(run, manifest))
    broken = file_faults(run, manifest.blocks)
    harmed = {fault.block for fault in broken}
    placed = list(place_faults([block for block in manifest.blocks if block.name not in harmed], counts))
    faults += broken + placed
    whole = [block for block in manifest.blocks if block.name not in harmed | {fault.block for fault in placed}]
    faults += double_faults(run, whole)
    faults += dangling_faults(run, whole, harmed=bool(broken or placed))
    faults += stray
    if not harmed:
        examined.unanswered = len(unanswered_keys(run, manifest))
    if (fault := summary(run, manifest, not examined.harmed)) is not None:
        faults.append(fault)
    if (run / ASIDE).is_dir() and (count := sum(1 for _ in (run / ASIDE).iterdir())):
        problem = f"holds what was set aside before ({count}); delete it when you need it no more"
        faults.append(Fault("set aside", f"{ASIDE}/", problem, Remedy.none))
    return examined


def usable_manifest(run: Path) -> tuple[Manifest | None, list[Fault]]:
    """The manifest of the run folder, or its copy where it is lost, and what is wrong with it.

    Raises StoreError where ``run`` is no run folder at all.
    """
    path = run / MANIFEST
    copy = copy_of(path)
    try:
        return read_manifest(run), []
    except StoreError as error:
        problem = _said(error, path)
        if not path.exists() and not copy.exists():
            raise
    if "can't be read" in problem or "version" in problem:
        return None, [Fault("manifest", MANIFEST, problem, Remedy.by_hand)]
    with suppress(StoreError):
        return read_manifest(run, copy.name), [Fault("manifest", MANIFEST, problem, Remedy.put_back)]
    why = "damaged, too" if copy.exists() else "missing"
    problem += f"; its copy is {why}: evaluate again into a new folder"
    return None, [Fault("manifest", MANIFEST, problem, Remedy.by_hand)]


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


def _items(run: Path, manifest: Manifest) -> tuple[dict[tuple[str, str], int] | None, list[Fault]]:
    """The items of every subject of every split, and what is wrong with their table."""
    path = run / ITEM_FILE
    reason = damage(path, manifest.files.get(ITEM_FILE)) or other_version(path, ITEMS)
    if reason and reason.startswith("can't be read") and path.is_file():
        return None, [Fault("unreadable", ITEM_FILE, f"{reason}; make it readable", Remedy.by_hand)]
    if reason:
        return None, [Fault("item table", ITEM_FILE, reason, Remedy.write_again)]
    counts: dict[tuple[str, str], int] = {}
    for batch in read_batches(path, ITEMS, ["split", "subject"]):
        pairs = pc.value_counts(pc.binary_join_element_wise(batch["split"], batch["subject"], "\n"))
        for pair in pairs.to_pylist():
            split, _, subject = pair["values"].partition("\n")
            counts[split, subject] = counts.get((split, subject), 0) + pair["counts"]
    return counts, []
