"""Text from data and models, safe to print: no hidden characters, and no escape sequences for the terminal."""

import re

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""C0 and C1 controls, bidirectional and invisible formatting, lone surrogates; not the tab and the newline.

The joiners U+200C and U+200D are not among them: they shape emoji and scripts, and what they join can be seen.
"""

_SPACES = re.compile(r"^ +| +$| {2,}", re.MULTILINE)


def safe(text: str) -> str:
    r"""``text`` on one line, with control and invisible characters as escapes (``\x1b``, ``\u202e``)."""
    return _escaped(text).replace("\n", r"\n").replace("\t", r"\t")


def short(text: str, most: int) -> str:
    """:func:`safe` text of at most ``most`` characters; where it is longer, … stands for its middle."""
    shown = safe(text)
    head = most * 2 // 3
    return shown if len(shown) <= most else f"{shown[:head]}…{shown[len(shown) - (most - head - 1) :]}"


def json_safe(text: str) -> str:
    """JSON ``text``, with escapes of JSON for the controls and invisible characters that may stand in it."""
    return _CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def disarmed(text: str) -> str:
    r"""``text`` over as many lines as it has, with control and invisible characters as escapes, and ``\t``."""
    return _escaped(text).replace("\t", r"\t")


def visible(text: str) -> str:
    """``text`` over as many lines as it has: ⏎ ends a line, ␠ is a space at an edge or beside another, ␉ a tab."""
    shown = _SPACES.sub(lambda run: "␠" * len(run[0]), _escaped(text))
    return shown.replace("\t", "␉").replace("\n", "⏎\n")


def visible_line(text: str) -> str:
    """The same on one line; ⏎ stands for each end of a line."""
    return visible(text).replace("⏎\n", "⏎")


def _escaped(text: str) -> str:
    return _CONTROLS.sub(
        lambda control: f"\\x{ord(control[0]):02x}" if ord(control[0]) < 0x100 else f"\\u{ord(control[0]):04x}", text
    )
