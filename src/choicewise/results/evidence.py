"""What a run observed under one prompt, as a number per choice: what remains of the tokens once they are read."""

from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.results.column import Column, Name
from choicewise.results.item_table import item_batches
from choicewise.results.run_tables import offsets_of
from choicewise.scoring.ragged import Floats, Integers, Mask, row_of


class Evidence:
    """What was observed under one prompt of every item that was asked under it, in the order of the item table.

    Every item has one row per choice, whether or not it could be scored.  ``items``: rows of the run's item table.
    """

    def __init__(self, folder: Path, items: Integers, table: pa.Table) -> None:
        self.items, self._folder = items, folder
        self.about = table if len(items) == len(table) else table.take(pa.array(items))
        self.item_offsets: Integers = offsets_of(self.about["choices"])
        self.columns: dict[Name, Column] = {}
        """Arrays by the name of the reduction that made them."""

    @cached_property
    def order(self) -> Integers:
        """The places of the items in the order of their ids, int64 [items]."""
        return np.asarray(pc.sort_indices(self.about["item"]).to_numpy(), dtype=np.int64)

    @property
    def ids(self) -> list[str]:
        """The items' ids, as a new list: of a million items it takes 100 MB."""
        return list(self.about["item"].to_pylist())

    @cached_property
    def subjects(self) -> list[str]:
        """The subject of every item."""
        column = self.about["subject"].combine_chunks()
        names = column.dictionary.to_pylist()
        return [names[code] for code in column.indices.to_pylist()]

    @property
    def gold(self) -> list[list[int]]:
        """The right choices of every item, as a new list."""
        return list(self.about["gold"].to_pylist())

    @cached_property
    def right(self) -> Mask:
        """Which rows are right choices, bool [rows]."""
        rows = np.zeros(int(self.item_offsets[-1]), dtype=np.bool_)
        offsets = offsets_of(self.about["gold"])
        rows[self.item_offsets[:-1][row_of(offsets)] + pc.list_flatten(self.about["gold"]).to_numpy()] = True
        return rows

    @cached_property
    def gold_index(self) -> Integers:
        """The right choice of every item, int64 [items]; -1 where several are right."""
        offsets = offsets_of(self.about["gold"])
        flat = np.append(pc.list_flatten(self.about["gold"]).to_numpy(), 0)
        return np.where(np.diff(offsets) == 1, flat[offsets[:-1]], -1).astype(np.int64)

    @property
    def rescored(self) -> Mask:
        """The items whose observations are those of a float32 copy of the model, bool [items]."""
        return np.asarray(self.columns["rescored",])

    @property
    def lengths(self) -> Floats:
        """Characters of every continuation, float64 [rows]; NaN where its text is not known."""
        lengths = np.asarray(self.columns["lengths",], dtype=np.float64)
        return np.where(lengths < 0, np.nan, lengths)

    @property
    def mass(self) -> Floats:
        """The probability of an item's continuations together, float64 [items]."""
        return np.asarray(self.columns["mass",])

    @property
    def part_sums(self) -> list[Floats]:
        """The log-likelihoods of the parts in nats, float64 [rows] each."""
        return list(self.columns["part sums",])

    @property
    def part_lows(self) -> list[Floats]:
        """The lowest that they may be."""
        return list(self.columns["part lows",])

    def unlisted(self, null: str | None) -> npt.NDArray[np.int8]:
        """1 for items of which an answer is known as an upper bound alone, 2 where all are, 0 for others, [items]."""
        return np.asarray(self.columns["unlisted", null], dtype=np.int8)

    def impossible(self, null: str | None) -> npt.NDArray[np.int8]:
        """Which numbers of each item no model says (:mod:`choicewise.results.impossible_logprobs`), int8 [items]."""
        return np.asarray(self.columns["impossible", null], dtype=np.int8)

    def sensitivity(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """Units of the score per nat of numeric noise in a likelihood, float64 [rows]; NaN where not known."""
        return np.asarray(self.columns["sensitivity", name, null, outside])

    @property
    def doubts(self) -> dict[str, Mask]:
        """Items that were not asked or scored in full, bool [items] by kind (:class:`choicewise.results.row.Row`)."""
        return dict(self.columns["doubts",])

    def fields(self) -> list[str]:
        """The further fields of every item, a JSON object each, read from the run folder."""
        batches = [pa.table([batch["fields"]], ["fields"]) for batch in item_batches(self._folder, ("fields",))]
        return list(pa.concat_tables(batches)["fields"].take(pa.array(self.items)).to_pylist()) if batches else []

    @property
    def choices(self) -> dict[str, pa.Array]:
        """``item`` (its id), ``subject`` and ``choice`` (its index) of each row, [rows] each."""
        item = row_of(self.item_offsets)
        columns = {name: self.about[name].combine_chunks().take(pa.array(item)) for name in ("item", "subject")}
        columns["subject"] = columns["subject"].cast(pa.string())
        return columns | {"choice": pa.array(np.arange(len(item)) - self.item_offsets[:-1][item])}
