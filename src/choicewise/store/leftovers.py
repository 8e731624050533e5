"""What writes that were killed leave in a run folder: unfinished files, and blocks that no manifest lists."""

from collections.abc import Iterator
from pathlib import Path

from choicewise.records.format import BLOCK_FOLDER
from choicewise.records.manifest import Manifest
from choicewise.store.atomic import PARTIAL


def leftovers(run: Path, manifest: Manifest) -> Iterator[Path]:
    """Files and folders that count for nothing: whoever writes to the folder may delete them."""
    yield from sorted(run.glob(f"*{PARTIAL}"))
    yield from unlisted_blocks(run, manifest)


def unlisted_blocks(run: Path, manifest: Manifest) -> list[Path]:
    """What lies where blocks do, under a name that a block or an unfinished one has, and is not listed."""
    listed = {block.name for block in manifest.blocks}
    blocks = run / BLOCK_FOLDER
    there = sorted(blocks.iterdir()) if blocks.is_dir() and not blocks.is_symlink() else []
    return [path for path in there if path.name not in listed and path.name.removesuffix(PARTIAL).isdecimal()]
