"""Say below a comparison how far a model and its twin part."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from choicewise.extensions.analyses.twins import Changed, Twins
from choicewise.report.tables import nats
from choicewise.results.comparison import Comparison
from choicewise.util.text import counted, interval, percent


def twin_lines(comparison: Comparison, twins: Twins) -> Iterator[str]:
    """Yield flips, divergence of the choices and log-probability lost per token, unless both sides
    are one model.
    """
    if comparison.verdict == "same measurement":
        return
    yield "twins: both models scored the same tokens"
    if twins.flips is not None:
        yield from _entry("flips", _flips(twins.flips))
    if twins.divergence is not None:
        text = f"{nats(twins.divergence)} nats an item"
        if twins.divergence.missing:
            text += f", {twins.divergence.missing:,} missing"
        yield from _entry("KL(A‖B) of choices", text)
    if twins.lost_right is not None and twins.lost_all is not None:
        right = f"{nats(twins.lost_right)} nats of right answers"
        yield from _entry("B loses per token", f"{right}, {nats(twins.lost_all)} of all choices")


def _flips(flips: Changed) -> str:
    interval_text = interval(flips.ci_low, flips.ci_high)
    share = f"{percent(flips.share)} % [{interval_text}] of {counted(flips.n, 'item')}"
    between_wrong = flips.changed - flips.right_to_wrong - flips.wrong_to_right
    return (
        f"{share}: {flips.right_to_wrong:,} right to wrong, {flips.wrong_to_right:,} wrong to "
        f"right, {between_wrong:,} wrong to wrong"
    )


def _entry(name: str, text: str) -> list[str]:
    return wrap(f"  {name:<18}  {text}", 79, subsequent_indent=" " * 22)
