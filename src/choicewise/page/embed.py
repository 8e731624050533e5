"""Fill the templates of pages, embed data for their scripts, and draw their charts."""

from __future__ import annotations

import json
import re
import typing
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.errors import UsageError, install_line
from choicewise.page.charts.chart import Chart, Record
from choicewise.util import text
from choicewise.util.cache import read_user_cache, write_user_cache
from choicewise.util.jsonio import JsonDict, JsonMapping, page_json
from choicewise.util.text import disarmed, percent, plain, quoted, shown

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
_STATIC = Path(__file__).parent / "static"

LONG = 100_000
"""Characters from which on data are compressed: they repeat themselves a lot."""

WIDE = 960
"""Pixels of drawings for wide screens; the page shows them as wide as its column."""

_SLIM = 400
"""Pixels of drawings for narrow screens."""

SCROLLS = _SLIM + 20
"""Width in pixels above which a slim chart scrolls; narrow screens have some room beside it."""

_BARE = re.compile(r' role="graphics-symbol" aria-roledescription="[a-z]+ mark container"')
"""What groups of marks have that say nothing themselves: a screen reader would come to an image
without words.
"""

_SIZED = re.compile(r'^<svg [^>]*?\bwidth="([\d.]+)"')


def lacking_libraries() -> list[str]:
    """Return the packages of the extra ``page`` that are not installed."""
    packages = {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}
    return [package for module, package in packages.items() if find_spec(module) is None]


def check_libraries(extra: str = "page") -> None:
    """Check that what pages need is installed.  Raises UsageError with the line that installs
    ``extra``.
    """
    # Said before the first chart, with the line that installs them.
    lacking = lacking_libraries()
    if lacking:
        raise UsageError(f"pages need {' and '.join(lacking)}; {install_line(extra)}")


@cache
def environment(*folders: Path) -> Environment:
    """Return the templates of pages, and those in further ``folders``, which may extend and import
    them.

    What is undefined is an error, and texts are escaped for HTML.

    Texts of data and models hold control characters, which change what a reader sees: their visible
    escapes are printed instead.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "percent": percent,
        "plain": plain,
        "error": text.error,
        "points": text.points,
        "count": text.counted,
        "listed": text.listed,
        "shortened": text.shortened,
        "visible": shown,
        "shell": quoted,
    }
    templates.globals |= {"interval": text.interval, "ranks": text.ranks, "plain": plain}
    templates.tests |= {"address": is_address}
    return templates


def is_address(text: str) -> bool:
    """Tell if ``text`` is the address of a page, and nothing that a browser would run."""
    return text.startswith(("https://", "http://")) and not any(map(str.isspace, text))


def static_text(*names: str) -> str:
    """Return the static files of these names, one after the other."""
    return "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in names)


@dataclass(frozen=True)
class Embedded:
    """``text`` of a script element of this type, whose ``name`` is its id."""

    name: str
    type: str
    text: str


def embedded(name: str, content: Any, plain: bool = False) -> Embedded:
    """Return ``content`` for the page's script; no character of the text can end its element.

    ``plain``: as of :func:`choicewise.util.jsonio.page_json`.
    """
    text = page_json(content, plain)
    if len(text) < LONG:
        return Embedded(name, "application/json", text)
    # Data repeat themselves: a tenth is left.
    compressed = zlib.compress(text.encode())
    return Embedded(name, "application/octet-stream", b64encode(compressed).decode())


class Spec(typing.Protocol):
    """Return the chart of such values, so many pixels wide."""

    def __call__(self, values: Sequence[Record], *, width: int) -> JsonDict:
        """Return a specification of Vega-Lite with its data."""


@dataclass
class Specifications:
    """Specifications without data, each once; states of charts name them by their positions."""

    known: list[JsonDict] = field(default_factory=list)
    _positions: dict[str, int] = field(default_factory=dict)

    def state(self, draw: Spec, values: Sequence[Record]) -> JsonDict:
        """Return what the page's script needs to draw these values: wide and slim specifications,
        and the data.
        """
        wide = draw(values, width=WIDE)
        slim = draw(values, width=_SLIM)
        # A chart may complete its data, such as by lanes of names, which don't depend on its width.
        return {
            "spec": [self._position(wide), self._position(slim)],
            "about": wide["description"],
            "values": wide["data"]["values"],
        }

    def _position(self, spec: JsonMapping) -> int:
        content = {name: part for name, part in spec.items() if name not in ("data", "description")}
        text = json.dumps(content, sort_keys=True)
        if text not in self._positions:
            self._positions[text] = len(self.known)
            self.known.append(content)
        return self._positions[text]


@dataclass(frozen=True)
class Drawing:
    """The two drawings of one chart; ``scrolls``: the slim one is wider than a narrow screen."""

    wide: Markup
    slim: Markup
    scrolls: bool


def drawing(draw: Spec, values: Sequence[Record]) -> Drawing:
    """Return the chart of these values as SVG that can be part of a page's own text."""
    from markupsafe import Markup

    wide_spec = draw(values, width=WIDE)
    # A chart that is only scaled down would be unreadable.
    slim_spec = draw(values, width=_SLIM)
    wide = _svg(wide_spec)
    slim = wide
    # Some charts are as slim as that everywhere.
    if slim_spec != wide_spec:
        slim = _svg(slim_spec)
    size = _SIZED.match(slim)
    scrolls = size is not None and float(size[1]) > SCROLLS
    return Drawing(Markup(wide), Markup(slim), scrolls)


def _svg(spec: JsonDict) -> str:
    return _BARE.sub("", Chart("", "", spec).page_svg())


def _no_data(specs: Specifications) -> JsonDict:
    return {}


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a page.

    ``name``: the id of its element, and what its address ends in. ``html``: what stands below its
    title, trusted as it is; :func:`section_html` makes it of a template. ``data``: what its script
    loads, by the ids of the elements that hold it; charts of it are made by
    :meth:`Specifications.state`. ``script``: a module in the scope of the page's script, which adds
    a function to ``furtherSections`` that brings the section to life.
    """

    name: str
    title: str
    html: str
    data: Callable[[Specifications], JsonMapping] = _no_data
    script: str = ""


def section_html(template: Path, **names: Any) -> str:
    """Return a template's text with ``names`` filled in; it may import ``macros.html.j2`` of the
    pages.
    """
    return environment().from_string(template.read_text(encoding="utf-8")).render(**names)


@cache
def renderer_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that defines ``vegaEmbed``.

    They come with vl-convert-python and are of the University of Washington Interactive Data Lab
    and contributors. The script is made once for each version of that package, and kept among the
    user's caches.
    """
    key = f"vl-convert-python {version('vl-convert-python')}"
    script = read_user_cache("charts", key)
    if script is None:
        import vl_convert

        script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        write_user_cache("charts", key, script)
    notice = (
        "/* Vega, Vega-Lite, Vega-Embed: https://vega.github.io, "
        "BSD-3-Clause, University of Washington and others */"
    )
    return f"{notice}\n{script}"


def _printable(value: Any) -> Any:
    from markupsafe import Markup

    if isinstance(value, str) and not isinstance(value, Markup):
        return disarmed(value)
    return value
