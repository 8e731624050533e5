"""McNemar's exact test: do two models disagree in one direction more than chance would?"""

from __future__ import annotations

from dataclasses import dataclass

from choicewise.scoring.ragged import Floats


@dataclass(frozen=True, slots=True)
class McNemar:
    """``left_only``, ``right_only``: items only one of the two has right; ``p``: two-sided exact p-value."""

    left_only: int
    right_only: int
    p: float


def mcnemar(left: Floats, right: Floats) -> McNemar:
    """The exact binomial test on the discordant items; credits [items], NaN for missing.

    Items with a fractional credit (a split tie) are neither right nor wrong and are left out with the missing ones.
    """
    left_only = int(((left == 1) & (right == 0)).sum())
    right_only = int(((left == 0) & (right == 1)).sum())
    return McNemar(left_only, right_only, _two_sided(min(left_only, right_only), left_only + right_only))


def _two_sided(fewer: int, n: int) -> float:
    """min(1, 2 P(Binomial(n, 1/2) ≤ fewer)), in whole numbers until the last division."""
    below, term = 0, 1
    for k in range(fewer + 1):
        below += term
        term = term * (n - k) // (k + 1)
    return min(1.0, 2 * below / 2**n)
