"""The Parquet tables of a run folder, each checked when it is read against what the manifest says of its file."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from choicewise.errors import StoreError
from choicewise.records.format import BLOCK_FOLDER, ITEM_FILE
from choicewise.records.manifest import BlockRecord, FileRecord, Manifest
from choicewise.records.tables import ITEMS, OBSERVATIONS, REQUESTS, SPANS
from choicewise.store.atomic import disk_errors, new_file, new_folder

SCHEMAS = {"requests": REQUESTS, "spans": SPANS, "observations": OBSERVATIONS}
"""The tables of a block."""

Rows = Sequence[tuple[Any, ...]]
"""Typed rows (:mod:`choicewise.records.rows`), whose fields are the columns in the order of the schema."""


def write_table(path: Path, schema: pa.Schema, rows: Rows) -> None:
    """One Parquet file (zstd) of exactly this schema."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    with disk_errors(path):
        pq.write_table(pa.table(arrays, schema=schema), path, compression="zstd")


def fingerprint(content: bytes) -> FileRecord:
    """What the manifest says of a file."""
    return FileRecord(len(content), hashlib.sha256(content).hexdigest())


def read_table(path: Path, schema: pa.Schema, listed: FileRecord | None) -> pa.Table:
    """The table at ``path``, which the manifest describes as ``listed`` (None: not at all).

    Raises StoreError when the file is missing, damaged, was changed since it was written, or has another schema.
    """
    advice = "restore it from a copy, or evaluate again into a new folder"
    try:
        content = path.read_bytes()  # once: what is checked is what is used
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing though the manifest lists it; {advice}") from error
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}; make it readable, or {advice}") from error
    if fingerprint(content) != listed:
        raise StoreError(f"{path} is not the file the manifest describes (size or sha256 differ); {advice}")
    try:
        # Takes half the time of pq.read_table, which opens every file as a data set of its own.
        table = pq.ParquetFile(pa.BufferReader(content)).read()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} is damaged ({error}); {advice}") from error
    if table.schema != schema:
        raise StoreError(f"{path} has another schema than this version of Choicewise writes; {advice}")
    return table


def write_items(run: Path, rows: Rows) -> dict[str, FileRecord]:
    """Write the item table in one step, so that reports need no data folder; returns the file by name."""
    with new_file(run / ITEM_FILE) as partial:
        write_table(partial, ITEMS, rows)
        return {ITEM_FILE: fingerprint(partial.read_bytes())}


def read_items(run: Path, manifest: Manifest) -> pa.Table:
    """The item table of the run folder that ``manifest`` describes; raises StoreError as :func:`read_table`."""
    return read_table(run / ITEM_FILE, ITEMS, manifest.files.get(ITEM_FILE))


def write_block(run: Path, name: str, tables: Mapping[str, Rows]) -> dict[str, FileRecord]:
    """Write the tables of one block in one step; returns the files by name."""
    with new_folder(run / BLOCK_FOLDER / name) as folder:
        for table, schema in SCHEMAS.items():
            write_table(folder / f"{table}.parquet", schema, tables[table])
        return {file.name: fingerprint(file.read_bytes()) for file in sorted(folder.iterdir())}


def read_blocks(run: Path, blocks: Sequence[BlockRecord], table: str) -> pa.Table:
    """One table of all ``blocks``, in their order; raises StoreError as :func:`read_table`."""
    file, schema = f"{table}.parquet", SCHEMAS[table]
    parts = [read_table(run / BLOCK_FOLDER / block.name / file, schema, block.files.get(file)) for block in blocks]
    return pa.concat_tables(parts) if parts else schema.empty_table()
