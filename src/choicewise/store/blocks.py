"""Blocks on disk: three Parquet tables a block, each checked against the manifest when it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from choicewise.errors import StoreError
from choicewise.store.atomic import disk_errors, new_folder
from choicewise.store.manifest import Block
from choicewise.store.schema import OBSERVATIONS, REQUESTS, SPANS

FOLDER = "blocks"
SCHEMAS = {"requests": REQUESTS, "spans": SPANS, "observations": OBSERVATIONS}

Rows = Sequence[Mapping[str, Any]]
"""One mapping a row, from column to value."""


def write_block(run: Path, name: str, tables: Mapping[str, Rows]) -> dict[str, dict[str, Any]]:
    """Write the tables of one block in one step; returns file name → bytes and sha256, as the manifest lists them."""
    with new_folder(run / FOLDER / name) as folder:
        for table, schema in SCHEMAS.items():
            write_table(folder / f"{table}.parquet", schema, tables[table])
        return {file.name: _fingerprint(file.read_bytes()) for file in sorted(folder.iterdir())}


def write_table(path: Path, schema: pa.Schema, rows: Rows) -> None:
    """One Parquet file (zstd) of exactly this schema."""
    columns = {column.name: pa.array([row[column.name] for row in rows], column.type) for column in schema}
    with disk_errors(path):
        pq.write_table(pa.table(columns, schema=schema), path, compression="zstd")


def read_blocks(run: Path, blocks: Sequence[Block], table: str) -> pa.Table:
    """One table of all ``blocks``, in their order.

    Raises StoreError when a file is missing, was changed since it was written, or has another schema.
    """
    parts = [_read(run / FOLDER / block.name / f"{table}.parquet", block, SCHEMAS[table]) for block in blocks]
    return pa.concat_tables(parts) if parts else SCHEMAS[table].empty_table()


def _read(path: Path, block: Block, schema: pa.Schema) -> pa.Table:
    again = f"remove {path.parent} and its entry by repeating the `choicewise run` line in a new --out folder"
    if not path.is_file():
        raise StoreError(f"{path} is missing though the manifest lists it; {again}")
    content = path.read_bytes()  # once: what is checked is what is used
    if _fingerprint(content) != block.files.get(path.name):
        raise StoreError(f"{path} is not the file the manifest describes (size or sha256 differ); {again}")
    # Half the time of read_table, which opens every one of many small files as a data set of its own.
    found = pq.ParquetFile(pa.BufferReader(content)).read()
    if found.schema != schema:
        raise StoreError(f"{path} has another schema than this version of Choicewise writes; {again}")
    return found


def _fingerprint(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
