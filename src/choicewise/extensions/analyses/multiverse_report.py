"""Write the spread over protocols, duels of models, and how often a choice would be chosen as
tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from choicewise.extensions.analyses.multiverse import (
    Condition,
    Contest,
    Distribution,
    Duel,
    Multiverse,
    RankAgreement,
    ScoreSpread,
    distributions,
    multiverse,
)
from choicewise.extensions.analyses.statistics import Fit
from choicewise.results.run import Run
from choicewise.scoring.significance import FEWEST
from choicewise.table import Column, Table, facts_of, rows_of
from choicewise.util.text import are, counted, percent

SPREADS = (
    Column("model"),
    Column("dataset", joined=" on "),
    Column("protocols", "count"),
    Column("distinct", "count"),
    Column("least", "share", heading="min"),
    Column("median", "share"),
    Column("greatest", "share", heading="max"),
    Column(
        "flips", "share", meaning="% of items for which the protocols do not all predict the same"
    ),
    Column("lowest", heading="lowest, highest"),
    Column("highest", joined=", "),
    Column("unmeasured", "names", data=True),
)

ALIKE = (
    Column("model"),
    Column("dataset"),
    Column("protocols", "names"),
)

CONTESTS = (
    Column("protocol"),
    Column("difference", "points"),
    Column("n", "count"),
    Column("p", "p"),
    Column("p_holm", "p", heading="p (Holm)"),
    Column("alike", "names", data=True),
)

RANKS = (
    Column("left"),
    Column("right"),
    Column("tau", "correlation"),
    Column("models", "count"),
)


def tables(runs: Sequence[Run]) -> list[Table]:
    """Return the tables of all models and protocols of ``runs``."""
    return list(multiverse_tables(multiverse(runs)))


def multiverse_tables(panel: Multiverse) -> Iterator[Table]:
    """Yield the spread over protocols, a table for each pair of models, and how protocols agree on
    the order.
    """
    yield Table(
        name="spreads",
        title="accuracy in % over protocols (means over items)",
        columns=SPREADS,
        rows=[_spread_row(spread) for spread in panel.spreads],
        notes=[*_alike_notes(panel), *_unmeasured_notes(panel), *_conclusions(panel)],
    )
    alike = []
    for spread in panel.spreads:
        for names in spread.duplicates:
            alike.append([spread.model, spread.dataset, names])
    yield Table(
        name="alike", title="protocols that can't differ here", columns=ALIKE, rows=alike, data=True
    )
    for duel in panel.duels:
        yield _duel_table(duel, panel.spreads)
    ranks = rows_of(RANKS, panel.ranks)
    yield Table(
        name="ranks", title="Kendall's τ between protocols", columns=RANKS, rows=ranks, data=True
    )


def _spread_row(spread: ScoreSpread) -> list[Any]:
    panel = spread.panel
    row: list[Any] = [spread.model, spread.dataset, spread.protocols, spread.distinct]
    row += [panel.least, panel.median, panel.greatest, panel.flips]
    row += [spread.lowest, spread.highest, spread.unmeasured]
    return row


def _alike_notes(panel: Multiverse) -> Iterator[str]:
    """Yield the protocols that can't differ, once if that is so with all models."""
    models: dict[tuple[str, ...], list[str]] = {}
    for spread in panel.spreads:
        for names in spread.duplicates:
            models.setdefault(names, []).append(spread.model)
    for names, of_models in models.items():
        line = f"can't differ here, and count once: {' = '.join(names)}"
        if len(of_models) < len(panel.spreads):
            line += f" with {', '.join(of_models)}"
        yield line


def _unmeasured_notes(panel: Multiverse) -> Iterator[str]:
    models: dict[tuple[str, ...], list[str]] = {}
    for spread in panel.spreads:
        models.setdefault(spread.unmeasured, []).append(spread.model)
    for names, of_models in models.items():
        if not names:
            continue
        if len(models) > 1:
            yield f"not measured with {', '.join(of_models)}: {', '.join(names)}"
        else:
            yield f"not measured: {', '.join(names)}"


def _conclusions(panel: Multiverse) -> Iterator[str]:
    if panel.ranks:
        yield _order(panel.ranks)
    # Choosing the best of several protocols after the fact is what makes numbers incomparable.
    most = max(spread.distinct for spread in panel.spreads)
    if most > 1:
        yield (
            f"The greatest of {most} numbers is no estimate of accuracy: it was chosen because it "
            "is the greatest. Choose the protocol beforehand or on other items, or report the "
            "whole spread."
        )


def _order(ranks: Sequence[RankAgreement]) -> str:
    comparable = [pair for pair in ranks if not math.isnan(pair.tau)]
    if not comparable:
        return (
            "Of every two protocols, one gives all models the same value: their orders can't be "
            "compared."
        )
    comparable.sort(key=lambda pair: pair.tau)
    worst = comparable[0]
    median = comparable[len(comparable) // 2]
    return (
        f"Order of {worst.models} models: Kendall's τ between two protocols has the median "
        f"{median.tau:.2f} over "
        f"{len(comparable)} pairs; {worst.left} and {worst.right} agree least ({worst.tau:.2f})."
    )


def _duel_table(duel: Duel, spreads: Sequence[ScoreSpread]) -> Table:
    notes = [_verdict(duel)]
    unshared = _unshared(duel, spreads)
    if unshared:
        notes.append(f"not measured: {', '.join(unshared)}")
    left, right = duel.significant()
    agreement = {**asdict(duel.agreement), "share": duel.agreement.share}
    contests = sorted(duel.measured, key=lambda contest: -abs(contest.difference))
    return Table(
        name="duel",
        title=f"{duel.left} minus {duel.right} on {duel.dataset}, in percentage points",
        columns=CONTESTS,
        rows=[_contest_row(contest) for contest in contests],
        notes=notes,
        facts={
            "left": duel.left,
            "right": duel.right,
            "dataset": duel.dataset,
            "agreement": agreement,
            "significant": {"left": left, "right": right},
            "unmeasured": duel.unmeasured,
        },
    )


def _contest_row(contest: Contest) -> list[Any]:
    row: list[Any] = [contest.protocol, contest.difference, contest.n]
    row += [contest.p, contest.p_holm, contest.duplicates]
    return row


def _unshared(duel: Duel, spreads: Sequence[ScoreSpread]) -> list[str]:
    """Return the protocols that measured each of the two models, but on no item of both."""
    reported: set[str] = set()
    for spread in spreads:
        if spread.model in (duel.left, duel.right) and spread.dataset == duel.dataset:
            reported.update(spread.unmeasured)
    return [name for name in duel.unmeasured if name not in reported]


def _verdict(duel: Duel) -> str:
    left = duel.left
    right = duel.right
    agreement = duel.agreement
    items = max((contest.n for contest in duel.measured), default=0)
    protocols = f"{len(duel.measured)} protocols"
    if duel.protocols > len(duel.measured):
        protocols = f"{len(duel.measured)} distinct protocols ({duel.protocols} in all)"
    verdict = (
        f"{left} is ahead under {agreement.left}, {right} under {agreement.right}, neither under "
        f"{agreement.even} of "
        f"{protocols}; {percent(agreement.share)} % agree on the sign."
    )
    # A test over so few items says nothing, whatever its p.
    if items < FEWEST:
        return (
            f"{verdict} {counted(items, 'item')} {are(items)} too few to call one of them better."
        )
    better = duel.significant()
    verdict += (
        f" After Holm's correction {left} is significantly better under {better[0]}, {right} under "
        f"{better[1]}."
    )
    if agreement.left and agreement.right:
        verdict += " The conclusion depends on the protocol."
    return verdict


def distribution_tables(
    run: Run, temperature: float = 1.0, condition: str | None = None
) -> Iterator[Table]:
    """Yield a table for each protocol of ``run`` that scores choices.

    ``temperature`` is that of the softmax; ``condition`` names a field of the items, over which
    shares are averaged.
    """
    for distribution in distributions(run, temperature, condition):
        yield distribution_table(distribution)


def distribution_table(distribution: Distribution) -> Table:
    """Return a row for each condition and link: the mean probability of each choice, in the order
    of the choices.
    """
    conditions = distribution.conditions
    most = max((len(condition.softmax) for condition in conditions), default=0)
    columns = [Column("group"), Column("n", "count"), Column("link")]
    for index in range(most):
        heading = f"choice {index}"
        columns.append(Column(f"choice_{index}", "probability", heading=heading))
    rows: list[list[Any]] = []
    for condition in conditions:
        rows += _condition_rows(condition, most)
    softmax = distribution.softmax_fit
    winner = distribution.winner_fit
    notes = []
    if not any(condition.n for condition in conditions):
        notes.append("no item has a probability of every choice under it")
    elif softmax and winner:
        notes.append(f"fit to people: softmax {_fit(softmax)}; winner {_fit(winner)}")
    of_data = f"{distribution.model} on {distribution.dataset}: {distribution.protocol}"
    return Table(
        name="distribution",
        title=f"{of_data}, softmax at temperature {distribution.temperature:g}",
        columns=columns,
        rows=rows,
        notes=notes,
        facts=facts_of(distribution, ("conditions",)),
    )


def _condition_rows(condition: Condition, most: int) -> Iterator[list[Any]]:
    by_link = {
        "softmax": condition.softmax,
        "winner": condition.winner,
        "people": condition.human,
    }
    for link, shares in by_link.items():
        if shares:
            absent = [None] * (most - len(shares))
            yield [condition.name, condition.n, link, *shares, *absent]
    if not condition.softmax:
        yield [condition.name, condition.n, None, *[None] * most]


def _fit(fit: Fit) -> str:
    correlation = "-"
    if not math.isnan(fit.correlation):
        correlation = f"{fit.correlation:.3f}"
    return (
        f"r = {correlation}, log-likelihood {fit.log_likelihood:.2f} nats over {fit.people:g} "
        "choices"
    )
