"""What a bundle asked in a training costs: seconds of asking it, against those of the steps between two times.

python benchmarks/in_loop.py [--every 1000] [--items 20] [--steps 6] [--tokens 8192] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from compare import HERE
from machine import machine
from transformers import LlamaConfig, LlamaForCausalLM

from choicewise import InLoop, write_bundle

TOKENIZER = "bundled:merrow-bpe-512"
PROTOCOLS = {"cloze": ["mmlu/cloze:sum"], "letters and cloze": ["mmlu/original", "mmlu/cloze"]}


def seconds(do: Callable[[], object]) -> float:
    """Of the wall."""
    before = time.perf_counter()
    do()
    return time.perf_counter() - before


def step(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, tokens: int) -> None:
    """One of the training."""
    ids = torch.randint(0, 512, (tokens // 512, 512))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    """Print one line of JSON a bundle and keep them with the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--every", type=int, default=1000, help="steps between two times; the default of InLoop"
    )
    parser.add_argument("--items", type=int, default=20, help="questions of the bundle")
    parser.add_argument("--steps", type=int, default=6, help="steps that are timed")
    parser.add_argument("--tokens", type=int, default=8192, help="of a step, in sequences of 512")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "in_loop.json")
    choice = parser.parse_args()
    torch.set_num_threads(choice.threads)
    torch.manual_seed(0)
    shape = {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    }
    model = LlamaForCausalLM(LlamaConfig(**shape, vocab_size=512))
    optimizer = torch.optim.AdamW(model.parameters())
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, protocols in PROTOCOLS.items():
            how = {"data": "bundled:merrowick", "sample": choice.items, "protocols": protocols}
            bundle = write_bundle(tokenizer=TOKENIZER, out=Path(folder) / name, **how)
            asks = InLoop(bundle, Path(folder) / f"{name} steps")
            asks(model, 0)  # what is loaded once
            steps, asked = [], []
            for number in range(choice.steps):
                steps.append(seconds(partial(step, model, optimizer, choice.tokens)))
                if number % 2:
                    asked.append(seconds(partial(asks, model, number)))
            mean, once = statistics.median(steps), statistics.median(asked)
            one = {
                "bundle": name,
                "questions": choice.items,
                "protocols": len(bundle.protocols),
                "rows": bundle.record.rows,
                "tokens": bundle.record.tokens,
                "parameters": sum(each.numel() for each in model.parameters()),
                "tokens of a step": choice.tokens,
                "step s": mean,
                "asked s": once,
                "every": choice.every,
                "share": once / (choice.every * mean),
                "machine": machine(threads=choice.threads),
            }
            print(json.dumps(one))
            results.append(one)
    choice.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
