"""Opens a dataset: a folder, a file, the bundled benchmark, or a repository on the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from choicewise.bundled import DATASETS, PREFIX, bundled_folder, is_bundled
from choicewise.data.dataset import Columns, Dataset
from choicewise.data.files import ROW_READERS, json_remedy
from choicewise.data.hub import (
    DATASET,
    Download,
    HubName,
    Snapshot,
    hub_name,
    open_snapshot,
    refuse_page,
)
from choicewise.data.splits import (
    DEFAULT,
    SPLITS,
    Configuration,
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


def open_dataset(
    path: str | Path,
    *,
    on_bad_item: str = "error",
    columns: Columns | None = None,
    progress: Download | None = None,
) -> Dataset:
    """The dataset at ``path``: a folder in the MMLU layout, a folder with the files of each split, or one such file.

    ``bundled:merrowick`` and ``bundled:commons`` come with the package.  Where the files are in sub-folders, as on the
    Hub, there is one of these, or each of them is a subject.

    Where nothing is there and it can be such a name, the dataset ``ORG/NAME[:CONFIG][@REVISION]`` on the Hub, of which
    ``progress`` hears while it is downloaded; without it a terminal shows bars.  ``columns`` declares what the columns
    of such files mean; without it they must be of a known shape.
    ``on_bad_item`` is ``error`` or ``skip``: with ``skip`` rows that can't be used go to ``Dataset.skipped``.

    Raises DataError when nothing is there or it can't be read, the layout is unknown or a row can't be used.
    """
    check_name(path, "the dataset", DataError)
    refuse_page(str(path), DATASET)
    if is_bundled(str(path)):
        bundled = bundled_folder(str(path), DATASETS)
        if bundled is None:
            names = " and ".join(PREFIX + folder.name for folder in DATASETS)
            raise DataError(f"{path} is no bundled dataset; choose from {names}")
        path = bundled
    try:
        if (name := dataset_name(path)) is not None:
            return _open_hub_dataset(name, on_bad_item, columns, progress)
        return _open(path, Path(path), on_bad_item, columns)
    except OSError as error:
        raise DataError(
            f"{error.filename or path} can't be read: {error.strerror}; check the path"
        ) from error


def dataset_name(path: str | Path) -> HubName | None:
    """The dataset on the Hub that ``path`` names; None where it is a file or folder, or is to be one."""
    name = hub_name(str(path))
    return None if name is None or Path(path).exists() or Path(path).suffix in ROW_READERS else name


def _open(path: str | Path, place: Path, on_bad_item: str, columns: Columns | None) -> Dataset:
    if is_mmlu(place):
        if columns is not None:
            raise DataError(
                f"{place} has the MMLU layout, whose columns are fixed; leave the mapping out"
            )
        return read_mmlu(place, on_bad_item=on_bad_item)
    subjects: Mapping[Path, str] | None = None
    if place.is_dir():
        name, files = place.resolve().name, folder_files(place)
        if not files:
            parts = folder_configurations(place)
            if not parts:
                raise no_splits(place)
            if len(parts) == 1:
                (files,) = parts.values()
            else:
                files, subjects = joined(place, parts, columns)
    elif not place.exists():
        named = "/" in str(path) and not place.is_absolute() and place.suffix not in ROW_READERS
        raise DataError(
            f"{path} does not exist; looked for a file or folder of that name from {Path.cwd()}"
            + "; a dataset on the Hub is ORG/NAME, ORG/NAME:CONFIG or ORG/NAME@REVISION" * named
        )
    elif place.suffix not in ROW_READERS:
        raise DataError(
            f"can't read {path}: files of questions end in {', '.join(ROW_READERS)}; {_conversion(place)}"
        )
    else:
        open_file(place).close()  # a pipe or a device is refused
        name, files = sibling_files(place)
    return read_tabular(name, files, on_bad_item=on_bad_item, columns=columns, subjects=subjects)


def _conversion(file: Path) -> str:
    """Return how to make a file of questions of one with another ending."""
    if file.suffix in (".xlsx", ".xls", ".ods"):
        return "save it as CSV (in Excel: CSV UTF-8)"
    if file.suffix == ".json":
        return json_remedy(file) or "write one JSON object a line, for each question"
    return "if it is a table, rename it to end in .csv or .tsv"


def _open_hub_dataset(
    name: HubName, on_bad_item: str, columns: Columns | None, progress: Download | None
) -> Dataset:
    """The dataset ``name``, from the Hub's cache or else downloaded: the splits of one configuration."""
    snapshot = open_snapshot(name, DATASET)
    config = _chosen(snapshot)
    splits = {
        split: paths for split, paths in config.splits.items() if split in SPLITS.values()
    } or config.splits
    needed = [path for paths in splits.values() for path in paths]
    for path in needed:
        if partial := [part for part in PurePosixPath(path).parts if part.startswith("partial-")]:
            raise DataError(
                f"{snapshot.source} holds only a part of its rows ({partial[0]}); name its main revision"
            )
    local = dict(zip(needed, snapshot.download(needed, progress), strict=True))
    files = {split: [local[path] for path in paths] for split, paths in splits.items()}
    label = HubName(name.repository, None if config.name == DEFAULT else config.name)
    try:
        dataset = read_tabular(str(label), files, on_bad_item=on_bad_item, columns=columns)
    except DataError as error:
        # with files called as they are on the Hub, and a line that says where they are here
        here, there = f"{snapshot.folder}/", f"{snapshot.source}/"
        message, *problems = (
            text.replace(here, there) for text in (error.message, *error.problems)
        )
        if (message, *problems) == (error.message, *error.problems):
            raise
        where = (
            f"{name.repository} --repo-type dataset --revision {snapshot.commit} --local-dir DIR"
        )
        mark = (
            "# " if isinstance(error, UnknownShape) else ""
        )  # its problems are lines to copy into a mapping
        problems.append(f"{mark}to change a file: `hf download {where}`, and name DIR as the data")
        raise type(error)(message, problems) from error
    return replace(dataset, source=str(replace(label, revision=snapshot.commit)))


def _chosen(snapshot: Snapshot) -> Configuration:
    name, known = snapshot.name, repository_configurations(snapshot.files, _card(snapshot))
    usable = {each: config for each, config in known.items() if config.splits}
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
    first, *_ = usable
    raise DataError(
        f"{name.repository} has {len(usable)} configurations; name one, as {replace(name, config=first)}: "
        f"{', '.join(usable)}"
    )


def _card(snapshot: Snapshot) -> dict[str, Any] | None:
    from huggingface_hub import metadata_load

    path = snapshot.folder / "README.md"
    if not path.is_file():
        return None
    try:
        return metadata_load(path)
    except Exception as error:  # YAML that people wrote by hand
        raise DataError(
            f"the metadata in README.md of {snapshot.source} is not YAML: {type(error).__name__}"
        ) from None


_CONVERTED = "refs/convert/parquet"
"""The branch on which the Hub keeps a dataset's rows as Parquet where its own files are others."""


def _without_rows(snapshot: Snapshot) -> str:
    repository, files = snapshot.name.repository, [*snapshot.files]
    script = f"{PurePosixPath(repository).name}.py"
    if script in files:
        name = replace(snapshot.name, revision=_CONVERTED)
        return (
            f"{repository} is a script ({script}), and code from datasets is never run; its rows as Parquet, where the"
            f" Hub could convert them: {name}"
        )
    if any(PurePosixPath(file).suffix in ROW_READERS for file in files):
        return (
            f"README.md of {snapshot.source} declares no configuration with a file of rows that is there; run"
            f" `hf download {repository} --repo-type dataset`, and pass a file of the folder that it names"
        )
    kinds = sorted({Path(file).suffix or file for file in files})
    return f"{snapshot.source} holds no {' or '.join(ROW_READERS)} file of rows, only {', '.join(kinds) or 'nothing'}"
