"""The numbers of a run without its tokens: what pages, boards and reports of many runs read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
import pyarrow as pa

from choicewise.errors import StoreError
from choicewise.records.fault import Fault, Remedy
from choicewise.records.format import ITEM_FILE, SUMMARY
from choicewise.records.manifest import FileRecord, Manifest
from choicewise.results.asked_protocols import asked_protocols
from choicewise.results.item_table import read_item_names
from choicewise.results.outcome import Outcome, OutcomeKeeper, Outcomes
from choicewise.results.row import Row
from choicewise.results.run import Run, open_run
from choicewise.results.run_evidence import RunEvidence
from choicewise.results.summary_file import (
    KeptOutcome,
    SummaryProblem,
    list_summary,
    read_summary,
    stored_outcomes,
    write_summary,
)
from choicewise.store.manifest import read_manifest
from choicewise.store.tables import check_items


@dataclass(frozen=True)
class Summary:
    """What remains of a run for reports about many.

    ``rows``: one per protocol and group under each protocol's own aggregation, not ranked.  ``outcomes``: the credit
    and the prediction of every item under every protocol.
    """

    folder: Path
    manifest: Manifest
    rows: tuple[Row, ...]
    outcomes: Outcomes


def summarize(folder: str | Path) -> Summary:
    """The summary of the run in ``folder``: the kept one where it is of this state of the run, else a new one, kept.

    The folder may be read-only.  Raises StoreError as :func:`choicewise.results.run.open_run`; warns of a file that was
    changed since it was written, and of every block that is damaged and left out: then it keeps nothing.
    """
    path = Path(folder)
    manifest = read_manifest(path)
    kept = read_summary(path, manifest)
    if kept is not None:
        return _summary(path, manifest, kept)
    problem = stored_outcomes(path, manifest)
    if isinstance(problem, SummaryProblem) and not problem.older:
        warn(f"{path / SUMMARY} {problem.words}; the numbers are computed from the observations", stacklevel=2)
    return keep_summary(open_run(path))


def keep_summary(run: Run) -> Summary:
    """The summary of a ``run``, written to its folder where that has none of this state.

    A run under some of its protocols alone is not kept.
    """
    kept, manifest = _computed(run), run.manifest
    if [*run.protocols] == [*manifest.protocols] and not run.evidence.damages:
        manifest = list_summary(run.folder, manifest, kept)
    return _summary(run.folder, manifest, kept)


def summary_fault(folder: Path, manifest: Manifest, whole: bool) -> Fault | None:
    """What is wrong with the file in ``folder``; None where nothing is, or where there is none.

    ``whole``: whether nothing else of the run is damaged; then the numbers are computed again to compare them.
    """
    outcomes = stored_outcomes(folder, manifest)
    if isinstance(outcomes, SummaryProblem):
        words = f"{outcomes.words}; it counts for nothing and is written again"
        return Fault("summary", SUMMARY, words, Remedy.none if outcomes.older else Remedy.write_again)
    for stored, computed in zip(outcomes, _computed(_run(folder, manifest)), strict=True) if outcomes and whole else ():
        if not _alike(_plain(stored), _plain(computed)):
            words = f"says other numbers of {stored.protocol} than follow from the observations"
            return Fault("summary", SUMMARY, words, Remedy.write_again)
    return None


def rewrite_summary(folder: Path, manifest: Manifest) -> dict[str, FileRecord]:
    """Write the file again from the observations, under the folder's lock; returns it by name, to be listed.

    Raises StoreError where blocks are damaged, or where it can't be written.
    """
    run = _run(folder, manifest)
    if run.evidence.damages:
        raise StoreError("it is written again when no block is damaged")
    return write_summary(folder, manifest, _computed(run))


def _run(folder: Path, manifest: Manifest) -> Run:
    return Run(RunEvidence(folder, manifest), asked_protocols(folder, manifest))


def _computed(run: Run) -> list[KeptOutcome]:
    rows = run.rows()
    return [_kept(run, each, rows) for each in OutcomeKeeper().keep(run).outcomes]


def _plain(outcome: KeptOutcome) -> list[Any]:
    """All that an outcome says, in lists, texts and numbers."""
    rows = [asdict(row) for row in outcome.rows]
    arrays = outcome.items, outcome.values[outcome.codes], outcome.predicted
    return [outcome.protocol, outcome.selection, outcome.first, rows, *(array.tolist() for array in arrays)]


def _alike(one: Any, other: Any) -> bool:
    """Whether both say the same, but for the last digits of numbers, which differ between versions of libraries."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def _kept(run: Run, outcome: Outcome, rows: Sequence[Row]) -> KeptOutcome:
    own = tuple(row for row in rows if row.protocol == outcome.name)
    items = run.measurements[outcome.name].evidence.items
    decided = outcome.values, outcome.codes, outcome.predicted, outcome.first
    return KeptOutcome(outcome.name, outcome.selection, own, items, *decided)


def _summary(folder: Path, manifest: Manifest, kept: Sequence[KeptOutcome]) -> Summary:
    check_items(folder, manifest)
    table = _item_names(_ItemFile(manifest.files[ITEM_FILE].sha256, folder))
    protocols = asked_protocols(folder, manifest)
    tables: dict[int, pa.Table] = {}
    outcomes = []
    for each in kept:
        items = tables.setdefault(id(each.items), _at(table, each.items))
        about = (each.protocol, protocols[each.protocol], manifest.dataset.categories, each.selection, items)
        outcomes.append(Outcome(*about, each.values, each.codes, each.predicted, each.first))
    dataset, rows = manifest.dataset, tuple(row for each in kept for row in each.rows)
    return Summary(folder, manifest, rows, Outcomes(manifest.model.name, dataset.name, dataset.digest, tuple(outcomes)))


def _at(table: pa.Table, places: np.ndarray) -> pa.Table:
    return table if len(places) == len(table) else table.take(pa.array(places))


@dataclass(frozen=True)
class _ItemFile:
    """An item file, the same wherever it lies: runs on the same data share what is read of it."""

    sha256: str
    folder: Path = field(compare=False)


@lru_cache(maxsize=8)
def _item_names(file: _ItemFile) -> pa.Table:
    return read_item_names(file.folder)
