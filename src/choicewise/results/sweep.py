"""Folders of several runs, read back: which runs there are, what is missing and which suites they belong to."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from warnings import warn

from choicewise.errors import StoreError, UsageError
from choicewise.records.format import MANIFEST
from choicewise.records.sweep import Sweep
from choicewise.store.manifest import read_manifest
from choicewise.store.sweep import is_sweep, read_sweep
from choicewise.store.tables import check_items


def run_folders(folders: Iterable[str | Path]) -> list[Path]:
    """The folders, with the runs that are there in place of every folder of several, or of one model's; each once.

    A folder that is no run and no sweep stands for the runs directly in it, in the order of their names.  Of several
    runs that a folder stands for, those that can't be read at all are left out, each with a warning.

    Raises StoreError for a folder of several runs that is damaged, UsageError for one in which no run is there.
    """
    runs: list[Path] = []
    for folder in map(Path, folders):
        sweep = _sweep(folder)
        if sweep is None:
            runs += _readable(_within(folder)) or [folder]
            continue
        there = [sweep[0] / cell.folder for cell in sweep[1].cells]
        there = [run for run in there if (run / MANIFEST).exists()]
        if not there:
            reasons = dict.fromkeys(cell.failure for cell in sweep[1].cells if cell.failure)
            raise UsageError(f"no run is there in {folder}; repeat the line that made it", list(reasons))
        runs += _readable(there)
    return list(dict.fromkeys(runs))


def _readable(runs: Sequence[Path]) -> Sequence[Path]:
    """The runs with a manifest and an item table that can be used; all of them where that is none."""
    reasons: dict[Path, str] = {}
    for run in runs:
        try:
            check_items(run, read_manifest(run))
        except StoreError as error:
            reasons[run] = error.message
    if len(reasons) == len(runs):
        return runs
    for reason in reasons.values():
        warn(f"a run is left out: {reason}", stacklevel=3)
    return [run for run in runs if run not in reasons]


def sweeps(folders: Iterable[str | Path]) -> list[tuple[Path, Sweep]]:
    """What the folders of several runs say of themselves, each with the folder that the cells' own are relative to."""
    return [sweep for sweep in map(_sweep, map(Path, folders)) if sweep is not None]


def one_run(folder: str | Path) -> Path:
    """The run in ``folder``.  Raises UsageError, naming them, where there are several."""
    runs = run_folders([folder])
    if len(runs) > 1:
        raise UsageError(f"{folder} holds {len(runs)} runs; name one of them", [str(run) for run in runs])
    return runs[0]


def _within(folder: Path) -> list[Path]:
    """The runs directly in a folder that is none itself."""
    if os.path.exists(folder / MANIFEST):
        return []
    with suppress(OSError):  # whoever opens the folder says what is wrong with it
        return sorted(manifest.parent for manifest in folder.glob(f"*/{MANIFEST}"))
    return []


def _sweep(folder: Path) -> tuple[Path, Sweep] | None:
    """The sweep in a folder, or what it says of the one model whose folder this is; None for any other folder."""
    if is_sweep(folder):
        return folder, read_sweep(folder)
    whole = folder.resolve()
    if os.path.exists(folder / MANIFEST) or not is_sweep(whole.parent):
        return None
    sweep = read_sweep(whole.parent)
    own = tuple(cell for cell in sweep.cells if cell.folder.partition("/")[0] == whole.name)
    return (folder.parent if folder.name == whole.name else whole.parent, replace(sweep, cells=own)) if own else None
