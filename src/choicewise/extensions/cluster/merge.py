"""The shards of a run put together into the run folder that one process would have written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
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
)
from choicewise.results.spans import row_bytes
from choicewise.results.sweep import run_folders
from choicewise.results.tables import places_of, read_item_table
from choicewise.running.shards import PlanDigest, owner
from choicewise.store.folder import (
    differences,
    is_sweep,
    read_manifest,
    read_sweep,
    write_manifest,
    write_sweep,
)
from choicewise.store.shards import part_of
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
from choicewise.util.text import listed


class MissingShards(UsageError):
    """Shards are not there, or not complete; its ``problems`` are the commands that ask them."""


LineOf = Callable[[Path, Manifest], str]
"""The command that asks what the manifest says, into that folder."""


def merge_all(
    folders: Sequence[Path],
    out: Path,
    line_of: LineOf,
    allow_missing: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """The same as :func:`merge` for the runs of several benchmarks or models, where ``folders`` hold such shards."""
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
        _refuse_existing(out)  # another process may have written it since
        for own in cells.values():
            cell = next(iter(own.values()))
            there = [
                folder / each.folder
                for folder, each in own.items()
                if (folder / each.folder / MANIFEST).exists()
            ]
            if not there:
                raise UsageError(
                    f"{cell.model} on {cell.dataset} has no shard that was begun; ask it first"
                )
            merged = merge(there, partial / cell.folder, _line_of_several(own), allow_missing, say)
            done.append(
                replace(
                    cell,
                    done=merged.complete,
                    failure="" if merged.complete else "shards are missing",
                )
            )
        first = records[folders[0]]
        protocols = dict.fromkeys(name for record in records.values() for name in record.protocols)
        suites = {suite.name: suite for record in records.values() for suite in record.suites}
        write_sweep(
            partial,
            replace(
                first, protocols=tuple(protocols), suites=tuple(suites.values()), cells=tuple(done)
            ),
        )


def merge(
    folders: Sequence[Path],
    out: Path,
    line_of: LineOf,
    allow_missing: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """Write the run whose shards lie in ``folders`` to the new folder ``out``, and return its manifest.

    A folder that is no run stands for the runs directly in it.  What was merged before can be merged with more.  The
    answers of a shard that is there twice have to be equal to the bit.  ``allow_missing``: without the shards that are
    not there, or not complete, the questions that these own count as missing; more can be merged with it later.
    ``say`` gets a line about what is left out, or worth knowing.

    Raises MissingShards with the commands of ``line_of`` that ask them, UsageError where ``out`` is there, and
    StoreError for a folder that is damaged, no shard, or a shard of another run.
    """
    _refuse_existing(out)
    shards = _complete(
        [_open(folder) for folder in run_folders(folders)], line_of, allow_missing, say
    )
    _refuse_foreign(shards)
    first = min(shards, key=lambda each: each.record.numbers)
    numbers = sorted({number for each in shards for number in each.record.numbers})
    if missing := sorted({*range(1, first.record.of + 1)} - {*numbers}):
        lines = [line_of(*first.sibling(number)) for number in missing[:_LINES]]
        lines += [f"and {len(missing) - _LINES:,} more"] if len(missing) > _LINES else []
        names = part_of(replace(first.record, numbers=tuple(missing), engines=()))
        if not allow_missing:
            raise MissingShards(f"{names} {_are(missing)} not there", lines)
        say(
            f"{names} {_are(missing)} not there: {'its' if len(missing) == 1 else 'their'} questions count as missing"
        )
    for line in _notes(shards, numbers):
        say(line)
    with new_folder(out) as partial:
        _refuse_existing(out)  # another process may have written it since
        shutil.copyfile(first.folder / ITEM_FILE, partial / ITEM_FILE)
        digest, blocks = PlanDigest(), list[BlockRecord]()
        for number, (block, sources) in enumerate(_blocks(shards, first)):
            name = f"{number:05d}"
            answers = _answers(shards, sources, first.record, number)
            digest.add(block.extent, block.asks, [part["key"].to_pylist() for part in answers])
            observations = pa.concat_tables(
                [SCHEMAS["observations"].empty_table(), *answers]
            ).combine_chunks()
            asked = {
                table: block_file(first.folder, block, table) for table in ("requests", "spans")
            }
            files = write_block(partial, name, {**asked, "observations": observations})
            blocks.append(replace(block, name=name, files=files))
        if not missing and digest.text != first.record.plan:
            raise StoreError(
                "the answers are not those to the questions that the shards' plan names; ask them again"
            )
        manifest = _manifest(shards, first, numbers, blocks, file_record(partial / ITEM_FILE))
        write_manifest(partial, manifest)
    return manifest


def _refuse_existing(out: Path) -> None:
    if os.path.lexists(out):
        raise UsageError(f"{out} is there already; name a new folder")


_LINES = 100  # commands that a message has


def _line_of_several(folders: Collection[Path]) -> LineOf:
    """What asks a shard of several benchmarks, whose command no folder keeps."""

    def line_of(path: Path, manifest: Manifest) -> str:
        own = next(
            (folder for folder in folders if path.is_relative_to(folder) and path.exists()), None
        )
        if own is not None:
            return f"the command that wrote {own}"
        shard = "the run" if manifest.shard is None else part_of(manifest.shard)
        return f"the command that wrote {next(iter(folders))}, for {shard} and with another folder"

    return line_of


@dataclass(frozen=True)
class _Shard:
    """A ``folder`` with its ``manifest``, and which part of a run that is."""

    folder: Path
    manifest: Manifest
    record: ShardRecord

    def __str__(self) -> str:
        return f"{self.folder} ({part_of(self.record)})"

    @property
    def engines(self) -> Mapping[int, EngineRecord]:
        """How each of its parts was computed, by number."""
        return dict(
            zip(self.record.numbers, self.record.engines or (self.manifest.engine,), strict=True)
        )

    @property
    def asked(self) -> dict[tuple[object, ...], BlockRecord]:
        """By place and ways of asking the blocks that say what is asked."""
        return {(*block.extent, *block.asks): block for block in self.manifest.blocks if block.asks}

    def sibling(self, number: int) -> tuple[Path, Manifest]:
        """Where shard ``number`` may lie beside this one, and what it has to say."""
        own, name = str(self.record.numbers[0]), self.folder.resolve().name
        before, there, after = name.rpartition(own)
        alone = there and not before[-1:].isdigit() and not after[:1].isdigit()
        name = (
            f"{before}{number}{after}"
            if alone and len(self.record.numbers) == 1
            else f"{name}-{number}"
        )
        shard = ShardRecord(self.record.of, (number,))
        return self.folder.parent / name, replace(self.manifest, shard=shard)

    def answers(self, block: BlockRecord) -> pa.Table:
        """What was observed of a block, in the order in which it was written."""
        parts = [
            read_table(path, SCHEMAS["observations"], own.files.get(path.name))
            for own in self.manifest.blocks
            if own.extent == block.extent
            for path in [block_file(self.folder, own, "observations")]
        ]
        return pa.concat_tables(parts)


def _open(folder: Path) -> _Shard:
    manifest = read_manifest(folder)
    if manifest.shard is None:
        raise UsageError(
            f"{folder} is a whole run and no shard of one; name the folders of shards alone"
        )
    return _Shard(folder, manifest, manifest.shard)


def _complete(
    shards: Sequence[_Shard], line_of: LineOf, allow_missing: bool, say: Callable[[str], None]
) -> list[_Shard]:
    """Those that hold all that they should; UsageError where that is not all, unless the others may be missing."""
    halves = [each for each in shards if not each.record.plan]
    lines = [line_of(each.folder, each.manifest) for each in halves]
    if halves and not (allow_missing and len(halves) < len(shards)):
        raise MissingShards(f"{listed([*map(str, halves)])} {_are(halves)} not complete", lines)
    for half, line in zip(halves, lines, strict=True):
        say(f"{half} is not complete and left out; `{line}` finishes it")
    whole = [each for each in shards if each.record.plan]
    for each in whole:
        check_items(each.folder, each.manifest)
        for damage in damaged_blocks(each.folder, each.manifest.blocks):
            again = line_of(each.folder, each.manifest)
            raise StoreError(f"{damage.path} {damage.reason}; `{again}` asks again what it held")
    return whole


def _refuse_foreign(shards: Sequence[_Shard]) -> None:
    """StoreError for a shard of another run than the first one's."""
    first, *others = shards
    for other in others:
        words = [
            f"another {part} {how}" for part, how in differences(first.manifest, other.manifest)
        ]
        versions = [each.manifest.versions.get("choicewise", "?") for each in (first, other)]
        if first.manifest.protocols != other.manifest.protocols:
            words.append("other protocols")
        if versions[0] != versions[1]:
            words.append(f"another version of Choicewise ({versions[0]} there, {versions[1]} here)")
        servers = first.manifest.server, other.manifest.server
        if servers[0] is not None and servers[1] is not None:
            words += servers[0].differences(servers[1])
        if first.record.of != other.record.of:
            words.append(
                f"another number of shards ({first.record.of} there, {other.record.of} here)"
            )
        elif not words and (first.record.plan, first.record.counts) != (
            other.record.plan,
            other.record.counts,
        ):
            words.append(
                f"other questions, in tokens (plan {first.record.plan[:12]} there, {other.record.plan[:12]} here)"
            )
        if words:
            raise StoreError(f"{other} and {first} are not of one run: {'; '.join(words)}")


def _notes(shards: Sequence[_Shard], numbers: Sequence[int]) -> Iterator[str]:
    """What is worth knowing of shards that go together."""
    for number in numbers:
        if len(own := [str(each.folder) for each in shards if number in each.record.numbers]) > 1:
            yield f"note: shard {number} is in {listed(own)}: it has to be the same to the bit, and counts once"
    ways = {each.rung: number for number, each in _checks(shards).items()}
    if len(ways) > 1:
        said = listed([f"{rung} (shard {number})" for rung, number in ways.items()])
        yield f"note: the shards were computed on several paths: {said}; last digits depend on that"
    packages = dict.fromkeys(name for each in shards for name in each.manifest.versions)
    for name in packages:
        if len(used := {each.manifest.versions.get(name, "none") for each in shards}) > 1:
            yield f"note: the shards were computed with {name} {listed(sorted(used))}; last digits may depend on that"


def _checks(shards: Sequence[_Shard]) -> dict[int, SelfCheckRecord]:
    engines = {number: engine for each in shards for number, engine in each.engines.items()}
    return {
        number: engine.selfcheck
        for number, engine in engines.items()
        if engine.selfcheck is not None
    }


def _blocks(
    shards: Sequence[_Shard], first: _Shard
) -> Iterator[tuple[BlockRecord, list[BlockRecord]]]:
    """Every block of the run in order, as ``first`` lists it, and as each of ``shards`` does."""
    rows = places_of(read_item_table(first.folder, first.manifest))

    def place(block: BlockRecord) -> tuple[int, int]:
        return int(rows[block.split, block.subject][0]), block.start

    listings = [each.asked for each in shards]
    for key, block in sorted(first.asked.items(), key=lambda pair: place(pair[1])):
        own = [listing.get(key) for listing in listings]
        for shard, other in zip(shards, own, strict=True):
            if other is None or len(shard.asked) != len(first.record.counts):
                raise StoreError(
                    f"{shard} has other blocks than {first}; ask it again in a new folder"
                )
            for table in ("requests", "spans"):
                if not _same_file(first.folder, block, shard.folder, other, table):
                    words = f"{block_file(shard.folder, other, table)} has other content than that of {first}"
                    raise StoreError(
                        f"{words}; ask both again with the same versions, in new folders"
                    )
        yield block, [other for other in own if other is not None]


def _same_file(one: Path, block: BlockRecord, two: Path, other: BlockRecord, table: str) -> bool:
    paths = block_file(one, block, table), block_file(two, other, table)
    records = [each.files[path.name] for each, path in zip((block, other), paths, strict=True)]
    if records[0] == records[1]:
        return True
    tables = [
        read_table(path, SCHEMAS[table], record)
        for path, record in zip(paths, records, strict=True)
    ]
    return _same_bits(*tables)  # another version of pyarrow may write it otherwise


def _answers(
    shards: Sequence[_Shard], sources: Sequence[BlockRecord], record: ShardRecord, number: int
) -> list[pa.Table]:
    """The observations of block ``number`` by shard of its token tree, in order; of each only where it is there."""
    start, counts = sum(map(len, record.counts[:number])), record.counts[number]
    places: dict[int, list[tuple[_Shard, pa.Table]]] = {}
    for shard, block in zip(shards, sources, strict=True):
        own = [
            each
            for each in range(len(counts))
            if owner(start + each, record.of) in shard.record.numbers
        ]
        ends = list(accumulate(counts[each] for each in own))
        table = shard.answers(block)
        if len(table) != (ends[-1] if ends else 0):
            about = f"{len(table):,} answers about {block.subject} ({block.split}), where {(ends or [0])[-1]:,} belong"
            raise StoreError(f"{shard} has {about}; ask it again in a new folder")
        for each, end in zip(own, ends, strict=True):
            places.setdefault(each, []).append(
                (shard, table.slice(end - counts[each], counts[each]))
            )
    for held in places.values():
        for shard, table in held[1:]:
            if not _same_bits(held[0][1], table):
                words = f"{held[0][0]} and {shard} answer the same questions otherwise"
                raise StoreError(f"{words}; leave one of them out")
    return [places[each][0][1] for each in sorted(places)]


def _manifest(
    shards: Sequence[_Shard],
    first: _Shard,
    numbers: Sequence[int],
    blocks: Sequence[BlockRecord],
    items: FileRecord,
) -> Manifest:
    """That of the whole, which names its parts and how each was computed."""
    engines = {
        number: engine for each in reversed(shards) for number, engine in each.engines.items()
    }
    record = replace(
        first.record, numbers=tuple(numbers), engines=tuple(engines[number] for number in numbers)
    )
    checks, spent = [*_checks(shards).values()], [engine.spent for engine in engines.values()]
    check = max(checks, key=lambda each: each.depth, default=None)
    if check is not None:  # as of replicas: the deepest, with the most noise that one of them saw
        check = replace(check, noise=max(each.noise for each in checks))
    return replace(
        first.manifest,
        engine=EngineRecord(check, _together([each for each in spent if each is not None])),
        blocks=tuple(blocks),
        complete=record.whole,
        files={ITEM_FILE: items},
        job={name: value for name, value in first.manifest.job.items() if name != "shard"},
        command=tuple(_without_shard(first.manifest.command)),
        server=_server(
            [each.manifest.server for each in shards if each.manifest.server is not None]
        ),
        shard=record,
    )


def _together(spent: Sequence[Spent]) -> Spent | None:
    """What the parts took; each of them says what all of the run asks."""
    if not spent:
        return None
    total = spent[0]
    for each in spent[1:]:
        total += each
    return replace(total, tokens_asked=max(each.tokens_asked for each in spent))


def _without_shard(command: Sequence[str]) -> Iterator[str]:
    """The command that asked a part, asking the whole."""
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
    changed = dict.fromkeys(each.changed for each in servers if each.changed)
    endpoints = [each.endpoint for each in servers if each.endpoint is not None]
    endpoint = reduce(add, endpoints) if endpoints else None
    noise = max(each.noise for each in servers)
    return replace(servers[0], noise=noise, changed="; ".join(changed), endpoint=endpoint)


def _same_bits(one: pa.Table, other: pa.Table) -> bool:
    """Whether both say the same, NaN included."""
    if len(one) != len(other):
        return False
    columns = [
        [
            column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
            for column in table.columns
        ]
        for table in (one, other)
    ]
    return all(
        all(map(bytes.__eq__, row_bytes(a), row_bytes(b))) for a, b in zip(*columns, strict=True)
    )


def _are(several: Sequence[object]) -> str:
    return "is" if len(several) == 1 else "are"
