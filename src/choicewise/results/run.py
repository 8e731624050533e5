"""A run folder read back: what was observed, and everything that follows from it without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from shlex import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import UsageError
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import parse_signature
from choicewise.records.manifest import Manifest
from choicewise.records.tables import FLOAT32
from choicewise.requests.schedule import list_asks
from choicewise.results.distribution import distribution_table
from choicewise.results.evidence import CORRECTING, Tables
from choicewise.results.measurement import Measurement, measure
from choicewise.results.rows import Row, rows
from choicewise.scoring.ragged import row_of
from choicewise.store.blocks import read_blocks
from choicewise.store.items import read_items
from choicewise.store.manifest import read_manifest


def open_run(folder: str | Path) -> Run:
    """The run in ``folder``.  Raises StoreError when it is no run folder, damaged, or newer than this version."""
    return Run(Path(folder), read_manifest(Path(folder)))


class Run:
    """One model's observations on one dataset.  ``manifest`` says what was measured and how."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._protocols = {name: parse_signature(text) for name, text in manifest.protocols.items()}

    @property
    def protocols(self) -> dict[str, Protocol]:
        """Name → protocol, in the order they were asked for."""
        return dict(self._protocols)

    def under(self, protocols: Mapping[str, Protocol] | None) -> Run:
        """The same observations under other protocols than those the run was made for; None leaves it as it is.

        Raises UsageError when one of them asks what the run did not ask.
        """
        if protocols is None:
            return self
        other = copy(self)
        other._protocols = self._asked(protocols)
        return other

    def choose(self, names: Sequence[str] | None) -> Run:
        """The run under those of its protocols that are named, or what the names mean to the catalogue; None: all.

        Raises ProtocolError for a name nobody knows, and UsageError as :meth:`under`.
        """
        if not names:
            return self
        chosen: dict[str, Protocol] = {}
        for name in names:
            chosen |= {name: self._protocols[name]} if name in self._protocols else resolve(name)
        return self.under(chosen)

    @cached_property
    def tables(self) -> Tables:
        """The four tables of the folder, checked against the manifest."""
        blocks = self.manifest.blocks
        items = read_items(self.folder, self.manifest)
        requests, spans = read_blocks(self.folder, blocks, "requests"), read_blocks(self.folder, blocks, "spans")
        return Tables(items, requests, spans, read_blocks(self.folder, blocks, "observations"))

    def measure(self) -> Iterator[Measurement]:
        """Scores, decisions and values under each of the run's protocols."""
        return measure(self.tables, self.protocols, self.noise)

    @property
    def noise(self) -> float | None:
        """The greatest difference between two ways of computing a log-likelihood, in nats; None if not measured."""
        check = self.manifest.engine.selfcheck
        return None if check is None else max(check.difference, check.floor)

    def observations(self) -> pa.Table:
        """One row per choice, request and null context, with the tokens, log-probabilities (nats) and ranks seen.

        They are what scores are made of: of an item that a float32 copy of the model settled, its answers, under keys
        that end in ``:float32``.  ``correction_first`` and ``correction_last`` are the nats that a boundary policy adds
        at the first and the last token, 0 where it corrects nothing.
        """
        spans, seen, settled = self.tables.spans, self.tables.observations.combine_chunks(), self.tables.taken
        for column in ("key", *CORRECTING):
            better = pc.binary_join_element_wise(spans[column], FLOAT32, "")
            place = spans.schema.get_field_index(column)
            spans = spans.set_column(place, spans.schema.field(column), pc.if_else(settled, better, spans[column]))
        found = seen.take(pc.index_in(spans["key"].combine_chunks(), seen["key"].combine_chunks()))
        for column in seen.schema.names[1:]:
            spans = spans.append_column(seen.schema.field(column), found[column])
        for column, (first, wide) in zip(("correction_first", "correction_last"), self.tables.corrections, strict=True):
            spans = spans.append_column(column, pa.array(np.where(settled, wide, first)))
        return spans

    def scores(self) -> pa.Table:
        """One row per protocol, item and choice: ``protocol, item, choice, score, prediction, credit``."""
        parts = [_score_rows(measured) for measured in self.measure() if measured.scores is not None]
        return pa.concat_tables(parts) if parts else _SCORES.empty_table()

    def distribution(self, protocol: str, temperature: float = 1.0) -> pa.Table:
        """Choice probabilities: one row per item and choice, ``item, subject, choice, score, softmax, winner, human``.

        ``softmax`` of the scores over ``temperature``; ``winner``: all to the best score, ties split; ``human``: the
        counts in the items' field ``human_counts``.  Raises UsageError when the run has no such protocol.
        """
        for measured in self.measure():
            if measured.name == protocol:
                return distribution_table(measured, temperature)
        raise UsageError(f"{self.folder} has no protocol {protocol!r}; it has {', '.join(self.protocols)}")

    def report(self, by: str | None = None, interval: str | None = None) -> pa.Table:
        """One row per protocol and group, with the columns of `choicewise report --json`."""
        return pa.Table.from_pylist([row.as_json() for row in self.rows(by, interval)])

    def rows(self, by: str | None = None, interval: str | None = None) -> list[Row]:
        """The rows of the report.

        ``by``: an aggregation (micro, macro, categories, subcategories, subjects).  ``interval``: wilson,
        beta-binomial or clustered (by subject).
        """
        about, measured = self.manifest, list(self.measure())
        return [row for each in measured for row in rows(about, each, by, interval, measured)]

    def _asked(self, protocols: Mapping[str, Protocol]) -> dict[str, Protocol]:
        """The protocols on the split of this run; UsageError naming what was not asked, and the line that asks it."""
        splits = list(dict.fromkeys(block.split for block in self.manifest.blocks))
        settled = {
            name: replace(recipe, split=splits[0]) if recipe.split is None and len(splits) == 1 else recipe
            for name, recipe in protocols.items()
        }
        asked = {ask for block in self.manifest.blocks for ask in block.asks}
        lacking = [name for name, recipe in settled.items() if {ask.name for ask in list_asks({name: recipe})} - asked]
        if lacking:
            model, data, chosen = self.manifest.model.name, self.manifest.dataset.name, self.manifest.selection
            options = [f"--protocol {quote(name)}" for name in lacking]
            options += [f"--subject {quote(subject)}" for subject in chosen.subjects or ()]
            options += [] if chosen.limit is None else [f"--limit {chosen.limit}"]
            raise UsageError(
                f"{self.folder} was not asked what {', '.join(lacking)} asks; add it to the run, with the paths of "
                f"{model} and {data}: choicewise run --model PATH --data PATH {' '.join(options)} "
                f"--out {quote(str(self.folder))}"
            )
        return settled


_SCORES = pa.schema(
    [
        ("protocol", pa.string()),
        ("item", pa.string()),
        ("choice", pa.int16()),
        ("score", pa.float64()),
        ("prediction", pa.int64()),
        ("credit", pa.float64()),
    ]
)


def _score_rows(measured: Measurement) -> pa.Table:
    evidence, decisions = measured.evidence, measured.decisions
    item = row_of(evidence.item_offsets)
    columns = {
        "protocol": pa.array([measured.name] * len(item), pa.string()),
        "item": pa.array(np.asarray(evidence.ids, dtype=object)[item], pa.string()),
        "choice": pa.array(np.arange(len(item)) - evidence.item_offsets[:-1][item], pa.int16()),
        "score": pa.array(measured.scores, pa.float64()),
        "prediction": pa.array(decisions.prediction[item], pa.int64()),
        "credit": pa.array(decisions.credit[item], pa.float64()),
    }
    return pa.table(columns, schema=_SCORES)
