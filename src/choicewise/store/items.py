"""The questions of a run on disk, so that reports need no data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from choicewise.records.tables import ITEMS
from choicewise.store.atomic import new_file
from choicewise.store.manifest import Manifest
from choicewise.store.table import Rows, fingerprint, read_table, write_table

NAME = "items.parquet"


def write_items(run: Path, rows: Rows) -> dict[str, dict[str, Any]]:
    """Write the item table in one step; returns file name → bytes and sha256, as the manifest lists them."""
    with new_file(run / NAME) as partial:
        write_table(partial, ITEMS, rows)
        return {NAME: fingerprint(partial.read_bytes())}


def read_items(run: Path, manifest: Manifest) -> pa.Table:
    """The item table of the run folder that ``manifest`` describes.

    Raises StoreError when it is missing, damaged, or was changed since it was written.  Manifests of early versions
    list no item table; then a change that leaves it readable goes unnoticed.
    """
    return read_table(run / NAME, ITEMS, manifest.files.get(NAME))
