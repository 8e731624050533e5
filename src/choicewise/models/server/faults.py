"""Everything that can come of a request in place of an answer, and what follows from it.

- :class:`Passing` may heal: the request is made again.  It says what becomes of it where it does not.
- :class:`Unanswerable` can't heal and is about this one request: its question stays without an answer.
- :class:`ServerFailed` can't heal and is about all requests: the run stops, with all that was observed.

This is the one place that decides which of them it is.
"""

from __future__ import annotations

import ssl
from typing import Final

import httpx2

from choicewise.errors import ModelError
from choicewise.models.server.address import KEY_VARIABLE

LONGEST_WAIT: Final = 300.0
"""Seconds that a server may ask to wait before the run stops rather than to wait."""

TRIES: Final = 5
"""How often a request is made that fails, but for a busy server, which is waited for."""

AGAIN: Final = "run the same line again to continue"

_REFUSED: Final = {400, 406, 409, 411, 412, 413, 414, 415, 416, 417, 422, 431, 451, 501}
"""Statuses that are about the request, whose like may be answered."""

_BUSY: Final = {408, 425, 429, 503, 529}


class Unanswerable(Exception):
    """This one request can't be answered: ``reason``, and the HTTP ``status`` where there was one."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


class ServerFailed(ModelError):
    """The run stops here, all that was observed is kept, and the same line continues; ``status`` of HTTP if any."""

    status: int | None = None


class Passing(Exception):
    """What may heal: ``reason``, and the ``status`` where there was one.

    ``wait``: seconds that the server asks for.  ``busy``: too much was asked at once.  ``everywhere``: it is about the
    server, not this request, so that the run stops where it does not heal.  ``tries``: how often at most the request
    is made; None where only time bounds that.  ``begun``: when the try began that ended so (monotonic seconds).
    """

    begun = 0.0

    def __init__(
        self,
        reason: str,
        status: int | None = None,
        *,
        wait: float | None = None,
        busy: bool = False,
        everywhere: bool = False,
        tries: int | None = TRIES,
    ) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status
        self.wait, self.busy, self.everywhere, self.tries = wait, busy, everywhere, tries

    def unhealed(self, tried: int) -> Unanswerable | ServerFailed:
        """What becomes of it after ``tried`` tries."""
        reason = f"{self.reason}, {tried} times" if tried > 1 else self.reason
        return failed(f"{reason}; {AGAIN}", self.status) if self.everywhere else Unanswerable(reason, self.status)


Fault = Unanswerable | ServerFailed | Passing


def failed(reason: str, status: int | None = None) -> ServerFailed:
    """The failure of this ``reason`` and ``status``."""
    failure = ServerFailed(reason)
    failure.status = status
    return failure


def of_status(status: int, said: str, wait: float | None, has_key: bool) -> Fault:
    """The fault of an answer with a ``status`` other than 200; ``said``: its body, as a message quotes it.

    ``wait``: what Retry-After asks for (seconds).  ``has_key``: whether a key was sent.
    """
    answer = f"status {status}: {said}"
    if status in (401, 403, 407):
        advice = "is it another server's?" if has_key else f"set {KEY_VARIABLE}"
        return failed(
            f"the server refuses {'the key' if has_key else 'requests without a key'}, {answer}; {advice}", status
        )
    if 300 <= status < 400:
        return failed(
            f"the server redirects elsewhere ({answer}), which is not followed; name that address instead", status
        )
    if (status in _BUSY or status >= 500) and wait is not None and wait > LONGEST_WAIT:
        return failed(f"the server asks to wait {duration(wait)} ({answer}); {AGAIN} then", status)
    if status in _BUSY:
        return Passing(f"the server is busy, {answer}", status, wait=wait, busy=True, everywhere=True, tries=None)
    if status in _REFUSED:
        return Unanswerable(f"the server refuses the request, {answer}", status)
    if 500 <= status < 600:
        return Passing(f"the server fails, {answer}", status, wait=wait)
    if status == 404:
        return failed(f"the server has no such model or route, {answer}; check the address and the name", status)
    return failed(f"the server does not answer as such servers do, {answer}; check the address", status)


def of_error(error: httpx2.HTTPError, seconds: float, proxied: bool) -> ServerFailed | Passing:
    """The fault of a transfer that ended with ``error``; ``seconds``: how long the server may be silent.

    ``proxied``: whether a proxy of the environment comes in between.

    Nothing of its message is repeated: it may hold the address of a proxy with its password.
    """
    way = " (through the proxy that the environment names)" if proxied else ""
    match error:
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return Passing(f"the server can't be reached{way}: no connection in time", busy=True, everywhere=True)
        case httpx2.TimeoutException():
            return Passing(f"the server was silent for {duration(seconds)}", busy=True, tries=3)
        case httpx2.ProxyError():
            return Passing(f"the server can't be reached{way}: the proxy refuses", everywhere=True)
        case httpx2.ConnectError() if (cause := _tls(error)) is not None:
            return _of_tls(cause)
        case httpx2.ConnectError():
            advice = "is it running, and are host and port right?"
            return Passing(f"the server can't be reached{way} ({advice})", everywhere=True)
        case httpx2.DecodingError():
            return Passing("the answer can't be decompressed")
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol() | httpx2.TooManyRedirects():
            return failed(f"the request can't be sent ({type(error).__name__})")
        case httpx2.RemoteProtocolError():
            return Passing("the answer broke off, or is no HTTP")
    return Passing("the connection broke off")


def silent(seconds: float) -> Passing:
    """The fault of an answer that trickles for longer than ``seconds``."""
    return Passing(f"the answer was not complete after {duration(seconds)}", busy=True, tries=3)


def _tls(error: BaseException) -> ssl.SSLError | None:
    """The failure of TLS that ``error`` came of, if any."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _of_tls(error: ssl.SSLError) -> ServerFailed | Passing:
    match error:
        case ssl.SSLCertVerificationError():
            return failed(
                f"the server's certificate is not trusted ({error.verify_message}); name the host that it is for, or"
                " set SSL_CERT_FILE to the certificate of its authority"
            )
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return Passing("the server ends the connection before TLS is agreed on", everywhere=True)
    return failed(f"TLS can't be agreed on ({error.reason}); does the server speak http://, not https://?")


def duration(seconds: float) -> str:
    """``seconds`` in words."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
