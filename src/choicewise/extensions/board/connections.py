"""Connections to the board: a request has to arrive in time, and too many at once are told when to
ask again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

ARRIVAL = 10.0
"""Seconds in which a request has to arrive, from the beginning of its connection or its first byte
on.
"""

CONNECTIONS = 200
"""Connections at once; further ones get 503."""

RETRY = "5"
"""Seconds after which who was refused may ask again."""

BUSY = "The board is busy; try again in a few seconds."


class BoardConnection(H11Protocol):
    """Speaks HTTP as uvicorn does, which waits for ever for a request that is half sent."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._application = self.app
        self.app = self._answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        """Take what a client sends."""
        super().data_received(data)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._end_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        """Give the client time for the rest of a request, once; none if the request is there."""
        is_incomplete = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if not is_incomplete:
            self._end_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(ARRIVAL, self.transport.close)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the board does, or say that there are too many connections."""
        if len(self.connections) <= CONNECTIONS:
            await self._application(scope, receive, send)
            return
        headers = {"retry-after": RETRY, "cache-control": "no-store", "connection": "close"}
        await PlainTextResponse(f"{BUSY}\n", 503, headers)(scope, receive, send)
