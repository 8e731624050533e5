"""Requests to one server: JSON there, JSON back, made again while a fault may heal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import httpx2

from choicewise.errors import ModelError
from choicewise.models.server.address import ServerAddress
from choicewise.models.server.answer_reader import AnswerReader
from choicewise.models.server.concurrency_limit import ConcurrencyLimit
from choicewise.models.server.faults import (
    AGAIN,
    Passing,
    ServerFailed,
    Unanswerable,
    failed,
    of_error,
)
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.key import HIDDEN, HidingLog, Key, quoted
from choicewise.models.server.open_sockets import OpenSockets
from choicewise.models.server.retries import healed
from choicewise.models.server.usage import Usage
from choicewise.models.server.waits import Waits

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
