"""A board that takes submissions, under test, and a worker of a few lines that asks it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from choicewise import __version__
from choicewise.board.access import access
from choicewise.board.library import Library
from choicewise.board.protocol import Ask, Desk
from choicewise.board.queue import Queue
from choicewise.board.server import BoardServer, listen
from choicewise.board.submission import Policy
from choicewise.board.submission_routes import Submissions, Tokens
from choicewise.records import SUMMARY, CellRecord, Sweep
from choicewise.store.manifest import write_sweep

from .board import Asked, Served, write_run

SUBMIT, WORK, READ = "the-token-of-who-submits", "the-token-of-workers", "the-token-of-readers"
POLICY = Policy(("bundled:*", "*/*", "fake:*"))
ASK = Ask(("mmlu",), ("bundled:merrowick",), 2)


class Clock:
    """A clock that goes when a test says so."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time


@dataclass
class Evaluating(Served):
    """A board under test that evaluates."""

    desk: Desk | None = None
    clock: Clock | None = None

    @property
    def queue(self) -> Queue:
        assert self.desk is not None
        return self.desk.queue

    def submit(self, model: str, token: str = SUBMIT, **further: Any) -> Asked:
        """By JSON, as a program does."""
        return self.send("/submissions", {"model": model, **further}, token)

    def form(self, body: str, **headers: str) -> Asked:
        """By the form, as a browser does."""
        kind = "application/x-www-form-urlencoded"
        return self.ask("/submissions", "POST", body.encode(), content_type=kind, **headers)

    def send(self, path: str, values: Any, token: str = WORK) -> Asked:
        body = json.dumps(values).encode()
        return self.ask(path, "POST", body, authorization=f"Bearer {token}", content_type="application/json")

    def lease(self, worker: str = "worker") -> Any:
        """What a worker gets; None where nothing waits."""
        asked = self.send("/work/lease", {"worker": worker, "version": __version__})
        assert asked.status in (200, 204), asked.text
        return asked.json if asked.status == 200 else None

    def put(self, name: str, lease: str, content: bytes, sha256: str = "", token: str = WORK) -> Asked:
        named = sha256 or hashlib.sha256(content).hexdigest()
        return self.ask(f"/work/{name}/part/{named}", "PUT", content, authorization=f"Bearer {token}", x_lease=lease)

    def get(self, name: str, lease: str, sha256: str) -> Asked:
        return self.ask(f"/work/{name}/part/{sha256}", authorization=f"Bearer {WORK}", x_lease=lease)

    def send_folder(self, name: str, lease: str, folder: Path) -> dict[str, str]:
        """Send every file of a sweep but the summaries, then the listing of them."""
        files = {}
        for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMMARY):
            content = file.read_bytes()
            assert self.put(name, lease, content).status in (200, 201)
            files[file.relative_to(folder).as_posix()] = hashlib.sha256(content).hexdigest()
        asked = self.send(f"/work/{name}/files", {"lease": lease, "files": files})
        assert asked.status == 200, asked.text
        return files

    def record(self, name: str) -> Any:
        """What the board says of a submission."""
        return self.ask(f"/submission/{name}.json").json


@contextmanager
def evaluating(
    board: Path, token: str | None = None, clock: Clock | None = None, policy: Policy = POLICY
) -> Iterator[Evaluating]:
    """A server of the folder ``board`` that takes submissions, on a free port."""
    board.mkdir(parents=True, exist_ok=True)
    library, bound = Library([board], 0.1), listen("127.0.0.1", None)
    desk = Desk(board, board / ".submissions", ASK, policy)
    if clock is not None:
        desk.queue.close()
        desk.queue = Queue(board / ".submissions" / "queue.sqlite3", clock)
    served = Evaluating(library, bound.getsockname()[1], [], desk, clock)
    submissions = Submissions(desk, Tokens(SUBMIT, WORK), served.said.append)
    server = BoardServer(library, access("127.0.0.1", token=token), bound, served.said.append, submissions)
    server.start()
    try:
        served.settle()
        yield served
    finally:
        server.stop()


def write_sent(folder: Path, model: str = "fake:hash", data: Mapping[str, int] | None = None) -> Path:
    """A sweep as a worker has it at its end: complete runs of one model, and what it says of itself."""
    cells = []
    for name, questions in (data or {"merrowick": 6}).items():
        write_run(folder / "model" / name, model=model, questions=questions)
        cells.append(CellRecord(model, name, f"model/{name}", "0" * 64, done=True))
    write_sweep(folder, Sweep(("mmlu",), (), tuple(cells)))
    return folder
