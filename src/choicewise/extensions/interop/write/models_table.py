"""Models by benchmarks as a table of a paper, one number each, and the signatures in a file of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from choicewise.errors import UsageError
from choicewise.extensions.interop.write.common import summaries
from choicewise.extensions.interop.write.paper import (
    NONE,
    Cell,
    Note,
    PaperForm,
    PaperTable,
    counts,
    digits,
    ids,
    metric_note,
    origins,
    remarks,
)
from choicewise.ports import Export
from choicewise.results.headline import AgainstBest, Matrix, Standing, against_best, matrix
from choicewise.results.number import Number
from choicewise.results.outcomes import Summary, distinct
from choicewise.results.rows import chosen_part, run_id
from choicewise.scoring.significance import FEWEST, LEVEL
from choicewise.util.text import counted, percent, ranks, sentence

MOST = 6
"""Columns of numbers that fit on a page beside mean and rank; more of them make further tables."""

UNTESTED = f"not tested against its column: other texts, other items, or fewer than {FEWEST} items"
"""What is said of a number that no test compared."""


def models_tables(runs: Sequence[Summary]) -> tuple[list[PaperTable], PaperTable]:
    """The table of models by benchmarks, in parts where it is too wide for a page, and that of its protocols.

    Raises UsageError where there is no number to show.
    """
    rows = [row for run in runs for row in run.rows]
    names = {row.identity.model for row in distinct(rows)}
    outcomes = []
    for run in runs:
        apart = f"{run.outcomes.model} {run_id(run.manifest)}"
        outcomes.append(replace(run.outcomes, model=apart) if apart in names else run.outcomes)
    table = matrix(rows, outcomes)
    if not table.benchmarks:
        raise UsageError(
            "no run has a number over all its items that is a share of 1, which a table of models shows"
        )
    asked = {
        (row.identity.data, row.identity.selection, row.identity.r): chosen_part(
            run.manifest.selection
        )
        for run in runs
        for row in run.rows
    }
    about = _About(table, against_best(table, outcomes), asked)
    step = math.ceil(len(table.benchmarks) / math.ceil(len(table.benchmarks) / MOST))
    starts = range(0, len(table.benchmarks), step)
    chosen = [range(start, min(start + step, len(table.benchmarks))) for start in starts]
    return [
        about.part(each, place, len(chosen)) for place, each in enumerate(chosen, 1)
    ], about.protocols()


@dataclass(frozen=True)
class _About:
    """``asked``: (data, selection and #R of a row) → the part of the data that its run is to ask, in words."""

    table: Matrix
    tested: AgainstBest
    asked: Mapping[tuple[str, str, str], str]

    @property
    def shown(self) -> list[Number]:
        return [row for each in self.table.standings for row in each.rows if row is not None]

    @property
    def several(self) -> bool:
        return len(self.table.standings) > 1

    def part(self, chosen: range, place: int, parts: int) -> PaperTable:
        """The columns that are ``chosen``; the last part has mean and rank."""
        table, marks, name = self.table, dict[str, int](), "models"
        spelled, unit = digits(self.shown)
        last = place == parts
        lines = []
        for standing, level in zip(table.standings, self.tested.level, strict=True):
            cells = [
                self._cell(standing.rows[column], level[column], spelled, marks)
                for column in chosen
            ]
            lines.append(
                (Cell(standing.model), *cells, *(self._ends(standing).values() if last else ()))
            )
        ends = list(self._ends(table.standings[0])) if last else []
        for title, spell in (("n", counts), ("id", ids)):
            own = [spell([standing.rows[each] for standing in table.standings]) for each in chosen]
            lines.append((Cell(title), *map(Cell, own), *(Cell("") for _ in ends)))
        models = counted(len(table.standings), "model")
        about = f"{', '.join(dict.fromkeys(row.identity.metric for row in self.shown))}{unit} ± standard error"
        about += f" of {models} on {counted(len(table.benchmarks), 'benchmark')}"
        about += f" ({table.part})" if table.part else ""
        about += "; bold: no other model is significantly better" if self.several else ""
        if parts > 1:
            about, name = f"{about} (part {place} of {parts})", f"models-{place}"
        notes = (*map(Note, marks, marks.values()), *self._notes(chosen, ends))
        heads = ("model", *(table.titles[each] for each in chosen), *ends)
        return PaperTable(name, about, heads, tuple(lines), notes, feet=2)

    def protocols(self) -> PaperTable:
        """A line per benchmark; ids and signatures below."""
        table, lines = self.table, []
        for column, (title, each) in enumerate(zip(table.titles, table.benchmarks, strict=True)):
            own = [standing.rows[column] for standing in table.standings]
            lines.append(
                (
                    Cell(title),
                    Cell(each.protocol),
                    Cell(ids(own)),
                    Cell(each.data),
                    Cell(counts(own)),
                )
            )
        heads, texts = ("benchmark", "protocol", "id", "data", "n"), frozenset(range(4))
        caption = f"protocols of the table of {counted(len(table.standings), 'model')}"
        return PaperTable(
            "models-signatures", caption, heads, tuple(lines), tuple(origins(self.shown)), texts
        )

    def _cell(
        self,
        row: Number | None,
        level: bool | None,
        spelled: Callable[[float], str],
        marks: dict[str, int],
    ) -> Cell:
        if row is None:
            return Cell(NONE)
        said = remarks(
            row, self.asked[row.identity.data, row.identity.selection, row.identity.r]
        ) + [UNTESTED] * (level is None)
        noted = tuple(marks.setdefault(remark, len(marks) + 1) for remark in said)
        text = spelled(row.value) + ("" if math.isnan(row.se) else f" ± {spelled(row.se)}")
        if self.several and row.coverage:
            text += f" {row.coverage}"
        return Cell(text, marks=noted, bold=self.several and bool(level))

    def _ends(self, standing: Standing) -> dict[str, Cell]:
        """Behind the benchmarks the mean, where they are several, and the rank, where the models are."""
        ends = {}
        if len(self.table.benchmarks) > 1:
            items = sum(row.counts.n for row in standing.rows if row is not None)
            first = self.several and standing.rank_low == 1 and items >= FEWEST
            known = not math.isnan(standing.mean)
            ends["mean"] = Cell(percent(standing.mean), bold=first) if known else Cell(NONE)
        if self.several:
            ends["rank"] = Cell(
                ranks(standing.rank_low, standing.rank_high) or str(standing.rank or NONE)
            )
        return ends

    def _notes(self, chosen: range, ends: Sequence[str]) -> list[Note]:
        notes = [metric_note(self.shown)]
        if self.several:
            test = f"paired sign-flip test over the items that both score, {100 * LEVEL:.0f} %"
            test += f", Holm's correction for all {counted(self.tested.tests, 'pair')} of the table"
            notes.append(Note(f"Bold: no other model is better by a {test}."))
        if ends:
            bounds = any(each.rank_low is not None for each in self.table.standings)
            drawn = (
                "with the range that tests of all pairs leave open (95 %)"
                if bounds
                else "its range is not known"
            )
            said = {"mean": "of all benchmarks, each counting the same", "rank": drawn}
            if "mean" in ends and "rank" in ends:
                said["mean"] += ", bold where the rank can be 1" if bounds else ""
                said["rank"] = f"by the mean, {drawn}"
            notes.append(Note(sentence([f"{end}: {said[end]}" for end in ends])))
        asked = [
            f"{self.table.titles[each]}: {self.table.benchmarks[each].protocol}" for each in chosen
        ]
        return [
            *notes,
            Note(
                f"Protocols: {'; '.join(asked)}. Their signatures are in the file beside this one."
            ),
        ]


def write_models(form: PaperForm, export: Export, out: Path) -> None:
    """Write a table of models by benchmarks to ``out``, and that of the protocols beside it."""
    parts, protocols = models_tables(summaries(export))
    (signatures,) = export.beside
    form.write(parts, out)
    form.write([protocols], signatures)
