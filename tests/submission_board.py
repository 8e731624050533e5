"""A board for tests of workers: the queue of submissions over HTTP on loopback, in memory, with faults on demand.

It answers as ``choicewise serve`` with submissions does, without pages; what a test wants to go wrong, ``fault`` says.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKEN = "a-token-for-workers-0123456789"
Answer = tuple[int, dict[str, Any] | bytes, dict[str, str]]


@dataclass
class Entry:
    """A submission in the queue."""

    id: str
    model: str
    revision: str | None = None
    dtype: str | None = None
    state: str = "waiting"
    reason: str = ""
    worker: str = ""
    lease: str = ""
    until: float = 0.0
    done: int = 0
    total: int = 0
    attempts: int = 0
    finished: int = 0
    """How often it became done."""
    files: dict[str, str] = field(default_factory=dict)


class Board:
    """The server: ``url`` is its address, ``requests`` what was asked of it: (method, path)."""

    def __init__(self) -> None:
        self.url = ""
        self.seconds = 60.0
        self.ask: dict[str, Any] = {"protocols": ["mmlu/cloze"], "data": ["bundled:merrowick"], "limit": 1}
        self.allow = ["bundled:*", "fake:*", "*/*"]
        self.largest = 10**9
        self.entries: dict[str, Entry] = {}
        self.parts: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], Answer | None] = lambda method, path: None
        """Called with method and path of every request: the answer in place of the right one."""
        self.listed: list[dict[str, str]] = []
        """Every listing of files that came."""
        self.lock = threading.Lock()

    def submit(self, model: str, revision: str | None = None, dtype: str | None = None) -> Entry:
        """Add a submission."""
        entry = Entry(secrets.token_hex(6), model, revision, dtype)
        self.entries[entry.id] = entry
        return entry

    def write(self, entry: Entry, folder: Path) -> Path:
        """Put what was sent of a submission into the folder, as the board does."""
        for path, sha in entry.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(self.parts[sha])
        return folder

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> Answer:
        self.requests.append((method, path))
        if (wrong := self.fault(method, path)) is not None:
            return wrong
        if not path.startswith("/work/"):
            return 404, b"<html>no such page</html>", {}
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"error": "the work token is missing or wrong"}, {}
        with self.lock:
            if path == "/work/lease":
                return self._lease(json.loads(body))
            _, _, name, *rest = path.split("/")
            asked = {"lease": headers.get("X-Lease")} if rest[0] == "part" else json.loads(body)
            entry = self.entries.get(name)
            if entry is None or entry.lease != asked["lease"] or entry.state not in ("leased", "done"):
                return 409, {"error": f"the lease of {name} is lost"}, {}
            return self._about(entry, method, rest, asked, body)

    def _lease(self, asked: dict[str, Any]) -> Answer:
        assert set(asked) == {"worker", "version"}
        now = time.monotonic()
        for entry in self.entries.values():
            if entry.state == "leased" and entry.until < now:
                entry.state = "waiting"
            if entry.state == "waiting":
                entry.state, entry.lease, entry.until = "leased", secrets.token_hex(8), now + self.seconds
                entry.attempts, entry.worker = entry.attempts + 1, asked["worker"]
                record = {key: getattr(entry, key) for key in ("id", "model", "revision", "dtype", "state")}
                policy = {"allow": self.allow, "largest": self.largest}
                ask = {**self.ask, "dtype": entry.dtype}
                given = {"submission": record, "lease": entry.lease, "seconds": self.seconds, "ask": ask}
                return 200, {**given, "policy": policy, "files": entry.files}, {}
        return 204, b"", {}

    def _about(self, entry: Entry, method: str, rest: list[str], asked: dict[str, Any], body: bytes) -> Answer:
        match (method, *rest):
            case ("POST", "renew") if entry.state == "leased":
                entry.until = time.monotonic() + self.seconds
                entry.done, entry.total = asked["done"], asked["total"]
                return 200, {"seconds": self.seconds}, {}
            case ("PUT", "part", sha):
                if hashlib.sha256(body).hexdigest() != sha:
                    return 400, {"error": "the content has another sha256"}, {}
                known = sha in self.parts
                self.parts[sha] = body
                return (200 if known else 201), {}, {}
            case ("GET", "part", sha):
                return 200, self.parts[sha], {}
            case ("POST", "files"):
                if lacking := [sha for sha in asked["files"].values() if sha not in self.parts]:
                    return 409, {"error": "parts are lacking", "lacking": lacking}, {}
                entry.files = asked["files"]
                self.listed.append(asked["files"])
                return 200, {}, {}
            case ("POST", "finish"):
                entry.finished += entry.state != "done"
                entry.state = "done"
                return 200, {}, {}
            case ("POST", "fail") if entry.state == "leased":
                entry.state, entry.reason = "waiting" if asked["again"] else "failed", asked["reason"]
                return 200, {}, {}
        return 409, {"error": "the lease is lost"}, {}


@contextmanager
def board() -> Iterator[Board]:
    """A board that answers for as long as the block lasts."""
    made = Board()
    with answering(made):
        yield made


@contextmanager
def answering(made: Board, port: int = 0) -> Iterator[None]:
    """The same with one that is there already, which may be gone in between."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(made))
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(made: Board) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # or every body waits for the client to acknowledge the headers

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content, headers = made.answer(self.command, self.path, self.headers, body)
            sent = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(sent))}.items():
                if status != 204 or name != "Content-Length":
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent)

        do_POST = do_PUT = do_GET

    return Handler
