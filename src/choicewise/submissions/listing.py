"""The files that a worker says it sent: known names of a sweep and its runs, and nothing else."""

import re
from collections.abc import Mapping
from pathlib import Path

from choicewise.records.format import BLOCK_FOLDER, ITEM_FILE, MANIFEST, SWEEP
from choicewise.store.copies import copy_of
from choicewise.store.tables import SCHEMAS
from choicewise.submissions.trouble import TooMuch, WrongPart

MOST = 40_000
"""Files of a submission."""

_SUM = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FOLDER = re.compile(r"(?!.*\.partial$)[A-Za-z0-9_@+][A-Za-z0-9_.@+-]{0,119}", re.ASCII)
_BLOCK = re.compile(r"[0-9]{1,9}", re.ASCII)
_TOP = frozenset({SWEEP, copy_of(Path(SWEEP)).name})
_RUN = frozenset({MANIFEST, copy_of(Path(MANIFEST)).name, ITEM_FILE})
"""Of a run, without its summary: the board computes that itself."""

_TABLES = frozenset(f"{table}.parquet" for table in SCHEMAS)


def checked_listing(files: object) -> dict[str, str]:
    """The listing as it came (path → sha256) where all of it can be of a sweep of one model.

    Raises WrongPart, naming the first path that can't be, and TooMuch.
    """
    if not isinstance(files, Mapping):
        raise WrongPart('"files" must be an object of paths and their sha256')
    if len(files) > MOST:
        raise TooMuch(f"{len(files):,} files are listed; a submission may have {MOST:,}")
    folders = set()
    for path, sha256 in files.items():
        if not isinstance(sha256, str) or not _SUM.fullmatch(sha256):
            raise WrongPart(f"{path[:200]!r} is listed without a sha256 of 64 digits")
        if not is_known(path):
            raise WrongPart(f"{path[:200]!r} is no file of a sweep or its runs; list those alone")
        folders.add(path.split("/")[0] if "/" in path else "")
    if len({path.casefold() for path in files}) < len(files):
        raise WrongPart("two listed paths differ in their case alone; name folders apart")
    if len(folders - {""}) > 1:
        raise WrongPart("the listing has folders of several models; a submission is about one")
    return dict(files)


def is_known(path: str) -> bool:
    """Whether a sweep has such a file: ``sweep.json``, or a file of a run in ``MODEL/DATASET``."""
    match path.split("/"):
        case [name]:
            return name in _TOP
        case [model, data, name]:
            return _is_folder(model) and _is_folder(data) and name in _RUN
        case [model, data, folder, block, name]:
            known = folder == BLOCK_FOLDER and _BLOCK.fullmatch(block) is not None and name in _TABLES
            return known and _is_folder(model) and _is_folder(data)
    return False


def _is_folder(name: str) -> bool:
    return _FOLDER.fullmatch(name) is not None
