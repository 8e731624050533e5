"""The evidence of a run under each of its prompts, read portion by portion."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from warnings import warn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.protocols.protocol import Protocol
from choicewise.records.manifest import BlockRecord, Manifest
from choicewise.requests.schedule import list_asks
from choicewise.results.column import Column, Reductions, joined
from choicewise.results.elsewhere import find_elsewhere
from choicewise.results.evidence import Evidence
from choicewise.results.item_table import Subject, places_of, read_item_table
from choicewise.results.observed_portion import ObservedPortion
from choicewise.results.portion import Portion, covering_portion, list_portions, segments
from choicewise.results.reasons import Reasons
from choicewise.results.run_tables import (
    RunTables,
    nothing,
    read_portion_requests,
    read_portion_tables,
    read_run_tables,
)
from choicewise.scoring.ragged import Integers
from choicewise.store.damage import Damage, damaged_blocks, present_blocks


class RunEvidence:
    """The evidence of the run in ``folder`` under each of its prompts.  Reads nothing before it is needed.

    ``only``: rows of the item table ``items``, in its order; then the evidence is that of these items, and only their
    blocks are read.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, only: Sequence[int] | None = None, items: pa.Table | None = None
    ) -> None:
        self.folder, self.manifest, self.only = folder, manifest, only
        if items is not None:
            self.items = items
        self.reasons = Reasons()
        self._by_prompt: dict[str, Evidence] = {}

    @cached_property
    def tables(self) -> RunTables:
        """The four tables of the folder in full, which can take gigabytes.  StoreError where a block is damaged."""
        return read_run_tables(self.folder, self.manifest)

    @cached_property
    def items(self) -> pa.Table:
        """The item table without its texts (:func:`choicewise.results.item_table.read_item_table`)."""
        return read_item_table(self.folder, self.manifest)

    @cached_property
    def damages(self) -> list[Damage]:
        """The blocks that are left out, because their files are not those that were written; each with a warning."""
        blocks = self.manifest.blocks
        damages = damaged_blocks(self.folder, blocks if self.only is None else self._around(blocks).blocks)
        for damage in damages:
            split, subject, start, stop = damage.block.place
            where = f"items {start + 1} to {stop} of {subject} ({split})"
            advice = f"repeat its `{self.manifest.writer}` line to write them again"
            warn(f"{damage.path} {damage.reason}; left out: {where}; {advice}", stacklevel=2)
        return damages

    def gather(self, wanted: Mapping[str, Reductions], texts: bool = False) -> dict[str, Evidence]:
        """The evidence under the prompts (``Protocol.prompt_digest``) in ``wanted``, with the columns it names.

        The run is read once for all columns that are not there yet.  ``texts``: for columns made of texts alone.
        """
        lacking = {}
        for prompt, reductions in wanted.items():
            known = self._by_prompt[prompt].columns if prompt in self._by_prompt else {}
            if prompt not in self._by_prompt or reductions.keys() - known.keys():
                lacking[prompt] = {name: each for name, each in reductions.items() if name not in known}
        if lacking:
            self._reduce(lacking, texts)
        return {prompt: self._by_prompt[prompt] for prompt in wanted}

    def asked(self, protocol: Protocol) -> tuple[int, int]:
        """How many items were asked all that ``protocol`` asks, and how many of its split the run has."""
        if self.only is not None:
            return 0, 0
        names = {ask.name for ask in list_asks({"": protocol})}
        blocks = [block for block in self._blocks if block.split == protocol.split]
        covered = segments(blocks, self._places)
        asked = sum(len(rows) for rows, own in covered if names <= {ask for block in own for ask in block.asks})
        return asked, sum(len(rows) for (split, _), rows in self._places.items() if split == protocol.split)

    def release(self) -> None:
        """Forget the evidence; what needs it again reads the run again."""
        self._by_prompt.clear()

    def portion_tables(self, texts: bool = False) -> Iterator[RunTables]:
        """The tables of the run by portions; ``texts``: the requests with their texts instead of observations."""
        for portion in self._portions:
            if self.only is not None:
                yield self._alone
            elif texts:
                yield read_portion_requests(self.folder, portion, self.items)
            else:
                yield read_portion_tables(self.folder, portion, self.items, self._elsewhere, texts=False)

    def whole_portions(self) -> Iterator[RunTables]:
        """The tables of the run by portions, observations and texts together, in the order of every evidence."""
        for portion in self._portions:
            yield read_portion_tables(self.folder, portion, self.items, self._elsewhere, texts=True)

    def _reduce(self, lacking: Mapping[str, Reductions], texts: bool) -> None:
        items: dict[str, list[Integers]] = {prompt: [] for prompt in lacking}
        chunks = {prompt: {name: list[Column]() for name in reductions} for prompt, reductions in lacking.items()}

        def reduce(prompt: str, tables: RunTables) -> None:
            observed = ObservedPortion(tables, prompt)
            items[prompt].append(observed.items)
            for name, reduction in lacking[prompt].items():
                chunks[prompt][name].append(reduction(observed))

        for tables in self.portion_tables(texts):
            for prompt in sorted(lacking.keys() & pc.unique(tables.requests["prompt"]).to_pylist()):
                reduce(prompt, tables)
            del tables  # before the next portion is read
        for prompt, columns in chunks.items():
            if not items[prompt]:
                reduce(prompt, nothing(self.items))
            if prompt not in self._by_prompt:
                self._by_prompt[prompt] = Evidence(self.folder, np.concatenate(items[prompt]), self.items)
            for name in list(columns):
                self._by_prompt[prompt].columns[name] = joined(columns.pop(name))

    @cached_property
    def _blocks(self) -> list[BlockRecord]:
        left_out = {damage.block.name for damage in self.damages}
        return [block for block in self.manifest.blocks if block.name not in left_out]

    @cached_property
    def _places(self) -> dict[Subject, Integers]:
        return places_of(self.items)

    @cached_property
    def _portions(self) -> list[Portion]:
        if self.only is not None:
            return [self._around(self._blocks)]
        return list_portions(self.folder, self._blocks, self._places)

    @cached_property
    def _elsewhere(self) -> pa.Table:
        if self.only is None:
            return find_elsewhere(self.folder, self._blocks, self._portions)
        return find_elsewhere(self.folder, present_blocks(self.folder, self._blocks), self._portions, checked=False)

    @cached_property
    def _alone(self) -> RunTables:
        """Everything about these items alone, observations and texts."""
        return read_portion_tables(self.folder, self._portions[0], self.items, self._elsewhere, texts=True)

    def _around(self, blocks: list[BlockRecord] | tuple[BlockRecord, ...]) -> Portion:
        return covering_portion(blocks, self._places, self.only or ())
