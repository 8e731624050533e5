"""How a decision endpoint is named, with what is options of it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from choicewise.errors import ModelError, did_you_mean
from choicewise.extensions.endpoints.decisions.dialects import DIALECTS
from choicewise.extensions.endpoints.server.address import ServerAddress

PREFIX: Final = "decisions:"
REPEATS: Final = 20  # questions that are sent twice, unless options otherwise
_OPTIONS: Final = ("dialect", "repeats")
_FORM: Final = f"{PREFIX}https://HOST/v1#NAME"


class EndpointName(NamedTuple):
    """``decisions:URL#NAME,OPTION=VALUE,...``.

    The address without the path of the endpoint, which the ``dialect`` adds (a key of :data:`DIALECTS`, ``systemone``
    unless named); ``repeats``: how many questions are sent twice.
    """

    address: ServerAddress
    dialect: str = "systemone"
    repeats: int = REPEATS

    @classmethod
    def parse(cls, name: str) -> EndpointName:
        """ModelError for a text that is no such name; what may be a secret in it is never repeated."""
        whole, *given = re.split(r",(?=[A-Za-z_]\w*=)", name)
        address = ServerAddress.parse(whole, PREFIX)
        if not address.model:
            raise ModelError(
                f"{address} names no model; write what the endpoint calls it: {address}#NAME, as {_FORM}"
            )
        options = dict[str, str]()
        for key, _, value in (each.partition("=") for each in given):
            if key not in _OPTIONS or key in options:
                problem = f"names {key} twice" if key in options else f"has no option {key!r}"
                raise ModelError(f"{address} {problem}; {did_you_mean(key, _OPTIONS)}")
            options[key] = value
        if (dialect := options.get("dialect", "systemone")) not in DIALECTS:
            raise ModelError(
                f"{address} names the dialect {dialect!r}, which nobody speaks; {did_you_mean(dialect, DIALECTS)}"
            )
        if not (repeats := options.get("repeats", str(REPEATS))).isdecimal():
            raise ModelError(
                f"{address} names repeats {repeats!r}; it is a number of questions, 0 for none"
            )
        return cls(address, dialect, int(repeats))
