"""One run folder being filled: opened or continued, locked, block after block, complete."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from choicewise.errors import StoreError
from choicewise.records.rows import ItemRow
from choicewise.store.atomic import PARTIAL, disk_errors
from choicewise.store.blocks import FOLDER, read_blocks, write_block
from choicewise.store.items import NAME as ITEM_TABLE
from choicewise.store.items import read_items, write_items
from choicewise.store.manifest import NAME, Block, Manifest, read_manifest
from choicewise.store.table import Rows

_IDENTITY = {
    "model": ("digest", "dtype", "device", "window"),
    "dataset": ("digest",),
    "selection": ("subjects", "limit"),
}
"""What must agree for a run to be continued; names and paths may change."""


class RunFolder:
    """The only writer of a run folder.  ``manifest`` is always what the disk holds."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    def observed(self) -> set[str]:
        """The keys of all observations there are."""
        return set(read_blocks(self.path, self.manifest.blocks, "observations")["key"].to_pylist())

    def missing_asks(self, split: str, subject: str, start: int, stop: int, asks: Sequence[str]) -> list[str]:
        """Those of ``asks`` that were not put to items ``start`` to ``stop`` of ``subject`` yet."""
        place = (split, subject, start, stop)
        done = {
            ask
            for block in self.manifest.blocks
            if (block.split, block.subject, block.start, block.stop) == place
            for ask in block.asks
        }
        return [ask for ask in asks if ask not in done]

    def add_block(
        self,
        split: str,
        subject: str,
        start: int,
        stop: int,
        asks: Sequence[str],
        tables: Mapping[str, Rows],
        spent: Mapping[str, float] | None = None,
    ) -> None:
        """Write what was observed of one block, then list it: only what the manifest lists counts.

        What was ``spent`` on it (tokens, seconds) is added to what earlier blocks took.
        """
        name = f"{len(self.manifest.blocks):05d}"
        files = write_block(self.path, name, tables)
        block = Block(name, split, subject, start, stop, tuple(asks), files)
        engine, before = self.manifest.engine, self.manifest.engine.get("spent", {})
        if spent:
            engine = {**engine, "spent": {name: before.get(name, 0) + amount for name, amount in spent.items()}}
        self._update(blocks=(*self.manifest.blocks, block), engine=engine)

    def describe(self, engine: Mapping[str, Any]) -> None:
        """Say how the observations are computed, once: before the first of them."""
        if engine.keys() - self.manifest.engine.keys():
            self._update(engine={**self.manifest.engine, **engine})

    def finish(self) -> None:
        """Say that everything asked for is there; a complete folder is not touched."""
        if not self.manifest.complete:
            self._update(complete=True)

    def _update(self, **changes: Any) -> None:
        manifest = dataclasses.replace(self.manifest, **changes)
        manifest.write(self.path)
        self.manifest = manifest


def check_folder(path: Path) -> None:
    """Raise StoreError when nothing can be written at ``path``, or when it holds something else; makes nothing."""
    with disk_errors(path):
        if (path / NAME).exists():
            return  # all may be there, and then nothing is written
        there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not there.is_dir():
            raise StoreError(f"{there} is a file; choose another --out folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise StoreError(f"{there} can't be written; choose another --out folder")
        if there == path and not _abandoned(path):
            raise StoreError(f"{path} holds other files and no {NAME}; choose an empty or new --out folder")


@contextmanager
def open_folder(path: Path, wanted: Manifest, items: Sequence[ItemRow]) -> Iterator[RunFolder]:
    """The folder at ``path`` for writing: new, or continued when it was made for the same measurement.

    ``wanted`` states model, dataset, selection and protocols; a continued folder keeps its own protocols and gains the
    wanted ones.  Raises StoreError when the folder holds something else or another process is writing to it.
    """
    check_folder(path)
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        if (path / NAME).exists():
            found = read_manifest(path)
            held = set(read_items(path, found)["split"].to_pylist())  # damage is told before hours of work
            manifest = _continued(path, found, wanted, sorted({row.split for row in items} - held))
        else:
            manifest = dataclasses.replace(wanted, files=write_items(path, items))
            manifest.write(path)
        for leftover in (path / FOLDER).glob(f"*{PARTIAL}"):
            shutil.rmtree(leftover)
        yield RunFolder(path, manifest)


def _abandoned(path: Path) -> bool:
    """Empty, or a first start that was killed before its manifest: nothing but the item table and unfinished files."""
    names = {child.name for child in path.iterdir()} - {ITEM_TABLE}
    return all(name.endswith(PARTIAL) for name in names)


def _continued(path: Path, found: Manifest, wanted: Manifest, lacking: Sequence[str]) -> Manifest:
    """The manifest to go on with; ``lacking``: splits that are to be asked and whose items the folder lacks."""
    for part, keys in _IDENTITY.items():
        old, new = getattr(found, part), getattr(wanted, part)
        told = [
            f"{part} {key} is {_short(key, old[key])} there and {_short(key, new[key])} here"
            for key in keys
            if old[key] != new[key]
        ]
        if told:
            raise StoreError(
                f"{path} was made for another {part} ({'; '.join(told)}); go on there with the old {part}, or choose "
                "another --out folder"
            )
    if lacking:
        raise StoreError(
            f"{path} holds no items of split {', '.join(lacking)}, which a protocol tests; "
            "begin another --out folder with all the protocols at once"
        )
    protocols = {**found.protocols, **wanted.protocols}
    if changed := [name for name in wanted.protocols if found.protocols.get(name, protocols[name]) != protocols[name]]:
        raise StoreError(f"{path} holds another protocol under the name {changed[0]}; choose another --out folder")
    if protocols == found.protocols:
        return found
    extended = dataclasses.replace(found, protocols=protocols, complete=False)
    extended.write(path)
    return extended


def _short(key: str, value: Any) -> Any:
    """As much of a value as tells it from another."""
    return str(value)[:12] if key == "digest" else value


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep a second process out; the lock disappears with the process, however it ends."""
    with disk_errors(path):
        folder = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StoreError(f"another process is writing to {path}; wait for it or choose another --out") from error
    finally:
        os.close(folder)
