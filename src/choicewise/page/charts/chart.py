"""Draw a chart, and build what all charts are made of: theme, frame, layers, labels.

Colours are named as variables of CSS, which pages define for light and dark; files and notebooks
get those of paper.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from choicewise.errors import UsageError, install_line
from choicewise.report.axes import change_text
from choicewise.util.jsonio import JsonDict, JsonMapping, json_value
from choicewise.util.text import common_start, disarmed, percent, safe

if TYPE_CHECKING:
    from types import ModuleType

    from choicewise.results.number import Number
    from choicewise.results.outcomes import Axis

MIME = "application/vnd.vegalite.v6+json"
"""What notebooks call such a specification."""


@dataclass(frozen=True)
class Chart:
    """A drawn chart: what is seen in it (``title``), how to read it (``caption``), and its
    specification for pages.

    A notebook shows it as it is.  ``page_spec``: without these texts, its colours variables of CSS.
    """

    name: str
    title: str
    page_spec: JsonMapping
    caption: str = ""

    @property
    def spec(self) -> JsonDict:
        """Return the Vega-Lite specification that is complete alone: with its title, on white, in
        literal colours.
        """
        alone = deepcopy(dict(self.page_spec))
        # A page has title and caption outside the chart; alone it needs room for them.
        padding = dict(alone["padding"])
        room = padding["left"] + alone["width"] + padding["right"] - 24
        lines = _folded(safe(self.title), room / _TITLE)[:2]
        heading = [cut(line, room / _TITLE) for line in lines]
        notes = _folded(self.caption, room / SMALL)
        notes_height = len(notes) * (SMALL + 4) + 6
        height = len(heading) * (_TITLE + 4) + notes_height + 4
        left = 12 - padding["left"]
        title_text = {
            "text": heading,
            "fontSize": _TITLE,
            "lineHeight": _TITLE + 4,
            "fontWeight": 600,
        }
        notes_text = {"text": notes, "fontSize": SMALL, "lineHeight": SMALL + 4, "color": SOFT}
        alone["layer"] = [
            *alone["layer"],
            _text_layer(title_text, left, -padding["top"] - height),
            _text_layer(notes_text, left, -padding["top"] - notes_height),
        ]
        padding["top"] += height + 12
        alone["padding"] = padding
        alone["description"] = f"{cut(self.title, 4 * SAID)}. {alone['description']}"
        alone["background"] = _ON_WHITE[PAPER]
        coloured: JsonDict = _coloured(alone, _ON_WHITE)
        return coloured

    def for_page(self) -> JsonDict:
        """The specification without title and background, its colours the variables of the theme."""
        return deepcopy(dict(self.page_spec))

    def svg(self) -> str:
        """The chart as an SVG image."""
        return str(_renderer().vegalite_to_svg(self.spec, vl_version=_VERSION))

    def page_svg(self) -> str:
        """The SVG image of :meth:`for_page`, to stand in a page's own text; it has no ``style``
        attributes.
        """
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

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> JsonDict:
        bundle = {MIME: self.spec, "text/plain": repr(self)}
        try:
            bundle["image/svg+xml"] = self.svg()
        except UsageError as error:
            # A notebook without the renderer still shows the specification.
            bundle["text/plain"] = f"{self!r}; {error.message}"
        return bundle

    def __repr__(self) -> str:
        return f"<Chart {self.name}: {self.title}>"


def _text_layer(text: JsonMapping, x: float, y: float) -> JsonDict:
    look: Record = {"type": "text", "align": "left", "baseline": "top", "aria": False}
    position = {"x": {"value": x}, "y": {"value": y}}
    return {"data": {"values": [{}]}, "mark": {**look, **text}, "encoding": position}


Record = JsonDict
"""One row of a chart's data: its ``kind`` says which layer draws it, NaN is null."""

Records = Sequence[Record]


def of_kind(values: Records, kind: str) -> list[Record]:
    """Return the records of one kind."""
    return [record for record in values if record["kind"] == kind]


WIDTH = 760
"""Pixels of a chart unless the caller says otherwise."""

NARROW = 560
"""Below so many pixels, names stand above their rows instead of beside them."""

PERCENT_AXIS: JsonMapping = {
    "values": [0, 0.25, 0.5, 0.75, 1],
    "labelExpr": "format(100 * datum.value, '.0f') + ' %'",
    "title": None,
}

POINTS_AXIS: JsonMapping = {
    "labelExpr": (
        "(datum.value > 0 ? '+' : datum.value < 0 ? '−' : '') + format(100 * abs(datum.value), "
        "'.0f')"
    ),
    "tickCount": 7,
    "title": "points",
}


_RANK_STEPS = (1, 2, 5, 10, 20, 25, 50, 100)


def rank_axis(models: int) -> JsonDict:
    """Return the axis of ranks: whole numbers, the first and the last among them."""
    step = 10**6
    for size in reversed(_RANK_STEPS):
        if models / size <= 12:
            step = size
    ranks = [1]
    for rank in range(step, models, step):
        # A label that close to the last one would lie on it.
        if rank > 1 and models - rank >= step / 2:
            ranks.append(rank)
    if models > 1:
        ranks.append(models)
    return {"values": ranks, "format": "d", "title": "rank (1 is the best)"}


def frame(
    values: Records,
    layers: Sequence[JsonMapping],
    *,
    width: int,
    left: int,
    right: int,
    top: int,
    bottom: int,
    height: Any,
    description: str,
) -> JsonDict:
    """The specification of a chart that is ``width`` pixels wide with its margins, whatever the
    texts in them.

    ``description``: what it shows, in words, for those who hear it.
    """
    return {
        "$schema": _SCHEMA,
        "description": description,
        "width": max(width - left - right, 40),
        "height": height,
        "autosize": {"type": "none"},
        "padding": {"left": left, "right": right, "top": top, "bottom": bottom},
        "config": dict(CONFIG),
        "data": {"values": [_harmless(record) for record in values]},
        "layer": list(layers),
    }


def layer(kind: str, mark: JsonMapping, *filters: Any, **encoding: Any) -> JsonDict:
    """A layer that draws the records of one ``kind``; marks without a description are hidden from
    screen readers.
    """
    return {
        "transform": [{"filter": test} for test in (where("kind", kind), *filters)],
        "mark": {"aria": "description" in encoding, **mark},
        "encoding": encoding,
    }


def where(field: str, value: Any) -> JsonDict:
    """A filter of records."""
    return {"field": field, "equal": value}


def number(field: str, **channel: Any) -> JsonDict:
    """A channel for a number."""
    return {"field": field, "type": "quantitative", **channel}


def lane(field: str = "lane", last: int | None = None, **channel: Any) -> JsonDict:
    """The vertical channel of charts in lanes, which are counted from 0 at the top.

    ``last``: the last lane, to be given in one layer where there are empty ones.
    """
    scale: JsonDict = {"type": "band", "paddingInner": 0, "paddingOuter": 0}
    if last is not None:
        scale["domain"] = list(range(last + 1))
    return {"field": field, "type": "ordinal", "axis": None, "scale": scale, **channel}


def around_zero(least: float, edges: Iterable[float]) -> JsonDict:
    """The scale of differences: from the lowest to the highest of ``edges``, at least ``least``
    either side of zero.
    """
    numbers = [edge for edge in edges if not math.isnan(edge)]
    domain = [min([-least, *numbers]), max([least, *numbers])]
    return {"domain": domain, "nice": True, "zero": True}


def slots(range_: Sequence[str]) -> JsonDict:
    """A channel for what the field ``slot`` counts: models in colours, or shapes."""
    scale = {"domain": list(range(len(range_))), "range": list(range_)}
    return {"field": "slot", "type": "nominal", "scale": scale, "legend": None}


def words(field: str) -> JsonDict:
    """A channel for text."""
    return {"field": field, "type": "nominal"}


def note(**channel: Any) -> JsonDict:
    """A mark for small grey text."""
    return {"type": "text", "fontSize": SMALL, "color": SOFT, "baseline": "middle", **channel}


def named(kind: str, mark: JsonMapping, *filters: Any, **encoding: Any) -> list[JsonDict]:
    """Layers of text that stays readable on lines: a rim in the colour of the paper, and the text
    on it.
    """
    # A stroke of the letters themselves would make them thin.
    rim = {**mark, "stroke": PAPER, "strokeWidth": 4, "strokeJoin": "round", "color": PAPER}
    return [layer(kind, rim, *filters, **encoding), layer(kind, mark, *filters, **encoding)]


def row_words(
    kind: str, fields: Sequence[str], left: int, width: int, **look: Any
) -> list[JsonDict]:
    """Two lines of text on either side of a row's marks, or above them where the chart is narrow.

    ``fields``: upper and lower on the left, then on the right; ``look``: of the upper ones.
    """
    if width < NARROW:
        upper = lane("lane", bandPosition=0.17)
        lower = lane("lane", bandPosition=0.42)
        left_edge: JsonDict = {"value": 0}
        right_edge: JsonDict = {"value": "width"}
    else:
        upper = lane("lane", bandPosition=0.32)
        lower = lane("lane", bandPosition=0.68)
        left_edge = {"value": 12 - left}
        right_edge = {"value": width - left - 12}
    name = {"type": "text", "baseline": "middle", "color": INK, **look}
    title, detail, result, size = map(words, fields)
    return [
        *named(kind, {**name, "align": "left"}, x=left_edge, y=upper, text=title),
        *named(kind, note(align="left"), x=left_edge, y=lower, text=detail),
        *named(kind, {**name, "align": "right"}, x=right_edge, y=upper, text=result),
        *named(kind, note(align="right"), x=right_edge, y=lower, text=size),
    ]


def hairline(**channel: Any) -> JsonDict:
    """A mark for a thin grey line."""
    return {"type": "rule", "color": LINE, "strokeWidth": 1, **channel}


DESCRIPTION: JsonMapping = words("description")
"""What a screen reader says about a mark."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Arimo, 'Liberation Sans', Arial, sans-serif"
"""What the reader's system has; Arimo is what the renderer of files has."""

SMALL = 11
"""Pixels of the font of notes and axes."""

NORMAL = 12
"""Pixels of the font of names."""

_TITLE = 14
"""Pixels of the font of the title above a chart that is alone."""

INK = "var(--ink)"
SOFT = "var(--quiet)"
LINE = "var(--line)"
ACCENT = "var(--accent)"
MARK = "var(--mark)"
PAPER = "var(--paper)"
MODELS = tuple(f"var(--model-{number})" for number in range(1, 9))
SHAPES = (
    *("circle", "square", "triangle-up", "diamond"),
    *("triangle-down", "cross", "triangle-right", "triangle-left"),
)
"""Of models in this order: nobody has to tell them apart by colour alone."""


def _palette(*colours: str) -> dict[str, str]:
    return dict(zip(MODELS, colours, strict=True))


LIGHT: Mapping[str, str] = {
    INK: "#23201c",
    SOFT: "#5f5a53",
    LINE: "#e5e0d8",
    ACCENT: "#a84300",
    MARK: "#8a837a",
    PAPER: "#fffdf9",
    **_palette(
        "#0072b2", "#d55e00", "#009e73", "#b8578e", "#000000", "#b07800", "#2f8fc4", "#8c8100"
    ),
}
"""Colours on light paper: those of Okabe and Ito, the pale ones darkened until thin lines show (3 :
1 and more).
"""

_ON_WHITE: Mapping[str, str] = {**LIGHT, PAPER: "#ffffff"}
"""The same on the white of files and notebooks."""

DARK: Mapping[str, str] = {
    INK: "#ece8e1",
    SOFT: "#aca59a",
    LINE: "#3b3731",
    ACCENT: "#f0a35e",
    MARK: "#8a847b",
    PAPER: "#1a1815",
    **_palette(
        "#4aa8e0", "#f08040", "#2bc096", "#e39cc3", "#f2f2f2", "#e69f00", "#86cdf3", "#f0e442"
    ),
}
"""The same on a dark page."""

CONFIG: JsonMapping = {
    "font": FONT,
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "aria": False,
        "domain": False,
        "ticks": False,
        "grid": True,
        "gridColor": LINE,
        "labelColor": SOFT,
        "labelFontSize": SMALL,
        "labelFlush": False,
        "labelPadding": 6,
        "titleColor": SOFT,
        "titleFontSize": SMALL,
        "titleFontWeight": "normal",
        "titlePadding": 6,
    },
    "text": {"color": INK, "fontSize": NORMAL},
}


def styles(colours: Mapping[str, str] = LIGHT) -> str:
    """Declarations of CSS that give the variables these colours."""
    return " ".join(f"{name[4:-1]}: {colour};" for name, colour in colours.items())


SAID = 60
"""Width of a name in what is said of a mark, in sizes of its font."""


@lru_cache(maxsize=4096)
def em(text: str) -> float:
    """About how wide ``text`` is, in sizes of its font; rather too wide than too narrow."""
    return sum(map(_em, text))


@lru_cache(maxsize=4096)
def cut(text: str, most: float) -> str:
    """Return ``text`` on one line with nothing hidden in it, at most ``most`` sizes of its font
    wide.

    Its end is left out, whole words of it if they are not long.
    """
    # Measuring a text takes time in proportion to its length.
    line = safe(harmless(text[:400]))
    if em(line) <= most:
        return line
    beginning = _beginning(line, most - 1.0)
    ends = [sign.start() for sign in _SIGN.finditer(beginning)]
    if ends and em(beginning[: ends[-1]]) >= most / 2:
        beginning = beginning[: ends[-1]]
    return f"{beginning.rstrip()}…"


def cut_distinct(names: Iterable[str], most: float) -> dict[str, str]:
    """Return every name :func:`cut`, so that no two look the same.

    If several would, what all of these begin with is left out; if they still would, all but their
    last letters are.
    """
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(cut(name, most), []).append(name)
    texts = {}
    for text, group in groups.items():
        prefix = ""
        if len(group) > 1:
            # The prefix ends behind a whole word.
            prefix = _LAST_WORD.sub("", group[0][: common_start(group)])
        for name in group:
            texts[name] = text
            if prefix:
                texts[name] = cut(f"…{name.removeprefix(prefix)}", most)
    counts = Counter(texts.values())
    for name, text in texts.items():
        if counts[text] > 1:
            line = safe(harmless(name[-400:]))
            texts[name] = f"…{_beginning(line[::-1], most - 1.0)[::-1]}"
    return texts


def harmless(text: str) -> str:
    """Return ``text`` in full, with escapes for hidden characters and without those that no file
    may hold.
    """
    return _NO_CHARACTERS.sub("\ufffd", disarmed(text))


def without_shared(protocols: Sequence[str]) -> dict[str, str]:
    """Return every name without the benchmark and the changes that all have, such as ``mmlu/`` and
    ``@shots=0``.
    """
    benchmarks = {name.partition("/")[0] for name in protocols}
    changes = {name.partition("@")[2] for name in protocols}
    # What all names have says nothing.
    prefix = f"{benchmarks.pop()}/" if len(benchmarks) == 1 else ""
    suffix = f"@{changes.pop()}" if len(changes) == 1 else ""
    return {name: name.removeprefix(prefix).removesuffix(suffix) for name in protocols}


def change(axis: Axis, most: float) -> str:
    """Return from what to what an axis changes, ``sum → char_mean``, at most ``most`` sizes of the
    font wide.
    """
    text = change_text(axis).removeprefix(f"{axis.axis} ")
    if em(text) <= most:
        return text
    left, arrow, right = text.partition(" → ")
    room = most - em(arrow)
    # The shorter side is whole if it takes less than half of the room.
    shorter = min(em(left), em(right), room / 2)
    sides = []
    for side in (left, right):
        side_room = shorter if em(side) <= shorter else room - shorter
        sides.append(cut(side, side_room))
    return arrow.join(sides)


def share(value: float) -> str:
    """Return a share of 1 as ``21.7 %``; ``no number`` for NaN."""
    if math.isnan(value):
        return "no number"
    return f"{percent(value)} %"


def bounds(low: float, high: float) -> str:
    """Return ``, 95 % interval 17.6 to 26.6``; an empty text if there is none."""
    if math.isnan(low) or math.isnan(high):
        return ""
    return f", 95 % interval {percent(low)} to {percent(high)}"


def number_fields(row: Number) -> Record:
    """Return what the record of a number has of it."""
    return {
        "protocol": row.identity.protocol,
        "value": row.value,
        "ci_low": row.interval.low,
        "ci_high": row.interval.high,
        "rank": row.ranks.rank,
        "rank_low": row.ranks.low,
        "rank_high": row.ranks.high,
        "n": row.counts.n,
    }


_VERSION = "6.4"


def _renderer() -> ModuleType:
    try:
        import vl_convert
    except ImportError as error:
        raise UsageError(
            f"drawing charts needs vl-convert-python; {install_line('page')}"
        ) from error
    return vl_convert


_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


def _harmless(record: Record) -> Record:
    """Return the record as JSON can hold it."""
    content = {}
    for name, value in record.items():
        content[name] = harmless(value) if isinstance(value, str) else json_value(value)
    return content


def _coloured(spec: Any, colours: Mapping[str, str] = LIGHT) -> Any:
    """Return the specification with literal colours for the variables; its data are left as they
    are.
    """
    if isinstance(spec, Mapping):
        parts = {name: _coloured(part, colours) for name, part in spec.items() if name != "values"}
        return {name: parts.get(name, part) for name, part in spec.items()}
    if isinstance(spec, list | tuple):
        return [_coloured(part, colours) for part in spec]
    if isinstance(spec, str):
        return colours.get(spec, spec)
    return spec


_NO_CHARACTERS = re.compile("[\ufdd0-\ufdef\ufffe\uffff]")
"""Characters that no XML file may hold."""

_SIGN = re.compile(r"[-_/: ]")

_LAST_WORD = re.compile(r"[^-_/: ]*$")

_NARROW = frozenset("fijlrtI.,:;'|!()[]-/ ")

_WIDE = frozenset("mwMW@%")


def _em(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.05
    if char in _NARROW:
        return 0.36
    if char in _WIDE:
        return 0.9
    return 0.7 if char.isupper() else 0.58


def _beginning(line: str, room: float) -> str:
    """Return as many characters as there is room for."""
    width = 0.0
    for index, char in enumerate(line):
        width += _em(char)
        if width > room:
            return line[:index]
    return line


def _folded(text: str, most: float) -> list[str]:
    """Return words on lines at most ``most`` sizes of their font wide."""
    lines: list[str] = []
    for word in text.split():
        if lines and em(f"{lines[-1]} {word}") <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
