"""Manifest and sweep file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.errors import StoreError
from choicewise.records import FORMAT, MANIFEST, SUMMARY, SWEEP, SWEEP_FORMAT, SWEEP_VERSION, VERSION, Manifest, Sweep
from choicewise.util.files import copy_of, read_text, write_twice
from choicewise.util.jsonio import exact_json, json_digest

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the folder's manifest in one step, then its copy."""
    content = asdict(manifest)
    content = {"format": FORMAT, "version": VERSION, "sha256": _digest(content), **content}
    write_twice(folder / MANIFEST, exact_json(content, indent=1) + "\n")


def version_of(manifest: Manifest) -> str:
    """sha256 (64 hex) of the manifest but for the summary that it lists: the same as long as nothing more is asked."""
    files = {name: file for name, file in manifest.files.items() if name != SUMMARY}
    return _digest(asdict(replace(manifest, files=files)))


_RUN_AGAIN = "`choicewise doctor` puts back its copy; or evaluate again into a new folder"


def read_manifest(folder: Path, name: str = MANIFEST) -> Manifest:
    """The manifest of a run folder, or its copy by its ``name``.

    Raises StoreError when there is none, when another version of the format wrote it, or when it is damaged: then the
    first field that is missing, unknown or of the wrong type is named.
    """
    from pydantic import ValidationError

    path = folder / name
    try:
        content = json.loads(read_text(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        if copy_of(path).is_file():
            raise StoreError(f"{path} is missing; {_RUN_AGAIN}") from error
        raise StoreError(f"{folder} is not a run folder: it has no {name}; make one with `choicewise run`") from error
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}; make it readable") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_RUN_AGAIN}") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise StoreError(f"{path} is not a manifest of Choicewise; choose another folder")
    version = content.pop("version", None)
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        advice = "upgrade Choicewise" if newer else "evaluate again into a new folder"
        raise StoreError(f"{path} has version {version} of the format, and this Choicewise reads {VERSION}; {advice}")
    listed = content.pop("sha256", None)
    try:
        manifest = _reader().validate_json(exact_json(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problems = {"missing": "is missing", "unexpected_keyword_argument": "is unknown"}
        problem = problems.get(first["type"], f"is {first['input']!r} ({first['msg']})")
        field = ".".join(map(str, first["loc"]))
        raise StoreError(f"{path} is damaged: field {field} {problem}; {_RUN_AGAIN}") from error
    except (RecursionError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_RUN_AGAIN}") from error
    if listed != _digest(content):
        raise StoreError(f"{path} was changed after it was written (its sha256 differs); {_RUN_AGAIN}")
    counts = Counter(block.name for block in manifest.blocks)
    if wrong := [name for name, count in counts.items() if not name.isdecimal() or count > 1]:
        raise StoreError(f"{path} is damaged: {wrong[0]!r} is no name of a block; {_RUN_AGAIN}")
    return manifest


def write_sweep(folder: Path, sweep: Sweep) -> None:
    """Replace the folder's file in one step, then its copy."""
    content = {"format": SWEEP_FORMAT, "version": SWEEP_VERSION, **asdict(sweep)}
    write_twice(folder / SWEEP, exact_json(content, indent=1) + "\n")


def is_sweep(folder: Path) -> bool:
    """Whether the folder holds several runs, and is none itself; a folder that can't be read is for others to name."""
    own = folder / SWEEP, copy_of(folder / SWEEP)
    return any(map(os.path.isfile, own)) and not os.path.exists(folder / MANIFEST)


_SWEEP_AGAIN = "`choicewise doctor` puts back its copy; or begin another folder"


def read_sweep(folder: Path, name: str = SWEEP) -> Sweep:
    """What the folder says, or the copy of that by its ``name``.

    Raises StoreError when it says nothing, is damaged, or newer than this version.
    """
    from pydantic import TypeAdapter, ValidationError

    path = folder / name
    try:
        content = json.loads(read_text(path))
    except FileNotFoundError as error:
        if copy_of(path).is_file():
            raise StoreError(f"{path} is missing; {_SWEEP_AGAIN}") from error
        raise StoreError(f"{folder} has no {name}; make one with `choicewise sweep`") from error
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}; make it readable") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_SWEEP_AGAIN}") from error
    if not isinstance(content, dict) or content.pop("format", None) != SWEEP_FORMAT:
        raise StoreError(f"{path} is not of Choicewise; choose another folder")
    if (version := content.pop("version", None)) != SWEEP_VERSION:
        raise StoreError(f"{path} has version {version}, and this Choicewise reads {SWEEP_VERSION}; upgrade Choicewise")
    try:
        sweep = TypeAdapter(Sweep).validate_json(exact_json(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise StoreError(f"{path} is damaged: field {field}: {first['msg']}; {_SWEEP_AGAIN}") from error
    except (RecursionError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_SWEEP_AGAIN}") from error
    for cell in sweep.cells:
        if Path(cell.folder).is_absolute() or ".." in Path(cell.folder).parts:
            raise StoreError(f"{path} is damaged: {cell.folder} lies outside; {_SWEEP_AGAIN}")
    return sweep


@cache
def _reader() -> TypeAdapter[Manifest]:
    from pydantic import TypeAdapter

    return TypeAdapter(Manifest)


def _digest(content: Mapping[str, Any]) -> str:
    """sha256 (64 hex) of what the manifest says, so that nothing in it is believed that was edited later."""
    return json_digest(content)
