"""Two workers of one thread each against one such worker on the same work, in alternating turns.

python benchmarks/parallel.py [--executor ray|local] [--turns 2] [--subjects 30]

Whole commands on MMLU, and the same without what a run of two subjects takes, as the throughput once all replicas
answer.  Tokens computed are those that all workers count, without self-checks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare import spread
from counts import real, total
from data import SHARED, prepare
from llama import SHAPES
from machine import machine
from small_runs import QUESTIONS, SMALL, SmallRuns

HERE = Path(__file__).resolve().parent
THROUGHPUT, COMPUTED = 1.7, 1.02
"""What is hoped for: at least, and at most."""


def measured(
    executor: str, shape: str, subjects: int, turns: int, work: Path, shared: Path
) -> dict[str, Any]:
    """Seconds of every turn, and the ratios of their pairs."""
    made, tokenizer = prepare(work, shared)
    try:
        data, is_real = real(work, shared) / "mmlu", True
    except FileNotFoundError:
        data, is_real = made / "mmlu", False
    runs = SmallRuns(executor, shape, data, tokenizer, work)
    sizes = {"short": min(SMALL, len(runs.names)), "long": min(subjects, len(runs.names))}
    unique = {name: total(runs.blocks(size)) for name, size in sizes.items()}
    told = [
        _turn(runs, sizes, unique, (1, 2) if turn % 2 == 0 else (2, 1)) for turn in range(turns)
    ]
    return {
        "executor": executor,
        "model": shape,
        "real": is_real,
        "questions": QUESTIONS * sizes["long"],
        "unique": unique["long"],
        "turns": told,
        **{name: spread([turn[name] for turn in told]) for name in told[0] if " / " in name},
        "targets": [THROUGHPUT, COMPUTED] if executor == "ray" else None,
        "machine": machine(threads=1),
    }


def _turn(
    runs: SmallRuns, sizes: Mapping[str, int], unique: Mapping[str, int], order: Sequence[int]
) -> dict[str, float]:
    """One worker and two, short and long; what a short run computes beside its questions are self-checks."""
    seconds: dict[tuple[int, str], float] = {}
    computed: dict[tuple[int, str], int] = {}
    for workers in order:
        for name, size in sizes.items():
            seconds[workers, name] = runs.seconds(workers, size)
            computed[workers, name] = runs.computed
    turn = {f"{workers} {name} s": value for (workers, name), value in seconds.items()}
    for workers in order:
        checks = computed[workers, "short"] - unique["short"]
        turn[f"{workers} checks"] = checks
        turn[f"computed by {workers} / unique"] = (computed[workers, "long"] - checks) / unique[
            "long"
        ]
    one, two = (seconds[workers, "long"] - seconds[workers, "short"] for workers in (1, 2))
    turn |= {"two / one": one / two, "two / one, whole": seconds[1, "long"] / seconds[2, "long"]}
    print(json.dumps(turn), file=sys.stderr, flush=True)
    return turn


def main() -> None:
    """Print the ratios; each executor replaces its earlier figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--executor", action="append", choices=["ray", "local"], help="repeatable; ray"
    )
    parser.add_argument("--model", choices=list(SHAPES), default="25m")
    parser.add_argument("--subjects", type=int, default=30, help="of MMLU, ten questions each")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument(
        "--work", type=Path, default=HERE / ".work", help="where models and data are made"
    )
    parser.add_argument("--shared", type=Path, default=SHARED, help="real data, else made up")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "parallel.json")
    choice = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        print("parallel.py: there is one core here, which two workers would share")
        return
    kept = json.loads(choice.results.read_text()) if choice.results.exists() else []
    for executor in choice.executor or ["ray"]:
        found = measured(
            executor, choice.model, choice.subjects, choice.turns, choice.work, choice.shared
        )
        print(
            json.dumps(
                {name: value for name, value in found.items() if name not in ("turns", "machine")}
            )
        )
        kept = [one for one in kept if one["executor"] != executor] + [found]
    choice.results.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
