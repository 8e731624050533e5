"""Send requests over HTTP on one event loop in the background, with retries, waits and limits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from datetime import UTC, datetime
from functools import cache, partial
from threading import Thread
from types import MappingProxyType
from typing import Any, TypeVar

import httpx2
import stamina

from choicewise.errors import ModelError
from choicewise.extensions.endpoints.server.address import (
    HIDDEN,
    KEY_VARIABLE,
    HidingLog,
    Key,
    ServerAddress,
    quoted,
)
from choicewise.extensions.endpoints.server.faults import (
    JSON,
    RESUME,
    Fault,
    Passing,
    ServerFailed,
    Unanswerable,
    Unreadable,
    duration,
    failed,
    integer,
    json_answer,
    member,
    of_error,
    retry_after,
)

_T = TypeVar("_T")

# Bytes of an answer, decompressed, beyond which it is refused.
_MOST_BYTES = 32 * 2**20

MOST_AT_ONCE = 64
"""Connections to a server."""

# Bytes of an error that are read, for a message to quote.
_QUOTED_BYTES = 2000

# Seconds that a server may ask to wait; beyond that the run stops.
_LONGEST_WAIT = 300.0

_QUOTAS = {
    "insufficient_quota",
    "quota_exceeded",
    "billing_hard_limit_reached",
    "3036",
    "4006",
}
"""Codes of errors that no waiting heals within a run: OpenAI's, and Cloudflare's daily ones."""

# Statuses that are about the request alone.
_REFUSED = {400, 406, 409, 411, 412, 413, 414, 415, 416, 417, 422, 431, 451, 501}

# Statuses of a server that is to be waited for.
_BUSY = {408, 425, 429, 503, 529}

# Seconds in which nothing is heard, after which a line says so.
_QUIET = 10.0

# Seconds without an answer that no line is worth.
_SHORT = 5.0

# The least seconds between two lines.
_EVERY = 30.0

# Requests at once to begin with.
_FIRST = 2

# The fewest answers before one more request is tried at once: each trial may cost a refusal.
_ROUND = 8

# Seconds in which connections end, at most.
_CLOSING = 5.0

_CLOSED = "the connection to the server is closed"

Reader = Callable[[bytes, Mapping[str, str]], JSON]
"""Reads the body and headers of an answer of status 200; raises a :data:`Fault` if it can't."""


class Client:
    """Ask the server at ``address``, from one or several threads.

    ``key`` is sent as ``Authorization: Bearer`` and shown nowhere.  ``timeout``: seconds that the
    server may be silent, half of those that one answer may take; ``connect``: seconds to a
    connection; ``patience``: seconds after which no request is repeated.  ``most_bytes`` of an
    answer are read.  ``say`` gets a line now and then while the server is waited for, from any
    thread.  ``meanings``: functions from a quoted message to the fault of a status, for statuses
    that have another meaning at such servers.

    Redirects are not followed.  A server on this machine is reached directly; to others the proxies
    of the environment apply (``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``), and
    ``SSL_CERT_FILE``.
    """

    def __init__(
        self,
        address: ServerAddress,
        key: str | None = None,
        *,
        timeout: float = 300.0,
        connect: float = 10.0,
        patience: float = 600.0,
        most_bytes: int = _MOST_BYTES,
        transport: httpx2.AsyncBaseTransport | None = None,
        say: Callable[[str], None] = lambda line: None,
        meanings: Mapping[int, Callable[[str], Fault]] = MappingProxyType({}),
    ) -> None:
        self.address = address
        self._meanings = meanings
        self._key = Key(key or "")
        # No traceback shows it then among the variables of this call.
        del key
        self._key.check()
        self._log = HidingLog(self._key)
        self.timeout = timeout
        self._patience = patience
        self._most_seconds = 2 * timeout
        self._most_bytes = most_bytes
        self._proxied = address.is_proxied
        self.requests = 0
        """Answers of models so far."""
        # Tokens of prompts, tokens of them in a cache, and answers that do not count them.
        self._sent = 0
        self._cached = 0
        self._silent = 0
        self._waits = Waits(say)
        self.named: str | None = None
        """The model's name in the first answer that named any; None so far."""
        self._loop = _event_loop()
        self._closed = False
        self._under_way = set[Future[Any]]()
        self._answered = dict[str, tuple[bytes, Reader | None]]()
        self.concurrency = ConcurrencyLimit(MOST_AT_ONCE, slow=timeout / 10)
        self.unanswered = 0
        """Requests without an answer since the last answer; counted by callers that send many."""
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "User-Agent": "choicewise",
        }
        if self._key:
            headers["Authorization"] = self._key.header
        try:
            self._http = httpx2.AsyncClient(
                headers=headers,
                timeout=httpx2.Timeout(timeout, connect=connect),
                limits=httpx2.Limits(
                    max_connections=MOST_AT_ONCE, max_keepalive_connections=MOST_AT_ONCE
                ),
                trust_env=not address.is_loopback,
                follow_redirects=False,
                transport=transport,
            )
            return
        except (httpx2.InvalidURL, ValueError, ImportError, OSError):
            # Its message may contain a password, so that nothing may hang on it.
            pass
        raise ModelError(
            "a proxy or certificate of the environment can't be used; check HTTP_PROXY, "
            "HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
        )

    def __repr__(self) -> str:
        return f"Client({str(self.address)!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def close(self) -> None:
        """End every connection, and with ServerFailed every request under way."""
        self._closed = True
        for future in list(self._under_way):
            future.cancel()
        closing = asyncio.run_coroutine_threadsafe(self._http.aclose(), self._loop)
        try:
            # The garbage collector may call this in the thread of the loop.
            asyncio.get_running_loop()
        except RuntimeError:
            with contextlib.suppress(TimeoutError):
                closing.result(_CLOSING)
        self._log.end()

    def get(self, path: str) -> JSON:
        """Return the answer to a GET of ``path`` (:meth:`ServerAddress.at`); see :meth:`post`."""
        return self._result(self._started(self._asked("GET", path)))

    def post(
        self,
        path: str,
        body: JSON | bytes,
        *,
        model: str | None = None,
        reader: Reader | None = None,
    ) -> JSON:
        """Return the answer to ``body``, sent to ``path`` (:meth:`ServerAddress.at`).

        The request may be made several times.  Bytes are sent as they are.  ``reader``: reads the
        answer, if that is no object of JSON as OpenAI's.

        ``model``: the name that the answer must give, if it gives one and no answer before gave
        another: a service may call a model by a dated name, but always by the same.  Raises
        Unanswerable if this request can't be answered, ServerFailed if none can.
        """
        return self._result(self.begin(path, body, reader, model=model))

    def begin(
        self,
        path: str,
        body: JSON | bytes,
        reader: Reader | None = None,
        *,
        model: str | None = None,
        on_fault: Callable[[Passing], None] = lambda fault: None,
    ) -> Future[JSON]:
        """Begin a request that ends as :meth:`post` does; cancelling it ends it at the server.

        ``on_fault`` is called with every fault that may heal, in the thread of the event loop.
        """
        content = body
        if not isinstance(content, bytes):
            # UTF-8; a lone surrogate, which no text that is sent has, stays an escape.
            content = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
        return self._started(self._asked("POST", path, content, reader, model, on_fault))

    async def _asked(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        reader: Reader | None = None,
        model: str | None = None,
        on_fault: Callable[[Passing], None] = lambda fault: None,
    ) -> JSON:
        def hear(fault: Passing) -> None:
            self._waits.hear(fault)
            on_fault(fault)

        try:
            request = partial(self._once, method, path, content, reader)
            answer = await healed(request, self._patience, hear)
        except ServerFailed as error:
            failure = failed(f"{self.address.url}: {error.message}", error.status)
        else:
            expected = model if self.named is None else self.named
            named = ""
            if "choices" in answer:
                named = self._key.hidden(str(answer.get("model") or ""))
            # A key is no model's name.
            is_first = expected is None and HIDDEN not in named
            if named in ("", expected) or is_first:
                if content is not None:
                    self.named = named or self.named
                    self._answered[path] = (content, reader)
                    self.unanswered = 0
                    self._count(answer)
                return answer
            wanted = quoted(expected or self.address.model or "the requested one", self._key)
            failure = failed(
                f"{self.address.url}: the answer came from model {quoted(named, self._key)}, not "
                f"{wanted}. Serve {wanted} again, then {RESUME}"
            )
            # A traceback may show variables, and an answer contains what it likes.
            del answer
        raise failure

    def _started(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def _result(self, future: Future[_T]) -> _T:
        """Return the result; end the request if this thread is interrupted."""
        try:
            return future.result()
        except CancelledError:
            failure = failed(_CLOSED)
        finally:
            future.cancel()
        raise failure

    def read(self, reader: Callable[[JSON], _T], answer: JSON) -> _T:
        """Read an ``answer``; hide the key in the reason of an Unanswerable."""
        try:
            return reader(answer)
        except Unanswerable as error:
            unanswerable = Unanswerable(self.hidden(error.reason), error.status)
        # A traceback may show variables.
        del answer
        raise unanswerable

    def hidden(self, text: str) -> str:
        """Return ``text`` of the server without the key."""
        return self._key.hidden(text)

    def has_answered(self, path: str) -> bool:
        """Check that a request to ``path`` was ever answered."""
        return path in self._answered

    def objection(self, path: str) -> str | None:
        """Return why the last request to ``path`` with an answer has none now, or None.

        So a failing server is told from requests that fail.
        """
        if path not in self._answered:
            return "and none ever succeeded"
        content, reader = self._answered[path]
        request = partial(self._once, "POST", path, content, reader)
        try:
            self._result(self._started(healed(request, self._patience, self._waits.hear)))
        except (Unanswerable, ServerFailed) as error:
            return f"and one that succeeded before fails now ({error})"
        self.unanswered = 0
        return None

    @property
    def computed(self) -> int | None:
        """Count the tokens of prompts that the server did not have in its cache.

        It computed no more.  None if an answer did not count the tokens of its prompt.
        """
        return None if self._silent else self._sent - self._cached

    def _count(self, answer: JSON) -> None:
        """Count an answer of a model: OpenAI's ``usage``, or ``meta_info`` of SGLang's route."""
        if "choices" not in answer and "meta_info" not in answer:
            return
        usage = answer.get("usage") or answer.get("meta_info")
        sent = integer(member(usage, "prompt_tokens"))
        cached = integer(member(usage, "prompt_tokens_details", "cached_tokens"))
        if cached is None:
            cached = integer(member(usage, "cached_tokens"))
        self.requests += 1
        if sent is None:
            self._silent += 1
            return
        self._sent += sent
        self._cached += min(cached or 0, sent)

    async def _once(
        self, method: str, path: str, content: bytes | None, reader: Reader | None = None
    ) -> JSON:
        """Send a request once.

        Faults are raised outside of handlers, so that no other exception hangs on them.
        """
        if self._closed:
            raise failed(_CLOSED)
        begun = time.monotonic()
        headers = {} if content is None else {"Content-Type": "application/json"}
        fault: Exception
        reminder = asyncio.create_task(self._remind(begun))
        try:
            async with self._http.stream(
                method, self.address.at(path), content=content, headers=headers
            ) as response:
                if response.status_code == 200:
                    answer = await self._answer(response, begun, reader)
                    self._waits.answered(time.monotonic() - begun)
                    return answer
                fault = await self._refusal(response, begun)
        except httpx2.HTTPError as error:
            fault = of_error(error, self.timeout, self._proxied)
        except (httpx2.InvalidURL, httpx2.StreamError) as error:
            fault = failed(f"the request can't be sent ({type(error).__name__})")
        except (Passing, Unanswerable, ServerFailed) as error:
            fault = error
        finally:
            reminder.cancel()
        if isinstance(fault, Passing):
            fault.begun = begun
        raise fault.with_traceback(None)

    async def _remind(self, begun: float) -> None:
        """Say now and then, until cancelled, that a request of that time has no answer."""
        while True:
            await asyncio.sleep(_QUIET)
            self._waits.still(begun)

    async def _answer(self, response: httpx2.Response, begun: float, reader: Reader | None) -> JSON:
        """Read an answer of status 200 to a request ``begun`` then (monotonic); raise its fault."""
        body = await self._body(response, begun)
        if reader is not None:
            return reader(body, response.headers)
        fault: Fault
        try:
            answer = json_answer(body)
        except Unreadable as error:
            quote = quoted(body[:_QUOTED_BYTES].decode(errors="replace"), self._key)
            reason = f"the answer can't be read: {error.reason}: {quote}"
            if error.deliberate:
                fault = Unanswerable(reason, 200)
            else:
                fault = Passing(reason, 200)
        else:
            error_part = answer.get("error")
            if error_part is None or "choices" in answer:
                return answer
            fault = self._of_error_part(error_part)
            # A traceback may show variables.
            del answer, error_part
        raise fault

    async def _body(self, response: httpx2.Response, begun: float) -> bytes:
        too_large = Unanswerable(
            f"the answer is larger than {self._most_bytes / 2**20:.3g} MiB", 200
        )
        announced = response.headers.get("Content-Length", "")
        if announced.isdigit() and int(announced[:20]) > self._most_bytes:
            raise too_large
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._most_bytes:
                raise too_large
            if time.monotonic() - begun > self._most_seconds:
                reason = f"the answer was incomplete after {duration(self._most_seconds)}"
                raise Passing(reason, busy=True, tries=3)
        return bytes(body)

    def _of_error_part(self, error: Any) -> Fault:
        """Return the fault of an ``error`` under status 200."""
        message = _message(json.dumps({"error": error}, ensure_ascii=False))
        quote = quoted(message, self._key)
        code = member(error, "code")
        if isinstance(code, int) and 400 <= code < 600:
            return _of_status(code, quote, None, bool(self._key))
        return Passing(f"the server answers with an error: {quote}")

    async def _refusal(self, response: httpx2.Response, begun: float) -> Fault:
        """Return the fault of any status but 200, of which a few bytes are read."""
        status = response.status_code
        body = bytearray()
        # The message of the server is a courtesy.
        with contextlib.suppress(httpx2.HTTPError):
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _QUOTED_BYTES or time.monotonic() - begun > self._most_seconds:
                    break
        now = datetime.now(UTC)
        wait = retry_after(response.headers.get("Retry-After"), now)
        milliseconds = retry_after(response.headers.get("retry-after-ms"), now)
        if milliseconds is not None:
            wait = milliseconds / 1000
        text = bytes(body[:_QUOTED_BYTES]).decode(errors="replace")
        if response.has_redirect_location:
            try:
                text = httpx2.URL(response.headers["Location"]).host or "another path"
            except httpx2.InvalidURL:
                text = "nowhere"
        message = quoted(_message(text), self._key)
        if not _QUOTAS.isdisjoint(_codes(text)):
            reason = f"a quota of the key is used up, status {status}: {message}"
            return failed(f"{reason}; {RESUME} when it is renewed", status)
        if status in self._meanings:
            return self._meanings[status](message)
        return _of_status(status, message, wait, bool(self._key))


async def healed(
    request: Callable[[], Awaitable[_T]], patience: float, on_fault: Callable[[Passing], None]
) -> _T:
    """Return what ``request`` does, repeated with growing, jittered pauses while it raises Passing.

    If the server asks to wait (Retry-After), that long is waited.  No try begins later than
    ``patience`` seconds after the first.  ``on_fault`` is called with every fault.  Raises what
    becomes of the last.
    """
    begun = time.monotonic()
    tried = 0

    def pause(error: Exception) -> bool | float:
        if not isinstance(error, Passing) or (error.tries is not None and tried >= error.tries):
            return False
        wait = error.wait or 0
        if time.monotonic() - begun + wait > patience:
            return False
        # Not all requests begin again at the same moment.
        return wait + random.random() if wait else True

    try:
        async for attempt in stamina.retry_context(
            on=pause, attempts=None, timeout=None, wait_initial=0.5, wait_max=20.0, wait_jitter=1.0
        ):
            with attempt:
                tried += 1
                try:
                    return await request()
                except Passing as fault:
                    on_fault(fault)
                    raise
    except Passing as fault:
        unhealed = fault.unhealed(tried)
    raise unhealed


class ClientModel:
    """Hold what models behind a client have in common."""

    device = "server"
    dtype = "unknown"
    recipe = None
    planned = None
    """Nobody knows what the server's cache will have."""

    def __init__(self, client: Client) -> None:
        self.client = client
        weakref.finalize(self, client.close)
        self.notes: list[str] = []

    @property
    def computed(self) -> int | None:
        """Return the input tokens that the server counts and did not have in its cache, or None."""
        return self.client.computed

    @property
    def requests(self) -> int:
        """Return the requests that were answered so far."""
        return self.client.requests

    def close(self) -> None:
        """End every connection."""
        self.client.close()


class Waits:
    """Report faults that may heal, and silence, in a line to ``say`` now and then.

    Nothing is reported while other requests are answered.  ``clock``: seconds that only grow.
    """

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._since: float | None = None
        self._reported = float("-inf")
        self._last_answer = float("-inf")
        self._slowest = 0.0

    def answered(self, took: float = 0.0) -> None:
        """Note that the server answered a request after ``took`` seconds."""
        self._since = None
        self._last_answer = self._clock()
        self._slowest = max(self._slowest, took)

    def still(self, begun: float) -> None:
        """Report that a request ``begun`` then, by the clock, has no answer yet."""
        now = self._clock()
        silence = now - max(begun, self._last_answer)
        # A server that has taken minutes before may take them again.
        if silence < max(_QUIET, 2 * self._slowest) or now - self._reported < _EVERY:
            return
        self._reported = now
        self._say(
            f"waiting for the server: no answer for {duration(silence)}. Ctrl-C keeps all answers "
            "so far"
        )

    def hear(self, fault: Passing) -> None:
        """Report that a request is repeated after ``fault``."""
        now = self._clock()
        if self._since is None:
            self._since = min(fault.begun or now, now)
        silent = now - self._since
        if silent + (fault.wait or 0.0) < _SHORT or now - self._reported < _EVERY:
            return
        self._reported = now
        parts = []
        if silent >= _SHORT:
            parts.append(f"no answer for {duration(silent)}")
        if fault.wait:
            parts.append(f"it asks to wait {duration(fault.wait)}")
        self._say(
            f"waiting for the server: {fault.reason} ({', '.join(parts)}). Ctrl-C keeps all "
            "answers so far"
        )


class ConcurrencyLimit:
    """Limit the requests at once by what the server takes.

    ``limit`` doubles in every round of as many answers (slow start) until the server is first
    overloaded.  From then on it grows by one in every round, of ``_ROUND`` answers at least.  An
    overload halves it, but only once for the requests that were under way together: those begun
    before the last halving show nothing new.  It is never below 1 and above ``most``.  It does not
    grow in a round in which an answer took longer than ``slow`` seconds: a server that computes one
    after another would only let more wait.  Times are of any clock (seconds).
    """

    def __init__(self, most: int, slow: float) -> None:
        self.most = most
        self.slow = slow
        self.limit = min(_FIRST, most)
        self.resume = float("-inf")
        """No request begins before that time."""
        self._starting = True
        self._answered = 0
        self._halved = float("-inf")

    def answered(self, took: float, at_once: int) -> None:
        """Count an answer that ``took`` so many seconds, one of ``at_once`` requests under way.

        If those were fewer than the limit, they show nothing of it.
        """
        if at_once < self.limit:
            return
        self._answered += 1
        if took > self.slow:
            self._starting = False
            self._answered = 0
        if self._starting and self._answered >= self.limit:
            self.limit = min(self.most, self.limit * 2)
            self._answered = 0
        elif self._answered >= max(self.limit, _ROUND):
            self.limit = min(self.most, self.limit + 1)
            self._answered = 0

    def overloaded(self, begun: float, now: float, wait: float | None = None) -> None:
        """Count a request ``begun`` then that was refused as too much, or not answered.

        ``wait``: the seconds that the server asks to wait.
        """
        if wait is not None:
            self.resume = max(self.resume, now + wait)
        if begun >= self._halved:
            self.limit = max(1, self.limit // 2)
            self._starting = False
            self._answered = 0
            self._halved = now


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of all clients, in a daemon thread, which no end of a program waits for."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="choicewise requests", daemon=True).start()
    return loop


def _of_status(status: int, quote: str, wait: float | None, has_key: bool) -> Fault:
    """Return the fault of a ``status`` but 200; ``quote``: the body, ``wait``: Retry-After (s)."""
    answer = f"status {status}: {quote}"
    if status in (401, 403, 407):
        if has_key:
            reason = f"the server refuses the key, {answer}; check {KEY_VARIABLE}"
        else:
            reason = f"the server refuses requests without a key, {answer}; set {KEY_VARIABLE}"
        return failed(reason, status)
    if 300 <= status < 400:
        way = "which is not followed; use that address"
        return failed(f"the server redirects elsewhere ({answer}), {way}", status)
    is_busy = status in _BUSY
    if (is_busy or status >= 500) and wait is not None and wait > _LONGEST_WAIT:
        return failed(f"the server asks to wait {duration(wait)} ({answer}); then {RESUME}", status)
    if is_busy:
        return Passing(
            f"the server is busy, {answer}",
            status,
            wait=wait,
            busy=True,
            everywhere=True,
            tries=None,
        )
    if status in _REFUSED:
        return Unanswerable(f"the server refuses the request, {answer}", status)
    if 500 <= status < 600:
        return Passing(f"the server failed, {answer}", status, wait=wait)
    reason = f"unexpected answer from the server, {answer}; check the address"
    if status == 404:
        reason = (
            f"the server has no such model or route, {answer}; check the address and the model's "
            "name"
        )
    return failed(reason, status)


def _error_body(text: str) -> JSON:
    try:
        return json_answer(text.encode(errors="replace"))
    except Unreadable:
        return {}


def _message(text: str) -> str:
    """Return the ``message`` of an error's body in OpenAI's form, else all of the body."""
    body = _error_body(text)
    error = body.get("error", body)
    if not isinstance(error, dict):
        return str(error)
    return str(error.get("message") or error.get("detail") or text)


def _codes(text: str) -> Iterator[str]:
    """Yield the codes and types of the errors in the body of an error."""
    body = _error_body(text)
    errors = [body, body.get("error")]
    if isinstance(body.get("errors"), list):
        errors += body["errors"]
    for error in errors:
        for name in ("code", "type"):
            if isinstance(error, Mapping) and name in error:
                yield str(error[name])


def _is_foreign(record: logging.LogRecord) -> bool:
    return not str(getattr(record, "stamina.caused_by", "")).startswith(f"{Passing.__name__}(")


# Users are told of our retries in our words; lines of other programs stay.
logging.getLogger("stamina").addFilter(_is_foreign)
