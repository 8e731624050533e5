"""Items that 16-bit arithmetic leaves undecided, rescored by a float32 copy of the model."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from choicewise.models.model import Model
from choicewise.records.tables import FLOAT32
from choicewise.requests.prepared_block import prepare_block
from choicewise.results.run import Run
from choicewise.running.executors.executor import Executor
from choicewise.running.executors.rows import rows_of
from choicewise.running.work import Work
from choicewise.store.block_writer import BlockWriter
from choicewise.store.folder import RunFolder

Undecided = Mapping[str, frozenset[str]]
"""By prompt digest, the items that noise leaves undecided under a protocol with this prompt."""


def open_items(run: Run) -> Undecided:
    """The near ties and exact ties of a run, where a likelihood decides, that were not rescored yet."""
    by_prompt: dict[str, set[str]] = {}
    for measured in run.measurements.values():
        if measured.likelihoods:
            undecided = (measured.near_ties | measured.decisions.tied) & ~measured.evidence.rescored
            items = by_prompt.setdefault(measured.protocol.prompt_digest, set())
            items.update(measured.ids.filter(pa.array(undecided)).to_pylist())
    return {prompt: frozenset(items) for prompt, items in by_prompt.items() if items}


def rescore(
    folder: RunFolder,
    model: Model,
    executor: Executor,
    work: Work,
    undecided: Undecided,
    progress: Callable[[int, int], None],
) -> None:
    """Ask ``model``, the float32 copy, about every undecided item, and keep its observations beside the first ones.

    ``executor`` answers for it.  Reports use the float32 observations of an item where they are complete.  ``progress``
    is called with (done, total) undecided items, counted once per prompt.
    """
    done, total = 0, sum(map(len, undecided.values()))
    progress(done, total)
    rescored = folder.rescored()
    asked = [
        (section, start, stop, [ask for ask in asks if ask.protocol.prompt_digest in undecided])
        for section, start, stop, asks in work.stretches()
    ]
    for block in work.blocks([stretch for stretch in asked if stretch[-1]]):
        if not any(item.id in undecided[ask.protocol.prompt_digest] for ask in block.asks for item in block.items):
            continue
        prepared = prepare_block(work.data, block, model, skip_bad_items=True, rendered=work.rendered)
        rows = [row for row in prepared.spans if row.item in undecided[row.prompt] and row.key is not None]
        keys = dict.fromkeys(key for row in rows for key in (row.key, row.before, row.after) if key is not None)
        questions = {key: prepared.wanted[key] for key in rescored.without(list(keys))}
        size = len({(row.prompt, row.item) for row in rows})
        with BlockWriter(folder, block.place, executor) as writer:
            for observed in executor.observe(questions):
                for row in rows_of(observed):
                    writer.add(row._replace(key=row.key + FLOAT32))
                progress(done + size * writer.count // len(questions), total)
        rescored.add(questions)
        done += size
