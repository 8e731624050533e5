"""Blocks on disk: three Parquet tables a block, each checked against the manifest when it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from choicewise.records.tables import OBSERVATIONS, REQUESTS, SPANS
from choicewise.store.atomic import new_folder
from choicewise.store.manifest import Block
from choicewise.store.table import Rows, fingerprint, read_table, write_table

FOLDER = "blocks"
SCHEMAS = {"requests": REQUESTS, "spans": SPANS, "observations": OBSERVATIONS}


def write_block(run: Path, name: str, tables: Mapping[str, Rows]) -> dict[str, dict[str, Any]]:
    """Write the tables of one block in one step; returns file name → bytes and sha256, as the manifest lists them."""
    with new_folder(run / FOLDER / name) as folder:
        for table, schema in SCHEMAS.items():
            write_table(folder / f"{table}.parquet", schema, tables[table])
        return {file.name: fingerprint(file.read_bytes()) for file in sorted(folder.iterdir())}


def read_blocks(run: Path, blocks: Sequence[Block], table: str) -> pa.Table:
    """One table of all ``blocks``, in their order.

    Raises StoreError when a file is missing, was changed since it was written, or has another schema.
    """
    file, schema = f"{table}.parquet", SCHEMAS[table]
    parts = [read_table(run / FOLDER / block.name / file, schema, block.files.get(file, {})) for block in blocks]
    return pa.concat_tables(parts) if parts else schema.empty_table()
