"""The dense limit: what the unique tokens cost at the speed of one long forward pass, plus the rows that are read."""

from __future__ import annotations

import time

import numpy as np
import torch

from choicewise.engine.tree import Tree
from choicewise.models.causal import CausalLM

ROWS, LENGTH, READ = 8, 512, 512


@torch.inference_mode()
def limit(lm: CausalLM, tree: Tree) -> float:
    """Seconds: unique tokens x cost of a token in a dense forward + distinct rows read x cost of a row of the head."""
    tokens = torch.randint(0, lm.vocabulary, (ROWS, LENGTH), device=lm.device)
    body = _seconds(lambda: lm.body(input_ids=tokens, use_cache=False)) / tokens.numel()
    hidden = lm.body(input_ids=tokens, use_cache=False)[0][0][:READ]
    rows, targets = np.arange(len(hidden), dtype=np.int32), np.zeros(len(hidden), dtype=np.int32)
    head = _seconds(lambda: lm.read(hidden, rows, targets)) / len(hidden)
    return len(tree) * body + len(np.unique(tree.rows)) * head


def _seconds(work: object, times: int = 3) -> float:
    """The best of a few tries, so that a busy machine does not make the limit look generous."""
    best = float("inf")
    for _ in range(times + 1):
        _wait()
        start = time.perf_counter()
        work()  # type: ignore[operator]
        _wait()
        best = min(best, time.perf_counter() - start)
    return best


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
