"""Observations that lie in other portions of a run than the spans that name them.

Each question is asked once per run, so that equal texts of several items, such as those after a null context, share an
observation, which lies where it was asked first.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.records.manifest import BlockRecord
from choicewise.records.tables import FLOAT32, OBSERVATIONS, SPANS
from choicewise.results.portion import Portion
from choicewise.store.damage import damaged_blocks
from choicewise.store.tables import block_file, read_batches, read_columns

KEYS = ("key", "before", "after")
"""All columns of the spans that name observations."""


def find_elsewhere(
    folder: Path, blocks: Sequence[BlockRecord], portions: Sequence[Portion], checked: bool = True
) -> pa.Table:
    """The observations of ``blocks`` that any of the ``portions`` needs and does not hold, float32 copies included.

    ``checked``: whether all blocks are known to be whole; else those that are of use are checked, and left out if not.
    """
    if all(len(portion.blocks) == len(blocks) for portion in portions):
        return OBSERVATIONS.empty_table()
    wanted = [_lacking(folder, portion) for portion in portions]
    again = pa.concat_arrays([_rescored(folder, block) for block in blocks] or [pa.array([], pa.string())])
    if len(again):
        wanted += [_lacking(folder, portion, again) for portion in portions]
    keys = pc.unique(pa.concat_arrays(wanted)) if wanted else pa.array([], pa.string())
    tables = [OBSERVATIONS.empty_table()]
    for block in blocks if len(keys) else ():
        path = block_file(folder, block, "observations")
        held = pc.is_in(read_columns(path, OBSERVATIONS, ["key"])["key"], keys)
        if pc.any(held).as_py() and (checked or not damaged_blocks(folder, [block])):
            batches = read_batches(path, OBSERVATIONS, OBSERVATIONS.names)
            tables += [pa.Table.from_batches([batch.filter(pc.is_in(batch["key"], keys))]) for batch in batches]
    return pa.concat_tables(tables)


def named(spans: pa.Table) -> pa.Array:
    """The keys that ``spans`` name, each once."""
    columns = [spans[name].combine_chunks() for name in KEYS]
    return pc.unique(pa.concat_arrays([column for column in columns if column.null_count < len(column)] or [_NONE]))


def _lacking(folder: Path, portion: Portion, again: pa.Array | None = None) -> pa.Array:
    """The keys that the spans of ``portion`` name and its blocks do not hold; of ``again``, those of their copies."""
    spans = _read(folder, portion, "spans", KEYS)
    own = _read(folder, portion, "observations", ["key"])["key"]
    keys = named(spans)
    if again is not None:
        keys = again.filter(pc.is_in(pc.replace_substring(again, FLOAT32, ""), keys))
    return keys.filter(pc.invert(pc.or_(pc.is_in(keys, own), pc.is_null(keys))))


def _read(folder: Path, portion: Portion, table: str, columns: Sequence[str]) -> pa.Table:
    schema = SPANS if table == "spans" else OBSERVATIONS
    tables = [read_columns(block_file(folder, block, table), schema, columns) for block in portion.blocks]
    return pa.concat_tables([schema.empty_table().select(columns), *tables])


def _rescored(folder: Path, block: BlockRecord) -> pa.Array:
    keys = read_columns(block_file(folder, block, "observations"), OBSERVATIONS, ["key"])["key"]
    return keys.filter(pc.ends_with(keys, FLOAT32)).combine_chunks()


_NONE = pa.array([], pa.string())
