"""The multiverse for a terminal: the spread over protocols, duels of models, and how often a choice would be chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple

from rich.console import Group
from rich.text import Text

from choicewise.extensions.analyses.multiverse import Distribution, Duel, Multiverse, RankAgreement, ScoreSpread
from choicewise.report.tables import console, table, titled
from choicewise.scoring.significance import FEWEST, Fit
from choicewise.util.text import are, counted, percent, safe, wrapped


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
    if not any(condition.n for condition in shown.conditions):
        notes.append("no item has a probability of every choice under it")
    elif shown.softmax_fit and shown.winner_fit:
        notes.append(f"fit to people: softmax {_fit(shown.softmax_fit)}; winner {_fit(shown.winner_fit)}")
    return titled(title, rows, *notes)


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


def _fit(fit: Fit) -> str:
    r = "-" if math.isnan(fit.correlation) else f"{fit.correlation:.3f}"
    return f"r = {r}, log-likelihood {fit.log_likelihood:.2f} nats over {fit.people:g} choices"


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
    hung = ("\n    ".join(wrapped(line, console().width - 4)) for line in lines)
    return [Text("\n  ".join(["protocols that can't differ here, and count once:", *hung]))] if lines else []


def _unshared(duel: Duel, spreads: Sequence[ScoreSpread]) -> list[str]:
    """Protocols that measured each of the two models, but on no item of both."""
    sides = [each for each in spreads if each.model in (duel.left, duel.right) and each.dataset == duel.dataset]
    reported = {name for each in sides for name in each.unmeasured}
    return [name for name in duel.unmeasured if name not in reported]


def _spreads(spreads: Sequence[ScoreSpread]) -> Group:
    shown = table("model", "protocols", "distinct", "min", "median", "max", "flips")
    shown.add_column("lowest, highest", overflow="fold")
    for spread in spreads:
        name = f"{safe(spread.model)}\n  on {safe(spread.dataset)}"
        extremes = ",\n".join(safe(each) for each in (spread.lowest, spread.highest) if each) or "-"
        shown.add_row(name, str(spread.protocols), str(spread.distinct), *map(percent, astuple(spread.panel)), extremes)
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
    items = max((contest.n for contest in duel.measured), default=0)
    several = f"{len(duel.measured)} distinct protocols ({duel.protocols} in all)"
    protocols = several if duel.protocols > len(duel.measured) else f"{len(duel.measured)} protocols"
    verdict = (
        f"{left} is ahead under {agreement.left}, {right} under {agreement.right}, neither under {agreement.even} of "
        f"{protocols}; {percent(agreement.share)} % agree on the sign."
    )
    if items < FEWEST:
        return f"{verdict} {counted(items, 'item')} {are(items)} too few to call one of them better."
    better = duel.significant()
    verdict += f" After Holm's correction {left} is significantly better under {better[0]}, {right} under {better[1]}."
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
