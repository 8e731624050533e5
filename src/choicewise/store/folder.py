"""One run folder being filled: opened or continued, locked, block after block, complete."""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from choicewise.errors import StoreError
from choicewise.records.format import BLOCK_FOLDER, ITEM_FILE, MANIFEST
from choicewise.records.manifest import BlockRecord, Manifest, Place, SelfCheckRecord, Spent
from choicewise.records.rows import ItemRow
from choicewise.store.atomic import PARTIAL, disk_errors
from choicewise.store.manifest import read_manifest, write_manifest
from choicewise.store.tables import Rows, read_blocks, read_items, write_block, write_items

_IDENTITY = {
    "model": ("digest", "dtype", "device", "window"),
    "dataset": ("digest",),
    "selection": ("subjects", "limit"),
}
"""What must agree for a run to be continued; names and paths may change."""


@dataclass
class RunFolder:
    """The only writer of a run folder.  ``manifest`` is always what the disk holds."""

    path: Path
    manifest: Manifest

    def observed(self) -> set[str]:
        """The keys of all observations there are."""
        return set(read_blocks(self.path, self.manifest.blocks, "observations")["key"].to_pylist())

    def missing_asks(self, place: Place, asks: Iterable[str]) -> list[str]:
        """Those of ``asks`` in which the items at ``place`` were not asked yet."""
        done = {ask for block in self.manifest.blocks if block.place == place for ask in block.asks}
        return [ask for ask in asks if ask not in done]

    def add_block(
        self, place: Place, asks: Sequence[str], tables: Mapping[str, Rows], spent: Spent | None = None
    ) -> None:
        """Write what was observed of one block, then list it: only what the manifest lists counts.

        What was ``spent`` on it is added to what earlier blocks took.
        """
        name = f"{len(self.manifest.blocks):05d}"
        files = write_block(self.path, name, tables)
        engine = self.manifest.engine
        if spent is not None:
            engine = replace(engine, spent=spent if engine.spent is None else engine.spent + spent)
        self._update(blocks=(*self.manifest.blocks, BlockRecord(name, *place, tuple(asks), files)), engine=engine)

    def describe(self, selfcheck: SelfCheckRecord) -> None:
        """Say how the observations are computed; later calls change nothing."""
        if self.manifest.engine.selfcheck is None:
            self._update(engine=replace(self.manifest.engine, selfcheck=selfcheck))

    def finish(self) -> None:
        """Say that everything that was asked for is there; a complete folder is not touched."""
        if not self.manifest.complete:
            self._update(complete=True)

    def _update(self, **changes: Any) -> None:
        manifest = replace(self.manifest, **changes)
        write_manifest(self.path, manifest)
        self.manifest = manifest


def check_folder(path: Path) -> None:
    """Raise StoreError when nothing can be written at ``path``, or when it holds something else; makes nothing."""
    with disk_errors(path):
        if (path / MANIFEST).exists():
            return  # it may be complete, and then nothing is written
        parent = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not parent.is_dir():
            raise StoreError(f"{parent} is a file; choose another folder")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise StoreError(f"{parent} can't be written; choose another folder")
        # A first start that was killed before its manifest left nothing but the item table and unfinished files.
        names = [child.name for child in path.iterdir() if child.name != ITEM_FILE] if parent == path else []
        if not all(name.endswith(PARTIAL) for name in names):
            raise StoreError(f"{path} holds other files and no {MANIFEST}; choose an empty or new folder")


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
        if (path / MANIFEST).exists():
            manifest = _continued(path, read_manifest(path), wanted, {row.split for row in items})
        else:
            manifest = replace(wanted, files=write_items(path, items))
            write_manifest(path, manifest)
        for leftover in (path / BLOCK_FOLDER).glob(f"*{PARTIAL}"):
            shutil.rmtree(leftover)
        yield RunFolder(path, manifest)


def _continued(path: Path, existing: Manifest, wanted: Manifest, splits: set[str]) -> Manifest:
    """The manifest to go on with when items of ``splits`` are asked; it is written when it changes."""
    missing = sorted(splits - set(read_items(path, existing)["split"].to_pylist()))  # damage shows before hours of work
    for part, fields in _IDENTITY.items():
        old, new = getattr(existing, part), getattr(wanted, part)
        differences = [
            f"{part} {name} is {_short(name, getattr(old, name))} there and {_short(name, getattr(new, name))} here"
            for name in fields
            if getattr(old, name) != getattr(new, name)
        ]
        if differences:
            raise StoreError(
                f"{path} was made for another {part} ({'; '.join(differences)}); "
                f"go on there with the old {part}, or choose another folder"
            )
    if missing:
        raise StoreError(
            f"{path} holds no items of split {', '.join(missing)}, which a protocol tests; "
            "begin another folder with all the protocols at once"
        )
    protocols = {**existing.protocols, **wanted.protocols}
    if changed := [name for name, text in existing.protocols.items() if protocols[name] != text]:
        raise StoreError(f"{path} holds another protocol under the name {changed[0]}; choose another folder")
    if protocols == existing.protocols:
        return existing
    extended = replace(existing, protocols=protocols, complete=False)
    write_manifest(path, extended)
    return extended


def _short(name: str, value: Any) -> Any:
    """The first characters of a digest, any other value in full."""
    return value[:12] if name == "digest" else list(value) if isinstance(value, tuple) else value


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep a second process out; the lock disappears with the process, however it ends."""
    with disk_errors(path):
        folder = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"another process is writing to {path}; wait for it, or choose another folder") from error
        yield
    finally:
        os.close(folder)
