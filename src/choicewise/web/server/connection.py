"""Connections that can't be kept waiting: a deadline for requests and answers, and a limit to how many there are."""

import asyncio
import socket
import sys
from collections import Counter
from http import HTTPStatus
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
"""For a whole request line with its headers, from the first byte of it or from the start of the connection."""

ANSWER_SECONDS = 120.0
"""For an answer to be made and taken."""

CONTENT_SECONDS = 30.0
"""For each further :data:`CONTENT_BYTES` of what a request brings to arrive, and for its end."""

CONTENT_BYTES = 1_000_000

MOST = 200
"""Connections at once."""

EACH = 64
"""Connections at once from one address; behind a proxy all readers have its address."""

LONGEST = 16384
"""Bytes of a request line with its headers."""


class Connection(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with deadlines."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._coming, self._arrived = False, 0  # whether content comes, and bytes of it since the deadline was put off
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request, or hang up where there are too many connections and all are being answered."""
        super().connection_made(transport)  # type: ignore[arg-type]
        # An answer leaves in two pieces; the second one must not wait 40 ms for the reader's word on the first.
        self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect(REQUEST_SECONDS)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take what came; the deadline changes only with whole requests, and with every so much of their content."""
        waiting = self.cycle is None or self.cycle.response_complete
        if waiting and self._deadline is None:
            self._expect(REQUEST_SECONDS)
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            return
        coming = self.conn.their_state is h11.SEND_BODY
        if waiting:
            self._arrived = 0
            self._expect(CONTENT_SECONDS if coming else ANSWER_SECONDS)
        elif coming:
            self._arrived += len(data)
            if self._arrived >= CONTENT_BYTES:
                self._arrived = 0
                self._expect(CONTENT_SECONDS)
        elif self._coming:
            self._expect(ANSWER_SECONDS)
        self._coming = coming

    def on_response_complete(self) -> None:
        """The answer is made; it has its time to be taken, as has the next one where that was asked for already."""
        self._expect(None)
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.transport.get_write_buffer_size() or not self.cycle.response_complete:
            self._expect(ANSWER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is expected any more."""
        self._expect(None)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Say what was wrong with a request that is no HTTP, or too long, and hang up."""
        error = sys.exc_info()[1]
        status = HTTPStatus(getattr(error, "error_status_hint", 400))
        body = f"{status.phrase}.\n".encode()
        headers = [("content-type", "text/plain"), ("content-length", str(len(body))), ("connection", "close")]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def address(self) -> str:
        """Of the other side."""
        return self.client[0] if self.client else ""

    @property
    def idle(self) -> bool:
        """Whether no request is here in full that is still to be answered."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and not self.transport.get_write_buffer_size()

    def _make_room(self) -> None:
        """Hang up on one connection where there are too many: on the one that is idle for the longest, of the address
        that has the most of them; on this one where none is idle.

        So requests that are never sent to their end are what gives way, and not those that others send.
        """
        connections = cast("set[Connection]", self.connections)
        counts = Counter(each.address for each in connections)
        own = counts[self.address] > EACH
        if not own and len(connections) <= MOST:
            return
        among = [each for each in connections if each.idle and (each.address == self.address or not own)]
        others = (each for each in among if each is not self)
        given = max(others, key=lambda each: (counts[each.address], -each._idle_since), default=self)
        given._expect(None)
        given.transport.abort()
        connections.discard(given)  # asyncio does so only after what else came in by now

    def _expect(self, seconds: float | None) -> None:
        """Hang up after so many seconds; None: don't."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
