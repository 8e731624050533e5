"""What many runs say together: bad items, how well numbers tell checkpoints apart, estimates from a sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from choicewise.extensions.analyses.audit import LEVEL, VERDICTS, Audit, BadItem, ConstantItem
from choicewise.extensions.analyses.sample import SampleEstimate
from choicewise.extensions.analyses.signal import Signal, SignalRow
from choicewise.protocols.metrics import METRICS
from choicewise.report.brief import WIDTH
from choicewise.report.tables import table, titled
from choicewise.results.headline import headline
from choicewise.results.rows import Row
from choicewise.util.text import counted, interval, listed, percent, plain, safe, shortened, visible_line, wrapped

MOST = 20
"""Items, and protocols, that are shown unless all are asked for."""

_QUESTION, _ITEM = 90, 46  # characters of a question, and columns that it has at least


def audit_tables(report: Audit, every: bool = False) -> Iterator[Group | Text]:
    """The bad items by what they are bad under, then what the columns mean, and the items that say nothing.

    ``every``: all of them, not about :data:`MOST` together.
    """
    always = ("all", "one") if len(report.protocols) > 1 else ("",)
    numbers = {verdict: len(report.verdicts(verdict)) for verdict in _BRIEFLY}
    counts = [f"{numbers[each]:,} {words}" for each, words in _BRIEFLY.items() if numbers[each] or each in always]
    yield Text(safe(f"{_where(report)}: {_judged(report)}; {', '.join(counts)}"))
    for verdict, shown in _chosen(report, every).items():
        own = report.verdicts(verdict)
        more = f", the worst {len(shown)} of {len(own):,}" if len(shown) < len(own) else ""
        yield titled(f"{VERDICTS[verdict]}{more}", _bad_table(shown, len(report.protocols)))
    yield Group(*(Text(safe(line)) for line in (*_MEANINGS, *_unsure(report), *_constant(report.constant, every))))


def signal_tables(report: Signal, every: bool = False) -> Iterator[Group | Text]:
    """The protocols with the most signal for their noise first, the chain of metrics, and what to beware of."""
    shown = table("protocol", "metric", "signal %", "noise %", "signal / noise")
    names = {"order %": report.step is not None, "follows": any(row.follows for row in report.rows)}
    for name in (name for name, known in names.items() if known):
        shown.add_column(name, justify="right", no_wrap=True)
    rows = report.rows if every else report.rows[:MOST]
    for row in rows:
        own = row.separation
        ratio = "-" if math.isnan(own.snr) else f"{own.snr:.1f}" + ("" if math.isnan(own.se) else f" ± {own.se:.1f}")
        cells = [safe(row.protocol), row.metric, percent(own.signal), percent(own.noise), ratio]
        cells += [percent(row.accuracy)] if report.step is not None else []
        cells += [_follows(row)] if names["follows"] else []
        shown.add_row(*cells)
    more = (
        [f"{counted(len(report.rows) - len(rows), 'more protocol')} with less"] if len(rows) < len(report.rows) else []
    )
    trained = [
        f"the last {report.last[name]} of {counted(len(at), 'checkpoint')} of {name}"
        for name, at in report.trainings.items()
    ]
    title = f"{report.dataset} {report.data}: signal over {len(report.models)} models, noise over {listed(trained)}"
    meanings = [
        "signal: greatest difference of two models over their mean; noise: standard deviation of checkpoints over "
        "theirs; ±: bootstrap standard error over models and checkpoints",
    ]
    if report.step is not None:
        meanings.append(
            f"order: share of pairs of training runs that stand at {report.unit} {report.step:,.0f} as at the end"
        )
    if names["follows"]:
        meanings.append("follows: the middle item's rank correlation (Spearman) of its score with compute")
    yield titled(title, shown, *more, *meanings)
    if report.chains:
        yield _chain_table(report.chains if every else report.chains[:MOST])
    yield Group(*(Text(safe(note)) for note in report.notes))


def estimate_lines(estimates: Sequence[SampleEstimate], rows: Sequence[Row]) -> Iterator[str]:
    """Of every sample the estimate of its headline number, beside what the sample alone says; ``rows``: all numbers."""
    for sample in dict.fromkeys(map(_sample, estimates)):
        own = {each.protocol: each for each in estimates if _sample(each) == sample}
        first = headline([row for row in rows if row.protocol in own and _sample(row) == sample])
        row = own[first.protocol] if first is not None else next(iter(own.values()))
        spelled, unit = _spelled(row)
        known = row.estimate
        gain = f", worth {known.worth:.1f} times the questions" if known.worth >= _GAIN else ""
        line = (
            f"{row.model} under {row.protocol}: {_number(known.value, known.se, spelled)}{unit} of all "
            f"{known.population:,} questions by {counted(len(row.others), 'other model')} (AIPW{gain}); the sample "
            f"alone {_number(known.plain, known.plain_se, spelled)}{unit}"
        )
        yield from wrapped(safe(line), WIDTH)


def estimate_tables(estimates: Sequence[SampleEstimate]) -> Iterator[Group]:
    """A line per number; no table without any."""
    if not estimates:
        return
    shown = table("model", "protocol", "metric", "estimate", "95 % interval", "sample alone", "n", "worth")
    for row in estimates:
        own, (spelled, _) = row.estimate, _spelled(row)
        alone = _number(own.plain, own.plain_se, spelled)
        bounds, value = interval(own.ci_low, own.ci_high, spelled), _number(own.value, own.se, spelled)
        worth = "" if math.isnan(own.worth) else f"{own.worth:.1f}"
        shown.add_row(safe(row.model), safe(row.protocol), row.metric, value, bounds, alone, f"{own.n:,}", worth)
    others = max(len(row.others) for row in estimates)
    yield titled(
        f"estimates for all questions from a sample of them and {counted(others, 'other model')} (AIPW)",
        shown,
        "worth: how many times as many questions a sample alone would need for the same error",
    )


_GAIN = 1.05
"""Estimates that are worth no more times the questions of their sample say nothing of it."""

_BRIEFLY = {"all": "bad under every protocol", "one": "under one only", "some": "under some", "": "bad"}

_MEANINGS = (
    "item-rest: correlation with all other items over the models; H: Mokken's scalability; R²: signed isotonic share "
    "of variance that other items explain; a good item has all three above 0",
    f"bad: all three below 0, item-rest significantly; of items that have nothing to do with ability up to {LEVEL:.0%} "
    "are so by chance: read the item",
)


def _sample(of: SampleEstimate | Row) -> tuple[str, str, str]:
    return of.model, of.data, of.selection


def _spelled(row: SampleEstimate) -> tuple[Callable[[float], str], str]:
    """How its numbers are written, and their unit."""
    return (percent, " %") if METRICS[row.metric].share else (plain, "")


def _number(value: float, se: float, spelled: Callable[[float], str]) -> str:
    return spelled(value) if math.isnan(se) else f"{spelled(value)} ± {spelled(se)}"


def _where(report: Audit) -> str:
    return f"{report.dataset} {report.data}"


def _judged(report: Audit) -> str:
    under = "one protocol" if len(report.protocols) == 1 else counted(len(report.protocols), "protocol")
    return f"{report.judged:,} of {counted(report.items, 'item')} judged by {len(report.models)} models under {under}"


def _chosen(report: Audit, every: bool) -> dict[str, Sequence[BadItem]]:
    """What is shown of each verdict: all, or half of the room for what is bad under all where others wait."""
    lists = {verdict: own for verdict in VERDICTS if (own := report.verdicts(verdict))}
    if every:
        return {**lists}
    shown, room = dict[str, Sequence[BadItem]](), MOST
    for verdict, own in lists.items():
        last = verdict == [*lists][-1]
        shown[verdict] = own[: room if last else max(room // 2, 1)]
        room -= len(shown[verdict])
        if room < 1:
            break
    return shown


def _bad_table(items: Sequence[BadItem], protocols: int) -> Table:
    shares = all(METRICS[judged.metric].share for each in items for judged in each.under)
    shown = table("item, question", "right %" if shares else "mean", "item-rest", "H", "R²")
    shown.columns[0].min_width = _ITEM
    several = protocols > 1
    if several:
        shown.add_column("bad under", overflow="fold")
    for each in items:
        worst, names = each.worst, [judged.protocol for judged in each.under if judged.bad]
        words = visible_line(shortened(each.question, _QUESTION))
        title = safe(f"{each.item} ({each.subject})" if each.subject else each.item)
        numbers = [*map(_rho, (worst.rest, worst.scale, worst.isotonic))]
        under = f"all {len(names)}" if each.verdict == "all" else safe(listed(names, 3))
        cells = [
            f"{title}\n  {words}" if words else title,
            percent(worst.right) if shares else plain(worst.right),
            *numbers,
        ]
        shown.add_row(*cells, *([under] if several else []))
    return shown


def _unsure(report: Audit) -> Iterator[str]:
    """What else there is to know of the items and protocols."""
    if report.shared < report.items:
        yield f"the runs hold different items: {report.shared:,} of {report.items:,} are shared by all of them"
    if report.alike:
        yield f"not judged by themselves, as they can't differ from another: {listed(report.alike)}"


def _constant(items: Sequence[ConstantItem], every: bool) -> Iterator[str]:
    """The items that all models get right, and those that none does, whose key may be wrong unseen."""
    of_all = len([each for each in items if each.right == 1])
    never = [each.item for each in items if each.right == 0]
    others = len(items) - of_all - len(never)
    if of_all:
        yield f"right with every model, so nothing can be said: {counted(of_all, 'item')}"
    if never:
        shown = ", ".join(never) if every else listed(never, MOST // 2)
        yield f"wrong with every model, so look at the key: {counted(len(never), 'item')}: {shown}"
    if others:
        yield f"the same with every model, so nothing can be said: {counted(others, 'item')}"


def _follows(row: SignalRow) -> str:
    return "-" if row.follows is None else _rho(row.follows.median)


def _rho(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


def _chain_table(chains: Sequence[Sequence[SignalRow]]) -> Group:
    """Every chain from the log-probability on, a line for each metric."""
    shown = table("protocol", "metric", "middle item", "middle half", "items")
    for rows in chains:
        for row in rows:
            if (own := row.follows) is not None:
                half = f"{_rho(own.low)} to {_rho(own.high)}"
                shown.add_row(safe(row.protocol), row.metric, _rho(own.median), half, f"{own.items:,}")
    models = max(row.follows.models for rows in chains for row in rows if row.follows is not None)
    return titled(
        f"how closely items follow compute, by metric: rank correlations over {models} models of one family",
        shown,
        "each metric is made of the one before it; what wrong choices and the threshold add hides the trend",
    )
