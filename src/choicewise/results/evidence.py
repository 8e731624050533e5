"""Reduce the observations of a run once to the columns that all its protocols read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast
from warnings import warn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.protocols.between import as_accuracy
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.preparations import more_options
from choicewise.protocols.protocol import Protocol, parse_signature
from choicewise.protocols.readings import PERMUTED, READINGS
from choicewise.records import BlockRecord, Manifest
from choicewise.requests.blocks import list_request_specs
from choicewise.results.tables import (
    Portion,
    SharedObservations,
    Subject,
    covering_portion,
    item_batches,
    list_portions,
    named,
    places_of,
    read_item_table,
    rows_at,
    segments,
)
from choicewise.scoring.combine import COMBINERS, Decision
from choicewise.scoring.decide import Decisions
from choicewise.scoring.observed import Floats, Integers, Lows, Mask, row_of
from choicewise.scoring.portion import (
    ObservedPortion,
    RunTables,
    offsets_of,
    row_digests,
    row_parts,
)
from choicewise.scoring.scores import bytes_bare, token_bytes
from choicewise.store.folder import refuse_part
from choicewise.store.tables import (
    SCHEMAS,
    Damage,
    block_file,
    damaged_blocks,
    present_blocks,
    read_batches,
    read_blocks,
    read_columns,
    read_items,
)

T = TypeVar("T")

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Column(Generic[T_co]):
    """Describe one column of the evidence, and how to compute it from a portion of the run.

    It is an array whose last axis is the items or the rows; in tuples, dicts and Decisions several;
    or Lows, or None.  ``compute`` looks at one item at a time, so that it does not matter how a run
    is divided.  ``of_texts``: True if it needs the texts of the requests, and nothing observed.
    Columns with the same name and axes are the same.
    """

    name: str
    axes: tuple[Hashable, ...] = ()
    of_texts: bool = field(default=False, kw_only=True, compare=False)
    compute: Callable[[ObservedPortion], T_co] = field(kw_only=True, compare=False, repr=False)


Wanted = Mapping[str, Iterable[Column[object]]]
"""Columns by prompt (``Protocol.prompt_digest``)."""


def columns_of(
    protocol: Protocol, noise: float | None, reasons: Reasons
) -> Iterator[Column[object]]:
    """Yield the columns that a measurement under ``protocol`` needs.

    ``reasons`` numbers why items are missing.
    """
    null = protocol.null
    is_calibrated = protocol.calibration != "none"
    yield DEFECTS
    yield LENGTHS
    yield NO_NUMBER
    yield unlisted_column(null)
    yield impossible_column(null)
    yield reasons_column(null, reasons)
    yield tokens_column(None)
    yield tokens_column(null)
    # A calibration needs the log-likelihoods of all items before it decides about any.
    if not is_calibrated:
        yield decision_column(protocol)
    if READINGS[protocol.reading].text and METRICS[protocol.metric].of_text:
        yield TEXT_LOGLIKELIHOOD
    if protocol.aggregation == "bytes":
        yield bytes_column(protocol)
    if is_calibrated or protocol.views in PERMUTED:
        yield PART_SUMS
        yield PART_LOWS
    if READINGS[protocol.reading].one_likelihood:
        yield MASS
        yield lacks_column(protocol)
        if noise is not None:
            yield sensitivity_column(protocol.score, null, protocol.outside)


def measured_columns(
    protocols: Iterable[Protocol], noise: float | None, reasons: Reasons
) -> dict[str, list[Column[object]]]:
    """Return by prompt the columns that measurements under all ``protocols`` need."""
    wanted: dict[str, list[Column[object]]] = {}
    for protocol in protocols:
        wanted.setdefault(protocol.prompt_digest, []).extend(columns_of(protocol, noise, reasons))
    return wanted


@lru_cache(maxsize=4096)
def deciding_protocol(protocol: Protocol) -> Protocol:
    """Return the protocol whose scores and predictions a metric of probabilities looks at.

    All such metrics of one score share what is kept of it.  ``protocol`` itself for other metrics.
    """
    if not METRICS[protocol.metric].probable:
        return protocol
    return as_accuracy(protocol)


class RunEvidence:
    """Hold the evidence of the run in ``folder`` by prompt; nothing is read before it is needed.

    ``only``: rows of the item table ``items``, in its order; then the evidence is that of these
    items, and only their blocks are read.  ``keeps``, False unless it is set: the
    tables of a small run are read once and stay in memory.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        only: Sequence[int] | None = None,
        items: pa.Table | None = None,
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.only = only
        self.keeps = False
        if items is not None:
            self.items = items
        self.reasons = Reasons()
        self._by_prompt: dict[str, Evidence] = {}

    @cached_property
    def tables(self) -> RunTables:
        """Return the four tables of the folder in full, which can take gigabytes.

        Raises StoreError if a block is missing or damaged.
        """
        refuse_part(self.folder, self.manifest)
        read = partial(read_blocks, self.folder, self.manifest.blocks)
        return RunTables(
            requests=read("requests"),
            spans=read("spans"),
            observations=read("observations").combine_chunks(),
            items=read_items(self.folder, self.manifest),
            extra_options=self._extra_options,
        )

    @cached_property
    def items(self) -> pa.Table:
        """Return :func:`choicewise.results.tables.read_item_table` of the run."""
        return read_item_table(self.folder, self.manifest)

    @cached_property
    def damages(self) -> list[Damage]:
        """Return the blocks left out since their files are not those that were written.

        Warns of each.  Raises UsageError if the folder holds a part of a run.
        """
        refuse_part(self.folder, self.manifest)
        blocks = self.manifest.blocks
        if self.only is not None:
            blocks = self._around(blocks).blocks
        damages = damaged_blocks(self.folder, blocks)
        for damage in damages:
            split, subject, start, stop = damage.block.extent
            where = f"items {start + 1} to {stop} of {subject} ({split})"
            advice = f"run the same `{self.manifest.writer}` command again to rewrite them"
            warn(f"{damage.path} {damage.reason}; left out: {where}; {advice}", stacklevel=2)
        return damages

    def gather(self, wanted: Wanted) -> dict[str, Evidence]:
        """Return the evidence under the prompts in ``wanted``, with the columns it names.

        The run is read once for all columns that are not there yet.
        """
        lacking: dict[str, list[Column[object]]] = {}
        for prompt, columns in wanted.items():
            evidence = self._by_prompt.get(prompt)
            if evidence is None:
                lacking[prompt] = list(dict.fromkeys(columns))
                continue
            absent = [column for column in dict.fromkeys(columns) if column not in evidence]
            if absent:
                lacking[prompt] = absent
        if lacking:
            self._reduce(lacking)
        return {prompt: self._by_prompt[prompt] for prompt in wanted}

    def count_items(self, protocol: Protocol) -> tuple[int, int]:
        """Return how many items have all requests of ``protocol``, and how many its split has."""
        if self.only is not None:
            return 0, 0
        names = {spec.name for spec in list_request_specs({"": protocol})}
        blocks = [block for block in self._blocks if block.split == protocol.split]
        complete = 0
        for rows, covering in segments(blocks, self._subject_rows):
            requests: set[str] = set()
            for block in covering:
                requests.update(block.asks)
            if names <= requests:
                complete += len(rows)
        total = 0
        for (split, _), rows in self._subject_rows.items():
            if split == protocol.split:
                total += len(rows)
        return complete, total

    def release(self) -> None:
        """Forget the evidence; a later use reads the run again."""
        self._by_prompt.clear()
        self.__dict__.pop("kept", None)

    def portion_tables(self, texts: bool = False, observed: bool = True) -> Iterator[RunTables]:
        """Yield the tables of the run by portions; the items have the order of every evidence.

        ``texts``: with contexts, which are longer than everything else together.  ``observed``:
        with what was observed.
        """
        for number in range(len(self._portions)):
            if self.only is not None:
                yield self._alone
            elif self.kept is not None:
                yield self.kept
            else:
                yield self._read(number, texts, observed)

    @cached_property
    def kept(self) -> RunTables | None:
        """Return all tables of a small run, which stay in memory; None of any other run."""
        if not self.keeps or len(self._portions) != 1:
            return None
        tables = self._read(0, texts=True)
        return tables if tables.bytes <= MOST_KEPT else None

    def _reduce(self, lacking: Mapping[str, Sequence[Column[object]]]) -> None:
        """Compute the ``lacking`` columns by prompt, and add them to the evidence."""
        chunks: dict[str, dict[Column[object], list[Any]]] = {}
        for prompt, columns in lacking.items():
            chunks[prompt] = {column: [] for column in (_ITEMS, *columns)}
        of_texts = [column.of_texts for columns in lacking.values() for column in columns]
        no_items = RunTables(items=self.items.slice(0, 0), extra_options=self._extra_options)
        for tables in self.portion_tables(any(of_texts), observed=not all(of_texts)):
            for prompt in sorted(lacking.keys() & tables.request_rows.keys()):
                _compute(chunks[prompt], ObservedPortion(tables, prompt))
            # Two portions in memory would be too many.
            del tables
        # Arrow would keep the memory of the portions, and the columns need more of their own.
        pa.default_memory_pool().release_unused()
        for prompt, chunks_of_prompt in chunks.items():
            if not chunks_of_prompt[_ITEMS]:
                _compute(chunks_of_prompt, ObservedPortion(no_items, prompt))
            items = np.concatenate(chunks_of_prompt.pop(_ITEMS))
            if prompt not in self._by_prompt:
                extra = self._extra_options.get(prompt, 0)
                self._by_prompt[prompt] = Evidence(self.folder, items, self.items, extra)
            evidence = self._by_prompt[prompt]
            for column in lacking[prompt]:
                # Popped, so that only one column is in memory both in parts and as a whole.
                evidence.columns[column] = _joined(chunks_of_prompt.pop(column))

    def _read(self, number: int, texts: bool, observed: bool = True) -> RunTables:
        """Read the tables of the portion of that ``number``, whose files were checked before."""
        portion = self._portions[number]
        items = self.items.take(pa.array(portion.items))
        item_column = items["item"].combine_chunks()
        left_out = () if texts else ("context",)
        requests = _rows(self.folder, portion, "requests", "item", item_column, left_out)
        tables = RunTables(
            items=items,
            requests=pa.concat_tables(requests),
            extra_options=self._extra_options,
        )
        if not observed:
            return tables
        spans = _rows(self.folder, portion, "spans", "item", item_column, left_out)
        all_spans = pa.concat_tables(spans)
        keys = pa.array([], pa.string())
        if len(portion.inside) < len(portion.blocks):
            keys = named(all_spans)
        observations = _rows(self.folder, portion, "observations", "key", keys)
        for block, rows in zip(portion.blocks, observations, strict=False):
            if block.name in portion.inside:
                self._shared.keep(block, rows)
        observations.append(self._shared.of(number))
        all_observations = pa.concat_tables(observations).combine_chunks()
        return replace(tables, spans=all_spans, observations=all_observations)

    @cached_property
    def _extra_options(self) -> Mapping[str, int]:
        """Return the prompts that show an option more than the items have, or one less (-1)."""
        extra_options = {}
        for text in self.manifest.protocols.values():
            # The axis is empty in a signature that is older than it.
            _, _, from_axis = text.partition("|prepare:")
            prepare, _, _ = from_axis.partition("|")
            extra = more_options(prepare)
            # Most protocols show the items' own options; the signatures of these are not parsed.
            if extra:
                extra_options[parse_signature(text).prompt_digest] = extra
        return extra_options

    @cached_property
    def _blocks(self) -> list[BlockRecord]:
        left_out = {damage.block.name for damage in self.damages}
        return [block for block in self.manifest.blocks if block.name not in left_out]

    @cached_property
    def _subject_rows(self) -> dict[Subject, Integers]:
        return places_of(self.items)

    @cached_property
    def _portions(self) -> list[Portion]:
        if self.only is not None:
            return [self._around(self._blocks)]
        return list_portions(self.folder, self._blocks, self._subject_rows)

    @cached_property
    def _shared(self) -> SharedObservations:
        """Return the observations that portions need and that lie outside their blocks."""
        if self.only is None:
            return SharedObservations(self.folder, self._blocks, self._portions, self.items)
        # Only the blocks around these items were checked.
        blocks = present_blocks(self.folder, self._blocks)
        return SharedObservations(self.folder, blocks, self._portions, self.items, checked=False)

    @cached_property
    def _alone(self) -> RunTables:
        """Return all tables of these items alone, with observations and texts."""
        return self._read(0, texts=True)

    def _around(self, blocks: list[BlockRecord] | tuple[BlockRecord, ...]) -> Portion:
        return covering_portion(blocks, self._subject_rows, self.only or ())


MOST_KEPT = 32_000_000
"""Bytes of the tables of a run that may stay in memory."""


class Evidence:
    """Hold what was observed under one prompt of every item that has a request under it.

    ``items``: rows of the run's item table, subject by subject.  Every item has one row per choice,
    even if it could not be scored.  ``extra_options``: 1 if the prompt adds an option, which has a row
    after the others; -1 if it leaves one out.
    """

    def __init__(
        self, folder: Path, items: Integers, table: pa.Table, extra_options: int = 0
    ) -> None:
        self._folder = folder
        self.items = items
        self.extra_options = extra_options
        # The subjects of a log may be mixed, and what is read is in the order of the subjects.
        self.item_table = rows_at(table, items)
        self.item_offsets: Integers = offsets_of(self.item_table["choices"], extra_options)
        self._ordered: dict[Column[Digests], bytes] = {}
        # Read through the method ``column``, which knows the types.
        self.columns: dict[Column[object], object] = {}

    def __contains__(self, column: Column[object]) -> bool:
        """Check that the column was gathered."""
        return column in self.columns

    def column(self, column: Column[T]) -> T:
        """Return a column that was gathered (:meth:`RunEvidence.gather`)."""
        return cast(T, self.columns[column])

    @cached_property
    def order(self) -> Integers:
        """Return the indices of the items in the order of their ids, int64 [items]."""
        return np.asarray(pc.sort_indices(self.item_table["item"]).to_numpy(), dtype=np.int64)

    def ordered(self, column: Column[Digests], items: Integers | None = None) -> bytes:
        """Return the ``column`` of ``items`` (indices; None: all), in the order of their ids."""
        digests = self.column(column)
        if items is None:
            if column not in self._ordered:
                self._ordered[column] = digests[self.order].tobytes()
            return self._ordered[column]
        wanted = np.zeros(len(self.items), dtype=np.bool_)
        wanted[items] = True
        order = self.order[wanted[self.order]]
        return digests[order].tobytes()

    @property
    def ids(self) -> list[str]:
        """Return the items' ids, as a new list: of a million items it takes 100 MB."""
        return list(self.item_table["item"].to_pylist())

    @cached_property
    def subjects(self) -> list[str]:
        """Return the subject of every item."""
        column = self.item_table["subject"].combine_chunks()
        # Items share one text per subject; the column's own list would have a copy for every item.
        names = column.dictionary.to_pylist()
        return [names[code] for code in column.indices.to_pylist()]

    def groups(self, group_of: Callable[[str], str]) -> npt.NDArray[np.object_]:
        """Return the group of every item, from its subject."""
        column = self.item_table["subject"].combine_chunks()
        names = np.array([group_of(name) for name in column.dictionary.to_pylist()], dtype=object)
        codes = column.indices.to_numpy(zero_copy_only=False)
        return np.asarray(names[codes], dtype=object)

    @property
    def gold(self) -> list[list[int]]:
        """Return the right choices of every item, as a new list."""
        return list(self.item_table["gold"].to_pylist())

    @cached_property
    def right(self) -> Mask:
        """Mark the rows of right choices, bool [rows]."""
        gold = self.item_table["gold"]
        item = row_of(offsets_of(gold))
        right = np.zeros(int(self.item_offsets[-1]), dtype=np.bool_)
        right[self.item_offsets[:-1][item] + pc.list_flatten(gold).to_numpy()] = True
        return right

    @cached_property
    def gold_index(self) -> Integers:
        """Return the right choice of every item, int64 [items]; -1 if several are right."""
        gold = self.item_table["gold"]
        offsets = offsets_of(gold)
        # An item without a right choice may come last, and would index past the end.
        flat = np.append(pc.list_flatten(gold).to_numpy(), 0)
        is_single = np.diff(offsets) == 1
        return np.where(is_single, flat[offsets[:-1]], -1).astype(np.int64)

    @property
    def lengths(self) -> Floats:
        """Return the characters of every continuation, float64 [rows]; NaN without its text."""
        lengths = self.column(LENGTHS).astype(np.float64)
        return np.where(lengths < 0, np.nan, lengths)

    @property
    def part_sums(self) -> list[Floats]:
        """Return the log-likelihoods of the parts in nats, float64 [rows] each."""
        return list(self.column(PART_SUMS))

    @property
    def part_lows(self) -> list[Floats]:
        """Return the lowest that the log-likelihoods of the parts may be, float64 [rows] each."""
        return list(self.column(PART_LOWS))

    def unlisted(self, null: str | None) -> Codes:
        """Return 1 for items with an answer that is only an upper bound, 2 if all are, else 0."""
        return self.column(unlisted_column(null))

    def fields(self) -> list[str]:
        """Return the further fields of every item, a JSON object each, from the run folder."""
        columns = [batch["fields"] for batch in item_batches(self._folder, ("fields",))]
        if not columns:
            return []
        return list(pa.chunked_array(columns).take(pa.array(self.items)).to_pylist())

    @property
    def choices(self) -> dict[str, pa.Array]:
        """Return the id and subject of each row's item and the index of its choice, [rows] each."""
        item = row_of(self.item_offsets)
        rows = pa.array(item)
        subjects = self.item_table["subject"].combine_chunks().take(rows)
        choice = np.arange(len(item)) - self.item_offsets[:-1][item]
        return {
            "item": self.item_table["item"].combine_chunks().take(rows),
            "subject": subjects.cast(pa.string()),
            "choice": pa.array(choice),
        }


CONTENT_COLUMNS = ("context", "continuations", "options", "gold")
"""The columns of the requests that are sent or decide what is right; digests are made of them."""


def read_texts(evidence: RunEvidence, prompts: Iterable[str]) -> None:
    """Read the texts under all ``prompts`` at once, so that no question reads them again."""
    evidence.gather({prompt: [TEXTS] for prompt in prompts})


def text_digests(portion: ObservedPortion) -> Digests:
    """Return a digest per item of its id and its :data:`CONTENT_COLUMNS`, [items] of 16 bytes."""
    parts = row_parts(portion.item_table["item"])
    for name in CONTENT_COLUMNS:
        parts += row_parts(portion.requests[name])
    return row_digests(*parts)


Codes = npt.NDArray[np.int8]
"""A small number per item, [items]."""

Digests = npt.NDArray[np.void]
"""16 bytes per item, [items]."""

TEXTS = Column("texts", of_texts=True, compute=text_digests)

TEXT_LOGLIKELIHOOD = Column(
    "text log-likelihood", compute=lambda portion: portion.generation().sums
)
"""The log-probability of every item's generated text, in nats."""

LENGTHS = Column(
    "lengths", compute=lambda portion: np.nan_to_num(portion.lengths, nan=-1.0).astype(np.int32)
)
"""Characters of every continuation, int32 [rows]; -1 without its text."""

MASS = Column("mass", compute=lambda portion: portion.mass)
"""The probability of an item's continuations together, float64 [items]."""

_ITEMS: Column[Integers] = Column("items", compute=lambda portion: portion.items)
"""The rows of the items in the item table, int64 [items]."""

NO_NUMBER = Column("no number", compute=lambda portion: portion.no_number)
PART_LOWS = Column("part lows", compute=lambda portion: np.array(portion.part_lows))
PART_SUMS = Column("part sums", compute=lambda portion: np.array(portion.part_sums))
DEFECTS = Column("defects", compute=lambda portion: portion.defects)
"""Marks of items with a defect in their prompts or tokens, bool [items] by kind (``Counts``)."""


def unlisted_column(null: str | None) -> Column[Codes]:
    """Describe how many answers of each item are only upper bounds (:meth:`Evidence.unlisted`)."""
    return Column("unlisted", (null,), compute=partial(ObservedPortion.unlisted, null=null))


def impossible_column(null: str | None) -> Column[Codes]:
    """Describe which impossible numbers each item has, bits (:data:`~choicewise.scoring.portion.POSITIVE`)."""
    return Column("impossible", (null,), compute=partial(ObservedPortion.impossible, null=null))


def reasons_column(null: str | None, reasons: Reasons) -> Column[Integers]:
    """Describe the number of the first reason why each item is missing; -1 for none."""
    return Column("reasons", (null,), compute=partial(_reasons, null=null, reasons=reasons))


def tokens_column(null: str | None) -> Column[Digests]:
    """Describe a digest of the questions about each item, after its own or the ``null`` context."""
    return Column("tokens", (null,), compute=partial(_token_digests, null=null))


def decision_column(protocol: Protocol) -> Column[Decision]:
    """Describe the decision of ``protocol``, which metrics of probabilities of a score share."""
    deciding = deciding_protocol(protocol)
    compute = partial(COMBINERS[protocol.reading].decision, deciding)
    return Column("decision", (deciding,), compute=compute)


def bytes_column(protocol: Protocol) -> Column[Floats]:
    """Describe the bytes of every choice, as the score of ``protocol`` counts them."""
    length = bytes_bare if protocol.score == "byte_mean_bare" else token_bytes
    return Column(
        "bytes", (protocol.score,), compute=lambda portion: length(portion.continuations())
    )


def lacks_column(protocol: Protocol) -> Column[Codes]:
    """Describe what each item lacks for the score of ``protocol``, as indices of ``LACKS``."""
    axes = protocol.score, protocol.null
    return Column("lacks", axes, compute=lambda portion: portion.lacks(*axes))


def sensitivity_column(score: str, null: str | None, outside: str) -> Column[Floats]:
    """Describe the units of the score per nat of noise in a likelihood, [rows]; NaN if unknown."""
    axes = score, null, outside
    return Column("sensitivity", axes, compute=lambda portion: portion.sensitivity(*axes))


@dataclass(frozen=True)
class MissingReason:
    """Count the items (or rows of the data) with one ``reason``, and name one of them.

    If numbers in their reasons differ, ``reason`` has the range of them.
    """

    reason: str
    count: int
    example: str


class Reasons:
    """Number reasons from 0; reasons that differ only in numbers and quoted texts share one."""

    def __init__(self) -> None:
        # In the order of their numbers.
        self._numbers: dict[tuple[str, ...], int] = {}
        self._ranges: list[list[_Range]] = []

    def number(self, reason: str, item: str = "") -> int:
        """Return the number of ``reason``, in which the id of its ``item`` does not count."""
        text = reason
        if item:
            text = reason.replace(item, _ANY)
        values = _VARYING.findall(text)
        fixed = tuple(_VARYING.split(text))
        number = self._numbers.setdefault(fixed, len(self._numbers))
        if number == len(self._ranges):
            self._ranges.append([(value, value) for value in values])
            return number
        widened = []
        for ends, value in zip(self._ranges[number], values, strict=True):
            widened.append(_widened(ends, value))
        self._ranges[number] = widened
        return number

    def text(self, number: int) -> str:
        """Return the reason of that number, with the range of every number that differs."""
        text, *parts = list(self._numbers)[number]
        for (low, high), part in zip(self._ranges[number], parts, strict=True):
            text += low if low == high else f"{low} to {high}"
            text += part
        return text


def count_reasons(reasons: Iterable[tuple[str, str]]) -> tuple[MissingReason, ...]:
    """Count pairs of a reason and the row that has it; the most common reason comes first."""
    numbers = Reasons()
    examples: dict[int, str] = {}
    counts: Counter[int] = Counter()
    for reason, row in reasons:
        number = numbers.number(reason)
        counts[number] += 1
        examples.setdefault(number, row)
    result = []
    for number, count in counts.most_common():
        result.append(MissingReason(numbers.text(number), count, examples[number]))
    return tuple(result)


def _reasons(portion: ObservedPortion, null: str | None, reasons: Reasons) -> Integers:
    """Return the number of the first reason why each item is missing, int64 [items]; -1: none."""
    numbers = np.full(len(portion.items), -1, dtype=np.int64)
    ids = portion.item_table["item"]
    for item, reason in portion.reasons(null):
        if numbers[item] < 0:
            numbers[item] = reasons.number(reason, ids[item].as_py())
    return numbers


def _token_digests(portion: ObservedPortion, null: str | None) -> npt.NDArray[np.void]:
    """Return a digest per item of its id and of every question about it, [items] of 16 bytes."""
    # The key of a question is made of its kind and the ids of its tokens, so neither the model's
    # weights nor their type count.
    return row_digests(*row_parts(portion.item_table["item"]), *portion.questions(null))


def _compute(chunks: Mapping[Column[object], list[Any]], portion: ObservedPortion) -> None:
    """Add what each column is for a further portion of the run."""
    for column, values in chunks.items():
        values.append(column.compute(portion))


def _joined(chunks: Sequence[Any]) -> Any:
    """Join the chunks of a column, one of each portion, in order."""
    match chunks[0]:
        case None:
            return None
        case Decisions():
            return Decisions.joined(chunks)
        case Lows():
            return Lows.joined(chunks)
        case tuple():
            return tuple(_joined(members) for members in zip(*chunks, strict=True))
        case dict():
            joined = {}
            for key in chunks[0]:
                joined[key] = _joined([chunk[key] for chunk in chunks])
            return joined
        case np.ndarray(ndim=2):
            return _joined_parts(chunks)
        case _:
            return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def _joined_parts(chunks: Sequence[Floats]) -> Floats:
    """Join arrays [parts, rows]; a portion with fewer parts than another is filled with NaN."""
    parts = max(len(chunk) for chunk in chunks)
    padded = []
    for chunk in chunks:
        padding = ((0, parts - len(chunk)), (0, 0))
        padded.append(np.pad(chunk, padding, constant_values=np.nan))
    return np.concatenate(padded, axis=1)


_VARYING = re.compile(
    r"""(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|(?<!\w)"(?:[^"\\]|\\.)*"(?!\w)|(?<![\w.#])\d+(?:\.\d+)?(?![\w#])"""
)
"""A quoted text or a number, which can differ from item to item."""

_ANY = "…"
"""Stands for texts that differ."""

_Range = tuple[str, str]
"""The lowest and the highest spelling of a number, or a quoted text twice."""


def _widened(ends: _Range, value: str) -> _Range:
    """Return the range with ``value`` in it."""
    low, high = ends
    # Numbers can be ordered; quoted texts that differ have no range.
    is_text = value[0] in "'\""
    if is_text or low == _ANY:
        return ends if value == low else (_ANY, _ANY)
    if float(value) < float(low):
        low = value
    if float(value) > float(high):
        high = value
    return low, high


def _rows(
    folder: Path,
    portion: Portion,
    name: str,
    column: str,
    values: pa.Array,
    left_out: Sequence[str] = (),
) -> list[pa.Table]:
    """Read the rows of one table of a portion, block by block; an empty table comes last.

    Of blocks that hold other items, too, only rows with one of ``values`` in ``column`` are read.
    """
    schema = pa.schema([field for field in SCHEMAS[name] if field.name not in left_out])
    tables = []
    for block in portion.blocks:
        path = block_file(folder, block, name)
        if block.name in portion.inside:
            tables.append(read_columns(path, SCHEMAS[name], schema.names))
            continue
        batches = []
        for batch in read_batches(path, SCHEMAS[name], schema.names):
            batches.append(batch.filter(pc.is_in(batch[column], values)))
        tables.append(pa.Table.from_batches(batches, schema))
    return [*tables, schema.empty_table()]
