"""Name folders that hold a part of a run, and refuse what can't be done with them."""

from __future__ import annotations

from pathlib import Path

from choicewise.errors import StoreError, UsageError
from choicewise.records import Manifest, ShardRecord
from choicewise.util.text import listed


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
