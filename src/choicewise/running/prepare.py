"""Prepares the blocks of a run, in a process of its own while a GPU computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise.data.dataset import Dataset
from choicewise.engine import cut_shards
from choicewise.errors import ModelError
from choicewise.models.model import Model
from choicewise.questions import Ids, Span
from choicewise.records import REQUESTS
from choicewise.requests.blocks import Block, prepare_block
from choicewise.requests.render import RenderedRequests
from choicewise.requests.request import Answerer, BlockPrompt
from choicewise.store.tables import KEY_BYTES, make_table
from choicewise.tokens.encode import PartwiseTokenizer
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.background import rare_collection
from choicewise.util.isolate import ValueProcess, serve_values


@dataclass(frozen=True, kw_only=True)
class ReadyBlock:
    """Hold the rows of a block as tables, and its prompts by key, cut into ``shards``.

    ``inputs`` and ``deepest``: as in :class:`choicewise.requests.request.PreparedBlock`.
    """

    requests: pa.Table
    spans: pa.Table
    inputs: int
    deepest: int
    shards: Sequence[Mapping[str, BlockPrompt]]

    def __getstate__(self) -> dict[str, Any]:
        # Between processes prompts are columns: millions of objects take seconds to copy.
        return {**self.__dict__, "shards": [_Columns.of(shard) for shard in self.shards]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        shards = [columns.prompts() for columns in state["shards"]]
        self.__dict__.update(state, shards=shards)


@dataclass(frozen=True, kw_only=True)
class Preparer:
    """Hold what the blocks of a run are made of.

    ``shard_tokens``: the least tokens of a shard; None if blocks are not cut.
    """

    data: Dataset
    rendered: Sequence[RenderedRequests]
    skip_bad_items: bool
    shard_tokens: int | None

    def prepare(self, block: Block, model: Answerer) -> ReadyBlock:
        """Render, tokenize and cut ``block``; errors as of :func:`prepare_block`."""
        prepared = prepare_block(self.data, block, model, self.skip_bad_items, self.rendered)
        return ReadyBlock(
            requests=make_table(REQUESTS, prepared.requests),
            spans=prepared.spans.table(),
            inputs=prepared.inputs,
            deepest=prepared.deepest,
            shards=list(cut_shards(prepared.wanted, self.shard_tokens)),
        )


def shares_the_lock(model: Model) -> bool:
    """Check that this process launches the kernels of a GPU for ``model``.

    Launches wait for Python's lock while a thread that prepares blocks holds it.
    """
    return model.device.partition(":")[0] == "cuda"


class BlockProcess(ValueProcess):
    """Prepare blocks in a process of its own, which ends with this one however that ends."""

    module = "choicewise.running.prepare"

    def __init__(self, order: _Order) -> None:
        super().__init__()
        self._order: _Order | None = order

    @classmethod
    def of(cls, preparer: Preparer, model: Model) -> BlockProcess | None:
        """Return the process for ``model``; None if it can't have the same tokenizer."""
        # Models that are not computed here need no module of local ones.
        from choicewise.models.local.tokenizer import HfTokenizer

        tokenizer = model.tokenizer
        if type(tokenizer) is not PartwiseTokenizer or type(tokenizer.inner) is not HfTokenizer:
            return None
        # The columns of the files are not needed, and can't be sent.
        data = Dataset(preparer.data.name, dict(preparer.data.splits))
        order = _Order(
            preparer=replace(preparer, data=data),
            window=model.window,
            folder=tokenizer.inner.folder.absolute(),
            identity=_identity(tokenizer),
        )
        return cls(order)

    def prepare(self, block: Block) -> ReadyBlock | None:
        """Return the prepared ``block``; None, here and from then on, if that fails."""
        order = self._order
        self._order = None
        # The process has the items; those of a block would bring the table of all.
        ready: ReadyBlock | None = self.exchange((order, replace(block, items=())))
        return ready


@dataclass(frozen=True, kw_only=True)
class _Order:
    """Hold what the process needs for all blocks; it reads the tokenizer of ``folder`` again."""

    preparer: Preparer
    window: int
    folder: Path
    identity: tuple[object, ...]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Read the tokenizer; ModelError if it is another one now."""
        from choicewise.models.local.tokenizer import HfTokenizer

        inner = HfTokenizer(self.folder)
        tokenizer = PartwiseTokenizer(inner, inner.cut)
        if _identity(tokenizer) != self.identity:
            raise ModelError(f"{self.folder} holds another tokenizer")
        return tokenizer

    def prepare(self, block: Block) -> ReadyBlock:
        """Return ``block``, which has no items, prepared."""
        rows = self.preparer.data.rows(block.split, block.subject)
        items = rows.take(np.asarray(block.positions, dtype=np.int64))
        with rare_collection():
            return self.preparer.prepare(replace(block, items=items), self)


def _identity(tokenizer: Tokenizer) -> tuple[object, ...]:
    """Return what differs between tokenizers of one folder, also if other code changes one."""
    special = (tokenizer.bos_id, tokenizer.eos_id, tokenizer.unknown_id, tokenizer.mask_id)
    chat = tokenizer.chat
    return tokenizer.digest, special, None if chat is None else chat.digest


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Hold the prompts of a shard, the spans among them as columns.

    ``keys``: 16 bytes for each prompt.  ``tokens``: distinct arrays laid end to end, up to each of
    ``ends``.  ``context`` and ``continuation``: by span, the index of an array.  ``others``: the
    other prompts, by key.
    """

    keys: bytes
    tokens: Ids
    ends: npt.NDArray[np.int64]
    context: npt.NDArray[np.int64]
    continuation: npt.NDArray[np.int64]
    gold: list[bool | None]
    ranked: list[bool]
    others: dict[str, BlockPrompt]

    @classmethod
    def of(cls, shard: Mapping[str, BlockPrompt]) -> _Columns:
        """Lay out the prompts of ``shard``."""
        spans = []
        others: dict[str, BlockPrompt] = {}
        for key, prompt in shard.items():
            if isinstance(prompt, Span):
                spans.append(prompt)
            else:
                others[key] = prompt
        # Spans share arrays, above all their contexts.
        arrays = {id(span.context): span.context for span in spans}
        arrays.update((id(span.continuation), span.continuation) for span in spans)
        number_of = {identity: number for number, identity in enumerate(arrays)}
        none: Ids = np.empty(0, dtype=np.int32)
        return cls(
            keys=bytes.fromhex("".join(shard)),
            tokens=np.concatenate([none, *arrays.values()]),
            ends=np.cumsum([len(array) for array in arrays.values()], dtype=np.int64),
            context=np.array([number_of[id(span.context)] for span in spans], np.int64),
            continuation=np.array([number_of[id(span.continuation)] for span in spans], np.int64),
            gold=[span.gold for span in spans],
            ranked=[span.ranked for span in spans],
            others=others,
        )

    def prompts(self) -> dict[str, BlockPrompt]:
        """Return the prompts by key, in their order."""
        arrays = [self.tokens[start:end] for start, end in pairwise([0, *self.ends.tolist()])]
        contexts = [arrays[index] for index in self.context.tolist()]
        continuations = [arrays[index] for index in self.continuation.tolist()]
        spans = map(Span, contexts, continuations, self.gold, self.ranked)
        digits = self.keys.hex()
        prompts: dict[str, BlockPrompt] = {}
        for start in range(0, len(digits), 2 * KEY_BYTES):
            key = digits[start : start + 2 * KEY_BYTES]
            prompt = self.others.get(key)
            prompts[key] = next(spans) if prompt is None else prompt
        return prompts


def _prepare_blocks() -> Callable[[tuple[_Order | None, Block]], ReadyBlock]:
    """Return the function that prepares blocks as the first order says."""
    orders: list[_Order] = []

    def prepare(sent: tuple[_Order | None, Block]) -> ReadyBlock:
        order, block = sent
        if order is not None:
            orders.append(order)
        return orders[0].prepare(block)

    return prepare


if __name__ == "__main__":
    serve_values(_prepare_blocks())
