"""A server on loopback that speaks OpenAI's protocol, and misbehaves as it is told, request by request.

    with serving() as server:
        client = Client(ServerAddress.parse(server.address))
        server.next(status(429, Retry_After="7"), reset)  # for the next two requests
        server.always(other_model())                      # for every request from now on
        server.when(lambda request: "poison" in str(request.body), status(500))

What can go wrong is in ``server_faults``; ``server.model = ServedModel("other", VLLM, seed=1)`` serves another model
from now on, and ``server.model.noise`` makes every answer differ.
"""

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.helpers.served_model import JSON, VLLM, Ability, Refused, ServedModel, as_json

NAME = "hash"


@dataclass(frozen=True)
class Received:
    """A request: headers have their names in lower case, ``body`` is None without one; ``content`` is its bytes."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: JSON | None
    content: bytes = b""


@dataclass(frozen=True)
class Fault:
    """``wire`` writes to the connection in place of the server; ``answer`` changes what it would have answered."""

    wire: "Callable[[Handler, bytes], None] | None" = None
    answer: Callable[[JSON], Any] | None = None


class Server:
    """``requests``: what it received; ``model``: who answers; ``key``: what it asks for; ``most_at_once``: so far.
    ``capacity``: requests at once, beyond which it answers 429; ``seconds`` that an answer takes at least."""

    def __init__(self, ability: Ability) -> None:
        self.model = ServedModel(NAME, ability)
        self.requests = list[Received]()
        self.key: str | None = None
        self.capacity: int | None = None
        self.seconds = 0.0
        self.at_once = self.most_at_once = self.broken_off = 0
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.connections = set[socket.socket]()
        self.port = 0
        self.listener: ThreadingHTTPServer | None = None
        self._next, self._always = list[Fault | None](), None
        self._when = list[tuple[Callable[[Received], bool], Fault]]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def address(self) -> str:
        return f"server:{self.url}#{self.model.name}"

    def posted(self, path: str = "/v1/completions") -> list[JSON]:
        """The bodies that were posted to ``path``."""
        return [each.body for each in self.requests if each.path == path and each.body is not None]

    def next(self, *faults: Fault | None) -> None:
        """What happens to each of the next requests; nothing to one that has None."""
        self._next += faults

    def always(self, fault: Fault | None) -> None:
        """What happens to every request but the next ones."""
        self._always = fault

    def when(self, concerned: Callable[[Received], bool], fault: Fault) -> None:
        """What happens to requests that are ``concerned``, before all else."""
        self._when.append((concerned, fault))

    def end(self) -> None:
        """End listening and every connection, as the end of the process would."""
        self.ended.set()
        if self.listener is not None:
            self.listener.shutdown()
            self.listener.server_close()
            self.listener = None
        for connection in [*self.connections]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def fault(self, request: Received) -> Fault | None:
        with self.lock:
            for concerned, fault in self._when:
                if concerned(request):
                    return fault
            return self._next.pop(0) if self._next else self._always


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # or every body waits 40 ms for the client to acknowledge the headers
    )
    world: Server

    def setup(self) -> None:
        super().setup()
        self.world.connections.add(self.connection)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        world = self.world
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Received(
            self.command, self.path, headers, json.loads(content) if content else None, content
        )
        with world.lock:
            world.requests.append(request)
            world.at_once += 1
            world.most_at_once = max(world.most_at_once, world.at_once)
            too_many = world.capacity is not None and world.at_once > world.capacity
        try:
            self._answer(request, too_many)
        except OSError:
            world.broken_off += 1  # nobody waits for the answer any more
            self.close_connection = True
        finally:
            with world.lock:
                world.at_once -= 1

    do_POST = do_GET

    def _answer(self, request: Received, too_many: bool) -> None:
        world = self.world
        if world.key is not None and request.headers.get("authorization") != f"Bearer {world.key}":
            return self.send(401, b'{"error":"Unauthorized"}')
        if too_many:
            return self.send(429, b'{"error":{"message":"too many requests"}}')
        fault = world.fault(request)
        if world.seconds:
            world.ended.wait(world.seconds)
        try:
            answer: Any = world.model.answer(request.method, request.path, request.body or {})
        except Refused as refused:
            return self.send(refused.status, as_json(refused.body))
        except Exception as error:  # as FastAPI does; a test that did not mean it reads why
            return self.send(
                500, as_json({"error": {"message": f"{type(error).__name__}: {error}"}})
            )
        if fault and fault.answer:
            answer = fault.answer(answer)
        wire = fault and fault.wire
        wire(self, as_json(answer)) if wire else self.send(200, as_json(answer))

    def send(self, status: int, body: bytes, **headers: str) -> None:
        """A whole response; an underscore in the name of a header is a hyphen."""
        self.send_response(status)
        usual = {"Content_Type": "application/json", "Content_Length": str(len(body))}
        for name, value in (usual | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(
            sys.exception(), OSError
        ):  # a client that goes away is nothing to talk about
            super().handle_error(request, client_address)


@contextmanager
def serving(ability: Ability = VLLM, port: int = 0) -> Iterator[Server]:
    """A server with ``ability``; after it nothing of it runs any more."""
    world = Server(ability)
    httpd = _Listener(("127.0.0.1", port), type("ServingHandler", (Handler,), {"world": world}))
    world.listener, world.port = httpd, httpd.server_port
    threading.Thread(
        target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    try:
        yield world
    finally:
        world.end()
