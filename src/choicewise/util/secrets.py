"""API keys and tokens: read from file/environment, hide in logs and messages, compare.

What a user types after an option is repeated in messages and kept in the run, from where it reaches pages and exports.
So an address with a login or a key in it is refused at the door, in words that do not repeat it.
"""

from __future__ import annotations

import re
from typing import Final

from choicewise.errors import ChoicewiseError, UsageError

_LOGIN: Final = r"[^\s/?#]*@|[^\s/?#:\[\]]*:(?!\d*(?:[/?#\s]|$))\S*@"
"""A user before the host; also with a password that holds ``/``, ``?`` or ``#``, which ends the host elsewhere."""

_NAMES: Final = "key|token|secret|password|passwd|pwd|auth|authorization|credentials?|sig|signature"
"""How a parameter is called, or how its name ends, whose value opens something."""

_SECRET: Final = re.compile(
    rf"[a-z][a-z0-9+.-]+:/{{1,3}}(?:{_LOGIN}|\S*[?&;#](?:[\w.-]*[_.-])?(?:api)?(?:{_NAMES})=[^\s&;])", re.IGNORECASE
)
"""One slash will do, as that is what a path makes of two."""


def holds_secret(text: str) -> bool:
    """Whether ``text`` holds an address with a login or a key in it."""
    return _SECRET.search(text) is not None


def refuse_secret(text: object, what: str, error: type[ChoicewiseError] = UsageError) -> None:
    """Raise ``error`` where ``text``, which messages call ``what``, holds an address with a login or a key in it."""
    if holds_secret(str(text)):
        raise error(
            f"{what} is an address with a login or a key in it, which the run and its pages would keep; leave that out:"
            " the key of a server is read from the variable CHOICEWISE_API_KEY, the Hub's token from HF_TOKEN"
        )
