"""Who may ask: by which names the server is called, and with which token."""

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass

SHORTEST = 16
"""Characters of a token; shorter ones can be guessed."""

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/@\s]+)(?::(\d{1,5}))?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Access:
    """``hosts``: the names, in lower case, by which the server may be called; ``anywhere``: any IP address as well,
    which no foreign page can take for its own.  ``token``: what a reader must know; None where everybody may read."""

    hosts: frozenset[str]
    anywhere: bool = False
    token: str | None = None

    def knows_host(self, header: str) -> bool:
        """Whether a ``Host`` header names this server."""
        name = host_name(header)
        return name is not None and (name in self.hosts or (self.anywhere and _is_address(name)))

    def knows_origin(self, header: str) -> bool:
        """Whether an ``Origin`` header is this server's own."""
        scheme, separator, host = header.partition("://")
        return bool(separator) and scheme in ("http", "https") and self.knows_host(host)

    def knows_token(self, given: str | None) -> bool:
        """Whether ``given`` is the token, or none is needed."""
        return self.token is None or same_token(given, self.token)

    @property
    def pass_word(self) -> str:
        """What a browser keeps instead of the token, which does not follow from it."""
        return hmac.new((self.token or "").encode(), b"a reader of the board", hashlib.sha256).hexdigest()

    def knows_pass(self, given: str) -> bool:
        """Whether a browser's cookie is of this token."""
        return self.token is not None and hmac.compare_digest(_digest(given), _digest(self.pass_word))


def access(host: str, names: Iterable[str] = (), token: str | None = None) -> Access:
    """The access to a server that listens on ``host``, is called by further ``names`` as well, and has a ``token``."""
    bound = host.lower().strip("[]")
    everywhere = bound in ("0.0.0.0", "::")
    own = {socket.gethostname().lower(), socket.getfqdn().lower()} if everywhere else set()
    return Access(frozenset({*_LOOPBACK, bound, *own, *(name.lower() for name in names)}), everywhere, token)


def same_token(given: str | None, token: str) -> bool:
    """Whether ``given`` is the ``token``, in a time that does not tell how much of it is right."""
    return given is not None and hmac.compare_digest(_digest(given), _digest(token))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on ``host``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(header: str) -> str | None:
    """The host in a ``Host`` header, in lower case, without port and brackets; None for what is no host."""
    parts = _HOST.fullmatch(header)
    return None if parts is None else parts[1].strip("[]").lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
