"""Which run folders lie below some folders at this moment, without following links."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from choicewise.records.format import MANIFEST
from choicewise.web.board.slug import slug

Stamp = tuple[int, int, int]
"""What changes when a manifest is written: its inode, size and time of change in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Place:
    """A run folder: ``id`` for addresses, ``label`` as people see it, and the stamp of its manifest."""

    id: str
    label: str
    folder: Path
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Discovery:
    """The run folders by id, and in words what could not be looked into."""

    places: Mapping[str, Place]
    problems: tuple[str, ...]


def discover(folders: Sequence[Path]) -> Discovery:
    """Every folder with a manifest at or below ``folders``, at any depth; what lies inside a run folder is its own,
    and hidden folders are not looked into.

    A run is named after the path below the folder that was given, so that nothing else of the disk is told; one that
    lies below two of them after the first.
    """
    problems: list[str] = []
    places: dict[str, Place] = {}
    seen: set[str] = set()
    names = [folder.resolve().name or str(folder) for folder in folders]
    for folder, name in zip(folders, names, strict=True):
        root = name if names.count(name) == 1 else str(folder)
        if not os.path.isdir(folder):
            problems.append(f"{root} is not there; it is shown again when it is back")
            continue
        for path, stamp in _runs(folder, root, problems):
            real = os.path.realpath(path)
            if real in seen:
                continue
            seen.add(real)
            label = os.path.normpath(os.path.join(root, path.relative_to(folder)))
            name = slug(label)
            places.setdefault(name, Place(name, label, path, stamp))
    return Discovery(dict(sorted(places.items(), key=lambda each: each[1].label)), tuple(problems))


def _runs(folder: Path, root: str, problems: list[str]) -> Iterator[tuple[Path, Stamp]]:
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        below: list[Path] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.name == MANIFEST and entry.is_file(follow_symlinks=False):
                        stat = entry.stat(follow_symlinks=False)
                        yield place, (stat.st_ino, stat.st_size, stat.st_mtime_ns)
                        break
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                        below.append(Path(entry.path))
                else:
                    waiting += below
        except FileNotFoundError:
            continue  # it went away meanwhile
        except OSError as error:
            label = os.path.normpath(os.path.join(root, place.relative_to(folder)))
            problems.append(f"{label} can't be looked into: {error.strerror}")
