"""What a run folder is continued with: the same measurement, and all of its blocks that are whole."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from choicewise.errors import StoreError
from choicewise.records.format import ITEM_FILE
from choicewise.records.manifest import BlockRecord, Manifest
from choicewise.records.rows import ItemRow
from choicewise.store.damage import damaged_blocks
from choicewise.store.manifest import write_manifest
from choicewise.store.tables import damage, read_splits, write_items

_IDENTITY = {
    "model": ("digest", "dtype", "device", "window", "chat"),
    "dataset": ("digest",),
    "selection": ("subjects", "limit"),
}
"""What must agree for a run to be continued; names and paths may change."""


def continued(path: Path, existing: Manifest, wanted: Manifest, items: Mapping[str, Iterable[ItemRow]]) -> Manifest:
    """The manifest to go on with when ``items`` are asked; it is written when it changes.

    Blocks and an item table that are damaged or gone are left out and written again.
    """
    if existing.imported is not None and wanted.imported is None:
        raise StoreError(
            f"{path} holds what was imported from {existing.imported.tool}, of {existing.model.name} on "
            f"{existing.dataset.name}: no model can go on with it; choose another folder"
        )
    _check_server(path, existing, wanted)
    _check_identity(path, existing, wanted)
    protocols = {**existing.protocols, **wanted.protocols}
    if changed := [name for name, text in existing.protocols.items() if protocols[name] != text]:
        raise StoreError(f"{path} holds another protocol under the name {changed[0]}; choose another folder")
    files = existing.files
    if damage(path / ITEM_FILE, files.get(ITEM_FILE)):
        if missing := sorted({block.split for block in existing.blocks} - set(items)):
            raise StoreError(
                f"{path / ITEM_FILE} is damaged and can be written again only when all splits of the run are tested; "
                f"repeat the run with a protocol that tests split {', '.join(missing)}, too"
            )
        files = {**files, **write_items(path, chain.from_iterable(items.values()))}
    elif missing := sorted(set(items) - read_splits(path)):
        raise StoreError(
            f"{path} holds no items of split {', '.join(missing)}, which a protocol tests; "
            "begin another folder with all the protocols at once"
        )
    blocks = usable_blocks(existing.blocks, [each.block for each in damaged_blocks(path, existing.blocks)])
    refused = {name: why for name, why in {**existing.refused, **wanted.refused}.items() if name not in protocols}
    same = (protocols, files, blocks) == (existing.protocols, existing.files, existing.blocks)
    moved = wanted.server is not None and bool(wanted.command) and wanted.command != existing.command
    if same and refused == existing.refused and not moved:
        return existing
    changes: dict[str, Any] = {} if same else {"complete": False}
    if moved or not same:  # a server's address may be another one by now
        changes["command"] = wanted.command or existing.command
    if (protocols, refused) != (existing.protocols, existing.refused):
        changes["typed"] = _both_typed(existing, wanted)
    extended = replace(existing, protocols=protocols, files=files, blocks=blocks, refused=refused, **changes)
    write_manifest(path, extended)
    return extended


def _both_typed(existing: Manifest, wanted: Manifest) -> tuple[tuple[str, ...], ...]:
    """All lines that asked for the protocols; none where one of them is not known."""
    new = tuple(line for line in wanted.typed if line not in existing.typed)
    return (*existing.typed, *new) if existing.typed and wanted.typed else ()


def usable_blocks(blocks: Sequence[BlockRecord], damaged: Sequence[BlockRecord]) -> tuple[BlockRecord, ...]:
    """The blocks that are of use where the ``damaged`` ones are gone.

    A block without asks holds a part of the observations that another block of the same items names: without it that
    one is of no use.
    """
    parts = [block for block in damaged if not block.asks]
    return tuple(block for block in blocks if block not in damaged and not any(_overlap(block, part) for part in parts))


def _overlap(one: BlockRecord, other: BlockRecord) -> bool:
    same = (one.split, one.subject) == (other.split, other.subject)
    return same and one.start < other.stop and other.start < one.stop


def _check_identity(path: Path, existing: Manifest, wanted: Manifest) -> None:
    for part, fields in _IDENTITY.items():
        old, new = getattr(existing, part), getattr(wanted, part)
        differences = [
            f"{part} {name} is {_short(name, getattr(old, name))} there and {_short(name, getattr(new, name))} here"
            for name in fields
            if getattr(old, name) != getattr(new, name)
        ]
        if differences:
            raise StoreError(
                f"{path} was made for another {part} ({'; '.join(differences)}){_moved(old, new)}; "
                f"go on there with the old {part}, or choose another folder"
            )


def _check_server(path: Path, existing: Manifest, wanted: Manifest) -> None:
    """StoreError where the model behind a server is not the one of before, though it may have the same name."""
    if existing.server is None or wanted.server is None:
        return
    if differences := existing.server.differences(wanted.server):
        then, now = existing.server.software, wanted.server.software
        if then != now:
            differences.append(f"the server: {then or 'unnamed'} then, {now or 'unnamed'} now")
        raise StoreError(
            f"the server answers otherwise than when {path} was begun; serve the model as it was then, or choose "
            "another folder",
            differences,
        )


def _moved(old: Any, new: Any) -> str:
    """What to name to go on where a revision on the Hub is another commit by now."""
    before, now = getattr(old, "source", ""), getattr(new, "source", "")
    return f", from {before} on the Hub, where this is {now or 'from elsewhere'}" if before and before != now else ""


def _short(name: str, value: Any) -> Any:
    """The first characters of a digest, any other value in full."""
    return value[:12] if name == "digest" else list(value) if isinstance(value, tuple) else value
