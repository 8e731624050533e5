"""Which files of a folder hold which split."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from choicewise.data.table_reader import ROW_READERS
from choicewise.errors import DataError

SPLITS: Final = {"test": "test", "dev": "dev", "val": "validation", "validation": "validation", "train": "train"}
"""A split's name in file names, and the one it has in a dataset."""

_SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})")


def sibling_files(file: Path) -> tuple[str, dict[str, list[Path]]]:
    """A dataset's name and its files by split, from one of the files.

    ``arc.validation.jsonl`` holds the split it names, and ``arc.train.jsonl`` in the same folder holds another;
    ``arc.jsonl`` holds ``test``.  Files named after their split alone make a dataset with their folder's name.

    Raises DataError when two files claim one split.
    """
    name, _ = _name_and_split(file)
    claims: dict[str, list[Path]] = {}
    for other in sorted(file.parent.glob(f"*{file.suffix}")):
        other_name, split = _name_and_split(other)
        if other_name == name and other.is_file() and not other.name.startswith("."):
            claims.setdefault(split, []).append(other)
    _refuse_two_files(claims)
    return name or file.parent.resolve().name, claims


def folder_files(folder: Path) -> dict[str, list[Path]]:
    """The files of a folder by split: ``test.jsonl``, ``dev.jsonl``, ..., or the same in another format.

    A split may be in parts, as on the Hub (``test-00000-of-00002.parquet``), which come in order.

    Raises DataError when there are none, when formats are mixed, or when a split has several files or lacks a part.
    """
    claims: dict[str, list[Path]] = {}
    parts: dict[tuple[str, int], dict[int, Path]] = {}
    for file in sorted(folder.iterdir()):
        shard = _SHARD.fullmatch(file.stem)
        split = SPLITS.get(shard["split"] if shard else file.stem)
        if file.suffix not in ROW_READERS or split is None:
            continue
        if shard:
            parts.setdefault((split, int(shard["count"])), {})[int(shard["number"])] = file
        else:
            claims.setdefault(split, []).append(file)
    for (split, count), shards in parts.items():
        if missing := [number for number in range(count) if number not in shards]:
            raise DataError(f"{folder}: {split} has {count} parts, and part {missing[0]:05d} is missing")
        claims.setdefault(split, []).append(next(iter(shards.values())))
    _refuse_two_files(claims)
    for (split, count), shards in parts.items():
        claims[split] = [shards[number] for number in range(count)]
    if not claims:
        raise DataError(
            f"{folder} holds no dataset: looked for a folder test/ with <subject>_test.csv (the MMLU layout) and for"
            f" test, dev, validation or train with the ending {' or '.join(ROW_READERS)}; give a file of another name"
            " by its own path"
        )
    if len(endings := {file.suffix for files in claims.values() for file in files}) > 1:
        raise DataError(f"{folder} holds splits as {' and '.join(sorted(endings))}; keep one format in a folder")
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
            raise DataError(f"{one.parent}: {one.name} and {other.name} both claim the split {split}; move one away")
