"""What can be chosen of a chart, declared once."""

from collections.abc import Sequence
from dataclasses import dataclass

from choicewise.web.charts.frame import WIDTH


@dataclass(frozen=True)
class Choices:
    """``models``: by name, of those among the runs.  ``start`` and ``end``: protocols.  ``protocol``: one to point out,
    or to draw alone.  ``rank``: ranks, or values; None: what the chart shows by itself.  ``width``: in pixels.
    """

    models: Sequence[str] = ()
    start: str | None = None
    end: str | None = None
    protocol: str | None = None
    rank: bool | None = None
    width: int = WIDTH
