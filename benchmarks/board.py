"""How long the board of many runs takes to read them, and then to answer a request; its peak memory.

python benchmarks/board.py [--run FOLDER] [--runs N] [--times N] [--json FILE]

The runs are one run of MMLU under its whole family (``--run``; made with a model without weights unless given), linked
under N names of models.  A summary of it is kept before, as every run leaves one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from machine import machine
from report import MMLU, mmlu

from choicewise.records import MANIFEST
from choicewise.results.summary import summarize
from choicewise.store.folder import read_manifest, write_manifest

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Print and keep one JSON object per request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, help="a complete run to link to")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--times", type=int, default=9, help="requests of every kind")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "board.json")
    choice = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=None if choice.run is None else choice.run.parent) as made:
        run = choice.run or mmlu(Path(made), MMLU, None)
        summarize(run)
        linked = Path(made) / "runs"
        for number in range(choice.runs):
            link(run, linked / f"model-{number:03d}")
        measured = list(board(linked, choice.runs, choice.times))
    for one in measured:
        print(json.dumps(one))
    choice.json.parent.mkdir(parents=True, exist_ok=True)
    choice.json.write_text(json.dumps(measured, indent=1) + "\n")


def link(run: Path, to: Path) -> None:
    """The same run as if a model called like the folder had made it."""
    for file in run.rglob("*"):
        if file.is_file() and file.name != MANIFEST:
            (to / file.relative_to(run)).parent.mkdir(parents=True, exist_ok=True)
            os.link(file, to / file.relative_to(run))
    manifest = read_manifest(run)
    write_manifest(to, replace(manifest, model=replace(manifest.model, name=to.name)))


def board(folder: Path, runs: int, times: int) -> Iterator[dict[str, Any]]:
    """What reading takes, and then each kind of request."""
    command = [sys.executable, "-m", "choicewise", "serve", str(folder), "--port", "8471"]
    start = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    server.stdout.readline()
    try:
        while_reading = []
        while (
            ask("/board.json?protocol=none")[1]["still_to_be_read"]
            or not ask("/board.json")[1]["runs"]
        ):
            while_reading.append(ask("/")[0])
            time.sleep(0.5)
        read = time.perf_counter() - start
        about = {"runs": runs, "machine": machine(threads=1)}
        yield {"what": "reading all runs", "seconds": read, **about}
        if while_reading:
            yield {"what": "a request meanwhile", "seconds": max(while_reading), **about}
        _, told, _ = ask("/board.json?columns=all")
        while not all(
            "rank_low" in cell and cell["rank_low"] for cell in told["models"][0]["cells"].values()
        ):
            time.sleep(1)
            _, told, _ = ask("/board.json?columns=all")
        yield {
            "what": "rank ranges of all columns as well",
            "seconds": time.perf_counter() - start,
            **about,
        }
        for what, asked in addresses(told, times).items():
            answers = [ask(address) for address in asked]
            taken, size = [seconds for seconds, _, _ in answers], answers[0][2]
            yield {
                "what": what,
                "seconds": statistics.median(taken),
                "most": max(taken),
                "bytes": size,
                **about,
            }
        yield {"what": "peak memory", "GB": peak(server.pid), **about}
    finally:
        server.terminate()
        server.wait()


def addresses(told: dict[str, Any], times: int) -> dict[str, list[str]]:
    """By what they show, as many of each kind; all differ, so that none is answered from what is kept."""
    models = re.findall(r'<th scope="row"><a href="(/model/[^"]+)"', ask_text("/"))
    columns, numbers = told["columns"], range(times)
    return {
        "board, headline columns": [f"/?sort=x{number}" for number in numbers],
        "board, sorted by another column": [
            f"/?sort={columns[number]['id']}" for number in numbers
        ],
        "board, one family": [f"/?family=cloze&sort=x{number}" for number in numbers],
        "board, all columns": [f"/?columns=all&sort=x{number}" for number in numbers],
        "board as JSON": [f"/board.json?sort=x{number}" for number in numbers],
        "board as CSV": [f"/board.csv?sort=x{number}" for number in numbers],
        "a model": [models[number] for number in numbers],
        "a protocol": [f"/protocol/{columns[number]['p'][1:]}" for number in numbers],
        "an item": [f"/item/{columns[0]['part']}?id=anatomy/test/{number}" for number in numbers],
    }


def ask(path: str) -> tuple[float, Any, int]:
    """Seconds, the answer as JSON where it is, and its bytes."""
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", 8471, timeout=600)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    taken = time.perf_counter() - start
    if response.status != 200:
        raise RuntimeError(f"{path}: {response.status} {body[:200]!r}")
    return taken, json.loads(body) if ".json" in path else None, len(body)


def ask_text(path: str) -> str:
    """The answer as text."""
    connection = http.client.HTTPConnection("127.0.0.1", 8471, timeout=600)
    connection.request("GET", path)
    return connection.getresponse().read().decode()


def peak(pid: int) -> float:
    """The peak resident memory of a process in GB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1e6


if __name__ == "__main__":
    main()
