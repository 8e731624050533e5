"""A padded, batched transformers loop against the token tree, in one process, in turn: the model's part alone.

python benchmarks/loop.py [--workload mmlu-letters ...] [--model 25m] [--dtype float32] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import torch
from compare import HERE, keep, spread
from data import SHARED, prepare
from limit import cost
from llama import SHAPES, VOCABULARY, llama
from machine import machine
from padded import loop
from workload import WORKLOADS, spans

from choicewise.engine import build
from choicewise.models.local.causal_lm import CausalLM, ComputePath
from choicewise.models.local.paths import compute_path, rungs
from choicewise.models.local.selfcheck import check
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.questions import Span


def score(path: ComputePath, spans: list[Span]) -> np.ndarray:
    """Sums of log-probabilities (nats)."""
    sums = np.empty(len(spans))
    for index, scores in path.score(spans):
        sums[index] = scores.logprobs.sum(dtype=np.float64)
    return sums


def main() -> None:
    """Print one line of JSON a workload and keep it with the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workload", action="append", choices=list(WORKLOADS), help="repeatable; all"
    )
    parser.add_argument("--model", choices=list(SHAPES), default="25m")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="count CPU seconds, for busy machines, with --threads 1",
    )
    parser.add_argument("--batch-tokens", type=int, help="tokens in a pack of the tree")
    parser.add_argument("--no-loop", action="store_true", help="leave the slow peer out")
    parser.add_argument("--work", type=Path, default=HERE / ".work")
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "loop.json")
    choice = parser.parse_args()
    if choice.threads:
        torch.set_num_threads(choice.threads)
    clock = time.process_time if choice.cpu_time else time.perf_counter
    data, tokenizer = prepare(choice.work, choice.shared)
    model = llama(choice.model, getattr(torch, choice.dtype), "cpu")
    lm = CausalLM(model, 4096, VOCABULARY)
    path = compute_path(check(lm, rungs(lm.device.type)).rung, lm, choice.batch_tokens)
    for name in choice.workload or list(WORKLOADS):
        workload = WORKLOADS[name]
        asked = spans(workload, data, HfTokenizer(tokenizer))
        tree = build(asked)
        turns, found = (
            [],
            {
                "clock": "cpu" if choice.cpu_time else "wall",
                "peer": "loop",
                "workload": name,
                "model": choice.model,
                "dtype": choice.dtype,
            },
        )
        for _ in range(choice.repeats):
            floor, before = cost(lm, clock).limit(tree), lm.computed
            start = clock()
            scores = score(path, asked)
            turn = {"ours s": clock() - start, "limit s": floor}
            computed = lm.computed - before
            if not choice.no_loop:
                start = clock()
                sums, peer_tokens = loop(model, asked, workload.batch)
                turn |= {"loop s": clock() - start}
                found |= {
                    "largest difference": float(np.abs(sums - scores).max()),
                    "peer tokens": peer_tokens,
                }
            turns.append(turn)
        found |= {
            "batch": workload.batch,
            "unique": len(tree),
            "computed": computed,
            "turns": turns,
        }
        found |= {"ours / limit": spread([turn["ours s"] / turn["limit s"] for turn in turns])}
        if not choice.no_loop:
            found |= {"inner": spread([turn["loop s"] / turn["ours s"] for turn in turns])}
        found |= {
            "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
            "machine": machine(threads=choice.threads),
        }
        keep(choice.results, found)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
