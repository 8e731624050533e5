"""Lay out models by benchmarks, one number each, with a second table of protocols and signatures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from choicewise.errors import UsageError
from choicewise.extensions.interop.write.best_models import AgainstBest, against_best
from choicewise.extensions.interop.write.common import summaries
from choicewise.extensions.interop.write.paper import (
    NONE,
    Cell,
    Marks,
    Note,
    PaperForm,
    PaperTable,
    column_parts,
    counts,
    digits,
    ids,
    metric_note,
    origins,
    remarks,
)
from choicewise.ports import Export
from choicewise.results.headline import Matrix, Standing, matrix
from choicewise.results.number import Number
from choicewise.results.outcomes import Summary, distinct
from choicewise.results.rows import chosen_part, run_id
from choicewise.scoring.significance import FEWEST, LEVEL
from choicewise.util.text import counted, percent, ranks, sentence

MOST = 6
"""Columns of numbers that fit on a page beside mean and rank; more of them make further tables."""

UNTESTED = f"not tested against others: different texts or items, or fewer than {FEWEST} items"
"""The remark on a number that no test compared."""


def models_tables(runs: Sequence[Summary]) -> tuple[list[PaperTable], PaperTable]:
    """Return the table of models by benchmarks, in parts if it is too wide for a page, and that of
    its protocols.

    Raises UsageError if there is no number to show.
    """
    rows: list[Number] = []
    part_of: dict[tuple[str, str, str], str] = {}
    for run in runs:
        rows += run.rows
        for row in run.rows:
            part_of[_run_key(row)] = chosen_part(run.manifest.selection)
    names = {row.identity.model for row in distinct(rows)}
    outcomes = []
    for run in runs:
        # Ids distinguish the rows of models with one name, and must distinguish outcomes, too.
        name = f"{run.outcomes.model} {run_id(run.manifest)}"
        if name in names:
            outcomes.append(replace(run.outcomes, model=name))
        else:
            outcomes.append(run.outcomes)
    table = matrix(rows, outcomes)
    if not table.benchmarks:
        raise UsageError(
            "no run has a percentage over all its items, which a table of models needs; "
            "finish a run, or choose a metric such as acc"
        )
    models = _Models(table, against_best(table, outcomes), part_of)
    parts = column_parts(len(table.benchmarks), MOST)
    tables = [models.part(parts, index) for index in range(len(parts))]
    return tables, models.protocols()


def _run_key(row: Number) -> tuple[str, str, str]:
    """Return what rows of one run share, whatever the model is called."""
    return row.identity.data, row.identity.selection, row.identity.r


@dataclass(frozen=True)
class _Models:
    """Lay out the ``table``. ``part_of``: the part of the data that a run chose, by
    :func:`_run_key`.
    """

    table: Matrix
    tested: AgainstBest
    part_of: Mapping[tuple[str, str, str], str]

    @property
    def _rows(self) -> list[Number]:
        rows: list[Number] = []
        for standing in self.table.standings:
            rows += [row for row in standing.rows if row is not None]
        return rows

    @property
    def _has_several(self) -> bool:
        return len(self.table.standings) > 1

    def part(self, parts: Sequence[range], index: int) -> PaperTable:
        """Return the columns of one of the ``parts``; the last part has mean and rank."""
        table = self.table
        columns = parts[index]
        is_last = index == len(parts) - 1
        # All parts have the digits of the whole table.
        spelled, unit = digits(self._rows)
        marks = Marks()
        # Mean and rank are of all benchmarks, so one part alone has them.
        end_heads: list[str] = []
        if is_last:
            end_heads = list(self._ends(table.standings[0]))
        lines = []
        for standing, is_best in zip(table.standings, self.tested.level, strict=True):
            line = [Cell(standing.model)]
            for column in columns:
                row = standing.rows[column]
                line.append(self._cell(row, is_best[column], spelled, marks))
            if is_last:
                line += self._ends(standing).values()
            lines.append(tuple(line))
        for title, spell in (("n", counts), ("id", ids)):
            line = [Cell(title)]
            for column in columns:
                line.append(Cell(spell(self._column(column))))
            line += [Cell("") for _ in end_heads]
            lines.append(tuple(line))

        name = "models"
        caption = self._caption(unit)
        if len(parts) > 1:
            name = f"models-{index + 1}"
            caption += f" (part {index + 1} of {len(parts)})"
        return PaperTable(
            name=name,
            caption=caption,
            heads=("model", *(table.titles[column] for column in columns), *end_heads),
            rows=tuple(lines),
            notes=(*marks.notes(), *self._notes(columns, end_heads)),
            feet=2,
        )

    def protocols(self) -> PaperTable:
        """Return the table of protocols: a line per benchmark, ids and signatures below."""
        table = self.table
        lines = []
        for column, benchmark in enumerate(table.benchmarks):
            rows = self._column(column)
            title = table.titles[column]
            texts = (title, benchmark.protocol, ids(rows), benchmark.data, counts(rows))
            lines.append(tuple(map(Cell, texts)))
        return PaperTable(
            name="models-signatures",
            caption=f"protocols of the table of {counted(len(table.standings), 'model')}",
            heads=("benchmark", "protocol", "id", "data", "n"),
            rows=tuple(lines),
            notes=tuple(origins(self._rows)),
            texts=frozenset(range(4)),
        )

    def _column(self, column: int) -> list[Number | None]:
        return [standing.rows[column] for standing in self.table.standings]

    def _caption(self, unit: str) -> str:
        metrics = dict.fromkeys(row.identity.metric for row in self._rows)
        models = counted(len(self.table.standings), "model")
        benchmarks = counted(len(self.table.benchmarks), "benchmark")
        caption = f"{', '.join(metrics)}{unit} ± standard error of {models} on {benchmarks}"
        if self.table.part:
            caption += f" ({self.table.part})"
        if self._has_several:
            caption += "; bold: no other model is significantly better"
        return caption

    def _cell(
        self,
        row: Number | None,
        is_best: bool | None,
        spelled: Callable[[float], str],
        marks: Marks,
    ) -> Cell:
        """Return the cell of a number. ``is_best``: if no other is better, None without a test."""
        if row is None:
            return Cell(NONE)
        texts = remarks(row, self.part_of[_run_key(row)])
        if is_best is None:
            texts.append(UNTESTED)
        text = spelled(row.value)
        if not math.isnan(row.se):
            text += f" ± {spelled(row.se)}"
        # Beside a value over a part of its items is their number.
        if self._has_several and row.coverage:
            text += f" {row.coverage}"
        return Cell(text, marks=marks.of(texts), bold=self._has_several and bool(is_best))

    def _ends(self, standing: Standing) -> dict[str, Cell]:
        """Return the mean if there are several benchmarks, and the rank if there are several
        models.
        """
        ends = {}
        if len(self.table.benchmarks) > 1:
            is_tested = standing.questions >= FEWEST
            can_be_first = self._has_several and standing.rank_low == 1 and is_tested
            ends["mean"] = Cell(NONE)
            if not math.isnan(standing.mean):
                ends["mean"] = Cell(percent(standing.mean), bold=can_be_first)
        if self._has_several:
            rank = ranks(standing.rank_low, standing.rank_high)
            ends["rank"] = Cell(rank or str(standing.rank or NONE))
        return ends

    def _notes(self, columns: range, end_heads: Sequence[str]) -> list[Note]:
        notes = [metric_note(self._rows)]
        if self._has_several:
            pairs = counted(self.tested.tests, "pair")
            notes.append(
                Note(
                    "Bold: no other model is significantly better (paired sign-flip test over "
                    f"shared items, {100 * LEVEL:.0f} %, Holm's correction for all {pairs})."
                )
            )
        if end_heads:
            notes.append(self._end_note(end_heads))
        protocols = []
        for column in columns:
            benchmark = self.table.benchmarks[column]
            protocols.append(f"{self.table.titles[column]}: {benchmark.protocol}")
        notes.append(
            Note(
                f"Protocols: {'; '.join(protocols)}. The file beside this one has their signatures."
            )
        )
        return notes

    def _end_note(self, end_heads: Sequence[str]) -> Note:
        has_bounds = any(standing.rank_low is not None for standing in self.table.standings)
        rank = "without a range"
        if has_bounds:
            rank = "with its 95 % range by tests of all pairs"
        mean = "over all benchmarks with equal weights"
        if "mean" in end_heads and "rank" in end_heads:
            rank = f"by the mean, {rank}"
            if has_bounds:
                mean += ", bold where the rank can be 1"
        text_of = {"mean": mean, "rank": rank}
        return Note(sentence([f"{head}: {text_of[head]}" for head in end_heads]))


def write_models(form: PaperForm, export: Export, out: Path) -> None:
    """Write a table of models by benchmarks to ``out``, and that of the protocols beside it."""
    parts, protocols = models_tables(summaries(export))
    (signatures,) = export.beside
    form.write(parts, out)
    form.write([protocols], signatures)
