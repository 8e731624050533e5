"""Open a dataset: a folder, a file, a bundled one, or a repository on the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from choicewise.bundled import DATASETS, PREFIX, bundled_folder
from choicewise.data.dataset import Columns, Dataset
from choicewise.data.files import ROW_READERS, json_remedy
from choicewise.data.splits import (
    DEFAULT,
    SAVED_TO_DISK,
    SPLITS,
    Configuration,
    Files,
    folder_configurations,
    folder_files,
    joined,
    no_splits,
    repository_configurations,
    sibling_files,
)
from choicewise.data.tables import is_mmlu, read_mmlu, read_tabular
from choicewise.errors import DataError, UnknownShape, did_you_mean
from choicewise.util.files import open_file
from choicewise.util.text import check_name

if TYPE_CHECKING:
    from choicewise.data.hub import Download, HubName, Snapshot


def open_dataset(
    path: str | Path,
    *,
    on_bad_item: str = "error",
    columns: Columns | None = None,
    progress: Download | None = None,
) -> Dataset:
    """Open the dataset at ``path``.

    It is a folder in the MMLU layout, a folder with the files of each split, or one such file.  If
    the files are in sub-folders, as on the Hub, there is one of these, or each of them is a
    subject.  ``bundled:merrowick`` and ``bundled:commons`` come with the package.

    If nothing is there and it can be such a name, it is the dataset
    ``ORG/NAME[:CONFIG][@REVISION]`` on the Hub, of which ``progress`` hears while it is downloaded;
    without it a terminal shows bars.  ``columns`` declares what the columns of such files mean;
    without it they must be of a known shape.  ``on_bad_item`` is ``error`` or ``skip``: with
    ``skip`` rows that can't be used go to ``Dataset.skipped``.

    Raises DataError if nothing is there or it can't be read, the layout is unknown or a row can't
    be used.
    """
    check_name(path, "the dataset", DataError)
    if str(path).startswith("http"):
        from choicewise.data.hub import DATASET, refuse_page

        refuse_page(str(path), DATASET)
    if str(path).startswith(PREFIX):
        bundled = bundled_folder(str(path), DATASETS)
        if bundled is None:
            names = " and ".join(PREFIX + folder.name for folder in DATASETS)
            raise DataError(f"{path} is not bundled; use {names}")
        path = bundled
    try:
        name = dataset_name(path)
        if name is not None:
            return _open_hub_dataset(name, on_bad_item, columns, progress)
        return _open(path, on_bad_item, columns)
    except OSError as error:
        raise DataError(
            f"can't read {error.filename or path}: {error.strerror}; check the path"
        ) from error


def dataset_name(path: str | Path) -> HubName | None:
    """Return the dataset on the Hub that ``path`` names; None if it is a file or folder."""
    if Path(path).exists() or Path(path).suffix in ROW_READERS:
        return None
    from choicewise.data.hub import hub_name

    return hub_name(str(path))


def _open(path: str | Path, on_bad_item: str, columns: Columns | None) -> Dataset:
    """Open a file or folder."""
    file = Path(path)
    if is_mmlu(file):
        if columns is not None:
            raise DataError(f"{file} has the MMLU layout with fixed columns; leave out the mapping")
        return read_mmlu(file, on_bad_item=on_bad_item)
    subjects: Mapping[Path, str] | None = None
    if file.is_dir():
        name = file.resolve().name
        files = folder_files(file)
        if not files:
            files, subjects = _parts(file, columns)
    else:
        _check_file(path)
        name, files = sibling_files(file)
    return read_tabular(name, files, on_bad_item=on_bad_item, columns=columns, subjects=subjects)


def _parts(folder: Path, columns: Columns | None) -> tuple[Files, Mapping[Path, str] | None]:
    """Return the files of the sub-folders, and their subjects if there are several."""
    parts = folder_configurations(folder)
    if not parts:
        raise no_splits(folder)
    if len(parts) == 1:
        return next(iter(parts.values())), None
    return joined(folder, parts, columns)


def _check_file(path: str | Path) -> None:
    """Check that ``path`` is a file of questions.  Raises DataError that says how to make one."""
    file = Path(path)
    if not file.exists():
        message = f"{path} does not exist"
        if not file.is_absolute():
            message += f" in {Path.cwd()}"
            if "/" not in str(path) or file.suffix in ROW_READERS:
                raise DataError(message)
            message += "; a dataset on the Hub is ORG/NAME, ORG/NAME:CONFIG or ORG/NAME@REVISION"
        raise DataError(message)
    if file.suffix not in ROW_READERS:
        raise DataError(
            f"can't read {path}: files of questions end in {', '.join(ROW_READERS)}; "
            f"{_conversion(file)}"
        )
    # A pipe or a device is refused.
    open_file(file).close()


def _conversion(file: Path) -> str:
    """Return how to make a file of questions of one with another ending."""
    if file.suffix in (".xlsx", ".xls", ".ods"):
        return "save it as CSV (in Excel: CSV UTF-8)"
    if file.suffix == ".json":
        return json_remedy(file) or "write one JSON object per line"
    if file.suffix in (".gz", ".zip", ".zst", ".bz2", ".xz"):
        return "unpack it"
    if file.suffix == ".ndjson":
        return f"rename it to {file.stem}.jsonl"
    if file.suffix == ".arrow":
        return SAVED_TO_DISK
    return "if it is a table, rename it to end in .csv or .tsv"


def _open_hub_dataset(
    name: HubName, on_bad_item: str, columns: Columns | None, progress: Download | None
) -> Dataset:
    """Open the splits of one configuration, from the Hub's cache or else downloaded."""
    from choicewise.data.hub import DATASET, HubName, open_snapshot

    snapshot = open_snapshot(name, DATASET)
    configuration = _chosen(snapshot)
    splits = configuration.splits
    if not splits.keys().isdisjoint(SPLITS.values()):
        splits = {split: paths for split, paths in splits.items() if split in SPLITS.values()}
    paths: list[str] = []
    for paths_of_split in splits.values():
        paths += paths_of_split
    # The Hub may have converted only a part of the rows.
    for part in "/".join(paths).split("/"):
        if part.startswith("partial-"):
            raise DataError(
                f"{snapshot.source} has only a part of the rows ({part}); name its main revision"
            )
    local = dict(zip(paths, snapshot.download(paths, progress), strict=True))
    files = {split: [local[path] for path in of_split] for split, of_split in splits.items()}
    label = HubName(name.repository)
    if configuration.name != DEFAULT:
        label = replace(label, config=configuration.name)
    try:
        dataset = read_tabular(str(label), files, on_bad_item=on_bad_item, columns=columns)
    except DataError as error:
        renamed = _with_names_on_hub(error, snapshot)
        if renamed is None:
            raise
        raise renamed from error
    return replace(dataset, source=str(replace(label, revision=snapshot.commit)))


def _with_names_on_hub(error: DataError, snapshot: Snapshot) -> DataError | None:
    """Return the error with files called as they are on the Hub; None if it names none.

    It has a line that says how to change a file.
    """
    texts = [error.message, *error.problems]
    here = f"{snapshot.folder}/"
    message, *problems = [text.replace(here, f"{snapshot.source}/") for text in texts]
    if [message, *problems] == texts:
        return None
    repository = snapshot.name.repository
    where = f"{repository} --repo-type dataset --revision {snapshot.commit} --local-dir DIR"
    line = f"to change a file: `hf download {where}`, then use DIR as the data"
    if isinstance(error, UnknownShape):
        # Its problems are lines to copy into a mapping.
        line = f"# {line}"
    return type(error)(message, [*problems, line])


def _chosen(snapshot: Snapshot) -> Configuration:
    """Return the configuration that is named, else the only one or the default one."""
    name = snapshot.name
    configurations = repository_configurations(snapshot.files, _card(snapshot))
    usable = {config.name: config for config in configurations.values() if config.splits}
    if not usable:
        raise DataError(_without_rows(snapshot))
    if name.config is not None:
        if name.config not in usable:
            hint = did_you_mean(name.config, usable)
            raise DataError(f"{name.repository} has no configuration {name.config!r}; {hint}")
        return usable[name.config]
    for config in usable.values():
        if config.default or len(usable) == 1:
            return config
    example = replace(name, config=next(iter(usable)))
    raise DataError(
        f"{name.repository} has {len(usable)} configurations; name one, such as {example}: "
        f"{', '.join(usable)}"
    )


def _card(snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the metadata of the repository's description, if it has one."""
    from huggingface_hub import metadata_load

    path = snapshot.folder / "README.md"
    if not path.is_file():
        return None
    try:
        return metadata_load(path)
    except Exception as error:
        # YAML that people wrote by hand.
        raise DataError(
            f"README.md of {snapshot.source} has metadata that is not YAML: {type(error).__name__}"
        ) from None


# The branch on which the Hub keeps a dataset's rows as Parquet if its files are others.
_CONVERTED = "refs/convert/parquet"


def _without_rows(snapshot: Snapshot) -> str:
    """Return why no configuration has rows, and what to do."""
    repository = snapshot.name.repository
    script = f"{PurePosixPath(repository).name}.py"
    if script in snapshot.files:
        name = replace(snapshot.name, revision=_CONVERTED)
        return (
            f"{repository} is a script ({script}), which Choicewise never runs; try the Hub's "
            "Parquet"
            f" copy: {name}"
        )
    if any(PurePosixPath(file).suffix in ROW_READERS for file in snapshot.files):
        return (
            f"README.md of {snapshot.source} names no file of rows that exists; run"
            f" `hf download {repository} --repo-type dataset`, and pass a file from that folder"
        )
    kinds = {Path(file).suffix or file for file in snapshot.files}
    named = ", ".join(sorted(kinds)) or "nothing"
    return f"{snapshot.source} has no {' or '.join(ROW_READERS)} file, only {named}"
