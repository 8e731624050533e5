"""The connections of a client that are open, so that what waits for one can be ended from another thread."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from threading import Lock
from typing import Any
from weakref import WeakSet


class Sockets:
    """Hears of every connection through the extension ``trace`` of httpx2 (:meth:`hear`)."""

    def __init__(self) -> None:
        self._lock, self._open = Lock(), WeakSet[socket.socket]()

    def hear(self, event: str, info: Mapping[str, Any]) -> None:
        """Keep the socket of a connection that was made."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._open.add(info["return_value"].get_extra_info("socket"))

    def end(self) -> None:
        """End all of them: who waits for one hears at once that it is over, and the server that nobody waits.

        Closing alone would wake nobody.
        """
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()
