"""How many requests a second a board that evaluates answers on loopback, while a run is being written into its folder.

python benchmarks/board_requests.py [--models N] [--seconds S] [--clients N] [--json FILE]

The board has N models without weights on the bundled questions, and submissions beside them.  One process after the
other writes runs into its folder; each client keeps a connection and asks one page after the other.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing import Process, Queue
from pathlib import Path
from threading import Event, Thread
from typing import Any

from board import link
from machine import machine

from choicewise.results.summary import summarize

HERE = Path(__file__).resolve().parent
PORT = 8472
RUN = ("--data", "bundled:merrowick", "--protocol", "mmlu")


def main() -> None:
    """Print and keep one JSON object per kind of request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each kind of request")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "board_requests.json")
    choice = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "runs"
        choicewise("run", "--model", "fake:hash", *RUN, "--out", str(Path(made) / "one"))
        summarize(Path(made) / "one")
        for number in range(choice.models):
            link(Path(made) / "one", folder / f"model-{number:03d}")
        with served(folder), written(folder) as finished:
            measured = [
                {"what": what, **rate(addresses, choice.clients, choice.seconds)}
                for what, addresses in kinds(folder).items()
            ]
        about = {"models": choice.models, "clients": choice.clients, "machine": machine(threads=1)}
        for one in measured:
            one |= {"runs_written": len(finished), **about}
            print(json.dumps(one))
    choice.json.parent.mkdir(parents=True, exist_ok=True)
    choice.json.write_text(json.dumps(measured, indent=1) + "\n")


def choicewise(*words: str) -> None:
    """Run a command."""
    subprocess.run([sys.executable, "-m", "choicewise", *words], check=True, capture_output=True)


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """The board, with 50 submissions, once it has read all runs."""
    command = [
        sys.executable,
        "-m",
        "choicewise",
        "serve",
        str(folder),
        "--port",
        str(PORT),
        "--submissions",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    server.stdout.readline()
    try:
        token = (folder / ".submissions" / "submit.token").read_text().strip()
        with socket.create_connection(("127.0.0.1", PORT)) as connection:
            for number in range(50):
                body = f"model=org/model-{number}&token={token}".encode()
                ask(connection, "/submissions", body)
            while json.loads(ask(connection, "/board.json"))["still_to_be_read"]:
                time.sleep(0.5)
        yield
    finally:
        server.terminate()
        server.wait()


@contextmanager
def written(folder: Path) -> Iterator[list[int]]:
    """Runs are written into the folder meanwhile, one after the other; the list grows with each that is complete."""
    finished: list[int] = []
    end = Event()

    def write() -> None:
        for number in count():
            command = [sys.executable, "-m", "choicewise", "run", "--model", "fake:oracle", *RUN]
            writer = subprocess.Popen(
                [*command, "--out", str(folder / f"written-{number}")],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while writer.poll() is None and not end.wait(0.05):
                pass
            if end.is_set():
                writer.kill()
                writer.wait()
                return
            finished.append(number)

    thread = Thread(target=write)
    thread.start()
    try:
        yield finished
    finally:
        end.set()
        thread.join()


def kinds(folder: Path) -> dict[str, list[str]]:
    """The pages that are asked, by what they show."""
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        listed = json.loads(ask(connection, "/submissions.json"))["submissions"]
        models = re.findall(r'href="(/model/[^"]+)"', ask(connection, "/").decode())
    one = [f"/submission/{each['id']}" for each in listed]
    return {
        "the board": ["/"],
        "the board as JSON": ["/board.json"],
        "models": [*dict.fromkeys(models)],
        "the list of submissions": ["/submissions"],
        "submissions": one,
        "all of them in turn": [
            "/",
            models[0],
            "/submissions",
            one[0],
            "/board.json",
            f"{one[1]}.json",
        ],
    }


def rate(addresses: list[str], clients: int, seconds: float) -> dict[str, Any]:
    """Requests a second that all clients get answered together, and how long one takes."""
    told: Queue[list[float]] = Queue()
    asking = [
        Process(target=client, args=(addresses, number, seconds, told)) for number in range(clients)
    ]
    for each in asking:
        each.start()
    taken = sorted(one for _ in asking for one in told.get())
    for each in asking:
        each.join()
    return {
        "per_second": len(taken) / seconds,
        "median": statistics.median(taken),
        "p99": taken[int(0.99 * len(taken))],
        "most": taken[-1],
    }


def client(addresses: list[str], place: int, seconds: float, told: Queue[list[float]]) -> None:
    """Ask one address after the other on one connection."""
    taken, end = [], time.perf_counter() + seconds
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        while (start := time.perf_counter()) < end:
            ask(connection, addresses[place % len(addresses)])
            taken.append(time.perf_counter() - start)
            place += 1
    told.put(taken)


def ask(connection: socket.socket, path: str, form: bytes = b"") -> bytes:
    """The content of an answer; a plain client, as a slow one would measure itself."""
    head = f"{'POST' if form else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\n"
    if form:
        head += (
            f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\n"
        )
    connection.sendall(head.encode() + b"\r\n" + form)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(262_144)
    top, _, content = answer.partition(b"\r\n\r\n")
    if int(top.split(b" ")[1]) not in (200, 303):
        raise RuntimeError(f"{path}: {top[:100]!r}")
    length = int(re.findall(rb"(?i)content-length: (\d+)", top)[0])
    parts = [content]
    while (left := length - sum(map(len, parts))) > 0:
        parts.append(connection.recv(min(left, 262_144)))
    return b"".join(parts)


if __name__ == "__main__":
    main()
