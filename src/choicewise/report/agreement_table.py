"""The agreement report as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.text import Text

from choicewise.report.table import table, titled
from choicewise.report.visible_text import safe
from choicewise.results.agreement import CAUSES, Agreement

SHOWN = 8
"""Options that differ most, each under the pair that differs most; `--json` has five of every pair."""


def agreement_tables(folder: str, found: Sequence[Agreement]) -> list[Group | Text]:
    """The pairs of the run in ``folder``, the options on which they differ most, and what the causes mean."""
    if not found:
        return [Text(f"{folder}: no two protocols retrieve the same texts in different ways; try options/quoted")]
    causes = [cause for cause in CAUSES if any(cause in (*pair.causes, *pair.decided) for pair in found)]
    words = [Text(f"{cause}: {CAUSES[cause]}") for cause in causes]
    parts: list[Group | Text] = [_pairs(folder, found)]
    if any(pair.worst for pair in found):
        parts.append(_worst(found))
    return [*parts, *words]


def _pairs(folder: str, found: Sequence[Agreement]) -> Group:
    shown = table("retrieval", "and retrieval", "n", "median", "largest", "differ", "because of", "same decision")
    for pair in found:
        share = f"{pair.same}/{pair.items}"
        shown.add_row(
            safe(pair.left),
            safe(pair.right),
            str(pair.n),
            _nats(pair.median),
            _nats(pair.largest),
            str(pair.beyond),
            _told(pair.causes),
            f"{share}: {_told(pair.decided)}" if pair.decided else share,
        )
    beyond = f"differ: by more than {found[0].tolerance:.1e} nats"
    return titled(f"{safe(folder)}: retrievals of the same options, differences of their sums in nats", shown, beyond)


def _worst(found: Sequence[Agreement]) -> Group:
    shown = table("item", "option", "retrieval", "and retrieval", "sum", "sum", "difference", "cause")
    every = [(pair, worst) for pair in found for worst in pair.worst]
    every.sort(key=lambda each: -abs(each[1].difference))
    once = {(worst.item, worst.choice): (pair, worst) for pair, worst in reversed(every)}
    for pair, worst in list(reversed(once.values()))[:SHOWN]:
        shown.add_row(
            safe(worst.item),
            safe(worst.text),
            safe(pair.left),
            safe(pair.right),
            f"{worst.left:.4f}",
            f"{worst.right:.4f}",
            _nats(worst.difference),
            worst.cause,
        )
    return titled("where they differ most", shown)


def _told(causes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {cause}" for cause, count in causes.items())


def _nats(value: float) -> str:
    return "" if value != value else f"{value:.3g}"
