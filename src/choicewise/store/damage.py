"""Which blocks of a run folder are not what its manifest says, so that they can be left out and asked again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from choicewise.records.manifest import BlockRecord
from choicewise.store.tables import SCHEMAS, block_file, damage, other_version


@dataclass(frozen=True, slots=True)
class Damage:
    """A block that can't be used: its first file that is missing or not the one that was written, and why."""

    block: BlockRecord
    path: Path
    reason: str


def damaged_blocks(run: Path, blocks: Sequence[BlockRecord]) -> list[Damage]:
    """Those of ``blocks`` whose files in the folder ``run`` differ from the manifest in size or sha256.

    So do those whose tables another version wrote.  Reads every file once, and no more of it at a time than a buffer.
    """
    damages = []
    for block in blocks:
        for table, schema in SCHEMAS.items():
            path = block_file(run, block, table)
            if reason := damage(path, block.files.get(path.name)) or other_version(path, schema):
                damages.append(Damage(block, path, reason))
                break
    return damages


def present_blocks(run: Path, blocks: Sequence[BlockRecord]) -> list[BlockRecord]:
    """Those of ``blocks`` whose files are there in their right sizes, whatever they hold: quick."""

    def size(path: Path) -> int:
        return path.stat().st_size if path.is_file() else -1

    paths = {block.name: [block_file(run, block, table) for table in SCHEMAS] for block in blocks}
    return [
        block
        for block in blocks
        if all(path.name in block.files and size(path) == block.files[path.name].bytes for path in paths[block.name])
    ]
