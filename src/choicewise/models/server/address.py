"""Where a served model is: ``server:URL#NAME``."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from choicewise.errors import ModelError

PREFIX: Final = "server:"
KEY_VARIABLE: Final = "CHOICEWISE_API_KEY"
"""The environment variable with the key that a server asks for; no other is ever sent."""

_FORM: Final = "server:http://HOST:PORT/v1#NAME"
_ENDPOINTS: Final = ("/completions", "/chat", "/models", "/tokenize", "/embeddings")


@dataclass(frozen=True)
class ServerAddress:
    """``url``: http or https, without credentials, query and a slash at its end; ``model``: its name at the server.

    As text it is what :meth:`parse` reads.
    """

    url: str
    model: str | None = None

    @classmethod
    def parse(cls, text: str) -> ServerAddress:
        """The address that ``text`` spells; where it has no ``#NAME``, ``model`` is None.

        Raises ModelError where it can't be one.  What may be a secret is never repeated: neither credentials nor a
        query.
        """
        if not text.startswith(PREFIX):
            raise ModelError(f"the address of a served model is {_FORM}")
        url, _, name = text.removeprefix(PREFIX).partition("#")
        if objection := _objection(url, name):
            raise ModelError(f"server address: {objection}")
        parts = urlsplit(url)
        host = parts.netloc.lower()
        return cls(f"{parts.scheme.lower()}://{host}{parts.path.rstrip('/')}", name or None)

    def __str__(self) -> str:
        return f"{PREFIX}{self.url}" + ("" if self.model is None else f"#{self.model}")

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine, so that no proxy may come in between."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    @property
    def is_proxied(self) -> bool:
        """Whether the environment names a proxy that requests go through."""
        parts = urlsplit(self.url)
        proxies = getproxies()
        named = parts.scheme in proxies or "all" in proxies
        return named and not self.is_loopback and not proxy_bypass(parts.hostname or "")

    def at(self, path: str) -> str:
        """The URL of ``path``: below ``url``, or where it starts with a slash below the server's root.

        The root is ``url`` without a ``/v1`` at its end: ``/tokenize`` of vLLM lies beside ``/v1``, not in it.
        """
        if path.startswith("/"):
            return self.url.removesuffix("/v1") + path
        return f"{self.url}/{path}"


def url_objection(url: str, form: str) -> str | None:
    """Why ``url`` is no address of a server over HTTP, with the ``form`` that it should have; None where it is one."""
    if not url.isprintable() or " " in url or "\\" in url:
        return f"it has white space, backslashes or invisible characters; the form is {form}"
    if not url.lower().startswith(("http://", "https://")):
        return f"it must start with http:// or https://; the form is {form}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return f"its host or port can't be read; the form is {form}"
    if not host or port == 0 or parts.netloc.endswith(":"):
        return f"its host or port is missing; the form is {form}"
    return None


def _objection(url: str, name: str) -> str | None:
    """Why ``url`` and ``name`` are no address; None where they are."""
    if "@" in url:
        return f"it must not hold credentials (an @); leave them out, and put a key into {KEY_VARIABLE}"
    if "?" in url:
        return f"it must not hold a query (a ?); leave it out, and put a key into {KEY_VARIABLE}"
    if not name.isprintable():
        return f"it has white space, backslashes or invisible characters; the form is {_FORM}"
    if (objection := url_objection(url, _FORM)) is not None:
        return objection
    for endpoint in _ENDPOINTS:
        if urlsplit(url).path.rstrip("/").endswith((endpoint, endpoint + "/completions")):
            return f"it goes too far: leave out {endpoint} and what follows; the form is {_FORM}"
    return None
