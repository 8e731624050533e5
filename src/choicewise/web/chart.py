"""A chart as a value: one Vega-Lite specification that pages, notebooks and files all draw."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from choicewise.errors import UsageError
from choicewise.web.theme import INK, LIGHT, PAPER, TITLE, coloured

if TYPE_CHECKING:
    from types import ModuleType

MIME = "application/vnd.vegalite.v6+json"
"""What notebooks call such a specification."""

_VERSION = "6.4"


@dataclass(frozen=True)
class Chart:
    """A drawn chart: ``name`` and ``title`` in words, and its specification for pages (colours are CSS variables).

    A notebook shows it as it is.
    """

    name: str
    title: str
    page_spec: Mapping[str, Any]

    @property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification that stands alone: with its title, on white, in literal colours."""
        alone = deepcopy(dict(self.page_spec))
        padding = dict(alone["padding"])
        heading = {"text": self.title, "anchor": "start", "frame": "group", "dx": -padding["left"] + 12, "offset": 14}
        padding["top"] += 3 * TITLE
        return coloured({**alone, "padding": padding, "title": {**heading, "color": INK}, "background": LIGHT[PAPER]})

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
