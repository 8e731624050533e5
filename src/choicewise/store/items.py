"""The items of a run on disk, so that reports need no data folder."""

from pathlib import Path

import pyarrow as pa

from choicewise.records.format import ITEM_FILE
from choicewise.records.manifest import FileRecord, Manifest
from choicewise.records.tables import ITEMS
from choicewise.store.atomic import new_file
from choicewise.store.table import Rows, fingerprint, read_table, write_table


def write_items(run: Path, rows: Rows) -> dict[str, FileRecord]:
    """Write the item table in one step; returns the file by name."""
    with new_file(run / ITEM_FILE) as partial:
        write_table(partial, ITEMS, rows)
        return {ITEM_FILE: fingerprint(partial.read_bytes())}


def read_items(run: Path, manifest: Manifest) -> pa.Table:
    """The item table of the run folder that ``manifest`` describes.

    Raises StoreError when it is missing, damaged, or was changed since it was written.
    """
    return read_table(run / ITEM_FILE, ITEMS, manifest.files.get(ITEM_FILE))
