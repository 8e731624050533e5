"""Aggregation and uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from choicewise.data.items import Categories
from choicewise.protocols.protocol import Metric
from choicewise.scoring.decide import Decisions
from choicewise.scoring.intervals import normal, standard_error, stratified, wilson
from choicewise.scoring.observed import Mask


@dataclass(frozen=True, slots=True)
class Value:
    """A mean credit with its uncertainty, or what a metric makes of it.

    ``se``: standard error; ``ci_low`` and ``ci_high``: 95 % interval; ``n``: items the value is a mean over;
    ``missing``: items that could not be scored and do not count; ``ties``: items of ``n`` with a tie at the top.
    NaN where there are too few items to say (none for the value, fewer than two for the standard error).
    """

    value: float
    se: float
    ci_low: float
    ci_high: float
    n: int
    missing: int
    ties: int


def micro(decisions: Decisions, among: Mask | None = None, counted: bool = True) -> Value:
    """Mean over the items that are ``among``, else all; standard error sd / √n with sd over n - 1; Wilson interval.

    Of credits that are not ``counted`` as right or wrong the interval is mean ± 1.96 standard errors.
    """
    among = np.ones(len(decisions.credit), dtype=np.bool_) if among is None else among
    scored = among & ~decisions.missing
    credit, n = decisions.credit[scored], int(scored.sum())
    mean, error = float(credit.mean()) if n else math.nan, standard_error(credit)
    ties = int(decisions.tied[scored].sum())
    interval = wilson(mean, n) if counted else normal(mean, error)
    return Value(mean, error, *interval, n, int(among.sum()) - n, ties)


def macro(decisions: Decisions, subjects: Sequence[str], counted: bool = True) -> Value:
    """Mean of the subjects' means; standard error √(Σ se²) / subjects for a fixed set of subjects; score interval.

    ``subjects`` names each item's subject.  A subject without a scored item does not count; its items are in
    ``missing``.
    """
    over_items = micro(decisions, counted=counted)
    scored = [value for value in by_group(decisions, subjects, counted).values() if value.n]
    if not scored:
        return over_items
    mean = math.fsum(value.value for value in scored) / len(scored)
    se = math.sqrt(math.fsum(value.se**2 for value in scored)) / len(scored)
    sizes = np.array([value.n for value in scored])
    if not counted:
        return Value(mean, se, *normal(mean, se), over_items.n, over_items.missing, over_items.ties)
    interval = stratified(np.array([value.value for value in scored]) * sizes, sizes)
    return Value(mean, se, *interval, over_items.n, over_items.missing, over_items.ties)


def by_group(decisions: Decisions, groups: Sequence[str], counted: bool = True) -> dict[str, Value]:
    """The micro mean of every group, in order of first appearance; ``groups`` names each item's group."""
    order = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    numbers = np.array([order[name] for name in groups], dtype=np.int64)
    return {name: micro(decisions, numbers == number, counted) for name, number in order.items()}


def number(value: Value, metric: Metric) -> Value:
    """The number that a mean credit is under ``metric``: the mean itself, or exp(-mean) of log-likelihoods in nats.

    The standard error of the latter follows by the delta method, the interval from that of the mean.
    """
    if metric.share:
        low, high = np.clip([value.ci_low, value.ci_high], 0.0, 1.0).tolist()
        return value if metric.counted else replace(value, ci_low=low, ci_high=high)
    with np.errstate(over="ignore"):
        result, high, low = np.exp(np.negative([value.value, value.ci_low, value.ci_high])).tolist()
    return replace(value, value=result, se=result * value.se, ci_low=low, ci_high=high)


def _place(subject: str, categories: Categories) -> tuple[str, str]:
    """The category and subcategory of a subject; both "other" where it has none."""
    names = ((name, inner) for name, parts in categories.items() for inner in parts if subject in parts[inner])
    return next(names, ("other", "other"))


GROUPS: dict[str, Callable[[str, Categories], str]] = {
    "micro": lambda subject, categories: "all",
    "macro": lambda subject, categories: "all",
    "subjects": lambda subject, categories: subject,
    "categories": lambda subject, categories: _place(subject, categories)[0],
    "subcategories": lambda subject, categories: _place(subject, categories)[1],
}
"""Aggregation by name: from a subject and the dataset's categories to the row that its items are counted in."""


def _by(
    aggregation: str, decisions: Decisions, subjects: Sequence[str], categories: Categories, counted: bool = True
) -> dict[str, Value]:
    """A mean over the items of every group, in the order of the categories, then of first appearance."""
    known = (subject for parts in categories.values() for members in parts.values() for subject in members)
    group_of = {subject: GROUPS[aggregation](subject, categories) for subject in (*known, *dict.fromkeys(subjects))}
    values = by_group(decisions, [group_of[subject] for subject in subjects], counted)
    return {name: values[name] for name in dict.fromkeys(group_of.values()) if name in values}


AGGREGATIONS: dict[str, Callable[..., dict[str, Value]]] = {
    "micro": lambda decisions, subjects, categories, counted=True: {"all": micro(decisions, None, counted)},
    "macro": lambda decisions, subjects, categories, counted=True: {"all": macro(decisions, subjects, counted)},
    "subjects": lambda decisions, subjects, categories, counted=True: by_group(decisions, subjects, counted),
    "categories": partial(_by, "categories"),
    "subcategories": partial(_by, "subcategories"),
}
"""Aggregation by name: from decisions, each item's subject and the dataset's categories to the rows it prints by name;
``counted``: as in :func:`micro`.

Categories and subcategories are means over their questions, one row each, as the original MMLU scripts print them.
"""
