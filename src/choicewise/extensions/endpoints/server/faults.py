"""What can go wrong between us and a server, and what follows from it; how an answer's JSON is read.

- :class:`Passing` may heal: the request is repeated.  It says what becomes of it where it does not.
- :class:`Unanswerable` can't heal and is about this one request: its question stays without an answer.
- :class:`ServerFailed` can't heal and is about all requests: the run stops, with all that was observed.
"""

from __future__ import annotations

import json
import math
import re
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from choicewise.errors import ModelError
from choicewise.util.jsonio import is_deep

if TYPE_CHECKING:
    import httpx2

JSON = dict[str, Any]  # an object; its numbers are finite, and its texts can be encoded
_TRIES: Final = (
    5  # how often a request is made that fails, but for a busy server, which is waited for
)
RESUME: Final = "run the same command again to resume"
_SURROGATES = re.compile("[\ud800-\udfff]")
_KINDS = {
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


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
        tries: int | None = _TRIES,
    ) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status
        self.wait, self.busy, self.everywhere, self.tries = wait, busy, everywhere, tries

    def unhealed(self, tried: int) -> Unanswerable | ServerFailed:
        """What becomes of it after ``tried`` tries."""
        reason = f"{self.reason}, {tried} times" if tried > 1 else self.reason
        return (
            failed(f"{reason}; {RESUME}", self.status)
            if self.everywhere
            else Unanswerable(reason, self.status)
        )


class ServerFailed(ModelError):
    """The run stops here, all that was observed stays, and the same command resumes; ``status`` of HTTP if any."""

    status: int | None = None


class Unanswerable(Exception):
    """This one request can't be answered: ``reason``, and the HTTP ``status`` where there was one."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


Fault = Unanswerable | ServerFailed | Passing


def failed(reason: str, status: int | None = None) -> ServerFailed:
    """The failure of this ``reason`` and ``status``."""
    failure = ServerFailed(reason)
    failure.status = status
    return failure


def of_error(error: httpx2.HTTPError, seconds: float, proxied: bool) -> ServerFailed | Passing:
    """The fault of a transfer that ended with ``error``; ``seconds``: how long the server may be silent.

    ``proxied``: whether a proxy of the environment comes in between.  Nothing of the error's message is repeated: it
    may hold the address of a proxy with its password.
    """
    import httpx2  # of the extra [server], which dialects and reports are read without

    way = " (through the proxy that the environment names)" if proxied else ""
    match error:
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return Passing(
                f"the server can't be reached{way}: no connection in time",
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
            return Passing("the answer broke off, or is no HTTP")
    return Passing("the connection broke off")


def silent(seconds: float) -> Passing:
    """The fault of an answer that trickles for longer than ``seconds``."""
    return Passing(f"the answer was not complete after {duration(seconds)}", busy=True, tries=3)


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds from ``now`` (aware) that the header's ``value`` asks for, 0 at least; None where it asks for nothing.

    It is a number of seconds or an HTTP date; anything else asks for nothing.
    """
    value = (value or "").strip()
    if value.isascii() and value.replace(".", "", 1).isdigit():
        seconds = float(value)
        return seconds if math.isfinite(seconds) else None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds())


def duration(seconds: float) -> str:
    """``seconds`` in words."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"


class Unreadable(Exception):
    """The text of an answer is no object of JSON; ``deliberate`` where the server wrote it so, not the way to us."""

    def __init__(self, reason: str, deliberate: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.deliberate = reason, deliberate


def json_answer(body: bytes, finite: bool = True) -> JSON:
    r"""The object that ``body`` holds.

    Raises Unreadable for what is not UTF-8, truncated, no object, nested too deeply, has a name twice in one object, or
    has a number that is not finite (``NaN``, ``Infinity``, ``1e999``) where all must be ``finite``.  Lone surrogates
    (``"\ud800"``) become U+FFFD, as bytes do that are not UTF-8.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8") from None
    constant, decimal = (_constant, _finite) if finite else (None, None)
    try:
        answer = json.loads(
            text, parse_constant=constant, parse_float=decimal, object_pairs_hook=_object
        )
    except RecursionError:
        raise Unreadable("its JSON is nested too deeply", deliberate=True) from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number is too long"
        raise Unreadable(f"it is no JSON ({reason})" if text.strip() else "it is empty") from None
    if is_deep(answer):
        raise Unreadable("its JSON is nested too deeply", deliberate=True)
    if not isinstance(answer, dict):
        raise Unreadable(f"its JSON is no object but {_KINDS[type(answer)]}", deliberate=True)
    return _encodable(answer) if r"\ud" in text.lower() else answer


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
            return Passing(
                "the server ends the connection before TLS is agreed on", everywhere=True
            )
    return failed(
        f"TLS can't be agreed on ({error.reason}); does the server speak http://, not https://?"
    )


def _constant(name: str) -> None:
    raise Unreadable(f"its JSON has {name} in place of a number", deliberate=True)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Unreadable("its JSON has a number that is out of range", deliberate=True)
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
            return [_encodable(each) for each in value]
        case dict():
            return {_encodable(name): _encodable(each) for name, each in value.items()}
    return value
