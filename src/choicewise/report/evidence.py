"""What a run observed, laid out as the arrays that scores are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.engine.asking import GENERATED
from choicewise.scoring.continuations import Continuations


@dataclass(frozen=True)
class Tables:
    """The four tables of a run folder (:mod:`choicewise.store.schema`)."""

    items: pa.Table
    requests: pa.Table
    spans: pa.Table
    observations: pa.Table


class Evidence:
    """The observations under one prompt, for every item that was asked under it, in the order of the item table.

    Every item has one row per choice, whether or not it could be scored; a row without tokens is missing.
    """

    def __init__(self, tables: Tables, prompt: str) -> None:
        self._observations = tables.observations
        self._spans = tables.spans.filter(pc.equal(tables.spans["prompt"], prompt))
        requests = tables.requests.filter(pc.equal(tables.requests["prompt"], prompt))
        asked = pc.is_in(tables.items["item"], requests["item"].combine_chunks())
        items = tables.items.filter(asked)
        self.requests = requests.take(pc.index_in(items["item"], requests["item"].combine_chunks()))
        self.ids: list[str] = items["item"].to_pylist()
        self.subjects: list[str] = items["subject"].to_pylist()
        self.gold: list[list[int]] = items["gold"].to_pylist()
        self._items = items["item"].combine_chunks()
        self.items: npt.NDArray[np.int64] = _offsets(pc.list_value_length(items["choices"]).to_numpy())

    def continuations(self, null: str | None = None) -> Continuations:
        """The scored continuations after the request's own context, or after the ``null`` context."""
        chosen = pc.is_null(self._spans["null"]) if null is None else pc.equal(self._spans["null"], null)
        spans = self._spans.filter(pc.and_(chosen, pc.greater_equal(self._spans["choice"], 0)))
        item = pc.index_in(spans["item"], self._items).to_numpy()
        row = self.items[:-1][item] + spans["choice"].to_numpy()
        found = pc.index_in(spans["key"], self._keys).combine_chunks()
        observation = np.full(int(self.items[-1]), -1, dtype=np.int64)
        observation[row] = pc.fill_null(found, -1).to_numpy()
        text = np.full(int(self.items[-1]), "", dtype=object)
        text[row] = spans["continuation"].to_numpy()
        starts, ends = self._starts[:-1][observation], self._starts[1:][observation]
        lengths = np.where(observation < 0, 0, ends - starts)
        offsets = _offsets(lengths)
        flat = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Continuations(
            tokens=self._flat("tokens")[flat],
            logprobs=self._flat("logprobs")[flat],
            sizes=self._flat("sizes")[flat],
            ranks=self._flat("ranks")[flat],
            offsets=offsets,
            text=text.tolist(),
            items=self.items,
        )

    def generated(self) -> list[str | None]:
        """The generated text of every item; None where there is none."""
        spans = self._spans.filter(pc.equal(self._spans["choice"], GENERATED))
        found = pc.index_in(spans["key"], self._keys)
        texts = self._observations["text"].take(found)
        by_item = dict(zip(spans["item"].to_pylist(), texts.to_pylist(), strict=True))
        return [by_item.get(item) for item in self.ids]

    def options(self) -> list[list[str]]:
        """The choices of every item as they were shown; empty where the item could not be asked."""
        return [options or [] for options in self.requests["options"].to_pylist()]

    def count(self, column: str) -> int:
        """Items whose ``column`` of the request table is above zero."""
        return int(pc.sum(pc.greater(pc.fill_null(self.requests[column], 0), 0)).as_py() or 0)

    def merged(self) -> int:
        """Items with a token that straddles the end of the context."""
        return int(pc.count_distinct(self._spans.filter(self._spans["merged"])["item"]).as_py())

    @cached_property
    def _keys(self) -> Any:
        return self._observations["key"].combine_chunks()

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        return _offsets(pc.list_value_length(self._observations["tokens"]).to_numpy())

    def _flat(self, column: str) -> npt.NDArray[Any]:
        return pc.list_flatten(self._observations[column].combine_chunks()).to_numpy()


def _offsets(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
