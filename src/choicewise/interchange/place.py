"""Where an export goes: into a folder of its own, into one file, or into a store that the format keeps itself."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path

from choicewise.errors import UsageError
from choicewise.store.atomic import disk_errors, new_file, new_folder, put_back
from choicewise.store.files import Refused, open_file, read_bytes

MARK = ".choicewise-export"
"""A file in every folder that an export made: what is in it, so that it is replaced only where nothing is lost."""

NAMED = 5
"""Names in a message; more of them are counted."""

Write = Callable[[Path], Sequence[str]]
"""Writes at a path, and says in a line each what was left out, and why."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What an export says of itself: its format, the ``content`` in words, and the sha256 of its files by name."""

    format: str
    content: list[str]
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Filled:
    """``files`` that were written, in the order of their names; ``notes``: what was left out, and why."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]


Place = Callable[[Path, str, Sequence[str], Write], Filled]
"""(path, format, what is exported, in words that agree only for the same, what writes it) → what is there then."""


def own_folder(out: Path, name: str, content: Sequence[str], write: Write) -> Filled:
    """A folder that holds this export and nothing else, complete or as it was before.

    Raises UsageError where ``out`` holds anything but an earlier export of this format with no other ``content``, and
    where nothing was written.
    """
    place = Path(os.path.realpath(out))
    with disk_errors(out):
        put_back(place)
    _check_folder(place, out, name, content)
    with new_folder(place) as partial:
        notes = write(partial)
        files = sorted(file.relative_to(partial) for file in partial.rglob("*") if file.is_file())
        if not files:
            raise UsageError(f"nothing of this can be exported to {name}", notes)
        mark = Mark(name, [*content], {file.as_posix(): _sha256(partial / file) for file in files})
        (partial / MARK).write_text(json.dumps(asdict(mark), indent=1), encoding="utf-8")
    return Filled(tuple(out / file for file in files), tuple(notes))


def begins_with(text: str) -> Callable[[Path], bool]:
    """Whether a file begins with ``text``."""
    head = text.encode()

    def is_ours(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(head)) == head

    return is_ours


def one_file(is_ours: Callable[[Path], bool]) -> Place:
    """One file, complete or as it was before.

    UsageError where another file is there than ``is_ours`` says that an export of the format made.
    """

    def place(out: Path, name: str, content: Sequence[str], write: Write) -> Filled:
        if out.is_dir():
            raise UsageError(f"{out} is a folder; {name} is one file, name it")
        if out.is_symlink() and not out.exists():
            raise UsageError(f"{out} is a link to nothing; name the file that is to be written")
        if out.exists() and not out.is_file():
            raise UsageError(f"{out} is a device or a pipe, no file; name a file, which is replaced in one step")
        if out.exists() and not is_ours(out):
            raise UsageError(f"{out} is there and no earlier {name} export; choose another name")
        with disk_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
        with new_file(Path(os.path.realpath(out))) as partial:
            notes = write(partial)
        return Filled((out,), tuple(notes))

    return place


def own_store(out: Path, name: str, content: Sequence[str], write: Write) -> Filled:
    """A store of the other tool's own library, which keeps what is there already and adds to it."""
    with disk_errors(out):
        return Filled((out,), tuple(write(out)))


def _check_folder(place: Path, out: Path, name: str, content: Sequence[str]) -> None:
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise UsageError(f"{out} is a file; {name} is a folder of files, name a new one")
    there = {file.relative_to(place).as_posix() for file in place.rglob("*") if not file.is_dir() or file.is_symlink()}
    if not there and not any(place.iterdir()):
        return
    mark = _mark(place)
    if mark is None:
        raise UsageError(f"{out} holds {_named(sorted(there)) or 'folders'}, no export; choose an empty or new folder")
    if mark.format != name:
        raise UsageError(f"{out} holds an export of the format {mark.format}; choose another folder")
    if other := there - {MARK} - mark.files.keys():
        raise UsageError(f"{out} holds {_named(sorted(other))} beside an export; choose another folder, or move that")
    if changed := [file for file in sorted(there - {MARK}) if _sha256(place / file) != mark.files[file]]:
        raise UsageError(
            f"{out} holds {_named(changed)}, changed since the export; choose another folder, or move that"
        )
    if lost := [each for each in mark.content if each not in content]:
        raise UsageError(f"{out} holds an export of {_named(lost)}; export that with it, or choose another folder")


def _mark(place: Path) -> Mark | None:
    """What an earlier export says of itself; None where there is none that can be read."""
    try:
        mark = json.loads(read_bytes(place / MARK))
    except (OSError, ValueError):
        return None
    kinds = {"format": str, "content": list, "files": dict}
    whole = isinstance(mark, dict) and all(isinstance(mark.get(key), kind) for key, kind in kinds.items())
    return Mark(*(mark[key] for key in kinds)) if whole else None


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _sha256(file: Path) -> str:
    """In hexadecimal; nothing of what is no file."""
    try:
        with open_file(file) as stream:
            return file_digest(stream, "sha256").hexdigest()
    except Refused:
        return ""
