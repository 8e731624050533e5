"""Open, write and continue a run folder, whose manifest says what counts."""

from __future__ import annotations

import json
import os
import typing
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from choicewise.errors import ProtocolError, StoreError, UsageError
from choicewise.protocols.protocol import parse_signature
from choicewise.records import (
    BLOCK_FOLDER,
    FORMAT,
    ITEM_FILE,
    ITEMS,
    KEYS,
    MANIFEST,
    OBSERVATIONS,
    SPANS,
    SUMMARY,
    SWEEP,
    SWEEP_FORMAT,
    SWEEP_VERSION,
    VERSION,
    BlockRecord,
    EngineRecord,
    FileRecord,
    ItemRow,
    Manifest,
    ObservationRow,
    Place,
    SelfCheckRecord,
    ServerRecord,
    ShardRecord,
    Spent,
    Sweep,
)
from choicewise.store.tables import (
    SCHEMAS,
    Keys,
    Rows,
    block_file,
    damage,
    damaged_blocks,
    make_table,
    read_columns,
    replaced,
    write_block,
    write_items,
)
from choicewise.util.files import (
    PARTIAL,
    copy_of,
    disk_errors,
    locked,
    read_text,
    remove,
    renew_copy,
    write_text,
    write_twice,
)
from choicewise.util.jsonio import exact_json, json_digest
from choicewise.util.text import listed, quoted

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class TokenCounter(typing.Protocol):
    """Count what a model computes."""

    @property
    def computed(self) -> int | None:
        """Return the input tokens computed so far; None if they are not counted."""


BUNDLE = "bundle.json"
"""A file of folders that are no run, but hold requests for another engine."""

FLUSH = 60.0
"""Seconds between two writes of the observations of a long block: a kill loses at most so much.

The manifest, and its copy, are at most so much older than the blocks.
"""

LISTED_TOGETHER = 16
"""One in so many blocks may wait to be listed.

The manifest is written whole: once a block would write as many bytes as the square of their number.
"""


class SpentMeter:
    """Measure what ``counter`` counts since :meth:`restart`, and if it is time to write."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._now = self._read()
        self.restart()

    def restart(self) -> None:
        """Count from the last call of :meth:`spent` on, because that is on the disk now."""
        self._before = self._now

    @property
    def due(self) -> bool:
        """Check that so much time has passed that observations should be written."""
        return perf_counter() - self._before.seconds > FLUSH

    def spent(self, tokens_asked: int = 0) -> Spent | None:
        """Return what ``tokens_asked`` tokens of requests took; None if it is not counted."""
        self._now = self._read()
        if self._counter.computed is None:
            return None
        now = self._now
        before = self._before
        return Spent(
            tokens_asked=tokens_asked,
            tokens_computed=now.tokens_computed - before.tokens_computed,
            seconds=now.seconds - before.seconds,
            requests=now.requests - before.requests,
            tokens_unique=now.tokens_unique - before.tokens_unique,
        )

    def _read(self) -> Spent:
        counter = self._counter
        return Spent(
            tokens_asked=0,
            tokens_computed=counter.computed or 0,
            seconds=perf_counter(),
            # Only a served model sends requests, and only some engines count their tree.
            requests=getattr(counter, "requests", 0),
            tokens_unique=getattr(counter, "unique", 0),
        )


class BlockWriter:
    """Write the observations of a block every minute and when the ``with`` ends, however it ends.

    What ``counter`` counts, and the time, are added to what the run spent with every write; nothing
    is added without a count.  ``count``: observations so far.
    """

    def __init__(self, folder: RunFolder, extent: Place, counter: TokenCounter) -> None:
        self.count = 0
        self._folder = folder
        self._extent = extent
        self._meter = SpentMeter(counter)
        self._rows: list[ObservationRow] = []
        self._tables: list[pa.Table] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows or self._tables:
            self.write()

    def add(self, observed: ObservationRow | pa.Table) -> None:
        """Keep an observation, or a table of them; write all of them if a minute is over."""
        if isinstance(observed, pa.Table):
            self.count += observed.num_rows
            self._tables.append(observed)
        else:
            self.count += 1
            self._rows.append(observed)
        if self._meter.due:
            self.write()

    def write(
        self,
        asks: Sequence[str] = (),
        tokens_asked: int = 0,
        requests: Rows | pa.Table = (),
        spans: Rows | pa.Table = (),
    ) -> None:
        """Write a block of all kept observations, asked in the ways ``asks``."""
        observations = pa.concat_tables([*self._tables, make_table(OBSERVATIONS, self._rows)])
        tables = {"requests": requests, "spans": spans, "observations": observations}
        self._folder.add_block(self._extent, asks, tables, self._meter.spent(tokens_asked))
        self._meter.restart()
        self._rows = []
        self._tables = []


@dataclass
class RunFolder:
    """Write a run folder; nothing else does.

    ``manifest``: the one on the disk, and the latest blocks, which :meth:`list_blocks` writes.
    """

    path: Path
    manifest: Manifest
    _unlisted: int = 0
    _listed: float = field(default_factory=monotonic)
    _copied: float = field(default_factory=monotonic)

    def observed(self) -> Keys:
        """Return the keys of all observations in the folder."""
        keys = Keys()
        for block in self.manifest.blocks:
            path = block_file(self.path, block, "observations")
            keys.add(read_columns(path, OBSERVATIONS, ["key"])["key"].to_pylist())
        return keys

    def named(self, but: Collection[str] = ()) -> Keys:
        """Return the keys of all observations that this or another process was to make.

        Keys in ``but`` are left out.
        """
        keys = Keys()
        for block in self.manifest.blocks:
            spans = read_columns(block_file(self.path, block, "spans"), SPANS, KEYS)
            named: list[str] = []
            for column in KEYS:
                named.extend(spans[column].drop_null().to_pylist())
            keys.add(key for key in named if key not in but)
        return keys

    def missing(
        self, split: str, subject: str, count: int, asks: Iterable[str]
    ) -> list[tuple[int, int, list[str]]]:
        """Return which of the first ``count`` items of a subject lack which of ``asks``.

        The result has (start, stop, lacking asks) for stretches of items, in order.
        """
        # Between two edges every item was asked in the same ways.
        section = (split, subject)
        blocks = [
            block for block in self.manifest.blocks if (block.split, block.subject) == section
        ]
        edges = {0, count}
        for block in blocks:
            edges.update(edge for edge in (block.start, block.stop) if edge < count)
        stretches: list[tuple[int, int, list[str]]] = []
        for start, stop in pairwise(sorted(edges)):
            done: set[str] = set()
            for block in blocks:
                if block.start <= start and stop <= block.stop:
                    done.update(block.asks)
            lacking = [ask for ask in asks if ask not in done]
            # Neighbours that lack the same are asked together.
            if stretches and stretches[-1][2] == lacking:
                start = stretches.pop()[0]
            stretches.append((start, stop, lacking))
        return [stretch for stretch in stretches if stretch[2]]

    def add_block(
        self,
        extent: Place,
        asks: Sequence[str],
        tables: Mapping[str, Rows | pa.Table | Path],
        spent: Spent | None = None,
    ) -> None:
        """Write the tables of one block, which counts once it is listed, within a minute.

        ``spent`` is added to what earlier blocks took.
        """
        split, subject, start, stop = extent
        # A kill before the manifest is written leaves files under a name that nothing lists.
        name = self._free_name()
        block = BlockRecord(
            name=name,
            split=split,
            subject=subject,
            start=start,
            stop=stop,
            asks=tuple(asks),
            files=write_block(self.path, name, tables),
        )
        blocks = (*self.manifest.blocks, block)
        self.manifest = replace(self.manifest, blocks=blocks, engine=self._engine(spent))
        self._unlisted += 1
        is_late = monotonic() - self._listed > FLUSH
        if is_late or LISTED_TOGETHER * self._unlisted >= len(blocks):
            self.list_blocks()

    def list_blocks(self) -> None:
        """Write the manifest if blocks were added since it was written."""
        if self._unlisted:
            self._update()

    def replace_answers(
        self, name: str, answers: Mapping[str, ObservationRow], spent: Spent | None = None
    ) -> str:
        """Replace the observations of block ``name`` that have the keys of ``answers``.

        Returns the block's new name.
        """
        observations = replaced(self.path, self._block(name), answers)
        return self.replace_observations(name, observations, spent)

    def replace_observations(
        self, name: str, observations: pa.Table, spent: Spent | None = None
    ) -> str:
        """Replace all observations of block ``name``; returns its new name.

        The whole block is written again under the new name.  One write of the manifest lists that
        and drops the old one, which is then deleted.
        """
        old = self._block(name)
        new_name = self._free_name()
        tables = {table: block_file(self.path, old, table) for table in SCHEMAS}
        files = write_block(self.path, new_name, {**tables, "observations": observations})
        new = replace(old, name=new_name, files=files)
        blocks = [new if block is old else block for block in self.manifest.blocks]
        self._update(blocks=tuple(blocks), engine=self._engine(spent))
        # What can't be deleted now is a leftover, which the next writer deletes.
        with suppress(OSError):
            remove(self.path / BLOCK_FOLDER / name)
        return new_name

    def _block(self, name: str) -> BlockRecord:
        return {block.name: block for block in self.manifest.blocks}[name]

    def _free_name(self) -> str:
        greatest = max((int(block.name) for block in self.manifest.blocks), default=-1)
        return f"{greatest + 1:05d}"

    def _engine(self, spent: Spent | None) -> EngineRecord:
        engine = self.manifest.engine
        if spent is None:
            return engine
        if engine.spent is not None:
            spent = engine.spent + spent
        return replace(engine, spent=spent)

    def describe(self, selfcheck: SelfCheckRecord) -> None:
        """Record how observations are computed, by the deepest check and the most noise so far."""
        before = self.manifest.engine.selfcheck
        if before is not None:
            noise = max(before.noise, selfcheck.noise)
            deepest = before if before.depth >= selfcheck.depth else selfcheck
            selfcheck = replace(deepest, noise=noise)
        if selfcheck != before:
            self._update(engine=replace(self.manifest.engine, selfcheck=selfcheck))

    def note_server(self, server: ServerRecord) -> None:
        """Record the server as it is now."""
        if server != self.manifest.server:
            self._update(server=server)

    def finish(self, shard: ShardRecord | None = None) -> None:
        """Mark the folder as complete, or as this ``shard``, unless it is complete."""
        if not self.manifest.complete:
            self._update(complete=True, shard=shard or self.manifest.shard)

    def _update(self, **changes: Any) -> None:
        manifest = replace(self.manifest, **changes)
        write_text(self.path / MANIFEST, _manifest_text(manifest))
        self.manifest = manifest
        self._unlisted = 0
        self._listed = monotonic()
        # A copy at every block would double the writing.
        if monotonic() - self._copied > FLUSH:
            renew_copy(self.path / MANIFEST)
            self._copied = monotonic()


def check_folder(path: Path) -> None:
    """Raise StoreError if nothing can be written at ``path``, or if it holds something else.

    Makes no folder.
    """
    with disk_errors(path):
        # A folder with a manifest may be complete, and then nothing is written.
        if (path / MANIFEST).exists():
            return
        parent = path
        while not parent.exists():
            parent = parent.absolute().parent
        if not parent.is_dir():
            raise StoreError(f"{parent} is a file; choose another folder")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise StoreError(f"{parent} can't be written; choose another folder")
        if parent == path:
            _check_unused(path)


def _check_unused(path: Path) -> None:
    # A first start that was killed before its manifest left only the item table and partial files.
    names = {child.name for child in path.iterdir()} - {ITEM_FILE}
    manifest = path / MANIFEST
    if copy_of(manifest).name in names and not manifest.exists():
        raise StoreError(f"{path} has lost its {MANIFEST}; {_put_back(manifest)}")
    # If another process has begun the folder meanwhile, it has the lock, and that is the error.
    is_begun = MANIFEST in names or all(name.endswith(PARTIAL) for name in names)
    if not is_begun:
        raise StoreError(
            f"{path} holds other files and no {MANIFEST}; choose an empty or new folder"
        )


@contextmanager
def open_folder(
    path: Path, wanted: Manifest, items: Mapping[str, Iterable[ItemRow]]
) -> Iterator[RunFolder]:
    """Open the folder at ``path`` for writing: a new one, or one made for the same measurement.

    ``wanted`` states model, dataset, selection and protocols; a continued folder keeps its
    protocols and gains the wanted ones.  ``items``: the rows of the item table by split, read once
    at most. Damaged blocks no longer count, so that they are asked again.  A run that ended before
    its first answer is replaced.  Raises StoreError if the folder holds something else or another
    process is writing to it.
    """
    check_folder(path)
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        existing = None
        if (path / MANIFEST).exists():
            existing = read_manifest(path)
        if existing is None or _is_replaceable(path, existing):
            files = write_items(path, chain.from_iterable(items.values()))
            # A summary that the new manifest does not list would look damaged.
            remove(path / SUMMARY)
            manifest = replace(wanted, files=files)
            write_manifest(path, manifest)
        else:
            manifest = continued(path, existing, wanted, items)
        renew_copy(path / MANIFEST)
        for leftover in leftovers(path, manifest):
            # A finished run may lie where nothing can be written.
            with suppress(OSError):
                remove(leftover)
        folder = RunFolder(path, manifest)
        try:
            yield folder
        finally:
            folder.list_blocks()
            renew_copy(path / MANIFEST)


def _is_replaceable(path: Path, existing: Manifest) -> bool:
    # Shards may run on machines that do not see the locks of others.
    is_whole_run = existing.shard is None and existing.imported is None
    return is_whole_run and _is_unanswered(path, existing)


def _is_unanswered(path: Path, existing: Manifest) -> bool:
    """Check that the folder has no answers, not even in blocks that the manifest does not list."""
    has_blocks = bool(existing.blocks) or os.path.lexists(path / BLOCK_FOLDER)
    return not has_blocks and not existing.complete


def continued(
    path: Path, existing: Manifest, wanted: Manifest, items: Mapping[str, Iterable[ItemRow]]
) -> Manifest:
    """Return the manifest to continue with if ``items`` are asked, and write it if it changes.

    Blocks and an item table that are damaged or gone are left out and written again.
    """
    try:
        _check_same_run(path, existing, wanted)
    except StoreError as error:
        if not _is_unanswered(path, existing):
            raise
        advice = f"the folder holds no answers, so `rm -r {quoted(path)}` loses none"
        raise StoreError(f"{error.message}; {advice}", error.problems) from error
    protocols = _continued_protocols(path, existing, wanted)
    files = _continued_files(path, existing, items)
    damaged = [damage.block for damage in damaged_blocks(path, existing.blocks)]
    blocks = usable_blocks(existing.blocks, damaged)
    manifest = replace(existing, protocols=protocols, files=files, blocks=blocks)
    has_changed = manifest != existing
    if has_changed:
        manifest = replace(manifest, complete=False)
    # The address of a server may have changed, so its job is the latest one.
    has_moved = wanted.server is not None and wanted.job != existing.job
    if wanted.job and (has_changed or has_moved):
        manifest = replace(manifest, job=wanted.job, command=wanted.command)
    refused = {**existing.refused, **wanted.refused}
    refused = {name: reason for name, reason in refused.items() if name not in protocols}
    manifest = replace(manifest, refused=refused)
    if manifest == existing:
        return existing
    write_manifest(path, manifest)
    return manifest


def _check_same_run(path: Path, existing: Manifest, wanted: Manifest) -> None:
    if existing.imported is not None and wanted.imported is None:
        raise StoreError(
            f"{path} is an import from {existing.imported.tool} ({existing.model.name} on "
            f"{existing.dataset.name}), which a model can't continue; choose another folder"
        )
    check_shard(path, existing, wanted)
    _check_server(path, existing, wanted)
    for part, words in differences(existing, wanted):
        advice = f"continue there with the old {part}, or choose another folder"
        if _is_only_products(existing, wanted):
            library = _short("products", existing.model.products)
            advice = f"set the option products to {library}, or choose another folder"
        raise StoreError(f"{path} was made for another {part} {words}; {advice}")


def _is_only_products(existing: Manifest, wanted: Manifest) -> bool:
    """Check that two manifests differ in the library of products alone."""
    model = replace(existing.model, products=wanted.model.products)
    return not list(differences(replace(existing, model=model), wanted))


def _continued_protocols(path: Path, existing: Manifest, wanted: Manifest) -> dict[str, str]:
    """Return the protocols of both manifests by name; raises StoreError if a name has two."""
    for name, signature in existing.protocols.items():
        if not _is_same_protocol(signature, wanted.protocols.get(name, signature)):
            raise StoreError(f"{path} has another protocol called {name}; choose another folder")
    # A key stays where it was first: the folder's protocols come before further ones.
    return {**existing.protocols, **wanted.protocols, **existing.protocols}


def _is_same_protocol(before: str, signature: str) -> bool:
    if before == signature:
        return True
    # An earlier version spells the protocol without the axes that it did not have yet.
    try:
        return parse_signature(signature) == parse_signature(before)
    except ProtocolError:
        return False


def _continued_files(
    path: Path, existing: Manifest, items: Mapping[str, Iterable[ItemRow]]
) -> dict[str, FileRecord]:
    """Return the files of the manifest, and write the item table again if it is damaged."""
    if not damage(path / ITEM_FILE, existing.files.get(ITEM_FILE)):
        splits = read_columns(path / ITEM_FILE, ITEMS, ["split"])["split"].unique().to_pylist()
        unlisted = sorted(set(items).difference(splits))
        if unlisted:
            raise StoreError(
                f"{path} has no items of split {', '.join(unlisted)}, which a protocol "
                "tests; run all protocols together in a new folder"
            )
        return existing.files
    lost = sorted({block.split for block in existing.blocks} - set(items))
    if lost:
        raise StoreError(
            f"{path / ITEM_FILE} is damaged, and rewriting it needs all splits of the run; "
            f"add a protocol that tests split {', '.join(lost)}"
        )
    return {**existing.files, **write_items(path, chain.from_iterable(items.values()))}


def usable_blocks(
    blocks: Sequence[BlockRecord], damaged: Sequence[BlockRecord]
) -> tuple[BlockRecord, ...]:
    """Return the blocks that are of use without the ``damaged`` ones.

    A block without asks holds a part of the observations that another block of the same items
    names, and that block is of no use without it.
    """
    parts = [block for block in damaged if not block.asks]
    usable = []
    for block in blocks:
        lacks_part = any(overlap(block, part) for part in parts)
        if block not in damaged and not lacks_part:
            usable.append(block)
    return tuple(usable)


def overlap(left: BlockRecord, right: BlockRecord) -> bool:
    """Check that two blocks have items in common."""
    if (left.split, left.subject) != (right.split, right.subject):
        return False
    return left.start < right.stop and right.start < left.stop


def leftovers(run: Path, manifest: Manifest) -> Iterator[Path]:
    """Yield files and folders that do not count: whoever writes to the folder may delete them."""
    yield from sorted(run.glob(f"*{PARTIAL}"))
    yield from unlisted_blocks(run, manifest)


def unlisted_blocks(run: Path, manifest: Manifest) -> list[Path]:
    """Return what has the name of a block, or of an unfinished one, and is not listed."""
    folder = run / BLOCK_FOLDER
    if not folder.is_dir() or folder.is_symlink():
        return []
    names = {block.name for block in manifest.blocks}
    unlisted = []
    for path in sorted(folder.iterdir()):
        is_block = path.name.removesuffix(PARTIAL).isdecimal()
        if is_block and path.name not in names:
            unlisted.append(path)
    return unlisted


_IDENTITY = {
    "model": ("name", "digest", "dtype", "device", "window", "chat", "products"),
    "dataset": ("name", "digest"),
    "selection": ("subjects", "limit", "sample", "seed"),
}
"""What must agree for a run to be continued; a name alone may change."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the folder's manifest in one step, then its copy."""
    write_twice(folder / MANIFEST, _manifest_text(manifest))


def _manifest_text(manifest: Manifest) -> str:
    content = manifest.stored()
    head = {"format": FORMAT, "version": VERSION, "sha256": json_digest(content)}
    return exact_json({**head, **content}, indent=1) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Describe a file that says what a folder is.

    ``command``: the command that writes it.  ``instead``: what to do if it is lost.
    """

    record: Any
    command: str
    description: str
    format: str
    version: int
    instead: str


_RUN = _Kind(
    record=Manifest,
    command="run",
    description="a manifest",
    format=FORMAT,
    version=VERSION,
    instead="evaluate again into a new folder",
)
_SWEEP = _Kind(
    record=Sweep,
    command="sweep",
    description="a sweep",
    format=SWEEP_FORMAT,
    version=SWEEP_VERSION,
    instead="begin another folder",
)


def read_manifest(folder: Path, name: str = MANIFEST) -> Manifest:
    """Read the manifest of a run folder, or its copy by its ``name``.

    Raises StoreError if there is none, if another version of the format wrote it, or if it is
    damaged: then the first field that is missing, unknown or of the wrong type is named.
    """
    path = folder / name
    manifest: Manifest = _read_record(path, _RUN)
    for block, count in Counter(block.name for block in manifest.blocks).items():
        if not block.isdecimal() or count > 1:
            raise StoreError(
                f"{path} is damaged: {block!r} is not the name of a block; {_advice(path, _RUN)}"
            )
    return manifest


def write_sweep(folder: Path, sweep: Sweep) -> None:
    """Replace the folder's file in one step, then its copy."""
    content = {"format": SWEEP_FORMAT, "version": SWEEP_VERSION, **asdict(sweep)}
    write_twice(folder / SWEEP, exact_json(content, indent=1) + "\n")


def is_sweep(folder: Path) -> bool:
    """Check that the folder holds several runs and is none; False if it can't be read."""
    has_sweep = os.path.isfile(folder / SWEEP) or os.path.isfile(copy_of(folder / SWEEP))
    return has_sweep and not os.path.exists(folder / MANIFEST)


def read_sweep(folder: Path, name: str = SWEEP) -> Sweep:
    """Read the sweep of a folder, or its copy by its ``name``.

    Raises StoreError if there is none, if it is damaged, or newer than this version.
    """
    path = folder / name
    sweep: Sweep = _read_record(path, _SWEEP)
    for cell in sweep.cells:
        cell_folder = Path(cell.folder)
        if cell_folder.is_absolute() or ".." in cell_folder.parts:
            raise StoreError(
                f"{path} is damaged: {cell.folder} is outside the folder; {_advice(path, _SWEEP)}"
            )
    return sweep


def _advice(path: Path, kind: _Kind) -> str:
    return f"{_put_back(path)}; or {kind.instead}"


def _put_back(path: Path) -> str:
    return f"`cp {quoted(copy_of(path))} {quoted(path)}` restores it"


def _read_record(path: Path, kind: _Kind) -> Any:
    # pydantic takes a tenth of a second to import, which most commands need not spend.
    from pydantic import ValidationError

    content = _read_content(path, kind)
    if not isinstance(content, dict) or content.pop("format", None) != kind.format:
        raise StoreError(f"{path} is not {kind.description} of Choicewise; choose another folder")
    version = content.pop("version", None)
    if version != kind.version:
        advice = kind.instead
        if isinstance(version, int) and version > kind.version:
            advice = "upgrade Choicewise"
        reads = f"this Choicewise reads {kind.version}"
        raise StoreError(f"{path} has version {version} of the format, and {reads}; {advice}")
    # Only a manifest has a digest.
    is_signed = kind.record is Manifest
    digest = content.pop("sha256", None) if is_signed else None
    try:
        record = _reader(kind.record).validate_json(exact_json(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problems = {"missing": "is missing", "unexpected_keyword_argument": "is unknown"}
        problem = problems.get(first["type"], f"is {first['input']!r} ({first['msg']})")
        field = ".".join(map(str, first["loc"]))
        raise StoreError(
            f"{path} is damaged: field {field} {problem}; {_advice(path, kind)}"
        ) from error
    except (RecursionError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_advice(path, kind)}") from error
    if is_signed and digest != json_digest(content):
        raise StoreError(f"{path} was changed (its sha256 differs); {_advice(path, kind)}")
    return record


def _read_content(path: Path, kind: _Kind) -> Any:
    try:
        return json.loads(read_text(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreError(_why_missing(path, kind)) from error
    except OSError as error:
        raise StoreError(f"can't read {path}: {error.strerror}; make it readable") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_advice(path, kind)}") from error


def _why_missing(path: Path, kind: _Kind) -> str:
    folder = path.parent
    if copy_of(path).is_file():
        return f"{path} is missing; {_advice(path, kind)}"
    if (folder / BUNDLE).is_file():
        return (
            f"{folder} is a bundle of requests; make a run of it and of its answers with "
            "`choicewise import`"
        )
    missing = f"{folder} is not a {kind.command} folder: it has no {path.name}"
    return f"{missing}; make one with `choicewise {kind.command}`"


@cache
def _reader(record: type) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(record)


def differences(existing: Manifest, wanted: Manifest) -> Iterator[tuple[str, str]]:
    """Yield model, dataset or selection if the measurements differ in it, and how, in words."""
    for part, fields in _IDENTITY.items():
        old = getattr(existing, part)
        new = getattr(wanted, part)
        lines = {}
        for name in fields:
            before = getattr(old, name)
            now = getattr(new, name)
            if before != now:
                words = f"{_short(name, before)} there and {_short(name, now)} here"
                lines[name] = f"{part} {name} is {words}"
        if lines.keys() - {"name"}:
            yield part, f"({'; '.join(lines.values())}){_moved(old, new)}"


def _check_server(path: Path, existing: Manifest, wanted: Manifest) -> None:
    """Raise StoreError if another model is behind a server, though it may have the same name."""
    if existing.server is None or wanted.server is None:
        return
    server_differences = existing.server.differences(wanted.server)
    if not server_differences:
        return
    then = existing.server.software or "unnamed"
    now = wanted.server.software or "unnamed"
    if then != now:
        server_differences.append(f"the server: {then} then, {now} now")
    raise StoreError(
        f"the server answers differently than when {path} began; serve the same model, or choose "
        "another folder",
        server_differences,
    )


def _moved(old: Any, new: Any) -> str:
    """Say which commit on the Hub the folder was made from, if a revision is another one now."""
    before = getattr(old, "source", "")
    now = getattr(new, "source", "")
    if not before or before == now:
        return ""
    return f", from {before} on the Hub, where this is {now or 'from elsewhere'}"


def _short(name: str, value: Any) -> Any:
    """Shorten a digest; return any other value in full."""
    if name == "digest":
        return value[:12]
    if name == "products":
        return value or "torch"
    return list(value) if isinstance(value, tuple) else value


def part_of(shard: ShardRecord) -> str:
    """Name the part of a run that a folder holds."""
    numbers = listed([str(number) for number in shard.numbers])
    noun = "shard" if len(shard.numbers) == 1 else "shards"
    merged = ", merged" if shard.engines else ""
    return f"{noun} {numbers} of {shard.of}{merged}"


def refuse_part(path: Path, manifest: Manifest) -> None:
    """Raise UsageError if the folder holds a part of a run that is not merged yet."""
    shard = manifest.shard
    if shard is not None and not shard.whole and not shard.engines:
        makes = "run `choicewise merge` on all parts"
        raise UsageError(f"{path} is only {part_of(shard)}; {makes}")


def not_complete(path: Path, manifest: Manifest) -> str:
    """Say that a run is not complete, and what completes it."""
    shard = manifest.shard
    if shard is not None and not shard.whole and shard.engines:
        return f"{path} has {part_of(shard)}; run `choicewise merge` on all parts"
    return f"{path} is not complete; run the same `{manifest.writer}` command again to resume"


def check_shard(path: Path, existing: Manifest, wanted: Manifest) -> None:
    """Raise StoreError if the folder holds another part of the run, or other protocols."""
    there = existing.shard
    here = wanted.shard
    if here is None and (there is None or there.whole):
        return
    part_there = "the whole run" if there is None else part_of(there)
    part_here = "the whole run" if here is None else part_of(here)
    # A merged folder is not continued, even with the same shards.
    if part_there != part_here or there is None or there.engines:
        raise StoreError(f"{path} has {part_there}, not {part_here}; choose another folder")
    if existing.protocols.keys() != wanted.protocols.keys():
        raise StoreError(
            f"{path} has {part_there} under other protocols; run all shards alike, in new folders"
        )
