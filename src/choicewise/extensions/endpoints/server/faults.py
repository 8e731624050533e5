"""Tell the faults of servers by what follows from them, and read the JSON of answers.

- :class:`Passing` may heal: the request is repeated.
- :class:`Unanswerable` can't heal and is about one request: its question stays unanswered.
- :class:`ServerFailed` can't heal and is about all requests: the run stops, and keeps its answers.
"""

from __future__ import annotations

import json
import math
import re
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from choicewise.errors import ModelError
from choicewise.util.jsonio import is_deep

if TYPE_CHECKING:
    import httpx2

JSON = dict[str, Any]
"""An object of JSON; its numbers are finite, and its texts can be encoded."""

# How often a request is made that fails; a busy server is waited for.
_TRIES = 5

RESUME = "run the same command again to resume"
_SURROGATES = re.compile("[\ud800-\udfff]")
_KINDS = {
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


class _RequestFailed(Exception):
    """A request has no answer, with the ``reason`` and the ``status`` of HTTP if any."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class Passing(_RequestFailed):
    """A fault that may heal, with its ``reason`` and the ``status`` of HTTP if any.

    ``wait``: seconds that the server asks for.  ``busy``: True if too much was asked at once.
    ``everywhere``: True if it is about the server, not the request, so that the run stops if it
    does not heal.  ``tries``: how often at most the request is made; None if only time bounds that.
    ``begun``: when the failed try began (monotonic seconds).
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
        tries: int | None = _TRIES,
    ) -> None:
        super().__init__(reason, status)
        self.wait = wait
        self.busy = busy
        self.everywhere = everywhere
        self.tries = tries

    def unhealed(self, tried: int) -> Unanswerable | ServerFailed:
        """Return what becomes of it after ``tried`` tries."""
        reason = self.reason
        if tried > 1:
            reason = f"{reason}, {tried} times"
        if self.everywhere:
            return failed(f"{reason}; {RESUME}", self.status)
        return Unanswerable(reason, self.status)


class ServerFailed(ModelError):
    """The server failed, so that the run stops; ``status`` of HTTP if any."""

    status: int | None = None


class Unanswerable(_RequestFailed):
    """A fault that can't heal and is about one request, with its ``reason`` and ``status``."""


Fault = Unanswerable | ServerFailed | Passing


def failed(reason: str, status: int | None = None) -> ServerFailed:
    """Return the failure with this ``reason`` and ``status``."""
    failure = ServerFailed(reason)
    failure.status = status
    return failure


def of_error(error: httpx2.HTTPError, seconds: float, proxied: bool) -> ServerFailed | Passing:
    """Return the fault of a transfer that ended with ``error``.

    ``seconds``: how long the server may be silent.  ``proxied``: True if a proxy of the environment
    comes in between.  The error's message, which may contain the address of a proxy with its
    password, is not repeated.
    """
    # It is of the extra [server], which dialects and reports do not need.
    import httpx2

    way = " (through the proxy of the environment)" if proxied else ""
    match error:
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return Passing(
                f"the server can't be reached{way}: the connection timed out",
                busy=True,
                everywhere=True,
            )
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
            return Passing("the answer broke off, or is not HTTP")
    return Passing("the connection broke off")


def retry_after(value: str | None, now: datetime) -> float | None:
    """Return the seconds from ``now`` (aware) that the header's ``value`` asks for, at least 0.

    It is a number of seconds or an HTTP date; None for anything else.
    """
    value = (value or "").strip()
    if value.isascii() and value.replace(".", "", 1).isdigit():
        seconds = float(value)
        return seconds if math.isfinite(seconds) else None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now).total_seconds())


def duration(seconds: float) -> str:
    """Spell ``seconds`` in words."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours"


class Unreadable(Exception):
    """The text of an answer is no object of JSON.

    ``deliberate``: True if the server wrote it so, and nothing on the way to us changed it.
    """

    def __init__(self, reason: str, deliberate: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.deliberate = deliberate


def json_answer(body: bytes, finite: bool = True) -> JSON:
    r"""Return the object in ``body``.

    Raises Unreadable for what is not UTF-8, truncated, no object, nested too deeply, has a name
    twice in one object, or, if all numbers must be ``finite``, has another one (``NaN``,
    ``Infinity``, ``1e999``).  Lone surrogates (``"\ud800"``) become U+FFFD, which bytes that are
    not UTF-8 become elsewhere.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8") from None
    constant = None
    decimal = None
    if finite:
        constant = _constant
        decimal = _finite
    try:
        answer = json.loads(
            text, parse_constant=constant, parse_float=decimal, object_pairs_hook=_object
        )
    except RecursionError:
        raise Unreadable("its JSON is nested too deeply", deliberate=True) from None
    except ValueError as error:
        reason = "it is not JSON (a number is too long)"
        if isinstance(error, json.JSONDecodeError):
            reason = f"it is not JSON ({error.msg})"
        if not text.strip():
            reason = "it is empty"
        raise Unreadable(reason) from None
    if is_deep(answer):
        raise Unreadable("its JSON is nested too deeply", deliberate=True)
    if not isinstance(answer, dict):
        raise Unreadable(f"its JSON is {_KINDS[type(answer)]}, not an object", deliberate=True)
    # Only an escape can spell a surrogate.
    if r"\ud" not in text.lower():
        return answer
    encodable: JSON = _encodable(answer)
    return encodable


def member(value: Any, *names: str) -> Any:
    """Return what nested objects have under ``names``; None if one is no object or lacks it."""
    for name in names:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def integer(value: Any, least: int = 0) -> int | None:
    """Return an integer ``value`` of 31 bits, from ``least`` on; None for others, also True."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value < 2**31 else None


def _tls(error: BaseException) -> ssl.SSLError | None:
    """Return the failure of TLS that caused ``error``, or None."""
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
                f"the server's certificate is not trusted ({error.verify_message}). "
                "Use the host name that it was issued for, or set SSL_CERT_FILE to the certificate "
                "of its authority"
            )
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return Passing(
                "the server closed the connection during the TLS handshake", everywhere=True
            )
    return failed(
        f"the TLS handshake failed ({error.reason}); does the server need http://, not https://?"
    )


def _constant(name: str) -> None:
    raise Unreadable(f"its JSON has {name} instead of a number", deliberate=True)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Unreadable("its JSON has a number out of range", deliberate=True)
    return number


def _object(pairs: list[tuple[str, Any]]) -> JSON:
    answer = dict(pairs)
    if len(answer) < len(pairs):
        raise Unreadable("its JSON has the same name twice in one object", deliberate=True)
    return answer


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return _SURROGATES.sub("\ufffd", value)
        case list():
            return [_encodable(entry) for entry in value]
        case dict():
            return {_encodable(name): _encodable(entry) for name, entry in value.items()}
    return value
