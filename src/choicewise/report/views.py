"""The further reports as tables: agreement, distribution, effects, multiverse, ladder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple

from rich.console import Group
from rich.text import Text

from choicewise.report.comparison import axes_text, change_text
from choicewise.report.tables import table, titled
from choicewise.results.agreement import CAUSES, Agreement, Divergence
from choicewise.results.ladder import EXACT, LEVEL, BothWays, Effect, Ladder, Spread, Step, Turn
from choicewise.results.multiverse import Distribution, Duel, Multiverse, RankAgreement, ScoreSpread
from choicewise.scoring.intervals import two_sided
from choicewise.scoring.significance import Fit
from choicewise.util.text import counted, error, percent, points, safe


def agreement_tables(folder: str, pairs: Sequence[Agreement]) -> list[Group | Text]:
    """The pairs of the run in ``folder``, the options on which they differ most, and what the causes mean."""
    if not pairs:
        return [Text(f"{safe(folder)}: no two protocols retrieve the same texts in different ways; try options/quoted")]
    raised = {cause for pair in pairs for cause in (*pair.causes, *pair.decided)}
    legend = [Text(f"{cause}: {meaning}") for cause, meaning in CAUSES.items() if cause in raised]
    worst = [_worst(pairs)] if any(pair.worst for pair in pairs) else []
    return [_pairs(folder, pairs), *worst, *legend]


def distribution_table(shown: Distribution) -> Group:
    """A row per condition and link; probabilities in the order of the choices."""
    title = f"{shown.model} on {shown.dataset}: {shown.protocol}, softmax at temperature {shown.temperature:g}"
    rows = table("group", "n", "link")
    rows.add_column("probability of each choice", overflow="fold")
    for condition in shown.conditions:
        links = {"softmax": condition.softmax, "winner": condition.winner, "people": condition.human}
        for link, shares in links.items():
            if shares:
                name, n = (condition.name, str(condition.n)) if link == "softmax" else ("", "")
                rows.add_row(name, n, link, " ".join(f"{share:.3f}" for share in shares))
    notes = []
    if shown.softmax_fit and shown.winner_fit:
        notes.append(f"fit to people: softmax {_fit(shown.softmax_fit)}; winner {_fit(shown.winner_fit)}")
    return titled(title, rows, *notes)


def effects_table(model: str, dataset: str, effects: Sequence[Effect]) -> Group:
    """A line for every axis, the greatest changes first, and under it the changes of its values."""
    shown = table("axis", "size", "mean", "sd", "lowest", "highest", "pairs")
    for effect in effects:
        shown.add_row(effect.axis, percent(effect.absolute), *_effect_cells(effect.spread))
        for change in effect.changes[:_SHOWN_EFFECTS]:
            names = [change_text(axis) for axis in change.axes]
            shown.add_row(f"  {', '.join(names)}", "", *_effect_cells(change.spread))
        if len(effect.changes) > _SHOWN_EFFECTS:
            shown.add_row(f"  ... {counted(len(effect.changes) - _SHOWN_EFFECTS, 'more change')} of value")
    counts = [pair.n for effect in effects for change in effect.changes for pair in change.pairs]
    few, many = min(counts), max(counts)
    items = counted(many, "item") if few == many else f"{few} to {many} items"
    return titled(
        f"{model} on {dataset}: what one axis changes, in points, of {items}",
        shown,
        "pairs of protocols that differ in this axis alone, or in axes that only change together; size: mean absolute "
        "change",
    )


def multiverse_tables(panel: Multiverse) -> list[Group | Text]:
    """The spread over protocols, a table per pair of models, and conclusions in words."""
    parts: list[Group | Text] = [_spreads(panel.spreads), *_alike(panel)]
    missed = dict.fromkeys(spread.unmeasured for spread in panel.spreads)
    for names in missed:
        models = ", ".join(safe(spread.model) for spread in panel.spreads if spread.unmeasured == names)
        parts += _unmeasured(names, f" with {models}" if len(missed) > 1 else "")
    for duel in panel.duels:
        parts += [_duel(duel), Text(_verdict(duel)), *_unmeasured(_unshared(duel, panel.spreads))]
    if panel.ranks:
        parts.append(Text(_order(panel.ranks)))
    most = max(spread.distinct for spread in panel.spreads)
    if most > 1:
        warning = (
            f"The greatest of {most} numbers is no estimate of accuracy: it was chosen because it is the greatest. "
            "Choose the protocol beforehand or on other items, or report the whole spread."
        )
        parts.append(Text(warning))
    return parts


def ladder_table(both: BothWays) -> Group:
    """The two numbers, a line for every axis that changes something, on either way, and how to read it."""
    shown = table("axis", "in order", "items", "%", "in reverse", "items", "differ")
    still, moved = list[str](), list[Step]()
    for turn in both.turns:
        early, late = (_within(turn, side.steps) for side in (both.in_order, both.in_reverse))
        if not any(map(_moves, (*early, *late))):
            still += turn.axes
            continue
        moved += (*early, *late)
        cells = *_step_cells(early, turn.in_order), percent(early[-1].value), *_step_cells(late, turn.in_reverse)
        shown.add_row(_axes(both, turn, early), *cells, _difference(turn) if turn.differ else "")
    unmoved = [f"no item and no value changes with {', '.join(still)}"] if still else []
    return titled(_title(both.in_order), shown, *unmoved, *_notes(both, moved))


_SHOWN_AGREEMENTS = 8
"""Options that differ most, each with the pair of retrievals that differs most; `--json` has five of every pair."""


def _pairs(folder: str, pairs: Sequence[Agreement]) -> Group:
    shown = table("retrieval", "and retrieval", "n", "median", "largest", "differ", "because of", "same decision")
    for pair in pairs:
        decided = f"{pair.same}/{pair.items}" + (f": {_counts(pair.decided)}" if pair.decided else "")
        sizes = (str(pair.n), _nats(pair.median), _nats(pair.largest), str(pair.beyond))
        shown.add_row(safe(pair.left), safe(pair.right), *sizes, _counts(pair.causes), decided)
    beyond = f"differ: by more than {pairs[0].tolerance:.1e} nats and than the noise of so many tokens"
    return titled(f"{safe(folder)}: retrievals of the same options, differences of their sums in nats", shown, beyond)


def _worst(pairs: Sequence[Agreement]) -> Group:
    shown = table("item", "option", "retrieval", "and retrieval", "sum", "sum", "difference", "cause")
    every = [(pair, worst) for pair in pairs for worst in pair.worst]
    every.sort(key=lambda entry: -abs(entry[1].difference))
    once: dict[tuple[str, int], tuple[Agreement, Divergence]] = {}
    for pair, worst in every:
        once.setdefault((worst.item, worst.choice), (pair, worst))
    for pair, worst in list(once.values())[:_SHOWN_AGREEMENTS]:
        names = map(safe, (worst.item, worst.text, pair.left, pair.right))
        numbers = (f"{worst.left:.4f}", f"{worst.right:.4f}", _nats(worst.difference))
        shown.add_row(*names, *numbers, worst.cause)
    return titled("where they differ most", shown)


def _counts(causes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {cause}" for cause, count in causes.items())


def _nats(value: float) -> str:
    return "" if value != value else f"{value:.3g}"


def _fit(fit: Fit) -> str:
    return f"r = {fit.correlation:.3f}, log-likelihood {fit.log_likelihood:.2f} nats over {fit.people:g} choices"


_SHOWN_EFFECTS = 3  # changes of value that are shown for each axis, those of most pairs; JSON has them all


def _effect_cells(spread: Spread) -> tuple[str, ...]:
    sd = "-" if math.isnan(spread.sd) else percent(spread.sd)
    return _points(spread.mean), sd, _points(spread.low), _points(spread.high), str(spread.pairs)


_SHOWN_DECISIONS = 12  # protocols of a duel that are shown one by one; `--json` has them all


def _unmeasured(names: Sequence[str], models: str = "") -> list[Text]:
    return [Text(f"not measured{models}: {', '.join(names)}")] if names else []


def _alike(panel: Multiverse) -> list[Text]:
    """The protocols that can't differ, once where that is so with all models."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for spread in panel.spreads:
        for names in spread.alike:
            groups.setdefault(names, []).append(safe(spread.model))
    lines = [
        " = ".join(names) + (f" with {', '.join(models)}" if len(models) < len(panel.spreads) else "")
        for names, models in groups.items()
    ]
    return [Text("\n  ".join(["protocols that can't differ here, and count once:", *lines]))] if lines else []


def _unshared(duel: Duel, spreads: Sequence[ScoreSpread]) -> list[str]:
    """Protocols that measured each of the two models, but on no item of both."""
    sides = [each for each in spreads if each.model in (duel.left, duel.right) and each.dataset == duel.dataset]
    reported = {name for each in sides for name in each.unmeasured}
    return [name for name in duel.unmeasured if name not in reported]


def _spreads(spreads: Sequence[ScoreSpread]) -> Group:
    shown = table("model", "protocols", "distinct", "min", "median", "max", "flips")
    shown.add_column("lowest, highest", overflow="fold")
    for spread in spreads:
        name, extremes = f"{safe(spread.model)} on {safe(spread.dataset)}", f"{spread.lowest}, {spread.highest}"
        shares = map(percent, astuple(spread.panel))
        shown.add_row(name, str(spread.protocols), str(spread.distinct), *shares, extremes if spread.protocols else "-")
    title = "accuracy in % over protocols (means over items)"
    return titled(title, shown, "flips: % of items for which the protocols do not all predict the same")


def _duel(duel: Duel) -> Group:
    shown = table("protocol", "difference", "n", "p", "p (Holm)")
    for contest in sorted(duel.measured, key=lambda each: -abs(each.difference))[:_SHOWN_DECISIONS]:
        ps = (f"{p:.3f}" if p >= 0.001 else "<0.001" for p in (contest.p, contest.p_holm))
        name = contest.protocol + (f" (+ {len(contest.alike)} alike)" if contest.alike else "")
        shown.add_row(name, f"{100 * contest.difference:+.1f}", str(contest.n), *ps)
    if len(duel.measured) > _SHOWN_DECISIONS:
        shown.add_row(f"... {len(duel.measured) - _SHOWN_DECISIONS} more with smaller differences")
    return titled(f"{duel.left} minus {duel.right} on {duel.dataset}, in percentage points", shown)


def _verdict(duel: Duel) -> str:
    left, right, agreement = safe(duel.left), safe(duel.right), duel.agreement
    better = duel.significant()
    several = f"{len(duel.measured)} distinct protocols ({duel.protocols} in all)"
    protocols = several if duel.protocols > len(duel.measured) else f"{len(duel.measured)} protocols"
    verdict = (
        f"{left} is ahead under {agreement.left}, {right} under {agreement.right}, neither under {agreement.even} of "
        f"{protocols}; {percent(agreement.share)} % agree on the sign. After Holm's correction "
        f"{left} is significantly better under {better[0]}, {right} under {better[1]}."
    )
    return verdict + (" The conclusion depends on the protocol." if agreement.left and agreement.right else "")


def _order(ranks: Sequence[RankAgreement]) -> str:
    known = sorted((pair for pair in ranks if not math.isnan(pair.tau)), key=lambda pair: pair.tau)
    if not known:
        return "Of every two protocols, one gives all models the same value: their orders can't be compared."
    worst, median = known[0], known[len(known) // 2]
    return (
        f"Order of {worst.models} models: Kendall's τ between two protocols has the median {median.tau:.2f} over "
        f"{len(known)} pairs; {worst.left} and {worst.right} agree least ({worst.tau:.2f})."
    )


_STAR = " *"  # after axes that the run did not change one by one


def _moves(step: Step) -> bool:
    return bool(step.gained or step.lost) or not abs(step.change) <= EXACT


def _title(climbed: Ladder) -> str:
    ends = (climbed.start, climbed.start_value, climbed.start_n), (climbed.end, climbed.end_value, climbed.end_n)
    one, other = (f"{name} {percent(value)} % of {counted(n, 'item')}" for name, value, n in ends)
    change = _points(climbed.end_value - climbed.start_value)
    return f"{climbed.model} on {climbed.dataset}: from {one} to {other}, {change} points"


def _within(turn: Turn, steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if {axis.axis for axis in step.axes} & set(turn.axes)]


def _axes(both: BothWays, turn: Turn, early: Sequence[Step]) -> str:
    axes = {axis.axis: axis for step in early for axis in step.axes}
    coarse = any(set(axes) & set(turn.axes) for axes in both.coarse)
    return axes_text([axes[name] for name in turn.axes]) + (_STAR if coarse else "")


def _step_cells(steps: Sequence[Step], change: float) -> tuple[str, str]:
    """The change, with its error and items where it is that of one step."""
    if len(steps) > 1:
        return _points(change), ""
    (step,) = steps
    return _points(step.change, step.se), f"+{step.gained} -{step.lost}" if step.gained or step.lost else ""


def _points(share: float, se: float = math.nan) -> str:
    """A difference in points, and its standard error where there is one."""
    return "-" if math.isnan(share) else f"{points(share, '-')} {error(se)}".strip()


def _difference(turn: Turn) -> str:
    return f"by {_points(abs(turn.difference), turn.se).removeprefix('+')}"


def _notes(both: BothWays, moved: Sequence[Step]) -> list[str]:
    steps = (*both.in_order.steps, *both.in_reverse.steps)
    fewest, most = min(step.n for step in steps), max(step.n for step in steps)
    of = f"of {most}" if fewest == most else f"of the {fewest} to {most} that both score"
    notes = [
        f"points ± standard error, paired by items; +2 -1: items that turn right, and wrong, {of}",
        "in order: the first axes change first, and give the % beside; in reverse: the last ones first",
        f"differ: the changes are apart by more than {two_sided(LEVEL):.2f} paired standard errors of their difference",
    ]
    if any(step.together for step in moved):
        notes.append("axes in one line change together: no protocol has the value of one without the others'")
    if both.coarse:
        notes.append(f"{_STAR.strip()} not one by one: the run did not ask the protocols between")
    return notes
