"""Put the shards of a run together into the run folder that one process would have written."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

import pyarrow as pa

from choicewise.errors import StoreError, UsageError
from choicewise.records import (
    ITEM_FILE,
    MANIFEST,
    BlockRecord,
    CellRecord,
    EngineRecord,
    FileRecord,
    Manifest,
    SelfCheckRecord,
    ServerRecord,
    ShardRecord,
    Spent,
    SuiteRecord,
)
from choicewise.results.sweep import run_folders
from choicewise.results.tables import places_of, read_item_table
from choicewise.running.shards import owner, plan_of_block
from choicewise.scoring.portion import row_bytes
from choicewise.store.folder import (
    differences,
    is_sweep,
    part_of,
    read_manifest,
    read_sweep,
    write_manifest,
    write_sweep,
)
from choicewise.store.tables import (
    SCHEMAS,
    block_file,
    check_items,
    damaged_blocks,
    file_record,
    read_table,
    write_block,
)
from choicewise.util.files import new_folder
from choicewise.util.text import are, listed


class MissingShards(UsageError):
    """Report shards that are not there, or not complete; ``problems`` are the commands that compute
    them.
    """


LineOf = Callable[[Path, Manifest], str]
"""Returns the command that computes a manifest into a folder."""


def merge_all(
    folders: Sequence[Path],
    out: Path,
    line_of: LineOf,
    allow_missing: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Merge the runs of several benchmarks or models, if ``folders`` hold their shards, else one
    run.

    Arguments and errors are those of :func:`merge`.
    """
    if not any(map(is_sweep, folders)):
        merge(folders, out, line_of, allow_missing, say)
        return
    _refuse_existing(out)
    records = {folder: read_sweep(folder) for folder in folders}
    cells: dict[tuple[str, str], dict[Path, CellRecord]] = {}
    for folder, record in records.items():
        for cell in record.cells:
            cells.setdefault((cell.model, cell.dataset), {})[folder] = cell
    done: list[CellRecord] = []
    with new_folder(out) as partial:
        # Another process may have written it since.
        _refuse_existing(out)
        for cell_of_folder in cells.values():
            cell, *_ = cell_of_folder.values()
            begun = []
            for folder, cell_there in cell_of_folder.items():
                run = folder / cell_there.folder
                if (run / MANIFEST).exists():
                    begun.append(run)
            if not begun:
                raise UsageError(
                    f"no shard of {cell.model} on {cell.dataset} has started; run one first"
                )
            line_of_cell = _line_of_several(cell_of_folder)
            merged = merge(begun, partial / cell.folder, line_of_cell, allow_missing, say)
            failure = "" if merged.complete else "shards are missing"
            done.append(replace(cell, done=merged.complete, failure=failure))
        first = records[folders[0]]
        protocols: dict[str, None] = {}
        suites: dict[str, SuiteRecord] = {}
        for record in records.values():
            protocols |= dict.fromkeys(record.protocols)
            suites |= {suite.name: suite for suite in record.suites}
        sweep = replace(
            first, protocols=tuple(protocols), suites=tuple(suites.values()), cells=tuple(done)
        )
        write_sweep(partial, sweep)


def merge(
    folders: Sequence[Path],
    out: Path,
    line_of: LineOf,
    allow_missing: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """Write the run whose shards lie in ``folders`` to the new folder ``out``, and return its
    manifest.

    A folder that is no run stands for the runs directly in it. Merged shards can be merged with
    others. A shard that is there twice must have answers that are equal to the bit.
    ``allow_missing``: questions of shards that are not there, or not complete, count as missing;
    they can be merged later. ``say`` gets lines on what is left out or looks unusual.

    Raises MissingShards with the commands of ``line_of`` that compute them, UsageError if ``out``
    is there, and StoreError for a folder that is damaged, no shard, or a shard of another run.
    """
    _refuse_existing(out)
    shards = _complete(
        [_open(folder) for folder in run_folders(folders)], line_of, allow_missing, say
    )
    _refuse_foreign(shards)
    first = min(shards, key=lambda shard: shard.record.numbers)
    numbers = sorted(_engines(shards))
    missing = sorted(set(range(1, first.record.of + 1)).difference(numbers))
    if missing:
        names = part_of(replace(first.record, numbers=tuple(missing), engines=()))
        if not allow_missing:
            lines = [line_of(*first.sibling(number)) for number in missing[:_LINES]]
            if len(missing) > _LINES:
                lines.append(f"and {len(missing) - _LINES:,} more")
            raise MissingShards(f"{names} {are(len(missing))} missing", lines)
        whose = "its" if len(missing) == 1 else "their"
        say(f"{names} {are(len(missing))} missing; {whose} questions have no answer")
    for line in _notes(shards, numbers):
        say(line)
    with new_folder(out) as partial:
        # Another process may have written it since.
        _refuse_existing(out)
        shutil.copyfile(first.folder / ITEM_FILE, partial / ITEM_FILE)
        plan = hashlib.sha256()
        blocks: list[BlockRecord] = []
        for number, (block, sources) in enumerate(_blocks(shards, first)):
            name = f"{number:05d}"
            answers = _answers(shards, sources, first.record, number)
            keys = [part["key"].to_pylist() for part in answers]
            plan.update(plan_of_block(block.extent, block.asks, keys))
            observations = pa.concat_tables(
                [SCHEMAS["observations"].empty_table(), *answers]
            ).combine_chunks()
            copied = {
                table: block_file(first.folder, block, table) for table in ("requests", "spans")
            }
            files = write_block(partial, name, {**copied, "observations": observations})
            blocks.append(replace(block, name=name, files=files))
        if not missing and plan.hexdigest() != first.record.plan:
            raise StoreError(
                "the answers belong to other questions than the shards planned; run the shards again "
                "in new folders"
            )
        manifest = _manifest(shards, first, numbers, blocks, file_record(partial / ITEM_FILE))
        write_manifest(partial, manifest)
    return manifest


def _refuse_existing(out: Path) -> None:
    if os.path.lexists(out):
        raise UsageError(f"{out} already exists; name a new folder")


_LINES = 100
"""Commands that a message has at most."""


def _line_of_several(folders: Collection[Path]) -> LineOf:
    """Return what names the command of a shard of several benchmarks, which no folder keeps."""

    def line_of(path: Path, manifest: Manifest) -> str:
        for folder in folders:
            if path.is_relative_to(folder) and path.exists():
                return f"the command that wrote {folder}"
        shard = "the run" if manifest.shard is None else part_of(manifest.shard)
        return f"the command that wrote {next(iter(folders))}, for {shard}, with a new folder"

    return line_of


@dataclass(frozen=True)
class _Shard:
    """Hold a ``folder`` with its ``manifest``, and the record of its part of the run."""

    folder: Path
    manifest: Manifest
    record: ShardRecord

    def __str__(self) -> str:
        return f"{self.folder} ({part_of(self.record)})"

    @property
    def engines(self) -> Mapping[int, EngineRecord]:
        """Return how each of its parts was computed, by number."""
        return dict(
            zip(self.record.numbers, self.record.engines or (self.manifest.engine,), strict=True)
        )

    @property
    def asking_blocks(self) -> dict[tuple[object, ...], BlockRecord]:
        """Return the blocks that say what is asked, by their extent and the ways of asking."""
        return {(*block.extent, *block.asks): block for block in self.manifest.blocks if block.asks}

    def sibling(self, number: int) -> tuple[Path, Manifest]:
        """Return where shard ``number`` may lie beside this one, and the manifest that it has to
        have.
        """
        name = self.folder.resolve().name
        before, digits, after = name.rpartition(str(self.record.numbers[0]))
        # A number that is a part of a longer one does not stand for this shard.
        is_whole_number = digits and not before[-1:].isdigit() and not after[:1].isdigit()
        if is_whole_number and len(self.record.numbers) == 1:
            name = f"{before}{number}{after}"
        else:
            name = f"{name}-{number}"
        shard = ShardRecord(self.record.of, (number,))
        return self.folder.parent / name, replace(self.manifest, shard=shard)

    def answers(self, block: BlockRecord) -> pa.Table:
        """Return the observations of a block, in the order in which they were written."""
        parts = []
        for written in self.manifest.blocks:
            if written.extent == block.extent:
                path = block_file(self.folder, written, "observations")
                record = written.files.get(path.name)
                parts.append(read_table(path, SCHEMAS["observations"], record))
        return pa.concat_tables(parts)


def _open(folder: Path) -> _Shard:
    manifest = read_manifest(folder)
    if manifest.shard is None:
        raise UsageError(f"{folder} is a whole run, not a shard; name only folders of shards")
    return _Shard(folder, manifest, manifest.shard)


def _complete(
    shards: Sequence[_Shard], line_of: LineOf, allow_missing: bool, say: Callable[[str], None]
) -> list[_Shard]:
    """Return the complete shards; UsageError if others are not, unless they may be missing."""
    halves = [shard for shard in shards if not shard.record.plan]
    lines = [line_of(shard.folder, shard.manifest) for shard in halves]
    if halves and not (allow_missing and len(halves) < len(shards)):
        raise MissingShards(f"{listed([*map(str, halves)])} {are(len(halves))} incomplete", lines)
    for half, line in zip(halves, lines, strict=True):
        say(f"left out {half}, which is incomplete; to finish it, run `{line}`")
    whole = [shard for shard in shards if shard.record.plan]
    for shard in whole:
        check_items(shard.folder, shard.manifest)
        for damage in damaged_blocks(shard.folder, shard.manifest.blocks):
            again = line_of(shard.folder, shard.manifest)
            raise StoreError(f"{damage.path} {damage.reason}; to replace it, run `{again}`")
    return whole


def _refuse_foreign(shards: Sequence[_Shard]) -> None:
    """Raise StoreError for a shard of another run than that of the first one."""
    first, *others = shards
    for other in others:
        words = [
            f"another {part} {how}" for part, how in differences(first.manifest, other.manifest)
        ]
        versions = [shard.manifest.versions.get("choicewise", "?") for shard in (first, other)]
        if first.manifest.protocols != other.manifest.protocols:
            words.append("other protocols")
        if versions[0] != versions[1]:
            words.append(f"Choicewise {versions[1]} instead of {versions[0]}")
        servers = first.manifest.server, other.manifest.server
        if servers[0] is not None and servers[1] is not None:
            words += servers[0].differences(servers[1])
        if first.record.of != other.record.of:
            words.append(f"{other.record.of} shards instead of {first.record.of}")
        elif not words and (first.record.plan, first.record.counts) != (
            other.record.plan,
            other.record.counts,
        ):
            words.append(
                f"other tokens (plan {other.record.plan[:12]} instead of {first.record.plan[:12]})"
            )
        if words:
            raise StoreError(f"{other} belongs to another run than {first}: {'; '.join(words)}")


def _notes(shards: Sequence[_Shard], numbers: Sequence[int]) -> Iterator[str]:
    """Yield lines on shards that are there twice, or were computed in different ways."""
    for number in numbers:
        folders = [str(shard.folder) for shard in shards if number in shard.record.numbers]
        if len(folders) > 1:
            yield (f"note: {listed(folders)} hold the same shard {number}, which counts once")
    number_of_rung = {check.rung: number for number, check in _checks(shards).items()}
    if len(number_of_rung) > 1:
        paths = listed([f"{rung} (shard {number})" for rung, number in number_of_rung.items()])
        yield f"note: the shards used several paths, which may change last digits: {paths}"
    packages: dict[str, None] = {}
    for shard in shards:
        packages |= dict.fromkeys(shard.manifest.versions)
    for name in packages:
        versions = {shard.manifest.versions.get(name, "none") for shard in shards}
        if len(versions) > 1:
            several = listed(sorted(versions))
            yield (f"note: the shards used {name} {several}, which may change last digits")


def _engines(shards: Iterable[_Shard]) -> dict[int, EngineRecord]:
    """Return how each part was computed, by number; the last of ``shards`` that has it counts."""
    engines: dict[int, EngineRecord] = {}
    for shard in shards:
        engines |= shard.engines
    return engines


def _checks(shards: Sequence[_Shard]) -> dict[int, SelfCheckRecord]:
    checks = {number: engine.selfcheck for number, engine in _engines(shards).items()}
    return {number: check for number, check in checks.items() if check is not None}


def _blocks(
    shards: Sequence[_Shard], first: _Shard
) -> Iterator[tuple[BlockRecord, list[BlockRecord]]]:
    """Yield every block of the run in order, as ``first`` lists it, and as all ``shards`` list it."""
    rows = places_of(read_item_table(first.folder, first.manifest))

    def first_row(block: BlockRecord) -> tuple[int, int]:
        return int(rows[block.split, block.subject][0]), block.start

    listings = [shard.asking_blocks for shard in shards]
    for key, block in sorted(first.asking_blocks.items(), key=lambda pair: first_row(pair[1])):
        blocks_of_shards = [listing.get(key) for listing in listings]
        for shard, other in zip(shards, blocks_of_shards, strict=True):
            if other is None or len(shard.asking_blocks) != len(first.record.counts):
                raise StoreError(
                    f"{shard} has other blocks than {first}; run it again in a new folder"
                )
            for table in ("requests", "spans"):
                if not _same_file(first.folder, block, shard.folder, other, table):
                    words = f"{block_file(shard.folder, other, table)} differs from that of {first}"
                    raise StoreError(
                        f"{words}; run both again with the same versions, in new folders"
                    )
        yield block, [other for other in blocks_of_shards if other is not None]


def _same_file(one: Path, block: BlockRecord, two: Path, other: BlockRecord, table: str) -> bool:
    paths = block_file(one, block, table), block_file(two, other, table)
    records = [block.files[paths[0].name], other.files[paths[1].name]]
    if records[0] == records[1]:
        return True
    tables = [
        read_table(path, SCHEMAS[table], record)
        for path, record in zip(paths, records, strict=True)
    ]
    # Another version of pyarrow may write the same table in other bytes.
    return _same_bits(*tables)


def _answers(
    shards: Sequence[_Shard], sources: Sequence[BlockRecord], record: ShardRecord, number: int
) -> list[pa.Table]:
    """Return the observations of block ``number`` by the shards of its token tree, in order,
    without those that no shard has.
    """
    start = sum(map(len, record.counts[:number]))
    counts = record.counts[number]
    answers_of: dict[int, list[tuple[_Shard, pa.Table]]] = {}
    for shard, block in zip(shards, sources, strict=True):
        parts = []
        for part in range(len(counts)):
            if owner(start + part, record.of) in shard.record.numbers:
                parts.append(part)
        table = shard.answers(block)
        expected = sum(counts[part] for part in parts)
        if len(table) != expected:
            raise StoreError(
                f"{shard} has {len(table):,} answers on {block.subject} ({block.split}) instead of "
                f"{expected:,}; run it again in a new folder"
            )
        position = 0
        for part in parts:
            answers = table.slice(position, counts[part])
            answers_of.setdefault(part, []).append((shard, answers))
            position += counts[part]
    for answers_of_part in answers_of.values():
        first_shard, first = answers_of_part[0]
        for shard, answers in answers_of_part[1:]:
            if not _same_bits(first, answers):
                raise StoreError(
                    f"{first_shard} and {shard} give different answers to the same questions; "
                    "leave one out"
                )
    return [answers_of[part][0][1] for part in sorted(answers_of)]


def _manifest(
    shards: Sequence[_Shard],
    first: _Shard,
    numbers: Sequence[int],
    blocks: Sequence[BlockRecord],
    items: FileRecord,
) -> Manifest:
    """Return the manifest of the whole, which names its parts and how they were computed."""
    engines = _engines(reversed(shards))
    record = replace(
        first.record, numbers=tuple(numbers), engines=tuple(engines[number] for number in numbers)
    )
    checks = list(_checks(shards).values())
    check = max(checks, key=lambda check: check.depth, default=None)
    if check is not None:
        # As with replicas: the deepest, with the most noise that one of them saw.
        check = replace(check, noise=max(check.noise for check in checks))
    spent = [engine.spent for engine in engines.values() if engine.spent is not None]
    return replace(
        first.manifest,
        engine=EngineRecord(check, _together(spent)),
        blocks=tuple(blocks),
        complete=record.whole,
        files={ITEM_FILE: items},
        job={name: value for name, value in first.manifest.job.items() if name != "shard"},
        command=tuple(_without_shard(first.manifest.command)),
        server=_server(
            [shard.manifest.server for shard in shards if shard.manifest.server is not None]
        ),
        shard=record,
    )


def _together(spent: Sequence[Spent]) -> Spent | None:
    """Return the cost of all parts. Every part counts the tokens that the whole run asks for."""
    if not spent:
        return None
    return replace(reduce(add, spent), tokens_asked=max(cost.tokens_asked for cost in spent))


def _without_shard(command: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command without its shard."""
    words = iter(command)
    for word in words:
        option, equals, _ = word.partition("=")
        if not option.startswith("-") or option.strip("-") != "shard":
            yield word
        elif not equals:
            next(words, None)


def _server(servers: Sequence[ServerRecord]) -> ServerRecord | None:
    if not servers:
        return None
    changed = dict.fromkeys(server.changed for server in servers if server.changed)
    endpoints = [server.endpoint for server in servers if server.endpoint is not None]
    endpoint = reduce(add, endpoints) if endpoints else None
    noise = max(server.noise for server in servers)
    return replace(servers[0], noise=noise, changed="; ".join(changed), endpoint=endpoint)


def _same_bits(one: pa.Table, other: pa.Table) -> bool:
    """Return whether both hold the same values, NaN included."""
    if len(one) != len(other):
        return False
    for column, other_column in zip(one.columns, other.columns, strict=True):
        # Eight booleans share a byte.
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
            other_column = other_column.cast(pa.int8())
        if not row_bytes(column).equals(row_bytes(other_column)):
            return False
    return True
