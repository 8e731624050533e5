"""Open a run from its folder, and read its observations, scores and rows of a report."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.dataset import html_table
from choicewise.errors import ProtocolError, StoreError, UsageError
from choicewise.protocols.between import split_changes
from choicewise.protocols.catalogue import resolve, variant_of
from choicewise.protocols.protocol import Protocol, axis_differences, parse_signature
from choicewise.records import KEYS, BlockRecord, Manifest
from choicewise.requests.blocks import list_request_specs
from choicewise.results.evidence import NO_NUMBER, Evidence, RunEvidence, read_texts
from choicewise.results.measurement import Measurement, choice_probabilities, measure
from choicewise.results.number import Number
from choicewise.results.rows import rows
from choicewise.scoring.observed import row_of
from choicewise.scoring.portion import RunTables
from choicewise.store.folder import read_manifest
from choicewise.util.text import counted


def open_run(folder: str | Path) -> Run:
    """Return the run in ``folder``.

    Raises StoreError if it is no run folder, damaged, or newer than this version.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    return Run(RunEvidence(folder, manifest), asked_protocols(folder, manifest))


@dataclass(frozen=True)
class Meaning:
    """Hold a protocol that a name means in a run.

    ``meant``: the name in the catalogue.  ``name``: of the run's variant, if it differs.
    """

    meant: str
    name: str
    protocol: Protocol


class Run:
    """Hold one model's observations on one dataset, under some protocols.

    ``folder``: where the run is kept.  ``manifest``: what was measured and how.  ``protocols``: by
    name, in the order of the command that made the run.
    """

    chart: ClassVar[Callable[..., Any]]
    """Draw a chart in a notebook.  The package's front binds it: charts import this room."""

    def __init__(self, evidence: RunEvidence, protocols: Mapping[str, Protocol]) -> None:
        self.evidence = evidence
        self.protocols = dict(protocols)
        self.folder: Path = evidence.folder
        self.manifest: Manifest = evidence.manifest

    def __repr__(self) -> str:
        facts = ", ".join(f"{value} {name}" for name, value in self._sizes().items())
        state = "complete" if self.manifest.complete else "not complete"
        model = self.manifest.model.name
        dataset = self.manifest.dataset.name
        return f"<Run of {model!r} on {dataset!r}: {facts}, {state}, in {str(self.folder)!r}>"

    def _repr_html_(self) -> str:
        facts = {
            "model": self.manifest.model.name,
            "dataset": self.manifest.dataset.name,
            **self._sizes(),
            "complete": "yes" if self.manifest.complete else "no",
        }
        return html_table(str(self.folder), facts)

    def _sizes(self) -> dict[str, int]:
        return {"items": count_items(self.manifest.blocks), "protocols": len(self.protocols)}

    @property
    def tables(self) -> RunTables:
        """The four tables of the folder in full, checked; they can take gigabytes."""
        return self.evidence.tables

    @property
    def is_whole(self) -> bool:
        """Check that this is the run under the protocols that it was made for."""
        return list(self.protocols) == list(self.manifest.protocols)

    def under(self, protocols: Mapping[str, Protocol]) -> Run:
        """Return the run's observations under other ``protocols``, on the split of the run.

        Raises UsageError, with the command that adds it, if a protocol needs requests that the run
        did not make.
        """
        lacking = self.lacking(protocols)
        if lacking:
            raise UsageError(self._lacking_message(lacking))
        return Run(self.evidence, self.on_its_split(protocols))

    def _lacking_message(self, lacking: Sequence[str]) -> str:
        """Say which protocols the run was not made for, and why or how to add them."""
        names = ", ".join(lacking)
        message = f"{self.folder} has no {names}"
        for name in lacking:
            if name in self.manifest.refused:
                return f"{message}; the run refused it: {self.manifest.refused[name]}"

        selection = self.manifest.selection
        same = f"model {self.manifest.model.name}; data {self.manifest.dataset.name}"
        if selection.subjects:
            same += f"; subjects {', '.join(selection.subjects)}"
        if selection.limit:
            same += f"; limit {selection.limit}"
        if selection.sample:
            same += f"; sample {selection.sample}, seed {selection.seed}"
        return f"{message}; to add it, evaluate {names} into the same folder, with {same}"

    def lacking(self, protocols: Mapping[str, Protocol]) -> list[str]:
        """Return the names of the protocols that need requests which the run did not make."""
        made: set[str] = set()
        for block in self.manifest.blocks:
            made.update(block.asks)
        names = []
        for name, protocol in self.on_its_split(protocols).items():
            needed = {spec.name for spec in list_request_specs({name: protocol})}
            if not needed <= made:
                names.append(name)
        return names

    def on_its_split(self, protocols: Mapping[str, Protocol]) -> dict[str, Protocol]:
        """Return ``protocols``; those without a split get the run's, if it has a single one."""
        splits = {block.split for block in self.manifest.blocks}
        if len(splits) != 1:
            return dict(protocols)
        (split,) = splits
        on_split = {}
        for name, protocol in protocols.items():
            if protocol.split is None:
                protocol = replace(protocol, split=split)
            on_split[name] = protocol
        return on_split

    def choose(self, names: Sequence[str] | None) -> Run:
        """Return the run under the protocols of these names; under all of its protocols for None.

        A name is that of a protocol of the run, or means one or several in the catalogue.  If the
        run lacks one of these and has a single variant of it (``mmlu/original@shots=0`` for
        ``mmlu/original``), that is taken, with a warning.  Raises ProtocolError for an unknown
        name, and UsageError for a name with several variants, and as :meth:`under` does.
        """
        (chosen,) = choose_for_each([self], names)
        return chosen

    @cached_property
    def measurements(self) -> dict[str, Measurement]:
        """The scores, decisions and values under each of the run's protocols, by name."""
        return measure(self.protocols, self.evidence, self.noise, self.manifest.dataset.categories)

    @property
    def unanswered(self) -> list[str]:
        """The ids of the items about which the model answered with NaN, sorted."""
        ids: set[str] = set()
        for evidence in {measured.evidence for measured in self.measurements.values()}:
            is_unanswered = pa.array(evidence.column(NO_NUMBER))
            ids.update(evidence.item_table["item"].filter(is_unanswered).to_pylist())
        return sorted(ids)

    def release(self) -> None:
        """Forget computed values; a later use reads the folder again."""
        self.evidence.release()
        self.__dict__.pop("measurements", None)

    @property
    def noise(self) -> float | None:
        """The difference between two computations of a token's log-probability, in nats.

        It is None if it was not measured.
        """
        check = self.manifest.engine.selfcheck
        return None if check is None else check.noise

    def observations(self) -> pa.Table:
        """Return a row per choice, request and null context, with tokens, nats and ranks.

        ``correction_first`` and ``correction_last``: nats that a boundary policy adds at the first
        and the last token, 0 if it corrects nothing.  ``missing``: why there is no request or no
        answer.  ``at_most``: the log-probabilities are upper bounds.
        """
        tables = self.tables
        observations = tables.observations
        columns = {name: tables.spans[name] for name in tables.spans.column_names}
        for name, numbers in zip(KEYS, tables.answers, strict=True):
            # A span without an answer keeps the key of what was sent.
            keys = observations["key"].take(pa.array(numbers, mask=numbers < 0))
            columns[name] = pc.coalesce(keys, columns[name])

        numbers, *_ = tables.answers
        answers = observations.drop_columns(["key"]).take(pa.array(numbers, mask=numbers < 0))
        # The span says why there is no request, the observation why there is no answer.
        missing = pc.coalesce(columns.pop("missing"), answers["missing"])
        for name in answers.column_names:
            columns[name] = answers[name]
        columns["missing"] = missing

        first, last = tables.corrections(tables.spans, tables.answers)
        columns["correction_first"] = pa.array(first)
        columns["correction_last"] = pa.array(last)
        return pa.table(columns)

    def scores(self, protocol: str | None = None) -> pa.Table:
        """Return a row per protocol, item and choice, with score, prediction, credit and ``low``.

        ``low``: the smallest value of a score that is known as an upper bound; else the score.
        ``protocol``: the only one, or several if :meth:`choose` knows the name of several; raises
        its errors.
        """
        chosen = self if protocol is None else self.choose([protocol])
        tables = [_SCORES.empty_table()]
        choices: dict[Evidence, Mapping[str, pa.Array]] = {}
        for measured in chosen.measurements.values():
            if measured.scores is None:
                continue
            evidence = measured.evidence
            # Protocols with the same prompt share the evidence, and its columns of all choices.
            if evidence not in choices:
                choices[evidence] = evidence.choices
            item = row_of(evidence.item_offsets)
            columns = {
                "protocol": pa.repeat(measured.name, len(item)),
                "item": choices[evidence]["item"],
                "choice": choices[evidence]["choice"],
                "score": measured.scores,
                "prediction": measured.prediction[item],
                "credit": measured.credit[item],
                "low": measured.low_scores,
            }
            tables.append(pa.table(columns, schema=_SCORES))
        return pa.concat_tables(tables)

    def distribution(self, protocol: str, temperature: float = 1.0) -> pa.Table:
        """Return choice probabilities: ``item, subject, choice, score, softmax, winner, human``.

        There is a row per item and choice.  ``softmax``: of the scores over ``temperature``.
        ``winner``: all to the best score, ties split.  ``human``: the counts in the items' field
        ``human_counts``, null if the data has none.  Raises UsageError if the run has no such
        protocol, or if it reads generated text and has no scores.
        """
        name: str | None = protocol
        if protocol not in self.protocols:
            name = variant_of(protocol, self.protocols, str(self.folder))
        if name is None:
            raise UsageError(
                f"{self.folder} has no protocol {protocol!r}; it has {', '.join(self.protocols)}"
            )
        return choice_probabilities(self.measurements[name], temperature)

    def report(self, by: str | None = None, interval: str | None = None) -> pa.Table:
        """Return a row per protocol and group, with the columns of `choicewise report --json`."""
        return pa.Table.from_pylist([row.as_json() for row in self.rows(by, interval)])

    def rows(self, by: str | None = None, interval: str | None = None) -> list[Number]:
        """Return the rows of the report.

        ``by``: an aggregation (micro, macro, categories, subcategories, subjects).  ``interval``:
        wilson, beta-binomial or clustered (by subject).
        """
        measurements = list(self.measurements.values())
        # The texts of all prompts are read in one pass over the folder.
        read_texts(self.evidence, [protocol.prompt_digest for protocol in self.protocols.values()])
        report: list[Number] = []
        for measured in measurements:
            report += rows(self.manifest, measured, by, interval, measurements)
        return report


def meanings_of(name: str, run: Run) -> list[Meaning]:
    """Return the protocols that ``name`` means in the run (:meth:`Run.choose`).

    They may need requests that the run did not make.
    """
    if name in run.protocols:
        return [Meaning(name, name, run.protocols[name])]
    where = str(run.folder)
    try:
        catalogued = resolve(name)
    except ProtocolError:
        # The catalogue has no names of files and of other tools' tasks.
        variant = variant_of(name, run.protocols, where)
        if variant is None:
            raise
        return [Meaning(name, variant, run.protocols[variant])]
    lacking = set(run.lacking(catalogued))
    meanings = []
    for meant, protocol in catalogued.items():
        variant = None
        if meant in lacking and meant not in run.protocols:
            variant = variant_of(meant, run.protocols, where)
        if variant is not None and _axes(variant) & (_axes(name) - _axes(meant)):
            # The name sets this axis to the value that it has by itself; the variant changes it.
            variant = None
        taken = variant or meant
        meanings.append(Meaning(meant, taken, run.protocols.get(taken, protocol)))
    return meanings


def _axes(name: str) -> set[str]:
    """Return the axes that the name of a protocol sets."""
    _, changes = split_changes(name)
    return {change.partition("=")[0] for change in changes.split(",") if change}


def warn_of_variants(meanings_by_folder: Mapping[Path, Sequence[Meaning]]) -> None:
    """Warn once if names mean variants of folders of runs, not what the catalogue means by them."""
    folders_by_use: dict[str, list[Path]] = {}
    for folder, meanings in meanings_by_folder.items():
        for meaning in meanings:
            if meaning.name != meaning.meant:
                use = f"{meaning.name} for {meaning.meant}"
                folders_by_use.setdefault(use, []).append(folder)
    if not folders_by_use:
        return
    first, *others = folders_by_use
    folders = folders_by_use[first]
    note = f"using {first}, its only variant in {folders[0]}"
    if len(folders) > 1:
        note += f" and {counted(len(folders) - 1, 'other run')}"
    if others:
        note += f"; {len(others)} others likewise"
    warnings.warn(note, stacklevel=3)


def choose_for_each(runs: Sequence[Run], names: Sequence[str] | None) -> list[Run]:
    """Return each of the ``runs`` under the protocols that ``names`` mean in it.

    One warning is about the variants that are taken in all of them (:meth:`Run.choose`).
    """
    if not names:
        return list(runs)
    chosen = []
    meanings_by_folder: dict[Path, list[Meaning]] = {}
    for run in runs:
        meanings = meanings_by_folder.setdefault(run.folder, [])
        for name in names:
            meanings += meanings_of(name, run)
        chosen.append(run.under({meaning.name: meaning.protocol for meaning in meanings}))
    warn_of_variants(meanings_by_folder)
    return chosen


def choose_in_all(runs: Sequence[Run], names: Sequence[str] | None) -> list[Run]:
    """Return the ``runs`` under the protocols of these ``names`` (:meth:`Run.choose`).

    Raises UsageError, with the axes, if runs on the same data have other variants of a name.
    """
    first_by_data: dict[str, Run] = {}
    for run in runs:
        first = first_by_data.setdefault(run.manifest.dataset.digest, run)
        for name in names or ():
            _refuse_other_variants(first, run, name)
    return choose_for_each(runs, names)


def _refuse_other_variants(left: Run, right: Run, name: str) -> None:
    """Raise UsageError if ``name`` means other variants in the two runs."""
    pairs = zip(meanings_of(name, left), meanings_of(name, right), strict=False)
    for left_meaning, right_meaning in pairs:
        if left_meaning.name == right_meaning.name:
            continue
        lines = []
        differences = axis_differences(left_meaning.protocol, right_meaning.protocol)
        for axis, left_value, right_value in differences:
            lines.append(f"{axis}: {left_value} and {right_value}")
        left_has = f"{left.folder} has {left_meaning.name}"
        right_has = f"{right.folder} has {right_meaning.name}"
        raise UsageError(f"not comparable: {left_has}, and {right_has}", lines)


def count_items(blocks: Sequence[BlockRecord]) -> int:
    """Count the items of the blocks; an item of several blocks counts once."""
    stops: dict[tuple[str, str], int] = {}
    count = 0
    for block in sorted(blocks, key=lambda block: (block.split, block.subject, block.start)):
        subject = block.split, block.subject
        # A continued run can have blocks that overlap earlier ones.
        counted_to = stops.get(subject, 0)
        count += max(block.stop - max(block.start, counted_to), 0)
        stops[subject] = max(block.stop, counted_to)
    return count


def asked_protocols(folder: Path, manifest: Manifest) -> dict[str, Protocol]:
    """Return the run's protocols by name.

    Raises StoreError if a signature was written by a version that has other axes or values.
    """
    protocols = {}
    for name, text in manifest.protocols.items():
        try:
            protocols[name] = parse_signature(text)
        except ProtocolError as error:
            version = manifest.versions.get("choicewise", "another version")
            raise StoreError(
                f"{folder} was made by Choicewise {version} with protocol {name!r}, which "
                f"this version can't read ({error}); use that version"
            ) from error
    return protocols


def refused_lines(refused: Mapping[str, str]) -> list[str]:
    """Return a line per reason, with the names of its protocols; ``refused``: reasons by name."""
    lines = []
    for reason, names in by_reason(refused).items():
        lines.append(f"{_refused_names(names)}: {reason}")
    return lines


def by_reason(refused: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of the refused protocols by reason; ``refused``: the reasons by name."""
    reasons: dict[str, list[str]] = {}
    for name, reason in refused.items():
        reasons.setdefault(reason, []).append(name)
    return reasons


_MOST_NAMES = 8
"""Protocols that a line names; the others are counted."""


def _refused_names(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"protocol {names[0]} is refused"
    listed = ", ".join(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        listed += f" and {len(names) - _MOST_NAMES} more"
    return f"{len(names)} protocols are refused ({listed})"


_SCORES = pa.schema(
    {"protocol": pa.string(), "item": pa.string(), "choice": pa.int16()}
    | {"score": pa.float64(), "prediction": pa.int64(), "credit": pa.float64(), "low": pa.float64()}
)
