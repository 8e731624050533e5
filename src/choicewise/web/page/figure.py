"""Charts as a page holds them: drawings for wide and narrow screens, and specifications to draw them again."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from choicewise.web.chart import Chart

if TYPE_CHECKING:
    from markupsafe import Markup

WIDE, SLIM = 960, 400
"""Pixels of the drawings for wide and for narrow screens; the page shows them as wide as its column."""

Record = dict[str, Any]
Spec = Callable[[Sequence[Record], int], dict[str, Any]]
"""The chart of such values, so many pixels wide."""

_BARE = re.compile(r' role="graphics-symbol" aria-roledescription="[a-z]+ mark container"')
"""What groups of marks have that say nothing themselves: a screen reader would come to an image without words."""

_SIZED = re.compile(r'^<svg [^>]*?\bwidth="([\d.]+)"')


@dataclass
class Specifications:
    """Specifications without data, each once; states of charts name them by their places."""

    known: list[dict[str, Any]] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)

    def state(self, draw: Spec, values: Sequence[Record]) -> dict[str, Any]:
        """What the page's script needs to draw these values: places of specifications, wide and slim, and the data."""
        specs = [draw(values, width) for width in (WIDE, SLIM)]
        # a chart may complete its data, such as by places of names, which don't depend on its width
        return {
            "spec": [self._place(spec) for spec in specs],
            "about": specs[0]["description"],
            "values": specs[0]["data"]["values"],
        }

    def _place(self, spec: Mapping[str, Any]) -> int:
        kept = {name: part for name, part in spec.items() if name not in ("data", "description")}
        text = json.dumps(kept, sort_keys=True)
        if text not in self._places:
            self._places[text] = len(self.known)
            self.known.append(kept)
        return self._places[text]


@dataclass(frozen=True)
class Drawing:
    """The two drawings of one chart; ``scrolls``: the slim one is wider than a narrow screen."""

    wide: "Markup"
    slim: "Markup"
    scrolls: bool


def drawing(draw: Spec, values: Sequence[Record]) -> Drawing:
    """The chart of these values as SVG that can stand in a page's own text."""
    from markupsafe import Markup

    wide, slim = (_BARE.sub("", Chart("", "", draw(values, width)).page_svg()) for width in (WIDE, SLIM))
    size = _SIZED.match(slim)
    return Drawing(Markup(wide), Markup(slim), size is not None and float(size[1]) > SLIM + 20)


@cache
def renderer_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that defines ``vegaEmbed``.

    They come with vl-convert-python and are of the University of Washington Interactive Data Lab and contributors.
    """
    import vl_convert

    notice = (
        "/* Vega, Vega-Lite, Vega-Embed: https://vega.github.io, BSD-3-Clause, University of Washington and others */"
    )
    return f"{notice}\n{vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;')}"
