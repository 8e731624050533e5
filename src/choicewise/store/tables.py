"""Read, write and check the Parquet tables of a run folder.

No file is unpacked that would take more memory than a run's can (:mod:`choicewise.util.tables`).
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from choicewise.errors import StoreError
from choicewise.records import (
    BLOCK_FOLDER,
    ITEM_FILE,
    ITEMS,
    LATER,
    OBSERVATIONS,
    REQUESTS,
    SPANS,
    BlockRecord,
    FileRecord,
    ItemRow,
    Manifest,
    ObservationRow,
)
from choicewise.util.cache import BoundedCache
from choicewise.util.files import (
    TABLE,
    Refused,
    disk_errors,
    new_file,
    new_folder,
    open_file,
    read_bytes,
)
from choicewise.util.tables import AT_ONCE, open_parquet, unpacked, write_parquet


def replaced(run: Path, block: BlockRecord, answers: Mapping[str, ObservationRow]) -> pa.Table:
    """Return the observations of ``block``, replaced by the ``answers`` that have their keys.

    Raises StoreError if the table is damaged.
    """
    path = block_file(run, block, "observations")
    old = read_table(path, OBSERVATIONS, block.files.get(path.name))
    new = make_table(OBSERVATIONS, list(answers.values()))
    # The index of each old key among the new ones, -1 for none.
    index = pc.fill_null(pc.index_in(old["key"], new["key"].combine_chunks()), -1).to_numpy()
    rows = np.where(index < 0, np.arange(len(old)), len(old) + index)
    return pa.concat_tables([old, new]).take(pa.array(rows))


def unanswered_keys(run: Path, manifest: Manifest) -> dict[str, str]:
    """Return the name of the block of every key without an answer.

    Reads a column that is empty in nearly every run.  Raises StoreError if a block can't be read.
    """
    blocks: dict[str, str] = {}
    for block in manifest.blocks:
        path = block_file(run, block, "observations")
        is_missing = read_columns(path, OBSERVATIONS, ["missing"])["missing"].is_valid()
        # Nearly every block is complete, and its keys need not be read.
        if pc.any(is_missing).as_py():
            keys = read_columns(path, OBSERVATIONS, ["key"])["key"]
            blocks.update(dict.fromkeys(keys.filter(is_missing).to_pylist(), block.name))
    return blocks


@dataclass(frozen=True, slots=True)
class Damage:
    """Name a block that can't be used, and why its first damaged file is not the one written."""

    block: BlockRecord
    path: Path
    reason: str


SCHEMAS = {"requests": REQUESTS, "spans": SPANS, "observations": OBSERVATIONS}
"""The tables of a block."""


def damaged_blocks(run: Path, blocks: Sequence[BlockRecord]) -> list[Damage]:
    """Return the ``blocks`` whose files differ from the manifest in size or sha256.

    Also returns those whose tables another version wrote.  Reads every file once, a buffer at a
    time.
    """
    damages = []
    for block in blocks:
        for table, schema in SCHEMAS.items():
            path = block_file(run, block, table)
            reason = _table_damage(path, block.files.get(path.name), schema)
            if reason:
                damages.append(Damage(block, path, reason))
                break
    return damages


def present_blocks(run: Path, blocks: Sequence[BlockRecord]) -> list[BlockRecord]:
    """Return the ``blocks`` whose files have their right sizes, without reading them."""
    present = []
    for block in blocks:
        paths = [block_file(run, block, table) for table in SCHEMAS]
        if all(_has_size(path, block.files.get(path.name)) for path in paths):
            present.append(block)
    return present


def _has_size(path: Path, listed: FileRecord | None) -> bool:
    return listed is not None and path.is_file() and path.stat().st_size == listed.bytes


_REPEATED = ["prompt", "item", "subject", "null", "continuation", "missing", "finish", "opened"]
"""Columns with few different values; to look for repetitions in the others is a waste of time."""


def write_arrow(path: Path, table: pa.Table) -> None:
    """Write one Parquet file (zstd) of exactly this table."""
    with disk_errors(path):
        write_parquet(path, table, repeated=_REPEATED, statistics=False)


Rows = Sequence[tuple[Any, ...]]
"""Typed rows (:mod:`choicewise.records`), whose fields are the columns in the schema's order."""


def make_table(schema: pa.Schema, rows: Rows) -> pa.Table:
    """Make a table of typed rows."""
    if not rows:
        return schema.empty_table()
    arrays = []
    for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True):
        arrays.append(_array(values, kind))
    return pa.table(arrays, schema=schema)


def fingerprint(content: bytes) -> FileRecord:
    """Return what the manifest says of a file with this content."""
    return FileRecord(len(content), hashlib.sha256(content).hexdigest())


def file_record(path: Path) -> FileRecord:
    """Return what the manifest says of the file at ``path``."""
    with open_file(path) as file:
        sha = hashlib.file_digest(file, "sha256")
        return FileRecord(file.tell(), sha.hexdigest())


_RESTORE = "restore it from a copy, or evaluate again into a new folder"


def read_listed(path: Path, listed: FileRecord | None) -> bytes:
    """Read the file at ``path``, which the manifest describes as ``listed`` (None: not at all).

    Raises StoreError if the file is missing, can't be read or was changed since it was written.
    """
    try:
        # Read once, so that what is checked is what is used.
        content = read_bytes(path, TABLE)
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing; {_RESTORE}") from error
    except OSError as error:
        raise StoreError(
            f"can't read {path}: {error.strerror}; make it readable, or {_RESTORE}"
        ) from error
    if fingerprint(content) != listed:
        raise StoreError(f"{path} was changed (size or sha256 differ); {_RESTORE}")
    return content


def read_table(path: Path, schema: pa.Schema, listed: FileRecord | None) -> pa.Table:
    """Read the table at ``path``.

    Raises StoreError if :func:`read_listed` does, and if the table has another schema.
    """
    content = io.BytesIO(read_listed(path, listed))
    try:
        # pq.read_table takes twice as long, because it opens every file as a data set.
        file = open_parquet(content)
        _check_schema(path, file, schema)
        unpacked(content)
        table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_RESTORE}") from error
    return _completed(table, schema)


def read_columns(path: Path, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """Read some columns of the table at ``path``, whose size and sha256 were checked before.

    Raises StoreError if the file is gone or has another schema.
    """
    with _opened(path, schema, columns) as (file, _):
        present = _present(file, columns)
        lists = [name for name in present if pa.types.is_list(schema.field(name).type)]
        flat = [name for name in present if name not in lists]
        table = file.read(columns=flat, use_threads=False)
        # Arrow keeps what it needs to read a list until all columns are read, which is as much
        # memory again: so they are read one after the other.
        for name in lists:
            values = file.read(columns=[name], use_threads=False)
            table = table.append_column(schema.field(name), values[name])
    return _completed(table.select(present), _selected(schema, columns))


_BATCH = 16_384
"""Rows of a batch."""


def read_batches(path: Path, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of :func:`read_columns` in batches, because a table can be long."""
    wanted = _selected(schema, columns)
    with _opened(path, schema, columns, whole=False) as (file, _):
        stored = _present(file, columns)
        for batch in file.iter_batches(batch_size=_BATCH, columns=stored, use_threads=False):
            yield _completed(batch, wanted)


def read_metadata(path: Path, schema: pa.Schema) -> tuple[pq.FileMetaData, int]:
    """Return the metadata of the table at ``path``, and the most bytes of memory that it takes.

    Raises StoreError if :func:`read_columns` does.
    """
    with _opened(path, schema, whole=False) as (file, size):
        return file.metadata, size


def count_bytes(path: Path) -> int:
    """Return how many bytes of memory the table at ``path`` takes, which was checked before."""
    with open_file(path, TABLE) as content:
        return unpacked(content, counted=True)


def block_file(run: Path, block: BlockRecord, table: str) -> Path:
    """Return the path of a table of a block."""
    return run / BLOCK_FOLDER / block.name / f"{table}.parquet"


ITEMS_AT_ONCE = 20_000
"""Items that are written together, a row group of their table."""


def write_items(run: Path, rows: Iterable[ItemRow]) -> dict[str, FileRecord]:
    """Write the item table in one step, so that reports need no data folder; returns it by name."""
    with new_file(run / ITEM_FILE) as partial:
        write_parquet(partial, _item_tables(rows), ITEMS)
        return {ITEM_FILE: file_record(partial)}


def _item_tables(rows: Iterable[ItemRow]) -> Iterator[pa.Table]:
    remaining = iter(rows)
    while part := list(islice(remaining, ITEMS_AT_ONCE)):
        yield make_table(ITEMS, part)


def read_items(run: Path, manifest: Manifest) -> pa.Table:
    """Read the item table of the run folder; raises StoreError if :func:`read_table` does."""
    return read_table(run / ITEM_FILE, ITEMS, manifest.files.get(ITEM_FILE))


def check_items(run: Path, manifest: Manifest) -> None:
    """Raise StoreError if the item table is not the file that ``manifest`` describes."""
    path = run / ITEM_FILE
    reason = _table_damage(path, manifest.files.get(ITEM_FILE), ITEMS)
    if reason:
        advice = "run the same command again, or see `choicewise doctor`"
        raise StoreError(f"{path} is damaged: it {reason}; {advice}")


def _table_damage(path: Path, listed: FileRecord | None, schema: pa.Schema) -> str | None:
    return damage(path, listed) or other_version(path, schema)


def damage(path: Path, listed: FileRecord | None) -> str | None:
    """Return how the file at ``path`` differs from ``listed``, or None.

    Reads a buffer at a time.
    """
    if listed is None:
        return "is not listed in the manifest"
    try:
        with open_file(path) as file:
            size = file.seek(0, io.SEEK_END)
            if size > TABLE:
                return f"has {size:,} bytes, over the limit of {TABLE:,}"
            if size != listed.bytes:
                return f"has {size:,} bytes instead of {listed.bytes:,}"
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"can't be read: {error.strerror}"
    if digest != listed.sha256:
        return "was changed (its sha256 differs)"
    return None


def other_version(path: Path, schema: pa.Schema) -> str | None:
    """Return why a file of the right size and sha256 is no such table, or None."""
    try:
        read_metadata(path, schema)
    except StoreError as error:
        if isinstance(error.__cause__, Refused):
            return f"is not unpacked: {error.__cause__}"
        return "has no table of this version of Choicewise"
    return None


def write_block(
    run: Path, name: str, tables: Mapping[str, Rows | pa.Table | Path]
) -> dict[str, FileRecord]:
    """Write the tables of one block in one step; returns the files by name.

    ``tables``: rows, tables, or files to copy.
    """
    with new_folder(run / BLOCK_FOLDER / name) as folder:
        for table, schema in SCHEMAS.items():
            content = tables[table]
            file = folder / f"{table}.parquet"
            if isinstance(content, Path):
                shutil.copyfile(content, file)
            elif isinstance(content, pa.Table):
                write_arrow(file, content)
            else:
                write_arrow(file, make_table(schema, content))
        return {file.name: file_record(file) for file in sorted(folder.iterdir())}


def read_blocks(run: Path, blocks: Sequence[BlockRecord], table: str) -> pa.Table:
    """Read one table of all ``blocks``, in order; raises StoreError if :func:`read_table` does."""
    schema = SCHEMAS[table]
    parts = []
    for block in blocks:
        path = block_file(run, block, table)
        parts.append(read_table(path, schema, block.files.get(path.name)))
    return pa.concat_tables(parts) if parts else schema.empty_table()


KEY_BYTES = 16
_Keys = npt.NDArray[np.uint64]  # the halves of keys, [2, keys], by the first half


class Keys:
    """Hold a set of keys (:attr:`choicewise.questions.Span.key`), of which a run has millions."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        # Sorted arrays, each longer than the next: a key is sorted only a few times.
        self._parts: list[_Keys] = []
        self.add(keys)

    def add(self, keys: Iterable[str]) -> None:
        """Put further keys into the set."""
        new = _as_array(list(set(keys)))
        # A part that is not much longer is merged, so that there are few parts to search.
        while self._parts and self._parts[-1].size <= 2 * new.size:
            new = np.concatenate([self._parts.pop(), new], axis=1)
        if new.size:
            self._parts.append(new[:, np.argsort(new[0])])

    def without(self, keys: Sequence[str]) -> list[str]:
        """Return the ``keys`` that are not in the set, in order."""
        wanted = _as_array(keys)
        is_present = np.zeros(len(wanted[0]), dtype=np.bool_)
        for part in self._parts:
            is_present |= _is_in(part, wanted)
        return [keys[index] for index in np.flatnonzero(~is_present).tolist()]


def _as_array(keys: Sequence[str]) -> _Keys:
    # Numbers are sorted many times faster than texts.
    halves = np.frombuffer(bytes.fromhex("".join(keys)), dtype=np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(halves.T)


def _is_in(part: _Keys, wanted: _Keys) -> npt.NDArray[np.bool_]:
    """Mark the ``wanted`` keys that ``part`` has."""
    # In their order, neighbours are found in the same part of the memory.
    order = np.argsort(wanted[0])
    index = np.empty_like(order)
    index[order] = np.searchsorted(part[0], wanted[0][order])
    is_present = np.zeros(len(index), dtype=np.bool_)
    while True:
        candidate = part[:, np.minimum(index, len(part[0]) - 1)]
        is_alike = (candidate[0] == wanted[0]) & (index < len(part[0]))
        is_present |= is_alike & (candidate[1] == wanted[1])
        if is_present[is_alike].all():
            return is_present
        # Keys that are alike in their first half follow each other.
        index += 1


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_list(kind) or set(map(type, values)) != {np.ndarray}:
        return pa.array(values, kind)
    # Laid end to end, which is much faster than to convert one list of numbers after the other.
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    numbers = pa.array(np.concatenate(values), kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), numbers)


@contextmanager
def _opened(
    path: Path, schema: pa.Schema, columns: Sequence[str] | None = None, whole: bool = True
) -> Iterator[tuple[pq.ParquetFile, int]]:
    """Open a table to read ``columns``, and return the bytes of memory that they take.

    ``whole``: they are read at once, not in batches.
    """
    try:
        with open_file(path, TABLE) as content:
            file = open_parquet(content)
            _check_schema(path, file, schema)
            state = os.fstat(content.fileno())
            key = (path, state.st_ino, state.st_size, state.st_mtime_ns)
            size = _SIZES.get(key)
            # What is read of a larger table has to be checked each time.
            if size is None or size > AT_ONCE:
                size = unpacked(content, columns, whole)
            if columns is None:
                _SIZES.put(key, size)
            yield file, size
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"can't read {path} ({error}); {_RESTORE}") from error


_SIZES = BoundedCache[tuple[Path, int, int, int], int](10_000)
"""Bytes of memory that whole tables take, by file: a report opens each block several times."""


def _check_schema(path: Path, file: pq.ParquetFile, schema: pa.Schema) -> None:
    if file.schema_arrow != _selected(schema, _present(file, schema.names)):
        advice = "evaluate again into a new folder"
        raise StoreError(f"{path} has the schema of another version of Choicewise; {advice}")


def _selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])


def _present(file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    """Return ``columns`` without the later ones that a file of an earlier version lacks."""
    stored = file.schema_arrow.names
    return [name for name in columns if name in stored or name not in LATER]


_Part = TypeVar("_Part", pa.Table, pa.RecordBatch)


def _completed(part: _Part, schema: pa.Schema) -> _Part:
    """Add nulls in the later columns of ``schema`` that an earlier version did not write."""
    for index, field in enumerate(schema):
        if field.name not in part.schema.names and field.name in LATER:
            part = part.add_column(index, field, pa.nulls(len(part), field.type))
    return part
