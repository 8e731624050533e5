"""Models that another program computes.

Servers of completions, vLLM's engine, and endpoints that print decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from choicewise.ports import Extension, PairAnalysis

if TYPE_CHECKING:
    from choicewise.results.run import Run


class ServedMinusOwn(PairAnalysis):
    """What the layout of a prompt does not explain of a decision endpoint's answers."""

    name = "served-minus-own"
    summary = "a decision endpoint beside own computation"

    def sides(self, left: Run, right: Run) -> tuple[Run, Run] | None:
        """Return the endpoint's run first."""
        from choicewise.extensions.endpoints.decisions.summary import by_endpoint

        return by_endpoint(left, right)

    def compare(self, first: Run, second: Run, protocols: Sequence[str], items: bool) -> list[Any]:
        """Return the differences of probabilities, by kind of question and layout."""
        from choicewise.extensions.endpoints.decisions.summary import served_minus_own

        return served_minus_own(first, second, protocols, items)

    def tables(self, results: Sequence[Any]) -> Iterator[Any]:
        """Yield a table for each kind of question."""
        from choicewise.extensions.endpoints.decisions.decision_report import served_tables

        yield from served_tables(results)


EXTENSION = Extension("endpoints", [ServedMinusOwn()])
