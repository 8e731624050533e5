"""Run folder: open, write a block, resume; its manifest."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import pyarrow as pa

from choicewise.errors import ProtocolError, StoreError
from choicewise.protocols.protocol import parse_signature
from choicewise.records import (
    BLOCK_FOLDER,
    FORMAT,
    ITEM_FILE,
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
    ItemRow,
    Manifest,
    ObservationRow,
    Place,
    RequestRow,
    SelfCheckRecord,
    ServerRecord,
    ShardRecord,
    SpanRow,
    Spent,
    Sweep,
)
from choicewise.store.shards import check_shard
from choicewise.store.tables import (
    SCHEMAS,
    Keys,
    Rows,
    block_file,
    damage,
    damaged_blocks,
    make_table,
    read_columns,
    read_splits,
    replaced,
    unanswered_keys,
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
    write_twice,
)
from choicewise.util.jsonio import exact_json, json_digest
from choicewise.util.text import quoted

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class TokenCounter(Protocol):
    """Who answers, and counts what it computes."""

    @property
    def computed(self) -> int | None:
        """Input tokens computed so far; None where they are not counted."""

    @property
    def requests(self) -> int:
        """Requests to a server so far; 0 where none is asked."""

    @property
    def unique(self) -> int:
        """Input tokens of the tree of all that was asked so far; 0 where no engine is held against it."""


BUNDLE = "bundle.json"
"""What says of a folder that it holds requests for another engine, and is no run (``extensions/training``)."""

FLUSH = 60.0
"""Seconds between two writes of the observations of a long block: what a kill loses at most."""


class SpentMeter:
    """What was computed since :meth:`restart`, where ``counter`` counts it, and whether it is time to write."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._before = self._now = self._read()

    @property
    def due(self) -> bool:
        """Whether so much time has passed that what was observed should be written."""
        return perf_counter() - self._before[0] > FLUSH

    def spent(self, tokens_asked: int = 0) -> Spent | None:
        """What was computed up to now for so many tokens as asked; None where it is not counted."""
        self._now = self._read()
        (start, before, sent_before, known), (end, computed, sent, unique) = self._before, self._now
        if computed is None or before is None:
            return None
        return Spent(
            tokens_asked, computed - before, end - start, sent - sent_before, unique - known
        )

    def restart(self) -> None:
        """What was told by :meth:`spent` is on the disk."""
        self._before = self._now

    def _read(self) -> tuple[float, int | None, int, int]:
        return perf_counter(), self._counter.computed, self._counter.requests, self._counter.unique


class BlockWriter:
    """Writes observations every minute, with :meth:`write`, and when the ``with`` ends, however it ends.

    The tokens that ``counter`` counts, and the time, are added to what the run spent with every write; without a count
    nothing is.  ``count``: observations so far.
    """

    def __init__(self, folder: RunFolder, place: Place, counter: TokenCounter) -> None:
        self.count = 0
        self._folder, self._place, self._meter = folder, place, SpentMeter(counter)
        self._rows: list[ObservationRow] = []
        self._tables: list[pa.Table] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows or self._tables:
            self.write()

    def add(self, observed: ObservationRow | pa.Table) -> None:
        """Keep one more, or a table of them; it is written at the latest with the first that comes after a minute."""
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
        requests: Sequence[RequestRow] = (),
        spans: Sequence[SpanRow] = (),
    ) -> None:
        """Write what there is, and that the block was asked in the ways ``asks``, which are ``tokens_asked`` tokens."""
        observations = pa.concat_tables([*self._tables, make_table(OBSERVATIONS, self._rows)])
        tables = {"requests": requests, "spans": spans, "observations": observations}
        self._folder.add_block(self._place, asks, tables, self._meter.spent(tokens_asked))
        self._meter.restart()
        self._rows, self._tables = [], []


@dataclass
class RunFolder:
    """The only writer of a run folder.  ``manifest`` is always what the disk holds."""

    path: Path
    manifest: Manifest

    def observed(self, but: Collection[str] = ()) -> Keys:
        """The keys of all observations there are, without ``but``."""
        keys = Keys()
        for block in self.manifest.blocks:
            named = read_columns(
                block_file(self.path, block, "observations"), OBSERVATIONS, ["key"]
            )["key"].to_pylist()
            keys.add(key for key in named if key not in but)
        return keys

    def named(self, but: Collection[str] = ()) -> Keys:
        """The keys of all that was to be asked here or by another process, without ``but``."""
        keys = Keys()
        for block in self.manifest.blocks:
            spans = read_columns(block_file(self.path, block, "spans"), SPANS, KEYS)
            named = (key for name in KEYS for key in spans[name].drop_null().to_pylist())
            keys.add(key for key in named if key not in but)
        return keys

    def unanswered(self) -> dict[str, str]:
        """The keys of the questions that got no answer (:func:`unanswered_keys`), and the block of each."""
        return unanswered_keys(self.path, self.manifest)

    def missing(
        self, split: str, subject: str, count: int, asks: Iterable[str]
    ) -> list[tuple[int, int, list[str]]]:
        """(start, stop, asks): which of the first ``count`` items of a subject were not asked in which of ``asks``."""
        blocks = [
            block
            for block in self.manifest.blocks
            if (block.split, block.subject) == (split, subject)
        ]
        edges = {
            0,
            count,
            *(edge for block in blocks for edge in (block.start, block.stop) if edge < count),
        }
        stretches: list[tuple[int, int, list[str]]] = []
        for start, stop in pairwise(sorted(edges)):
            done = {
                ask
                for block in blocks
                if block.start <= start and stop <= block.stop
                for ask in block.asks
            }
            lacking = [ask for ask in asks if ask not in done]
            if stretches and stretches[-1][1:] == (start, lacking):
                start = stretches.pop()[0]
            stretches.append((start, stop, lacking))
        return [stretch for stretch in stretches if stretch[2]]

    def add_block(
        self,
        place: Place,
        asks: Sequence[str],
        tables: Mapping[str, Rows | pa.Table | Path],
        spent: Spent | None = None,
    ) -> None:
        """Write what was observed of one block, then list it: only what the manifest lists counts.

        What was ``spent`` on it is added to what earlier blocks took.
        """
        name = self._free_name()
        files = write_block(self.path, name, tables)
        blocks = *self.manifest.blocks, BlockRecord(name, *place, tuple(asks), files)
        self._update(blocks=blocks, engine=self._engine(spent))

    def replace_answers(
        self, name: str, answers: Mapping[str, ObservationRow], spent: Spent | None = None
    ) -> str:
        """Put ``answers`` in the places of the observations of block ``name`` that have their keys; its new name."""
        (block,) = (block for block in self.manifest.blocks if block.name == name)
        return self.replace_observations(name, replaced(self.path, block, answers), spent)

    def replace_observations(
        self, name: str, observations: pa.Table, spent: Spent | None = None
    ) -> str:
        """Let block ``name`` have these ``observations`` instead of its own; returns its new name.

        The whole block is written again under a new name; when the manifest lists that one and no longer the old one,
        which is one step, the old one is deleted.
        """
        (old,) = (block for block in self.manifest.blocks if block.name == name)
        new = replace(old, name=self._free_name())
        tables = {table: block_file(self.path, old, table) for table in SCHEMAS} | {
            "observations": observations
        }
        new = replace(new, files=write_block(self.path, new.name, tables))
        blocks = tuple(new if block.name == name else block for block in self.manifest.blocks)
        self._update(blocks=blocks, engine=self._engine(spent))
        with suppress(OSError):
            remove(self.path / BLOCK_FOLDER / name)
        return new.name

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
            self.note_server(replace(server, changed=changed))

    def note_server(self, server: ServerRecord) -> None:
        """Say what is known of the server by now."""
        if server != self.manifest.server:
            self._update(server=server)

    def finish(self, shard: ShardRecord | None = None) -> None:
        """Say that everything that was asked for is there, and of which ``shard``; a complete folder is not touched."""
        if not self.manifest.complete:
            self._update(complete=True, shard=shard or self.manifest.shard)

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
            raise StoreError(f"{path} has lost its {MANIFEST}; {_put_back(path / MANIFEST)}")
        # Another process may have begun the folder meanwhile: then it has the lock, and says so.
        if MANIFEST not in names and not all(name.endswith(PARTIAL) for name in names):
            raise StoreError(
                f"{path} holds other files and no {MANIFEST}; choose an empty or new folder"
            )


@contextmanager
def open_folder(
    path: Path, wanted: Manifest, items: Mapping[str, Iterable[ItemRow]]
) -> Iterator[RunFolder]:
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


def continued(
    path: Path, existing: Manifest, wanted: Manifest, items: Mapping[str, Iterable[ItemRow]]
) -> Manifest:
    """The manifest to go on with when ``items`` are asked; it is written when it changes.

    Blocks and an item table that are damaged or gone are left out and written again.
    """
    if existing.imported is not None and wanted.imported is None:
        raise StoreError(
            f"{path} holds what was imported from {existing.imported.tool}, of {existing.model.name} on "
            f"{existing.dataset.name}: no model can go on with it; choose another folder"
        )
    check_shard(path, existing, wanted)
    _check_server(path, existing, wanted)
    _check_identity(path, existing, wanted)
    protocols = {**existing.protocols, **_spelled_as(existing.protocols, wanted.protocols)}
    if changed := [name for name, text in existing.protocols.items() if protocols[name] != text]:
        raise StoreError(
            f"{path} holds another protocol under the name {changed[0]}; choose another folder"
        )
    files = existing.files
    if damage(path / ITEM_FILE, files.get(ITEM_FILE)):
        if missing := sorted({block.split for block in existing.blocks} - set(items)):
            raise StoreError(
                f"{path / ITEM_FILE} is damaged and can be written again only when all splits of the run are tested; "
                f"repeat the run with a protocol that tests split {', '.join(missing)}, too"
            )
        files = {**files, **write_items(path, chain.from_iterable(items.values()))}
    elif missing := sorted(set(items) - read_splits(path)):
        raise StoreError(
            f"{path} holds no items of split {', '.join(missing)}, which a protocol tests; "
            "begin another folder with all the protocols at once"
        )
    blocks = usable_blocks(
        existing.blocks, [each.block for each in damaged_blocks(path, existing.blocks)]
    )
    refused = {
        name: why
        for name, why in {**existing.refused, **wanted.refused}.items()
        if name not in protocols
    }
    same = (protocols, files, blocks) == (existing.protocols, existing.files, existing.blocks)
    moved = wanted.server is not None and bool(wanted.job) and wanted.job != existing.job
    if same and refused == existing.refused and not moved:
        return existing
    changes: dict[str, Any] = {} if same else {"complete": False}
    if moved or not same:  # a server's address may be another one by now
        changes |= {"job": wanted.job, "command": wanted.command} if wanted.job else {}
    extended = replace(
        existing, protocols=protocols, files=files, blocks=blocks, refused=refused, **changes
    )
    write_manifest(path, extended)
    return extended


def _spelled_as(there: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """The signatures ``wanted``; those of the same protocols as they are spelled ``there``, by an earlier version.

    What it spelled has no axes that it did not know yet.
    """
    kept: dict[str, str] = {}
    for name, text in wanted.items():
        kept[name] = text
        with suppress(ProtocolError):
            if text != there.get(name, text) and parse_signature(text) == parse_signature(
                there[name]
            ):
                kept[name] = there[name]
    return kept


def usable_blocks(
    blocks: Sequence[BlockRecord], damaged: Sequence[BlockRecord]
) -> tuple[BlockRecord, ...]:
    """The blocks that are of use where the ``damaged`` ones are gone.

    A block without asks holds a part of the observations that another block of the same items names: without it that
    one is of no use.
    """
    parts = [block for block in damaged if not block.asks]
    return tuple(
        block
        for block in blocks
        if block not in damaged and not any(_overlap(block, part) for part in parts)
    )


def leftovers(run: Path, manifest: Manifest) -> Iterator[Path]:
    """Files and folders that count for nothing: whoever writes to the folder may delete them."""
    yield from sorted(run.glob(f"*{PARTIAL}"))
    yield from unlisted_blocks(run, manifest)


def unlisted_blocks(run: Path, manifest: Manifest) -> list[Path]:
    """What lies where blocks do, under a name that a block or an unfinished one has, and is not listed."""
    listed = {block.name for block in manifest.blocks}
    blocks = run / BLOCK_FOLDER
    there = sorted(blocks.iterdir()) if blocks.is_dir() and not blocks.is_symlink() else []
    return [
        path
        for path in there
        if path.name not in listed and path.name.removesuffix(PARTIAL).isdecimal()
    ]


_IDENTITY = {
    "model": ("digest", "dtype", "device", "window", "chat", "products"),
    "dataset": ("digest",),
    "selection": ("subjects", "limit", "sample", "seed"),
}
"""What must agree for a run to be continued; names and paths may change."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the folder's manifest in one step, then its copy."""
    content = manifest.stored()
    content = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": json_digest(content),
        **content,
    }
    write_twice(folder / MANIFEST, exact_json(content, indent=1) + "\n")


def version_of(manifest: Manifest) -> str:
    """sha256 (64 hex) of the manifest but for the summary that it lists: the same as long as nothing more is asked."""
    files = {name: file for name, file in manifest.files.items() if name != SUMMARY}
    return json_digest(replace(manifest, files=files).stored())


class _Kind(NamedTuple):
    """A file that says what a folder is: the ``command`` that writes it; what to do ``instead`` if it is lost."""

    record: Any
    command: str
    what: str
    format: str
    version: int
    instead: str


_RUN = _Kind(Manifest, "run", "a manifest", FORMAT, VERSION, "evaluate again into a new folder")
_SWEEP = _Kind(Sweep, "sweep", "a sweep", SWEEP_FORMAT, SWEEP_VERSION, "begin another folder")


def read_manifest(folder: Path, name: str = MANIFEST) -> Manifest:
    """The manifest of a run folder, or its copy by its ``name``.

    Raises StoreError when there is none, when another version of the format wrote it, or when it is damaged: then the
    first field that is missing, unknown or of the wrong type is named.
    """
    path = folder / name
    manifest: Manifest = _read_record(path, _RUN)
    counts = Counter(block.name for block in manifest.blocks)
    if wrong := [name for name, count in counts.items() if not name.isdecimal() or count > 1]:
        raise StoreError(
            f"{path} is damaged: {wrong[0]!r} is no name of a block; {_advice(path, _RUN)}"
        )
    return manifest


def write_sweep(folder: Path, sweep: Sweep) -> None:
    """Replace the folder's file in one step, then its copy."""
    content = {"format": SWEEP_FORMAT, "version": SWEEP_VERSION, **asdict(sweep)}
    write_twice(folder / SWEEP, exact_json(content, indent=1) + "\n")


def is_sweep(folder: Path) -> bool:
    """Whether the folder holds several runs, and is none itself; a folder that can't be read is for others to name."""
    own = folder / SWEEP, copy_of(folder / SWEEP)
    return any(map(os.path.isfile, own)) and not os.path.exists(folder / MANIFEST)


def read_sweep(folder: Path, name: str = SWEEP) -> Sweep:
    """What the folder says, or the copy of that by its ``name``.

    Raises StoreError when it says nothing, is damaged, or newer than this version.
    """
    path = folder / name
    sweep: Sweep = _read_record(path, _SWEEP)
    for cell in sweep.cells:
        if Path(cell.folder).is_absolute() or ".." in Path(cell.folder).parts:
            raise StoreError(
                f"{path} is damaged: {cell.folder} lies outside; {_advice(path, _SWEEP)}"
            )
    return sweep


def _advice(path: Path, kind: _Kind) -> str:
    return f"{_put_back(path)}; or {kind.instead}"


def _put_back(path: Path) -> str:
    return f"`cp {quoted(copy_of(path))} {quoted(path)}` puts back its copy"


def _read_record(path: Path, kind: _Kind) -> Any:
    from pydantic import ValidationError

    try:
        content = json.loads(read_text(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        if copy_of(path).is_file():
            raise StoreError(f"{path} is missing; {_advice(path, kind)}") from error
        if (path.parent / BUNDLE).is_file():
            raise StoreError(
                f"{path.parent} is a bundle of requests; `choicewise import` makes a run of it and of its answers"
            ) from error
        missing = f"{path.parent} is not a {kind.command} folder: it has no {path.name}"
        raise StoreError(f"{missing}; make one with `choicewise {kind.command}`") from error
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}; make it readable") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_advice(path, kind)}") from error
    if not isinstance(content, dict) or content.pop("format", None) != kind.format:
        raise StoreError(f"{path} is not {kind.what} of Choicewise; choose another folder")
    version = content.pop("version", None)
    if version != kind.version:
        advice = (
            "upgrade Choicewise"
            if isinstance(version, int) and version > kind.version
            else kind.instead
        )
        reads = f"this Choicewise reads {kind.version}"
        raise StoreError(f"{path} has version {version} of the format, and {reads}; {advice}")
    signed = kind.record is Manifest
    listed = content.pop("sha256", None) if signed else None
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
    if signed and listed != json_digest(content):
        raise StoreError(
            f"{path} was changed after it was written (its sha256 differs); {_advice(path, kind)}"
        )
    return record


@cache
def _reader(record: type) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(record)


def _overlap(one: BlockRecord, other: BlockRecord) -> bool:
    same = (one.split, one.subject) == (other.split, other.subject)
    return same and one.start < other.stop and other.start < one.stop


def differences(existing: Manifest, wanted: Manifest) -> Iterator[tuple[str, str]]:
    """What of the measurement is otherwise in another folder: model, dataset or selection, and how, in words."""
    for part, fields in _IDENTITY.items():
        old, new = getattr(existing, part), getattr(wanted, part)
        lines = [
            f"{part} {name} is {_short(name, getattr(old, name))} there and {_short(name, getattr(new, name))} here"
            for name in fields
            if getattr(old, name) != getattr(new, name)
        ]
        if lines:
            yield part, f"({'; '.join(lines)}){_moved(old, new)}"


def _check_identity(path: Path, existing: Manifest, wanted: Manifest) -> None:
    for part, words in differences(existing, wanted):
        advice = f"go on there with the old {part}, or choose another folder"
        if part == "model" and existing.model.products != wanted.model.products:
            library = _short("products", existing.model.products)
            advice = f"set the option products to {library}, or choose another folder"
        raise StoreError(f"{path} was made for another {part} {words}; {advice}")


def _check_server(path: Path, existing: Manifest, wanted: Manifest) -> None:
    """StoreError where the model behind a server is not the one of before, though it may have the same name."""
    if existing.server is None or wanted.server is None:
        return
    if differences := existing.server.differences(wanted.server):
        then, now = existing.server.software, wanted.server.software
        if then != now:
            differences.append(f"the server: {then or 'unnamed'} then, {now or 'unnamed'} now")
        raise StoreError(
            f"the server answers otherwise than when {path} was begun; serve the model as it was then, or choose "
            "another folder",
            differences,
        )


def _moved(old: Any, new: Any) -> str:
    """What to name to go on where a revision on the Hub is another commit by now."""
    before, now = getattr(old, "source", ""), getattr(new, "source", "")
    return (
        f", from {before} on the Hub, where this is {now or 'from elsewhere'}"
        if before and before != now
        else ""
    )


def _short(name: str, value: Any) -> Any:
    """Return the first characters of a digest, and any other value in full."""
    if name == "digest":
        return value[:12]
    if name == "products":
        return value or "torch"
    return list(value) if isinstance(value, tuple) else value
