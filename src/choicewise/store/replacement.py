"""A block written again with other observations; its requests and spans stay as they are."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.records.format import BLOCK_FOLDER
from choicewise.records.manifest import BlockRecord, FileRecord
from choicewise.records.rows import ObservationRow
from choicewise.records.tables import OBSERVATIONS
from choicewise.store.atomic import new_folder
from choicewise.store.tables import block_file, file_record, make_table, read_table, write_arrow

_OTHERS = ("requests", "spans")


def replaced(run: Path, block: BlockRecord, answers: Mapping[str, ObservationRow]) -> pa.Table:
    """The observations of ``block`` in their order, with ``answers`` in the places of those with their keys.

    Raises StoreError where the table is damaged.
    """
    path = block_file(run, block, "observations")
    old = read_table(path, OBSERVATIONS, block.files.get(path.name))
    new = make_table(OBSERVATIONS, list(answers.values()))
    places = pc.fill_null(pc.index_in(old["key"], new["key"].combine_chunks()), -1).to_numpy()
    rows = np.where(places < 0, np.arange(len(old)), len(old) + places)
    return pa.concat_tables([old, new]).take(pa.array(rows))


def write_replacement(run: Path, old: BlockRecord, name: str, observations: pa.Table) -> dict[str, FileRecord]:
    """Write the tables of block ``old`` under another ``name``, with these ``observations``; returns the files."""
    with new_folder(run / BLOCK_FOLDER / name) as folder:
        for table in _OTHERS:
            shutil.copyfile(block_file(run, old, table), folder / f"{table}.parquet")
        write_arrow(folder / "observations.parquet", observations)
        return {file.name: file_record(file) for file in sorted(folder.iterdir())}
