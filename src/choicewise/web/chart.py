"""A chart as a value: one Vega-Lite specification that pages, notebooks and files all draw."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from choicewise.errors import UsageError
from choicewise.report.visible_text import safe
from choicewise.web.labels import SAID, cut, folded
from choicewise.web.theme import LIGHT, PAPER, SMALL, SOFT, TITLE, coloured

if TYPE_CHECKING:
    from types import ModuleType

MIME = "application/vnd.vegalite.v6+json"
"""What notebooks call such a specification."""

_VERSION = "6.4"


@dataclass(frozen=True)
class Chart:
    """A drawn chart: what is seen in it (``title``), how to read it (``caption``), and its specification for pages.

    A notebook shows it as it is.  ``page_spec``: without these texts, its colours variables of CSS.
    """

    name: str
    title: str
    page_spec: Mapping[str, Any]
    caption: str = ""

    @property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification that stands alone: with its title, on white, in literal colours."""
        alone = deepcopy(dict(self.page_spec))
        padding = dict(alone["padding"])
        room = padding["left"] + alone["width"] + padding["right"] - 24
        heading = [cut(line, room / TITLE) for line in folded(safe(self.title), room / TITLE)][:2]
        notes = folded(self.caption, room / SMALL)
        lines = (
            {"text": heading, "fontSize": TITLE, "lineHeight": TITLE + 4, "fontWeight": 600},
            {"text": notes, "fontSize": SMALL, "lineHeight": SMALL + 4, "color": SOFT},
        )
        under = len(notes) * (SMALL + 4) + 6
        above = len(heading) * (TITLE + 4) + under + 4
        for text, top in zip(lines, (above, under), strict=True):
            place = {"x": {"value": 12 - padding["left"]}, "y": {"value": -padding["top"] - top}}
            look = {"type": "text", "align": "left", "baseline": "top", "aria": False}
            alone["layer"] = [*alone["layer"], {"data": {"values": [{}]}, "mark": look | text, "encoding": place}]
        padding["top"] += above + 12
        about = f"{cut(self.title, 4 * SAID)}. {alone['description']}"
        return coloured({**alone, "description": about, "padding": padding, "background": LIGHT[PAPER]})

    def for_page(self) -> dict[str, Any]:
        """The specification without title and background, its colours the variables of :mod:`~choicewise.web.theme`."""
        return deepcopy(dict(self.page_spec))

    def svg(self) -> str:
        """The chart as an SVG image."""
        return str(_renderer().vegalite_to_svg(self.spec, vl_version=_VERSION))

    def page_svg(self) -> str:
        """The SVG image of :meth:`for_page`, to stand in a page's own text; it has no ``style`` attributes."""
        return str(_renderer().vegalite_to_svg(self.for_page(), vl_version=_VERSION))

    def png(self) -> bytes:
        """The chart as a PNG image, with twice as many pixels as the SVG has."""
        return bytes(_renderer().vegalite_to_png(self.spec, vl_version=_VERSION, scale=2))

    def pdf(self) -> bytes:
        """The chart as a page of PDF."""
        return bytes(_renderer().vegalite_to_pdf(self.spec, vl_version=_VERSION))

    def json(self) -> str:
        """The specification as JSON."""
        return json.dumps(self.spec, ensure_ascii=False, indent=1)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        shown = {MIME: self.spec, "text/plain": repr(self)}
        try:
            return shown | {"image/svg+xml": self.svg()}
        except UsageError as error:
            return shown | {"text/plain": f"{self!r}; {error.message}"}

    def __repr__(self) -> str:
        return f"<Chart {self.name}: {self.title}>"


def _renderer() -> "ModuleType":
    try:
        import vl_convert
    except ImportError as error:
        raise UsageError("drawing charts needs vl-convert-python; pip install 'choicewise[page]'") from error
    return vl_convert
