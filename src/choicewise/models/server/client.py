"""Requests to one server: JSON there, JSON back, made again while a fault may heal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import httpx2

from choicewise.errors import ModelError
from choicewise.models.server.address import ServerAddress
from choicewise.models.server.faults import (
    AGAIN,
    Passing,
    ServerFailed,
    Unanswerable,
    failed,
    of_error,
    of_status,
    silent,
)
from choicewise.models.server.json_answer import JSON, Unreadable, json_answer
from choicewise.models.server.key import HidingLog, Key, quoted
from choicewise.models.server.retries import healed
from choicewise.models.server.retry_after import retry_after
from choicewise.models.server.sockets import Sockets
from choicewise.models.server.usage import Usage

MOST_BYTES: Final = 32 * 2**20
"""Bytes of an answer, decompressed, beyond which it is refused."""

MOST_AT_ONCE: Final = 64
"""Connections to a server."""

_SAID_BYTES: Final = 2000
"""Bytes of an answer that is no answer which are read, to say what the server says."""


def _never() -> bool:
    return False


class Client:
    """Asks the server at ``address``; may be used by several threads.

    ``key`` is sent as ``Authorization: Bearer`` and shown nowhere.  ``timeout``: seconds that the server may be silent,
    half of those that one answer may take; ``connect``: seconds to a connection; ``patience``: seconds after which no
    request is made again.  ``most_bytes`` of an answer are read.

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
    ) -> None:
        self.address = address
        self._key = Key(key or "")
        del key  # so that no traceback shows it among the variables of this call
        self._key.check()
        self._log = HidingLog(self._key)
        self.timeout, self._patience, self._most_bytes = timeout, patience, most_bytes
        self._proxied = address.is_proxied
        self.usage = Usage()
        self._sockets, self._closed = Sockets(), False
        self._answered = dict[str, bytes]()
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

        ``model``: the name that the answer must give, where it gives one.  Raises Unanswerable where this request can't
        be answered, ServerFailed where none can.
        """
        return self.ask("POST", path, body, model=model)

    def ask(
        self,
        method: str,
        path: str,
        body: JSON | None,
        *,
        model: str | None = None,
        hear: Callable[[Passing], None] = lambda fault: None,
        stopped: Callable[[], bool] = _never,
    ) -> JSON:
        """The same of any method; ``hear`` is told of every fault that may heal, and no try begins once ``stopped``."""
        content = None if body is None else _encoded(body)

        def ended() -> bool:
            return self._closed or stopped()

        try:
            answer = healed(lambda: self._once(method, path, content, ended), self._patience, hear, ended)
        except ServerFailed as error:
            failure = failed(f"{self.address.url}: {error.message}", error.status)
        else:
            if model is None or not isinstance(answer.get("model"), str) or answer["model"] == model:
                if content is not None:
                    self._answered[path] = content
                    self.usage.add(answer)
                return answer
            failure = self._of_other(answer.pop("model"), model)
            del answer  # a traceback may show variables, and an answer what it likes
        raise failure

    def again(self, path: str) -> str | None:
        """Why the request to ``path`` that was answered last has no answer now; None where it has one.

        So it can be told whether the server fails, or some requests do.
        """
        if (content := self._answered.get(path)) is None:
            return "and none was ever answered"
        try:
            healed(lambda: self._once("POST", path, content), self._patience)
        except (Unanswerable, ServerFailed) as error:
            return f"and one that was answered before has none now ({error})"
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
                extensions={"trace": partial(self._sockets.hear, stopped=stopped)},
            ) as response:
                if response.status_code == 200:
                    return self._read(response, begun)
                fault = self._refusal(response, begun)
        except httpx2.HTTPError as error:
            fault = of_error(error, self.timeout, self._proxied)
        except (httpx2.InvalidURL, httpx2.StreamError) as error:
            fault = failed(f"the request can't be sent ({type(error).__name__})")
        except Unreadable as error:
            fault = self._unreadable(error)
        except (Passing, Unanswerable, ServerFailed) as error:
            fault = error
        if isinstance(fault, Passing):
            fault.begun = begun
        raise fault.with_traceback(None)

    def _read(self, response: httpx2.Response, begun: float) -> JSON:
        body = bytearray()
        announced = response.headers.get("Content-Length", "")
        if announced.isdigit() and int(announced[:20]) > self._most_bytes:
            raise self._too_large()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > self._most_bytes:
                raise self._too_large()
            if time.monotonic() - begun > 2 * self.timeout:
                raise silent(2 * self.timeout)
        try:
            answer = json_answer(bytes(body))
        except Unreadable as error:
            said = self._quoted(bytes(body[:_SAID_BYTES]).decode(errors="replace"))
            raise Unreadable(f"{error.reason}: {said}", error.deliberate) from None
        if answer.get("error") is None or "choices" in answer:
            return answer
        raise self._named(answer["error"])

    def _refusal(self, response: httpx2.Response, begun: float) -> Exception:
        """The fault of any status but 200; a few bytes of what the server says are read."""
        body = bytearray()
        try:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _SAID_BYTES or time.monotonic() - begun > 2 * self.timeout:
                    break
        except httpx2.HTTPError:
            pass  # what the server says is a courtesy
        wait = retry_after(response.headers.get("Retry-After"), datetime.now(UTC))
        said = bytes(body[:_SAID_BYTES]).decode(errors="replace")
        if response.has_redirect_location:
            said = httpx2.URL(response.headers["Location"]).host or "another path"
        return of_status(response.status_code, self._quoted(_message(said)), wait, bool(self._key))

    def _named(self, error: Any) -> Exception:
        """The fault that an answer of status 200 names in place of an answer."""
        code = error.get("code") if isinstance(error, dict) else None
        said = self._quoted(_message(json.dumps({"error": error}, ensure_ascii=False)))
        if isinstance(code, int) and 400 <= code < 600:
            return of_status(code, said, None, bool(self._key))
        return Passing(f"the server answers with an error: {said}")

    def _unreadable(self, error: Unreadable) -> Exception:
        reason = f"the answer can't be read: {error.reason}"
        return Unanswerable(reason, 200) if error.deliberate else Passing(reason, 200)

    def _too_large(self) -> Unanswerable:
        return Unanswerable(f"the answer has more than {self._most_bytes / 2**20:.3g} MiB", 200)

    def _of_other(self, named: str, model: str) -> ServerFailed:
        return failed(
            f"{self.address.url}: the answer is of model {self._quoted(named)}, not {self._quoted(model)}; serve"
            f" {self._quoted(model)} again, and {AGAIN}"
        )

    def _quoted(self, text: str) -> str:
        return quoted(text, self._key)


def _encoded(body: JSON) -> bytes:
    r"""UTF-8; a lone surrogate, which no text that is sent has, stays an escape as ``"\ud800"``."""
    return json.dumps(body, allow_nan=False, separators=(",", ":")).encode("ascii")


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
