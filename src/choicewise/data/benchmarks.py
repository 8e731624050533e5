"""Open the dataset of a benchmark by its name: fetched, filled by the user, or from the Hub.

Every file ``benchmarks/NAME.toml`` declares one; a protocol names its benchmark on the axis of that
name.
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

from pydantic import TypeAdapter

from choicewise.data.dataset import Columns, Dataset, columns_of
from choicewise.data.files import ROW_READERS, Row, first_row
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

NAME = "fetch.json"
"""The file in a folder that says what was fetched into it."""

PLACE = "CHOICEWISE_DATA"
"""The environment variable of the folder with one folder per benchmark, as of ``choicewise fetch``.
"""

ANY = "any"
"""The benchmark of protocols that fit every dataset, and so name none."""

_Splits = Mapping[str, Mapping[str, str]]
"""Split → path → subject of a benchmark's files, the subject empty if paths name none."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark and where its questions are.

    ``repository``: its dataset on the Hub, and ``revision`` the commit that is read, or a branch if
    no commit could be read from a published source.  ``files``: split → path of its files in the
    repository, with ``*`` for any text but ``/`` and ``{subject}`` for the subject.  ``columns``:
    what the columns mean; None if they are of a known shape.  ``subjects``: what ``{subject}``
    stands for; empty for anything.
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
        """Check that the paths of its files name their subjects."""
        return any("{subject}" in pattern for pattern in self.files.values())


@cache
def benchmarks() -> Mapping[str, Benchmark]:
    """Return every benchmark by name, in alphabetical order."""
    folder = files("choicewise.data") / "benchmarks"
    names = [file.name.removesuffix(".toml") for file in folder.iterdir()]
    by_name = {}
    for name in sorted(names):
        table = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
        columns = None
        if "columns" in table:
            columns = columns_of(table["columns"], name)
        by_name[name] = Benchmark(
            name=name,
            title=table["title"],
            citation=table["citation"],
            source=table["source"],
            description=table["about"],
            repository=table["repository"],
            revision=table["revision"],
            files=MappingProxyType(table["files"]),
            columns=columns,
            subjects=tuple(table.get("subjects", ())),
        )
    return MappingProxyType(by_name)


def benchmark(name: str) -> Benchmark:
    """Return the benchmark called ``name``.  Raises DataError if there is none."""
    if name not in benchmarks():
        raise DataError(f"no benchmark is called {name!r}; {did_you_mean(name, benchmarks())}")
    return benchmarks()[name]


def open_benchmark(
    name: str, *, on_bad_item: str = "error", progress: Download | None = None
) -> Dataset:
    """Open a benchmark's dataset: from its folder in ``$CHOICEWISE_DATA``, else from the Hub.

    Files that were fetched into the folder are checked against their checksums; a folder that
    people filled may be in any layout.  ``progress`` hears of a download.

    Raises MissingData if the questions are nowhere, and DataError if they are not what they should
    be.
    """
    opened = benchmark(name)
    folder = local_folder(name)
    if folder is None:
        try:
            hub = HubName(opened.repository, revision=opened.revision)
            snapshot = open_snapshot(hub, BENCHMARK)
            splits = benchmark_files(opened, snapshot.files, snapshot.source)
            paths: list[str] = []
            for files_of_split in splits.values():
                paths += files_of_split
            snapshot.download(paths, progress)
        except DataError as error:
            raise _missing(opened, error) from error
        return _read(opened, splits, snapshot.folder, snapshot.source, on_bad_item)
    fetched = read_fetched(folder)
    if fetched is None:
        return _read_filled(opened, folder, on_bad_item)
    problems = []
    for file, record in fetched.files.items():
        path = folder / file
        if not path.is_file():
            problems.append(f"{path} is missing")
        elif file_record(path) != record:
            problems.append(f"{path} has another checksum than the fetched file")
    if problems:
        remedy = f"fetch them again, or remove {NAME} to use your own rows"
        raise DataError(f"{folder}: files differ from {fetched.source}; {remedy}", problems)
    splits = benchmark_files(opened, fetched.files, str(folder))
    return _read(opened, splits, folder, fetched.source, on_bad_item)


def local_folder(name: str) -> Path | None:
    """Return the folder of the benchmark on this machine; None if there is none."""
    parent = os.environ.get(PLACE)
    if not parent:
        return None
    folder = Path(parent) / name
    return folder if folder.is_dir() else None


def benchmark_files(benchmark: Benchmark, paths: Iterable[str], where: str) -> _Splits:
    """Return those of ``paths`` that the benchmark reads.

    Raises DataError, saying ``where`` the paths are, for a split or subject without files.
    """
    paths = sorted(paths)
    splits = {}
    lacking = []
    for split, pattern in benchmark.files.items():
        splits[split] = _of_benchmark(benchmark, matching(pattern, paths))
        if not splits[split]:
            lacking.append(f"{split} ({pattern})")
    for split, subjects in splits.items():
        for subject in benchmark.subjects:
            if subjects and subject not in subjects.values():
                lacking.append(f"{split} of {subject} ({benchmark.files[split]})")
    if lacking:
        holds = ", ".join(paths[:5]) or "nothing"
        if len(paths) > 5:
            holds += f" and {len(paths) - 5} more"
        raise DataError(
            f"{where} has no files of {benchmark.name} for {', '.join(lacking)}; its files: {holds}"
        )
    return splits


def _of_benchmark(benchmark: Benchmark, subjects: Mapping[str, str]) -> dict[str, str]:
    """Return path → subject without those of subjects that the benchmark does not have."""
    if not benchmark.subjects:
        return dict(subjects)
    return {path: name for path, name in subjects.items() if name in benchmark.subjects}


def benchmark_of(path: str, candidates: Collection[str]) -> str | None:
    """Return the benchmark whose questions lie at ``path``, or None.

    It is found by the name of the data, else by the columns of a file's rows: by these, only one of
    the ``candidates`` is found, and only if no other of them fits.
    """
    file = Path(path)
    hub = hub_name(path)
    names: Sequence[str] = ()
    if file.is_file():
        names = (sibling_files(file)[0],)
    elif file.exists():
        names = (file.resolve().name,)
    elif hub is not None:
        names = (hub.config or "", hub.repository.rpartition("/")[2])
    for name in names:
        called = _called(name)
        if called is not None:
            return called
    if not file.is_file() or file.suffix not in ROW_READERS:
        return None
    row = first_row(file)
    called = _called(shape_of(row) or "")
    if called is not None:
        return called
    fitting = [name for name in candidates if _has(row, benchmark(name).columns)]
    return fitting[0] if len(fitting) == 1 else None


def _called(name: str) -> str | None:
    """Return the benchmark that a name begins with; mmlu-pro is not mmlu."""
    beginning = f"{_plain(name)}-"
    names = [other for other in benchmarks() if beginning.startswith(f"{_plain(other)}-")]
    return max(names, key=len, default=None)


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]+", "-", name.casefold()).strip("-")


def _has(row: Row, columns: Columns | None) -> bool:
    if columns is None:
        return False
    names = {name.partition(".")[0] for name in columns.used - {""}}
    return bool(names) and names <= row.keys()


@dataclass(frozen=True)
class Fetched:
    """The files of a repository at a commit, by their paths there and in the folder.

    ``revision``: the commit or branch that was to be fetched.
    """

    repository: str
    revision: str
    commit: str
    files: Mapping[str, FileRecord]

    @property
    def source(self) -> str:
        """Return the repository and the commit."""
        return f"{self.repository}@{self.commit}"

    @property
    def text(self) -> str:
        """Return what the file ``NAME`` holds."""
        return exact_json(asdict(self), indent=1) + "\n"


def file_record(path: Path) -> FileRecord:
    """Return size and checksum of a file."""
    with open_file(path) as file:
        sha = hashlib.file_digest(file, "sha256")
        return FileRecord(file.tell(), sha.hexdigest())


def read_fetched(folder: Path) -> Fetched | None:
    """Read what was fetched into ``folder``; None if nothing was.

    Raises DataError for a record that can't be read, or names files outside of the folder.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        fetched = TypeAdapter(Fetched).validate_json(read_bytes(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged; remove it and fetch the data again") from error
    for file in fetched.files:
        if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
            raise DataError(f"{path} names {file} outside its folder; fetch the data again")
    return fetched


def _read(
    benchmark: Benchmark, splits: _Splits, folder: Path, source: str, on_bad_item: str
) -> Dataset:
    """Read published files; they may have rows twice, so that notes about these are left out."""
    files, subjects = _inside(folder, splits)
    dataset = read_tabular(
        benchmark.name,
        files,
        on_bad_item=on_bad_item,
        columns=benchmark.columns,
        subjects=subjects or None,
    )
    return replace(dataset, source=source, notes=())


def _inside(folder: Path, splits: _Splits) -> Joined:
    """Return the files with the paths of ``splits`` in ``folder``, and their subjects."""
    files: dict[str, list[Path]] = {}
    subjects: dict[Path, str] = {}
    for split, paths in splits.items():
        files[split] = [folder / path for path in paths]
        for path, subject in paths.items():
            if subject:
                subjects[folder / path] = subject
    return Joined(files, subjects)


def _missing(benchmark: Benchmark, error: DataError) -> MissingData:
    parent = os.environ.get(PLACE)
    if parent:
        why = f"{PLACE}={parent} has no folder {benchmark.name}"
        put = f"put them into {parent}"
        remedy = ""
    else:
        why = f"{PLACE} is not set"
        put = f"put them into ${PLACE}"
        remedy = f", and set {PLACE}"
    folder = "SUBJECT/" if benchmark.by_subject else ""
    rows = ", ".join(f"{folder}{split}.jsonl" for split in benchmark.files)
    return MissingData(
        f"can't find the questions of {benchmark.name} ({why}), nor download them: {error.message}",
        [
            f"if you have the rows, {put}/{benchmark.name}/ as {rows} (or .csv, .parquet){remedy}",
        ],
        [benchmark.name],
    )


def _read_filled(benchmark: Benchmark, folder: Path, on_bad_item: str) -> Dataset:
    """Read the questions of the benchmark in a ``folder`` that people filled."""
    if is_mmlu(folder):
        return replace(read_mmlu(folder, on_bad_item=on_bad_item), name=benchmark.name)
    files, subjects = _filled_files(benchmark, folder)
    if not files:
        raise no_splits(folder)
    first_files = next(iter(files.values()))
    columns = _columns(benchmark.columns, first_row(first_files[0]))
    if columns is not None and columns.fixed_of and not subjects:
        subject = next(iter(columns.fixed_of))
        raise DataError(
            f"{folder} has no subjects, and the choices depend on them; make one folder per "
            "subject:"
            f" {folder / subject / first_files[0].name}"
        )
    try:
        return read_tabular(
            benchmark.name,
            files,
            on_bad_item=on_bad_item,
            columns=columns,
            subjects=subjects or None,
        )
    except UnknownShape as error:
        declared = benchmark.columns
        if declared is None:
            raise
        names = declared.last_of or ", ".join(sorted(declared.used - {""}))
        raise DataError(
            f"{error.message.partition(';')[0]}; rename the columns as in {benchmark.name}: {names}"
        ) from error


def _filled_files(benchmark: Benchmark, folder: Path) -> Joined:
    """Find the files in a ``folder`` that people filled.

    They are called as in the repository, also with other endings, or as in any dataset; else each
    sub-folder is a subject or a configuration.
    """
    paths = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    for ending in ("", *ROW_READERS):
        splits = {}
        for split, pattern in benchmark.files.items():
            if ending:
                pattern = str(Path(pattern).with_suffix(ending))
            matches = _of_benchmark(benchmark, matching(pattern, paths))
            if matches:
                splits[split] = matches
        if splits:
            return _inside(folder, splits)
    files = folder_files(folder)
    if files:
        return Joined(files, {})
    return _filled_parts(benchmark, folder)


def _filled_parts(benchmark: Benchmark, folder: Path) -> Joined:
    """Return the files of the sub-folders: of all if they are subjects, else of a configuration."""
    parts = folder_configurations(folder)
    if not parts:
        return Joined({}, {})
    if benchmark.by_subject or are_published(parts):
        for name in parts:
            if benchmark.subjects and name not in benchmark.subjects:
                raise DataError(
                    f"{folder / name} is not a subject of {benchmark.name}; "
                    f"{did_you_mean(name, benchmark.subjects)}"
                )
        return Joined.of(parts)
    if len(parts) == 1:
        return Joined(next(iter(parts.values())), {})
    # Of several configurations, that which the benchmark reads in the repository.
    configurations = {path.partition("/")[0] for path in benchmark.files.values()}
    read = configurations.intersection(parts)
    if len(read) == 1:
        return Joined(parts[read.pop()], {})
    return joined(folder, parts, benchmark.columns)


def _columns(declared: Columns | None, head: Row) -> Columns | None:
    """Return the ``declared`` columns if they fit the first row, else None.

    A column called subject is the subject unless another is declared.
    """
    if declared is None:
        return None
    shape = Shape(declared)
    if not shape.fits(head):
        # A row without an answer may be of the benchmark, unless it is of another shape.
        is_published = any(published.fits(head) for published in SHAPES.values())
        if is_published or not shape.fits(head, answered=False):
            return None
    if declared.subject is None and "subject" in head:
        return replace(declared, subject="subject")
    return declared
