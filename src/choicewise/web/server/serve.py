"""The server itself: where it listens, and from its start to its end."""

import errno
import socket
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, Any

from choicewise.errors import UsageError
from choicewise.web.board.library import Library
from choicewise.web.server.access import Access

if TYPE_CHECKING:
    from choicewise.web.submissions.routes import Submissions

PORT = 8470
"""The port that is taken where nobody asks for one; another one where it is in use."""

GRACE = 3
"""Seconds that answers which are being given at the end may take."""


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens on ``host`` at ``port``; None: at :data:`PORT`, or at a free one where that is in use.

    Raises UsageError for a host that is not this machine's, or a port that is in use.
    """
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    for chosen in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((name, chosen), family=family, backlog=128)
        except PermissionError as error:
            raise UsageError(f"port {chosen} may not be used ({error.strerror}); choose one above 1023") from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"{host} is no address of this machine to listen on") from error
    raise UsageError(f"port {port} is in use; choose another one, or none and a free one is taken")


def address(bound: socket.socket) -> str:
    """The address to open in a browser."""
    host, port, *_ = bound.getsockname()
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


class BoardServer:
    """The board of a library on a socket, answered by a thread of its own; with ``submissions`` it evaluates."""

    def __init__(
        self,
        library: Library,
        access: Access,
        bound: socket.socket,
        tell: Callable[[str], None],
        submissions: "Submissions | None" = None,
    ) -> None:
        import uvicorn

        from choicewise.web.server.connection import LONGEST, Connection
        from choicewise.web.server.guard import Guard
        from choicewise.web.server.site import Site

        self._library, self._socket, self._submissions = library, bound, submissions
        self._site = Site(library, submissions)
        doors = () if submissions is None else submissions.doors
        application: Any = Guard(self._site.application(), access, tell, doors)
        settings: dict[str, Any] = {"http": Connection, "ws": "none", "lifespan": "off", "loop": "asyncio"}
        # No log of uvicorn's: paths may hold what a terminal would obey.
        settings |= {"log_config": None, "log_level": "critical", "access_log": False, "server_header": False}
        settings |= {"proxy_headers": False, "h11_max_incomplete_event_size": LONGEST, "timeout_keep_alive": 5}
        settings |= {"timeout_graceful_shutdown": GRACE}
        self._server = uvicorn.Server(uvicorn.Config(application, **settings))
        self._thread = Thread(target=self._server.run, args=([bound],), name="server", daemon=True)

    def start(self) -> None:
        """Begin to read and to answer."""
        self._library.start()
        self._thread.start()

    def wait(self) -> None:
        """Until the server ends, which it does not by itself."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def stop(self) -> None:
        """Take nothing more, answer what is being answered within :data:`GRACE` seconds, and end all that was begun."""
        self._server.should_exit = True
        self._thread.join(GRACE + 1)
        self._library.stop()
        self._site.stop()  # which ends answers that take longer
        self._thread.join(GRACE)
        if self._submissions is not None:
            self._submissions.close()
