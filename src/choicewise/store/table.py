"""One Parquet table on disk, checked when it is read against what the manifest says of its file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from choicewise.errors import StoreError
from choicewise.store.atomic import disk_errors

Rows = Sequence[tuple[Any, ...]]
"""Typed rows (:mod:`choicewise.records.rows`), whose fields are the columns in the order of the schema."""


def write_table(path: Path, schema: pa.Schema, rows: Rows) -> None:
    """One Parquet file (zstd) of exactly this schema."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    with disk_errors(path):
        pq.write_table(pa.table(arrays, schema=schema), path, compression="zstd")


def fingerprint(content: bytes) -> dict[str, Any]:
    """What the manifest says of a file: its size in ``bytes`` and its ``sha256`` in hexadecimal."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_table(path: Path, schema: pa.Schema, listed: Mapping[str, Any] | None) -> pa.Table:
    """The table at ``path`` if its file has the fingerprint that is ``listed``; None leaves that unchecked.

    Raises StoreError when the file is missing, damaged, was changed since it was written, or has another schema.
    """
    again = "repeat the `choicewise run` line with a new --out folder"
    try:
        content = path.read_bytes()  # once: what is checked is what is used
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing though the manifest lists it; {again}") from error
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}; make it readable, or {again}") from error
    if listed is not None and fingerprint(content) != listed:
        raise StoreError(f"{path} is not the file the manifest describes (size or sha256 differ); {again}")
    try:
        # Half the time of read_table, which opens every one of many small files as a data set of its own.
        found = pq.ParquetFile(pa.BufferReader(content)).read()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} is damaged ({error}); {again}") from error
    if found.schema != schema:
        raise StoreError(f"{path} has another schema than this version of Choicewise writes; {again}")
    return found
