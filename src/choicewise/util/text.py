"""The only text formatting: visible/escaped text, percent, count, size, duration, 'a, b and 3 more', shell quoting;
secrets are hidden."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from textwrap import wrap
from typing import Final

from choicewise.errors import ChoicewiseError, UsageError

_SIGNS = str.maketrans(
    "␠␉", "␣⇥"
)  # the terminal's signs for a space and a tab, of which many fonts have no picture
_SPACES = re.compile(r"^ +| +$| {2,}", re.MULTILINE)
_LONGEST_NAME = 60  # characters of a name that a page shows where there is little room
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
NAME, REASON = (
    60,
    120,
)  # characters that a line gives to a name, and to a reason; of longer ones the middle is left out
SEVERAL = 3  # so many models, or datasets, are named one by one


def shown(text: str) -> str:
    """``text`` over as many lines as it has: ⏎ ends a line, ␣ is a space at an edge or beside another, ⇥ a tab."""
    return visible(text).translate(_SIGNS)


@lru_cache(maxsize=4096)
def shown_line(text: str) -> str:
    """The same on one line."""
    return visible_line(text).translate(_SIGNS)


def safe(text: str) -> str:
    r"""``text`` on one line, with control and invisible characters as escapes (``\x1b``, ``\u202e``)."""
    return _escaped(text).replace("\n", r"\n").replace("\t", r"\t")


_BREAKS: Final = r"\s/:._-"
"""Signs at which names are broken, as inside the brackets of an expression."""


def short(text: str, most: int) -> str:
    """:func:`safe` text of at most ``most`` characters; where it is longer, … stands for words in its middle.

    A word is cut itself only where it takes more than half of the room before or behind the middle.
    """
    shown = safe(text)
    if len(shown) <= most:
        return shown
    before, behind = most * 2 // 3, most - most * 2 // 3 - 1
    cuts = [place for sign in re.finditer(f"[{_BREAKS}]", shown) for place in sign.span()]
    start = max((place for place in cuts if before <= 2 * place <= 2 * before), default=before)
    last = len(shown)
    end = min(
        (place for place in cuts if behind <= 2 * (last - place) <= 2 * behind),
        default=last - behind,
    )
    return f"{shown[:start].rstrip()}…{shown[end:].lstrip()}"


_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""C0 and C1 controls, bidirectional and invisible formatting, lone surrogates; not the tab and the newline.

The joiners U+200C and U+200D are not among them: they shape emoji and scripts, and what they join can be seen.
"""


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


def sentence(parts: Sequence[str]) -> str:
    """The parts, which begin with a word of ours and not with a name, as one sentence."""
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 item``, ``14,042 items``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(bytes: int) -> str:
    """So many bytes, in the unit that suits them."""
    for unit, each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes >= each:
            return f"{bytes / each:.1f} {unit}"
    return counted(bytes, "byte")


def are(number: int) -> str:
    """Is or are."""
    return "is" if number == 1 else "are"


def protocols(number: int, grouped: bool) -> str:
    """So many protocols, or so many pairs of a protocol and a group."""
    return counted(number, "comparison" if grouped else "protocol")


def probability(p: float) -> str:
    """A p value: ``p = .003``, ``p < .001``, nothing where there was no test."""
    if math.isnan(p):
        return ""
    if p < 0.001:
        return "p < .001"
    return "p = 1" if p > 0.9995 else f"p = {p:.3f}".replace("0.", ".", 1)


def error(share: float) -> str:
    """A standard error (share of 1) as ``± 2.4``; nothing where it is not known."""
    return "" if math.isnan(share) else f"± {percent(share)}"


def points(share: float, minus: str = "−") -> str:
    """A difference (share of 1) in points, with its sign: ``+61.2``, ``−0.9``."""
    text = percent(abs(share))
    if math.isnan(share) or text == "0.0":
        return text
    return f"{minus if share < 0 else '+'}{text}"


def interval(low: float, high: float, spelled: Callable[[float], str] | None = None) -> str:
    """Two shares of 1 in percent, ``20.1 – 25.6``, or two numbers ``spelled`` otherwise; a dash when there are none."""
    spelled = spelled or percent
    return "-" if math.isnan(low) else f"{spelled(low)} – {spelled(high)}"


def ranks(low: int | None, high: int | None) -> str:
    """A range of ranks: ``2–4``, or ``2`` where it is one."""
    if low is None or high is None:
        return ""
    return f"{low}" if low == high else f"{low}–{high}"


def listed(words: Sequence[str], most: int = 3) -> str:
    """``a``, ``a and b``, ``a, b and c``; of more than ``most`` the first ones and how many others there are."""
    shown = [*words[:most], f"{len(words) - most} more"] if len(words) > most + 1 else [*words]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def shortened(text: str, most: int = _LONGEST_NAME, start: int = 0) -> str:
    """``text`` in at most so many characters, of longer ones those from ``start`` on, with … for what is left out."""
    if len(text) <= most:
        return text
    cut = ("…" if start else "") + text[start:]
    return cut if len(cut) <= most else f"{cut[: most - 1].rstrip()}…"


def common_start(left: str, right: str) -> int:
    """Return how many characters two texts have in common before the first that differs."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


def wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines of at most so many columns, broken between words; nothing where it is empty."""
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def broken(name: str, most: int) -> list[str]:
    """A name in lines of at most ``most`` columns, broken behind spaces and signs and never inside a word."""
    lines = [""]
    for part in re.findall(f"[^{_BREAKS}]*[{_BREAKS}]?", name):
        if lines[-1] and part.strip() and len((lines[-1] + part).rstrip()) > most:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def percent(share: float) -> str:
    """A share of 1 in percent with one decimal; a dash when there is no number."""
    return "-" if math.isnan(share) else f"{100 * share:.1f}"


def plain(number: float) -> str:
    """Return a number that is no share of 1: three decimals, two from 10 on, four below 0.1, or as a power of 10."""
    if math.isnan(number):
        return "-"
    if abs(number) < 1e-12:  # what rounding leaves of 0
        number = 0.0
    size = abs(number)
    if number and not 1e-3 <= size < 1e6:
        return f"{number:.3g}"
    if size >= 10:
        return f"{number:,.2f}"
    if 0 < size < 0.1:
        return f"{number:.4f}"
    return f"{number:.3f}"


def command_line(*words: str | Path) -> str:
    """``choicewise`` with these arguments, quoted so that a shell reads them as they are."""
    return " ".join(["choicewise", *map(quoted, words)])


def quoted(word: str | Path) -> str:
    """One word as a shell reads it; paths that begin with a hyphen begin with ``./``, controls are spelled out."""
    text = f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word)
    if text.isprintable():
        return shlex.quote(text)
    spelled = (
        chr(byte) if chr(byte).isalnum() and byte < 0x80 else f"\\x{byte:02x}"
        for byte in os.fsencode(text)
    )
    return f"$'{''.join(spelled)}'"


def bytes_of(text: str) -> int:
    """Bytes from ``20GB``, ``500 MB`` or ``1.5TB``; 0 for anything else."""
    match = re.fullmatch(
        r"(\d{1,6}(?:\.\d{1,3})?)\s*([KMGT]?)B?", text.strip(), re.IGNORECASE | re.ASCII
    )
    return int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0


_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{1,30}:/{1,3}", re.IGNORECASE)
"""The beginning of an address; one slash will do, as that is what a path makes of two.

A longer scheme ends in a shorter one, so the bound loses nothing, and keeps the search linear.
"""

_USER: Final = re.compile(r"[^/?#]*@")
"""A user before the host."""

_PASSWORD: Final = re.compile(r"[^/?#:\[\]]*:(?!\d*(?:[/?#]|$))")
"""A user and the colon before a password, which may hold ``/``, ``?`` or ``#``; what follows is no port."""

_NAMES: Final = "key|token|secret|password|passwd|pwd|auth|authorization|credentials?|sig|signature"
"""How a parameter is called, or how its name ends, whose value opens something."""

_KEY: Final = re.compile(rf"[?&;#](?:[\w.-]*[_.-])?(?:api)?(?:{_NAMES})=[^&;]", re.IGNORECASE)


def holds_secret(text: str) -> bool:
    """Whether ``text`` holds an address with a login or a key in it; takes time in proportion to its length."""
    return any(_word_holds_secret(word) for word in text.split() if ":/" in word)


def _word_holds_secret(word: str) -> bool:
    first = _SCHEME.search(word)
    if first is None:
        return False
    if _KEY.search(word, first.end()):
        return True
    last_at = word.rfind("@")
    for scheme in _SCHEME.finditer(word):
        if _USER.match(word, scheme.end()):
            return True
        password = _PASSWORD.match(word, scheme.end())
        if password is not None and password.end() <= last_at:
            return True
    return False


def refuse_secret(text: object, what: str, error: type[ChoicewiseError] = UsageError) -> None:
    """Raise ``error`` where ``text``, which messages call ``what``, holds an address with a login or a key in it."""
    if holds_secret(str(text)):
        raise error(
            f"{what} is an address with a login or a key in it, which the run and its pages would keep; leave that out:"
            " the key of a server is read from the variable CHOICEWISE_API_KEY, the Hub's token from HF_TOKEN"
        )


def has_half_character(text: str) -> bool:
    """Tell whether ``text`` holds a lone surrogate, half a character, which no file stores and no tokenizer reads.

    Names of files that are no UTF-8 have them in Python.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def check_name(text: object, what: str, error: type[ChoicewiseError] = UsageError) -> None:
    """Raise ``error`` if ``text``, which messages call ``what``, is nothing that a run can keep.

    That is a name that is no UTF-8, or an address with a login or a key in it.
    """
    if has_half_character(str(text)):
        raise error(
            f"{what} is {str(text)!r}, which is no UTF-8; a run can't store that name. Rename it"
        )
    refuse_secret(text, what, error)


def _escaped(text: str) -> str:
    return _CONTROLS.sub(
        lambda control: (
            f"\\x{ord(control[0]):02x}" if ord(control[0]) < 0x100 else f"\\u{ord(control[0]):04x}"
        ),
        text,
    )
