"""The one HTTP client: requests on one event loop in the background, retries, waits, limits of size and time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from datetime import UTC, datetime
from functools import cache, partial
from threading import Thread
from types import MappingProxyType
from typing import Any, Final, TypeVar

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
    json_answer,
    of_error,
    retry_after,
    silent,
)

_T = TypeVar("_T")
_MOST_BYTES: Final = 32 * 2**20  # bytes of an answer, decompressed, beyond which it is refused
MOST_AT_ONCE: Final = 64  # connections to a server
_QUOTED_BYTES: Final = 2000  # bytes of an error that are read, for a message to quote
_LONGEST_WAIT: Final = (
    300.0  # seconds that a server may ask to wait before the run stops rather than to wait
)
_QUOTAS: Final = {
    "insufficient_quota",
    "quota_exceeded",
    "billing_hard_limit_reached",
    "3036",
    "4006",
}
"""Codes of errors that no waiting heals within a run: OpenAI's, and of Cloudflare's the daily ones."""

_REFUSED: Final = {
    400,
    406,
    409,
    411,
    412,
    413,
    414,
    415,
    416,
    417,
    422,
    431,
    451,
    501,
}  # about the request alone
_BUSY: Final = {408, 425, 429, 503, 529}  # statuses of a server that is to be waited for
_QUIET: Final = 10.0  # seconds in which nothing is heard, after which that is said
_SHORT: Final = 5.0  # seconds without an answer of which nothing is said
_EVERY: Final = 30.0  # seconds between two lines, at least
_FIRST: Final = 2  # requests at once to begin with
_ROUND: Final = 8  # the fewest answers after which one more request is tried at once: each trial may cost a refusal
_CLOSING: Final = 5.0  # seconds in which connections end, at most
_CLOSED: Final = "the connection to the server is closed"

Reader = Callable[[bytes, Mapping[str, str]], JSON]
"""From body and headers of an answer of status 200 to what is made of it; it raises a :data:`Fault` for none."""


class Client:
    """Asks the server at ``address``; may be used by several threads.

    ``key`` is sent as ``Authorization: Bearer`` and shown nowhere.  ``timeout``: seconds that the server may be silent,
    half of those that one answer may take; ``connect``: seconds to a connection; ``patience``: seconds after which no
    request is repeated.  ``most_bytes`` of an answer are read.  ``say`` gets a line now and then while the server is
    waited for, from any thread.  ``meanings``: the fault of a status, from what the server says in quotes, where such
    servers mean another by it than others do.

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
        most_bytes: int = _MOST_BYTES,
        transport: httpx2.AsyncBaseTransport | None = None,
        say: Callable[[str], None] = lambda line: None,
        meanings: Mapping[int, Callable[[str], Fault]] = MappingProxyType({}),
    ) -> None:
        self.address, self._meanings = address, meanings
        self._key = Key(key or "")
        del key  # so that no traceback shows it among the variables of this call
        self._key.check()
        self._log = HidingLog(self._key)
        self.timeout, self._patience = timeout, patience
        self._most_seconds, self._most_bytes = 2 * timeout, most_bytes
        self._proxied = address.is_proxied
        self.requests = 0
        """Answers of models so far."""
        self._sent = self._cached = self._silent = (
            0  # tokens of prompts, of them cached; answers that do not say
        )
        self._waits = Waits(say)
        self.named: str | None = None
        """What the first answer of a model called it; None where no answer named any so far."""
        self._loop, self._closed = _event_loop(), False
        self._under_way = set[Future[Any]]()
        self._answered = dict[str, tuple[bytes, Reader | None]]()
        self.concurrency = ConcurrencyLimit(MOST_AT_ONCE, slow=timeout / 10)
        self.unanswered = 0
        """Requests that had no answer since the last that had one; counted by those who make many at once."""
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
            pass  # what it says may hold a password, so that nothing may hang on it
        raise ModelError(
            "a proxy or certificate that the environment names can't be used; check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY"
            " and SSL_CERT_FILE"
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
        for each in list(self._under_way):
            each.cancel()
        closing = asyncio.run_coroutine_threadsafe(self._http.aclose(), self._loop)
        try:
            asyncio.get_running_loop()  # the garbage collector may call this in the thread of the loop
        except RuntimeError:
            with contextlib.suppress(TimeoutError):
                closing.result(_CLOSING)
        self._log.end()

    def get(self, path: str) -> JSON:
        """The answer to a GET of ``path`` (:meth:`ServerAddress.at`); see :meth:`post`."""
        return self._result(self._started(self._asked("GET", path)))

    def post(
        self,
        path: str,
        body: JSON | bytes,
        *,
        model: str | None = None,
        reader: Reader | None = None,
    ) -> JSON:
        """The answer to ``body``, sent to ``path`` (:meth:`ServerAddress.at`); the request may be made several times.

        Bytes are sent as they are.  ``reader``: what reads the answer, where that is no object of JSON as OpenAI's.

        ``model``: the name that the answer must give, where it gives one and no answer before gave another: a service
        may call a model by a dated name, but always by the same.  Raises Unanswerable where this request can't be
        answered, ServerFailed where none can.
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
        """What :meth:`post` will return or raise; cancelling it ends the request, and the server sees that.

        ``on_fault`` is called with every fault that may heal, in the thread of the event loop.
        """
        # UTF-8; a lone surrogate, which no text that is sent has, stays an escape
        content = (
            body
            if isinstance(body, bytes)
            else json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
        )
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
        def heard(fault: Passing) -> None:
            self._waits.hear(fault)
            on_fault(fault)

        try:
            answer = await healed(
                partial(self._once, method, path, content, reader), self._patience, heard
            )
        except ServerFailed as error:
            failure = failed(f"{self.address.url}: {error.message}", error.status)
        else:
            expected = model if self.named is None else self.named
            named = self._key.hidden(str(answer.get("model") or "")) if "choices" in answer else ""
            first = expected is None and HIDDEN not in named  # a key is no model's name
            if named in ("", expected) or first:
                if content is not None:
                    self.named = named or self.named
                    self._answered[path], self.unanswered = (content, reader), 0
                    self._count(answer)
                return answer
            own = quoted(expected or self.address.model or "the one asked for", self._key)
            other = f"the answer is of model {quoted(named, self._key)}, not {own}; serve {own} again, and {RESUME}"
            failure = failed(f"{self.address.url}: {other}")
            del answer  # a traceback may show variables, and an answer what it likes
        raise failure

    def _started(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def _result(self, future: Future[_T]) -> _T:
        """What comes of it, which ends where this thread is interrupted."""
        try:
            return future.result()
        except CancelledError:
            failure = failed(_CLOSED)
        finally:
            future.cancel()
        raise failure

    def read(self, reader: Callable[[JSON], _T], answer: JSON) -> _T:
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

    def objection(self, path: str) -> str | None:
        """Why the request to ``path`` that was answered last has no answer now; None where it has one.

        This shows whether the server fails, or some requests do.
        """
        if (request_before := self._answered.get(path)) is None:
            return "and none was ever answered"
        try:
            request = partial(self._once, "POST", path, *request_before)
            self._result(self._started(healed(request, self._patience, self._waits.hear)))
        except (Unanswerable, ServerFailed) as error:
            return f"and one that was answered before has none now ({error})"
        self.unanswered = 0
        return None

    @property
    def computed(self) -> int | None:
        """Tokens of prompts without those that the server says it had in its cache, so at most what it computed.

        None where an answer did not say how many tokens its prompt has.
        """
        return None if self._silent else self._sent - self._cached

    def _count(self, answer: JSON) -> None:
        """Count an answer of a model: OpenAI's ``usage``, or ``meta_info`` of SGLang's own route."""
        if not {"choices", "meta_info"} & answer.keys():
            return
        said = answer.get("usage") or answer.get("meta_info")
        details = said.get("prompt_tokens_details") if isinstance(said, Mapping) else None
        sent, cached = _count(said, "prompt_tokens"), _count(details, "cached_tokens")
        if cached is None:
            cached = _count(said, "cached_tokens")
        self.requests += 1
        self._silent += sent is None
        self._sent += sent or 0
        self._cached += min(cached or 0, sent or 0)

    async def _once(
        self, method: str, path: str, content: bytes | None, reader: Reader | None = None
    ) -> JSON:
        """One try.  Faults are raised where no other exception is handled, so that none hangs on them."""
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
        """Say now and then that a request that ``begun`` then (monotonic) has no answer yet, until cancelled."""
        while True:
            await asyncio.sleep(_QUIET)
            self._waits.still(begun)

    async def _answer(self, response: httpx2.Response, begun: float, reader: Reader | None) -> JSON:
        """The answer of status 200 to a request that ``begun`` then (monotonic); raises its fault where it is none."""
        body, key = bytearray(), self._key
        too_large = Unanswerable(
            f"the answer has more than {self._most_bytes / 2**20:.3g} MiB", 200
        )
        announced = response.headers.get("Content-Length", "")
        if announced.isdigit() and int(announced[:20]) > self._most_bytes:
            raise too_large
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._most_bytes:
                raise too_large
            if time.monotonic() - begun > self._most_seconds:
                raise silent(self._most_seconds)
        if reader is not None:
            return reader(bytes(body), response.headers)
        fault: Fault
        try:
            answer = json_answer(bytes(body))
        except Unreadable as error:
            said = quoted(bytes(body[:_QUOTED_BYTES]).decode(errors="replace"), key)
            kind = Unanswerable if error.deliberate else Passing
            fault = kind(f"the answer can't be read: {error.reason}: {said}", 200)
        else:
            if answer.get("error") is None or "choices" in answer:
                return answer
            named = answer["error"]
            code = named.get("code") if isinstance(named, dict) else None
            said = quoted(_message(json.dumps({"error": named}, ensure_ascii=False)), key)
            if isinstance(code, int) and 400 <= code < 600:
                fault = _of_status(code, said, None, bool(key))
            else:
                fault = Passing(f"the server answers with an error: {said}")
            del answer, named  # a traceback may show variables
        raise fault

    async def _refusal(self, response: httpx2.Response, begun: float) -> Fault:
        """The fault of any status but 200; a few bytes of what the server says are read."""
        body = bytearray()
        with contextlib.suppress(httpx2.HTTPError):  # what the server says is a courtesy
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _QUOTED_BYTES or time.monotonic() - begun > self._most_seconds:
                    break
        wait = retry_after(response.headers.get("Retry-After"), datetime.now(UTC))
        if (
            milliseconds := retry_after(response.headers.get("retry-after-ms"), datetime.now(UTC))
        ) is not None:
            wait = milliseconds / 1000
        said = bytes(body[:_QUOTED_BYTES]).decode(errors="replace")
        if response.has_redirect_location:
            try:
                said = httpx2.URL(response.headers["Location"]).host or "another path"
            except httpx2.InvalidURL:
                said = "nowhere"
        shown, meaning = quoted(_message(said), self._key), self._meanings.get(response.status_code)
        if not _QUOTAS.isdisjoint(_codes(said)):
            over = f"a quota of the key is used up, status {response.status_code}: {shown}"
            return failed(f"{over}; {RESUME} when it is renewed", response.status_code)
        return (
            meaning(shown)
            if meaning
            else _of_status(response.status_code, shown, wait, bool(self._key))
        )


async def healed(
    request: Callable[[], Awaitable[_T]], patience: float, on_fault: Callable[[Passing], None]
) -> _T:
    """What ``request`` returns, repeated with growing, jittered pauses where it raises :class:`Passing`.

    Where the server asks to wait (Retry-After), that long is waited.  No try begins later than ``patience`` seconds
    after the first.  ``on_fault`` is called with every fault.  Raises what becomes of the last.
    """
    begun, tried = time.monotonic(), 0

    def pause(error: Exception) -> bool | float:
        if not isinstance(error, Passing) or (error.tries is not None and tried >= error.tries):
            return False
        if time.monotonic() - begun + (error.wait or 0) > patience:
            return False
        return error.wait + random.random() if error.wait else True  # not all at the same moment

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


class Waits:
    """Hears of answers, of faults that may heal and of silence; ``say`` gets a line of the latter two now and then.

    Nothing is said while other requests are answered.  ``clock``: seconds that only grow.
    """

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._since: float | None = None
        self._said = float("-inf")
        self._last_answer = float("-inf")
        self._slowest = 0.0

    def answered(self, took: float = 0.0) -> None:
        """The server answered a request after ``took`` seconds."""
        self._since = None
        self._last_answer = self._clock()
        self._slowest = max(self._slowest, took)

    def still(self, begun: float) -> None:
        """A request that ``begun`` then, by the clock, has no answer yet."""
        now = self._clock()
        silence = now - max(begun, self._last_answer)
        # A server that has taken minutes before may take them again.
        if silence < max(_QUIET, 2 * self._slowest) or now - self._said < _EVERY:
            return
        self._said = now
        self._say(
            f"waiting for the server: nothing heard for {duration(silence)}; Ctrl-C keeps what was observed"
        )

    def hear(self, fault: Passing) -> None:
        """A request is about to be repeated after ``fault``."""
        now = self._clock()
        if self._since is None:
            self._since = min(fault.begun or now, now)
        silent = now - self._since
        if silent + (fault.wait or 0.0) < _SHORT or now - self._said < _EVERY:
            return
        self._said = now
        parts = [f"no answer for {duration(silent)}"] if silent >= _SHORT else []
        parts += [f"it asks to wait {duration(fault.wait)}"] if fault.wait else []
        self._say(
            f"waiting for the server: {fault.reason} ({', '.join(parts)}); Ctrl-C keeps what was observed"
        )


class ConcurrencyLimit:
    """``limit`` doubles in every round of as many answers (slow start) until the server is first overloaded.

    From then on it grows by one in every round, of ``_ROUND`` answers at least.  Each overload halves it, but at most
    once for the requests that were under way together: those begun before the last halving say nothing new.  It is
    never below 1 and above ``most``.  It does not grow in a round in which an answer took longer than ``slow`` seconds:
    a server that computes one after another would only let more wait.  Times are of any clock (seconds).
    """

    def __init__(self, most: int, slow: float, first: int = _FIRST) -> None:
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
        if self._answered >= (self.limit if self._starting else max(self.limit, _ROUND)):
            self._answered = 0
            self.limit = min(self.most, self.limit * 2 if self._starting else self.limit + 1)

    def overloaded(self, begun: float, now: float, wait: float | None = None) -> None:
        """A request that began at ``begun`` was refused as too much, with advice to ``wait``, or not answered."""
        if wait is not None:
            self.resume = max(self.resume, now + wait)
        if begun >= self._halved:
            self.limit = max(1, self.limit // 2)
            self._starting, self._answered, self._halved = False, 0, now


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """The loop of all clients, in a thread that is a daemon: nothing waits for it at the end of the program."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="choicewise requests", daemon=True).start()
    return loop


def _of_status(status: int, said: str, wait: float | None, has_key: bool) -> Fault:
    """The fault of an answer with a ``status`` other than 200; ``said``: its body, ``wait``: Retry-After (seconds)."""
    answer = f"status {status}: {said}"
    if status in (401, 403, 407):
        what, advice = "requests without a key", f"set {KEY_VARIABLE}"
        if has_key:
            what, advice = "the key", "is it another server's?"
        return failed(f"the server refuses {what}, {answer}; {advice}", status)
    if 300 <= status < 400:
        way = "which is not followed; name that address instead"
        return failed(f"the server redirects elsewhere ({answer}), {way}", status)
    if (status in _BUSY or status >= 500) and wait is not None and wait > _LONGEST_WAIT:
        return failed(f"the server asks to wait {duration(wait)} ({answer}); {RESUME} then", status)
    if status in _BUSY:
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
        return Passing(f"the server fails, {answer}", status, wait=wait)
    if status == 404:
        return failed(
            f"the server has no such model or route, {answer}; check the address and the name",
            status,
        )
    return failed(
        f"the server does not answer as such servers do, {answer}; check the address", status
    )


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


def _codes(said: str) -> Iterator[str]:
    """What the body of an error gives as codes or types of its errors."""
    try:
        body = json_answer(said.encode(errors="replace"))
    except Unreadable:
        return
    errors = body.get("errors")
    for error in (body, body.get("error"), *(errors if isinstance(errors, list) else ())):
        if isinstance(error, Mapping):
            yield from (str(error[name]) for name in ("code", "type") if name in error)


def _count(said: object, name: str) -> int | None:
    value = said.get(name) if isinstance(said, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


logging.getLogger(
    "stamina"
).addFilter(  # lines of other programs stay: ours are told to the user in our own words
    lambda record: (
        not str(getattr(record, "stamina.caused_by", "")).startswith(f"{Passing.__name__}(")
    )
)
