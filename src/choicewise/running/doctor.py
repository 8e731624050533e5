"""Doctor over folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from choicewise.data.dataset import Dataset
from choicewise.errors import ChoicewiseError, StoreError
from choicewise.records import ITEM_FILE, MANIFEST, SUMMARY, SWEEP, Examined, Fault, FileRecord, Manifest, Remedy
from choicewise.requests.blocks import list_sections, with_split
from choicewise.results.run import asked_protocols, count_items
from choicewise.results.summary import rewrite_summary, summary_fault
from choicewise.running.evaluate import item_rows
from choicewise.store.doctor import WriteFile, examine, repair, usable_manifest
from choicewise.store.manifest import is_sweep, read_sweep
from choicewise.store.tables import write_items
from choicewise.util.files import copy_of, disk_errors, is_locked, locked, read_text, write_text

ROUNDS = 6
"""How often a folder is examined and repaired at most: a repair can uncover what could not be judged before."""

RUNNING = "running"

LineOf = Callable[[Path, Manifest], str]
"""The line that goes on with a run."""


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
            manifest, _ = usable_manifest(run)
            if manifest is not None and not manifest.complete:
                examined.line = line_of(run, manifest)
        yield examined


def _examined(run: Path) -> Examined:
    for _ in range(ROUNDS):
        if is_locked(run):
            break
        before = _stamp(run)
        examined = _examine(run)
        if not is_locked(run) and _stamp(run) == before:
            return examined
    return Examined(str(run), RUNNING)


def _stamp(run: Path) -> object:
    """What changes whenever a run writes."""
    with suppress(OSError):
        stat = (run / MANIFEST).stat()
        return stat.st_ino, stat.st_mtime_ns
    return None


def _examine(run: Path) -> Examined:
    examined = examine(run, summary_fault)
    manifest, _ = usable_manifest(run)
    if manifest is not None:
        examined.items = count_items(manifest.blocks)
    return examined


def _repaired(run: Path, write_items: WriteFile) -> Examined:
    done: list[str] = []
    for _ in range(ROUNDS):
        examined = _examine(run)
        if not examined.harmed:
            break
        new = list(repair(run, examined.faults, {ITEM_FILE: write_items, SUMMARY: rewrite_summary}))
        done += [line for line in new if line not in done]
        if not new:
            break
    examined.done = done
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
    examined, path = Examined(str(folder), "sweep"), folder / SWEEP
    if is_locked(folder):
        return Examined(str(folder), RUNNING)
    try:
        read_sweep(folder)
    except StoreError as error:
        problem = error.message.split("; ")[0].removeprefix(f"{path} ")
        remedy = Remedy.by_hand
        if "version" not in problem and "can't be read" not in problem:
            with suppress(StoreError):
                read_sweep(folder, copy_of(path).name)
                remedy = Remedy.put_back
        examined.faults.append(Fault("sweep", SWEEP, problem, remedy))
    return examined


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


def write_items_again(
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
    sections = list_sections(data, recipes, manifest.selection.subjects, manifest.selection.limit)
    if missing := {block.split for block in manifest.blocks} - {section.split for section in sections}:
        raise StoreError(f"its protocols test no items of split {', '.join(sorted(missing))}")
    return write_items(run, chain.from_iterable(item_rows(sections).values()))
