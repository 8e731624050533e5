"""What is wrong with the blocks of a run folder: their files, their places, spans without observations, doubles."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.records.fault import Fault, Remedy
from choicewise.records.format import BLOCK_FOLDER
from choicewise.records.manifest import BlockRecord
from choicewise.records.tables import FLOAT32, OBSERVATIONS, SPANS
from choicewise.store.damage import damaged_blocks
from choicewise.store.tables import block_file, read_columns

_KEYS = ("key", "before", "after")


def file_faults(run: Path, blocks: Sequence[BlockRecord]) -> list[Fault]:
    """The blocks that are not what was written."""
    faults = []
    for damage in damaged_blocks(run, blocks):
        where = damage.path.relative_to(run).as_posix()
        split, subject, start, stop = damage.block.place
        about = f"{damage.reason}; the block holds items {start + 1} to {stop} of {subject} ({split})"
        if damage.path.exists() and damage.reason.startswith("can't be read") and damage.path.is_file():
            faults.append(Fault("unreadable", where, f"{about}; make it readable", Remedy.by_hand, damage.block.name))
        else:
            faults.append(Fault("damaged block", where, about, Remedy.ask_again, damage.block.name))
    return faults


def place_faults(blocks: Sequence[BlockRecord], counts: dict[tuple[str, str], int] | None) -> Iterator[Fault]:
    """Blocks about items that an earlier block was asked about in the same way, or that are not in the item table.

    ``counts``: the items of every subject of every split; None where that is not known.
    """
    for place, block in enumerate(blocks):
        where = f"{BLOCK_FOLDER}/{block.name}"
        subject = block.split, block.subject
        if counts is not None and block.stop > counts.get(subject, 0):
            problem = f"is about items up to {block.stop} of {block.subject} ({block.split}), which has fewer"
            yield Fault("misplaced block", where, problem, Remedy.ask_again, block.name)
            continue
        for other in blocks[:place]:
            same = (other.split, other.subject) == subject and set(other.asks) & set(block.asks)
            if same and block.start < other.stop and other.start < block.stop:
                problem = f"was asked about the same items in the same way as block {other.name}"
                yield Fault("overlapping block", where, problem, Remedy.ask_again, block.name)
                break


def double_faults(run: Path, blocks: Sequence[BlockRecord]) -> list[Fault]:
    """Blocks with observations whose key another row has before them."""
    return [
        Fault(
            "doubled observations",
            f"{BLOCK_FOLDER}/{block.name}/observations.parquet",
            f"holds {count:,} observations that are there already{_differing(differ)}; the first ones count",
            Remedy.leave_out,
        )
        for block, count, differ in _doubles(run, blocks)
    ]


def _differing(count: int) -> str:
    return f", {count:,} of them with other numbers" if count else ""


def first_rows(run: Path, blocks: Sequence[BlockRecord], name: str) -> pa.Array:
    """Which observations of block ``name`` no row of it or of an earlier block has before them, bool [rows]."""
    before = pa.array([], pa.string())
    for block in blocks:
        keys = _read(run, block, "observations", ["key"])["key"].combine_chunks()
        if block.name == name:
            place = pc.index_in(keys, pc.unique(keys)).to_numpy()
            first = np.zeros(len(keys), dtype=np.bool_)
            first[np.unique(place, return_index=True)[1]] = True
            return pc.and_(pa.array(first), pc.invert(pc.is_in(keys, before)))
        before = pa.concat_arrays([before, keys])
    raise KeyError(name)


def _doubles(run: Path, blocks: Sequence[BlockRecord]) -> Iterator[tuple[BlockRecord, int, int]]:
    """Every block with such rows, how many, and how many of them differ from the first one."""
    every = [_read(run, block, "observations", ["key"])["key"].combine_chunks() for block in blocks]
    keys = pa.concat_arrays(every) if every else pa.array([], pa.string())
    if len(keys) == pc.count_distinct(keys).as_py():
        return
    seen: dict[str, str] = {}
    counts = Counter(keys.to_pylist())
    for block, own in zip(blocks, every, strict=True):
        if not any(counts[key] > 1 for key in own.to_pylist()):
            continue
        table = _read(run, block, "observations", OBSERVATIONS.names)
        number = differ = 0
        for row in table.filter(pc.is_in(table["key"], pa.array([k for k in counts if counts[k] > 1]))).to_pylist():
            key, content = row["key"], repr(row)
            if key in seen:
                number += 1
                differ += seen[key] != content
            else:
                seen[key] = content
        if number:
            yield block, number, differ


def dangling_faults(run: Path, blocks: Sequence[BlockRecord], harmed: bool) -> list[Fault]:
    """Blocks with spans that name observations which no block holds.

    ``harmed``: whether other blocks are damaged, which may hold them: then they come again with those.
    """
    held = [_read(run, block, "observations", ["key"])["key"].combine_chunks() for block in blocks]
    keys = pa.concat_arrays(held) if held else pa.array([], pa.string())
    keys = keys.filter(pc.invert(pc.ends_with(keys, FLOAT32)))
    faults = []
    for block in blocks:
        spans = _read(run, block, "spans", _KEYS)
        named = pc.unique(pa.concat_arrays([spans[name].combine_chunks() for name in _KEYS]))
        lacking = pc.sum(pc.and_(pc.invert(pc.is_in(named, keys)), pc.is_valid(named))).as_py() or 0
        if lacking:
            where = f"{BLOCK_FOLDER}/{block.name}/spans.parquet"
            problem = f"names {lacking:,} observations that no block holds"
            if harmed:
                problem += "; they may lie in the damaged ones, and come again with those"
                faults.append(Fault("lost observations", where, problem, Remedy.none))
            else:
                faults.append(Fault("lost observations", where, problem, Remedy.ask_again, block.name))
    return faults


def _read(run: Path, block: BlockRecord, table: str, columns: Sequence[str]) -> pa.Table:
    schema = SPANS if table == "spans" else OBSERVATIONS
    return read_columns(block_file(run, block, table), schema, columns)
