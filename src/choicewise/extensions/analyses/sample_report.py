"""Write estimates for all questions from samples of them: a sentence for each sample, and a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from choicewise.extensions.analyses.sample import SampleEstimate, sample_estimates
from choicewise.ports import Estimates
from choicewise.protocols.metrics import METRICS
from choicewise.report.brief import WIDTH
from choicewise.results.headline import headline
from choicewise.results.number import Number, NumberIdentity
from choicewise.results.outcomes import Summary
from choicewise.table import Column, Share, Table, written
from choicewise.util.text import counted, safe, wrapped

COLUMNS = (
    *(Column("model"), Column("protocol"), Column("metric")),
    Column("estimate", "number"),
    Column("se", "number", joined=" ± "),
    Column("ci_low", "number", heading="95 % interval"),
    Column("ci_high", "number", joined=" – "),
    Column("plain", "number", heading="sample alone"),
    Column("plain_se", "number", joined=" ± "),
    Column("n", "count"),
    Column("worth", "ratio", meaning="sample size that gives the same error without other models"),
)

_GAIN = 1.05
"""Estimates that are worth no more times the questions of their sample say nothing of it."""


def estimates(runs: Sequence[Summary], rows: Sequence[Number]) -> Estimates:
    """Return the estimates of every sample among ``runs`` with other models' runs of all items."""
    estimated = sample_estimates(runs)
    if not estimated.rows:
        return Estimates(notes=estimated.notes)
    return Estimates(
        notes=estimated.notes,
        records=[estimate.as_json() for estimate in estimated.rows],
        tables=[estimate_table(estimated.rows)],
        lines=list(estimate_lines(estimated.rows, rows)),
    )


def estimate_lines(estimates: Sequence[SampleEstimate], rows: Sequence[Number]) -> Iterator[str]:
    """Yield for each sample the estimate of its headline number, beside that of the sample alone.

    ``rows``: all numbers.
    """
    samples: dict[tuple[str, str, str], dict[str, SampleEstimate]] = {}
    for estimate in estimates:
        samples.setdefault(_sample(estimate), {})[estimate.protocol] = estimate
    for sample, by_protocol in samples.items():
        candidates = []
        for row in rows:
            if row.identity.protocol in by_protocol and _sample(row.identity) == sample:
                candidates.append(row)
        first = headline(candidates)
        protocol = next(iter(by_protocol)) if first is None else first.identity.protocol
        yield from _lines(by_protocol[protocol])


def _lines(row: SampleEstimate) -> list[str]:
    estimate = row.estimate
    unit = " %" if METRICS[row.metric].share else ""
    gain = ""
    if estimate.worth >= _GAIN:
        gain = f", worth {estimate.worth:.1f} times the questions"
    line = (
        f"{row.model} under {row.protocol}: {_number(row, estimate.value, estimate.se)}{unit} of "
        f"all {estimate.population:,} questions by {counted(len(row.others), 'other model')} "
        f"(AIPW{gain}); the sample "
        f"alone {_number(row, estimate.plain, estimate.plain_se)}{unit}"
    )
    return wrapped(safe(line), WIDTH)


def _number(row: SampleEstimate, value: float, se: float) -> str:
    text = written(_value(row, value), "number")
    if math.isnan(se):
        return text
    return f"{text} ± {written(_value(row, se), 'number')}"


def estimate_table(estimates: Sequence[SampleEstimate]) -> Table:
    """Return a row for each estimate."""
    others = max(len(estimate.others) for estimate in estimates)
    return Table(
        name="estimates",
        title="estimates for all questions from a sample of them and "
        f"{counted(others, 'other model')} (AIPW)",
        columns=COLUMNS,
        rows=[_row(estimate) for estimate in estimates],
    )


def _row(row: SampleEstimate) -> list[Any]:
    estimate = row.estimate
    bounds = [
        estimate.value,
        estimate.se,
        estimate.ci_low,
        estimate.ci_high,
        estimate.plain,
        estimate.plain_se,
    ]
    numbers = [_value(row, number) for number in bounds]
    return [row.model, row.protocol, row.metric, *numbers, estimate.n, estimate.worth]


def _value(row: SampleEstimate, number: float) -> float:
    if METRICS[row.metric].share:
        return Share(number)
    return number


def _sample(number: SampleEstimate | NumberIdentity) -> tuple[str, str, str]:
    return number.model, number.data, number.selection
