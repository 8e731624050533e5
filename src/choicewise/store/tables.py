"""Read and replace Parquet blocks.

No file is unpacked that would take more memory than a run's can (:mod:`choicewise.util.tables`).
"""

from __future__ import annotations

import hashlib
import io
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
from choicewise.util.files import (
    TABLE,
    Refused,
    disk_errors,
    new_file,
    new_folder,
    open_file,
    read_bytes,
)
from choicewise.util.tables import open_parquet, unpacked, write_parquet


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


def unanswered_keys(run: Path, manifest: Manifest) -> dict[str, str]:
    """The keys of those questions, with the name of the block of each.

    Reads a column that is empty in nearly every run.  Raises StoreError where a block can't be read.
    """
    blocks: dict[str, str] = {}
    for block in manifest.blocks:
        path = block_file(run, block, "observations")
        failed = read_columns(path, OBSERVATIONS, ["missing"])["missing"].is_valid()
        if pc.any(failed).as_py():
            keys = read_columns(path, OBSERVATIONS, ["key"])["key"].filter(failed).to_pylist()
            blocks |= dict.fromkeys(keys, block.name)
    return blocks


@dataclass(frozen=True, slots=True)
class Damage:
    """A block that can't be used: its first file that is missing or not the one that was written, and why."""

    block: BlockRecord
    path: Path
    reason: str


SCHEMAS = {"requests": REQUESTS, "spans": SPANS, "observations": OBSERVATIONS}
"""The tables of a block."""


def damaged_blocks(run: Path, blocks: Sequence[BlockRecord]) -> list[Damage]:
    """Those of ``blocks`` whose files in the folder ``run`` differ from the manifest in size or sha256.

    So do those whose tables another version wrote.  Reads every file once, and no more of it at a time than a buffer.
    """
    damages = []
    for block in blocks:
        for table, schema in SCHEMAS.items():
            path = block_file(run, block, table)
            if reason := damage(path, block.files.get(path.name)) or other_version(path, schema):
                damages.append(Damage(block, path, reason))
                break
    return damages


def present_blocks(run: Path, blocks: Sequence[BlockRecord]) -> list[BlockRecord]:
    """Those of ``blocks`` whose files are there in their right sizes, whatever they hold: quick."""

    def size(path: Path) -> int:
        return path.stat().st_size if path.is_file() else -1

    paths = {block.name: [block_file(run, block, table) for table in SCHEMAS] for block in blocks}
    return [
        block
        for block in blocks
        if all(
            path.name in block.files and size(path) == block.files[path.name].bytes
            for path in paths[block.name]
        )
    ]


_REPEATED = ["prompt", "item", "subject", "null", "continuation", "missing", "finish", "opened"]
"""Columns with few different values; to look for repetitions in the others takes time in vain."""


def write_arrow(path: Path, table: pa.Table) -> None:
    """One Parquet file (zstd) of exactly this table."""
    with disk_errors(path):
        write_parquet(path, table, repeated=_REPEATED, statistics=False)


Rows = Sequence[tuple[Any, ...]]
"""Typed rows (:mod:`choicewise.records`), whose fields are the columns in the order of the schema."""


def make_table(schema: pa.Schema, rows: Rows) -> pa.Table:
    """Typed rows as a table."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(
        [_array(*pair) for pair in zip(columns, schema.types, strict=True)], schema=schema
    )


def fingerprint(content: bytes) -> FileRecord:
    """What the manifest says of a file."""
    return FileRecord(len(content), hashlib.sha256(content).hexdigest())


def file_record(path: Path) -> FileRecord:
    """What the manifest says of the file at ``path``."""
    with open_file(path) as file:
        sha = hashlib.file_digest(file, "sha256")
        return FileRecord(file.tell(), sha.hexdigest())


_RESTORE = "restore it from a copy, or evaluate again into a new folder"


def read_listed(path: Path, listed: FileRecord | None) -> bytes:
    """What the file at ``path`` holds, which the manifest describes as ``listed`` (None: not at all).

    Raises StoreError when the file is missing, can't be read or was changed since it was written.
    """
    try:
        content = read_bytes(path, TABLE)  # once: what is checked is what is used
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing though the manifest lists it; {_RESTORE}") from error
    except OSError as error:
        raise StoreError(
            f"{path} can't be read: {error.strerror}; make it readable, or {_RESTORE}"
        ) from error
    if fingerprint(content) != listed:
        raise StoreError(
            f"{path} is not the file the manifest describes (size or sha256 differ); {_RESTORE}"
        )
    return content


def read_table(path: Path, schema: pa.Schema, listed: FileRecord | None) -> pa.Table:
    """The table in the file at ``path``; raises StoreError as :func:`read_listed`, and when it has another schema."""
    content = io.BytesIO(read_listed(path, listed))
    try:
        # Takes half the time of pq.read_table, which opens every file as a data set of its own.
        file = open_parquet(content)
        _check_schema(path, file, schema)
        unpacked(content)
        table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_RESTORE}") from error
    return _completed(table, schema)


def read_columns(path: Path, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """Some columns of the table at ``path``, whose size and sha256 were checked before.

    Raises StoreError when the file is gone or has another schema.
    """
    with _opened(path, schema, columns) as (file, _):
        table = file.read(columns=_present(file, columns), use_threads=False)
    return _completed(table, pa.schema([schema.field(name) for name in columns]))


_BATCH = 16_384
"""Rows of a batch."""


def read_batches(path: Path, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same in batches, so that a long table is never in memory as a whole."""
    with _opened(path, schema, columns, whole=False) as (file, _):
        wanted = pa.schema([schema.field(name) for name in columns])
        for batch in file.iter_batches(
            batch_size=_BATCH, columns=_present(file, columns), use_threads=False
        ):
            yield _completed(batch, wanted)


def read_metadata(path: Path, schema: pa.Schema) -> tuple[pq.FileMetaData, int]:
    """How many rows and values the table at ``path`` has, and how many bytes of memory it takes at most.

    StoreError as :func:`read_columns`.
    """
    with _opened(path, schema, whole=False) as (file, size):
        return file.metadata, size


def block_file(run: Path, block: BlockRecord, table: str) -> Path:
    """Where a table of a block lies."""
    return run / BLOCK_FOLDER / block.name / f"{table}.parquet"


ITEMS_AT_ONCE = 20_000
"""Items that are written together, a row group of their table."""


def write_items(run: Path, rows: Iterable[ItemRow]) -> dict[str, FileRecord]:
    """Write the item table in one step, so that reports need no data folder; returns the file by name."""
    remaining = iter(rows)
    parts = iter(lambda: list(islice(remaining, ITEMS_AT_ONCE)), [])
    with new_file(run / ITEM_FILE) as partial:
        write_parquet(partial, (make_table(ITEMS, part) for part in parts), ITEMS)
        return {ITEM_FILE: file_record(partial)}


def read_splits(run: Path) -> set[str]:
    """The splits that the item table holds."""
    return set(read_columns(run / ITEM_FILE, ITEMS, ["split"])["split"].unique().to_pylist())


def read_items(run: Path, manifest: Manifest) -> pa.Table:
    """The item table of the run folder that ``manifest`` describes; raises StoreError as :func:`read_table`."""
    return read_table(run / ITEM_FILE, ITEMS, manifest.files.get(ITEM_FILE))


def check_items(run: Path, manifest: Manifest) -> None:
    """Raise StoreError when the item table is missing, or not the file that ``manifest`` describes."""
    path, advice = run / ITEM_FILE, "run the same command again, or see `choicewise doctor`"
    if reason := damage(path, manifest.files.get(ITEM_FILE)) or other_version(path, ITEMS):
        raise StoreError(f"{path} is not the file the manifest describes: it {reason}; {advice}")


def damage(path: Path, listed: FileRecord | None) -> str | None:
    """What is wrong with the file at ``path``, which the manifest describes as ``listed``; None where nothing is.

    Reads no more of it at a time than a buffer.
    """
    if listed is None:
        return "is not listed in the manifest"
    try:
        with open_file(path) as file:
            if (size := file.seek(0, io.SEEK_END)) > TABLE:
                return f"has {size:,} bytes, and at most {TABLE:,} are read"
            if size != listed.bytes:
                return f"has {size:,} bytes, and had {listed.bytes:,} when it was written"
            file.seek(0)
            same = hashlib.file_digest(file, "sha256").hexdigest() == listed.sha256
            return None if same else "was changed since it was written (its sha256 differs)"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"can't be read: {error.strerror}"


def other_version(path: Path, schema: pa.Schema) -> str | None:
    """What is wrong with the file at ``path``, whose size and sha256 are right, where it holds no such table."""
    try:
        read_metadata(path, schema)
    except StoreError as error:
        if isinstance(error.__cause__, Refused):
            return f"is not unpacked: {error.__cause__}"
        return "holds no table that this version of Choicewise writes"
    return None


def write_block(
    run: Path, name: str, tables: Mapping[str, Rows | pa.Table | Path]
) -> dict[str, FileRecord]:
    """Write the tables of one block in one step: rows, tables, or files to copy; returns the files by name."""
    with new_folder(run / BLOCK_FOLDER / name) as folder:
        for table, schema in SCHEMAS.items():
            content, file = tables[table], folder / f"{table}.parquet"
            if isinstance(content, Path):
                shutil.copyfile(content, file)
            else:
                write_arrow(
                    file, content if isinstance(content, pa.Table) else make_table(schema, content)
                )
        return {file.name: file_record(file) for file in sorted(folder.iterdir())}


def read_blocks(run: Path, blocks: Sequence[BlockRecord], table: str) -> pa.Table:
    """One table of all ``blocks``, in their order; raises StoreError as :func:`read_table`."""
    file, schema = f"{table}.parquet", SCHEMAS[table]
    parts = [
        read_table(run / BLOCK_FOLDER / block.name / file, schema, block.files.get(file))
        for block in blocks
    ]
    return pa.concat_tables(parts) if parts else schema.empty_table()


KEY_BYTES = 16
_Keys = npt.NDArray[np.bytes_]


class Keys:
    """A set of keys (:attr:`choicewise.questions.Span.key`), of which a run has millions."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        # Sorted arrays, each longer than the next: adding sorts every key only a few times.
        self._parts: list[_Keys] = []
        self.add(keys)

    def add(self, keys: Iterable[str]) -> None:
        """Put further keys into the set."""
        new = np.unique(_as_array(list(keys)))
        while self._parts and len(self._parts[-1]) <= 2 * len(new):
            new = np.unique(np.concatenate([self._parts.pop(), new]))
        if len(new):
            self._parts.append(new)

    def without(self, keys: Sequence[str]) -> list[str]:
        """Those of ``keys`` that are not in the set, in their order."""
        wanted = _as_array(keys)
        known = np.zeros(len(wanted), dtype=np.bool_)
        for part in self._parts:
            place = np.minimum(np.searchsorted(part, wanted), len(part) - 1)
            known |= part[place] == wanted
        return [key for key, is_known in zip(keys, known.tolist(), strict=True) if not is_known]


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column; lists of numbers are laid end to end, which is much faster than to convert one by one."""
    if not pa.types.is_list(kind) or set(map(type, values)) != {np.ndarray}:
        return pa.array(values, kind)
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(np.concatenate(values), kind.value_type)
    )


@contextmanager
def _opened(
    path: Path, schema: pa.Schema, columns: Sequence[str] | None = None, whole: bool = True
) -> Iterator[tuple[pq.ParquetFile, int]]:
    """The file, of which these ``columns`` are read, as a ``whole`` or in batches, and the memory that they take."""
    try:
        with open_file(path, TABLE) as content:
            file = open_parquet(content)
            _check_schema(path, file, schema)
            yield file, unpacked(content, columns, whole)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} can't be read ({error}); {_RESTORE}") from error


def _check_schema(path: Path, file: pq.ParquetFile, schema: pa.Schema) -> None:
    if file.schema_arrow != _written(file.schema_arrow, schema):
        advice = "evaluate again into a new folder"
        raise StoreError(
            f"{path} has another schema than this version of Choicewise writes; {advice}"
        )


def _written(stored: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """``schema`` without the later columns that a file with the ``stored`` one lacks."""
    return pa.schema(
        [field for field in schema if field.name not in LATER or field.name in stored.names]
    )


def _present(file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    names = set(file.schema_arrow.names)
    return [name for name in columns if name in names or name not in LATER]


_Part = TypeVar("_Part", pa.Table, pa.RecordBatch)


def _completed(part: _Part, schema: pa.Schema) -> _Part:
    """The table or batch with nulls in the later columns of ``schema`` that it lacks."""
    for place, field in enumerate(schema):
        if field.name not in part.schema.names and field.name in LATER:
            part = part.add_column(place, field, pa.nulls(len(part), field.type))
    return part


def _as_array(keys: Sequence[str]) -> _Keys:
    return np.frombuffer(bytes.fromhex("".join(keys)), dtype=f"S{KEY_BYTES}")
