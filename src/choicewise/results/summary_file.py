"""The file ``summary.parquet`` of a run folder: the numbers of one state of the run, so that none is computed twice.

It follows from the rest of the folder, which never depends on it: one that is missing, damaged, of another state of the
run or of another version of the code counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from choicewise.errors import StoreError
from choicewise.records.format import SUMMARY
from choicewise.records.manifest import BlockRecord, Manifest
from choicewise.results.outcome import small_choices, small_codes
from choicewise.results.row import Row
from choicewise.scoring.ragged import Floats, Integers
from choicewise.store.atomic import new_file
from choicewise.store.damage import damaged_blocks
from choicewise.store.tables import SCHEMAS, block_file

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ROOMS = ("data", "protocols", "questions", "records", "requests", "results", "scoring", "store", "tokens")
"""The rooms of the package that decide what follows from a run folder: all that reading a run imports."""

_KEY = b"choicewise.state"


class KeptOutcome(NamedTuple):
    """The rows of one protocol and its decision of every item.

    ``items``: the places of its items in the item table; ``values``: the different credits, of which ``codes`` names
    one per item; ``predicted``: the predicted choice of every item, -1 for none; ``first``: the digest of the first
    protocol that it can't differ from.
    """

    protocol: str
    selection: str
    rows: tuple[Row, ...]
    items: Integers
    values: Floats
    codes: npt.NDArray[Any]
    predicted: npt.NDArray[Any]
    first: str


_SCHEMA = pa.schema(
    {"protocol": pa.string(), "selection": pa.string(), "rows": pa.string(), "items": pa.list_(pa.int32())}
    | {"values": pa.list_(pa.float64()), "codes": pa.list_(pa.int32()), "predicted": pa.list_(pa.int16())}
    | {"first": pa.string()}
)
"""One row per protocol; ``items`` is null where they are those of the protocol before."""


def state(manifest: Manifest) -> str:
    """sha256 (64 hex) of what decides the numbers: the manifest, but for names and time spent, and the code."""
    renamed = replace(
        manifest, model=replace(manifest.model, name=""), dataset=replace(manifest.dataset, name=""), command=()
    )
    content = asdict(replace(renamed, engine=replace(manifest.engine, spent=None)))
    content["protocols"] = list(manifest.protocols.items())
    return hashlib.sha256(f"{_code()}{json.dumps(content, sort_keys=True)}".encode()).hexdigest()


def read_summary(folder: Path, manifest: Manifest) -> list[KeptOutcome] | None:
    """What the file in ``folder`` holds of this state of the run; None where it holds nothing that can be used."""
    path = folder / SUMMARY
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            known = file.schema_arrow.metadata or {}
            if known.get(_KEY) != state(manifest).encode() or not file.schema_arrow.equals(_SCHEMA):
                return None
            table = file.read(use_threads=False)
        return _outcomes(table, manifest) if _whole(folder, manifest.blocks, path) else None
    except (pa.ArrowException, OSError, ValueError, TypeError):
        return None


def summary_problem(folder: Path, manifest: Manifest) -> str | None:
    """What is wrong with the file in ``folder``; None where nothing is, or where there is none.

    It is never believed where something is: then the numbers are computed again, and it is written again.
    """
    path = folder / SUMMARY
    if not path.exists():
        return None
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            known = (file.schema_arrow.metadata or {}).get(_KEY)
            if known != state(manifest).encode():
                return "is of another state of the run or another version; it counts for nothing and is written again"
            if not file.schema_arrow.equals(_SCHEMA):
                return "has other columns than it should; it counts for nothing and is written again"
            _outcomes(file.read(use_threads=False), manifest)
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        return f"can't be read ({str(error).splitlines()[0]}); it counts for nothing and is written again"
    return None


def write_summary(folder: Path, manifest: Manifest, outcomes: Sequence[KeptOutcome]) -> None:
    """Replace the file; nothing where the folder can't be written."""
    table = _table(outcomes).replace_schema_metadata({_KEY: state(manifest).encode()})
    with suppress(StoreError), new_file(folder / SUMMARY) as partial:
        pq.write_table(table, partial, compression="zstd", write_statistics=False, write_page_checksum=True)


def _table(outcomes: Sequence[KeptOutcome]) -> pa.Table:
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


def _outcomes(table: pa.Table, manifest: Manifest) -> list[KeptOutcome]:
    model, dataset = manifest.model.name, manifest.dataset.name
    outcomes, items = list[KeptOutcome](), np.zeros(0, dtype=np.int64)
    for place in range(len(table)):
        cells = {name: table[name][place] for name in table.column_names}
        if cells["items"].is_valid:
            items = cells["items"].values.to_numpy().astype(np.int64)
        rows = tuple(
            replace(row, model=model, dataset=dataset) for row in _row_reader().validate_json(cells["rows"].as_py())
        )
        values, codes, predicted = (cells[name].values.to_numpy() for name in ("values", "codes", "predicted"))
        decided = values, small_codes(codes, len(values)), small_choices(predicted), cells["first"].as_py()
        outcomes.append(KeptOutcome(cells["protocol"].as_py(), cells["selection"].as_py(), rows, items, *decided))
    return outcomes


@cache
def _row_reader() -> TypeAdapter[tuple[Row, ...]]:
    from pydantic import TypeAdapter

    return TypeAdapter(tuple[Row, ...])


def _whole(folder: Path, blocks: Sequence[BlockRecord], summary: Path) -> bool:
    """Whether no block was damaged since the ``summary`` was written: files that changed later are read and checked.

    As are those that were copied with the times of others.
    """
    written = summary.stat().st_mtime_ns
    changed = [
        block for block in blocks if any(_changed(block_file(folder, block, table)) >= written for table in SCHEMAS)
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


@cache
def _code() -> str:
    """sha256 (64 hex) of the source of the rooms that compute."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(file for room in ROOMS for file in (package / room).rglob("*.py")):
        digest.update(f"{file.relative_to(package).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
