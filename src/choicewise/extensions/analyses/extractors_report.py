"""What `report` prints of several ways to read the same: rules for letters in generated text, and retrievals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group
from rich.text import Text

from choicewise.extensions.analyses.extractors import ExtractorsReport, RuleReading
from choicewise.report.tables import table, titled
from choicewise.results.agreement import CAUSES, Agreement, Divergence
from choicewise.util.text import counted, interval, listed, percent, safe, visible_line

MOST = 10
"""Items in dispute that are shown unless all are asked for."""


def extractor_tables(folder: str, reports: Sequence[ExtractorsReport], every: bool = False) -> Iterator[Group | Text]:
    """For each prompt of the run in ``folder`` what the rules read, how they agree, and items that they dispute.

    ``every``: all of these items, not the first ten.
    """
    if not reports:
        yield Text(f"{safe(folder)}: no protocol reads a letter in generated text; try options/free-simple-evals")
    for each in reports:
        alike = _alike(each)
        yield _rules(folder, each, alike)
        if each.n:
            yield _agreement(each, alike)
        if each.disputed:
            yield _disputes(each, alike, len(each.disputed) if every else MOST)


def agreement_tables(folder: str, pairs: Sequence[Agreement]) -> list[Group | Text]:
    """The pairs of the run in ``folder``, the options on which they differ most, and what the causes mean."""
    if not pairs:
        return [Text(f"{safe(folder)}: no two protocols retrieve the same texts in different ways; try options/quoted")]
    raised = {cause for pair in pairs for cause in (*pair.causes, *pair.decided)}
    legend = [Text(f"{cause}: {meaning}") for cause, meaning in CAUSES.items() if cause in raised]
    worst = [_worst(pairs)] if any(pair.worst for pair in pairs) else []
    return [_pairs(folder, pairs), *worst, *legend]


_Alike = Mapping[str, tuple[int, tuple[str, ...]]]
"""First rule of those that read the same in every text → its number, and all of them."""


def _alike(each: ExtractorsReport) -> _Alike:
    first = {rule.rule: rule.rule for rule in each.rules}
    right = {rule.rule: rule.accuracy for rule in each.rules}  # of options with one text letter-match takes either
    for pair in each.pairs:
        if pair.same == 1 and right[pair.left] == right[pair.right] and first[pair.right] == pair.right:
            first[pair.right] = first[pair.left]
    firsts = [rule for rule, other in first.items() if rule == other]
    return {
        rule: (number, tuple(name for name, other in first.items() if other == rule))
        for number, rule in enumerate(firsts, 1)
    }


def _rules(folder: str, each: ExtractorsReport, alike: _Alike) -> Group:
    shown = table("")
    shown.add_column("rule", no_wrap=True)
    for name in ("read %", "right %", "95 % interval"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("decides", overflow="fold")
    own = {rule.rule: rule for rule in each.rules}
    for first, (number, rules) in alike.items():
        reading = own[first]
        numbers = percent(reading.read), percent(reading.accuracy), interval(reading.ci_low, reading.ci_high)
        decides = [protocol for rule in rules for protocol in own[rule].protocols]
        shown.add_row(str(number), "\n".join(rules), *numbers, "\n".join(map(safe, decides)))
    missing = f", {counted(each.missing, 'item')} without a text" if each.missing else ""
    texts = f"{counted(each.n, 'text')} of {listed(each.protocols)}{missing}"
    title = f"{folder}: what {len(each.rules)} rules read in {texts}"
    return titled(title, shown, _range(each.rules), "a text in which a rule reads no option is wrong")


def _range(rules: Sequence[RuleReading]) -> str:
    values = [rule.accuracy for rule in rules if not math.isnan(rule.accuracy)]
    if not values:
        return "no text, and so no number"
    low, high = percent(min(values)), percent(max(values))
    return f"the same texts are {low} to {high} % right, by the rule alone"


def _agreement(each: ExtractorsReport, alike: _Alike) -> Group:
    numbers = {first: number for first, (number, _) in alike.items()}
    cells = {(number, number): "" for number in numbers.values()}
    for pair in each.pairs:
        if pair.left in numbers and pair.right in numbers:
            left, right = numbers[pair.left], numbers[pair.right]
            cells[left, right] = f"{100 * pair.same:.0f}"
            kappa = round(pair.kappa, 2) + 0.0  # of -0.0 no sign is left
            cells[right, left] = "-" if math.isnan(kappa) else f"{kappa:.2f}".replace("0.", ".", 1)
    shown = table("")
    for number in numbers.values():
        shown.add_column(str(number), justify="right", no_wrap=True)
    for row in numbers.values():
        shown.add_row(str(row), *(cells[row, column] for column in numbers.values()))
    note = "above the diagonal: texts read alike in %; below: Cohen's kappa; none is an answer, too"
    return titled("how far the rules agree", shown, note)


def _disputes(each: ExtractorsReport, alike: _Alike, most: int) -> Group:
    shown = table("item")
    shown.add_column("right", no_wrap=True)
    shown.add_column("read by rules", overflow="fold")
    shown.add_column("text", overflow="fold")
    numbers = {rule: number for number, rules in alike.values() for rule in rules}
    for item in each.disputed[:most]:
        read = [
            f"{letter or '-'}: {' '.join(map(str, dict.fromkeys(numbers[rule] for rule in rules)))}"
            for letter, rules in item.read.items()
        ]
        text = visible_line(item.start) + (f" […] {visible_line(item.end)}" if item.end else "")
        shown.add_row(safe(item.item), safe(item.right), "\n".join(read), text)
    first = f", the first {most}" if most < len(each.disputed) else ""
    partly = f"read by some rules, with no second option: {counted(each.partly, 'more text')}"
    title = f"in dispute: {counted(len(each.disputed), 'item')} of {each.n:,}{first}"
    return titled(title, shown, *([partly] if each.partly else []))


_SHOWN_AGREEMENTS = 8
"""Options that differ most, each with the pair of retrievals that differs most; `--json` has five of every pair."""


def _pairs(folder: str, pairs: Sequence[Agreement]) -> Group:
    shown = table("retrievals", "n", "median", "largest", "differ")
    for name in ("because of", "same decision"):
        shown.add_column(name, overflow="fold")
    for pair in pairs:
        decided = f"{pair.same}/{pair.items}" + (f"\n{_counts(pair.decided)}" if pair.decided else "")
        sizes = (str(pair.n), _nats(pair.median), _nats(pair.largest), str(pair.beyond))
        shown.add_row(f"{safe(pair.left)}\n  {safe(pair.right)}", *sizes, _counts(pair.causes), decided)
    beyond = f"differ: by more than {pairs[0].tolerance:.1e} nats and than the noise of so many tokens"
    return titled(f"{safe(folder)}: retrievals of the same options, differences of their sums in nats", shown, beyond)


def _worst(pairs: Sequence[Agreement]) -> Group:
    shown = table("item, option")
    shown.add_column("retrievals", overflow="fold")
    for name in ("sum", "difference", "cause"):
        shown.add_column(name, justify="right", no_wrap=True)
    every = [(pair, worst) for pair in pairs for worst in pair.worst]
    every.sort(key=lambda entry: -abs(entry[1].difference))
    once: dict[tuple[str, int], tuple[Agreement, Divergence]] = {}
    for pair, worst in every:
        once.setdefault((worst.item, worst.choice), (pair, worst))
    for pair, worst in list(once.values())[:_SHOWN_AGREEMENTS]:
        item, retrievals = f"{safe(worst.item)}\n  {safe(worst.text)}", f"{safe(pair.left)}\n{safe(pair.right)}"
        sums = f"{worst.left:.4f}\n{worst.right:.4f}"
        shown.add_row(item, retrievals, sums, _nats(worst.difference), worst.cause)
    return titled("where they differ most", shown)


def _counts(causes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {cause}" for cause, count in causes.items())


def _nats(value: float) -> str:
    return "" if value != value else f"{value:.3g}"
