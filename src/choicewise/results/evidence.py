"""What all protocols read, reduced once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from choicewise.records import OBSERVATIONS, REQUESTS, SPANS, BlockRecord, Manifest
from choicewise.requests.blocks import list_request_specs
from choicewise.results.spans import ObservedPortion, RunTables, offsets_of, row_bytes, row_digests
from choicewise.results.tables import (
    Portion,
    Subject,
    covering_portion,
    find_elsewhere,
    item_batches,
    list_portions,
    named,
    places_of,
    read_item_table,
    segments,
)
from choicewise.scoring.combine import COMBINERS, Decision
from choicewise.scoring.decide import Decisions
from choicewise.scoring.observed import Floats, Integers, Lows, Mask, row_of
from choicewise.scoring.scores import bytes_bare, token_bytes
from choicewise.store.shards import refuse_part
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

    It is an array whose last axis is the items or the rows; in tuples, dicts and Decisions several; or Lows, or None.
    ``compute`` looks at one item at a time, so that it does not matter how a run is divided.  Columns with the same
    name and axes are the same.
    """

    name: str
    axes: tuple[Hashable, ...] = ()
    compute: Callable[[ObservedPortion], T_co] = field(kw_only=True, compare=False, repr=False)


Wanted = Mapping[str, Iterable[Column[object]]]
"""Columns by prompt (``Protocol.prompt_digest``)."""


def columns_of(
    protocol: Protocol, noise: float | None, reasons: Reasons
) -> Iterator[Column[object]]:
    """Yield the columns that a measurement under ``protocol`` needs; ``reasons`` numbers why items are missing.

    A calibration needs the log-likelihoods of all items before it decides about any.
    """
    null = protocol.null
    yield WARNINGS
    yield LENGTHS
    yield NO_NUMBER
    yield unlisted_column(null)
    yield impossible_column(null)
    yield reasons_column(null, reasons)
    yield tokens_column(None)
    yield tokens_column(null)
    if protocol.calibration == "none":
        yield decision_column(protocol)
    if READINGS[protocol.reading].text and METRICS[protocol.metric].of_text:
        yield TEXT_LOGLIKELIHOOD
    if protocol.aggregation == "bytes":
        yield bytes_column(protocol)
    if protocol.calibration != "none" or protocol.views in PERMUTED:
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
    """The protocol whose scores and predictions a metric of probabilities looks at; ``protocol`` itself for others.

    So all such metrics of one score share what is kept of it.
    """
    if not METRICS[protocol.metric].probable:
        return protocol
    return as_accuracy(protocol)


class RunEvidence:
    """The evidence of the run in ``folder`` under each of its prompts.  Reads nothing before it is needed.

    ``only``: rows of the item table ``items``, in its order; then the evidence is that of these items, and only their
    blocks are read.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        only: Sequence[int] | None = None,
        items: pa.Table | None = None,
    ) -> None:
        self.folder, self.manifest, self.only = folder, manifest, only
        if items is not None:
            self.items = items
        self.reasons = Reasons()
        self._by_prompt: dict[str, Evidence] = {}

    @cached_property
    def tables(self) -> RunTables:
        """The four tables of the folder in full, which can take gigabytes.  StoreError where a block is damaged."""
        refuse_part(self.folder, self.manifest)
        return _read_run_tables(self.folder, self.manifest, self._adding)

    @cached_property
    def items(self) -> pa.Table:
        """The item table without its texts (:func:`choicewise.results.tables.read_item_table`)."""
        return read_item_table(self.folder, self.manifest)

    @cached_property
    def damages(self) -> list[Damage]:
        """The blocks that are left out, because their files are not those that were written; each with a warning.

        Raises UsageError where the folder holds a part of a run.
        """
        refuse_part(self.folder, self.manifest)
        blocks = self.manifest.blocks
        damages = damaged_blocks(
            self.folder, blocks if self.only is None else self._around(blocks).blocks
        )
        for damage in damages:
            split, subject, start, stop = damage.block.extent
            where = f"items {start + 1} to {stop} of {subject} ({split})"
            advice = f"run the same `{self.manifest.writer}` command again to write them"
            warn(f"{damage.path} {damage.reason}; left out: {where}; {advice}", stacklevel=2)
        return damages

    def gather(self, wanted: Wanted, texts: bool = False) -> dict[str, Evidence]:
        """Return the evidence under the prompts in ``wanted``, with the columns it names.

        The run is read once for all columns that are not there yet.  ``texts``: for columns made of texts alone.
        """
        lacking: dict[str, list[Column[object]]] = {}
        for prompt, columns in wanted.items():
            there = self._by_prompt[prompt].columns if prompt in self._by_prompt else {}
            absent = [column for column in dict.fromkeys(columns) if column not in there]
            if absent or prompt not in self._by_prompt:
                lacking[prompt] = absent
        if lacking:
            self._reduce(lacking, texts)
        return {prompt: self._by_prompt[prompt] for prompt in wanted}

    def count_items(self, protocol: Protocol) -> tuple[int, int]:
        """How many items were asked all that ``protocol`` asks, and how many of its split the run has."""
        if self.only is not None:
            return 0, 0
        names = {spec.name for spec in list_request_specs({"": protocol})}
        blocks = [block for block in self._blocks if block.split == protocol.split]
        covered = segments(blocks, self._places)
        asked = sum(
            len(rows)
            for rows, own in covered
            if names <= {ask for block in own for ask in block.asks}
        )
        return asked, sum(
            len(rows) for (split, _), rows in self._places.items() if split == protocol.split
        )

    def release(self) -> None:
        """Forget the evidence; what needs it again reads the run again."""
        self._by_prompt.clear()

    def portion_tables(self, texts: bool = False) -> Iterator[RunTables]:
        """The tables of the run by portions; ``texts``: the requests with their texts instead of observations."""
        for portion in self._portions:
            if self.only is not None:
                yield self._alone
            elif texts:
                yield _read_portion_requests(self.folder, portion, self.items, self._adding)
            else:
                yield self._read(portion, texts=False)

    def whole_portions(self) -> Iterator[RunTables]:
        """The tables of the run by portions, observations and texts together, in the order of every evidence."""
        for portion in self._portions:
            yield self._read(portion, texts=True)

    def _read(self, portion: Portion, texts: bool) -> RunTables:
        return _read_portion_tables(
            self.folder, portion, self.items, self._elsewhere, self._adding, texts
        )

    def _reduce(self, lacking: Mapping[str, Sequence[Column[object]]], texts: bool) -> None:
        items: dict[str, list[Integers]] = {}
        chunks: dict[str, dict[Column[object], list[object]]] = {}
        for prompt, columns in lacking.items():
            items[prompt] = []
            chunks[prompt] = {column: [] for column in columns}

        def reduce(prompt: str, tables: RunTables) -> None:
            observed = ObservedPortion(tables, prompt)
            items[prompt].append(observed.items)
            for column, parts in chunks[prompt].items():
                parts.append(column.compute(observed))

        for tables in self.portion_tables(texts):
            for prompt in sorted(lacking.keys() & pc.unique(tables.requests["prompt"]).to_pylist()):
                reduce(prompt, tables)
            del tables  # before the next portion is read
        for prompt in lacking:
            if not items[prompt]:
                reduce(prompt, _nothing(self.items, self._adding))
            if prompt not in self._by_prompt:
                more = self._adding.get(prompt, 0)
                self._by_prompt[prompt] = Evidence(
                    self.folder, np.concatenate(items[prompt]), self.items, more
                )
            evidence = self._by_prompt[prompt]
            for column in lacking[prompt]:
                # Popped, so that the parts of one column at a time are there beside the whole.
                evidence.columns[column] = _joined(chunks[prompt].pop(column))

    @cached_property
    def _adding(self) -> Mapping[str, int]:
        """The prompts of the run that show an option more than the items have, or one less (-1)."""
        spelled = {
            text: more_options(_prepare_of(text)) for text in self.manifest.protocols.values()
        }
        return {parse_signature(text).prompt_digest: more for text, more in spelled.items() if more}

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
        return find_elsewhere(
            self.folder, present_blocks(self.folder, self._blocks), self._portions, checked=False
        )

    @cached_property
    def _alone(self) -> RunTables:
        """Everything about these items alone, observations and texts."""
        return self._read(self._portions[0], texts=True)

    def _around(self, blocks: list[BlockRecord] | tuple[BlockRecord, ...]) -> Portion:
        return covering_portion(blocks, self._places, self.only or ())


class Evidence:
    """What was observed under one prompt of every item that was asked under it, in the order of the item table.

    Every item has one row per choice, whether or not it could be scored, and ``more``: 1 for an option that the prompt
    adds, -1 for one that it leaves out.
    ``items``: rows of the run's item table.
    """

    def __init__(self, folder: Path, items: Integers, table: pa.Table, more: int = 0) -> None:
        self.items, self._folder, self.more = items, folder, more
        self.item_table = table if len(items) == len(table) else table.take(pa.array(items))
        self.item_offsets: Integers = offsets_of(self.item_table["choices"], more)
        self._ordered: dict[Column[Digests], bytes] = {}
        self.columns: dict[Column[object], object] = {}
        """What was gathered; :meth:`column` reads it with its type."""

    def __contains__(self, column: Column[object]) -> bool:
        """Check that the column was gathered."""
        return column in self.columns

    def column(self, column: Column[T]) -> T:
        """Return a column that was gathered (:meth:`RunEvidence.gather`)."""
        return cast(T, self.columns[column])

    @cached_property
    def order(self) -> Integers:
        """The places of the items in the order of their ids, int64 [items]."""
        return np.asarray(pc.sort_indices(self.item_table["item"]).to_numpy(), dtype=np.int64)

    def ordered(self, column: Column[Digests], places: Integers | None = None) -> bytes:
        """Return the ``column`` of the items at ``places`` (None: all), in the order of their ids."""
        digests = self.column(column)
        if places is None:
            if column not in self._ordered:
                self._ordered[column] = digests[self.order].tobytes()
            return self._ordered[column]
        wanted = np.zeros(len(self.items), dtype=np.bool_)
        wanted[places] = True
        return digests[self.order[wanted[self.order]]].tobytes()

    @property
    def ids(self) -> list[str]:
        """The items' ids, as a new list: of a million items it takes 100 MB."""
        return list(self.item_table["item"].to_pylist())

    @cached_property
    def subjects(self) -> list[str]:
        """The subject of every item."""
        column = self.item_table["subject"].combine_chunks()
        names = column.dictionary.to_pylist()
        return [names[code] for code in column.indices.to_pylist()]

    def groups(self, group_of: Callable[[str], str]) -> npt.NDArray[np.object_]:
        """The group of every item, from its subject."""
        column = self.item_table["subject"].combine_chunks()
        names = np.array([group_of(name) for name in column.dictionary.to_pylist()], dtype=object)
        return np.asarray(names[column.indices.to_numpy(zero_copy_only=False)], dtype=object)

    @property
    def gold(self) -> list[list[int]]:
        """The right choices of every item, as a new list."""
        return list(self.item_table["gold"].to_pylist())

    @cached_property
    def right(self) -> Mask:
        """Which rows are right choices, bool [rows]."""
        rows = np.zeros(int(self.item_offsets[-1]), dtype=np.bool_)
        offsets = offsets_of(self.item_table["gold"])
        rows[
            self.item_offsets[:-1][row_of(offsets)]
            + pc.list_flatten(self.item_table["gold"]).to_numpy()
        ] = True
        return rows

    @cached_property
    def gold_index(self) -> Integers:
        """The right choice of every item, int64 [items]; -1 where several are right."""
        offsets = offsets_of(self.item_table["gold"])
        flat = np.append(pc.list_flatten(self.item_table["gold"]).to_numpy(), 0)
        return np.where(np.diff(offsets) == 1, flat[offsets[:-1]], -1).astype(np.int64)

    @property
    def lengths(self) -> Floats:
        """Characters of every continuation, float64 [rows]; NaN where its text is not known."""
        lengths = self.column(LENGTHS).astype(np.float64)
        return np.where(lengths < 0, np.nan, lengths)

    @property
    def mass(self) -> Floats:
        """The probability of an item's continuations together, float64 [items]."""
        return self.column(MASS)

    @property
    def part_sums(self) -> list[Floats]:
        """The log-likelihoods of the parts in nats, float64 [rows] each."""
        return list(self.column(PART_SUMS))

    @property
    def part_lows(self) -> list[Floats]:
        """The lowest that they may be."""
        return list(self.column(PART_LOWS))

    def unlisted(self, null: str | None) -> Codes:
        """1 for items of which an answer is known as an upper bound alone, 2 where all are, 0 for others, [items]."""
        return self.column(unlisted_column(null))

    def impossible(self, null: str | None) -> Codes:
        """Which numbers of each item no model says (:mod:`choicewise.results.tables`), int8 [items]."""
        return self.column(impossible_column(null))

    def sensitivity(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """Units of the score per nat of numeric noise in a likelihood, float64 [rows]; NaN where not known."""
        return self.column(sensitivity_column(name, null, outside))

    @property
    def warnings(self) -> dict[str, Mask]:
        """Mark items not asked or scored in full, bool [items] by kind (:class:`choicewise.results.number.Counts`)."""
        return dict(self.column(WARNINGS))

    def fields(self) -> list[str]:
        """The further fields of every item, a JSON object each, read from the run folder."""
        batches = [
            pa.table([batch["fields"]], ["fields"])
            for batch in item_batches(self._folder, ("fields",))
        ]
        return (
            list(pa.concat_tables(batches)["fields"].take(pa.array(self.items)).to_pylist())
            if batches
            else []
        )

    @property
    def choices(self) -> dict[str, pa.Array]:
        """``item`` (its id), ``subject`` and ``choice`` (its index) of each row, [rows] each."""
        item = row_of(self.item_offsets)
        columns = {
            name: self.item_table[name].combine_chunks().take(pa.array(item))
            for name in ("item", "subject")
        }
        columns["subject"] = columns["subject"].cast(pa.string())
        return columns | {"choice": pa.array(np.arange(len(item)) - self.item_offsets[:-1][item])}


TOLD = ("context", "continuations", "options", "gold")
"""The columns of the requests with what is sent or decides what is right, of which the digests are made."""


def read_texts(evidence: RunEvidence, prompts: Iterable[str]) -> None:
    """Read the texts under all ``prompts`` at once, so that what is asked about them needs no further reading."""
    evidence.gather({prompt: [TEXTS] for prompt in prompts}, texts=True)


def text_digests(portion: ObservedPortion) -> Digests:
    """A digest per item, of its id, its texts, its choices as shown and its right answers: [items] of 16 bytes."""
    columns = [portion.item_table["item"], *(portion.requests[name] for name in TOLD)]
    return row_digests(*map(row_bytes, columns))


Codes = npt.NDArray[np.int8]
"""A small number per item, [items]."""

Digests = npt.NDArray[np.void]
"""16 bytes per item, [items]."""

TEXTS = Column("texts", compute=text_digests)

TEXT_LOGLIKELIHOOD = Column(
    "text log-likelihood", compute=lambda portion: portion.generation().sums
)
"""The log-probability of every item's generated text, in nats."""

LENGTHS = Column(
    "lengths", compute=lambda portion: np.nan_to_num(portion.lengths, nan=-1.0).astype(np.int32)
)
"""Characters of every continuation, int32 [rows]; -1 where its text is not known."""

MASS = Column("mass", compute=lambda portion: portion.mass)
NO_NUMBER = Column("no number", compute=lambda portion: portion.no_number)
PART_LOWS = Column("part lows", compute=lambda portion: np.array(portion.part_lows))
PART_SUMS = Column("part sums", compute=lambda portion: np.array(portion.part_sums))
WARNINGS = Column("warnings", compute=lambda portion: portion.warnings)


def unlisted_column(null: str | None) -> Column[Codes]:
    """Describe how many answers of each item are known as upper bounds alone (:meth:`Evidence.unlisted`)."""
    return Column("unlisted", (null,), compute=partial(ObservedPortion.unlisted, null=null))


def impossible_column(null: str | None) -> Column[Codes]:
    """Describe which numbers of each item no model says (:meth:`Evidence.impossible`)."""
    return Column("impossible", (null,), compute=partial(ObservedPortion.impossible, null=null))


def reasons_column(null: str | None, reasons: Reasons) -> Column[Integers]:
    """Describe the number of the first reason that each item has for being missing; -1 for none."""
    return Column("reasons", (null,), compute=partial(_reasons, null=null, reasons=reasons))


def tokens_column(null: str | None) -> Column[Digests]:
    """Describe a digest of the questions about each item, after its own context or the ``null`` context."""
    return Column("tokens", (null,), compute=partial(_token_digests, null=null))


def decision_column(protocol: Protocol) -> Column[Decision]:
    """Describe what ``protocol`` decides, which all metrics of probabilities of one score share."""
    deciding = deciding_protocol(protocol)
    return Column(
        "decision", (deciding,), compute=partial(COMBINERS[protocol.reading].decision, deciding)
    )


def bytes_column(protocol: Protocol) -> Column[Floats]:
    """Describe the bytes of every choice, as the score of ``protocol`` counts them."""
    length = bytes_bare if protocol.score == "byte_mean_bare" else token_bytes
    return Column(
        "bytes", (protocol.score,), compute=lambda portion: length(portion.continuations())
    )


def lacks_column(protocol: Protocol) -> Column[Codes]:
    """Describe what each item lacks for the score of ``protocol``, as places in ``LACKS``."""
    axes = protocol.score, protocol.null
    return Column("lacks", axes, compute=lambda portion: portion.lacks(*axes))


def sensitivity_column(score: str, null: str | None, outside: str) -> Column[Floats]:
    """Describe the units of the score per nat of numeric noise (:meth:`Evidence.sensitivity`)."""
    axes = score, null, outside
    return Column("sensitivity", axes, compute=lambda portion: portion.sensitivity(*axes))


@dataclass(frozen=True, slots=True)
class MissingReason:
    """A reason, the ``count`` of items (or rows of the data) it holds for, and one of them.

    Where they have other numbers, ``reason`` says from which to which.
    """

    reason: str
    count: int
    example: str


class Reasons:
    """Numbers for reasons, counted from 0."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}
        self._varying: list[list[tuple[str, str]]] = []

    def number(self, reason: str, item: str = "") -> int:
        """The number of ``reason``, in which the id of its own ``item`` does not count."""
        text = reason.replace(item, _ANY) if item else reason
        values = _VARYING.findall(text)
        number = self._numbers.setdefault(tuple(_VARYING.split(text)), len(self._numbers))
        if number == len(self._varying):
            self._varying.append([(value, value) for value in values])
        else:
            self._varying[number] = [
                _widened(*edges, value)
                for edges, value in zip(self._varying[number], values, strict=True)
            ]
        return number

    def text(self, number: int) -> str:
        """The reason of that number, with the range of every number in it that differs."""
        fixed = next(parts for parts, other in self._numbers.items() if other == number)
        shown = [low if low == high else f"{low} to {high}" for low, high in self._varying[number]]
        return "".join(part + value for part, value in zip(fixed, [*shown, ""], strict=True))


def counted(reasons: Iterable[tuple[str, str]]) -> tuple[MissingReason, ...]:
    """From (reason, which row) to the reasons, the most common first."""
    numbers, examples, counts = Reasons(), dict[int, str](), Counter[int]()
    for reason, row in reasons:
        number = numbers.number(reason)
        counts[number] += 1
        examples.setdefault(number, row)
    return tuple(
        MissingReason(numbers.text(number), count, examples[number])
        for number, count in counts.most_common()
    )


def _reasons(portion: ObservedPortion, null: str | None, reasons: Reasons) -> Integers:
    """The number of the first reason that each item has for being missing, int64 [items]; -1 for none."""
    numbers = np.full(len(portion.items), -1, dtype=np.int64)
    ids = portion.item_table["item"]
    for place, reason in portion.reasons(null):
        if numbers[place] < 0:
            numbers[place] = reasons.number(reason, ids[place].as_py())
    return numbers


def _token_digests(portion: ObservedPortion, null: str | None) -> npt.NDArray[np.void]:
    """A digest per item, of its id and of every question about it: [items] of 16 bytes.

    The key of a question is made of its kind and the ids of its tokens, so neither the model's weights nor their type
    count.
    """
    return row_digests(row_bytes(portion.item_table["item"]), portion.questions(null))


def _joined(chunks: Sequence[Any]) -> Any:
    """The column of all portions from those of each, in order.

    Of two-dimensional arrays a portion can have fewer rows than another; it is filled up with NaN.
    """
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
            return {key: _joined([chunk[key] for chunk in chunks]) for key in chunks[0]}
        case np.ndarray(ndim=2):
            height = max(len(chunk) for chunk in chunks)
            padding = [((0, height - len(chunk)), (0, 0)) for chunk in chunks]
            padded = [
                np.pad(chunk, pad, constant_values=np.nan)
                for chunk, pad in zip(chunks, padding, strict=True)
            ]
            return np.concatenate(padded, axis=1)
        case _:
            return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


_VARYING = re.compile(
    r"""(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|(?<!\w)"(?:[^"\\]|\\.)*"(?!\w)|(?<![\w.#])\d+(?:\.\d+)?(?![\w#])"""
)
"""A quoted text or a number, which can differ from item to item."""

_ANY = "…"
"""Stands for texts that differ."""


def _widened(low: str, high: str, value: str) -> tuple[str, str]:
    if value[0] in "'\"" or low == _ANY:
        return (low, high) if value == low else (_ANY, _ANY)
    return (value if float(value) < float(low) else low), (
        value if float(value) > float(high) else high
    )


def _prepare_of(signature: str) -> str:
    """The axis ``prepare`` of a protocol that is spelled so; empty where it was not known yet."""
    return next(
        (
            part.removeprefix("prepare:")
            for part in signature.split("|")
            if part.startswith("prepare:")
        ),
        "",
    )


def _read_run_tables(folder: Path, manifest: Manifest, adding: Mapping[str, int]) -> RunTables:
    """The tables of the run folder that ``manifest`` describes.  Raises StoreError when one is missing or damaged."""
    requests, spans, observations = (
        read_blocks(folder, manifest.blocks, table)
        for table in ("requests", "spans", "observations")
    )
    return RunTables(
        items=read_items(folder, manifest),
        requests=requests,
        spans=spans,
        observations=observations.combine_chunks(),
        adding=adding,
    )


def _read_portion_tables(
    folder: Path,
    portion: Portion,
    items: pa.Table,
    elsewhere: pa.Table,
    adding: Mapping[str, int],
    texts: bool,
) -> RunTables:
    """The tables of a ``portion`` of the run whose ``items`` (:mod:`choicewise.results.tables`) are given.

    ``elsewhere``: observations that lie in other portions.  ``texts``: whether contexts are read, too, which are longer
    than everything else together.  The files were checked before.
    """
    own = items.take(pa.array(portion.items))
    left_out = () if texts else ("context",)
    requests, spans = (
        _rows(folder, portion, name, "item", own["item"], left_out)
        for name in ("requests", "spans")
    )
    keys = named(spans)
    observations = _rows(folder, portion, "observations", "key", pa.chunked_array([keys]))
    if len(elsewhere):
        lacking = keys.filter(pc.invert(pc.is_in(keys, observations["key"])))
        observations = pa.concat_tables(
            [observations, elsewhere.filter(pc.is_in(elsewhere["key"], lacking))]
        )
    return RunTables(
        items=own,
        requests=requests,
        spans=spans,
        observations=observations.combine_chunks(),
        adding=adding,
    )


def _read_portion_requests(
    folder: Path, portion: Portion, items: pa.Table, adding: Mapping[str, int]
) -> RunTables:
    """The same with the requests and their texts alone, and nothing that was observed."""
    own = items.take(pa.array(portion.items))
    requests = _rows(folder, portion, "requests", "item", own["item"])
    return RunTables(
        items=own,
        requests=requests,
        spans=SPANS.empty_table(),
        observations=OBSERVATIONS.empty_table(),
        adding=adding,
    )


def _rows(
    folder: Path,
    portion: Portion,
    name: str,
    column: str,
    values: pa.ChunkedArray | pa.Array,
    left_out: Sequence[str] = (),
) -> pa.Table:
    """The rows of one table; of blocks that hold other items, too, only those with one of ``values`` in ``column``."""
    schema = pa.schema([field for field in SCHEMAS[name] if field.name not in left_out])
    values = values.combine_chunks()
    tables = [schema.empty_table()]
    for block in portion.blocks:
        path = block_file(folder, block, name)
        if block.name in portion.inside:
            tables.append(read_columns(path, SCHEMAS[name], schema.names))
        else:
            batches = read_batches(path, SCHEMAS[name], schema.names)
            tables += [
                pa.Table.from_batches([batch.filter(pc.is_in(batch[column], values))])
                for batch in batches
            ]
    return pa.concat_tables(tables[1:] or tables)


def _nothing(items: pa.Table, adding: Mapping[str, int]) -> RunTables:
    """No items of a run with such ``items``, and nothing observed."""
    requests, spans, observations = (
        schema.empty_table() for schema in (REQUESTS, SPANS, OBSERVATIONS)
    )
    return RunTables(
        items=items.slice(0, 0),
        requests=requests,
        spans=spans,
        observations=observations,
        adding=adding,
    )
