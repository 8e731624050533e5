"""Which files hold which split: in a folder, beside a file, in a repository, by the patterns of a benchmark.

The description of a repository (README.md) may say so, as the Hub defines it (``configs`` with ``data_files``,
https://huggingface.co/docs/hub/datasets-manual-configuration); otherwise folders and file names do: ``SPLIT.jsonl``,
``CONFIG/SPLIT-...``, ``data/SPLIT-...``, or ``CONFIG/SPLIT/0000.parquet`` as where the Hub converts to Parquet.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from choicewise.data.dataset import Columns
from choicewise.data.files import ROW_READERS, text, value_at
from choicewise.data.items import categories_of
from choicewise.data.rows import recognise
from choicewise.errors import DataError, UnusableRow

SPLITS: Final = {
    "test": "test",
    "dev": "dev",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "train": "train",
    "auxiliary_train": "train",
}
"""A split's name in file names, and the one it has in a dataset."""

Files = dict[str, list[Path]]  # split → its files, in order
_SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(-[0-9a-f]{16})?")
_SPLIT_WORD = re.compile(rf"(?:^|[^A-Za-z0-9])({'|'.join(SPLITS)})(?![A-Za-z0-9])")
DEFAULT: Final = "default"  # what a configuration is called that has no name
_PIECES: Final = re.compile(
    r"(\*\*/|\*\*|\*|\?|\[[^\]]+\]|\{subject\})"
)  # what is more than itself in a pattern
LISTED: Final = 12  # sub-folders that an error names


def sibling_files(file: Path) -> tuple[str, Files]:
    """A dataset's name and its files by split, from one of the files.

    ``arc.validation.jsonl`` holds the split it names, and ``arc.train.jsonl`` in the same folder holds another;
    ``arc.jsonl`` holds ``test``.  Files named after their split alone make a dataset with their folder's name,
    and so do the parts of splits (``test-00000-of-00002.parquet``).

    Raises DataError when two files claim one split.
    """
    folder = file.resolve().parent
    if (shard := _SHARD.fullmatch(file.stem)) and shard["split"] in SPLITS:
        return folder.name, folder_files(file.parent)
    name, _ = _name_and_split(file)
    claims: Files = {}
    for other in sorted(file.parent.glob(f"*{file.suffix}")):
        other_name, split = _name_and_split(other)
        if other_name == name and other.is_file() and not other.name.startswith("."):
            claims.setdefault(split, []).append(other)
    _refuse_two_files(claims)
    return name or folder.name, claims


def folder_files(folder: Path) -> Files:
    """The files of a folder by split: ``test.jsonl``, ``dev.jsonl``, ..., or the same in another format.

    A split may be in parts, as on the Hub (``test-00000-of-00002.parquet``), which come in order.  The files may
    also be in a folder ``data``, or those of each split in a folder of its own (``test/0000.parquet``).  Empty where
    there are no such files.

    Raises DataError when formats are mixed, or when a split has several files or lacks a part.
    """
    claims = _layout_files(folder) or _layout_files(folder / "data") or converted_files(folder)
    if len(endings := {file.suffix for files in claims.values() for file in files}) > 1:
        raise DataError(
            f"{folder} holds splits as {' and '.join(sorted(endings))}; keep one format in a folder"
        )
    return claims


class Joined(NamedTuple):
    """The files of several sub-folders by split, and the subject of each; empty where the rows say it."""

    files: Files
    subjects: Mapping[Path, str]

    @classmethod
    def of(cls, parts: Mapping[str, Files], said: bool = False) -> Joined:
        """Those of all ``parts``, which are called like their subjects unless their rows have ``said`` them."""
        files: Files = {}
        subjects: dict[Path, str] = {}
        for name, splits in parts.items():
            for split, paths in splits.items():
                files.setdefault(split, []).extend(paths)
                subjects |= dict.fromkeys(paths, "" if said else name)
        return cls(files, subjects)


def folder_configurations(folder: Path) -> dict[str, Files]:
    """Sub-folder → its files by split, for those that hold a dataset; below ``data`` where there are none."""
    for place in (folder, folder / "data"):
        inside = sorted(place.iterdir()) if place.is_dir() else []
        below = {
            each.name: folder_files(each)
            for each in inside
            if each.is_dir() and not each.name.startswith(".")
        }
        if held := {name: files for name, files in below.items() if files}:
            return held
    return {}


FEWEST: Final = 11
"""So many sub-folders with the same columns are subjects, though neither their rows nor their names say so.

Datasets on the Hub have at most ten configurations that are no subjects, with the same columns (WinoGrande has six).
"""


def joined(folder: Path, parts: Mapping[str, Files], columns: Columns | None) -> Joined:
    """All sub-folders as one dataset, where they are its subjects.

    They are where the rows of each have another subject, where their names are published subjects, or where there are
    ``FEWEST`` of them; and where all have the same columns.

    Raises DataError for other sub-folders, saying how to name one.
    """
    firsts = {name: next(iter(files.values()))[0] for name, files in parts.items()}
    rows = {name: next(ROW_READERS[file.suffix](file), None) for name, file in firsts.items()}
    heads = {name: row if isinstance(row, dict) else {} for name, row in rows.items()}
    named: dict[str, str | None] = {}  # the subject that the rows of each say
    for name, head in heads.items():
        mapping = columns or recognise(head)
        column, named[name] = None if mapping is None else mapping.subject, None
        with suppress(UnusableRow):
            named[name] = None if column is None else text(value_at(head, column), column) or None
    said = None not in named.values() and len({*named.values()}) == len(named)
    if not said and (any(named.values()) or not (are_published(parts) or len(parts) >= FEWEST)):
        raise _several(folder, parts, "which of them is meant is not said")
    kinds = Counter(frozenset(head) for head in heads.values())
    if len(kinds) > 1:
        usual = kinds.most_common(1)[0][0]
        other = next(name for name, head in heads.items() if frozenset(head) != usual)
        raise _several(folder, parts, f"{other} has other columns than the others")
    return Joined.of(parts, said)


@dataclass(frozen=True)
class Configuration:
    """A part of a dataset with splits of its own: split → paths of its files, in order, by the names it has there.

    ``default``: it is the one that is meant where none is named.
    """

    name: str
    splits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    default: bool = False


def repository_configurations(
    paths: Iterable[str], card: Mapping[str, Any] | None
) -> dict[str, Configuration]:
    """The configurations of a repository with these ``paths`` and the metadata ``card`` of its description, by name."""
    readable = sorted(path for path in paths if PurePosixPath(path).suffix in ROW_READERS)
    declared = (card or {}).get("configs")
    named = (
        [each for each in declared if isinstance(each, dict)] if isinstance(declared, list) else []
    )
    if named:
        return {each.name: each for each in (_declared(readable, config) for config in named)}
    folders: dict[str, list[str]] = {}
    for path in readable:
        top, *below = PurePosixPath(path).parts
        nameless = not below or top == "data" or split_of(f"{top}/_") is not None
        folders.setdefault(DEFAULT if nameless else top, []).append(path)
    known = {name: _by_split(files) for name, files in folders.items()}
    return {
        name: Configuration(name, splits, name == DEFAULT)
        for name, splits in known.items()
        if splits
    }


def matching(pattern: str, paths: Iterable[str]) -> dict[str, str]:
    """The ``paths`` that the ``pattern`` means, in order, each with what stands in it for ``{subject}``, or nothing."""
    matches = ((path, _subject_in(pattern, path)) for path in sorted(paths))
    return {path: subject for path, subject in matches if subject is not None}


def split_of(path: str) -> str | None:
    """The split that the name of a file, or else of a folder around it, names; None where none does."""
    file = PurePosixPath(path)
    for name in (file.stem, *reversed(file.parent.parts)):
        if words := _SPLIT_WORD.findall(name):
            return SPLITS[words[-1]]
    return None


def no_splits(folder: Path) -> DataError:
    """The error about a folder that holds no dataset."""
    names = [str(file) for file in sorted(folder.iterdir()) if file.suffix in ROW_READERS]
    return DataError(
        f"{folder} holds no dataset: looked for a folder test/ with <subject>_test.csv (the MMLU layout) and"
        f" for test, dev, validation or train with the ending {' or '.join(ROW_READERS)}, here, in data/ and in"
        " each sub-folder; give a file of another name by its own path",
        _some(names),
    )


def are_published(names: Collection[str]) -> bool:
    """Whether all ``names`` are those of published subjects."""
    groups = categories_of(names)
    return {*names} <= {
        subject for part in groups.values() for members in part.values() for subject in members
    }


def _layout_files(folder: Path) -> Files:
    claims: Files = {}
    parts: dict[tuple[str, int], dict[int, Path]] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        shard = _SHARD.fullmatch(file.stem)
        split = SPLITS.get(shard["split"] if shard else file.stem)
        if file.suffix not in ROW_READERS or split is None or not file.is_file():
            continue
        if shard:
            parts.setdefault((split, int(shard["count"])), {})[int(shard["number"])] = file
        else:
            claims.setdefault(split, []).append(file)
    for (split, count), shards in parts.items():
        if missing := [number for number in range(count) if number not in shards]:
            raise DataError(
                f"{folder}: {split} has {count} parts, and part {missing[0]:05d} is missing"
            )
        claims.setdefault(split, []).append(next(iter(shards.values())))
    _refuse_two_files(claims)
    for (split, count), shards in parts.items():
        claims[split] = [shards[number] for number in range(count)]
    return claims


_CONVERTED = re.compile(r"\d{4,}")
"""How the Hub names the Parquet files into which it converts a dataset: ``CONFIGURATION/SPLIT/0000.parquet``."""


def converted_files(folder: Path) -> Files:
    """The files of splits that have a folder each, with the names that the Hub gives to converted files."""
    claims: Files = {}
    for name, split in SPLITS.items():
        inside = sorted((folder / name).iterdir()) if (folder / name).is_dir() else []
        files = [
            file
            for file in inside
            if file.suffix in ROW_READERS and _CONVERTED.fullmatch(file.stem)
        ]
        if files and split in claims:
            raise DataError(
                f"{folder}: {name}/ and {claims[split][0].parent.name}/ both claim the split {split}"
            )
        if missing := [number for number, file in enumerate(files) if int(file.stem) != number]:
            raise DataError(
                f"{folder / name} holds {len(files)} parts, and part {missing[0]:04d} is missing"
            )
        if files:
            claims[split] = files
    return claims


def _name_and_split(file: Path) -> tuple[str, str]:
    if file.stem in SPLITS:
        return "", SPLITS[file.stem]
    first, *rest = file.stem.split(".")
    named = [part for part in rest if part in SPLITS]
    if not named:
        return file.stem, "test"
    rest.remove(named[-1])
    return ".".join([first, *rest]), SPLITS[named[-1]]


def _refuse_two_files(claims: Mapping[str, list[Path]]) -> None:
    for split, files in claims.items():
        if len(files) > 1:
            one, other, *_ = files
            raise DataError(
                f"{one.parent}: {one.name} and {other.name} both claim the split {split}; move one away"
            )


def _several(folder: Path, parts: Mapping[str, Files], why: str) -> DataError:
    lines = [f"{folder / name} ({', '.join(files)})" for name, files in parts.items()]
    return DataError(
        f"{folder} holds {len(parts)} datasets, and {why}; give one by its own path:", _some(lines)
    )


def _declared(paths: Sequence[str], config: Mapping[str, Any]) -> Configuration:
    name, folder = (
        str(config.get("config_name", DEFAULT)),
        str(config.get("data_dir") or "").strip("/"),
    )
    inside = [path for path in paths if not folder or path.startswith(f"{folder}/")]
    splits: dict[str, list[str]] = {}
    if (files := config.get("data_files")) is None:
        splits = _by_split(inside)
    else:
        for split, pattern in _patterns(files):
            full = f"{folder}/{pattern}" if folder else pattern.removeprefix("./")
            splits.setdefault(SPLITS.get(split, split), []).extend(matching(full, inside))
    whole = {split: list(dict.fromkeys(files)) for split, files in splits.items() if files}
    return Configuration(name, whole, config.get("default") is True or name == DEFAULT)


def _patterns(files: Any) -> Iterator[tuple[str, str]]:
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


def _by_split(paths: Sequence[str]) -> dict[str, list[str]]:
    """By the split that each names; a set where none does is all of one split, as the Hub has it: train."""
    named: dict[str, list[str]] = {}
    for path in paths:
        if split := split_of(path):
            named.setdefault(split, []).append(path)
    return named or ({"train": list(paths)} if paths else {})


def _subject_in(pattern: str, path: str) -> str | None:
    """What stands in ``path`` for ``{subject}``, or nothing, where the ``pattern`` means it; else None.

    ``*`` and ``?`` stand for text without ``/``, ``{subject}`` for some, ``**`` for any, ``**/`` for folders or none,
    ``[...]`` for one of these characters.  All ways to match are followed at once, in steps of the pattern: a regular
    expression would try them one after the other, which strangers can make last for years.
    """
    places = {0: ""}
    for piece in _PIECES.split(pattern):
        after: dict[int, str] = {}
        for place, subject in places.items():
            for end in _ends(piece, path, place):
                after.setdefault(end, path[place:end] if piece == "{subject}" else subject)
        places = after
    return places.get(len(path))


def _ends(piece: str, path: str, place: int) -> Iterator[int]:
    """Where a piece that begins at ``place`` may end."""
    if piece == "**":
        yield from range(place, len(path) + 1)
    elif piece == "**/":
        yield place
        yield from (at + 1 for at in range(place, len(path)) if path[at] == "/")
    elif piece in ("*", "{subject}"):
        slash = path.find("/", place)
        yield from range(place + (piece != "*"), (len(path) if slash < 0 else slash) + 1)
    elif piece == "?" or _any_of(piece):
        if re.fullmatch(_any_of(piece) or "[^/]", path[place : place + 1], re.DOTALL):
            yield place + 1
    elif path.startswith(piece, place):
        yield place + len(piece)


def _any_of(piece: str) -> str:
    """The regular expression of ``[...]``; nothing for another piece."""
    if len(piece) < 3 or piece[0] != "[":
        return ""
    inverted = "^" * (piece[1] == "!")
    return f"[{inverted}{re.escape(piece[1 + len(inverted) : -1]).replace(chr(92) + '-', '-')}]"


def _some(lines: list[str]) -> list[str]:
    return lines if len(lines) <= LISTED else [*lines[:LISTED], f"and {len(lines) - LISTED} more"]
