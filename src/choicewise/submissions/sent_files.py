"""The files of a sweep folder that are complete and belong together, while somebody may write to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from choicewise.errors import StoreError
from choicewise.records.format import BLOCK_FOLDER, MANIFEST, SUMMARY, SWEEP
from choicewise.store.atomic import disk_errors
from choicewise.store.copies import copy_of


class Changed(StoreError):
    """A file is not (any more) what the manifest that lists it says: it was written anew, or is damaged."""


@dataclass(frozen=True)
class SentFile:
    """The file at ``path``, relative to the sweep's folder with ``/``, of this ``sha256`` (hex).

    ``text``: what it holds, where it is one that is replaced by newer ones under the same name; else None.
    """

    path: str
    sha256: str
    text: bytes | None = None

    def read(self, folder: Path) -> bytes:
        """What it holds; Changed where that is another content."""
        if self.text is not None:
            return self.text
        try:
            content = (folder / self.path).read_bytes()
        except OSError as error:
            raise Changed(f"{folder / self.path} can't be read: {error.strerror}; evaluate again") from error
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise Changed(f"{folder / self.path} is not the file the manifest describes; evaluate again")
        return content


def sent_files(folder: Path) -> list[SentFile]:
    """All that counts in the sweep ``folder``, in the order to send it: what manifests list, manifests, the sweep's.

    What is written meanwhile is either in it as a whole or not at all: every manifest is read once, before the files
    that it lists, and lists only what was there before.  Empty where no sweep was begun.  Raises StoreError for a
    record that can't be read.
    """
    record = _text(folder / SWEEP)
    if record is None:
        return []
    listed, manifests = dict[str, SentFile](), dict[str, SentFile]()
    for run in _runs(record, folder / SWEEP):
        if (manifest := _text(folder / run / MANIFEST)) is None:
            continue
        listed |= {file.path: file for file in _listed(run, _parsed(manifest, folder / run / MANIFEST))}
        manifests |= _twice(f"{run}/{MANIFEST}", manifest)
    return [*{**listed, **manifests, **_twice(SWEEP, record)}.values()]


def _runs(record: bytes, path: Path) -> list[str]:
    """The folders of the sweep's runs."""
    try:
        return list(dict.fromkeys(str(cell["folder"]) for cell in _parsed(record, path)["cells"]))
    except (KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged; begin another folder") from error


def _listed(run: str, manifest: Mapping[str, Any]) -> Iterator[SentFile]:
    """The files that a manifest lists; but not the summary, which the board computes itself."""
    try:
        for name, file in manifest["files"].items():
            if name != SUMMARY:
                yield SentFile(f"{run}/{name}", file["sha256"])
        for block in manifest["blocks"]:
            for name, file in block["files"].items():
                yield SentFile(f"{run}/{BLOCK_FOLDER}/{block['name']}/{name}", file["sha256"])
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"the manifest of {run} is damaged; evaluate again into a new folder") from error


def _twice(path: str, text: bytes) -> dict[str, SentFile]:
    """The file and its copy, which says the same."""
    sha, copy = hashlib.sha256(text).hexdigest(), copy_of(Path(path)).as_posix()
    return {each: SentFile(each, sha, text) for each in (path, copy)}


def _text(path: Path) -> bytes | None:
    with disk_errors(path):
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


def _parsed(text: bytes, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); evaluate again into a new folder") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path} is damaged; evaluate again into a new folder")
    return content
