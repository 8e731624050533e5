"""Fetch."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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

MODELS: Final = "models"
"""The folder of models, each in a folder ``ORG/NAME`` there."""


@dataclass(frozen=True)
class Delivery:
    """What is in ``folder`` now: ``files`` of so many ``bytes``, of which ``new`` were not there before."""

    name: str
    folder: Path
    source: str
    files: int
    bytes: int
    new: int


def needed_benchmarks(selectors: Sequence[str]) -> list[str]:
    """The benchmarks that are named, or that the named protocols, families and suites are about, each once.

    Raises ProtocolError for an unknown name, UsageError where none of a selector's protocols has a benchmark.
    """
    names: dict[str, None] = {}
    for selector in selectors:
        own = (
            {selector}
            if selector in benchmarks()
            else {each.benchmark for each in resolve(selector).values()}
        )
        if own == {ANY}:
            raise UsageError(
                f"{selector} fits every dataset and names none; benchmarks are {', '.join(benchmarks())}"
            )
        names |= dict.fromkeys(sorted(own - {ANY}))
    return list(names)


def fetch_benchmark(name: str, to: Path, progress: Download | None = None) -> Delivery:
    """The files of a benchmark in the folder ``to/name``, with a record of their checksums; those there are kept.

    The Hub is not asked where all of a pinned revision is there.  Raises DataError when the files can't be
    had or the folder holds something else, StoreError when it can't be written.
    """
    known, folder = benchmark(name), to / name
    there = read_fetched(folder)
    if (
        there is not None
        and there.commit == known.revision
        and {*_unchanged(folder, there)} == {*there.files}
    ):
        return _delivery(name, folder, there, 0)
    snapshot = open_snapshot(HubName(known.repository, revision=known.revision), BENCHMARK)
    splits = benchmark_files(known, snapshot.files, snapshot.source)
    paths = dict.fromkeys(path for files in splits.values() for path in files)
    return _deliver(name, snapshot, known.revision, paths, folder, progress)


def fetch_model(name: HubName, to: Path, progress: Download | None = None) -> Delivery:
    """The files of a model in the folder ``to/models/ORG/NAME``; ModelError when they can't be had, else the same."""
    snapshot, paths = open_hub_model(name, progress)
    return _deliver(
        str(name), snapshot, name.revision or "main", paths, to / MODELS / name.repository, progress
    )


def _deliver(
    name: str,
    snapshot: Snapshot,
    revision: str,
    paths: Collection[str],
    folder: Path,
    progress: Download | None,
) -> Delivery:
    there = read_fetched(folder)
    if there is None and folder.is_dir() and any(folder.iterdir()):
        raise DataError(
            f"{folder} holds what was not fetched; move it away, or fetch to another folder"
        )
    unchanged = (
        _unchanged(folder, there) if there is not None and there.commit == snapshot.commit else {}
    )
    lacking = [path for path in paths if path not in unchanged]
    originals = dict(zip(lacking, snapshot.download(lacking, progress), strict=True))
    records = unchanged | {path: _checked(original) for path, original in originals.items()}
    fetched = Fetched(
        snapshot.name.repository, revision, snapshot.commit, {path: records[path] for path in paths}
    )
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(
            folder / NAME, fetched.text
        )  # first: what is interrupted from here on is seen to be incomplete
        for path, original in originals.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with new_file(folder / path) as partial:
                shutil.copyfile(original, partial)
    return _delivery(name, folder, fetched, len(originals))


def _unchanged(folder: Path, there: Fetched) -> dict[str, FileRecord]:
    """The files of an earlier fetch that are as they were."""
    return {
        path: record
        for path, record in there.files.items()
        if (folder / path).is_file() and file_record(folder / path) == record
    }


def _checked(original: Path) -> FileRecord:
    """The record of a file in the Hub's cache, which names it by the checksum that the Hub lists."""
    record, blob = file_record(original), original.resolve()
    actual = blob.name
    if re.fullmatch("[0-9a-f]{64}", blob.name):
        actual = record.sha256
    elif re.fullmatch("[0-9a-f]{40}", blob.name):  # as git has it
        actual = hashlib.sha1(
            b"blob %d\0" % record.bytes + blob.read_bytes(), usedforsecurity=False
        ).hexdigest()
    if actual != blob.name:
        raise DataError(
            f"{blob} is not what the Hub lists under that checksum; remove it and fetch again"
        )
    return record


def _delivery(name: str, folder: Path, fetched: Fetched, new: int) -> Delivery:
    sizes = [each.bytes for each in fetched.files.values()]
    return Delivery(name, folder, fetched.source, len(sizes), sum(sizes), new)
