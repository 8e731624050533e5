"""A cluster planned: real evaluations counted, small runs measured and simulated, large ones simulated.

python benchmarks/cluster.py [--only counts|runs|plans] [--evaluation mmlu/harness-v0.4] [--executor local|ray]

``counts``: tokens, bytes and shards of whole evaluations, and the driver's seconds (four minutes).  ``runs``: whole
commands with one and two workers of a thread each, and what the simulation makes of them (eight minutes).  ``plans``:
70 billion parameters on 64 GPUs, and a thousand models, simulated from the counts (seconds).  Without the real data it
says so and does nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from counts import EVALUATIONS, TOKENIZER, count, real, shards
from data import SHARED
from machine import machine
from scheduler import Cluster, Job, Node, Outcome, simulate
from small_runs import measured

HERE = Path(__file__).resolve().parent

RATE, EFFICIENCY = 989e12, 0.4
"""Assumed: FLOP/s of an H100 or H200 SXM in dense bfloat16 products (NVIDIA's data sheet), and how much of it a run
reaches.  ``benchmarks/gpu.py`` measures both."""
READ, IMPORTING, CHECKING = 2e9, 20.0, 60.0
"""Assumed: bytes a second of weights from disk, for one replica; seconds of importing, and of the self-check."""
NODES, GPUS, GPU_GB, HOST_GB = 8, 8, 141, 2000
"""Assumed: 8 nodes of 8 H200."""
DEATHS = 6.0
"""In the cases with failures: deaths of a replica in an hour."""


@dataclass(frozen=True)
class Shape:
    """A model as planning sees it: parameters, layers, heads of keys and values, and their width."""

    name: str
    parameters: float
    layers: int
    heads: int
    width: int = 128

    @property
    def weights(self) -> float:
        """GB in 16 bits."""
        return self.parameters * 2 / 1e9

    @property
    def token(self) -> int:
        """Bytes of a token's keys and values in 16 bits."""
        return 2 * 2 * self.layers * self.heads * self.width

    @property
    def speed(self) -> float:
        """Tokens a second of one GPU: where a model is spread by its layers, one GPU works at a time."""
        return RATE * EFFICIENCY / (2 * self.parameters)

    @property
    def start(self) -> float:
        """Seconds until a replica answers."""
        return IMPORTING + self.weights * 1e9 / READ + CHECKING


SHAPES = (
    Shape("1.5B", 1.5e9, 28, 2),
    Shape("8B", 8.0e9, 32, 8),
    Shape("14B", 14.8e9, 48, 8),
    Shape("70B", 70.6e9, 80, 8),
)
THOUSAND = {"1.5B": 600, "8B": 300, "14B": 80, "70B": 20}


def job(
    shape: Shape, counts: Sequence[Mapping[str, Any]], replicas: int, gpus: int, name: str = ""
) -> Job:
    """An evaluation, by the counts of its parts, with a model of this shape on replicas of so many GPUs."""
    blocks = [block for each in counts for block in shards(each["blocks"]["cuda"], each["repeat"])]
    unique = sum(each["unique"] * each["repeat"] for each in counts)
    seconds = sum(each["driver"] * each["repeat"] for each in counts)
    found = Job(name or shape.name, blocks, replicas, shape.speed, unique / seconds, shape.start)
    return replace(found, gpus=gpus, memory=shape.weights)


def cluster(nodes: int = NODES, failures: float = 0.0) -> Cluster:
    """Nodes as assumed."""
    return Cluster([Node(GPUS, HOST_GB)] * nodes, begin=10.0, failures=failures, restart=30.0)


def plans(counted: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The cases of docs/cluster.md, simulated."""
    large, told = SHAPES[-1], []
    for name, counts in counted.items():
        for gpus in (8, 4, 2):
            one = job(large, counts, NODES * GPUS // gpus, gpus)
            told.append(_case(f"70B, {gpus} GPUs a replica", name, [one], cluster()))
        one = job(large, counts, NODES * GPUS // 2, 2)
        told.append(
            _case(
                "70B, 2 GPUs a replica, each dies every ten minutes",
                name,
                [one],
                cluster(failures=DEATHS),
            )
        )
    suite = counted["leaderboard/2023-06"]
    return told + [
        _thousand(suite, drivers, replicas)
        for drivers, replicas in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 8))
    ]


def _thousand(suite: Sequence[Mapping[str, Any]], drivers: int, replicas: int) -> dict[str, Any]:
    """A thousand models, largest first, dealt out to drivers with as many nodes each."""
    shapes = [shape for shape in reversed(SHAPES) for _ in range(THOUSAND[shape.name])]
    jobs = [
        job(shape, suite, replicas, 1 + (shape.name == "70B"), f"{shape.name} {n}")
        for n, shape in enumerate(shapes)
    ]
    parts = [jobs[driver::drivers] for driver in range(drivers)]
    outcomes = [simulate(part, cluster(NODES // drivers)) for part in parts]
    name = f"1,000 models, {_some(drivers, 'driver')}, {_some(replicas, 'replica')} a model"
    return _told(name, "leaderboard/2023-06", jobs, outcomes)


def _some(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"


def _case(name: str, evaluation: str, jobs: Sequence[Job], where: Cluster) -> dict[str, Any]:
    return _told(name, evaluation, jobs, [simulate(jobs, where)])


def _told(
    name: str, evaluation: str, jobs: Sequence[Job], outcomes: Sequence[Outcome]
) -> dict[str, Any]:
    """``floor``: seconds of the products alone on all 64 GPUs."""
    unique = sum(one.unique for one in outcomes)
    flops = sum(2 * each.unique * RATE * EFFICIENCY / (2 * each.speed) for each in jobs)
    makespan = max(one.makespan for one in outcomes)
    return {
        "case": name,
        "evaluation": evaluation,
        "unique": unique,
        "floor": flops / (NODES * GPUS * RATE * EFFICIENCY),
        "makespan": makespan,
        "utilisation": sum(one.busy for one in outcomes) / sum(one.held for one in outcomes),
        "driver": max(one.driver_share for one in outcomes),
        "computed": sum(one.unique * one.computed for one in outcomes) / unique,
        "deaths": sum(one.deaths for one in outcomes),
        "gpu hours": makespan * NODES * GPUS / 3600,
    }


def main() -> None:
    """Write ``results/cluster.json``; what is not asked for stays as it was."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=["counts", "runs", "plans"], help="repeatable; all"
    )
    parser.add_argument(
        "--evaluation", action="append", choices=list(EVALUATIONS), help="to count; repeatable; all"
    )
    parser.add_argument(
        "--executor", action="append", choices=["local", "ray"], help="to measure; repeatable; both"
    )
    parser.add_argument(
        "--work", type=Path, default=HERE / ".work", help="where models and data are made"
    )
    parser.add_argument("--shared", type=Path, default=SHARED, help="where the real data is")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "cluster.json")
    choice = parser.parse_args()
    found: dict[str, Any] = (
        json.loads(choice.results.read_text()) if choice.results.exists() else {}
    )
    parts = choice.only or ["counts", "runs", "plans"]
    try:
        data = real(choice.work, choice.shared)
    except FileNotFoundError as error:
        print(f"cluster.py: {error}")
        return
    tokenizer = choice.shared / "tokenizers" / TOKENIZER
    if "counts" in parts:
        found.setdefault("counts", {})
        for name in choice.evaluation or EVALUATIONS:
            found["counts"][name] = [
                asdict(count(part, data, tokenizer)) for part in EVALUATIONS[name]
            ]
            print(f"counted {name}", file=sys.stderr, flush=True)
    if "runs" in parts:
        kept = {one["executor"]: one for one in found.get("runs", [])}
        for executor in choice.executor or ["local", "ray"]:
            kept[executor] = measured(executor, choice.work, choice.shared)
            print(json.dumps(kept[executor]["cases"], indent=1), file=sys.stderr, flush=True)
        found["runs"] = list(kept.values())
    if "plans" in parts:
        found["shapes"] = [
            asdict(one)
            | {"weights": one.weights, "token": one.token, "speed": one.speed, "start": one.start}
            for one in SHAPES
        ]
        found["plans"] = plans(found["counts"])
    found["machine"] = machine(threads=1)
    choice.results.write_text(_lines(found))
    for each in found.get("plans", []):
        print(json.dumps(each))


def _lines(found: Mapping[str, Any]) -> str:
    """JSON with a line for every entry, since the shards are thousands of numbers."""
    parts = (f'"{name}": {json.dumps(value)}' for name, value in found.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
