"""The connections of a client that are open, so that what waits for one can be ended from another thread."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any
from weakref import WeakSet

from choicewise.models.server.faults import Passing


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
