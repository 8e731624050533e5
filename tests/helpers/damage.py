"""Files of run folders as accidents, older versions and strangers leave them."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from choicewise.store.folder import read_manifest, write_manifest
from choicewise.store.tables import file_record


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


def block(run: Path, number: int = 1) -> Path:
    """The folder of a block."""
    return run / "blocks" / read_manifest(run).blocks[number].name


def relist(run: Path, path: Path) -> None:
    """Have the manifest list a file as it is now, as somebody might who forges it well."""
    manifest, own = read_manifest(run), {path.name: file_record(path)}
    if path.parent == run:
        return write_manifest(run, replace(manifest, files={**manifest.files, **own}))
    name = path.parent.name
    blocks = (
        replace(each, files=each.files | own) if each.name == name else each
        for each in manifest.blocks
    )
    return write_manifest(run, replace(manifest, blocks=tuple(blocks)))
