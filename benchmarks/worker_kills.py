"""Kill -9 of workers, nodes' actors and the driver at random times: what a run over several processes holds afterwards.

python benchmarks/worker_kills.py [--runs 40] [--seed 0] [--executors local,ray]

A run of ``fake:hash`` in many small shards is answered by two processes on this machine, or by three actors on a Ray
cluster of three nodes (processes on loopback, as the tests have them). At up to four random times one of its workers or
its driver is killed; a driver that was killed, or that gave up because worker after worker died, is started again with
the same arguments, until the run has ended. Then its observations must be those of one undisturbed process to the bit,
none lost and none twice, its report the same, and no process of it may be left. Prints a line per executor, and ends
with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa
from tests.helpers.processes import stat
from tests.helpers.ray_cluster import Cluster, ray_cluster

from choicewise import engine, evaluate, open_run
from choicewise.bundled import BENCHMARK
from choicewise.errors import ModelError
from choicewise.protocols.catalogue import resolve
from choicewise.running import doctor
from choicewise.store.tables import read_blocks

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer", "arc-easy/harness"]
LIMIT = 12
SHARD = 300
"""Tokens of a shard, so that there are many."""

TRIES = 20
"""Drivers that one run may need."""

GAVE_UP = 5
"""Exit code of a driver whose workers died one after the other."""

Workers = Callable[[int], list[int]]
"""The processes that work for a driver now."""


def act(out: Path, **how: Any) -> None:
    """The run that is disturbed, or goes on."""
    evaluate(model="fake:hash", data=BENCHMARK, protocols=PROTOCOLS, limit=LIMIT, out=out, **how)


def driver(out: Path, how: dict[str, Any]) -> int:
    """The process of a driver, begun now."""
    child = os.fork()
    if not child:
        code = 1
        try:
            act(out, **how)
            code = 0
        except ModelError:
            code = GAVE_UP
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                sys.modules["ray"].shutdown()  # os._exit would leave it to find out
            os._exit(code)
    return child


def ended(child: int) -> int | None:
    """The exit code of a process, None while it runs."""
    pid, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def disturbed(
    out: Path, how: dict[str, Any], workers: Workers, seconds: float, chance: random.Random
) -> Counter[str]:
    """Run until it ends; how often what was killed."""
    killed = Counter[str]()
    planned = [chance.choice(("worker", "worker", "driver")) for _ in range(chance.randint(1, 4))]
    for _ in range(TRIES):
        child, code = driver(out, how), None
        due = time.monotonic() + chance.uniform(0.2, 1) * seconds
        while (code := ended(child)) is None:
            time.sleep(0.005)
            if not planned or time.monotonic() < due:
                continue
            due = time.monotonic() + chance.uniform(0, 0.5) * seconds
            pids = [child] if planned[-1] == "driver" else workers(child)
            if pids:
                killed[planned.pop()] += 1
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(pids), signal.SIGKILL)
        gone(lambda child=child: workers(child))
        if code == 0:
            return killed
        if code not in (-signal.SIGKILL, GAVE_UP):
            raise SystemExit(f"{out} ended with {code}")
    raise SystemExit(f"{out} did not end in {TRIES} tries")


def gone(workers: Callable[[], list[int]]) -> None:
    """Wait until no worker is left; SystemExit where one stays."""
    until = time.monotonic() + 30
    while left := workers():
        if time.monotonic() > until:
            raise SystemExit(f"workers are left: {left}")
        time.sleep(0.05)


def content(out: Path) -> dict[str, Any]:
    """Every observation as it lies there, the report, and what ``doctor`` sees."""
    run = open_run(out)
    observations: pa.Table = read_blocks(out, run.manifest.blocks, "observations").sort_by("key")
    (examined,) = doctor.examine_runs(out)
    return {
        "observations": observations,
        "doubled": observations.num_rows - len(set(observations["key"].to_pylist())),
        "report": run.report(),
        "complete": run.manifest.complete,
        "faults": [fault.problem for fault in examined.faults],
    }


def processes(marker: str) -> list[int]:
    """Processes of this script's workers, whoever their parent is now."""
    own = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            environment = (folder / "environ").read_bytes()
            command = (folder / "cmdline").read_bytes()
            if (
                b"choicewise.extensions.cluster.replica" in command
                and marker.encode() in environment
            ):
                own.append(int(folder.name))
    return [pid for pid in own if _lives(pid)]


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return stat(pid)[0] != "Z"
    return False


def actors(cluster: Cluster) -> list[int]:
    """The processes of all actors on the cluster."""
    return [pid for node in cluster.nodes for pid in node.workers()]


def trial(
    name: str, home: Path, runs: int, how: dict[str, Any], workers: Workers, chance: random.Random
) -> list[str]:
    """What differed after ``runs`` disturbed runs."""
    act(home / "alone")
    expected = content(home / "alone")
    began = time.monotonic()
    child = driver(home / f"{name}-undisturbed", how)
    while (code := ended(child)) is None:
        time.sleep(0.01)
    seconds = time.monotonic() - began
    if code:
        raise SystemExit(f"the undisturbed run ended with {code}")
    wrong: list[str] = []
    killed: Counter[str] = Counter()
    for number in range(runs):
        out = home / f"{name}-{number}"
        killed += disturbed(out, how, workers, seconds, chance)
        result = content(out)
        wrong += [
            f"{name}, run {number}: {key} differ"
            for key in expected
            if result[key] != expected[key]
        ]
    rows = expected["observations"].num_rows
    spent = time.monotonic() - began
    kills = f"{killed['worker']} workers and {killed['driver']} drivers killed"
    print(
        f"{name}: {runs} runs of {rows} observations, {kills}, {len(wrong)} differ, {spent:.0f} s",
        flush=True,
    )
    return wrong


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--runs", type=int, default=40)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--executors", default="local,ray")
    given = arguments.parse_args()
    engine.SHARD_TOKENS["cpu"] = SHARD
    resolve(*PROTOCOLS)
    kinds, wrong, chance = given.executors.split(","), list[str](), random.Random(given.seed)
    with ExitStack() as ends:
        home = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        for kind in kinds:
            folder = home / kind
            folder.mkdir()
            how: dict[str, Any] = {"executor": kind, "workers": 2 if kind == "local" else 3}
            os.environ["WORKER_KILLS"] = marker = str(folder)
            if kind == "local":
                workers: Workers = lambda child, marker=marker: processes(marker)  # type: ignore[misc]  # noqa: E731
            else:
                cluster = ends.enter_context(ray_cluster())
                os.environ |= cluster.environment
                workers = lambda child, cluster=cluster: actors(cluster)  # type: ignore[misc]  # noqa: E731
            wrong += trial(kind, folder, given.runs // len(kinds), how, workers, chance)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    total = given.runs // len(kinds) * len(kinds)
    print(f"{total} runs disturbed, {len(wrong)} differences from the undisturbed ones")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
