"""From a response to the answer that it holds, or to the fault that it is."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx2

from choicewise.models.server.faults import Fault, Passing, Unanswerable, of_status, silent
from choicewise.models.server.json_answer import JSON, Unreadable, json_answer
from choicewise.models.server.key import Key, quoted
from choicewise.models.server.retry_after import retry_after

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
