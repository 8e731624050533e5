"""Reading and writing what a folder of several runs says of itself; what is read is checked field by field."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from choicewise.errors import StoreError
from choicewise.records.format import MANIFEST, SWEEP, SWEEP_FORMAT, SWEEP_VERSION
from choicewise.records.sweep import Sweep
from choicewise.store.copies import copy_of, write_twice
from choicewise.store.files import read_text

_AGAIN = "`choicewise doctor` puts back its copy; or begin another folder"


def write_sweep(folder: Path, sweep: Sweep) -> None:
    """Replace the folder's file in one step, then its copy."""
    content = {"format": SWEEP_FORMAT, "version": SWEEP_VERSION, **asdict(sweep)}
    write_twice(folder / SWEEP, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def is_sweep(folder: Path) -> bool:
    """Whether the folder holds several runs, and is none itself; a folder that can't be read is for others to name."""
    own = folder / SWEEP, copy_of(folder / SWEEP)
    return any(map(os.path.isfile, own)) and not os.path.exists(folder / MANIFEST)


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
            raise StoreError(f"{path} is missing; {_AGAIN}") from error
        raise StoreError(f"{folder} has no {name}; make one with `choicewise sweep`") from error
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}; make it readable") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_AGAIN}") from error
    if not isinstance(content, dict) or content.pop("format", None) != SWEEP_FORMAT:
        raise StoreError(f"{path} is not of Choicewise; choose another folder")
    if (version := content.pop("version", None)) != SWEEP_VERSION:
        raise StoreError(f"{path} has version {version}, and this Choicewise reads {SWEEP_VERSION}; upgrade Choicewise")
    try:
        sweep = TypeAdapter(Sweep).validate_json(json.dumps(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise StoreError(f"{path} is damaged: field {field}: {first['msg']}; {_AGAIN}") from error
    for cell in sweep.cells:
        if Path(cell.folder).is_absolute() or ".." in Path(cell.folder).parts:
            raise StoreError(f"{path} is damaged: {cell.folder} lies outside; {_AGAIN}")
    return sweep
