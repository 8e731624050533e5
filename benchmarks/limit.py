"""The dense limit: what the unique tokens cost at the speed of one long forward pass, plus the rows that are read.

python benchmarks/limit.py MODEL_FOLDER DTYPE OUT.json      seconds per token and per row, in a process of its own
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from choicewise.engine import Tree
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.products import ONEDNN, use_products

ROWS, LENGTH, READ = 8, 512, 512
Clock = Callable[[], float]


@dataclass(frozen=True)
class Cost:
    """Seconds per token of a dense forward without the head, and per row of the head with its softmax."""

    token: float
    row: float

    def limit(self, tree: Tree) -> float:
        """Seconds: unique tokens x cost of a token + distinct rows read x cost of a row."""
        return len(tree) * self.token + len(np.unique(tree.rows)) * self.row


@torch.inference_mode()
def cost(lm: CausalLM, clock: Clock = time.perf_counter) -> Cost:
    """Both costs, measured now: the machine's speed differs from one minute to the next."""
    tokens = torch.randint(0, lm.vocabulary, (ROWS, LENGTH), device=lm.device)
    body = _seconds(lambda: lm.body(input_ids=tokens, use_cache=False), clock) / tokens.numel()
    hidden = lm.body(input_ids=tokens, use_cache=False)[0][0][:READ]
    rows, targets = np.arange(len(hidden), dtype=np.int32), np.zeros(len(hidden), dtype=np.int32)
    return Cost(body, _seconds(lambda: lm.read(hidden, rows, targets), clock) / len(hidden))


def _seconds(work: Callable[[], object], clock: Clock, times: int = 3) -> float:
    """The best of a few tries, so that a busy machine does not make the limit look generous."""
    best = float("inf")
    for _ in range(times + 1):
        _wait()
        start = clock()
        work()
        _wait()
        best = min(best, clock() - start)
    return best


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    """Write both costs of a model folder."""
    from transformers import AutoModelForCausalLM

    folder, dtype, out = sys.argv[1:]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    lm = CausalLM(model, 4096, model.config.vocab_size)
    clocks = {"wall": time.perf_counter, "cpu": time.process_time}
    found = {name: cost(lm, clock) for name, clock in clocks.items()}
    if dtype == "float32" and lm.device.type == "cpu":
        # The limit is that of the faster library, whichever the rule chooses here.
        use_products(model, ONEDNN)
        for name, clock in clocks.items():
            other = cost(lm, clock)
            found[name] = Cost(min(found[name].token, other.token), min(found[name].row, other.row))
    Path(out).write_text(json.dumps({name: asdict(costs) for name, costs in found.items()}))


if __name__ == "__main__":
    main()
