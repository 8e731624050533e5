"""From credits to accuracies: over all items, over subjects, and over MMLU's categories."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from choicewise.scoring.categories import CATEGORIES, SUBCATEGORIES, category, subcategory
from choicewise.scoring.decisions import Decisions
from choicewise.scoring.ragged import Mask
from choicewise.scoring.statistics.clustered import standard_error
from choicewise.scoring.statistics.wilson import wilson


@dataclass(frozen=True, slots=True)
class Value:
    """A mean credit with its uncertainty.

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


def micro(decisions: Decisions) -> Value:
    """Mean over items; standard error sd / √n with sd over n - 1; Wilson interval."""
    return _micro(decisions, np.ones(len(decisions.credit), dtype=bool))


def macro(decisions: Decisions, subjects: Sequence[str]) -> Value:
    """Mean of the subjects' means; standard error √(Σ se²) / subjects for a fixed set of subjects; normal interval.

    ``subjects`` names each item's subject.  A subject without a scored item does not count; its items are in
    ``missing``.
    """
    over_items = micro(decisions)
    scored = [value for value in by_group(decisions, subjects).values() if value.n]
    if not scored:
        return over_items
    mean = math.fsum(value.value for value in scored) / len(scored)
    se = math.sqrt(math.fsum(value.se**2 for value in scored)) / len(scored)
    half = NormalDist().inv_cdf(0.975) * se
    low, high = (se if math.isnan(se) else min(1.0, max(0.0, bound)) for bound in (mean - half, mean + half))
    return Value(mean, se, low, high, over_items.n, over_items.missing, over_items.ties)


def by_group(decisions: Decisions, groups: Sequence[str]) -> dict[str, Value]:
    """The micro mean of every group, in order of first appearance; ``groups`` names each item's group."""
    order = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    numbers = np.array([order[name] for name in groups], dtype=np.int64)
    return {name: _micro(decisions, numbers == number) for name, number in order.items()}


def _micro(decisions: Decisions, among: Mask) -> Value:
    scored = among & ~decisions.missing
    credit, n = decisions.credit[scored], int(scored.sum())
    mean = float(credit.mean()) if n else math.nan
    se, ties = standard_error(credit), int(decisions.tied[scored].sum())
    return Value(mean, se, *wilson(mean, n), n, int(among.sum()) - n, ties)


def _ordered(values: dict[str, Value], order: Sequence[str]) -> dict[str, Value]:
    return {name: values[name] for name in order if name in values}


AGGREGATIONS: dict[str, Callable[[Decisions, Sequence[str]], dict[str, Value]]] = {
    "micro": lambda decisions, subjects: {"all": micro(decisions)},
    "macro": lambda decisions, subjects: {"all": macro(decisions, subjects)},
    "subjects": by_group,
    "categories": lambda decisions, subjects: _ordered(
        by_group(decisions, [category(subject) for subject in subjects]), tuple(CATEGORIES)
    ),
    "subcategories": lambda decisions, subjects: _ordered(
        by_group(decisions, [subcategory(subject) for subject in subjects]), tuple(SUBCATEGORIES)
    ),
}
"""Aggregation by name: from decisions and each item's subject to the rows it prints, each row a name and a value.

Categories and subcategories are means over their questions, one row each, as the original MMLU scripts print them.
"""

GROUPS: dict[str, Callable[[str], str]] = {
    "micro": lambda subject: "all",
    "macro": lambda subject: "all",
    "subjects": lambda subject: subject,
    "categories": category,
    "subcategories": subcategory,
}
"""Aggregation by name: from a subject to the row of the aggregation that its items are counted in."""
