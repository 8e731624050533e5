"""Questions about finished runs.

Signal, audit, twins, invariance, reliability, checkpoints along training, and others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from choicewise.ports import Extension, PairStatistic

if TYPE_CHECKING:
    from choicewise.results.compare import Comparison
    from choicewise.results.measurement import Measurement
    from choicewise.results.run import Run


class TwinStatistic(PairStatistic):
    """How far a model and its twin part, such as a quantised one."""

    name = "twins"
    summary = "how far two models part that were asked the same tokens"

    def figures(self, runs: tuple[Run, Run], pairs: Sequence[tuple[Measurement, Measurement]]) -> Sequence[Any]:
        """Return flips, divergence and loss per token of each pair."""
        from choicewise.extensions.analyses.twins import read_likelihoods, twins

        evidence = runs[0].evidence, runs[1].evidence
        read_likelihoods(evidence[0], [left for left, _ in pairs])
        read_likelihoods(evidence[1], [right for _, right in pairs])
        return [twins(evidence, pair) for pair in pairs]

    def lines(self, comparison: Comparison, figure: Any) -> Iterator[str]:
        """Yield them in words."""
        from choicewise.extensions.analyses.twins_report import twin_lines

        yield from twin_lines(comparison, figure)


EXTENSION = Extension("analyses", [TwinStatistic()])
