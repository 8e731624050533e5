"""Reading and writing a run folder's manifest; what is read is checked field by field."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.errors import StoreError
from choicewise.records.format import FORMAT, MANIFEST, SUMMARY, VERSION
from choicewise.records.manifest import Manifest
from choicewise.store.copies import copy_of, write_twice
from choicewise.store.files import read_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_AGAIN = "`choicewise doctor` puts back its copy; or evaluate again into a new folder"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the folder's manifest in one step, then its copy."""
    content = asdict(manifest)
    content = {"format": FORMAT, "version": VERSION, "sha256": _digest(content), **content}
    write_twice(folder / MANIFEST, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def version_of(manifest: Manifest) -> str:
    """sha256 (64 hex) of the manifest but for the summary that it lists: the same as long as nothing more is asked."""
    files = {name: file for name, file in manifest.files.items() if name != SUMMARY}
    return _digest(asdict(replace(manifest, files=files)))


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
            raise StoreError(f"{path} is missing; {_AGAIN}") from error
        raise StoreError(f"{folder} is not a run folder: it has no {name}; make one with `choicewise run`") from error
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}; make it readable") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); {_AGAIN}") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise StoreError(f"{path} is not a manifest of Choicewise; choose another folder")
    version = content.pop("version", None)
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        advice = "upgrade Choicewise" if newer else "evaluate again into a new folder"
        raise StoreError(f"{path} has version {version} of the format, and this Choicewise reads {VERSION}; {advice}")
    listed = content.pop("sha256", None)
    try:
        manifest = _reader().validate_json(json.dumps(content))
    except RecursionError as error:
        raise StoreError(f"{path} is damaged ({error}); {_AGAIN}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problems = {"missing": "is missing", "unexpected_keyword_argument": "is unknown"}
        problem = problems.get(first["type"], f"is {first['input']!r} ({first['msg']})")
        field = ".".join(map(str, first["loc"]))
        raise StoreError(f"{path} is damaged: field {field} {problem}; {_AGAIN}") from error
    if listed != _digest(content):
        raise StoreError(f"{path} was changed after it was written (its sha256 differs); {_AGAIN}")
    counts = Counter(block.name for block in manifest.blocks)
    if wrong := [name for name, count in counts.items() if not name.isdecimal() or count > 1]:
        raise StoreError(f"{path} is damaged: {wrong[0]!r} is no name of a block; {_AGAIN}")
    return manifest


@cache
def _reader() -> TypeAdapter[Manifest]:
    from pydantic import TypeAdapter

    return TypeAdapter(Manifest)


def _digest(content: Mapping[str, Any]) -> str:
    """sha256 (64 hex) of what the manifest says, so that nothing in it is believed that was edited later."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
