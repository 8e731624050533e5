"""Time the token tree against a padded transformers loop and the dense limit, in one process, in turn."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time

import numpy as np
import torch
from limit import limit
from llama import SHAPES, VOCABULARY, llama
from loop import loop
from workload import PROTOCOLS, mmlu

from choicewise.engine.span import Span
from choicewise.engine.tree import build
from choicewise.models.causal import CausalLM
from choicewise.models.ladder import Path
from choicewise.models.selfcheck import choose_path

SUBJECTS = ["astronomy", "high_school_statistics", "professional_medicine"]


def ours(path: Path, spans: list[Span]) -> np.ndarray:
    """Sums of log-probabilities (nats)."""
    sums = np.empty(len(spans))
    for index, scores in path.score(spans):
        sums[index] = scores.logprobs.sum(dtype=np.float64)
    return sums


def main() -> None:
    """Print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=PROTOCOLS, default="letters")
    parser.add_argument("--model", choices=SHAPES, default="25m")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", help="a folder in the original MMLU layout")
    parser.add_argument("--tokenizer", help="a folder with a tokenizer.json")
    parser.add_argument("--questions", type=int, default=60, help="of every subject")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="sequences in a batch of the loop")
    parser.add_argument("--batch-tokens", type=int, help="tokens in a pack of the tree")
    parser.add_argument("--no-loop", action="store_true", help="leave the slow peer out")
    choice = parser.parse_args()
    model = llama(choice.model, getattr(torch, choice.dtype), choice.device)
    lm = CausalLM(model, window=4096, vocabulary=VOCABULARY)
    path, report = choose_path(lm, choice.batch_tokens)
    spans = mmlu(choice.workload, choice.data, choice.tokenizer, SUBJECTS, choice.questions)
    tree = build(spans)
    asked = sum(len(span.context) + len(span.continuation) - 1 for span in spans)
    print(json.dumps({"rung": report.rung, "difference": report.difference, "floor": report.floor}))
    print(json.dumps({"spans": len(spans), "tokens asked": asked, "unique": len(tree)}), flush=True)
    ratios, limits = [], []
    for _ in range(choice.repeats):
        floor = limit(lm, tree)
        start = time.perf_counter()
        scores = ours(path, spans)
        seconds = time.perf_counter() - start
        limits.append(seconds / floor)
        told = {"ours s": round(seconds, 3), "limit s": round(floor, 3), "ours / limit": round(limits[-1], 3)}
        if not choice.no_loop:
            start = time.perf_counter()
            sums, computed = loop(model, spans, choice.batch)
            theirs = time.perf_counter() - start
            ratios.append(theirs / seconds)
            told |= {"loop s": round(theirs, 2), "loop / ours": round(ratios[-1], 2), "loop tokens": computed}
            told |= {"largest difference": float(np.abs(sums - scores).max())}
        print(json.dumps(told), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if choice.device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 1e9
    told = {"ours / limit, median": round(statistics.median(limits), 3), "peak memory GB": round(peak, 2)}
    print(json.dumps(told | ({"loop / ours, median": round(statistics.median(ratios), 2)} if ratios else {})))


if __name__ == "__main__":
    main()
