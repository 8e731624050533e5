"""Run folders that hold a part of a run: what they are called, and what may not be done with them."""

from __future__ import annotations

from pathlib import Path

from choicewise.errors import StoreError, UsageError
from choicewise.records import Manifest, ShardRecord
from choicewise.util.text import listed


def part_of(shard: ShardRecord) -> str:
    """The part of a run that a folder holds, in words."""
    several = "s" * (len(shard.numbers) > 1)
    merged = ", merged" if shard.engines else ""
    return f"shard{several} {listed([*map(str, shard.numbers)])} of {shard.of}{merged}"


def refuse_part(path: Path, manifest: Manifest) -> None:
    """Raise UsageError where the folder holds a part of a run, which says nothing before it is merged."""
    if (shard := manifest.shard) is not None and not shard.whole and not shard.engines:
        makes = "`choicewise merge` makes the run of it and of the others"
        raise UsageError(f"{path} is {part_of(shard)} and no run by itself; {makes}")


def not_complete(path: Path, manifest: Manifest) -> str:
    """That a run is not complete, and what completes it."""
    if (shard := manifest.shard) is not None and not shard.whole and shard.engines:
        return f"{path} holds {part_of(shard)}; `choicewise merge` makes the whole run of it and of the others"
    return f"{path} is not complete; run the same `{manifest.writer}` command again to resume"


def check_shard(path: Path, existing: Manifest, wanted: Manifest) -> None:
    """StoreError where the folder holds another part of the run, or the same part under other protocols."""
    there, here = existing.shard, wanted.shard
    if (there is None or there.whole) and here is None:
        return
    parts = ["the whole run" if each is None else part_of(each) for each in (there, here)]
    if parts[0] != parts[1] or there is None or there.engines:
        raise StoreError(
            f"{path} holds {parts[0]}, and {parts[1]} is asked for; choose another folder"
        )
    if existing.protocols.keys() != wanted.protocols.keys():
        raise StoreError(
            f"{path} holds {parts[0]} under other protocols; ask all shards the same, in new folders"
        )
