"""How charts look: one scale of type, one set of colours, a shape for every colour.

Colours are named as variables of CSS, which pages define for light and dark; files and notebooks get those of paper.
"""

from collections.abc import Mapping
from typing import Any, Final

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, Arimo, 'Liberation Sans', Arial, sans-serif"
"""What the reader's system has; Arimo is what the renderer of files has."""

SMALL: Final = 11
NORMAL: Final = 12
TITLE: Final = 14
"""Sizes in pixels: notes and axes, names, the title of a chart that stands alone."""

INK: Final = "var(--ink)"
SOFT: Final = "var(--quiet)"
LINE: Final = "var(--line)"
ACCENT: Final = "var(--accent)"
MARK: Final = "var(--mark)"
PAPER: Final = "var(--paper)"
MODELS: Final = tuple(f"var(--model-{place})" for place in range(1, 9))
SHAPES: Final = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "triangle-down",
    "cross",
    "triangle-right",
    "triangle-left",
)
"""Of models in this order: nobody has to tell them apart by colour alone."""

LIGHT: Final[Mapping[str, str]] = {
    INK: "#1a1a1a",
    SOFT: "#595959",
    LINE: "#dadada",
    ACCENT: "#0a58a6",
    MARK: "#8a8a8a",
    PAPER: "#ffffff",
    **dict(
        zip(
            MODELS,
            ("#0072b2", "#d55e00", "#009e73", "#b8578e", "#000000", "#b07800", "#2f8fc4", "#8c8100"),
            strict=True,
        )
    ),
}
"""Colours on white: those of Okabe and Ito, the pale ones darkened until thin lines show (3 : 1 and more)."""

DARK: Final[Mapping[str, str]] = {
    INK: "#e8e8e6",
    SOFT: "#a6a8ab",
    LINE: "#383b40",
    ACCENT: "#7db7f2",
    MARK: "#85888d",
    PAPER: "#15171a",
    **dict(
        zip(
            MODELS,
            ("#4aa8e0", "#f08040", "#2bc096", "#e39cc3", "#f2f2f2", "#e69f00", "#86cdf3", "#f0e442"),
            strict=True,
        )
    ),
}
"""The same on a dark page."""

CONFIG: Final[Mapping[str, Any]] = {
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


def coloured(spec: Any, colours: Mapping[str, str] = LIGHT) -> Any:
    """The specification with literal colours for the variables; its data are left as they are."""
    if isinstance(spec, Mapping):
        return {name: part if name == "values" else coloured(part, colours) for name, part in spec.items()}
    if isinstance(spec, list | tuple):
        return [coloured(part, colours) for part in spec]
    return colours.get(spec, spec) if isinstance(spec, str) else spec
