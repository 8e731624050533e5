"""Write bad items as tables, by what they are bad under, then the items that no model gets right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from choicewise.extensions.analyses.audit import (
    LEVEL,
    VERDICTS,
    Audit,
    BadItem,
    audit,
)
from choicewise.protocols.metrics import METRICS
from choicewise.results.outcomes import Summary
from choicewise.table import Column, Share, Table, facts_of, rows_of
from choicewise.util.text import counted, listed

ITEM = (
    Column("item"),
    Column("subject", optional=True),
    Column("question", "excerpt"),
)

BAD = (
    *ITEM,
    Column("right", "number"),
    Column(
        "rest",
        "correlation",
        heading="item-rest",
        meaning="correlation with all other items over the models; H: Mokken's scalability; R²: signed isotonic share "
        "of variance that other items explain; a good item has all three above 0",
    ),
    Column("scale", "correlation", heading="H"),
    Column("isotonic", "correlation", heading="R²"),
    Column("under", "names", heading="bad under"),
    Column("verdict", data=True),
)

JUDGEMENTS = (
    Column("item"),
    Column("protocol"),
    Column("metric"),
    Column("right", "number"),
    Column("models", "count"),
    Column("rest", "correlation"),
    Column("scale", "correlation"),
    Column("isotonic", "correlation"),
    Column("bad"),
)

CONSTANT = (*ITEM, Column("right", "number"))

_COUNTED = {
    "all": "bad under every protocol",
    "one": "under one only",
    "some": "under some",
    "": "bad",
}
"""Verdict → the words behind the number of items."""

_NAMES = {
    "all": "bad-under-all",
    "one": "bad-under-one",
    "some": "bad-under-some",
    "": "bad",
}
"""Verdict → the name of its table."""


def tables(runs: Sequence[Summary]) -> list[Table]:
    """Return the bad items of each dataset of ``runs`` by what they are bad under, and those no
    model gets right.
    """
    of_all: list[Table] = []
    for report in audit(runs):
        of_all.extend(audit_tables(report))
    return of_all


def audit_tables(report: Audit) -> Iterator[Table]:
    """Yield what was judged, the bad items of each verdict, and the items about which nothing can
    be said.
    """
    yield _summary(report)
    for verdict, meaning in VERDICTS.items():
        items = report.verdicts(verdict)
        if items:
            rows = [_bad_row(item) for item in items]
            yield Table(
                name=_NAMES[verdict], title=meaning, columns=BAD, rows=rows, notes=[_CHANCE]
            )
    judgements = []
    for item in report.bad:
        for row in rows_of(JUDGEMENTS[1:], item.under):
            judgements.append([item.item, *row])
    yield Table(
        name="judgements",
        title="bad items by protocol",
        columns=JUDGEMENTS,
        rows=judgements,
        data=True,
    )
    constant = rows_of(CONSTANT, report.constant)
    # An item that no model gets right is hard, or its key is wrong: a reader can tell.
    never = [row[:3] for row in constant if row[3] == 0]
    if never:
        title = f"wrong with every model, so look at the key: {counted(len(never), 'item')}"
        yield Table(name="never-right", title=title, columns=ITEM, rows=never)
    yield Table(
        name="constant",
        title="the same with every model",
        columns=CONSTANT,
        rows=constant,
        data=True,
    )


_CHANCE = (
    "bad: all three below 0, item-rest significantly; of items that have nothing to do with "
    f"ability up to {LEVEL:.0%} "
    "are so by chance: read the item"
)


def _summary(report: Audit) -> Table:
    protocols = "one protocol"
    if len(report.protocols) > 1:
        protocols = counted(len(report.protocols), "protocol")
    items = counted(report.items, "item")
    judged = f"{report.judged:,} of {items} judged by {len(report.models)} models"
    facts = {}
    for name, value in facts_of(report, ("bad", "constant")).items():
        facts[_JSON_NAMES.get(name, name)] = value
    return Table(
        name="audit",
        title=(
            f"{report.dataset} {report.data}: {judged} under {protocols}; "
            f"{', '.join(_counts(report))}"
        ),
        notes=[*_doubts(report), *_constant(report)],
        facts=facts,
    )


_JSON_NAMES = {"duplicates": "alike"}


def _counts(report: Audit) -> Iterator[str]:
    # With one protocol there is nothing to be bad under beside it.
    always = [""]
    if len(report.protocols) > 1:
        always = ["all", "one"]
    for verdict, words in _COUNTED.items():
        number = len(report.verdicts(verdict))
        if number or verdict in always:
            yield f"{number:,} {words}"


def _doubts(report: Audit) -> Iterator[str]:
    if report.shared < report.items:
        yield (
            f"the runs hold different items: {report.shared:,} of {report.items:,} are shared by "
            "all of them"
        )
    if report.duplicates:
        yield (
            "not judged by themselves, as they can't differ from another: "
            f"{listed(report.duplicates)}"
        )


def _constant(report: Audit) -> Iterator[str]:
    """Yield how many items have one credit with every model, and are not among the never right
    ones.
    """
    always = sum(item.right == 1 for item in report.constant)
    others = sum(item.right not in (0, 1) for item in report.constant)
    if always:
        yield f"right with every model, so the test has no result: {counted(always, 'item')}"
    if others:
        yield f"the same with every model, so the test has no result: {counted(others, 'item')}"


def _bad_row(item: BadItem) -> list[Any]:
    worst = item.worst
    right = worst.right
    if METRICS[worst.metric].share:
        right = Share(worst.right)
    names = [judgement.protocol for judgement in item.under if judgement.bad]
    row: list[Any] = [item.item, item.subject or None, item.question]
    row += [right, worst.rest, worst.scale, worst.isotonic]
    row += [names, item.verdict]
    return row
