"""Open_dataset: local folder, sub-folders and Hub repository by ONE find_splits(paths, card).

The description (README.md) may say so, as the Hub defines it (``configs`` with ``data_files``,
https://huggingface.co/docs/hub/datasets-manual-configuration); otherwise folders and file names do:
``CONFIG/SPLIT-...``, ``data/SPLIT-...``, ``SPLIT.jsonl``, or ``CONFIG/SPLIT/0000.parquet`` as the Hub's own conversion
to Parquet has it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from choicewise.bundled import BENCHMARK, PREFIX, bundled_folder
from choicewise.data.dataset import Columns, Dataset
from choicewise.data.files import PIECES, any_of, fits
from choicewise.data.hub import DATASET, Download, HubName, Snapshot, hub_name, open_snapshot
from choicewise.data.items import UnusableRow, categories_of, text, value_at
from choicewise.data.rows import recognise
from choicewise.data.tables import (
    ROW_READERS,
    SPLITS,
    Files,
    Row,
    folder_files,
    is_mmlu,
    read_mmlu,
    read_tabular,
    sibling_files,
)
from choicewise.errors import DataError, did_you_mean
from choicewise.util.secrets import refuse_secret


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
        parts = folder_configurations(folder)
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


CONVERTED = "refs/convert/parquet"
"""The branch on which the Hub keeps a dataset's rows as Parquet where its own files are others."""


def open_hub_dataset(
    name: HubName,
    *,
    on_bad_item: str = "error",
    columns: Columns | None = None,
    progress: Download | None = None,
) -> Dataset:
    """The dataset ``name``, from the Hub's cache or else downloaded: the splits of one configuration.

    Other splits than test, validation, dev and train are read only where there are none of these.

    Raises DataError when it can't be had, has several configurations and none is named, has not the one that is named,
    or holds no files of rows.
    """
    snapshot = open_snapshot(name, DATASET)
    config = _chosen(snapshot)
    splits = {split: paths for split, paths in config.splits.items() if split in SPLITS.values()} or config.splits
    needed = [path for paths in splits.values() for path in paths]
    for path in needed:
        if partial := [part for part in PurePosixPath(path).parts if part.startswith("partial-")]:
            raise DataError(f"{snapshot.source} holds only a part of its rows ({partial[0]}); name its main revision")
    local = dict(zip(needed, snapshot.download(needed, progress), strict=True))
    files = {split: [local[path] for path in paths] for split, paths in splits.items()}
    label = HubName(name.repository, None if config.name == DEFAULT else config.name)
    try:
        dataset = read_tabular(str(label), files, on_bad_item=on_bad_item, columns=columns)
    except DataError as error:
        raise _on_hub(error, snapshot) from error
    return replace(dataset, source=str(replace(label, revision=snapshot.commit)))


def _on_hub(error: DataError, snapshot: Snapshot) -> DataError:
    """The same error with files called as they are on the Hub, and a line that says where they are here."""
    folder = f"{snapshot.folder}/"
    texts = [text.replace(folder, f"{snapshot.source}/") for text in (error.message, *error.problems)]
    if texts == [error.message, *error.problems]:
        return error
    return DataError(texts[0], [*texts[1:], _to_change(snapshot)])


def _to_change(snapshot: Snapshot) -> str:
    line = f"hf download {snapshot.name.repository} --repo-type dataset --revision {snapshot.commit} --local-dir DIR"
    return f"to change a file: `{line}`, and name DIR as the data"


def _chosen(snapshot: Snapshot) -> Configuration:
    """The configuration that is asked for, or the one that is meant where none is."""
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
    """The metadata at the head of the description; None where there is none."""
    from huggingface_hub import metadata_load

    path = snapshot.folder / "README.md"
    if not path.is_file():
        return None
    try:
        return metadata_load(path)
    except Exception as error:  # YAML that people wrote by hand
        raise DataError(f"the metadata in README.md of {snapshot.source} is not YAML: {type(error).__name__}") from None


def _without_rows(snapshot: Snapshot) -> str:
    repository, files = snapshot.name.repository, [*snapshot.files]
    script = f"{PurePosixPath(repository).name}.py"
    if script in files:
        name = replace(snapshot.name, revision=CONVERTED)
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


FEWEST: Final = 11
"""So many sub-folders with the same columns are subjects, though neither their rows nor their names say so.

Datasets on the Hub have at most ten configurations that are no subjects, with the same columns (WinoGrande has six).
"""

LISTED: Final = 12
"""Sub-folders that an error names."""


class Joined(NamedTuple):
    """The files of several sub-folders by split, and the subject of each; empty where the rows say it."""

    files: Files
    subjects: Mapping[Path, str]


def folder_configurations(folder: Path) -> dict[str, Files]:
    """Sub-folder → its files by split, for those that hold a dataset; below ``data`` where there are none."""
    for place in (folder, folder / "data"):
        inside = sorted(place.iterdir()) if place.is_dir() else []
        below = {each.name: folder_files(each) for each in inside if each.is_dir() and not each.name.startswith(".")}
        if held := {name: files for name, files in below.items() if files}:
            return held
    return {}


def joined(folder: Path, parts: Mapping[str, Files], columns: Columns | None) -> Joined:
    """All sub-folders as one dataset, where they are its subjects.

    They are where the rows of each have another subject, where their names are published subjects, or where there are
    ``FEWEST`` of them; and where all have the same columns.

    Raises DataError for other sub-folders, saying how to name one.
    """
    heads = {name: _head(next(iter(files.values()))[0]) for name, files in parts.items()}
    named = {name: _subject(head, columns) for name, head in heads.items()}
    said = None not in named.values() and len({*named.values()}) == len(named)
    if not said and (any(named.values()) or not _are_subjects(parts)):
        raise _several(folder, parts, "which of them is meant is not said")
    kinds = Counter(frozenset(head) for head in heads.values())
    if len(kinds) > 1:
        usual = kinds.most_common(1)[0][0]
        other = next(name for name, head in heads.items() if frozenset(head) != usual)
        raise _several(folder, parts, f"{other} has other columns than the others")
    files: Files = {}
    subjects: dict[Path, str] = {}
    for name, splits in parts.items():
        for split, paths in splits.items():
            files.setdefault(split, []).extend(paths)
            subjects |= dict.fromkeys(paths, "" if said else name)
    return Joined(files, subjects)


def _are_subjects(parts: Mapping[str, Files]) -> bool:
    published = categories_of(parts)
    known = {subject for groups in published.values() for members in groups.values() for subject in members}
    return known == {*parts} or len(parts) >= FEWEST


def _several(folder: Path, parts: Mapping[str, Files], why: str) -> DataError:
    lines = [f"{folder / name} ({', '.join(files)})" for name, files in parts.items()]
    if len(lines) > LISTED:
        lines[LISTED:] = [f"and {len(lines) - LISTED} more"]
    return DataError(f"{folder} holds {len(parts)} datasets, and {why}; give one by its own path:", lines)


def _head(file: Path) -> Row:
    row = next(ROW_READERS[file.suffix](file), None)
    return row if isinstance(row, dict) else {}


def _subject(head: Row, columns: Columns | None) -> str | None:
    """The subject that a row says it has; None where it says none."""
    mapping = columns or recognise(head)
    column = mapping.subject if mapping is not None else None
    try:
        return None if column is None else text(value_at(head, column), column) or None
    except UnusableRow:
        return None


DEFAULT: Final = "default"
"""What a configuration is called that has no name."""

_SPLIT_WORD = re.compile(rf"(?:^|[^A-Za-z0-9])({'|'.join(SPLITS)})(?![A-Za-z0-9])")

_WORDS: Final = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "{subject}": "(?P<subject>[^/]+)"}
"""What the parts of a pattern are as a regular expression."""


@dataclass(frozen=True)
class Configuration:
    """A part of a dataset with splits of its own: split → paths of its files, in order, by the names it has there.

    ``default``: it is the one that is meant where none is named.
    """

    name: str
    splits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    default: bool = False


def repository_configurations(paths: Iterable[str], card: Mapping[str, Any] | None) -> dict[str, Configuration]:
    """The configurations of a repository with these ``paths`` and the metadata ``card`` of its description, by name."""
    readable = sorted(path for path in paths if PurePosixPath(path).suffix in ROW_READERS)
    declared = (card or {}).get("configs")
    named = [each for each in declared if isinstance(each, dict)] if isinstance(declared, list) else []
    return {each.name: each for each in (_declared(readable, config) for config in named)} or _by_folder(readable)


def matching(pattern: str, paths: Iterable[str]) -> dict[str, str]:
    """The ``paths`` that the ``pattern`` means, in order, each with what stands in it for ``{subject}``, or nothing.

    The pattern is one of ours, not a stranger's; what it means is as in :func:`choicewise.data.files.fits`.
    """
    pieces = re.split(rf"({PIECES}|\{{subject\}})", pattern)
    known = re.compile("".join(_WORDS.get(each) or (any_of(each) or re.escape(each)) for each in pieces))
    matches = ((path, known.fullmatch(path)) for path in sorted(paths))
    return {path: match.groupdict().get("subject", "") for path, match in matches if match}


def split_of(path: str) -> str | None:
    """The split that the name of a file, or else of a folder around it, names; None where none does."""
    file = PurePosixPath(path)
    for name in (file.stem, *reversed(file.parent.parts)):
        if words := _SPLIT_WORD.findall(name):
            return SPLITS[words[-1]]
    return None


def _declared(paths: Sequence[str], config: Mapping[str, Any]) -> Configuration:
    name, folder = str(config.get("config_name", DEFAULT)), str(config.get("data_dir") or "").strip("/")
    inside = [path for path in paths if not folder or path.startswith(f"{folder}/")]
    splits: dict[str, list[str]] = {}
    if (files := config.get("data_files")) is None:
        splits = _by_split(inside)
    else:
        for split, pattern in _patterns(files):
            full = f"{folder}/{pattern}" if folder else pattern.removeprefix("./")
            splits.setdefault(SPLITS.get(split, split), []).extend(path for path in inside if fits(full, path))
    whole = {split: list(dict.fromkeys(files)) for split, files in splits.items() if files}
    return Configuration(name, whole, config.get("default") is True or name == DEFAULT)


def _patterns(files: Any) -> Iterator[tuple[str, str]]:
    """(split, pattern) of every form in which ``data_files`` may be written."""
    match files:
        case str():
            yield split_of(files) or "train", files
        case dict() if "path" in files:
            each = files["path"]
            for pattern in each if isinstance(each, list) else [each]:
                yield str(files.get("split", "train")), str(pattern)
        case dict():
            for split, each in files.items():
                for pattern in each if isinstance(each, list) else [each]:
                    yield str(split), str(pattern)
        case list():
            for each in files:
                yield from _patterns(each)


def _by_folder(paths: Sequence[str]) -> dict[str, Configuration]:
    folders: dict[str, list[str]] = {}
    for path in paths:
        top, *below = PurePosixPath(path).parts
        nameless = not below or top == "data" or split_of(f"{top}/_") is not None
        folders.setdefault(DEFAULT if nameless else top, []).append(path)
    known = {name: _by_split(files) for name, files in folders.items()}
    return {name: Configuration(name, splits, name == DEFAULT) for name, splits in known.items() if splits}


def _by_split(paths: Sequence[str]) -> dict[str, list[str]]:
    """By the split that each names; a set where none does is all of one split, as the Hub has it: train."""
    named: dict[str, list[str]] = {}
    for path in paths:
        if split := split_of(path):
            named.setdefault(split, []).append(path)
    return named or ({"train": list(paths)} if paths else {})
