"""minicons, version 0.3.39, answering requests from a file; it runs in the peers' environment.

.venv-peers/bin/python benchmarks/peers/minicons_peer.py MODEL_FOLDER DTYPE BATCH REQUESTS.json OUT.json
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from minicons.scorer import IncrementalLMScorer
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    """Write the sums of log-probabilities in the order of the requests."""
    folder, dtype, batch, requests, out = sys.argv[1:]
    pairs = json.loads(Path(requests).read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    scorer = IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)
    start, sums, tokens = time.perf_counter(), [], 0
    for first in range(0, len(pairs), int(batch)):
        contexts, continuations = zip(*pairs[first : first + int(batch)], strict=True)
        sums += scorer.conditional_score(
            list(contexts),
            list(continuations),
            separator="",
            reduction=lambda scores: scores.sum().item(),
        )
        lengths = tokenizer(
            [context + text for context, text in pairs[first : first + int(batch)]]
        )["input_ids"]
        tokens += len(lengths) * max(map(len, lengths))
    Path(out).write_text(
        json.dumps({"sums": sums, "seconds": time.perf_counter() - start, "tokens": tokens})
    )


if __name__ == "__main__":
    main()
