"""A run folder as its manifest describes it, and errors in words for readers of a board."""

import os
from dataclasses import replace
from pathlib import Path

from choicewise.errors import ChoicewiseError, StoreError
from choicewise.records.format import ITEM_FILE
from choicewise.records.manifest import Manifest
from choicewise.records.tables import ITEMS
from choicewise.results.asked_protocols import asked_protocols
from choicewise.results.identity import run_id
from choicewise.results.run import count_items
from choicewise.store.manifest import read_manifest, version_of
from choicewise.store.tables import read_metadata
from choicewise.web.board.discovery import Place
from choicewise.web.board.listed_run import ListedRun, State


def look(place: Place) -> ListedRun:
    """The run at ``place`` from its manifest alone, which is quick: waiting to be read, incomplete, or unreadable.

    A run that can't be read must not end the board, so every error becomes a reason.
    """
    try:
        manifest = read_manifest(place.folder)
        version = version_of(manifest)
        asked_protocols(place.folder, manifest)
    except MemoryError:
        raise
    except Exception as error:
        return ListedRun(place.id, place.label, place.folder, State.UNREADABLE, "", reason(error, place))
    state, words = State.WAITING, ""
    if not manifest.complete:
        asked = _asked(place.folder, manifest)
        state, words = State.INCOMPLETE, f"{asked} are asked; the same `{manifest.writer}` line goes on with it"
    about = state, version, words, without_blocks(manifest), run_id(manifest)
    return ListedRun(place.id, place.label, place.folder, *about)


def reason(error: Exception, place: Place) -> str:
    """The error in words that don't tell where the served folder lies."""
    if isinstance(error, OSError) and not isinstance(error, ChoicewiseError):
        words = error.strerror or str(error)
    elif isinstance(error, ChoicewiseError):
        words = str(error)
    else:
        words = f"it can't be read ({type(error).__name__}: {error}); `choicewise report` says more"
    for spelled in dict.fromkeys((str(place.folder), os.path.abspath(place.folder), os.path.realpath(place.folder))):
        words = words.replace(spelled, place.label)
    return words


def without_blocks(manifest: Manifest) -> Manifest:
    """The manifest without the list of its blocks, of which a large run has hundreds."""
    return replace(manifest, blocks=(), files={})


def _asked(folder: Path, manifest: Manifest) -> str:
    """How far a run is, as ``1,200 of 14,042 items``."""
    done = f"{count_items(manifest.blocks):,}"
    try:
        return f"{done} of {read_metadata(folder / ITEM_FILE, ITEMS)[0].num_rows:,} items"
    except StoreError:
        return f"{done} items"
