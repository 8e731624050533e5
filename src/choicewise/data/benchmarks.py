"""Benchmarks by name: declared, fetched, filled by the user.

Every file ``benchmarks/NAME.toml`` declares one; a protocol names its benchmark on the axis of that name.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from pydantic import TypeAdapter

from choicewise.data.dataset import Columns, Dataset, columns_of
from choicewise.data.files import ROW_READERS, Row
from choicewise.data.hub import BENCHMARK, Download, HubName, hub_name, open_snapshot
from choicewise.data.rows import SHAPES, Shape, shape_of
from choicewise.data.splits import (
    Joined,
    are_published,
    folder_configurations,
    folder_files,
    joined,
    matching,
    no_splits,
    sibling_files,
)
from choicewise.data.tables import is_mmlu, read_mmlu, read_tabular
from choicewise.errors import DataError, MissingData, UnknownShape, did_you_mean
from choicewise.records import FileRecord
from choicewise.util.files import open_file, read_bytes
from choicewise.util.jsonio import exact_json

NAME: Final = "fetch.json"
ANY = "any"  # the benchmark of protocols that fit every dataset, and so name none


def open_benchmark(
    name: str, *, on_bad_item: str = "error", progress: Download | None = None
) -> Dataset:
    """The dataset of the benchmark ``name``: from its folder in ``$CHOICEWISE_DATA``, else from the Hub.

    Files that were fetched into the folder are checked against their checksums; a folder that people filled is read as
    :func:`~choicewise.data.benchmarks.read_filled` says.
    ``progress`` hears of a download.  Raises MissingData where the questions are nowhere, and DataError where they are
    not what they should be.
    """
    known, folder = benchmark(name), local_folder(name)
    if folder is None:
        try:
            snapshot = open_snapshot(HubName(known.repository, revision=known.revision), BENCHMARK)
            splits = benchmark_files(known, snapshot.files, snapshot.source)
            snapshot.download([path for paths in splits.values() for path in paths], progress)
        except DataError as error:
            raise _missing(known, error) from error
        return _read(known, splits, snapshot.folder, snapshot.source, on_bad_item)
    if (fetched := read_fetched(folder)) is None:
        return _read_filled(known, folder, on_bad_item)
    problems = []
    for file, record in fetched.files.items():
        if not (folder / file).is_file():
            problems.append(f"{folder / file} is gone")
        elif file_record(folder / file) != record:
            problems.append(
                f"{folder / file} is not the file that was fetched: its checksum is another"
            )
    if problems:
        why = f"it is not as it was fetched from {fetched.source}; fetch it again, or remove {NAME} if the rows"
        raise DataError(f"{folder}: {why} are to be yours", problems)
    return _read(
        known,
        benchmark_files(known, fetched.files, str(folder)),
        folder,
        fetched.source,
        on_bad_item,
    )


PLACE: Final = "CHOICEWISE_DATA"
"""The environment variable that names the folder with one folder per benchmark, as ``choicewise fetch`` writes it."""


def local_folder(name: str) -> Path | None:
    """The folder of the benchmark on this machine; None where there is none."""
    folder = Path(os.environ.get(PLACE, "")) / name
    return folder if os.environ.get(PLACE) and folder.is_dir() else None


_Splits = Mapping[str, Mapping[str, str]]
"""Split → path → subject of a benchmark's files, the subject empty where paths name none."""


def benchmark_files(known: Benchmark, paths: Iterable[str], place: str) -> _Splits:
    """Those of the ``paths`` that the benchmark reads.  Raises DataError for a split or subject without files."""
    paths = sorted(paths)
    splits = {split: matching(pattern, paths) for split, pattern in known.files.items()}
    if known.subjects:
        splits = {
            split: {p: of for p, of in of_split.items() if of in known.subjects}
            for split, of_split in splits.items()
        }
    lacking = [
        f"{split} ({known.files[split]})" for split, of_split in splits.items() if not of_split
    ]
    for split, of_split in splits.items():
        absent = [
            subject for subject in known.subjects if of_split and subject not in of_split.values()
        ]
        lacking += [f"{split} of {subject} ({known.files[split]})" for subject in absent]
    if lacking:
        more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
        holds = f"{', '.join(paths[:5]) or 'nothing'}{more}"
        raise DataError(
            f"{place} holds no files of {known.name} for {', '.join(lacking)}; it holds {holds}"
        )
    return splits


@dataclass(frozen=True)
class Benchmark:
    """A benchmark and where its questions are.

    ``repository``: its dataset on the Hub, and ``revision`` the commit that is read, or a branch where no commit could
    be read from a published source.  ``files``: split → path of its files in the repository, with ``*`` for any text
    but ``/`` and ``{subject}`` where a part of the path names the subject.  ``columns``: what the columns mean; None
    where they are of a known shape.  ``subjects``: what ``{subject}`` stands for; empty for anything.
    """

    name: str
    title: str
    citation: str
    source: str
    description: str
    repository: str
    revision: str
    files: Mapping[str, str]
    columns: Columns | None
    subjects: tuple[str, ...] = ()

    @property
    def by_subject(self) -> bool:
        """Whether the paths of its files name their subjects."""
        return any("{subject}" in pattern for pattern in self.files.values())


@cache
def benchmarks() -> Mapping[str, Benchmark]:
    """Every benchmark by name, in alphabetical order."""
    folder = files("choicewise.data") / "benchmarks"
    names = sorted(
        file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml")
    )
    texts = {name: (folder / f"{name}.toml").read_text(encoding="utf-8") for name in names}
    tables = {name: tomllib.loads(text) for name, text in texts.items()}
    return MappingProxyType(
        {
            name: Benchmark(
                name,
                title=table["title"],
                citation=table["citation"],
                source=table["source"],
                description=table["about"],
                repository=table["repository"],
                revision=table["revision"],
                files=MappingProxyType(table["files"]),
                columns=columns_of(table["columns"], name) if "columns" in table else None,
                subjects=tuple(table.get("subjects", ())),
            )
            for name, table in tables.items()
        }
    )


def benchmark(name: str) -> Benchmark:
    """The benchmark called ``name``.  Raises DataError if there is none."""
    if name not in benchmarks():
        raise DataError(f"no benchmark is called {name!r}; {did_you_mean(name, benchmarks())}")
    return benchmarks()[name]


def benchmark_of(path: str, asked: Collection[str]) -> str | None:
    """The benchmark whose questions lie at ``path``: by the name of the data, else by the columns of a file's rows.

    None where neither tells; by the columns only one of the benchmarks ``asked`` is told, where it is the only one of
    them that fits.
    """
    place, on_hub = Path(path), hub_name(path)
    names: Sequence[str] = ()
    if place.exists():
        names = (sibling_files(place)[0] if place.is_file() else place.resolve().name,)
    elif on_hub is not None:
        names = (on_hub.config or "", on_hub.repository.rpartition("/")[2])
    if called := next(filter(None, map(_called, names)), None):
        return called
    if not place.is_file() or place.suffix not in ROW_READERS:
        return None
    row = next((row for row in ROW_READERS[place.suffix](place) if isinstance(row, dict)), {})
    if called := _called(shape_of(row) or ""):
        return called
    fitting = [
        each for each in asked if (columns := benchmark(each).columns) and _has(row, columns)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _called(name: str) -> str | None:
    """The benchmark that a name begins with; mmlu-pro is not mmlu."""
    known = (each for each in benchmarks() if f"{_plain(name)}-".startswith(f"{_plain(each)}-"))
    return max(known, key=len, default=None)


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]+", "-", name.casefold()).strip("-")


def _has(row: Row, columns: Columns) -> bool:
    named = {name.partition(".")[0] for name in columns.used - {""}}
    return bool(named) and named <= row.keys()


@dataclass(frozen=True)
class Fetched:
    """The files of a repository at a commit, by their paths there, which are those in the folder as well.

    ``revision`` is what was asked for.
    """

    repository: str
    revision: str
    commit: str
    files: Mapping[str, FileRecord]

    @property
    def source(self) -> str:
        """The repository and the commit."""
        return f"{self.repository}@{self.commit}"

    @property
    def text(self) -> str:
        """What the file holds."""
        return exact_json(asdict(self), indent=1) + "\n"


def file_record(path: Path) -> FileRecord:
    """Size and checksum of a file as it is."""
    with open_file(path) as file:
        sha = hashlib.file_digest(file, "sha256")
        return FileRecord(file.tell(), sha.hexdigest())


def read_fetched(folder: Path) -> Fetched | None:
    """What was fetched into ``folder``; None where nothing was.  Raises DataError for a record that can't be read."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        fetched = TypeAdapter(Fetched).validate_json(read_bytes(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged; remove it and fetch the data again") from error
    if outside := [
        file
        for file in fetched.files
        if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts
    ]:
        raise DataError(
            f"{path} names {outside[0]}, which is outside of its folder; fetch the data again"
        )
    return fetched


def _read(
    known: Benchmark, splits: _Splits, folder: Path, source: str, on_bad_item: str
) -> Dataset:
    files, subjects = _inside(folder, splits)
    dataset = read_tabular(
        known.name, files, on_bad_item=on_bad_item, columns=known.columns, subjects=subjects or None
    )
    return replace(
        dataset, source=source, notes=()
    )  # published rows that stand twice are as they were published


def _inside(folder: Path, splits: _Splits) -> Joined:
    files = {split: [folder / path for path in paths] for split, paths in splits.items()}
    return Joined(
        files, {folder / path: of for paths in splits.values() for path, of in paths.items() if of}
    )


def _missing(known: Benchmark, error: DataError) -> MissingData:
    place = os.environ.get(PLACE)
    where = (
        f"{PLACE} is {place}, which has no folder {known.name}" if place else f"{PLACE} is not set"
    )
    rows = ", ".join(f"{'SUBJECT/' * known.by_subject}{split}.jsonl" for split in known.files)
    return MissingData(
        f"the questions of {known.name} are not here ({where}), and can't be had from the Hub: {error.message}",
        [
            f"rows that you have: put them into {place or f'${PLACE}'}/{known.name}/ as {rows} (or .csv, .parquet)"
            + ("" if place else f", and set {PLACE}")
        ],
        [known.name],
    )


def _read_filled(known: Benchmark, folder: Path, on_bad_item: str) -> Dataset:
    """The questions of the benchmark in ``folder``."""
    if is_mmlu(folder):
        return replace(read_mmlu(folder, on_bad_item=on_bad_item), name=known.name)
    files, subjects = _places(known, folder)
    if not files:
        raise no_splits(folder)
    first = next(iter(files.values()))[0]
    head = next((row for row in ROW_READERS[first.suffix](first) if isinstance(row, dict)), {})
    columns = _columns(known.columns, head)
    if columns is not None and columns.fixed_of and not subjects:
        subject = next(iter(columns.fixed_of))
        raise DataError(
            f"{folder} does not say the subjects of its rows, whose choices depend on them; put the rows of each into"
            f" a folder of its own: {folder / subject / first.name}"
        )
    try:
        return read_tabular(
            known.name, files, on_bad_item=on_bad_item, columns=columns, subjects=subjects or None
        )
    except UnknownShape as error:
        if known.columns is None:
            raise
        named = ", ".join(
            [known.columns.last_of] if known.columns.last_of else sorted(known.columns.used - {""})
        )
        raise DataError(
            f"{error.message.partition(';')[0]}; {known.name} has {named}: give them these names"
        ) from error


def _places(known: Benchmark, folder: Path) -> Joined:
    paths = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    for ending in ("", *ROW_READERS):
        named: dict[str, dict[str, str]] = {}
        for split, pattern in known.files.items():  # as in the repository, but for the ending
            matches = matching(str(Path(pattern).with_suffix(ending)) if ending else pattern, paths)
            if of := {
                path: name for path, name in matches.items() if name in (known.subjects or (name,))
            }:
                named[split] = of
        if named:
            return _inside(folder, named)
    if files := folder_files(folder):
        return Joined(files, {})
    parts = folder_configurations(folder)
    if known.by_subject or (parts and are_published(parts)):
        for name in parts:
            if known.subjects and name not in known.subjects:
                raise DataError(
                    f"{folder / name} is no subject of {known.name}; {did_you_mean(name, known.subjects)}"
                )
        return Joined.of(parts)
    own = {path.partition("/")[0] for path in known.files.values()}
    if (
        len(parts) == 1 or len(own & {*parts}) == 1
    ):  # one configuration is there, or the benchmark's is among them
        return Joined(
            next(files for name, files in parts.items() if len(parts) == 1 or name in own), {}
        )
    return joined(folder, parts, known.columns) if parts else Joined({}, {})


def _columns(declared: Columns | None, head: Row) -> Columns | None:
    """What the benchmark declares where it fits the first row, with the subject if a column is called so; else None."""
    if declared is None:
        return None
    mine = Shape(declared)
    known = any(shape.fits(head) for shape in SHAPES.values())
    if not mine.fits(head) and (known or not mine.fits(head, answered=False)):
        return None
    return (
        replace(declared, subject="subject")
        if declared.subject is None and "subject" in head
        else declared
    )
