"""What every published rule reads in generated texts, as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from choicewise.extensions.analyses.extractors import (
    DisputedItem,
    ExtractorsReport,
    RulePair,
    RuleReading,
    extractors,
)
from choicewise.results.run import Run
from choicewise.table import Column, Table
from choicewise.util.text import counted, listed, percent

RULES: Final = (
    Column(name="alike", heading="", kind="count"),
    Column(name="rule"),
    Column(name="read", heading="read %", kind="share"),
    Column(name="accuracy", heading="right %", kind="share"),
    Column(name="ci_low", heading="95 % interval", kind="share"),
    Column(name="ci_high", kind="share", joined=" – "),
    Column(name="protocols", heading="decides", kind="names"),
)

PAIRS: Final = (
    Column(name="left", heading="rule"),
    Column(name="right", heading="other rule"),
    Column(
        name="same", heading="read alike %", kind="share", meaning="no option is an answer, too"
    ),
    Column(name="kappa", heading="Cohen's kappa", kind="correlation"),
)

DISPUTED: Final = (
    Column(name="item"),
    Column(name="right"),
    Column(name="read", heading="read by rules", kind="names"),
    Column(name="start", heading="text", kind="excerpt"),
    Column(name="end", kind="excerpt", joined=" […] "),
)

READINGS: Final = (
    *(Column(name="item"), Column(name="letter", meaning="empty if the rules read no option")),
    Column(name="rules", kind="names"),
)


def run_tables(run: Run) -> Iterator[Table]:
    """Yield for each prompt of a run what the rules read, how they agree, and the items that they dispute."""
    reports = extractors(run)
    if not reports:
        title = f"{run.folder}: no protocol reads a letter in generated text; try options/free-simple-evals"
        yield Table(name="rules", title=title, facts={"run": str(run.folder)})
    for report in reports:
        yield from extractor_tables(str(run.folder), report)


def extractor_tables(folder: str, report: ExtractorsReport) -> Iterator[Table]:
    """Yield the tables of one prompt of the run in ``folder``."""
    facts: dict[str, Any] = {"run": folder, "protocols": list(report.protocols), "n": report.n}
    facts |= {"missing": report.missing, "partly": report.partly}
    numbers = _numbers(report)
    missing = f", {counted(report.missing, 'item')} without a text" if report.missing else ""
    texts = f"{counted(report.n, 'text')} of {listed(report.protocols)}{missing}"
    yield Table(
        name="rules",
        title=f"{folder}: what {len(report.rules)} rules read in {texts}",
        columns=RULES,
        rows=[
            _rule_row(rule, numbers)
            for rule in sorted(report.rules, key=lambda rule: numbers[rule.rule])
        ],
        notes=[
            _range(report.rules),
            "rules with one number read the same in every text; a text in which a rule reads no option is wrong",
        ],
        facts=facts,
    )
    if report.n:
        pairs = sorted(report.pairs, key=lambda pair: pair.same)
        rows = [[pair.left, pair.right, pair.same, _kappa(pair)] for pair in pairs]
        yield Table(
            name="rule-pairs",
            title="how far the rules agree, the least first",
            columns=PAIRS,
            rows=rows,
        )
    if report.disputed:
        yield from _disputes(report)


def _numbers(report: ExtractorsReport) -> Mapping[str, int]:
    """Number the rules; those that read the same in every text have one number."""
    # Of options with one text, letter-match takes either, so that a rule may read the same and be right more often.
    right = {rule.rule: rule.accuracy for rule in report.rules}
    first = {rule.rule: rule.rule for rule in report.rules}
    for pair in report.pairs:
        is_alike = pair.same == 1 and right[pair.left] == right[pair.right]
        if is_alike and first[pair.right] == pair.right:
            first[pair.right] = first[pair.left]
    firsts = list(dict.fromkeys(first.values()))
    return {rule: 1 + firsts.index(same) for rule, same in first.items()}


def _rule_row(rule: RuleReading, numbers: Mapping[str, int]) -> list[Any]:
    interval = [rule.ci_low, rule.ci_high]
    return [numbers[rule.rule], rule.rule, rule.read, rule.accuracy, *interval, rule.protocols]


def _range(rules: Sequence[RuleReading]) -> str:
    values = [rule.accuracy for rule in rules if not math.isnan(rule.accuracy)]
    if not values:
        return "no text, and so no number"
    return f"the same texts are {percent(min(values))} to {percent(max(values))} % right, by the rule alone"


def _kappa(pair: RulePair) -> float:
    return pair.kappa + 0.0  # of -0.0 no sign is left


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
