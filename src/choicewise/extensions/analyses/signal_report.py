"""Write signal and noise as tables: the protocols with the most signal first, and the chain of
metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from choicewise.extensions.analyses.signal import Follows, Signal, SignalRow, signals
from choicewise.results.outcomes import Summary
from choicewise.table import Column, Table, facts_of
from choicewise.util.text import counted, listed

SIGNAL = (
    Column("protocol"),
    Column("metric"),
    Column(
        "signal",
        "share",
        heading="signal %",
        meaning="greatest difference of two models over their mean; noise: standard deviation of checkpoints over "
        "theirs; ±: bootstrap standard error over models and checkpoints",
    ),
    Column("noise", "share", heading="noise %"),
    Column("snr", "ratio", heading="signal / noise"),
    Column("se", "ratio", joined=" ± "),
    Column("models", "count", data=True),
    Column("checkpoints", "count", data=True),
    Column("accuracy", "share", heading="order %", optional=True),
    Column("follows", "correlation", optional=True),
    Column("follows_low", "correlation", data=True),
    Column("follows_high", "correlation", data=True),
    Column("follows_items", "count", data=True),
    Column("follows_models", "count", data=True),
    Column("chain", data=True),
)

CHAIN = (
    Column("protocol"),
    Column("metric"),
    Column("median", "correlation", heading="middle item"),
    Column("low", "correlation", heading="middle half"),
    Column("high", "correlation", joined=" to "),
    Column("items", "count"),
)


def tables(runs: Sequence[Summary]) -> list[Table]:
    """Return the protocols of each dataset of ``runs``, those with the most signal for their noise
    first.
    """
    of_all: list[Table] = []
    for report in signals(runs):
        of_all.extend(signal_tables(report))
    return of_all


def signal_tables(report: Signal) -> list[Table]:
    """Return the protocols with the most signal for their noise first, and the chains of metrics if
    there are any.
    """
    training_runs = []
    for name, steps in report.trainings.items():
        checkpoints = counted(len(steps), "checkpoint")
        training_runs.append(f"the last {report.last[name]} of {checkpoints} of {name}")
    notes = []
    # What the columns mean is said only if they are there.
    if report.step is not None:
        early = f"{report.unit} {report.step:,.0f}"
        notes.append(f"order: share of pairs of training runs that rank at {early} as at the end")
    if any(row.follows for row in report.rows):
        notes.append(
            "follows: the middle item's rank correlation (Spearman) of its score with compute"
        )
    models = counted(len(report.models), "model")
    table = Table(
        name="signal",
        title=(
            f"{report.dataset} {report.data}: signal over {models}, noise over "
            f"{listed(training_runs)}"
        ),
        columns=SIGNAL,
        rows=[_signal_row(row) for row in report.rows],
        notes=[*notes, *report.notes],
        facts=facts_of(report, ("rows", "notes")),
    )
    if not report.chains:
        return [table]
    return [table, _chain_table(report.chains)]


def _signal_row(row: SignalRow) -> list[Any]:
    separation = row.separation
    cells: list[Any] = [row.protocol, row.metric]
    cells += [separation.signal, separation.noise, separation.snr, separation.se]
    cells += [separation.models, separation.checkpoints, row.accuracy]
    cells += [*_follows(row.follows), row.chain]
    return cells


def _follows(follows: Follows | None) -> list[Any]:
    if follows is None:
        return [None] * 5
    return [follows.median, follows.low, follows.high, follows.items, follows.models]


def _chain_table(chains: Sequence[Sequence[SignalRow]]) -> Table:
    rows = []
    models = 0
    for chain in chains:
        for row in chain:
            median, low, high, items, of_models = _follows(row.follows)
            rows.append([row.protocol, row.metric, median, low, high, items])
            models = max(models, of_models)
    return Table(
        name="chain",
        title=(
            f"how closely items follow compute, by metric: rank correlations over {models} models "
            "of one family"
        ),
        columns=CHAIN,
        rows=rows,
        notes=[
            "each metric is made of the one before it; what wrong choices and the threshold add "
            "hides the trend"
        ],
    )
