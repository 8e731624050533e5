"""How far a model and its twin part, for a terminal: below a comparison, and where both models are at hand."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from choicewise.extensions.analyses.twins import Changed, Twins
from choicewise.report.tables import nats
from choicewise.results.compare import Comparison
from choicewise.util.text import counted, interval, percent


def twin_lines(compared: Comparison, apart: Twins) -> Iterator[str]:
    """Flips, divergence of the choices and log-probability lost per token; nothing where both sides are one model."""
    if compared.verdict == "same measurement":
        return
    yield "as twins: both were asked the same tokens"
    if apart.flips is not None:
        yield from _entry("flips", _flips(apart.flips))
    if apart.divergence is not None:
        of = "nats an item" + (
            f", {apart.divergence.missing:,} missing" if apart.divergence.missing else ""
        )
        yield from _entry("KL(A‖B) of choices", f"{nats(apart.divergence)} {of}")
    if apart.lost_right is not None and apart.lost_all is not None:
        of = f"of right answers, {nats(apart.lost_all)} of all choices"
        yield from _entry("B loses per token", f"{nats(apart.lost_right)} nats {of}")


def _flips(flips: Changed) -> str:
    other = flips.changed - flips.right_to_wrong - flips.wrong_to_right
    ways = f"{flips.right_to_wrong:,} right to wrong, {flips.wrong_to_right:,} wrong to right"
    share = f"{percent(flips.share)} % [{interval(flips.ci_low, flips.ci_high)}] of {counted(flips.n, 'item')}"
    return f"{share}: {ways}, {other:,} wrong to wrong"


def _entry(name: str, text: str) -> list[str]:
    return wrap(f"  {name:<18}  {text}", 79, subsequent_indent=" " * 22)
