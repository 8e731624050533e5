"""Fetches the files of benchmarks and models from the Hub into folders of this machine."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from choicewise.data.benchmarks import (
    ANY,
    NAME,
    Fetched,
    benchmark,
    benchmark_files,
    benchmarks,
    file_record,
    read_fetched,
)
from choicewise.data.hub import BENCHMARK, Download, HubName, Snapshot, open_snapshot
from choicewise.errors import DataError, UsageError
from choicewise.models.opening import open_hub_model
from choicewise.protocols.catalogue import resolve
from choicewise.records import FileRecord
from choicewise.util.files import disk_errors, new_file, write_text

MODELS = "models"
"""The folder of models, each in a folder ``ORG/NAME`` there."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Describe a fetched ``folder``: ``files`` of so many ``bytes``, of which ``new`` were missing."""

    name: str
    folder: Path
    source: str
    files: int
    bytes: int
    new: int


def needed_benchmarks(selectors: Sequence[str]) -> list[str]:
    """Return the benchmarks that are named, and those of named protocols, families and suites.

    Raises ProtocolError for an unknown name, UsageError if no protocol of a selector has a
    benchmark.
    """
    names: dict[str, None] = {}
    for selector in selectors:
        if selector in benchmarks():
            names[selector] = None
            continue
        tested = {protocol.benchmark for protocol in resolve(selector).values()}
        if tested == {ANY}:
            raise UsageError(
                f"{selector} fits every dataset, so nothing can be fetched for it; "
                f"benchmarks are {', '.join(benchmarks())}"
            )
        names |= dict.fromkeys(sorted(tested - {ANY}))
    return list(names)


def fetch_benchmark(name: str, to: Path, progress: Download | None = None) -> Delivery:
    """Fetch the missing files of a benchmark into the folder ``to/name``, with their checksums.

    If all files of a pinned revision are there, the Hub is not called.  Raises DataError if a file
    can't be fetched or the folder holds other files, and StoreError if it can't be written.
    """
    pinned = benchmark(name)
    folder = to / name
    before = read_fetched(folder)
    if before is not None and before.commit == pinned.revision:
        if _unchanged(folder, before).keys() == before.files.keys():
            return _delivery(name, folder, before, 0)
    snapshot = open_snapshot(HubName(pinned.repository, revision=pinned.revision), BENCHMARK)
    splits = benchmark_files(pinned, snapshot.files, snapshot.source)
    paths: dict[str, None] = {}
    for files in splits.values():
        paths |= dict.fromkeys(files)
    return _deliver(name, snapshot, pinned.revision, paths, folder, progress)


def fetch_model(name: HubName, to: Path, progress: Download | None = None) -> Delivery:
    """Fetch the missing files of a model into the folder ``to/models/ORG/NAME``.

    Raises ModelError if a file can't be fetched, and otherwise the errors of
    :func:`fetch_benchmark`.
    """
    snapshot, paths = open_hub_model(name, progress)
    revision = name.revision or "main"
    folder = to / MODELS / name.repository
    return _deliver(str(name), snapshot, revision, paths, folder, progress)


def _deliver(
    name: str,
    snapshot: Snapshot,
    revision: str,
    paths: Collection[str],
    folder: Path,
    progress: Download | None,
) -> Delivery:
    before = read_fetched(folder)
    if before is None and folder.is_dir() and any(folder.iterdir()):
        raise DataError(f"{folder} holds other files; move them away, or fetch to another folder")
    records = {}
    if before is not None and before.commit == snapshot.commit:
        records = _unchanged(folder, before)
    missing = [path for path in paths if path not in records]
    downloads = dict(zip(missing, snapshot.download(missing, progress), strict=True))
    for path, download in downloads.items():
        records[path] = _checked_record(download)
    files = {path: records[path] for path in paths}
    fetched = Fetched(snapshot.name.repository, revision, snapshot.commit, files)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # Written first, so that an interrupted fetch can be seen to be incomplete.
        write_text(folder / NAME, fetched.text)
        for path, download in downloads.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with new_file(folder / path) as partial:
                shutil.copyfile(download, partial)
    return _delivery(name, folder, fetched, len(downloads))


def _unchanged(folder: Path, fetched: Fetched) -> dict[str, FileRecord]:
    """Return the files of an earlier fetch that were not changed since."""
    unchanged = {}
    for path, record in fetched.files.items():
        if (folder / path).is_file() and file_record(folder / path) == record:
            unchanged[path] = record
    return unchanged


def _checked_record(download: Path) -> FileRecord:
    """Return the record of a file in the Hub's cache; DataError if it is not what the Hub lists."""
    record = file_record(download)
    # The cache names a file by the Hub's checksum: a SHA-256, or the SHA-1 that git computes.
    blob = download.resolve()
    actual = blob.name
    if re.fullmatch("[0-9a-f]{64}", blob.name):
        actual = record.sha256
    elif re.fullmatch("[0-9a-f]{40}", blob.name):
        header = b"blob %d\0" % record.bytes
        actual = hashlib.sha1(header + blob.read_bytes(), usedforsecurity=False).hexdigest()
    if actual != blob.name:
        raise DataError(f"{blob} does not match its checksum on the Hub; remove it and fetch again")
    return record


def _delivery(name: str, folder: Path, fetched: Fetched, new: int) -> Delivery:
    return Delivery(
        name=name,
        folder=folder,
        source=fetched.source,
        files=len(fetched.files),
        bytes=sum(record.bytes for record in fetched.files.values()),
        new=new,
    )
