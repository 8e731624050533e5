"""Whether protocols agree about the order of models."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from choicewise.results.row import Row


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """Kendall's τ-b between two protocols' rankings of the ``models`` that both ranked; NaN where one has all equal."""

    left: str
    right: str
    tau: float
    models: int


def rank_agreement(rows: Sequence[Row]) -> list[RankAgreement]:
    """One entry per pair of protocols that rank the same three or more models; fewer have no order to agree about."""
    values: dict[str, dict[tuple[str, str, str], float]] = {}
    for row in rows:
        values.setdefault(row.protocol, {})[row.data, row.subject, row.model] = row.value
    agreements = []
    for left, right in combinations(values, 2):
        shared = [key for key in values[left] if key in values[right]]
        models = len({model for _, _, model in shared})
        if models >= 3 and len(shared) == models:
            from scipy.stats import kendalltau

            tau = kendalltau(*([values[name][key] for key in shared] for name in (left, right))).statistic
            agreements.append(RankAgreement(left, right, float(tau), models))
    return agreements
