"""The one HTTP client (model servers AND boards): retries, waits, size limits.

- :class:`Passing` may heal: the request is made again.  It says what becomes of it where it does not.
- :class:`Unanswerable` can't heal and is about this one request: its question stays without an answer.
- :class:`ServerFailed` can't heal and is about all requests: the run stops, with all that was observed.

This is the one place that decides which of them it is.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from threading import Lock, local
from typing import Any, Final, TypeVar
from weakref import WeakSet

import httpx2
import stamina
from stamina.instrumentation import RetryDetails, RetryHook, get_on_retry_hooks, set_on_retry_hooks

from choicewise.errors import ModelError
from choicewise.models.server.address import HIDDEN, KEY_VARIABLE, HidingLog, Key, ServerAddress, quoted

T = TypeVar("T")

MOST_BYTES: Final = 32 * 2**20
"""Bytes of an answer, decompressed, beyond which it is refused."""

MOST_AT_ONCE: Final = 64
"""Connections to a server."""


def _never() -> bool:
    return False


class Client:
    """Asks the server at ``address``; may be used by several threads.

    ``key`` is sent as ``Authorization: Bearer`` and shown nowhere.  ``timeout``: seconds that the server may be silent,
    half of those that one answer may take; ``connect``: seconds to a connection; ``patience``: seconds after which no
    request is made again.  ``most_bytes`` of an answer are read.  ``say`` gets a line now and then while the server is
    waited for, from any thread.

    Redirects are not followed.  A server on this machine is reached directly; to others the proxies of the environment
    apply (``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``), as does ``SSL_CERT_FILE``.
    """

    def __init__(
        self,
        address: ServerAddress,
        key: str | None = None,
        *,
        timeout: float = 300.0,
        connect: float = 10.0,
        patience: float = 600.0,
        most_bytes: int = MOST_BYTES,
        transport: httpx2.BaseTransport | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.address = address
        self._key = Key(key or "")
        del key  # so that no traceback shows it among the variables of this call
        self._key.check()
        self._log = HidingLog(self._key)
        self.timeout, self._patience = timeout, patience
        self._reader = AnswerReader(self._key, 2 * timeout, most_bytes)
        self._proxied = address.is_proxied
        self.usage = Usage()
        self._waits = Waits(say)
        self.named: str | None = None
        """What the first answer of a model called it; None where no answer named any so far."""
        self._sockets, self._closed = OpenSockets(), False
        self._answered = dict[str, bytes]()
        self.concurrency = ConcurrencyLimit(MOST_AT_ONCE, slow=timeout / 10)
        self.unanswered = 0
        """Requests that had no answer since the last that had one; counted by those who make many at once."""
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "choicewise"}
        try:
            self._http = httpx2.Client(
                headers=headers | ({"Authorization": self._key.header} if self._key else {}),
                timeout=httpx2.Timeout(timeout, connect=connect),
                limits=httpx2.Limits(max_connections=MOST_AT_ONCE, max_keepalive_connections=MOST_AT_ONCE),
                trust_env=not address.is_loopback,
                follow_redirects=False,
                transport=transport,
            )
        except (httpx2.InvalidURL, ValueError, ImportError, OSError):
            objection = (
                "a proxy or certificate that the environment names can't be used; check HTTP_PROXY, HTTPS_PROXY,"
            )
        else:
            return
        raise ModelError(f"{objection} ALL_PROXY and SSL_CERT_FILE")

    def __repr__(self) -> str:
        return f"Client({str(self.address)!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def close(self) -> None:
        """End every connection."""
        self._closed = True
        self.abandon()
        self._http.close()
        self._log.end()

    def abandon(self) -> None:
        """End what is under way, in whatever thread; the client can be used again."""
        self._sockets.end()

    def get(self, path: str, *, model: str | None = None) -> JSON:
        """The answer to a GET of ``path`` (:meth:`ServerAddress.at`); see :meth:`post`."""
        return self.ask("GET", path, None, model=model)

    def post(self, path: str, body: JSON, *, model: str | None = None) -> JSON:
        """The answer to ``body``, sent to ``path`` (:meth:`ServerAddress.at`); the request may be made several times.

        ``model``: the name that the answer must give, where it gives one and no answer before gave another: a service
        may call a model by a dated name, but always by the same.  Raises Unanswerable where this request can't be
        answered, ServerFailed where none can.
        """
        return self.ask("POST", path, body, model=model)

    def ask(
        self,
        method: str,
        path: str,
        body: JSON | None,
        *,
        model: str | None = None,
        on_fault: Callable[[Passing], None] = lambda fault: None,
        stopped: Callable[[], bool] = _never,
    ) -> JSON:
        """The same of any method.

        ``on_fault`` is called with every fault that may heal; no try begins once ``stopped``.
        """
        content = None if body is None else _encoded(body)

        def ended() -> bool:
            return self._closed or stopped()

        def heard(fault: Passing) -> None:
            self._waits.hear(fault)
            on_fault(fault)

        try:
            answer = healed(lambda: self._once(method, path, content, ended), self._patience, heard, ended)
        except ServerFailed as error:
            failure = failed(f"{self.address.url}: {error.message}", error.status)
        else:
            expected = model if self.named is None else self.named
            named = self._key.hidden(str(answer.get("model") or "")) if "choices" in answer else ""
            first = expected is None and HIDDEN not in named  # a key is no model's name
            if named in ("", expected) or first:
                if content is not None:
                    self.named = named or self.named
                    self._answered[path], self.unanswered = content, 0
                    self.usage.add(answer)
                return answer
            failure = self._of_other(named, expected or self.address.model or "the one asked for")
            del answer  # a traceback may show variables, and an answer what it likes
        raise failure

    def read(self, reader: Callable[[JSON], T], answer: JSON) -> T:
        """What ``reader`` makes of an ``answer``; where it raises Unanswerable, the reason is without the key."""
        try:
            return reader(answer)
        except Unanswerable as error:
            unanswerable = Unanswerable(self.hidden(error.reason), error.status)
        del answer  # a traceback may show variables
        raise unanswerable

    def hidden(self, text: str) -> str:
        """``text`` that the server says, without the key."""
        return self._key.hidden(text)

    def has_answered(self, path: str) -> bool:
        """Whether a request to ``path`` was ever answered."""
        return path in self._answered

    def again(self, path: str) -> str | None:
        """Why the request to ``path`` that was answered last has no answer now; None where it has one.

        This shows whether the server fails, or some requests do.
        """
        if (content := self._answered.get(path)) is None:
            return "and none was ever answered"
        try:
            healed(lambda: self._once("POST", path, content), self._patience, self._waits.hear)
        except (Unanswerable, ServerFailed) as error:
            return f"and one that was answered before has none now ({error})"
        self.unanswered = 0
        return None

    def _once(self, method: str, path: str, content: bytes | None, stopped: Callable[[], bool] = _never) -> JSON:
        """One try.  Faults are raised where no other exception is handled, so that none hangs on them."""
        if self._closed:
            raise failed("the connection to the server is closed")
        begun = time.monotonic()
        headers = {} if content is None else {"Content-Type": "application/json"}
        fault: Exception
        try:
            with self._http.stream(
                method,
                self.address.at(path),
                content=content,
                headers=headers,
                extensions={"trace": partial(self._sockets.trace, stopped=stopped)},
            ) as response:
                if response.status_code == 200:
                    answer = self._reader.read(response, begun)
                    self._waits.answered()
                    return answer
                fault = self._reader.refusal(response, begun)
        except httpx2.HTTPError as error:
            fault = of_error(error, self.timeout, self._proxied)
        except (httpx2.InvalidURL, httpx2.StreamError) as error:
            fault = failed(f"the request can't be sent ({type(error).__name__})")
        except (Passing, Unanswerable, ServerFailed) as error:
            fault = error
        if isinstance(fault, Passing):
            fault.begun = begun
        raise fault.with_traceback(None)

    def _of_other(self, named: str, model: str) -> ServerFailed:
        other, own = quoted(named, self._key), quoted(model, self._key)
        return failed(f"{self.address.url}: the answer is of model {other}, not {own}; serve {own} again, and {AGAIN}")


def _encoded(body: JSON) -> bytes:
    r"""UTF-8; a lone surrogate, which no text that is sent has, stays an escape as ``"\ud800"``."""
    return json.dumps(body, allow_nan=False, separators=(",", ":")).encode("ascii")


_QUOTED_BYTES: Final = 2000
"""Bytes of an error that are read, for a message to quote."""


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """Reads at most ``most_bytes``, decompressed, for at most ``seconds``; the ``key`` is in no message."""

    key: Key
    seconds: float
    most_bytes: int

    def read(self, response: httpx2.Response, begun: float) -> JSON:
        """The answer of status 200 to a request that ``begun`` then (monotonic); raises its fault where it is none."""
        body = bytearray()
        announced = response.headers.get("Content-Length", "")
        if announced.isdigit() and int(announced[:20]) > self.most_bytes:
            raise self._too_large()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > self.most_bytes:
                raise self._too_large()
            if time.monotonic() - begun > self.seconds:
                raise silent(self.seconds)
        try:
            answer = json_answer(bytes(body))
        except Unreadable as error:
            fault = self._unreadable(error, bytes(body[:_QUOTED_BYTES]))
        else:
            if answer.get("error") is None or "choices" in answer:
                return answer
            fault = self._named(answer["error"])
        raise fault

    def refusal(self, response: httpx2.Response, begun: float) -> Fault:
        """The fault of any status but 200; a few bytes of what the server says are read."""
        body = bytearray()
        with contextlib.suppress(httpx2.HTTPError):  # what the server says is a courtesy
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _QUOTED_BYTES or time.monotonic() - begun > self.seconds:
                    break
        wait = retry_after(response.headers.get("Retry-After"), datetime.now(UTC))
        said = bytes(body[:_QUOTED_BYTES]).decode(errors="replace")
        if response.has_redirect_location:
            said = _host(response.headers["Location"])
        return of_status(response.status_code, quoted(_message(said), self.key), wait, bool(self.key))

    def _named(self, error: Any) -> Fault:
        """The fault that an answer of status 200 names in place of an answer."""
        code = error.get("code") if isinstance(error, dict) else None
        said = quoted(_message(json.dumps({"error": error}, ensure_ascii=False)), self.key)
        if isinstance(code, int) and 400 <= code < 600:
            return of_status(code, said, None, bool(self.key))
        return Passing(f"the server answers with an error: {said}")

    def _unreadable(self, error: Unreadable, body: bytes) -> Fault:
        said = quoted(body.decode(errors="replace"), self.key)
        reason = f"the answer can't be read: {error.reason}: {said}"
        return Unanswerable(reason, 200) if error.deliberate else Passing(reason, 200)

    def _too_large(self) -> Unanswerable:
        return Unanswerable(f"the answer has more than {self.most_bytes / 2**20:.3g} MiB", 200)


def _host(location: str) -> str:
    """The host that a redirect names."""
    try:
        return httpx2.URL(location).host or "another path"
    except httpx2.InvalidURL:
        return "nowhere"


def _message(said: str) -> str:
    """What an error's body says: its ``message`` where it is of OpenAI's form, else all of it."""
    try:
        error = json_answer(said.encode(errors="replace"))
    except Unreadable:
        return said
    error = error.get("error", error)
    if isinstance(error, dict):
        return next((str(error[name]) for name in ("message", "detail") if error.get(name)), said)
    return str(error)


_ours = local()


def healed(
    request: Callable[[], T],
    patience: float,
    on_fault: Callable[[Passing], None] = lambda fault: None,
    stopped: Callable[[], bool] = lambda: False,
) -> T:
    """What ``request`` returns, made again with growing, jittered pauses where it raises :class:`Passing`.

    Where the server asks to wait (Retry-After), that long is waited.  No try begins later than ``patience`` seconds
    after the first, or once ``stopped()``.  ``on_fault`` is called with every fault.  Raises what becomes of the last.
    """
    _silence()
    begun, tried = time.monotonic(), 0

    def again(error: Exception) -> bool | float:
        if not isinstance(error, Passing) or stopped() or (error.tries is not None and tried >= error.tries):
            return False
        if time.monotonic() - begun + (error.wait or 0) > patience:
            return False
        return error.wait + random.random() if error.wait else True  # not all at the same moment

    _ours.retrying = True
    try:
        for attempt in stamina.retry_context(
            on=again, attempts=None, timeout=None, wait_initial=0.5, wait_max=20.0, wait_jitter=1.0
        ):
            with attempt:
                tried += 1
                try:
                    return request()
                except Passing as fault:
                    on_fault(fault)
                    raise
    except Passing as fault:
        unhealed = fault.unhealed(tried)
    finally:
        _ours.retrying = False
    raise unhealed


def _silence() -> None:
    """Call the hooks of stamina, which write to the log, for the retries of other programs alone."""
    hooks = get_on_retry_hooks()
    if not all(isinstance(hook, _Others) for hook in hooks):
        set_on_retry_hooks(hook if isinstance(hook, _Others) else _Others(hook) for hook in hooks)


class _Others:
    """A hook that is called for retries that are not ours."""

    def __init__(self, hook: RetryHook) -> None:
        self._hook = hook

    def __call__(self, details: RetryDetails) -> AbstractContextManager[None] | None:
        return None if getattr(_ours, "retrying", False) else self._hook(details)


SHORT: Final = 5.0
"""Seconds without an answer of which nothing is said."""

EVERY: Final = 30.0
"""Seconds between two lines, at least."""


class Waits:
    """Hears of answers and of faults that may heal, from any thread; ``say`` gets a line of these now and then.

    Nothing is said while other requests are answered.  ``clock``: seconds that only grow.  ``named``: who is waited
    for, and ``advice``: what Ctrl-C does meanwhile.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        named: str = "the server",
        advice: str = "Ctrl-C keeps what was observed",
    ) -> None:
        self._say, self._clock, self._named, self._advice = say, clock, named, advice
        self._since: float | None = None
        self._said = float("-inf")
        self._lock = Lock()

    def answered(self) -> None:
        """The server answered."""
        with self._lock:
            self._since = None

    def hear(self, fault: Passing) -> None:
        """A request is about to be made again after ``fault``."""
        with self._lock:
            now = self._clock()
            if self._since is None:
                self._since = min(fault.begun or now, now)
            silent = now - self._since
            if silent + (fault.wait or 0.0) < SHORT or now - self._said < EVERY:
                return
            self._said = now
            parts = [f"no answer for {duration(silent)}"] if silent >= SHORT else []
            parts += [f"it asks to wait {duration(fault.wait)}"] if fault.wait else []
            self._say(f"waiting for {self._named}: {fault.reason} ({', '.join(parts)}); {self._advice}")


class OpenSockets:
    """Learns of every connection through the extension ``trace`` of httpx2."""

    def __init__(self) -> None:
        self._lock, self._open = Lock(), WeakSet[socket.socket]()

    def trace(self, event: str, info: Mapping[str, Any], stopped: Callable[[], bool]) -> None:
        """Keep the socket of a connection that was made; raises Passing where it was ``stopped`` in the meantime."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            stream = info["return_value"]
            with self._lock:
                self._open.add(stream.get_extra_info("socket"))
            if stopped():  # before it was kept, so that nobody else has ended it
                stream.close()
                raise Passing("nobody waits for an answer any more")

    def end(self) -> None:
        """End all of them: who waits for one gets an error at once, and the server sees that nobody waits.

        Closing alone would wake nobody.
        """
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()


class Usage:
    """``requests``: answers so far.  Counts from any thread.

    ``computed``: tokens of their prompts without those that the server says it had in its cache, so at most what it
    computed; None where an answer did not say how many tokens its prompt has.
    """

    def __init__(self) -> None:
        self.requests = 0
        self._sent = self._cached = self._silent = 0
        self._lock = Lock()

    @property
    def computed(self) -> int | None:
        """Tokens, as the class says."""
        return None if self._silent else self._sent - self._cached

    def add(self, answer: JSON) -> None:
        """Count an answer of a model: OpenAI's ``usage``, or ``meta_info`` of SGLang's own route."""
        if not {"choices", "meta_info"} & answer.keys():
            return
        said = answer.get("usage") or answer.get("meta_info")
        details = said.get("prompt_tokens_details") if isinstance(said, Mapping) else None
        sent, cached = _count(said, "prompt_tokens"), _count(details, "cached_tokens")
        if cached is None:
            cached = _count(said, "cached_tokens")
        with self._lock:
            self.requests += 1
            self._silent += sent is None
            self._sent += sent or 0
            self._cached += min(cached or 0, sent or 0)


def _count(said: object, name: str) -> int | None:
    value = said.get(name) if isinstance(said, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


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


JSON = dict[str, Any]
"""An object of JSON.  Its numbers are finite, and its texts can be encoded."""

_DEEPEST = 100
"""Levels of lists and objects within one another; answers have fewer than ten."""

_SURROGATES = re.compile("[\ud800-\udfff]")


class Unreadable(Exception):
    """The text of an answer is no object of JSON; ``deliberate`` where the server wrote it so, not the way to us."""

    def __init__(self, reason: str, deliberate: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.deliberate = reason, deliberate


def json_answer(body: bytes) -> JSON:
    r"""The object that ``body`` holds.

    Raises Unreadable for what is not UTF-8, truncated, no object, nested too deeply, has a name twice in one object, or
    has a number that is not finite (``NaN``, ``Infinity``, ``1e999``).  Lone surrogates (``"\ud800"``) become U+FFFD,
    as bytes do that are not UTF-8.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8") from None
    try:
        answer = json.loads(text, parse_constant=_constant, parse_float=_finite, object_pairs_hook=_object)
    except RecursionError:
        raise Unreadable("its JSON is nested too deeply", deliberate=True) from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number is too long"
        raise Unreadable(f"it is no JSON ({reason})" if text.strip() else "it is empty") from None
    if _is_deep(answer):
        raise Unreadable("its JSON is nested too deeply", deliberate=True)
    if not isinstance(answer, dict):
        raise Unreadable(f"its JSON is no object but {_KINDS[type(answer)]}", deliberate=True)
    return _encodable(answer) if r"\ud" in text.lower() else answer


_KINDS = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false", type(None): "null"}


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


def _is_deep(answer: Any) -> bool:
    """Whether lists and objects are nested in more than ``_DEEPEST`` levels, which recursion may not get through."""
    level = [answer]
    for _ in range(_DEEPEST + 1):
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [one for each in inside for one in each if isinstance(one, dict | list)]
    return bool(level)


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return _SURROGATES.sub("\ufffd", value)
        case list():
            return [_encodable(each) for each in value]
        case dict():
            return {_encodable(name): _encodable(each) for name, each in value.items()}
    return value


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


FIRST: Final = 2
ROUND: Final = 8
"""The fewest answers after which one more request is tried at once: each trial may cost a refusal."""


class ConcurrencyLimit:
    """``limit`` doubles in every round of as many answers (slow start) until the server is first overloaded.

    From then on it grows by one in every round, of ``ROUND`` answers at least.  Each overload halves it, but at most
    once for the requests that were under way together: those begun before the last halving say nothing new.  It is
    never below 1 and above ``most``.

    It does not grow in a round in which an answer took longer than ``slow`` seconds: a server that computes one after
    another would only let more wait, in the end for longer than is waited for.
    Times are of any clock (seconds).
    """

    def __init__(self, most: int, slow: float, first: int = FIRST) -> None:
        self.most, self.slow = most, slow
        self.limit = min(first, most)
        self.resume = float("-inf")
        """No request begins before that time."""
        self._starting, self._answered, self._halved = True, 0, float("-inf")

    def answered(self, took: float, at_once: int) -> None:
        """A request was answered, which ``took`` so many seconds and was one of so many under way ``at_once``.

        Where those were fewer than the limit, they say nothing of it.
        """
        if at_once < self.limit:
            return
        self._answered += 1
        if took > self.slow:
            self._starting, self._answered = False, 0
        if self._answered >= (self.limit if self._starting else max(self.limit, ROUND)):
            self._answered = 0
            self.limit = min(self.most, self.limit * 2 if self._starting else self.limit + 1)

    def overloaded(self, begun: float, now: float, wait: float | None = None) -> None:
        """A request that began at ``begun`` was refused as too much, with the advice to ``wait``, or was not answered
        in time.
        """
        if wait is not None:
            self.resume = max(self.resume, now + wait)
        if begun >= self._halved:
            self.limit = max(1, self.limit // 2)
            self._starting, self._answered, self._halved = False, 0, now
