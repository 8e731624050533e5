"""A run, opened from its folder: observations, scores, rows of a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.dataset import html_table
from choicewise.errors import ProtocolError, StoreError, UsageError
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol, parse_signature
from choicewise.records import KEYS, BlockRecord, Manifest
from choicewise.requests.blocks import list_request_specs
from choicewise.results.evidence import NO_NUMBER, RunEvidence, read_texts
from choicewise.results.measurement import Measurement, choice_probabilities, measure
from choicewise.results.rows import Row, rows
from choicewise.results.spans import RunTables
from choicewise.scoring.observed import row_of
from choicewise.store.folder import read_manifest


def open_run(folder: str | Path) -> Run:
    """The run in ``folder``.  Raises StoreError when it is no run folder, damaged, or newer than this version."""
    manifest = read_manifest(Path(folder))
    return Run(RunEvidence(Path(folder), manifest), asked_protocols(Path(folder), manifest))


class Run:
    """One model's observations on one dataset, under some protocols.

    ``folder``: where the run is kept; ``manifest``: what was measured and how; ``protocols``: by name, in the order
    they were asked for.
    """

    chart: ClassVar[Callable[..., Any]]
    """A chart that a notebook shows; the package's front binds it, as charts import this room and not it them."""

    def __init__(self, evidence: RunEvidence, protocols: Mapping[str, Protocol]) -> None:
        self.evidence, self.protocols = evidence, dict(protocols)
        self.folder: Path = evidence.folder
        self.manifest: Manifest = evidence.manifest

    def __repr__(self) -> str:
        facts = ", ".join(f"{value} {name}" for name, value in self._sizes().items())
        state = "complete" if self.manifest.complete else "not complete"
        model, dataset = self.manifest.model.name, self.manifest.dataset.name
        return f"<Run of {model!r} on {dataset!r}: {facts}, {state}, in {str(self.folder)!r}>"

    def _repr_html_(self) -> str:
        facts = {
            "model": self.manifest.model.name,
            "dataset": self.manifest.dataset.name,
            **self._sizes(),
        }
        return html_table(
            str(self.folder), facts | {"complete": "yes" if self.manifest.complete else "no"}
        )

    def _sizes(self) -> dict[str, int]:
        return {"items": count_items(self.manifest.blocks), "protocols": len(self.protocols)}

    @property
    def tables(self) -> RunTables:
        """The four tables of the folder in full, checked against the manifest; they can take gigabytes."""
        return self.evidence.tables

    def under(self, protocols: Mapping[str, Protocol]) -> Run:
        """The same observations under other protocols than those the run was made for, on the split of the run.

        Raises UsageError when one of them asks what the run did not ask, and says what adds it to the run.
        """
        if lacking := self.lacking(protocols):
            names, selection = ", ".join(lacking), self.manifest.selection
            same = f"model {self.manifest.model.name}; data {self.manifest.dataset.name}"
            same += f"; subjects {', '.join(selection.subjects)}" if selection.subjects else ""
            same += f"; limit {selection.limit}" if selection.limit else ""
            same += (
                f"; sample {selection.sample}, seed {selection.seed}" if selection.sample else ""
            )
            if reasons := [
                self.manifest.refused[name] for name in lacking if name in self.manifest.refused
            ]:
                raise UsageError(
                    f"{self.folder} was not asked what {names} asks, as that was refused: {reasons[0]}"
                )
            advice = f"add it: evaluate {names} into the same folder, with {same}"
            raise UsageError(f"{self.folder} was not asked what {names} asks; {advice}")
        return Run(self.evidence, self.on_its_split(protocols))

    def lacking(self, protocols: Mapping[str, Protocol]) -> list[str]:
        """The names of those protocols that ask what the run did not ask."""
        known = {ask for block in self.manifest.blocks for ask in block.asks}
        recipes = self.on_its_split(protocols)
        return [
            name
            for name, recipe in recipes.items()
            if {spec.name for spec in list_request_specs({name: recipe})} - known
        ]

    def on_its_split(self, protocols: Mapping[str, Protocol]) -> dict[str, Protocol]:
        """The same protocols; those that name no split with the one that the run is about, if it is one."""
        splits = list(dict.fromkeys(block.split for block in self.manifest.blocks))
        return {
            name: replace(recipe, split=splits[0])
            if recipe.split is None and len(splits) == 1
            else recipe
            for name, recipe in protocols.items()
        }

    def choose(self, names: Sequence[str] | None) -> Run:
        """The run under those of its protocols that are named, or what the names mean to the catalogue; None: all.

        Raises ProtocolError for a name nobody knows, and UsageError as :meth:`under`.
        """
        if not names:
            return self
        chosen: dict[str, Protocol] = {}
        for name in names:
            chosen |= {name: self.protocols[name]} if name in self.protocols else resolve(name)
        return self.under(chosen)

    def about(self, *places: int) -> Run:
        """What the run observed of the items at these ``places`` of the item table; no more than that is read."""
        return Run(
            RunEvidence(self.folder, self.manifest, sorted(places), self.evidence.items),
            self.protocols,
        )

    @cached_property
    def measurements(self) -> dict[str, Measurement]:
        """Name → scores, decisions and values under each of the run's protocols."""
        return measure(self.protocols, self.evidence, self.noise, self.manifest.dataset.categories)

    @property
    def unanswered(self) -> list[str]:
        """The items about which the model answered with NaN."""
        asked = {measured.evidence for measured in self.measurements.values()}
        ids = [
            each.about["item"].filter(pa.array(each.column(NO_NUMBER))).combine_chunks()
            for each in asked
        ]
        return sorted(pc.unique(pa.concat_arrays(ids)).to_pylist()) if ids else []

    def release(self) -> None:
        """Forget what was computed; what needs it again reads the folder again."""
        self.evidence.release()
        self.__dict__.pop("measurements", None)

    @property
    def noise(self) -> float | None:
        """How far two ways of computing a token's log-probability differ, in nats; None if not measured."""
        check = self.manifest.engine.selfcheck
        return None if check is None else check.noise

    def observations(self) -> pa.Table:
        """One row per choice, request and null context, with the tokens, log-probabilities (nats) and ranks observed.

        ``correction_first`` and ``correction_last`` are the nats that a boundary policy adds at
        the first and the last token, 0 where it corrects nothing.  ``missing``: why nothing was asked, or not answered;
        ``at_most``: whether the log-probabilities are upper bounds.
        """
        tables, table = self.tables, self.tables.spans
        rows = [pa.array(answers, mask=answers < 0) for answers in tables.answers]
        for name, row in zip(KEYS, rows, strict=True):
            key = pc.coalesce(tables.observations["key"].take(row), table[name])
            table = table.set_column(
                table.schema.get_field_index(name), table.schema.field(name), key
            )
        answers = tables.observations.drop_columns(["key"]).take(rows[0])
        missing = pc.coalesce(table["missing"], answers["missing"])
        table = table.drop_columns(["missing"])
        for name, column in zip(answers.column_names, answers.columns, strict=True):
            table = table.append_column(
                answers.schema.field(name), missing if name == "missing" else column
            )
        for name, nats in zip(
            ("correction_first", "correction_last"), tables.corrections, strict=True
        ):
            table = table.append_column(name, pa.array(nats))
        return table

    def scores(self, protocol: str | None = None) -> pa.Table:
        """One row per protocol, item and choice: ``protocol, item, choice, score, prediction, credit, low``.

        ``low``: the lowest that the score may be, where it is known as an upper bound alone; else the score.
        ``protocol``: only this one, or these where the name means several, as :meth:`choose` does and with its errors.
        """
        chosen = self.choose(None if protocol is None else [protocol])
        scored = [
            measured for measured in chosen.measurements.values() if measured.scores is not None
        ]
        choices = {
            evidence: evidence.choices for evidence in {measured.evidence for measured in scored}
        }
        parts = (_score_rows(measured, choices[measured.evidence]) for measured in scored)
        return pa.concat_tables([_SCORES.empty_table(), *parts])

    def distribution(self, protocol: str, temperature: float = 1.0) -> pa.Table:
        """Choice probabilities: one row per item and choice, ``item, subject, choice, score, softmax, winner, human``.

        ``softmax`` of the scores over ``temperature``; ``winner``: all to the best score, ties split; ``human``: the
        counts in the items' field ``human_counts``, null where the data gives none.  Raises UsageError when the run has
        no such protocol, or one that reads generated text and has no scores.
        """
        if protocol not in self.protocols:
            raise UsageError(
                f"{self.folder} has no protocol {protocol!r}; it has {', '.join(self.protocols)}"
            )
        return choice_probabilities(self.measurements[protocol], temperature)

    def report(self, by: str | None = None, interval: str | None = None) -> pa.Table:
        """One row per protocol and group, with the columns of `choicewise report --json`."""
        return pa.Table.from_pylist([row.as_json() for row in self.rows(by, interval)])

    def rows(self, by: str | None = None, interval: str | None = None) -> list[Row]:
        """The rows of the report.

        ``by``: an aggregation (micro, macro, categories, subcategories, subjects).  ``interval``: wilson,
        beta-binomial or clustered (by subject).
        """
        measured = list(self.measurements.values())
        read_texts(self.evidence, (each.protocol.prompt_digest for each in measured))
        return [
            row for each in measured for row in rows(self.manifest, each, by, interval, measured)
        ]


def count_items(blocks: Sequence[BlockRecord]) -> int:
    """How many items the blocks are about, those of several blocks counted once."""
    stops: dict[tuple[str, str], int] = {}
    count = 0
    for block in sorted(blocks, key=lambda block: block.place):
        subject, stop = (block.split, block.subject), stops.get((block.split, block.subject), 0)
        count += max(block.stop - max(block.start, stop), 0)
        stops[subject] = max(block.stop, stop)
    return count


def asked_protocols(folder: Path, manifest: Manifest) -> dict[str, Protocol]:
    """Name → protocol.  StoreError where a signature means nothing here: another version of Choicewise wrote it."""
    protocols = {}
    for name, text in manifest.protocols.items():
        try:
            protocols[name] = parse_signature(text)
        except ProtocolError as error:
            version = manifest.versions.get("choicewise", "another version")
            raise StoreError(
                f"{folder} was made by Choicewise {version}, whose protocol {name!r} this version does not know "
                f"({error}); read it with that version"
            ) from error
    return protocols


def refused_lines(refused: Mapping[str, str]) -> list[str]:
    """``refused`` (name → reason) as a line for each reason, with the protocols' number and names."""
    return [f"{names(own)}: {reason}" for reason, own in by_reason(refused).items()]


def by_reason(refused: Mapping[str, str]) -> dict[str, list[str]]:
    """The protocols of ``refused`` (name → reason) for each reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in refused.items():
        reasons.setdefault(reason, []).append(name)
    return reasons


def names(protocols: list[str]) -> str:
    """The number of protocols, and the first of their names."""
    if len(protocols) == 1:
        return f"protocol {protocols[0]} is refused"
    more = f" and {len(protocols) - _NAMED} more" * (len(protocols) > _NAMED)
    return f"{len(protocols)} protocols are refused ({', '.join(protocols[:_NAMED])}{more})"


_SCORES = pa.schema(
    {"protocol": pa.string(), "item": pa.string(), "choice": pa.int16()}
    | {"score": pa.float64(), "prediction": pa.int64(), "credit": pa.float64(), "low": pa.float64()}
)


def _score_rows(measured: Measurement, choices: Mapping[str, pa.Array]) -> pa.Table:
    item = row_of(measured.evidence.item_offsets)
    decided = {"prediction": measured.prediction[item], "credit": measured.credit[item]}
    named = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(len(item), dtype=np.int8)), [measured.name]
    )
    scored = {"score": measured.scores, "low": measured.low_scores}
    columns = {**choices, "protocol": named.cast(pa.string()), **scored, **decided}
    return pa.table({name: columns[name] for name in _SCORES.names}, schema=_SCORES)


_NAMED = 8
"""Protocols that a line names; of more it says how many there are."""
