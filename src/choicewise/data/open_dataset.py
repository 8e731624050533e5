"""The one function that opens every kind of dataset."""

from collections.abc import Mapping
from pathlib import Path

from choicewise.bundled import BENCHMARK, PREFIX, bundled_folder
from choicewise.data.columns import Columns
from choicewise.data.dataset import Dataset
from choicewise.data.download_bars import Download
from choicewise.data.hub_dataset import open_hub_dataset
from choicewise.data.hub_name import HubName, hub_name
from choicewise.data.layout import folder_files, sibling_files
from choicewise.data.mmlu_reader import is_mmlu, read_mmlu
from choicewise.data.subfolders import LISTED, configurations, joined
from choicewise.data.table_reader import ROW_READERS, read_tabular
from choicewise.errors import DataError
from choicewise.records.secret_address import refuse_secret


def open_dataset(
    path: str | Path,
    *,
    on_bad_item: str = "error",
    columns: Columns | None = None,
    progress: Download | None = None,
) -> Dataset:
    """The dataset at ``path``: a folder in the MMLU layout, a folder with the files of each split, or one such file.

    ``bundled:merrowick`` is the benchmark that comes with the package.  Where the files are in sub-folders, as on the
    Hub, there is one of these, or each of them is a subject.

    Where nothing is there and it can be such a name, the dataset ``ORG/NAME[:CONFIG][@REVISION]`` on the Hub, of which
    ``progress`` hears while it is downloaded; without it a terminal shows bars.  ``columns`` declares what the columns
    of such files mean; without it they must be of a known shape.
    ``on_bad_item`` is ``error`` or ``skip``: with ``skip`` rows that can't be used go to ``Dataset.skipped``.

    Raises DataError when nothing is there or it can't be read, the layout is unknown or a row can't be used.
    """
    refuse_secret(path, "the dataset", DataError)
    if str(path).startswith(PREFIX):
        if (bundled := bundled_folder(str(path), (BENCHMARK,))) is None:
            raise DataError(f"{path} is no dataset; the bundled one is {PREFIX}{BENCHMARK.name}")
        path = bundled
    try:
        if (name := dataset_name(path)) is not None:
            return open_hub_dataset(name, on_bad_item=on_bad_item, columns=columns, progress=progress)
        return _open(path, Path(path), on_bad_item, columns)
    except OSError as error:
        raise DataError(f"{error.filename or path} can't be read: {error.strerror}; check the path") from error


def dataset_name(path: str | Path) -> HubName | None:
    """The dataset on the Hub that ``path`` names; None where it is a file or folder, or is to be one."""
    name = hub_name(str(path))
    return None if name is None or Path(path).exists() or Path(path).suffix in ROW_READERS else name


def _open(path: str | Path, place: Path, on_bad_item: str, columns: Columns | None) -> Dataset:
    if is_mmlu(place):
        if columns is not None:
            raise DataError(f"{place} has the MMLU layout, whose columns are fixed; leave the mapping out")
        return read_mmlu(place, on_bad_item=on_bad_item)
    if place.is_dir():
        return _read_folder(place, on_bad_item, columns)
    elif not place.exists():
        named = "/" in str(path) and not place.is_absolute() and place.suffix not in ROW_READERS
        raise DataError(
            f"{path} does not exist; looked for a file or folder of that name from {Path.cwd()}"
            + "; a dataset on the Hub is ORG/NAME, ORG/NAME:CONFIG or ORG/NAME@REVISION" * named
        )
    elif place.suffix not in ROW_READERS:
        raise DataError(f"{path} is no dataset by its ending; files of questions end in {', '.join(ROW_READERS)}")
    else:
        name, files = sibling_files(place)
    return read_tabular(name, files, on_bad_item=on_bad_item, columns=columns)


def _read_folder(folder: Path, on_bad_item: str, columns: Columns | None) -> Dataset:
    name, files = folder.resolve().name, folder_files(folder)
    subjects: Mapping[Path, str] | None = None
    if not files:
        parts = configurations(folder)
        if not parts:
            raise DataError(
                f"{folder} holds no dataset: looked for a folder test/ with <subject>_test.csv (the MMLU layout) and"
                f" for test, dev, validation or train with the ending {' or '.join(ROW_READERS)}, here, in data/ and in"
                " each sub-folder; give a file of another name by its own path",
                _some([str(file) for file in sorted(folder.iterdir()) if file.suffix in ROW_READERS]),
            )
        if len(parts) == 1:
            (files,) = parts.values()
        else:
            files, subjects = joined(folder, parts, columns)
    return read_tabular(name, files, on_bad_item=on_bad_item, columns=columns, subjects=subjects)


def _some(files: list[str]) -> list[str]:
    """The first ``LISTED`` files, and how many more there are."""
    return files if len(files) <= LISTED else [*files[:LISTED], f"and {len(files) - LISTED} more"]
