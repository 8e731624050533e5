"""Format numbers, names, lists and commands as text, show hidden characters, and find secrets in
addresses.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from pathlib import Path
from textwrap import wrap
from typing import TypeVar

from choicewise.errors import ChoicewiseError, UsageError

# Many fonts of terminals have no picture of the first two signs.
_SIGNS = {"␠": "␣", "␉": "⇥"}
_SPACES = re.compile(r"^ +| +$| {2,}", re.MULTILINE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}

# Characters of a name in a line; of longer ones the middle is left out.
NAME = 60

# Characters of a reason in a line.
REASON = 120

# So many models, or datasets, are named one by one.
SEVERAL = 3


def text_digest(text: str) -> str:
    """Return the sha256 of ``text`` in UTF-8, 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def shown(text: str) -> str:
    """Show ``text`` in its lines: ⏎ ends a line, ␣ is a space at an edge or beside another, ⇥ a
    tab.
    """
    # Prompts are long, and `str.translate` would look up every character.
    text = visible(text)
    for sign, common_sign in _SIGNS.items():
        text = text.replace(sign, common_sign)
    return text


@lru_cache(maxsize=4096)
def shown_line(text: str) -> str:
    """Show ``text`` on one line, with ⏎, ␣ and ⇥ as in :func:`shown`."""
    return shown(text).replace("⏎\n", "⏎")


def safe(text: str) -> str:
    r"""Return ``text`` on one line, with control and invisible characters as escapes (``\x1b``,
    ``\u202e``).
    """
    return _escaped(text).replace("\n", r"\n").replace("\t", r"\t")


_BREAKS = r"\s/:._-"
"""Signs at which names are broken, for the brackets of a regular expression."""


def short(text: str, most: int) -> str:
    """Return :func:`safe` text of at most ``most`` characters, with … for words in the middle of a
    longer one.

    A word is cut only if it takes more than half of the room before or behind the middle.
    """
    text = safe(text)
    length = len(text)
    if length <= most:
        return text
    before = most * 2 // 3
    behind = most - before - 1
    start = 0
    end = length
    for sign in re.finditer(f"[{_BREAKS}]", text):
        for position in sign.span():
            if position <= before:
                start = position
            elif length - position <= behind:
                end = min(end, position)
    if 2 * start < before:
        start = before
    if 2 * (length - end) < behind:
        end = length - behind
    return f"{text[:start].rstrip()}…{text[end:].lstrip()}"


_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""C0 and C1 controls, bidirectional and invisible formatting, lone surrogates.

Not the tab and the newline.

The joiners U+200C and U+200D are not among them: they shape emoji and scripts, and what they join
can be seen.
"""


def json_safe(text: str) -> str:
    """Return the JSON ``text`` with escapes of JSON for controls and invisible characters."""
    return _CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def disarmed(text: str) -> str:
    r"""Return ``text`` in its lines, with control and invisible characters as escapes, and ``\t``."""
    return _escaped(text).replace("\t", r"\t")


def visible(text: str) -> str:
    """Show ``text`` in its lines: ⏎ ends a line, ␠ is a space at an edge or beside another, ␉ a
    tab.
    """
    spaced = _SPACES.sub(lambda run: "␠" * len(run[0]), _escaped(text))
    return spaced.replace("\t", "␉").replace("\n", "⏎\n")


def visible_line(text: str) -> str:
    """Show ``text`` on one line, with ⏎ for each end of a line, and ␠ and ␉ as in :func:`visible`."""
    return visible(text).replace("⏎\n", "⏎")


def sentence(parts: Sequence[str]) -> str:
    """Join the parts, of which the first begins with no name, to one sentence."""
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Count things: ``1 item``, ``14,042 items``."""
    if number != 1:
        noun = plural or f"{noun}s"
    return f"{number:,} {noun}"


def size(bytes: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit, unit_bytes in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes >= unit_bytes:
            return f"{bytes / unit_bytes:.1f} {unit}"
    return counted(bytes, "byte")


def are(number: int) -> str:
    """Return "is" for one thing, else "are"."""
    return "is" if number == 1 else "are"


def protocols(number: int, grouped: bool) -> str:
    """Count protocols, or pairs of a protocol and a group."""
    return counted(number, "comparison" if grouped else "protocol")


def probability(p: float) -> str:
    """Spell a p value: ``p = .003``, ``p < .001``, or nothing without a test."""
    if math.isnan(p):
        return ""
    if p < 0.001:
        return "p < .001"
    if p > 0.9995:
        return "p = 1"
    return f"p = {p:.3f}".replace("0.", ".", 1)


def error(share: float) -> str:
    """Spell a standard error (share of 1) as ``± 2.4``, or nothing for NaN."""
    return "" if math.isnan(share) else f"± {percent(share)}"


def points(share: float, minus: str = "−") -> str:
    """Spell a difference (share of 1) in points, with its sign: ``+61.2``, ``−0.9``."""
    text = percent(abs(share))
    if math.isnan(share) or text == "0.0":
        return text
    sign = minus if share < 0 else "+"
    return sign + text


def interval(low: float, high: float, spelled: Callable[[float], str] | None = None) -> str:
    """Spell two shares of 1 in percent, ``20.1 – 25.6``, or by ``spelled``; a dash for NaN."""
    spelled = spelled or percent
    return "-" if math.isnan(low) else f"{spelled(low)} – {spelled(high)}"


def ranks(low: int | None, high: int | None) -> str:
    """Spell a range of ranks: ``2–4``, or ``2`` if it is one."""
    if low is None or high is None:
        return ""
    if low == high:
        return str(low)
    return f"{low}–{high}"


def listed(words: Sequence[str], most: int = 3) -> str:
    """Join words, ``a``, ``a and b``, ``a, b and c``.

    After the first ``most`` say only how many others there are.
    """
    words = list(words)
    # One word takes no more room than its number.
    if len(words) > most + 1:
        words = [*words[:most], f"{len(words) - most} more"]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def shortened(text: str, most: int = NAME, start: int = 0) -> str:
    """Return at most ``most`` characters of ``text``, from ``start`` on if it is longer, with … for
    the others.
    """
    if len(text) <= most:
        return text
    if start:
        text = f"…{text[start:]}"
    if len(text) > most:
        text = f"{text[: most - 1].rstrip()}…"
    return text


Parts = TypeVar("Parts", str, list[str], list[int])
"""Characters, words or tokens."""


def common_start(texts: Collection[Parts]) -> int:
    """Return how many characters, words or tokens all ``texts`` begin with."""
    if not texts:
        return 0
    # The first and the last in order differ the earliest.
    first = min(texts)
    last = max(texts)
    for index, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return index
    return min(len(first), len(last))


def wrapped(text: str, width: int) -> list[str]:
    """Break ``text`` between words into lines of at most ``width`` columns."""
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def broken(name: str, most: int) -> list[str]:
    """Break a name behind spaces and signs, never inside a word, into lines of at most ``most``
    columns.
    """
    lines = [""]
    for part in re.findall(f"[^{_BREAKS}]*[{_BREAKS}]?", name):
        if lines[-1] and part.strip() and len((lines[-1] + part).rstrip()) > most:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def percent(share: float) -> str:
    """Spell a share of 1 in percent with one decimal; a dash for NaN."""
    return "-" if math.isnan(share) else f"{100 * share:.1f}"


def plain(number: float) -> str:
    """Return a number that is no share of 1: three decimals, two from 10 on, four below 0.1, or as
    a power of 10.
    """
    if math.isnan(number):
        return "-"
    # Rounding may leave this of 0.
    if abs(number) < 1e-12:
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
    """Return the command ``choicewise`` with these arguments, quoted for a shell."""
    return " ".join(["choicewise", *map(quoted, words)])


def quoted(word: str | Path) -> str:
    """Quote a word for a shell.

    Paths that begin with a hyphen begin with ``./``, controls are spelled out.
    """
    text = str(word)
    if isinstance(word, Path) and text.startswith("-"):
        text = f"./{text}"
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_shell_byte, os.fsencode(text)))}'"


def _shell_byte(byte: int) -> str:
    char = chr(byte)
    if char.isascii() and char.isalnum():
        return char
    return f"\\x{byte:02x}"


def bytes_of(text: str) -> int:
    """Return the bytes that ``20GB``, ``500 MB`` or ``1.5TB`` spells, 0 for anything else."""
    pattern = r"(\d{1,6}(?:\.\d{1,3})?)\s*([KMGT]?)B?"
    match = re.fullmatch(pattern, text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        return 0
    number, unit = match.groups()
    return int(float(number) * _UNITS[unit.upper()])


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{1,30}:/{1,3}", re.IGNORECASE)
"""The beginning of an address; one slash will do, as that is what a path makes of two.

A longer scheme ends in a shorter one, so the bound loses nothing, and keeps the search linear.
"""

_USER = re.compile(r"[^/?#]*@")
"""A user before the host."""

_PASSWORD = re.compile(r"[^/?#:\[\]]*:(?!\d*(?:[/?#]|$))")
"""A user and the colon before a password, which may hold ``/``, ``?`` or ``#``.

What follows is no port.
"""

_NAMES = "key|token|secret|password|passwd|pwd|auth|authorization|credentials?|sig|signature"
"""Names, or ends of names, of parameters whose value opens something."""

_KEY = re.compile(rf"[?&;#](?:[\w.-]*[_.-])?(?:api)?(?:{_NAMES})=[^&;]", re.IGNORECASE)


def holds_secret(text: str) -> bool:
    """Return whether ``text`` holds an address with a login or a key in it, in time proportional to
    its length.
    """
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
    """Raise ``error`` if ``text``, which messages call ``what``, holds an address with a login or a
    key in it.
    """
    if holds_secret(str(text)):
        raise error(
            f"{what} is an address with a login or a key, which the run and its pages "
            "would store. Leave it out: set the server's key as CHOICEWISE_API_KEY, the "
            "Hub's token as HF_TOKEN"
        )


def has_half_character(text: str) -> bool:
    """Return whether ``text`` holds a lone surrogate, half a character, which no file stores and no
    tokenizer reads.

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
            f"{what} is {str(text)!r}, which is not UTF-8, so a run can't store it. Rename it"
        )
    refuse_secret(text, what, error)


def _escaped(text: str) -> str:
    return _CONTROLS.sub(_escape, text)


def _escape(control: re.Match[str]) -> str:
    code = ord(control[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}"
