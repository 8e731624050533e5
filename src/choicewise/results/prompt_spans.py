"""The spans under one prompt, brought into rows: one per item and choice."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.records.tables import GENERATED
from choicewise.results.elsewhere import KEYS
from choicewise.results.impossible_logprobs import PLACEHOLDER, certain_twice
from choicewise.results.row_bytes import row_bytes
from choicewise.results.run_tables import RunTables
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats, Integers, Mask, row_of

LOST = "its observation lay in a block that is damaged; repeat the same run to ask it again"
NO_NUMBER = "the model answers with NaN"
"""Why a choice that was asked has no log-likelihood."""


class PromptSpans:
    """The spans that ``tables`` has under ``prompt``.

    ``items``: the ids of the items in order; item i has the rows ``item_offsets[i]:item_offsets[i + 1]``.
    """

    def __init__(self, tables: RunTables, prompt: str, items: pa.ChunkedArray, item_offsets: Integers) -> None:
        under = pc.equal(tables.spans["prompt"], prompt)
        chosen = under.to_numpy()
        self._tables, self._item_offsets = tables, item_offsets
        self._spans = tables.spans.filter(under)
        self._item = np.asarray(pc.index_in(self._spans["item"], items).to_numpy(), dtype=np.int64)
        self._choice = self._spans["choice"].to_numpy()
        self._answers = tables.answers[0][chosen]
        self._no_number = tables.no_number[chosen]
        self._unlisted = tables.unlisted[chosen]
        self._impossible, self._certain = tables.impossible[chosen], tables.certain[chosen]
        place = np.cumsum(chosen) - 1
        self._unanswered = [(int(place[span]), reason) for span, reason in tables.unanswered if chosen[span]]
        self._corrections = [nats[chosen] for nats in tables.corrections]
        self._items, self._rows = len(item_offsets) - 1, int(item_offsets[-1])
        self.rescored: Mask = _filled(self._items, False, self._item[tables.rescored[chosen]], True)

    @property
    def parts(self) -> int:
        """How many things the reading asks about a choice."""
        return 1 + int(pc.max(self._spans["part"]).as_py() or 0)

    def continuations(self, null: str | None, part: int) -> Continuations:
        """The scored tokens of one ``part`` after the request's own context, or after the ``null`` context."""
        spans, row = self._scored(null, part)
        text: npt.NDArray[Any] = np.full(self._rows, "", dtype=object)
        text[row] = self._spans["continuation"].filter(pa.array(spans)).to_numpy()
        observations = _filled(self._rows, -1, row, self._answers[spans])
        uncorrected = self._tables.continuations(observations, text.tolist(), self._item_offsets)
        return uncorrected.corrected(*(_filled(self._rows, 0.0, row, nats[spans]) for nats in self._corrections))

    def values(self) -> Floats:
        """What was observed of each choice that is no log-probability, float64 [rows]; NaN where there is nothing."""
        spans, row = self._scored(None, 0)
        known = np.asarray(self._tables.observations["value"].to_numpy(), dtype=np.float64)
        return np.append(known, np.nan)[_filled(self._rows, -1, row, self._answers[spans])]

    @property
    def generations(self) -> Integers:
        """Each item's generation among the observations, int64 [items]; -1 where there is none."""
        spans = self._choice == GENERATED
        return _filled(self._items, -1, self._item[spans], self._answers[spans])

    def flagged(self, column: str) -> Mask:
        """Items with a choice whose ``column`` is true or above zero, bool [items]."""
        raised = pc.greater(pc.fill_null(pc.cast(self._spans[column], pa.int64()), 0), 0).to_numpy()
        return _filled(self._items, False, self._item[raised], True)

    def column(self, name: str) -> Integers:
        """A number or flag of the requests' own spans by row, int64 [rows]; 0 where there is none.

        The rows of a generated item have that of its generation.
        """
        own = pc.and_(pc.is_null(self._spans["null"]), pc.equal(self._spans["part"], 0)).to_numpy()
        value = np.asarray(pc.cast(self._spans[name], pa.int64()).to_numpy(), dtype=np.int64)
        rows = np.zeros(self._rows, dtype=np.int64)
        generated = own & (self._choice == GENERATED)
        rows += _filled(self._items, 0, self._item[generated], value[generated])[row_of(self._item_offsets)]
        scored = own & (self._choice >= 0)
        rows[self._row(scored)] = value[scored]
        return rows

    @property
    def own_contexts(self) -> list[str | None]:
        """The context of each row where it is not its item's, [rows]; None elsewhere."""
        spans, row = self._scored(None, 0)
        texts: npt.NDArray[Any] = np.full(self._rows, None, dtype=object)
        texts[row] = self._spans["context"].filter(pa.array(spans)).to_numpy()
        return list(texts.tolist())

    def questions(self, null: str | None) -> Iterator[bytes]:
        """By item, every question after its own context, or the ``null`` context: choice, part and keys in order."""
        asked = self._after(null)
        spans, item = self._spans.filter(asked), self._item[asked.to_numpy()]
        place = np.stack([spans["part"].to_numpy(), spans["choice"].to_numpy(), item]).astype(np.int64)
        order = np.lexsort(place)
        order = order[np.append(True, (np.diff(place[:, order]) != 0).any(axis=0))[: len(order)]]
        columns = (pc.cast(spans[name].take(pa.array(order)), pa.string()) for name in ("choice", "part", *KEYS))
        lines = pc.binary_join_element_wise(*columns, " ", null_handling="replace", null_replacement="-")
        ends = np.searchsorted(item[order], np.arange(self._items + 1))
        by_item = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), lines.combine_chunks())
        return row_bytes(pa.chunked_array([by_item]))

    @property
    def bounded(self) -> bool:
        """Whether of anything no more than an upper bound is known."""
        return bool(self._unlisted.any())

    def unlisted(self, null: str | None) -> npt.NDArray[np.int8]:
        """1 for the items of which an answer is known as an upper bound alone, 2 where all are, int8 [items].

        ``null``: as in :meth:`reasons`.
        """
        scored = self._read(null).to_numpy() & (self._choice >= 0)
        asked, bounds = (
            np.bincount(self._item[spans], minlength=self._items) for spans in (scored, scored & self._unlisted)
        )
        return ((bounds > 0).astype(np.int8) + ((bounds > 0) & (bounds == asked))).astype(np.int8)

    def impossible(self, null: str | None) -> npt.NDArray[np.int8]:
        """What no model says among the observations of each item, after these two contexts; int8 [items]."""
        read = self._read(null).to_numpy()
        impossible = np.zeros(self._items, dtype=np.int8)
        np.bitwise_or.at(impossible, self._item[read], self._impossible[read])
        certain = read & self._certain & (self._choice >= 0)
        if certain.any():
            codes = np.asarray(pc.fill_null(self._spans["null"].combine_chunks().dictionary_encode().indices, -1))
            asked = np.stack([self._item, self._spans["part"].to_numpy(), codes]).astype(np.int64)
            impossible[certain_twice(asked, self._answers, certain)] |= PLACEHOLDER
        return impossible

    @property
    def no_number(self) -> Mask:
        """Items about which the model answered with NaN somewhere, bool [items]."""
        return _filled(self._items, False, self._item[self._no_number], True)

    def reasons(self, null: str | None) -> Iterator[tuple[int, str]]:
        """(place of an item, why something that is asked about it has no number), after these two contexts."""
        read = self._read(null)
        lost = pc.and_(pc.is_valid(self._spans["key"]), pa.array(self._answers < 0))
        causes = {LOST: lost, NO_NUMBER: pa.array(self._no_number)}
        missing = self._spans["missing"]
        told = np.flatnonzero(pc.and_(read, pc.is_valid(missing)).to_numpy())
        yield from zip(self._item[told].tolist(), missing.take(pa.array(told)).to_pylist(), strict=True)
        wanted = read.to_numpy()
        yield from ((int(self._item[span]), reason) for span, reason in self._unanswered if wanted[span])
        for cause, spans in causes.items():
            yield from ((item, cause) for item in self._item[pc.and_(read, spans).to_numpy()].tolist())

    def _read(self, null: str | None) -> pa.ChunkedArray:
        """Which spans come after the request's own context or after the ``null`` context."""
        own = pc.is_null(self._spans["null"])
        return own if null is None else pc.or_(own, pc.fill_null(pc.equal(self._spans["null"], null), False))

    def _scored(self, null: str | None, part: int) -> tuple[Mask, Integers]:
        """Which spans score a choice after this context, bool [spans], and the row of each."""
        spans = pc.fill_null(pc.and_(self._after(null), pc.equal(self._spans["part"], part)), False).to_numpy()
        chosen = np.asarray(spans & (self._choice >= 0), dtype=np.bool_)
        return chosen, self._row(chosen)

    def _after(self, null: str | None) -> pa.ChunkedArray:
        """Which spans come after the request's own context, or the ``null`` context."""
        column = self._spans["null"]
        return pc.is_null(column) if null is None else pc.fill_null(pc.equal(column, null), False)

    def _row(self, spans: Mask) -> Integers:
        return np.asarray(self._item_offsets[:-1][self._item[spans]] + self._choice[spans], dtype=np.int64)


def _filled(size: int, fill: float, places: Integers, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """An array of ``fill`` with ``values`` at the ``places``."""
    array = np.full(size, fill)
    array[places] = values
    return array
