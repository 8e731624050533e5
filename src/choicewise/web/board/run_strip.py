"""The strip of all numbers of one run as an SVG image that follows the theme of whoever looks at it."""

from pathlib import Path

from choicewise.results.summary import summarize
from choicewise.web.chart import Chart
from choicewise.web.charts import strip
from choicewise.web.page.figure import WIDE
from choicewise.web.theme import DARK, LIGHT, styles


def run_strip(folder: Path) -> str:
    """The strip of the complete run in ``folder``; its colours are those of the pages."""
    values = strip.values(summarize(folder).rows)
    drawn = Chart("strip", "", strip.spec(values, width=WIDE)).page_svg()
    return drawn.replace(">", f"><style>{strip_style()}</style>", 1)


def strip_style() -> str:
    """The style inside the image: the colours of both themes."""
    return f":root{{{styles(LIGHT)}}}@media(prefers-color-scheme:dark){{:root{{{styles(DARK)}}}}}"
