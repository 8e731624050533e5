"""The record of a sweep: what is asked is added to what was there, and no two runs share a folder."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from choicewise import __version__
from choicewise.errors import StoreError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import signature
from choicewise.protocols.suite import Suite
from choicewise.records.format import MANIFEST, SWEEP
from choicewise.records.sweep import CellRecord, PartRecord, SuiteRecord, Sweep
from choicewise.running.source import Source
from choicewise.running.sweep_model import SweepModel, folder_name, free_name
from choicewise.store.atomic import PARTIAL, disk_errors
from choicewise.store.copies import copy_of
from choicewise.store.manifest import read_manifest
from choicewise.store.sweep import is_sweep, read_sweep, write_sweep
from choicewise.store.unanswered import unanswered_keys


def begun_sweep(out: Path) -> Sweep:
    """What the folder ``out`` holds of earlier lines; an empty sweep where it is new or empty.

    Raises StoreError where it holds something else.
    """
    if os.path.exists(out / MANIFEST):
        raise StoreError(f"{out} is the folder of a single run; choose another one for several")
    if is_sweep(out):
        return read_sweep(out)
    with disk_errors(out):
        taken = out.exists() and (not out.is_dir() or any(map(_is_other, out.iterdir())))
    if taken:
        raise StoreError(f"{out} holds other files and no {SWEEP}; choose an empty or new folder")
    return Sweep()


def with_cells(
    out: Path,
    sweep: Sweep,
    models: Sequence[SweepModel],
    sources: Sequence[Source],
    suites: Iterable[Suite],
    chosen: object,
) -> Sweep:
    """The sweep with a cell for every model and source, in their order, and behind them the runs of earlier lines.

    A cell that was asked the same before is as it was.  Of earlier lines that is left whose run is in the folder
    ``out``, without what failed, and suites that it belongs to.  ``chosen``: the part of the data that is asked.
    """
    sweep = _begun(out, sweep, [model.label for model in models], [source.name for source in sources])
    before = {(cell.model, cell.dataset): cell for cell in sweep.cells}
    folders = {cell.model: cell.folder.partition("/")[0] for cell in sweep.cells}
    data = {cell.dataset: cell.folder.partition("/")[2] for cell in sweep.cells}
    cells: dict[tuple[str, str], CellRecord] = {}
    asked_of = {source.name: source.asked for source in sources}
    for model in models:
        folder = folders.setdefault(model.label, free_name(model.folder, folders.values()))
        for source in sources:
            inside = data.setdefault(source.name, free_name(folder_name(Path(source.name).stem), data.values()))
            content = [__version__, model.state, asked_of[source.name], chosen]
            asked = hashlib.sha256(json.dumps(content).encode()).hexdigest()
            new = CellRecord(model.label, source.name, f"{folder}/{inside}", asked)
            old = before.pop((model.label, source.name), None)
            cells[model.label, source.name] = old if old is not None and old.asked == asked else new
    known = {each.name: each for each in sweep.suites} | {each.name: _suite_record(each) for each in suites}
    protocols = dict.fromkeys([*sweep.protocols, *(each for source in sources for each in source.selectors)])
    every = (*cells.values(), *before.values())
    return replace(sweep, protocols=tuple(protocols), suites=tuple(known.values()), cells=every)


def write_begun(out: Path, sweep: Sweep) -> None:
    """Write of ``sweep`` what has a run in the folder ``out``; nothing stays where that is nothing."""
    begun = _begun(out, sweep)
    if begun.cells:
        write_sweep(out, begun)
    else:
        for path in (out / SWEEP, copy_of(out / SWEEP)):
            path.unlink(missing_ok=True)


def _begun(out: Path, sweep: Sweep, models: Sequence[str] = (), datasets: Sequence[str] = ()) -> Sweep:
    """The sweep with the cells that have a run, or are of these models and datasets, and the suites of these."""

    def asked(cell: CellRecord) -> bool:
        return cell.model in models and cell.dataset in datasets

    own = [cell for cell in sweep.cells if asked(cell) or os.path.exists(out / cell.folder / MANIFEST)]
    cells = tuple(cell if cell.done or asked(cell) else replace(cell, failure="") for cell in own)
    there = {cell.dataset for cell in cells}
    suites = tuple(suite for suite in sweep.suites if there & {part.benchmark for part in suite.parts})
    return replace(sweep, cells=cells, suites=suites)


def is_done(out: Path, cell: CellRecord) -> bool:
    """Whether the run of the cell is there and complete, and no question of it is to be asked again."""
    run = out / cell.folder
    try:
        return cell.done and (manifest := read_manifest(run)).complete and not unanswered_keys(run, manifest)
    except StoreError:
        return False


def replaced(sweep: Sweep, cell: CellRecord) -> Sweep:
    """The sweep with this state of the cell."""
    same = cell.model, cell.dataset
    return replace(sweep, cells=tuple(cell if (old.model, old.dataset) == same else old for old in sweep.cells))


def _is_other(path: Path) -> bool:
    """Whether it is nothing that another process writes which begins a sweep in the same folder now."""
    return path.name not in (SWEEP, copy_of(Path(SWEEP)).name) and not path.name.endswith(PARTIAL)


def _suite_record(suite: Suite) -> SuiteRecord:
    parts = tuple(PartRecord(part.benchmark, _spelled(part.protocols), part.unscored) for part in suite.parts)
    return SuiteRecord(suite.name, suite.title, parts, suite.normalised, suite.average)


def _spelled(protocols: Mapping[str, Protocol]) -> dict[str, str]:
    return {name: signature(protocol) for name, protocol in protocols.items()}
