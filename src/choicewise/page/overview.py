"""Build what a page begins with: its title, and models by the headline protocols of families."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from choicewise.page.study import ShownRun, Study
from choicewise.protocols.protocol import LETTER_FAMILIES, TEXT_FAMILIES
from choicewise.report.brief import extremes, publication_text
from choicewise.report.findings import doubts, gaps, guessing_sentences, sentences
from choicewise.report.tables import scored_cells
from choicewise.results.finding import Finding
from choicewise.results.guessing import guess
from choicewise.results.headline import headline
from choicewise.results.number import Number
from choicewise.results.published import published
from choicewise.table import Column, Span, Table, as_html
from choicewise.util.text import listed, percent, sentence

MOST_WORDS = 20
"""Words of a title at most."""

_LAST_COLUMNS = (
    Column("lowest", "share", heading="lowest – highest"),
    Column("highest", "share", joined=" – "),
    Column("rank", "ranks", heading="rank range\nfirst column", optional=True),
)
"""Columns behind those of protocols."""

_MERGED = (LETTER_FAMILIES, TEXT_FAMILIES)
"""Families that share a column."""


@dataclass(frozen=True)
class Overview:
    """The models on one dataset under a few protocols.

    ``runs``: the best under the first protocol comes first. ``protocols``: a row under each
    protocol that has a column.
    """

    dataset: str
    runs: tuple[ShownRun, ...]
    protocols: tuple[Number, ...]

    @property
    def names(self) -> list[str]:
        """Return the names of the protocols that have a column."""
        return [row.identity.protocol for row in self.protocols]

    @property
    def html(self) -> str:
        """Return the table as an element."""
        columns = [Column("model", heading="model\naccuracy in %, 95 % interval")]
        for row in self.protocols:
            columns += _protocol_columns(row)
        columns += _LAST_COLUMNS
        cells = [self._cells(run) for run in self.runs]
        return as_html(Table(name="overview", title="", columns=columns, rows=cells))

    @property
    def publication(self) -> str:
        """Return what was published of another model under these protocols, if anything was."""
        ids = [row.identity.id for row in self.protocols if row.identity.id in published()]
        return publication_text(ids) if ids else ""

    def rows_under(self, protocol: Number) -> list[Number]:
        """Return the rows of all models under the protocol of this row."""
        rows = [_row_under(run, protocol) for run in self.runs]
        return [row for row in rows if row is not None]

    def _cells(self, run: ShownRun) -> list[Any]:
        cells: list[Any] = [run.label]
        for protocol in self.protocols:
            row = _row_under(run, protocol)
            if row is None:
                cells += [None] * 5
            else:
                cells += [row.value, *scored_cells(row), row.interval.low, row.interval.high]
        ends = extremes(run.rows)
        if ends is None:
            cells += [None, None]
        else:
            cells += [ends[0].value, ends[1].value]
        first = _row_under(run, self.protocols[0])
        ranks = None
        # Without a rival a model has no range of ranks.
        if first is not None and first.ranks.low is not None and first.ranks.high is not None:
            ranks = Span(first.ranks.low, first.ranks.high)
        return [*cells, ranks]


def _protocol_columns(row: Number) -> list[Column]:
    """Return the columns of a number: its value, what was scored if that is not all, and its
    interval below.
    """
    name = row.identity.protocol
    heading = f"{row.identity.family}\n{name}"
    return [
        Column(name, "share", heading=heading),
        Column(f"{name}_scored", "count", joined=" ("),
        Column(f"{name}_items", "count", joined=" of ", closed=")"),
        Column(f"{name}_low", "share", joined="\n"),
        Column(f"{name}_high", "share", joined=" – "),
    ]


def overviews(study: Study) -> list[Overview]:
    """Return the overview of each dataset that has a number which is a share of 1."""
    tables = []
    for positions in study.datasets.values():
        runs = [study.runs[position] for position in positions]
        protocols = _column_protocols(runs)
        if not protocols:
            continue
        runs.sort(key=lambda run: -_value_under(run, protocols[0]))
        dataset = runs[0].manifest.dataset.name
        tables.append(Overview(dataset, tuple(runs), tuple(protocols)))
    return tables


def _row_under(run: ShownRun, protocol: Number) -> Number | None:
    for row in run.row_of.values():
        if row.identity.id == protocol.identity.id:
            return row
    return None


def _value_under(run: ShownRun, protocol: Number) -> float:
    row = _row_under(run, protocol)
    if row is None or math.isnan(row.value):
        return -math.inf
    return row.value


def _column_protocols(runs: Sequence[ShownRun]) -> list[Number]:
    """Return a row under each protocol that has a column: those of the published table, then
    headlines of families.
    """
    rows = []
    for run in runs:
        for row in run.rows:
            # Of several groups of items the first has the column.
            if row is run.row_of[row.identity.protocol] and not math.isnan(row.value):
                rows.append(row)
    models_of_id = Counter(row.identity.id for row in rows)
    row_of_id = {row.identity.id: row for row in reversed(rows)}
    chosen = []
    # Fewer implementations than the published table has can't be compared with it.
    if row_of_id.keys() >= published().keys():
        chosen = [row_of_id[column] for column in reversed(published())]
    # Every family that no group has gets a column of its own.
    families: list[tuple[str, ...]] = list(_MERGED)
    for row in rows:
        if not any(row.identity.family in group for group in families):
            families.append((row.identity.family,))
    for group in families:
        first = _group_headline(rows, group, models_of_id)
        if first is not None and first.identity.id not in [row.identity.id for row in chosen]:
            chosen.append(first)
    return chosen


def _group_headline(
    rows: Sequence[Number], group: Sequence[str], models_of_id: Counter[str]
) -> Number | None:
    """Return the headline of the first of these families that was asked, among what most models
    have.
    """
    for family in group:
        of_family = [row for row in rows if row.identity.family == family]
        # A protocol that few models have would leave gaps.
        most = max((models_of_id[row.identity.id] for row in of_family), default=0)
        first = headline([row for row in of_family if models_of_id[row.identity.id] == most])
        if first is not None:
            return first
    return None


def title(study: Study, tables: Sequence[Overview]) -> str:
    """Return the finding about the first table in a sentence or two of at most :data:`MOST_WORDS`
    words.
    """
    summary = study.finding
    if not summary.count:
        return sentences(summary)[0]
    if _is_guessing(summary):
        return " ".join(guessing_sentences(summary.guessing))
    if len(tables) == 1 and len(tables[0].runs) > 1:
        return _leaders(tables[0])
    if len(study.runs) == 1:
        return _spread(summary, study.runs[0])
    return sentences(summary)[0]


def notes(study: Study) -> list[str]:
    """Return what the title leaves out, guesses and gaps: one sentence, or none."""
    summary = study.finding
    if not _is_guessing(summary):
        return doubts(summary)
    missing = gaps(summary)
    return [sentence(missing)] if missing else []


def _is_guessing(summary: Finding) -> bool:
    """Check that no accuracy is better than guessing."""
    guessing = summary.guessing
    if not guessing.scores or guessing.better:
        return False
    return guessing.few or not guessing.beating


def _leaders(overview: Overview) -> str:
    """Return which model leads significantly in which column, and in which columns none does."""
    columns_of_leader: dict[str, list[str]] = {}
    open_columns = []
    guessed_columns = []
    # Two columns of one family could disagree: its headline, which is the last of them, speaks for
    # it.
    protocol_of_family = {row.identity.family: row for row in overview.protocols}
    for family, protocol in protocol_of_family.items():
        rows = overview.rows_under(protocol)
        leader = _leader(rows)
        # A lead over guesses is no lead.
        if all(map(guess, rows)):
            guessed_columns.append(family)
        elif leader:
            columns_of_leader.setdefault(leader, []).append(family)
        else:
            open_columns.append(family)
    if not columns_of_leader and not guessed_columns:
        return "No clear winner: in every column several models could rank first."
    parts = []
    for leader, led in columns_of_leader.items():
        parts.append(f"{leader} leads by {listed(led)}")
    if guessed_columns:
        parts.append(f"by {listed(guessed_columns)} no model beats guessing")
    if open_columns:
        parts.append(f"no clear winner by {listed(open_columns)}")
    # The first parts say most.
    while len(parts) > 1 and len("; ".join(parts).split()) > MOST_WORDS:
        parts.pop()
    text = "; ".join(parts)
    # A name keeps its first letter as it is.
    return f"{text}." if columns_of_leader else sentence([text])


def _leader(rows: Sequence[Number]) -> str:
    """Return the model that tests let rank first alone, or an empty text."""
    for row in rows:
        if row.ranks.rank == 1 and row.ranks.high == 1:
            return row.identity.model
    return ""


def _spread(summary: Finding, run: ShownRun) -> str:
    ends = extremes(run.rows)
    if ends is None:
        return sentences(summary)[0]
    low = percent(ends[0].value)
    high = percent(ends[1].value)
    if low == high:
        return f"{run.label} scores {low} % on {run.manifest.dataset.name}."
    return f"{run.label} scores between {low} % and {high} %, depending on how it is asked."
