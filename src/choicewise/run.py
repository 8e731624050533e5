"""A run folder read back: what was observed, and everything that follows from it without a model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import parse_signature
from choicewise.report.evidence import Tables
from choicewise.report.measure import Measurement, measure
from choicewise.report.rows import Row, rows
from choicewise.scoring.ragged import row_of
from choicewise.store.blocks import read_blocks
from choicewise.store.manifest import Manifest, read_manifest
from choicewise.store.schema import ITEMS


def open_run(folder: str | Path) -> Run:
    """The run in ``folder``.  Raises StoreError when it is no run folder, damaged, or newer than this version."""
    return Run(Path(folder), read_manifest(Path(folder)))


class Run:
    """One model's observations on one dataset.  ``manifest`` says what was measured and how."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @property
    def protocols(self) -> dict[str, Protocol]:
        """Name → protocol, in the order they were asked for."""
        return {name: parse_signature(text) for name, text in self.manifest.protocols.items()}

    @cached_property
    def tables(self) -> Tables:
        """The four tables of the folder, checked against the manifest."""
        blocks = self.manifest.blocks
        items = pq.read_table(self.folder / "items.parquet", schema=ITEMS)
        requests, spans = read_blocks(self.folder, blocks, "requests"), read_blocks(self.folder, blocks, "spans")
        return Tables(items, requests, spans, read_blocks(self.folder, blocks, "observations"))

    def measure(self, protocols: dict[str, Protocol] | None = None) -> Iterator[Measurement]:
        """Scores, decisions and values of the run's own protocols, or of others that ask the same."""
        return measure(self.tables, self.protocols if protocols is None else protocols)

    def observations(self) -> pa.Table:
        """One row per choice, request and null context, with the tokens, log-probabilities (nats) and ranks seen."""
        spans, seen = self.tables.spans, self.tables.observations.combine_chunks()
        found = seen.take(pc.index_in(spans["key"].combine_chunks(), seen["key"].combine_chunks()))
        for column in seen.schema.names[1:]:
            spans = spans.append_column(seen.schema.field(column), found[column])
        return spans

    def scores(self) -> pa.Table:
        """One row per protocol, item and choice: ``protocol, item, choice, score, prediction, credit``."""
        parts = [_score_rows(measured) for measured in self.measure() if measured.scores is not None]
        return pa.concat_tables(parts) if parts else _SCORES.empty_table()

    def report(self, by: str | None = None) -> pa.Table:
        """One row per protocol and group, with the columns of `choicewise report --json`."""
        return pa.Table.from_pylist([row.as_json() for row in self.rows(by)])

    def rows(self, by: str | None = None) -> list[Row]:
        """The rows of the report; ``by`` is an aggregation (micro, macro, categories, subcategories, subjects)."""
        about = self.manifest
        return [row for measured in self.measure() for row in rows(about, measured, by)]


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
    item = row_of(evidence.items)
    columns = {
        "protocol": pa.array([measured.name] * len(item), pa.string()),
        "item": pa.array(np.asarray(evidence.ids, dtype=object)[item], pa.string()),
        "choice": pa.array(np.arange(len(item)) - evidence.items[:-1][item], pa.int16()),
        "score": pa.array(measured.scores, pa.float64()),
        "prediction": pa.array(decisions.prediction[item], pa.int64()),
        "credit": pa.array(decisions.credit[item], pa.float64()),
    }
    return pa.table(columns, schema=_SCORES)
