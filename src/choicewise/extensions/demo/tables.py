"""Write what the demo prints: models beside a published table, and what their numbers show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from choicewise.bundled import PUBLISHED_MMLU
from choicewise.protocols.protocol import Protocol, differing
from choicewise.report.brief import (
    WIDTH,
    WORD,
    publication_text,
    text_blocks,
    value_cells,
    value_columns,
)
from choicewise.report.findings import numbers_of, reversal_sentence, turn_text
from choicewise.report.tables import RANKED_WIDTH, ranked_cells, ranked_columns
from choicewise.results.finding import Finding, Lead, Reversal
from choicewise.results.measurement import shared_items
from choicewise.results.number import Number
from choicewise.results.outcomes import Axis, Outcome, Outcomes, axes_between, ranked
from choicewise.results.published import published
from choicewise.scoring.intervals import ranks
from choicewise.scoring.significance import FEWEST
from choicewise.table import Column, Table
from choicewise.util.text import (
    NAME,
    counted,
    percent,
    probability,
    protocols,
    short,
    visible_line,
    wrapped,
)


class PublishedTable(NamedTuple):
    """Hold the lines of models under the protocols of a published table, what was published, and
    what the order says.

    What was published is about other questions: it is outside the table, and has no rank.
    """

    table: list[str]
    publication: str
    order: list[str]


def scores_beside_published(
    rows: Sequence[Number], turned: Reversal | None, apart: Sequence[Number] = ()
) -> PublishedTable | None:
    """Draw the models of ``rows`` under the protocols of the published table.

    None if no row is under one of them.

    ``rows`` are of one dataset, ``apart`` of models on another one, drawn above them and not ranked
    with them.  ``turned`` holds two models that change places between these protocols.
    """
    names_of_rows = {row.identity.id: row.identity.protocol for row in rows}
    # The published table's order is the order in which its authors argue.
    ids = [column for column in published() if column in names_of_rows]
    if not ids:
        return None
    columns = [Column("model", heading="accuracy in %")]
    for column in ids:
        columns += value_columns(names_of_rows[column])
    # Models on another dataset are named with it, and those on this one, too, to tell them apart.
    cells = _published_cells(apart, ids, has_dataset=True)
    cells += _published_cells(rows, ids, has_dataset=bool(apart))
    table = Table(name="published", title="", columns=columns, rows=cells)
    publication = f"published, MMLU, 14,042 questions: {publication_text(ids)}"
    drawn_rows = []
    for row in rows:
        if row.identity.id in ids:
            drawn_rows.append(row)
    order = _order(drawn_rows, turned)
    return PublishedTable(list(text_blocks(table, WORD)), publication, order)


def _published_cells(
    rows: Sequence[Number], columns: Sequence[str], has_dataset: bool
) -> list[list[Any]]:
    """Return a row for each model, with its dataset if ``has_dataset``.

    ``columns``: ids of protocols.
    """
    datasets = {row.identity.model: row.identity.dataset for row in rows}
    row_of = {(row.identity.model, row.identity.id): row for row in rows}
    # A single model is always the first: its rank would tell nothing.
    is_ranked = len(datasets) > 1
    cells = []
    for model, dataset in datasets.items():
        values: list[Any] = [f"{model}, {dataset}" if has_dataset else model]
        for column in columns:
            values += value_cells(row_of.get((model, column)), is_ranked)
        cells.append(values)
    return cells


def _order(rows: Sequence[Number], turned: Reversal | None) -> list[str]:
    """Return if models change places between columns."""
    if turned is not None:
        leads = (
            f"{short(turned.left, NAME)} leads {short(turned.right, NAME)} in one column, "
            "trails in another"
        )
        p = probability(max(turned.start.p, turned.end.p))
        return wrapped(f"Ranks change: {leads} ({p}).", WIDTH)
    # With few questions an order is chance, and so is a change of it.
    if max(row.counts.n for row in rows) < FEWEST:
        return []
    ranks_of_model: dict[str, set[int]] = {}
    for row in ranked(list(rows)):
        if row.ranks.rank is not None:
            ranks_of_model.setdefault(row.identity.model, set()).add(row.ranks.rank)
    if len(ranks_of_model) < 2:
        return []
    if any(len(ranks) > 1 for ranks in ranks_of_model.values()):
        return ["The ranking differs between columns, but no swap is statistically significant."]
    return ["The ranking is the same in every column."]


def published_table() -> Table:
    """Return the bundled table (Hugging Face blog, June 2023) with the rank of every model in every
    column.
    """
    content = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    columns = [Column("model", heading=" ")]
    cells: list[list[Any]] = [[row["model"]] for row in content["rows"]]
    for name, source in content["columns"].items():
        title = f"{name} = {source['protocol']}"
        columns.append(Column(name, "share", heading=title))
        columns.append(Column(f"{name}_rank", "count", joined=" (", closed=")"))
        values = [row[name] for row in content["rows"]]
        for row, value, rank in zip(cells, values, ranks(values).tolist(), strict=True):
            row += [value, rank]
    return Table(
        name="published",
        title=f"published {content['date']}: MMLU accuracy in % and rank, {content['url']}",
        columns=columns,
        rows=cells,
        split=RANKED_WIDTH,
    )


def reversal_table(reversal: Reversal, rows: Sequence[Number]) -> Table:
    """Return the two protocols in columns and a row for every model, in percent and rank.

    ``rows``: ranked, of all runs.
    """
    columns = [Column("model", heading=" ")]
    protocol_names = [reversal.start.protocol, reversal.end.protocol]
    for protocol in protocol_names:
        columns += ranked_columns(protocol, "share")
    # Only the rows of all questions, which come first: subjects may have orders of their own.
    all_questions = rows[0].identity.subject
    row_of = {}
    models = []
    for row in rows:
        identity = row.identity
        if identity.subject != all_questions:
            continue
        row_of[identity.model, identity.protocol] = row
        if identity.model not in models:
            models.append(identity.model)
    cells: list[list[Any]] = []
    for model in models:
        values: list[Any] = [model]
        for protocol in protocol_names:
            values += ranked_cells(row_of.get((model, protocol)))
        cells.append(values)
    return Table(
        name="reversal",
        title=f"{short(reversal.dataset, NAME)}: two published protocols, % and rank",
        columns=columns,
        rows=cells,
        split=RANKED_WIDTH,
    )


def discovery_lines(
    finding: Finding, turned: Reversal | None, pair: StrikingPair | None
) -> Iterator[str]:
    """Yield what was found on one dataset in at most five lines.

    Fewer if there are few questions or findings.

    ``pair``: of the model that leads.
    """
    for lead in finding.leads:
        # With fewer questions the first place is chance.
        if lead.items >= FEWEST:
            yield from _lead_lines(finding, lead)
            break
    if turned is not None:
        yield reversal_sentence(turned)
    if pair is not None:
        left = short(visible_line(pair.axis.left), NAME)
        right = short(visible_line(pair.axis.right), NAME)
        axis = f'axis {pair.axis.axis} from "{left}" to "{right}"'
        lost = f"{pair.lost} of {counted(pair.n, 'answer')} go wrong and {pair.gained} right"
        yield (
            f"One change, {axis}, takes {percent(pair.start_value - pair.end_value)} points: "
            f"{lost} from {short(pair.start, NAME)} to {short(pair.end, NAME)}."
        )


def _lead_lines(finding: Finding, lead: Lead) -> Iterator[str]:
    best = lead.models[0]
    every = protocols(lead.contests, lead.grouped)
    yield (
        f"{short(best, NAME)} is the first of {len(lead.models)} models under {lead.first} of "
        f"{every}."
    )
    numbers = numbers_of(finding, best)
    if numbers.lowest is not None and numbers.highest is not None:
        low = numbers.lowest.value
        high = numbers.highest.value
        questions = counted(numbers.items[1], "question")
        yield (
            f"It scores between {percent(low)} % and {percent(high)} % on the same {questions}: "
            f"{percent(high - low)} points depend on the protocol."
        )
    if lead.turn is not None:
        yield f"The order of the models changes: it leads under {turn_text(lead.turn)}."


@dataclass(frozen=True, kw_only=True)
class StrikingPair:
    """Describe two protocols of one model that differ in one ``axis`` alone.

    ``start``: the protocol with the greater value.  Values are shares of 1, means over the ``n``
    items that both score.  ``lost``: items with less credit under ``end``; ``gained``: items with
    more.  ``example``: the id of an item with less credit.
    """

    model: str
    axis: Axis
    start: str
    end: str
    start_value: float
    end_value: float
    n: int
    gained: int
    lost: int
    example: str


def striking_pair(outcomes: Outcomes) -> StrikingPair | None:
    """Return the pair whose values differ most.

    None if no two protocols differ in one axis, or if their values are equal.
    """
    pairs = []
    for left, right in combinations(outcomes.shares.outcomes, 2):
        if len(_axes(left.protocol, right.protocol)) == 1:
            pair = _striking_pair(outcomes.model, left, right)
            if pair is not None:
                pairs.append(pair)
    return max(pairs, key=lambda pair: pair.start_value - pair.end_value, default=None)


_NAMES = frozenset({"benchmark", "rev"})
"""Axes that name a protocol, and change no number."""


def _axes(left: Protocol, right: Protocol) -> list[str]:
    axes = differing(left, right)
    return [axis for axis in axes if axis not in _NAMES]


def _striking_pair(model: str, left: Outcome, right: Outcome) -> StrikingPair | None:
    """Describe two outcomes that differ in one axis; None if their values are equal."""
    ids, (left_items, right_items) = shared_items((left, right))
    credits = np.array([left.credit[left_items], right.credit[right_items]])
    scored = np.flatnonzero(~np.isnan(credits).any(axis=0))
    credits = credits[:, scored]
    left_sum = credits[0].sum()
    right_sum = credits[1].sum()
    if not len(scored) or left_sum == right_sum:
        return None
    # The protocol with the greater value comes first.
    if left_sum < right_sum:
        left, right = right, left
        credits = credits[::-1]
    (name,) = _axes(left.protocol, right.protocol)
    axis_of = {axis.axis: axis for axis in axes_between(left.protocol, right.protocol)}
    lost = credits[1] < credits[0]
    gained = credits[1] > credits[0]
    start_value, end_value = credits.mean(axis=1).tolist()
    return StrikingPair(
        model=model,
        axis=axis_of[name],
        start=left.name,
        end=right.name,
        start_value=start_value,
        end_value=end_value,
        n=len(scored),
        gained=int(gained.sum()),
        lost=int(lost.sum()),
        example=ids[int(scored[lost.argmax()])].as_py(),
    )
