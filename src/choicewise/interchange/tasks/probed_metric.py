"""What a task's own code makes of log-likelihoods: found out by giving it some, and compared with ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from choicewise.interchange.tasks.asked_row import AskedRow
from choicewise.scoring.credits import CREDITS

PROBES = 4
"""Draws of log-likelihoods that a row's code is asked about."""

CLOSE = 1e-6
"""The most by which a credit may differ."""

METRICS = ("acc", "mc2", "mc1")
"""What a task's code may compute of summed log-likelihoods, tried in this order."""


def probed(task: Any, name: str, rows: Sequence[AskedRow]) -> tuple[str, tuple[AskedRow, ...]] | None:
    """Our metric that gives every row the credit that ``task.process_results`` gives it as ``name``, and the rows with
    their right choices as that code has them.

    None where there is none.  Which choices are right shows where one of them has all the probability.
    """
    right = [_right(task, name, row) for row in rows]
    judged = [row if gold is None else replace(row, gold=gold) for row, gold in zip(rows, right, strict=True)]
    if any(gold is None for gold in right):
        return None
    random = np.random.default_rng(0)
    draws = [[random.normal(-10, 4, len(row.choices)) for _ in range(PROBES)] for row in rows]
    for metric in METRICS:
        pairs = (
            pair for row, own in zip(judged, draws, strict=True) for pair in _credits(task, name, metric, row, own)
        )
        if all(abs(ours - theirs) <= CLOSE for ours, theirs in pairs):
            return metric, tuple(judged)
    return None


def _right(task: Any, name: str, row: AskedRow) -> tuple[int, ...] | None:
    gold = []
    for choice in range(len(row.choices)):
        scores = np.where(np.arange(len(row.choices)) == choice, -1e-3, -600.0)
        value = _theirs(task, name, row, scores)
        if value not in (0.0, 1.0) and not (value is not None and min(abs(value), abs(value - 1)) < CLOSE):
            return None
        if value is not None and value > 0.5:
            gold.append(choice)
    return tuple(gold) or None


def _credits(task: Any, name: str, metric: str, row: AskedRow, draws: Sequence[Any]) -> Iterator[tuple[float, float]]:
    """(ours, theirs) for each draw."""
    gold = np.isin(np.arange(len(row.choices)), row.gold)
    for scores in draws:
        theirs = _theirs(task, name, row, scores)
        decisions = CREDITS[metric](scores, np.array([0, len(scores)]), gold, "first")
        yield float(decisions.credit[0]), float("inf") if theirs is None else theirs


def _theirs(task: Any, name: str, row: AskedRow, scores: Any) -> float | None:
    """What the task's code says; None where it fails or says no number."""
    try:
        value = task.process_results(row.doc, [(float(score), False) for score in scores])[name]
        return float(value)
    except Exception:
        return None


def results_code(task: Any) -> bool:
    """Whether a task computes its metrics by code of its own."""
    return callable(task.config.process_results)


def as_axes(metric: str) -> Mapping[str, Any]:
    """The axes of a metric of summed log-likelihoods."""
    return {"score": "sum", "metric": metric}
