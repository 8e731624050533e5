"""Which questions of a run have no answer, because a model behind a server failed to give one."""

from pathlib import Path

import pyarrow.compute as pc

from choicewise.records.manifest import Manifest
from choicewise.records.tables import OBSERVATIONS
from choicewise.store.tables import block_file, read_columns


def unanswered_keys(run: Path, manifest: Manifest) -> dict[str, str]:
    """The keys of those questions, with the name of the block of each.

    Reads a column that is empty in nearly every run.  Raises StoreError where a block can't be read.
    """
    blocks: dict[str, str] = {}
    for block in manifest.blocks:
        path = block_file(run, block, "observations")
        failed = read_columns(path, OBSERVATIONS, ["missing"])["missing"].is_valid()
        if pc.any(failed).as_py():
            keys = read_columns(path, OBSERVATIONS, ["key"])["key"].filter(failed).to_pylist()
            blocks |= dict.fromkeys(keys, block.name)
    return blocks
