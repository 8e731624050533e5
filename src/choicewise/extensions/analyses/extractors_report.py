"""Write what every published rule reads in generated texts as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from choicewise.extensions.analyses.extractors import (
    DisputedItem,
    ExtractorsReport,
    RuleReading,
    extractors,
)
from choicewise.results.run import Run
from choicewise.table import Column, Table, facts_of, rows_of
from choicewise.util.text import counted, listed, percent

RULES = (
    Column("alike", "count", heading=""),
    Column("rule"),
    Column("read", "share", heading="read %"),
    Column("accuracy", "share", heading="right %"),
    Column("ci_low", "share", heading="95 % interval"),
    Column("ci_high", "share", joined=" – "),
    Column("protocols", "names", heading="decides"),
)

PAIRS = (
    Column("left", heading="rule"),
    Column("right", heading="other rule"),
    Column("same", "share", heading="read alike %", meaning="no option is an answer, too"),
    Column("kappa", "correlation", heading="Cohen's kappa"),
)

DISPUTED = (
    Column("item"),
    Column("right"),
    Column("read", "names", heading="read by rules"),
    Column("start", "excerpt", heading="text"),
    Column("end", "excerpt", joined=" […] "),
)

READINGS = (
    Column("item"),
    Column("letter", meaning="empty if the rules read no option"),
    Column("rules", "names"),
)


def run_tables(run: Run) -> Iterator[Table]:
    """Yield what the rules read in the texts of each prompt, how they agree, and the items that
    they dispute.
    """
    reports = extractors(run)
    if not reports:
        title = (
            f"{run.folder}: no protocol reads a letter in generated text; try "
            "options/free-simple-evals"
        )
        yield Table(name="rules", title=title, facts={"run": str(run.folder)})
    for report in reports:
        yield from extractor_tables(str(run.folder), report)


def extractor_tables(folder: str, report: ExtractorsReport) -> Iterator[Table]:
    """Yield the tables of one prompt of the run in ``folder``."""
    title = f"{folder}: what {len(report.rules)} rules read in {counted(report.n, 'text')} of "
    title += listed(report.protocols)
    if report.missing:
        title += f", {counted(report.missing, 'item')} without a text"
    numbers = _numbers(report)
    rules = sorted(report.rules, key=lambda rule: numbers[rule.rule])
    yield Table(
        name="rules",
        title=title,
        columns=RULES,
        rows=[[numbers[row[0]], *row] for row in rows_of(RULES[1:], rules)],
        notes=[
            _range(report.rules),
            "rules with one number read the same in every text; a text in which a rule reads no "
            "option is wrong",
        ],
        facts={"run": folder, **facts_of(report, ("rules", "pairs", "disputed"))},
    )
    if report.n:
        pairs = sorted(report.pairs, key=lambda pair: pair.same)
        yield Table(
            name="rule-pairs",
            title="how far the rules agree, the least first",
            columns=PAIRS,
            rows=rows_of(PAIRS, pairs),
        )
    if report.disputed:
        yield from _disputes(report)


def _numbers(report: ExtractorsReport) -> Mapping[str, int]:
    """Number the rules; those that read the same in every text have one number."""
    # Of options with one text, letter-match takes either, so that a rule may read the same and be
    # right more often.
    accuracy = {rule.rule: rule.accuracy for rule in report.rules}
    first = {rule.rule: rule.rule for rule in report.rules}
    for pair in report.pairs:
        reads_the_same = pair.same == 1 and accuracy[pair.left] == accuracy[pair.right]
        if reads_the_same and first[pair.right] == pair.right:
            first[pair.right] = first[pair.left]
    # Rules with one number read the same, so that a reader compares numbers and not columns of
    # shares.
    firsts = list(dict.fromkeys(first.values()))
    return {rule: 1 + firsts.index(first_rule) for rule, first_rule in first.items()}


def _range(rules: Sequence[RuleReading]) -> str:
    values = [rule.accuracy for rule in rules if not math.isnan(rule.accuracy)]
    if not values:
        return "no text, and so no number"
    return (
        f"The same texts are {percent(min(values))} to {percent(max(values))} % right, depending "
        "on the rule"
    )


def _disputes(report: ExtractorsReport) -> Iterator[Table]:
    notes = []
    if report.partly:
        notes.append(
            f"read by some rules, with no second option: {counted(report.partly, 'more text')}"
        )
    yield Table(
        name="disputed",
        title=f"in dispute: {counted(len(report.disputed), 'item')} of {report.n:,}",
        columns=DISPUTED,
        rows=[_dispute_row(item) for item in report.disputed],
        notes=notes,
    )
    readings = []
    for item in report.disputed:
        for letter, rules in item.read.items():
            readings.append([item.item, letter, rules])
    yield Table(
        name="readings", title="what each rule reads", columns=READINGS, rows=readings, data=True
    )


def _dispute_row(item: DisputedItem) -> list[Any]:
    read = [f"{letter or '-'}: {' '.join(rules)}" for letter, rules in item.read.items()]
    return [item.item, item.right, read, item.start, item.end or None]
