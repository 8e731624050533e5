"""From another tool's log to a run folder, which everything reads like one of our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from choicewise import __version__
from choicewise.errors import StoreError
from choicewise.interchange.logs.log import Log
from choicewise.interchange.logs.log_item import KeptItem
from choicewise.interchange.logs.log_protocols import log_protocols
from choicewise.interchange.logs.log_rows import SPLIT, LogRows, item_row
from choicewise.interchange.logs.log_state import LogState, kept_items, read_state
from choicewise.interchange.logs.text_protocols import text_protocols
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import signature
from choicewise.records.format import MANIFEST
from choicewise.records.manifest import DatasetRecord, ImportRecord, Manifest, ModelRecord, Selection
from choicewise.requests.schedule import list_asks
from choicewise.store.folder import RunFolder, check_folder, open_folder
from choicewise.store.manifest import read_manifest
from choicewise.store.tables import Rows

BLOCK_ITEMS = 20_000
"""Items that are in memory at once, at most."""

BLOCK_CHARS = 30_000_000
"""And characters of theirs."""


def run_of_log(log: Log, out: Path) -> LogState:
    """Write the run folder ``out`` of ``log``; nothing where it is there already.

    The log is read three times, and never held as a whole.  Raises DataError where it can't be used, and StoreError
    where ``out`` holds something else.
    """
    check_folder(out)
    state = read_state(log)
    protocols = {**text_protocols(log, state.requests), **log_protocols(log, state.requests, state.has)}
    wanted = Manifest(
        model=ModelRecord(log.model, state.model, log.settings.get("dtype", ""), "", 0),
        dataset=DatasetRecord(log.task, state.data),
        selection=Selection(),
        protocols={name: signature(protocol) for name, protocol in protocols.items()},
        versions={"choicewise": __version__},
        imported=ImportRecord(
            log.tool, dict(log.settings), dict(log.recorded), (*log.unused, *state.unused, *state.notes)
        ),
    )
    _refuse_others(out, wanted)
    items = (item_row(kept, position) for position, kept in enumerate(kept_items(log)))
    with open_folder(out, wanted, {SPLIT: items}) as folder:
        if not folder.manifest.complete:
            _write_blocks(folder, log, state, protocols)
            folder.finish()
    return state


def _refuse_others(out: Path, wanted: Manifest) -> None:
    if not (out / MANIFEST).exists():
        return
    there = read_manifest(out)
    if there.imported is None:
        raise StoreError(f"{out} holds a run of {there.model.name} that was asked here; choose another folder")
    same = (there.model.digest, there.dataset.digest) == (wanted.model.digest, wanted.dataset.digest)
    if not same:
        raise StoreError(
            f"{out} holds another log, of {there.model.name} on {there.dataset.name} by {there.imported.tool}; "
            "choose another folder"
        )


def _write_blocks(folder: RunFolder, log: Log, state: LogState, protocols: dict[str, Protocol]) -> None:
    """Write what the folder lacks; blocks have the same edges whenever the same log is read."""
    asks = list_asks(protocols)
    prompts = {ask.protocol.reading: ask.protocol.prompt_digest for ask in asks}
    there = {block.place for block in folder.manifest.blocks}
    for subject, start, items in _blocks(kept_items(log)):
        place = (SPLIT, subject, start, start + len(items))
        if place in there:
            continue
        rows = LogRows(prompts, state.model, log.null)
        for kept in items:
            rows.add(kept)
        tables: dict[str, Rows] = {"requests": rows.requests, "spans": rows.spans, "observations": rows.observations}
        folder.add_block(place, [ask.name for ask in asks], tables)


def _blocks(items: Iterator[KeptItem]) -> Iterator[tuple[str, int, list[KeptItem]]]:
    """(subject, position of the first item in it, items) in turn; the subjects may be mixed."""
    waiting: dict[str, list[KeptItem]] = {}
    starts: dict[str, int] = {}
    count = chars = 0

    def filled() -> Iterator[tuple[str, int, list[KeptItem]]]:
        for subject, own in waiting.items():
            start = starts.get(subject, 0)
            starts[subject] = start + len(own)
            yield subject, start, own

    for kept in items:
        waiting.setdefault(kept.item.subject, []).append(kept)
        count, chars = count + 1, chars + len(kept.item.context or "") + sum(map(len, kept.options))
        if count >= BLOCK_ITEMS or chars >= BLOCK_CHARS:
            yield from filled()
            waiting, count, chars = {}, 0, 0
    yield from filled()
