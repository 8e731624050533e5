"""Find which files hold which split: in a folder, beside a file, or in a repository.

The description of a repository (README.md) may say so, as the Hub defines it (``configs`` with
``data_files``, https://huggingface.co/docs/hub/datasets-manual-configuration); otherwise folders
and file names do: ``SPLIT.jsonl``, ``CONFIG/SPLIT-...``, ``data/SPLIT-...``, or
``CONFIG/SPLIT/0000.parquet`` if the Hub has converted it to Parquet.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from choicewise.data.dataset import Columns
from choicewise.data.files import ROW_READERS, text, value_at
from choicewise.data.items import categories_of
from choicewise.data.rows import recognise
from choicewise.errors import DataError, UnusableRow, first_lines
from choicewise.util.jsonio import JsonMapping

# A split's name in file names → the one it has in a dataset.
SPLITS = {
    "test": "test",
    "dev": "dev",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "train": "train",
    "auxiliary_train": "train",
}
Files = dict[str, list[Path]]
"""Split → its files, in order."""

DEFAULT = "default"
"""How the Hub calls a configuration without a name."""

_SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(-[0-9a-f]{16})?")
_SPLIT_WORD = re.compile(rf"(?:^|[^A-Za-z0-9])({'|'.join(SPLITS)})(?![A-Za-z0-9])")
# How the Hub names the Parquet files into which it converts a split.
_CONVERTED = re.compile(r"\d{4,}")
# Parts of a pattern that stand for other text.
_PIECES = re.compile(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\]|\{subject\})")
_LISTED = 12  # sub-folders that an error names

# So many sub-folders with the same columns are subjects, though neither their rows nor their names
# say so: datasets on the Hub have at most ten configurations that are no subjects, with the same
# columns (WinoGrande has six).
FEWEST = 11


def sibling_files(file: Path) -> tuple[str, Files]:
    """Return a dataset's name and its files by split, from one of the files.

    ``arc.validation.jsonl`` holds the split it names, and ``arc.train.jsonl`` in the same folder
    holds another; ``arc.jsonl`` holds ``test``.  Files named after their split alone make a dataset
    with their folder's name, and so do the parts of splits (``test-00000-of-00002.parquet``).

    Raises DataError if two files claim one split.
    """
    folder = file.resolve().parent
    shard = _SHARD.fullmatch(file.stem)
    if shard is not None and shard["split"] in SPLITS:
        return folder.name, folder_files(file.parent)
    name, _ = _name_and_split(file)
    files: Files = {}
    for other in sorted(file.parent.glob(f"*{file.suffix}")):
        other_name, split = _name_and_split(other)
        if other_name == name and other.is_file() and not other.name.startswith("."):
            files.setdefault(split, []).append(other)
    _refuse_two_files(files)
    return name or folder.name, files


def folder_files(folder: Path) -> Files:
    """Return the files of a folder by split: ``test.jsonl``, ``dev.jsonl``, ..., in any format.

    A split may be in parts, as on the Hub (``test-00000-of-00002.parquet``), which come in order.
    The files may also be in a folder ``data``, or those of each split in a folder with its name
    (``test/0000.parquet``).  Empty if there are no such files.

    Raises DataError if formats are mixed, or if a split has several files or lacks a part.
    """
    files = _layout_files(folder) or _layout_files(folder / "data") or converted_files(folder)
    endings: set[str] = set()
    for paths in files.values():
        endings.update(path.suffix for path in paths)
    if len(endings) > 1:
        raise DataError(
            f"{folder} has splits as {' and '.join(sorted(endings))}; keep one format per folder"
        )
    return files


def _layout_files(folder: Path) -> Files:
    """Return the files of a folder that are called after splits, or parts of splits."""
    files: Files = {}
    parts: dict[tuple[str, int], dict[int, Path]] = {}
    for file in _inside(folder):
        shard = _SHARD.fullmatch(file.stem)
        split = SPLITS.get(shard["split"] if shard else file.stem)
        if file.suffix not in ROW_READERS or split is None or not file.is_file():
            continue
        if shard:
            parts.setdefault((split, int(shard["count"])), {})[int(shard["number"])] = file
        else:
            files.setdefault(split, []).append(file)
    for (split, count), shards in parts.items():
        for number in range(count):
            if number not in shards:
                raise DataError(
                    f"{folder}: part {number:05d} of the {count} parts of {split} is missing"
                )
        files.setdefault(split, []).append(next(iter(shards.values())))
    # A split in parts counts as one file, so that it differs from a split with two files.
    _refuse_two_files(files)
    for (split, count), shards in parts.items():
        files[split] = [shards[number] for number in range(count)]
    return files


def converted_files(folder: Path) -> Files:
    """Return the files of splits that have a folder each, called as the Hub calls converted files."""
    splits: Files = {}
    for name, split in SPLITS.items():
        files = []
        for file in _inside(folder / name):
            if file.suffix in ROW_READERS and _CONVERTED.fullmatch(file.stem):
                files.append(file)
        if files and split in splits:
            raise DataError(
                f"{folder}: {name}/ and {splits[split][0].parent.name}/ are both the split "
                f"{split}; remove one"
            )
        for number, file in enumerate(files):
            if int(file.stem) != number:
                raise DataError(
                    f"{folder / name} has {len(files)} parts, but not part {number:04d}"
                )
        if files:
            splits[split] = files
    return splits


def _inside(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(folder.iterdir())


def _name_and_split(file: Path) -> tuple[str, str]:
    if file.stem in SPLITS:
        return "", SPLITS[file.stem]
    first, *rest = file.stem.split(".")
    splits = [part for part in rest if part in SPLITS]
    if not splits:
        return file.stem, "test"
    rest.remove(splits[-1])
    return ".".join([first, *rest]), SPLITS[splits[-1]]


def _refuse_two_files(files: Files) -> None:
    for split, paths in files.items():
        if len(paths) > 1:
            one, other, *_ = paths
            raise DataError(
                f"{one.parent}: {one.name} and {other.name} are both the split {split}; move one "
                "away"
            )


# How to read what ``datasets`` wrote.
SAVED_TO_DISK = 'with datasets, load_from_disk("DIR") and to_parquet("test.parquet") each split'


class Joined(NamedTuple):
    """The files of several sub-folders by split, and the subject of each, empty if its rows say it."""

    files: Files
    subjects: Mapping[Path, str]

    @classmethod
    def of(cls, parts: Mapping[str, Files], *, rows_say: bool = False) -> Joined:
        """Join all ``parts``; they are called like their subjects unless their rows say them."""
        files: Files = {}
        subjects: dict[Path, str] = {}
        for name, splits in parts.items():
            subject = "" if rows_say else name
            for split, paths in splits.items():
                files.setdefault(split, []).extend(paths)
                subjects |= dict.fromkeys(paths, subject)
        return cls(files, subjects)


def folder_configurations(folder: Path) -> dict[str, Files]:
    """Return sub-folder → its files by split, for those that hold a dataset.

    If there are none, those below ``data`` are looked at.
    """
    for parent in (folder, folder / "data"):
        parts = {}
        for inside in _inside(parent):
            if inside.is_dir() and not inside.name.startswith("."):
                files = folder_files(inside)
                if files:
                    parts[inside.name] = files
        if parts:
            return parts
    return {}


def joined(folder: Path, parts: Mapping[str, Files], columns: Columns | None) -> Joined:
    """Join all sub-folders to one dataset, if they are its subjects.

    They are if the rows of each have another subject, if their names are published subjects, or if
    there are ``FEWEST`` of them; and if all have the same columns.

    Raises DataError for other sub-folders, saying how to name one.
    """
    heads = {name: _head(files) for name, files in parts.items()}
    subjects = [_subject_of_row(head, columns) for head in heads.values()]
    rows_say = "" not in subjects and len(set(subjects)) == len(subjects)
    if not rows_say:
        are_subjects = are_published(parts) or len(parts) >= FEWEST
        if any(subjects) or not are_subjects:
            raise _several(folder, parts, "the name fits several")
    kinds = Counter(map(frozenset, heads.values()))
    [(usual, _)] = kinds.most_common(1)
    for name, head in heads.items():
        if frozenset(head) != usual:
            raise _several(folder, parts, f"{name} has different columns")
    return Joined.of(parts, rows_say=rows_say)


def _head(files: Files) -> JsonMapping:
    """Return the first row of the first file; empty if it can't be read."""
    first_files = next(iter(files.values()))
    row = next(ROW_READERS[first_files[0].suffix](first_files[0]), None)
    if not isinstance(row, dict):
        return {}
    return row


def _subject_of_row(row: JsonMapping, columns: Columns | None) -> str:
    """Return the subject that a row says, or an empty text."""
    mapping = columns or recognise(row)
    if mapping is None or mapping.subject is None:
        return ""
    try:
        return text(value_at(row, mapping.subject), mapping.subject)
    except UnusableRow:
        return ""


def are_published(names: Collection[str]) -> bool:
    """Check that all ``names`` are those of published subjects."""
    published: set[str] = set()
    for subcategories in categories_of(names).values():
        for members in subcategories.values():
            published.update(members)
    return published.issuperset(names)


def _several(folder: Path, parts: Mapping[str, Files], why: str) -> DataError:
    lines = [f"{folder / name} ({', '.join(files)})" for name, files in parts.items()]
    return DataError(
        f"{folder} has {len(parts)} datasets: {why}; name one:", first_lines(lines, _LISTED)
    )


def no_splits(folder: Path) -> DataError:
    """Return the error about a folder that holds no dataset."""
    if any(file.suffix == ".arrow" for file in [*_inside(folder), *folder.glob("*/*")]):
        return DataError(f"can't read {folder}: it holds files of Arrow; {SAVED_TO_DISK}")
    names = [str(file) for file in _inside(folder) if file.suffix in ROW_READERS]
    return DataError(
        f"{folder} has no dataset: neither test/<subject>_test.csv (the MMLU layout) nor"
        f" test, dev, validation or train as {' or '.join(ROW_READERS)}, here, in data/ or in"
        " a sub-folder; name a file directly",
        first_lines(names, _LISTED),
    )


@dataclass(frozen=True)
class Configuration:
    """A part of a repository that is a dataset: split → paths of its files, in order.

    ``default``: it is meant if none is named.
    """

    name: str
    splits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    default: bool = False


def repository_configurations(
    paths: Iterable[str], card: JsonMapping | None
) -> dict[str, Configuration]:
    """Return the configurations of a repository by name.

    ``paths``: its files; ``card``: the metadata of its description.
    """
    readable = sorted(path for path in paths if PurePosixPath(path).suffix in ROW_READERS)
    configurations = {}
    declared = (card or {}).get("configs")
    if isinstance(declared, list):
        for config in declared:
            if isinstance(config, dict):
                configuration = _declared(readable, config)
                configurations[configuration.name] = configuration
    if configurations:
        return configurations
    folders: dict[str, list[str]] = {}
    for path in readable:
        top, *below = PurePosixPath(path).parts
        name = top
        if not below or top == "data" or split_of(f"{top}/_") is not None:
            name = DEFAULT
        folders.setdefault(name, []).append(path)
    for name, files in folders.items():
        configurations[name] = Configuration(name, _by_split(files), name == DEFAULT)
    return configurations


def _declared(paths: Sequence[str], config: JsonMapping) -> Configuration:
    """Return the configuration that the description of a repository declares."""
    name = str(config.get("config_name", DEFAULT))
    folder = str(config.get("data_dir") or "").strip("/")
    inside = list(paths)
    if folder:
        inside = [path for path in paths if path.startswith(f"{folder}/")]
    data_files = config.get("data_files")
    splits: dict[str, list[str]] = {}
    if data_files is None:
        splits = _by_split(inside)
    for split, pattern in _patterns(data_files):
        path = f"{folder}/{pattern}" if folder else pattern.removeprefix("./")
        splits.setdefault(SPLITS.get(split, split), []).extend(matching(path, inside))
    # Two patterns may mean the same file.
    unique = {split: list(dict.fromkeys(files)) for split, files in splits.items() if files}
    return Configuration(name, unique, config.get("default") is True or name == DEFAULT)


def _patterns(data_files: Any) -> Iterator[tuple[str, str]]:
    """Yield split and pattern of files, in any of the forms that the Hub takes."""
    match data_files:
        case str():
            yield split_of(data_files) or "train", data_files
        case {"path": paths}:
            for pattern in _as_list(paths):
                yield str(data_files.get("split", "train")), str(pattern)
        case dict():
            for split, paths in data_files.items():
                for pattern in _as_list(paths):
                    yield str(split), str(pattern)
        case list():
            for part in data_files:
                yield from _patterns(part)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _by_split(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the paths by the splits that they name.

    If none names a split, all are of train, as on the Hub.
    """
    splits: dict[str, list[str]] = {}
    for path in paths:
        split = split_of(path)
        if split is not None:
            splits.setdefault(split, []).append(path)
    if paths and not splits:
        return {"train": list(paths)}
    return splits


def split_of(path: str) -> str | None:
    """Return the split that a file or else a folder around it is named after; None if none is."""
    file = PurePosixPath(path)
    for name in (file.stem, *reversed(file.parent.parts)):
        words = _SPLIT_WORD.findall(name)
        if words:
            return SPLITS[words[-1]]
    return None


def matching(pattern: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the ``paths`` that ``pattern`` means, in order, with the subject that each names, or
    "".

    ``*`` and ``?`` stand for text without ``/``, ``{subject}`` for some, which is the subject,
    ``**`` for any, ``**/`` for folders or none, ``[...]`` for one of these characters.
    """
    subjects = {}
    for path in sorted(paths):
        subject = _subject_in(pattern, path)
        if subject is not None:
            subjects[path] = subject
    return subjects


def _subject_in(pattern: str, path: str) -> str | None:
    """Return the text of ``path`` for ``{subject}``; None if the ``pattern`` does not mean it."""
    # All ways to match are followed at once, in steps of the pattern: a regular expression would
    # try them one after the other, which strangers can make last for years.
    # End of the matched text → the subject in it.
    subjects = {0: ""}
    for piece in _PIECES.split(pattern):
        following: dict[int, str] = {}
        for start, subject in subjects.items():
            for end in _ends(piece, path, start):
                if piece == "{subject}":
                    subject = path[start:end]
                following.setdefault(end, subject)
        subjects = following
    return subjects.get(len(path))


def _ends(piece: str, path: str, start: int) -> Iterator[int]:
    """Yield where the text of a piece that begins at ``start`` may end."""
    if piece == "**":
        yield from range(start, len(path) + 1)
    elif piece == "**/":
        yield start
        for index in range(start, len(path)):
            if path[index] == "/":
                yield index + 1
    elif piece == "*":
        yield from range(start, _end_of_name(path, start) + 1)
    elif piece == "{subject}":
        yield from range(start + 1, _end_of_name(path, start) + 1)
    elif piece == "?" or _any_of(piece):
        if re.fullmatch(_any_of(piece) or "[^/]", path[start : start + 1], re.DOTALL):
            yield start + 1
    elif path.startswith(piece, start):
        yield start + len(piece)


def _end_of_name(path: str, start: int) -> int:
    slash = path.find("/", start)
    return len(path) if slash < 0 else slash


def _any_of(piece: str) -> str:
    """Return the regular expression of ``[...]``; an empty text for another piece."""
    if len(piece) < 3 or piece[0] != "[":
        return ""
    inside = piece[1:-1]
    inverted = ""
    if inside[0] == "!":
        inverted = "^"
        inside = inside[1:]
    return f"[{inverted}{re.escape(inside).replace(chr(92) + '-', '-')}]"
