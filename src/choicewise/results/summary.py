"""The numbers of a run without its tokens: what pages, boards and reports of many runs read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from choicewise.records.format import ITEM_FILE
from choicewise.records.manifest import Manifest
from choicewise.results.asked_protocols import asked_protocols
from choicewise.results.item_table import read_item_names
from choicewise.results.outcome import Outcome, OutcomeKeeper, Outcomes
from choicewise.results.row import Row
from choicewise.results.run import Run, open_run
from choicewise.results.summary_file import KeptOutcome, read_summary, write_summary
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

    The folder may be read-only.  Raises StoreError as :func:`choicewise.results.run.open_run`; warns of every block
    that is damaged and left out, and then keeps nothing.
    """
    path = Path(folder)
    manifest = read_manifest(path)
    kept = read_summary(path, manifest)
    return keep_summary(open_run(path)) if kept is None else _summary(path, manifest, kept)


def keep_summary(run: Run) -> Summary:
    """The summary of a ``run``, written to its folder where that has none of this state.

    A run under some of its protocols alone is not kept.
    """
    rows = run.rows()
    kept = [_kept(run, each, rows) for each in OutcomeKeeper().keep(run).outcomes]
    every = run.protocols.keys() == run.manifest.protocols.keys()
    if every and not run.evidence.damages and read_summary(run.folder, run.manifest) is None:
        write_summary(run.folder, run.manifest, kept)
    return _summary(run.folder, run.manifest, kept)


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
