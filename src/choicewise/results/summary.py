"""The summary of a run: its numbers and outcomes in one file of its folder.

It follows from the rest of the folder, which never depends on it: one that is missing, of another state of the run or
of another version of the code counts for nothing, nor does one that is not the file that the manifest lists.
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
    """The summary of the run in ``folder``: the kept one where it is of this state of the run, else a new one, kept.

    ``metrics``: with what these are made of under its protocols as well, or ``alone``; nothing of that is kept, and a
    metric that no protocol can have is left out and stands in ``applied``.  The folder may be read-only.  Raises
    StoreError as :func:`choicewise.results.run.open_run` and UsageError for an unknown metric; warns of a file that was
    changed since it was written, and of every block that is damaged and left out: then it keeps nothing.
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
    """The summary of a ``run``, written to its folder where that has none of this state.

    A run under some of its protocols alone is not kept.
    """
    stored, manifest = _computed(run), run.manifest
    if [*run.protocols] == [*manifest.protocols] and not run.evidence.damages:
        manifest = _list_summary(run.folder, manifest, stored)
    return _summary(run.folder, manifest, stored)


def summary_problem(folder: Path, manifest: Manifest) -> SummaryProblem | None:
    """Return why the file in ``folder`` is not believed; None if it is, or if there is none."""
    outcomes = _stored_outcomes(folder, manifest)
    return outcomes if isinstance(outcomes, SummaryProblem) else None


def other_numbers(folder: Path, manifest: Manifest) -> str:
    """Return the first protocol of which the file says other numbers than the observations, computed again, do.

    Empty if there is none, or no file that is believed.
    """
    outcomes = _stored_outcomes(folder, manifest)
    if outcomes is None or isinstance(outcomes, SummaryProblem):
        return ""
    for stored, computed in zip(outcomes, _computed(open_run(folder)), strict=True):
        if not _alike(_plain(stored), _plain(computed)):
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
"""The parts of the package that decide what follows from a run folder: all that reading a run imports."""


def state(manifest: Manifest) -> str:
    """sha256 (64 hex) of what decides the numbers: the code, and the manifest but for names, time and the summary."""
    renamed = replace(
        manifest,
        model=replace(manifest.model, name=""),
        dataset=replace(manifest.dataset, name=""),
        job={},
        command=(),
        files={name: file for name, file in manifest.files.items() if name != SUMMARY},
    )
    content = replace(renamed, engine=replace(manifest.engine, spent=None)).stored()
    content["protocols"] = list(manifest.protocols.items())
    code = _code() + _code_of_extensions(manifest)
    return hashlib.sha256(f"{code}{json.dumps(content, sort_keys=True)}".encode()).hexdigest()


def read_summary(folder: Path, manifest: Manifest) -> list[_Stored] | None:
    """What the file in ``folder`` holds of this state of the run; None where it holds nothing that can be used."""
    outcomes = _stored_outcomes(folder, manifest)
    if isinstance(outcomes, SummaryProblem) or outcomes is None:
        return None
    with suppress(OSError):
        return outcomes if _whole(folder, manifest.blocks, folder / SUMMARY) else None
    return None


def _under_metrics(folder: Path, metrics: Sequence[str], alone: bool) -> Summary:
    run = open_run(folder)
    applied = apply_metrics(run.protocols, metrics)
    own = {protocol for protocol in run.protocols.values() if not alone}
    part = run.under(
        {name: protocol for name, protocol in applied.protocols.items() if protocol not in own}
    )
    rows, outcomes = tuple(part.rows()), OutcomeKeeper().keep(part)
    run.release()
    if alone:
        return Summary(
            folder=folder, manifest=run.manifest, rows=rows, outcomes=outcomes, applied=applied
        )
    known = summarize(folder)
    every = replace(known.outcomes, outcomes=(*known.outcomes.outcomes, *outcomes.outcomes))
    return replace(known, rows=(*known.rows, *rows), outcomes=every, applied=applied)


def _computed(run: Run) -> list[_Stored]:
    rows = run.rows()
    return [_stored(run, each, rows) for each in OutcomeKeeper().keep(run).outcomes]


def _plain(outcome: _Stored) -> list[Any]:
    """All that an outcome says, in lists, texts and numbers."""
    rows = [asdict(row) for row in outcome.rows]
    arrays = outcome.items, outcome.values[outcome.codes], outcome.predicted
    return [
        outcome.protocol,
        outcome.selection,
        outcome.first,
        rows,
        *(array.tolist() for array in arrays),
    ]


def _alike(one: Any, other: Any) -> bool:
    """Whether both say the same, but for the last digits of numbers, which differ between versions of libraries."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (
            math.isnan(one) and math.isnan(other)
        )
    return bool(one == other)


def _stored(run: Run, outcome: Outcome, rows: Sequence[Number]) -> _Stored:
    own = tuple(row for row in rows if row.identity.protocol == outcome.name)
    items = run.measurements[outcome.name].evidence.items
    return _Stored(
        protocol=outcome.name,
        selection=outcome.selection,
        rows=own,
        items=items,
        values=outcome.values,
        codes=outcome.codes,
        predicted=outcome.predicted,
        first=outcome.first,
    )


def _summary(folder: Path, manifest: Manifest, stored: Sequence[_Stored]) -> Summary:
    check_items(folder, manifest)
    table = _item_names(_ItemFile(manifest.files[ITEM_FILE].sha256, folder))
    protocols = asked_protocols(folder, manifest)
    tables: dict[int, pa.Table] = {}
    outcomes = []
    for each in stored:
        if id(each.items) not in tables:
            tables[id(each.items)] = (
                table if len(each.items) == len(table) else table.take(pa.array(each.items))
            )
        outcomes.append(
            Outcome(
                name=each.protocol,
                protocol=protocols[each.protocol],
                categories=manifest.dataset.categories,
                selection=each.selection,
                items=tables[id(each.items)],
                values=each.values,
                codes=each.codes,
                predicted=each.predicted,
                first=each.first,
            )
        )
    dataset, rows = manifest.dataset, tuple(row for each in stored for row in each.rows)
    return Summary(
        folder=folder,
        manifest=manifest,
        rows=rows,
        outcomes=Outcomes(manifest.model.name, dataset.name, dataset.digest, tuple(outcomes)),
    )


@dataclass(frozen=True)
class _ItemFile:
    """An item file, the same wherever it lies: runs on the same data share what is read of it."""

    sha256: str
    folder: Path = field(compare=False)


@lru_cache(maxsize=8)
def _item_names(file: _ItemFile) -> pa.Table:
    return read_item_names(file.folder)


_KEY = b"choicewise.state"


class _Stored(NamedTuple):
    """The rows of one protocol and its decision of every item.

    ``items``: the places of its items in the item table; ``values``: the different credits, of which ``codes`` names
    one per item; ``predicted``: the predicted choice of every item, -1 for none; ``first``: the digest of the first
    protocol that it can't differ from.
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
    }
    | {
        "values": pa.list_(pa.float64()),
        "codes": pa.list_(pa.int32()),
        "predicted": pa.list_(pa.int16()),
    }
    | {"first": pa.string()}
)
"""One row per protocol; ``items`` is null where they are those of the protocol before."""


class SummaryProblem(NamedTuple):
    """Why a summary is not believed, in ``words`` that follow its path.

    ``older``: whether it is only of another state of the run or another version, which is no damage.
    """

    words: str
    older: bool = False


def _stored_outcomes(folder: Path, manifest: Manifest) -> list[_Stored] | SummaryProblem | None:
    """What the file in ``folder`` holds, or why it is not believed; None where there is none.

    It is believed where it is the file that ``manifest`` lists, and fits to this state of the run in every value.
    """
    path, listed = folder / SUMMARY, manifest.files.get(SUMMARY)
    if not os.path.lexists(path):
        return None
    if (problem := damage(path, listed)) is not None:
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
        return None  # of the item table, which whoever reads it names
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        return SummaryProblem(f"can't be used ({str(error).partition(chr(10))[0]})")


def _list_summary(folder: Path, manifest: Manifest, outcomes: Sequence[_Stored]) -> Manifest:
    """Replace the file unless it holds this already, then list it in the manifest; returns what that says now.

    Nothing is written where the folder can't be, where another process writes to it, or where the run has changed.
    """
    with suppress(StoreError), locked(folder):
        now = read_manifest(folder)
        if state(now) == state(manifest):
            manifest = now
            if read_summary(folder, now) is None:
                listed = replace(now, files={**now.files, **_write_summary(folder, now, outcomes)})
                write_manifest(folder, listed)
                manifest = listed
    return manifest


def _write_summary(
    folder: Path, manifest: Manifest, outcomes: Sequence[_Stored]
) -> dict[str, FileRecord]:
    """Replace the file, and return it by name, to be listed in the manifest.  StoreError where it can't be written."""
    table = _table(outcomes).replace_schema_metadata({_KEY: state(manifest).encode()})
    with new_file(folder / SUMMARY) as partial:
        write_parquet(partial, table, statistics=False)
        return {SUMMARY: file_record(partial)}


def _table(outcomes: Sequence[_Stored]) -> pa.Table:
    before: Integers | None = None
    columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
    for each in outcomes:
        repeated = before is not None and np.array_equal(before, each.items)
        rows = json.dumps([asdict(row) for row in each.rows])
        cells = each._asdict() | {"rows": rows, "items": None if repeated else each.items}
        before = each.items
        for name, cell in cells.items():
            columns[name].append(cell)
    return pa.table(columns, schema=_SCHEMA)


def _outcomes(table: pa.Table, manifest: Manifest, count: int) -> list[_Stored]:
    """The outcomes in ``table``, of a run with ``count`` items.  ValueError where they don't fit."""
    _check_cells(table)
    model, dataset = manifest.model.name, manifest.dataset.name
    outcomes, items = list[_Stored](), np.zeros(0, dtype=np.int64)
    for place in range(len(table)):
        cells = {name: table[name][place] for name in table.column_names}
        if cells["items"].is_valid:
            items = cells["items"].values.to_numpy().astype(np.int64)
        rows = tuple(
            replace(row, identity=replace(row.identity, model=model, dataset=dataset))
            for row in _row_reader().validate_json(cells["rows"].as_py())
        )
        values, codes, predicted = (
            cells[name].values.to_numpy() for name in ("values", "codes", "predicted")
        )
        if not len(items) == len(codes) == len(predicted):
            raise ValueError("its columns are of several lengths")
        if not (
            _within(items, 0, count)
            and _within(codes, 0, len(values))
            and predicted.min(initial=-1) >= -1
        ):
            raise ValueError("it names what is not there")
        outcomes.append(
            _Stored(
                protocol=cells["protocol"].as_py(),
                selection=cells["selection"].as_py(),
                rows=rows,
                items=items,
                values=values,
                codes=small_codes(codes, len(values)),
                predicted=small_choices(predicted),
                first=cells["first"].as_py(),
            )
        )
    names = [each.protocol for each in outcomes]
    if names != [*manifest.protocols] or any(
        row.identity.protocol != each.protocol for each in outcomes for row in each.rows
    ):
        raise ValueError("its protocols are not those of the run")
    return outcomes


def _check_cells(table: pa.Table) -> None:
    """ValueError where a cell is empty that has a value in every summary."""
    for name in table.column_names:
        column = table[name].combine_chunks()
        values = column.flatten() if pa.types.is_list(column.type) else column
        if values.null_count or (column.null_count and (name != "items" or not column[0].is_valid)):
            raise ValueError(f"its column {name} has empty cells")


def _within(numbers: npt.NDArray[Any], low: int, high: int) -> bool:
    return not len(numbers) or bool(low <= numbers.min() and numbers.max() < high)


@cache
def _row_reader() -> TypeAdapter[tuple[Number, ...]]:
    from pydantic import TypeAdapter

    return TypeAdapter(tuple[Number, ...])


def _whole(folder: Path, blocks: Sequence[BlockRecord], summary: Path) -> bool:
    """Whether no block was damaged since the ``summary`` was written: files that changed later are read and checked.

    As are those that were copied with the times of others.
    """
    written = summary.stat().st_mtime_ns
    changed = [
        block
        for block in blocks
        if any(_changed(block_file(folder, block, table)) >= written for table in SCHEMAS)
    ]
    if damaged_blocks(folder, changed):
        return False
    if changed:
        with suppress(OSError):
            summary.touch()
    return True


def _changed(file: Path) -> int:
    """When the file, or what is known of it, changed last, in nanoseconds."""
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
    """sha256 (64 hex) of the source of the rooms that compute."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(
        file
        for room in SOURCES
        for file in package.rglob(room if room.endswith(".py") else f"{room}/**/*.py")
    ):
        digest.update(
            f"{file.relative_to(package).as_posix()}\0".encode() + file.read_bytes() + b"\0"
        )
    return digest.hexdigest()
