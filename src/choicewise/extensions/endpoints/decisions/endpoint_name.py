"""Read the name of a decision endpoint and its options."""

from __future__ import annotations

import re
from typing import NamedTuple

from choicewise.errors import ModelError, did_you_mean
from choicewise.extensions.endpoints.decisions.dialects import DIALECTS
from choicewise.extensions.endpoints.server.address import ServerAddress

PREFIX = "decisions:"
REPEATS = 20
"""Questions that are sent twice by default."""

_OPTIONS = ("dialect", "repeats")
_FORM = f"{PREFIX}https://HOST/v1#NAME"


class EndpointName(NamedTuple):
    """Hold the parts of ``decisions:URL#NAME,OPTION=VALUE,...``.

    The ``address`` is without the path of the endpoint, which the ``dialect`` adds (a key of
    :data:`DIALECTS`).  ``repeats``: how many questions are sent twice.
    """

    address: ServerAddress
    dialect: str = "systemone"
    repeats: int = REPEATS

    @classmethod
    def parse(cls, name: str) -> EndpointName:
        """Read ``name``; raise ModelError, which never repeats what may be a secret."""
        text, *settings = re.split(r",(?=[A-Za-z_]\w*=)", name)
        address = ServerAddress.parse(text, PREFIX)
        if not address.model:
            raise ModelError(
                f"{address} names no model; add its name at the endpoint: {address}#NAME, as in "
                f"{_FORM}"
            )
        options: dict[str, str] = {}
        for setting in settings:
            key, _, value = setting.partition("=")
            if key in options:
                raise ModelError(f"{address} names {key} twice; {did_you_mean(key, _OPTIONS)}")
            if key not in _OPTIONS:
                raise ModelError(f"{address} has no option {key!r}; {did_you_mean(key, _OPTIONS)}")
            options[key] = value
        dialect = options.get("dialect", "systemone")
        if dialect not in DIALECTS:
            advice = did_you_mean(dialect, DIALECTS)
            raise ModelError(f"{address}: there is no dialect {dialect!r}; {advice}")
        repeats = options.get("repeats", str(REPEATS))
        if not repeats.isdecimal():
            raise ModelError(
                f"{address}: repeats is {repeats!r}; it must be a number of questions, 0 for none"
            )
        return cls(address, dialect, int(repeats))
