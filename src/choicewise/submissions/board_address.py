"""Where a board is that takes submissions: ``http://HOST:PORT``, or ``https://HOST/PATH`` behind a proxy with TLS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from choicewise.errors import UsageError
from choicewise.models.server.address import ServerAddress, url_objection

_FORM: Final = "http://HOST:PORT"


@dataclass(frozen=True)
class BoardAddress:
    """``url``: http or https, without credentials, query, fragment and a slash at its end."""

    url: str

    @classmethod
    def parse(cls, text: str) -> BoardAddress:
        """The address that ``text`` spells; UsageError, which repeats no secret in it, where it can't be one."""
        if objection := _objection(text):
            raise UsageError(f"the board's address: {objection}")
        parts = urlsplit(text)
        return cls(f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}")

    def __str__(self) -> str:
        return self.url

    def at(self, path: str) -> str:
        """The URL of ``path``, which begins without a slash."""
        return f"{self.url}/{path}"

    @property
    def is_loopback(self) -> bool:
        """Whether the board is on this machine, so that no proxy may come in between."""
        return ServerAddress(self.url).is_loopback

    @property
    def is_proxied(self) -> bool:
        """Whether the environment names a proxy that requests go through."""
        return ServerAddress(self.url).is_proxied

    @property
    def advice(self) -> str | None:
        """What to say of a way on which others could read the token; None where nobody can."""
        if self.is_loopback or self.url.startswith("https:"):
            return None
        host = urlsplit(self.url).hostname
        return (
            f"what goes to {host} is not encrypted, the token included: use https:// and a proxy with TLS there, or"
            f" `ssh -L 8470:localhost:PORT {host}` and http://localhost:8470 here"
        )


def _objection(text: str) -> str | None:
    """Why ``text`` is no address; None where it is one."""
    if "@" in text:
        return "it must not hold credentials (an @); the token comes from a file or the environment"
    if "?" in text or "#" in text:
        return f"it must not hold a query or a fragment (? or #); the form is {_FORM}"
    return url_objection(text, _FORM)
