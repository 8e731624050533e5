"""Items that 16-bit arithmetic leaves open, asked again of a float32 copy of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from choicewise.data.dataset import Dataset
from choicewise.records.tables import FLOAT32
from choicewise.requests.schedule import Ask, Block, prepare_block
from choicewise.running.observe import observe
from choicewise.store.block_writer import BlockWriter
from choicewise.store.folder import RunFolder

if TYPE_CHECKING:
    from choicewise.models.model import Model
    from choicewise.results.run import Run

Open = Mapping[str, frozenset[str]]
"""By prompt digest, the items that noise leaves open under a protocol that asks so."""


def left_open(run: Run) -> Open:
    """The near ties and exact ties of a run, where a likelihood decides."""
    found: dict[str, set[str]] = {}
    for measured in run.measure():
        if measured.likelihoods:
            undecided = (measured.near_ties | measured.decisions.tied) & ~measured.evidence.settled
            items = found.setdefault(measured.protocol.prompt_digest, set())
            items.update(item for item, is_open in zip(measured.evidence.ids, undecided, strict=True) if is_open)
    return {prompt: frozenset(items) for prompt, items in found.items() if items}


def rescore(
    folder: RunFolder,
    wide: Model,
    data: Dataset,
    asks: Sequence[Ask],
    blocks: Sequence[Block],
    undecided: Open,
    progress: Callable[[int, int], None],
) -> None:
    """Ask ``wide``, the float32 copy, about every open item, and keep its observe beside the first ones.

    Reports take the float32 observe of an item where they are complete.  ``progress`` is told (done, total) open items,
    under every prompt anew.
    """
    done, total = 0, sum(map(len, undecided.values()))
    known = folder.observed()
    for block in blocks:
        mine = [ask for ask in asks if ask.protocol.split == block.split and ask.protocol.prompt_digest in undecided]
        if not any(item.id in undecided[ask.protocol.prompt_digest] for ask in mine for item in block.items):
            continue
        asking = prepare_block(data, block, mine, wide, skip_bad_items=True)
        rows = [row for row in asking.spans if row.item in undecided[row.prompt] and row.key is not None]
        keys = dict.fromkeys(key for row in rows for key in (row.key, row.before, row.after) if key is not None)
        questions = {key: asking.wanted[key] for key in keys if key + FLOAT32 not in known}
        asked = {(row.prompt, row.item) for row in rows}
        with BlockWriter(folder, block.place, wide) as pending:
            for row in observe(wide, questions):
                pending.add(row._replace(key=row.key + FLOAT32))
                progress(done + len(asked) * pending.count // len(questions), total)
        done += len(asked)
