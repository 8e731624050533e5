"""A board that takes submissions, under test, and what a worker beside it does."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

from choicewise.extensions.board import queue as queue_module
from choicewise.extensions.board.access import access
from choicewise.extensions.board.library import Library
from choicewise.extensions.board.queue import Lease, Queue, SubmissionService
from choicewise.extensions.board.server import listen
from choicewise.extensions.board.submission import Policy
from choicewise.records import CellRecord, Sweep
from choicewise.store.folder import write_sweep
from tests.helpers.board import Asked, Served, started, write_run

SUBMIT, READ = "the-token-of-who-submits", "the-token-of-readers"
POLICY = Policy(("bundled:*", "*/*", "fake:*"))


@dataclass
class Clock:
    """A clock that goes when a test says so."""

    time: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time


@dataclass
class Evaluating(Served):
    """A board under test that evaluates."""

    service: SubmissionService | None = None
    clock: Clock | None = None

    @property
    def queue(self) -> Queue:
        assert self.service is not None
        return self.service.queue

    def submit(self, model: str, token: str = SUBMIT, **further: Any) -> Asked:
        """By JSON, as a program does."""
        return self.send("/submissions", {"model": model, **further}, token)

    def form(self, body: str, **headers: str) -> Asked:
        """By the form, as a browser does."""
        kind = "application/x-www-form-urlencoded"
        return self.ask("/submissions", "POST", body.encode(), content_type=kind, **headers)

    def send(self, path: str, values: Any, token: str = SUBMIT) -> Asked:
        body = json.dumps(values).encode()
        return self.ask(
            path, "POST", body, authorization=f"Bearer {token}", content_type="application/json"
        )

    def lease(self, worker: str = "worker") -> Lease | None:
        """What a worker gets; None where nothing waits."""
        return self.queue.lease(worker)

    def finish(self, lease: Lease, runs: Path) -> None:
        """What a worker does at its end, with runs that lie elsewhere."""
        assert self.service is not None
        copytree(runs, self.service.unfinished(lease.submission))
        self.service.finish(lease)

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
    asked = queue_module.Asked(("mmlu",), ("bundled:merrowick",), 2, policy)
    service = SubmissionService.begin(board, board / ".submissions", asked)
    if clock is not None:
        service.queue.close()
        service.queue = Queue(board / ".submissions" / "queue.sqlite3", clock)
    served = Evaluating(library, bound.getsockname()[1], [], service, clock)
    with started(served, bound, access("127.0.0.1", token=token, submit=SUBMIT), service):
        yield served


def write_sent(
    folder: Path, model: str = "fake:hash", data: Mapping[str, int] | None = None
) -> Path:
    """A sweep as a worker has it at its end: complete runs of one model, and what it says of itself."""
    cells = []
    for name, questions in (data or {"merrowick": 6}).items():
        write_run(folder / "model" / name, model=model, questions=questions)
        cells.append(CellRecord(model, name, f"model/{name}", "0" * 64, done=True))
    write_sweep(folder, Sweep(("mmlu",), (), tuple(cells)))
    return folder
