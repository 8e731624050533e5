"""One run folder being filled: opened or continued, locked, block after block, complete."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from choicewise.errors import StoreError
from choicewise.records.format import BLOCK_FOLDER, ITEM_FILE, MANIFEST
from choicewise.records.manifest import BlockRecord, EngineRecord, Manifest, Place, SelfCheckRecord, Spent
from choicewise.records.rows import ItemRow, ObservationRow
from choicewise.records.tables import FLOAT32, OBSERVATIONS
from choicewise.store.atomic import PARTIAL, disk_errors, remove
from choicewise.store.copies import copy_of, renew_copy
from choicewise.store.keys import KEY_BYTES, Keys
from choicewise.store.leftovers import leftovers
from choicewise.store.lock import locked
from choicewise.store.manifest import read_manifest, write_manifest
from choicewise.store.replacement import replaced, write_replacement
from choicewise.store.resume import continued
from choicewise.store.tables import Rows, block_file, read_columns, write_block, write_items
from choicewise.store.unanswered import unanswered_keys


@dataclass
class RunFolder:
    """The only writer of a run folder.  ``manifest`` is always what the disk holds."""

    path: Path
    manifest: Manifest

    def observed(self, but: Collection[str] = ()) -> Keys:
        """The keys of all observations there are, but of those by a float32 copy, and ``but`` these."""
        return self._keys("", but)

    def rescored(self) -> Keys:
        """The keys of the observations by a float32 copy, without the suffix ``FLOAT32``."""
        return self._keys(FLOAT32, ())

    def _keys(self, suffix: str, but: Collection[str]) -> Keys:
        keys, length = Keys(), 2 * KEY_BYTES + len(suffix)
        for block in self.manifest.blocks:
            named = read_columns(block_file(self.path, block, "observations"), OBSERVATIONS, ["key"])["key"].to_pylist()
            own = (key.removesuffix(suffix) for key in named if len(key) == length)
            keys.add(key for key in own if key not in but)
        return keys

    def unanswered(self) -> dict[str, str]:
        """The keys of the questions that got no answer (:func:`unanswered_keys`), and the block of each."""
        return unanswered_keys(self.path, self.manifest)

    def missing(self, split: str, subject: str, count: int, asks: Iterable[str]) -> list[tuple[int, int, list[str]]]:
        """(start, stop, asks): which of the first ``count`` items of a subject were not asked in which of ``asks``."""
        blocks = [block for block in self.manifest.blocks if (block.split, block.subject) == (split, subject)]
        edges = {0, count, *(edge for block in blocks for edge in (block.start, block.stop) if edge < count)}
        stretches: list[tuple[int, int, list[str]]] = []
        for start, stop in pairwise(sorted(edges)):
            done = {ask for block in blocks if block.start <= start and stop <= block.stop for ask in block.asks}
            lacking = [ask for ask in asks if ask not in done]
            if stretches and stretches[-1][1:] == (start, lacking):
                start = stretches.pop()[0]
            stretches.append((start, stop, lacking))
        return [stretch for stretch in stretches if stretch[2]]

    def add_block(
        self, place: Place, asks: Sequence[str], tables: Mapping[str, Rows | pa.Table], spent: Spent | None = None
    ) -> None:
        """Write what was observed of one block, then list it: only what the manifest lists counts.

        What was ``spent`` on it is added to what earlier blocks took.
        """
        name = self._free_name()
        files = write_block(self.path, name, tables)
        blocks = *self.manifest.blocks, BlockRecord(name, *place, tuple(asks), files)
        self._update(blocks=blocks, engine=self._engine(spent))

    def replace_answers(self, name: str, answers: Mapping[str, ObservationRow], spent: Spent | None = None) -> None:
        """Put ``answers`` in the places of the observations of block ``name`` that have their keys."""
        (block,) = (block for block in self.manifest.blocks if block.name == name)
        self.replace_observations(name, replaced(self.path, block, answers), spent)

    def replace_observations(self, name: str, observations: pa.Table, spent: Spent | None = None) -> None:
        """Let block ``name`` have these ``observations`` instead of its own.

        The whole block is written again under a new name; when the manifest lists that one and no longer the old one,
        which is one step, the old one is deleted.
        """
        (old,) = (block for block in self.manifest.blocks if block.name == name)
        new = replace(old, name=self._free_name())
        new = replace(new, files=write_replacement(self.path, old, new.name, observations))
        blocks = tuple(new if block.name == name else block for block in self.manifest.blocks)
        self._update(blocks=blocks, engine=self._engine(spent))
        with suppress(OSError):
            remove(self.path / BLOCK_FOLDER / name)

    def _free_name(self) -> str:
        return f"{max((int(block.name) for block in self.manifest.blocks), default=-1) + 1:05d}"

    def _engine(self, spent: Spent | None) -> EngineRecord:
        engine = self.manifest.engine
        if spent is None:
            return engine
        return replace(engine, spent=spent if engine.spent is None else engine.spent + spent)

    def describe(self, selfcheck: SelfCheckRecord) -> None:
        """Say how the observations are computed: by the deepest check, with the most noise that was seen."""
        if (before := self.manifest.engine.selfcheck) is not None:
            deepest = max(before, selfcheck, key=lambda each: each.depth)
            selfcheck = replace(deepest, noise=max(before.noise, selfcheck.noise))
        if selfcheck != before:
            self._update(engine=replace(self.manifest.engine, selfcheck=selfcheck))

    def note_changed(self, changed: str) -> None:
        """Say what of the server was otherwise after the last question, in words; later calls replace them."""
        if (server := self.manifest.server) is not None:
            self._update(server=replace(server, changed=changed))

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
        names = {child.name for child in path.iterdir()} - {ITEM_FILE} if parent == path else set()
        if copy_of(path / MANIFEST).name in names and not (path / MANIFEST).exists():
            raise StoreError(f"{path} has lost its {MANIFEST}; `choicewise doctor` puts back its copy")
        # Another process may have begun the folder meanwhile: then it has the lock, and says so.
        if MANIFEST not in names and not all(name.endswith(PARTIAL) for name in names):
            raise StoreError(f"{path} holds other files and no {MANIFEST}; choose an empty or new folder")


@contextmanager
def open_folder(path: Path, wanted: Manifest, items: Mapping[str, Iterable[ItemRow]]) -> Iterator[RunFolder]:
    """The folder at ``path`` for writing: new, or continued when it was made for the same measurement.

    ``wanted`` states model, dataset, selection and protocols; a continued folder keeps its own protocols and gains the
    wanted ones.  ``items``: the rows of the item table by split, read once at most.  Damaged blocks no longer count, so
    that they are asked again.  Raises StoreError when the folder holds something else or another process is writing to
    it.
    """
    check_folder(path)
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        if (path / MANIFEST).exists():
            manifest = continued(path, read_manifest(path), wanted, items)
        else:
            manifest = replace(wanted, files=write_items(path, chain.from_iterable(items.values())))
            write_manifest(path, manifest)
        renew_copy(path / MANIFEST)
        for leftover in leftovers(path, manifest):
            with suppress(OSError):  # a finished run may lie where nothing can be written
                remove(leftover)
        yield RunFolder(path, manifest)
