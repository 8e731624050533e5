"""The item table of a run written again from its data, so that what is written is provably what was asked."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

from choicewise.data.dataset import Dataset
from choicewise.errors import ChoicewiseError, StoreError
from choicewise.records.manifest import FileRecord, Manifest
from choicewise.requests.blocks import list_sections
from choicewise.requests.schedule import with_split
from choicewise.results.asked_protocols import asked_protocols
from choicewise.running.evaluate import item_rows
from choicewise.store.tables import write_items


def write_items_again(
    run: Path, manifest: Manifest, open_data: Callable[[Path, Manifest], Dataset]
) -> dict[str, FileRecord]:
    """Write the item table of ``run`` from what ``open_data`` opens; returns the file by name.

    Raises StoreError where the data can't be opened, or are not those of the run: then nothing is written.
    """
    try:
        data = open_data(run, manifest)
    except ChoicewiseError as error:
        raise StoreError(f"its data can't be opened: {error.message}") from error
    if data.digest != manifest.dataset.digest:
        raise StoreError(f"what lies where its data lay are other data ({data.digest[:12]} by their digest)")
    recipes = {name: with_split(each, data) for name, each in asked_protocols(run, manifest).items()}
    sections = list_sections(data, recipes, manifest.selection.subjects, manifest.selection.limit)
    if missing := {block.split for block in manifest.blocks} - {section.split for section in sections}:
        raise StoreError(f"its protocols test no items of split {', '.join(sorted(missing))}")
    return write_items(run, chain.from_iterable(item_rows(sections).values()))
