"""Blocks on disk: three Parquet tables per block, each checked against the manifest when it is read."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from choicewise.records.format import BLOCK_FOLDER
from choicewise.records.manifest import BlockRecord, FileRecord
from choicewise.records.tables import OBSERVATIONS, REQUESTS, SPANS
from choicewise.store.atomic import new_folder
from choicewise.store.table import Rows, fingerprint, read_table, write_table

SCHEMAS = {"requests": REQUESTS, "spans": SPANS, "observations": OBSERVATIONS}


def write_block(run: Path, name: str, tables: Mapping[str, Rows]) -> dict[str, FileRecord]:
    """Write the tables of one block in one step; returns the files by name."""
    with new_folder(run / BLOCK_FOLDER / name) as folder:
        for table, schema in SCHEMAS.items():
            write_table(folder / f"{table}.parquet", schema, tables[table])
        return {file.name: fingerprint(file.read_bytes()) for file in sorted(folder.iterdir())}


def read_blocks(run: Path, blocks: Sequence[BlockRecord], table: str) -> pa.Table:
    """One table of all ``blocks``, in their order.

    Raises StoreError when a file is missing, was changed since it was written, or has another schema.
    """
    file, schema = f"{table}.parquet", SCHEMAS[table]
    parts = [read_table(run / BLOCK_FOLDER / block.name / file, schema, block.files.get(file)) for block in blocks]
    return pa.concat_tables(parts) if parts else schema.empty_table()
