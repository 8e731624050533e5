"""Runs for tests of the board, and a server that shows them."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import choicewise
from choicewise.extensions.board.access import VARIABLE, Access, access
from choicewise.extensions.board.library import Library
from choicewise.extensions.board.queue import SubmissionService
from choicewise.extensions.board.runs import RunProcess, answer
from choicewise.extensions.board.server import BoardServer, listen
from choicewise.records import Manifest
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.processes import ended

PROTOCOLS = ["mmlu/original", "mmlu/helm", "mmlu/cloze"]


def write_run(
    folder: Path, model: str = "fake:hash", protocols: list[str] = PROTOCOLS, questions: int = 6
) -> Path:
    """A complete run on a small dataset, the same for every run with as many questions."""
    data = write_mmlu(folder.parent / f"data-{questions}", questions=questions)
    choicewise.evaluate(model=model, data=data, protocols=protocols, out=folder)
    shutil.rmtree(data)
    return folder


def rename(folder: Path, model: str) -> Path:
    """The same run as if another model had made it."""
    return change(
        folder, lambda manifest: replace(manifest, model=replace(manifest.model, name=model))
    )


def change(folder: Path, changed: Callable[[Manifest], Manifest]) -> Path:
    """The run with another manifest."""
    write_manifest(folder, changed(read_manifest(folder)))
    return folder


def read_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boards read their runs in the tests' own process from now on: one of its own takes half a second to start."""
    told = lambda self, question, wait=None: json.loads(json.dumps(answer(question)))  # noqa: E731
    monkeypatch.setattr(RunProcess, "_ask", told)


@dataclass
class Asked:
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A server under test."""

    library: Library
    port: int
    said: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Asked:
        """One request; underscores in the names of headers stand for hyphens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        asked = Asked(
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            response.read(),
        )
        connection.close()
        return asked

    def raw(self, sent: bytes, seconds: float = 20.0) -> bytes:
        """What comes back for these bytes until the server hangs up."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            connection.sendall(sent)
            parts = []
            try:
                while part := connection.recv(65536):
                    parts.append(part)
            except ConnectionResetError:
                pass
            return b"".join(parts)

    def settle(
        self, ready: Callable[[Library], bool] = lambda library: not library.snapshot.waiting
    ) -> None:
        """Wait until the library is that far."""
        for _ in range(600):
            if self.library.snapshot.number and ready(self.library):
                return
            time.sleep(0.05)
        raise AssertionError("the library did not get that far")


@contextmanager
def served(*folders: Path, token: str | None = None, pause: float = 0.1) -> Iterator[Served]:
    """A server of these folders on a free port of this machine."""
    bound = listen("127.0.0.1", None)
    served = Served(Library(folders, pause), bound.getsockname()[1])
    with started(served, bound, access("127.0.0.1", token=token)):
        yield served


@contextmanager
def started(
    served: Served, bound: socket.socket, rules: Access, service: SubmissionService | None = None
) -> Iterator[None]:
    """The board's server runs, and its library has read the folders once."""
    server = BoardServer(served.library, rules, bound, served.said.append, service)
    server.start()
    try:
        served.settle()
        yield
    finally:
        server.stop()


def served_until(signal: int, folder: Path) -> tuple[int, str, list[int]]:
    """How `choicewise serve` ends at this signal once it has read runs and explained an item of them. Its code, what it
    said, and the processes that it started and that are still there."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-m", "choicewise", "serve", str(folder)]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            board = Served(
                Library([]), int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
            )
            while "read" not in {run["state"] for run in board.ask("/board.json").json["runs"]}:
                assert process.poll() is None
            told = board.ask("/board.json").json
            assert board.ask(f"/item/{told['columns'][0]['part']}?id=tides/test/0").status == 200
            tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
            begun = [int(child) for file in tasks for child in file.read_text().split()]
            assert len(begun) == 2, "one reads runs, one explains items"
            process.send_signal(signal)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    return process.returncode, said, [pid for pid in begun if not ended(pid)]
