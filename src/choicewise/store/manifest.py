"""The manifest: what a run folder holds, and for which model, data and protocols it was made."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from choicewise.errors import StoreError
from choicewise.records.tables import VERSION
from choicewise.store.atomic import write_text

NAME = "manifest.json"
_FORMAT = "choicewise-run"


@dataclass(frozen=True, slots=True)
class Block:
    """Items ``start`` to ``stop`` of one subject, observed under some ways of asking and written.

    ``asks`` holds prompt digests, with ``|`` and the null context behind where the continuations were scored after one.
    ``files`` maps names to bytes and sha256.
    """

    name: str
    split: str
    subject: str
    start: int
    stop: int
    asks: tuple[str, ...]
    files: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a run folder says about itself.

    ``model``, ``dataset`` and ``selection`` identify what was measured: another model's or dataset's run never
    continues in this folder.  ``protocols`` maps names to signatures.  ``versions`` and ``engine`` tell how it was
    computed.  ``files`` maps those outside the blocks to bytes and sha256; early versions listed none.
    """

    model: dict[str, Any]
    dataset: dict[str, Any]
    selection: dict[str, Any]
    protocols: dict[str, str]
    versions: dict[str, str]
    engine: dict[str, Any] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    complete: bool = False
    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Replace the folder's manifest in one step."""
        content = {"format": _FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        write_text(folder / NAME, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder.

    Raises StoreError when there is none, when it is damaged, or when a newer Choicewise wrote it.
    """
    path = folder / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StoreError(f"{folder} is not a run folder: it has no {NAME}; make one with `choicewise run`") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} is damaged ({error}); use another --out folder") from error
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
        raise StoreError(f"{path} is not a manifest of Choicewise; use another --out folder")
    version = content.pop("version", None)
    if not isinstance(version, int) or version > VERSION:
        raise StoreError(f"{path} has version {version}; this Choicewise reads up to {VERSION}: upgrade it")
    try:
        blocks = tuple(Block(**{**block, "asks": tuple(block["asks"])}) for block in content.pop("blocks"))
        return Manifest(**content, blocks=blocks)
    except (KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}); use another --out folder") from error
