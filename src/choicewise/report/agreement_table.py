"""The agreement report as tables."""

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.text import Text

from choicewise.report.table import table, titled
from choicewise.report.visible_text import safe
from choicewise.results.agreement import CAUSES, Agreement, Divergence

SHOWN = 8
"""Options that differ most, each with the pair of retrievals that differs most; `--json` has five of every pair."""


def agreement_tables(folder: str, pairs: Sequence[Agreement]) -> list[Group | Text]:
    """The pairs of the run in ``folder``, the options on which they differ most, and what the causes mean."""
    if not pairs:
        return [Text(f"{safe(folder)}: no two protocols retrieve the same texts in different ways; try options/quoted")]
    raised = {cause for pair in pairs for cause in (*pair.causes, *pair.decided)}
    legend = [Text(f"{cause}: {meaning}") for cause, meaning in CAUSES.items() if cause in raised]
    worst = [_worst(pairs)] if any(pair.worst for pair in pairs) else []
    return [_pairs(folder, pairs), *worst, *legend]


def _pairs(folder: str, pairs: Sequence[Agreement]) -> Group:
    shown = table("retrieval", "and retrieval", "n", "median", "largest", "differ", "because of", "same decision")
    for pair in pairs:
        decided = f"{pair.same}/{pair.items}" + (f": {_counts(pair.decided)}" if pair.decided else "")
        sizes = (str(pair.n), _nats(pair.median), _nats(pair.largest), str(pair.beyond))
        shown.add_row(safe(pair.left), safe(pair.right), *sizes, _counts(pair.causes), decided)
    beyond = f"differ: by more than {pairs[0].tolerance:.1e} nats and than the noise of so many tokens"
    return titled(f"{safe(folder)}: retrievals of the same options, differences of their sums in nats", shown, beyond)


def _worst(pairs: Sequence[Agreement]) -> Group:
    shown = table("item", "option", "retrieval", "and retrieval", "sum", "sum", "difference", "cause")
    every = [(pair, worst) for pair in pairs for worst in pair.worst]
    every.sort(key=lambda entry: -abs(entry[1].difference))
    once: dict[tuple[str, int], tuple[Agreement, Divergence]] = {}
    for pair, worst in every:
        once.setdefault((worst.item, worst.choice), (pair, worst))
    for pair, worst in list(once.values())[:SHOWN]:
        names = map(safe, (worst.item, worst.text, pair.left, pair.right))
        numbers = (f"{worst.left:.4f}", f"{worst.right:.4f}", _nats(worst.difference))
        shown.add_row(*names, *numbers, worst.cause)
    return titled("where they differ most", shown)


def _counts(causes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {cause}" for cause, count in causes.items())


def _nats(value: float) -> str:
    return "" if value != value else f"{value:.3g}"
