"""The summary of a run keeps its numbers and outcomes in one file of its folder.

It follows from the rest of the folder, which never depends on it.  A summary counts for nothing if
it is missing, of another state of the run, of another version of the code, or not the file that the
manifest lists.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import warn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise.errors import StoreError
from choicewise.ports import source_digest
from choicewise.protocols.between import apply_metrics
from choicewise.protocols.protocol import OPEN_AXES, addition_of
from choicewise.records import ITEM_FILE, ITEMS, SUMMARY, BlockRecord, FileRecord, Manifest
from choicewise.results.number import Number
from choicewise.results.outcomes import (
    Outcome,
    OutcomeKeeper,
    Outcomes,
    Summary,
    small_choices,
    small_codes,
)
from choicewise.results.run import Run, asked_protocols, open_run
from choicewise.results.tables import read_item_names
from choicewise.scoring.observed import Floats, Integers
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.store.tables import (
    SCHEMAS,
    block_file,
    check_items,
    damage,
    damaged_blocks,
    file_record,
    read_listed,
    read_metadata,
)
from choicewise.util.files import locked, new_file
from choicewise.util.tables import open_parquet, unpacked, write_parquet

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def summarize(folder: str | Path, metrics: Sequence[str] = (), alone: bool = False) -> Summary:
    """Return the summary of the run in ``folder``.

    The kept one is returned if it is of this state of the run, else a new one.  ``metrics``: add
    numbers under these metrics, or give them ``alone``; nothing of that is kept, and a metric that
    no protocol can have is left out and is in ``applied``.  The folder may be read-only.  Raises
    StoreError as :func:`choicewise.results.run.open_run` and UsageError for an unknown metric.
    Warns of a file that was changed since it was written, and of every block that is damaged and
    left out: then nothing is kept.
    """
    path = Path(folder)
    if metrics:
        return _under_metrics(path, metrics, alone)
    manifest = read_manifest(path)
    stored = read_summary(path, manifest)
    if stored is not None:
        return _summary(path, manifest, stored)
    problem = _stored_outcomes(path, manifest)
    if isinstance(problem, SummaryProblem) and not problem.older:
        warn(
            f"{path / SUMMARY} {problem.words}; the numbers are computed from the observations",
            stacklevel=2,
        )
    return keep_summary(open_run(path))


def keep_summary(run: Run) -> Summary:
    """Return the summary of a ``run``, written to its folder if that has none of this state.

    Nothing is kept of a run under a part of its protocols.
    """
    stored = _computed(run)
    manifest = run.manifest
    if list(run.protocols) == list(manifest.protocols) and not run.evidence.damages:
        manifest = _list_summary(run.folder, manifest, stored)
    return _summary(run.folder, manifest, stored)


def summary_problem(folder: Path, manifest: Manifest) -> SummaryProblem | None:
    """Return why the file in ``folder`` is not believed; None if it is, or if there is none."""
    outcomes = _stored_outcomes(folder, manifest)
    return outcomes if isinstance(outcomes, SummaryProblem) else None


def other_numbers(folder: Path, manifest: Manifest) -> str:
    """Return the first protocol whose numbers in the file differ from those computed again.

    Empty if there is none, or no file that is believed.
    """
    outcomes = _stored_outcomes(folder, manifest)
    if outcomes is None or isinstance(outcomes, SummaryProblem):
        return ""
    for stored, computed in zip(outcomes, _computed(open_run(folder)), strict=True):
        if not _agree(_plain(stored), _plain(computed)):
            return stored.protocol
    return ""


SOURCES = (
    "data",
    "protocols",
    "questions.py",
    "records.py",
    "requests",
    "results",
    "scoring",
    "store",
    "thoughts.py",
    "tokens",
    "util",
)
"""The parts of the package that decide the numbers of a run: all that reading a run imports."""


def state(manifest: Manifest) -> str:
    """Return the sha256 (64 hex) of the code and the manifest.

    The names, the time and the summary in the manifest do not count.
    """
    files = {name: file for name, file in manifest.files.items() if name != SUMMARY}
    unnamed = replace(
        manifest,
        model=replace(manifest.model, name=""),
        dataset=replace(manifest.dataset, name=""),
        engine=replace(manifest.engine, spent=None),
        job={},
        command=(),
        files=files,
    )
    content = unnamed.stored()
    # The keys of JSON are sorted, and the order of the protocols counts.
    content["protocols"] = list(manifest.protocols.items())
    code = _code() + _code_of_extensions(manifest)
    return hashlib.sha256(f"{code}{json.dumps(content, sort_keys=True)}".encode()).hexdigest()


def read_summary(folder: Path, manifest: Manifest) -> list[_Stored] | None:
    """Return what the summary in ``folder`` holds of this state of the run; None if unusable."""
    outcomes = _stored_outcomes(folder, manifest)
    if isinstance(outcomes, SummaryProblem) or outcomes is None:
        return None
    with suppress(OSError):
        if _is_whole(folder, manifest.blocks, folder / SUMMARY):
            return outcomes
    return None


def _under_metrics(folder: Path, metrics: Sequence[str], alone: bool) -> Summary:
    run = open_run(folder)
    applied = apply_metrics(run.protocols, metrics)
    protocols = dict(applied.protocols)
    if not alone:
        # The summary of the run has these numbers.
        measured = set(run.protocols.values())
        protocols = {name: one for name, one in protocols.items() if one not in measured}
    part = run.under(protocols)
    rows = tuple(part.rows())
    outcomes = OutcomeKeeper().keep(part)
    run.release()
    if alone:
        return Summary(
            folder=folder, manifest=run.manifest, rows=rows, outcomes=outcomes, applied=applied
        )
    summary = summarize(folder)
    joined = (*summary.outcomes.outcomes, *outcomes.outcomes)
    return replace(
        summary,
        rows=(*summary.rows, *rows),
        outcomes=replace(summary.outcomes, outcomes=joined),
        applied=applied,
    )


def _computed(run: Run) -> list[_Stored]:
    rows = run.rows()
    outcomes = OutcomeKeeper().keep(run).outcomes
    return [_stored(run, outcome, rows) for outcome in outcomes]


def _plain(outcome: _Stored) -> list[Any]:
    """Return all content of an outcome in lists, texts and numbers."""
    return [
        outcome.protocol,
        outcome.selection,
        outcome.first,
        [asdict(row) for row in outcome.rows],
        outcome.items.tolist(),
        outcome.values[outcome.codes].tolist(),
        outcome.predicted.tolist(),
    ]


def _agree(one: Any, other: Any) -> bool:
    """Check that both are equal, but for the last digits of numbers."""
    # Versions of libraries compute other last digits.
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_agree, one, other))
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) and math.isnan(other):
            return True
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


def _stored(run: Run, outcome: Outcome, rows: Sequence[Number]) -> _Stored:
    return _Stored(
        protocol=outcome.name,
        selection=outcome.selection,
        rows=tuple(row for row in rows if row.identity.protocol == outcome.name),
        items=run.measurements[outcome.name].evidence.items,
        values=outcome.values,
        codes=outcome.codes,
        predicted=outcome.predicted,
        first=outcome.first,
    )


def _summary(folder: Path, manifest: Manifest, stored: Sequence[_Stored]) -> Summary:
    check_items(folder, manifest)
    names = _item_names(_ItemFile(manifest.files[ITEM_FILE].sha256, folder))
    protocols = asked_protocols(folder, manifest)
    # Outcomes over the same items share a table: whether they do is tested by identity.
    tables: dict[int, pa.Table] = {}
    outcomes = []
    rows: list[Number] = []
    for part in stored:
        table = tables.get(id(part.items))
        if table is None:
            table = names
            if len(part.items) != len(names):
                table = names.take(pa.array(part.items))
            tables[id(part.items)] = table
        rows += part.rows
        outcomes.append(
            Outcome(
                name=part.protocol,
                protocol=protocols[part.protocol],
                categories=manifest.dataset.categories,
                selection=part.selection,
                items=table,
                values=part.values,
                codes=part.codes,
                predicted=part.predicted,
                first=part.first,
            )
        )
    dataset = manifest.dataset
    return Summary(
        folder=folder,
        manifest=manifest,
        rows=tuple(rows),
        outcomes=Outcomes(manifest.model.name, dataset.name, dataset.digest, tuple(outcomes)),
    )


@dataclass(frozen=True)
class _ItemFile:
    """Name an item file by its content: runs on the same data share the table that is read."""

    sha256: str
    folder: Path = field(compare=False)


@lru_cache(maxsize=8)
def _item_names(file: _ItemFile) -> pa.Table:
    return read_item_names(file.folder)


_KEY = b"choicewise.state"


class _Stored(NamedTuple):
    """Hold the numbers of one protocol and its decision of every item.

    ``items``: the indices of its items in the item table; ``values``: the different credits, of
    which ``codes`` names one per item; ``predicted``: the predicted choice of every item, -1 for
    none; ``first``: the digest of the first protocol that it can't differ from.
    """

    protocol: str
    selection: str
    rows: tuple[Number, ...]
    items: Integers
    values: Floats
    codes: npt.NDArray[Any]
    predicted: npt.NDArray[Any]
    first: str


_SCHEMA = pa.schema(
    {
        "protocol": pa.string(),
        "selection": pa.string(),
        "rows": pa.string(),
        "items": pa.list_(pa.int32()),
        "values": pa.list_(pa.float64()),
        "codes": pa.list_(pa.int32()),
        "predicted": pa.list_(pa.int16()),
        "first": pa.string(),
    }
)
"""One row per protocol; ``items`` is null if they are those of the protocol before."""


class SummaryProblem(NamedTuple):
    """Say why a summary is not believed, in ``words`` that follow its path.

    ``older``: it is only of another state of the run or another version, which is no damage.
    """

    words: str
    older: bool = False


def _stored_outcomes(folder: Path, manifest: Manifest) -> list[_Stored] | SummaryProblem | None:
    """Return what the file in ``folder`` holds, or why it is not believed; None if there is none.

    It is believed if it is the file that ``manifest`` lists, and fits this state of the run in
    every value.
    """
    path = folder / SUMMARY
    listed = manifest.files.get(SUMMARY)
    if not os.path.lexists(path):
        return None
    problem = damage(path, listed)
    if problem is not None:
        return SummaryProblem(problem)
    try:
        content = io.BytesIO(read_listed(path, listed))
        file = open_parquet(content)
        if (file.schema_arrow.metadata or {}).get(_KEY) != state(manifest).encode():
            return SummaryProblem("is of another state of the run or another version", older=True)
        if not file.schema_arrow.equals(_SCHEMA):
            return SummaryProblem("has other columns than it should")
        unpacked(content)
        items = read_metadata(folder / ITEM_FILE, ITEMS)[0].num_rows
        return _outcomes(file.read(use_threads=False), manifest, items)
    except StoreError:
        # The item table is damaged, which is an error for its reader and none of the summary.
        return None
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        first_line = str(error).partition("\n")[0]
        return SummaryProblem(f"can't be used ({first_line})")


def _list_summary(folder: Path, manifest: Manifest, outcomes: Sequence[_Stored]) -> Manifest:
    """Write the summary unless it is there, list it in the manifest, and return the manifest.

    Nothing is written if the folder is read-only, if another process writes to it, or if the run
    has changed.
    """
    with suppress(StoreError), locked(folder):
        now = read_manifest(folder)
        if state(now) != state(manifest):
            return manifest
        manifest = now
        if read_summary(folder, now) is None:
            files = now.files | _write_summary(folder, now, outcomes)
            listed = replace(now, files=files)
            write_manifest(folder, listed)
            manifest = listed
    return manifest


def _write_summary(
    folder: Path, manifest: Manifest, outcomes: Sequence[_Stored]
) -> dict[str, FileRecord]:
    """Replace the file, and return its record by name; StoreError if it can't be written."""
    table = _table(outcomes).replace_schema_metadata({_KEY: state(manifest).encode()})
    with new_file(folder / SUMMARY) as partial:
        write_parquet(partial, table, statistics=False)
        return {SUMMARY: file_record(partial)}


def _table(outcomes: Sequence[_Stored]) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
    items: Integers | None = None
    for outcome in outcomes:
        is_repeated = items is not None and np.array_equal(items, outcome.items)
        items = outcome.items
        columns["protocol"].append(outcome.protocol)
        columns["selection"].append(outcome.selection)
        columns["rows"].append(json.dumps([asdict(row) for row in outcome.rows]))
        columns["items"].append(None if is_repeated else items)
        columns["values"].append(outcome.values)
        columns["codes"].append(outcome.codes)
        columns["predicted"].append(outcome.predicted)
        columns["first"].append(outcome.first)
    return pa.table(columns, schema=_SCHEMA)


def _outcomes(table: pa.Table, manifest: Manifest, count: int) -> list[_Stored]:
    """Return the outcomes in ``table``, of a run with ``count`` items.

    ValueError if they don't fit.
    """
    _check_cells(table)
    if table["protocol"].to_pylist() != list(manifest.protocols):
        raise ValueError("its protocols are not those of the run")
    outcomes = []
    items = np.zeros(0, dtype=np.int64)
    for index in range(len(table)):
        cells = {name: table[name][index] for name in table.column_names}
        if cells["items"].is_valid:
            items = cells["items"].values.to_numpy().astype(np.int64)
        values = cells["values"].values.to_numpy()
        codes = cells["codes"].values.to_numpy()
        predicted = cells["predicted"].values.to_numpy()
        if not len(items) == len(codes) == len(predicted):
            raise ValueError("its columns are of several lengths")
        are_items = _within(items, 0, count)
        are_codes = _within(codes, 0, len(values))
        if not are_items or not are_codes or predicted.min(initial=-1) < -1:
            raise ValueError("it names what is not there")
        protocol = cells["protocol"].as_py()
        outcomes.append(
            _Stored(
                protocol=protocol,
                selection=cells["selection"].as_py(),
                rows=_read_rows(cells["rows"].as_py(), protocol, manifest),
                items=items,
                values=values,
                codes=small_codes(codes, len(values)),
                predicted=small_choices(predicted),
                first=cells["first"].as_py(),
            )
        )
    return outcomes


def _read_rows(text: str, protocol: str, manifest: Manifest) -> tuple[Number, ...]:
    """Return the numbers in JSON, under the names that ``manifest`` gives model and data.

    ValueError for others.
    """
    rows = []
    for row in _row_reader().validate_json(text):
        if row.identity.protocol != protocol:
            raise ValueError("its protocols are not those of the run")
        identity = replace(row.identity, model=manifest.model.name, dataset=manifest.dataset.name)
        rows.append(replace(row, identity=identity))
    return tuple(rows)


def _check_cells(table: pa.Table) -> None:
    """Raise ValueError if a cell is empty that has a value in every summary."""
    for name in table.column_names:
        column = table[name].combine_chunks()
        values = column.flatten() if pa.types.is_list(column.type) else column
        has_empty_cells = values.null_count > 0
        if column.null_count:
            # Items may repeat those of the row before, but not in the first row.
            has_empty_cells |= name != "items" or not column[0].is_valid
        if has_empty_cells:
            raise ValueError(f"its column {name} has empty cells")


def _within(numbers: npt.NDArray[Any], low: int, high: int) -> bool:
    return not len(numbers) or bool(low <= numbers.min() and numbers.max() < high)


@cache
def _row_reader() -> TypeAdapter[tuple[Number, ...]]:
    from pydantic import TypeAdapter

    return TypeAdapter(tuple[Number, ...])


def _is_whole(folder: Path, blocks: Sequence[BlockRecord], summary: Path) -> bool:
    """Check that no block was damaged since the ``summary`` was written."""
    # Only files that changed later are read.  The time of the change of their records counts, too:
    # a copy can have the times of another file.
    written = summary.stat().st_mtime_ns
    changed = []
    for block in blocks:
        if any(_changed(block_file(folder, block, table)) >= written for table in SCHEMAS):
            changed.append(block)
    if damaged_blocks(folder, changed):
        return False
    # So that they are not read again the next time.
    if changed:
        with suppress(OSError):
            summary.touch()
    return True


def _changed(file: Path) -> int:
    """Return when the file or its record in the folder changed last, in nanoseconds."""
    stat = file.stat()
    return max(stat.st_mtime_ns, stat.st_ctime_ns)


def _code_of_extensions(manifest: Manifest) -> str:
    """Return the digests of what extensions add to the protocols of a run."""
    digests = []
    for signature in manifest.protocols.values():
        for axis in OPEN_AXES:
            value = signature.partition(f"|{axis}:")[2].partition("|")[0]
            addition = addition_of(axis, value)
            if addition is not None:
                digests.append(source_digest(addition))
    return "".join(digests)


@cache
def _code() -> str:
    """Return the sha256 (64 hex) of the source of the rooms that compute."""
    package = Path(__file__).parents[1]
    files: set[Path] = set()
    for room in SOURCES:
        pattern = room if room.endswith(".py") else f"{room}/**/*.py"
        files.update(package.rglob(pattern))
    digest = hashlib.sha256()
    for file in sorted(files):
        name = file.relative_to(package).as_posix()
        digest.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
