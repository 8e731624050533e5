"""The token tree against a padded, batched transformers loop on a CUDA device, in bfloat16, and against its floor.

    python benchmarks/gpu.py [--model 1b] [--model 7b] [--questions 60] [--json gpu.json]
    python benchmarks/gpu.py --vllm FOLDER [--questions 60] [--json gpu.json]

Needs torch, transformers and the package's ``src`` on PYTHONPATH, nothing else: prompts are random tokens in the shape
of MMLU (three subjects, five shots each).  The floor is the FLOPs of the unique tokens at the rate of the device's
own matrix products, measured in the same run.  With ``--vllm`` vLLM computes the model in that folder, asked in every
way that it has, and only that is measured: seconds, tokens computed of those unique, and how far the ways are apart.
Without a CUDA device it says so and ends well.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from limit import cost
from llama import VOCABULARY, llama
from padded import loop

from choicewise.engine import Tree, build
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.devices import PACKS
from choicewise.models.local.paths import LADDER, rungs
from choicewise.models.local.selfcheck import check
from choicewise.questions import Span

SUBJECTS, PREFIX, CHOICES = 3, 700, 4
"""Subjects, tokens of a subject's shots, choices of a question."""
QUESTION, ANSWER = (40, 160), (4, 12)
"""Fewest and most tokens of a question with its options, and of an answer's text."""
LOOP_QUESTIONS = {"letters": 60, "text": 15}
"""Questions of every subject that the loop is asked, which computes each choice's whole prompt."""


def made(kind: str, questions: int) -> list[Span]:
    """Spans of random tokens: letters, or whole texts, after a prefix that a subject's questions share."""
    random = np.random.default_rng(0)

    def draw(tokens: int) -> np.ndarray:
        return random.integers(10, VOCABULARY, tokens, dtype=np.int32)

    letters = [np.asarray([letter], dtype=np.int32) for letter in range(CHOICES)]
    spans = []
    for _ in range(SUBJECTS):
        prefix = draw(PREFIX)
        for _ in range(questions):
            context = np.concatenate([prefix, draw(int(random.integers(*QUESTION)))])
            texts = (
                letters
                if kind == "letters"
                else [draw(int(random.integers(*ANSWER))) for _ in range(CHOICES)]
            )
            spans += [Span(context, text) for text in texts]
    return spans


def flops(model: torch.nn.Module, tree: Tree) -> float:
    """Of the model on the tree's tokens: weights twice a token, attention to all ancestors, the head where read."""
    config = model.config
    head = config.vocab_size * config.hidden_size
    body = sum(weight.numel() for weight in model.model.layers.parameters())
    attention = (
        4 * config.num_hidden_layers * config.hidden_size * float(tree.depth.sum(dtype=np.float64))
    )
    return 2.0 * body * len(tree) + attention + 2.0 * head * len(np.unique(tree.rows))


def through_vllm(folder: Path, questions: int) -> dict[str, Any]:
    """Every way to ask vLLM for the same spans, each with an empty cache; the first one is held beside the others."""
    from choicewise.extensions.endpoints.vllm.engine_model import EngineModel
    from choicewise.extensions.endpoints.vllm.vllm_routes import PLACES, EngineRoute

    found: dict[str, Any] = {}
    for kind in LOOP_QUESTIONS:
        first: list[np.ndarray] | None = None
        for number in range(4):
            model = EngineModel(folder, dtype="bfloat16")  # anew, so that nothing is cached
            report = model.check(1)
            if number == 0:
                found |= {"engine": asdict(model.facts), "self-check": asdict(report)}
            ways = [way for way in model.abilities.ways if kind == "letters" or way != PLACES]
            if number >= len(ways):
                model.close()
                break
            spans = [
                Span(
                    span.context % model.abilities.vocabulary,
                    span.continuation % model.abilities.vocabulary,
                )
                for span in made(kind, questions)
            ]
            route = EngineRoute(model.abilities._replace(ways=(ways[number],)))
            before, start = model.computed, time.perf_counter()
            answers = dict(model.ask(route, [*enumerate(spans)]))
            taken = time.perf_counter() - start
            scores = [answers[index].logprobs for index in range(len(spans))]
            first = first or scores
            tree = build(spans)
            found[f"{kind}, {ways[number]}"] = {
                "seconds": taken,
                "tokens/s": len(tree) / taken,
                "computed / unique": (model.computed - before) / len(tree),
                "from the first way": max(
                    float(np.abs(a - b).max()) for a, b in zip(first, scores, strict=True)
                ),
            }
            print(f"{kind}, {ways[number]}: {found[f'{kind}, {ways[number]}']}", flush=True)
            model.close()
    return found


def matrix_rate(size: int = 8192) -> float:
    """FLOP/s of a product of two large matrices in bfloat16, the best of ten."""
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / min(seconds(lambda: left @ right) for _ in range(10))


def seconds(work: Callable[[], object]) -> float:
    """How long it takes, the device's part included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def score(path: Any, spans: Sequence[Span]) -> np.ndarray:
    """Sums of log-probabilities (nats)."""
    sums = np.empty(len(spans))
    for index, scores in path.score(spans):
        sums[index] = scores.logprobs.sum(dtype=np.float64)
    return sums


def measured(
    lm: CausalLM, rung: str, kind: str, choice: argparse.Namespace, rate: float
) -> dict[str, Any]:
    """One workload on one model: every size of pack, then the loop on as many questions as it gets done."""
    spans = made(kind, choice.questions)
    tree = build(spans)
    work = flops(lm.model, tree)
    limit = cost(lm).limit(tree)
    packs = []
    for tokens in choice.batch_tokens or [PACKS["cuda"], 4096, 8192, 32768]:
        path = LADDER[rung](lm, tokens)
        score(path, spans[: 4 * CHOICES])
        torch.cuda.reset_peak_memory_stats()
        taken = min(seconds(lambda path=path: score(path, spans)) for _ in range(choice.repeats))
        packs.append(
            {
                "batch tokens": tokens,
                "seconds": taken,
                "TFLOP/s": work / taken / 1e12,
                "of matrix rate": work / taken / rate,
                "ours / limit": taken / limit,
                "ours / floor": taken * rate / work,
                "tokens/s": len(tree) / taken,
                "peak GB": torch.cuda.max_memory_allocated() / 1e9,
            }
        )
    found = {
        "workload": kind,
        "rung": rung,
        "spans": len(spans),
        "asked": sum(span.inputs for span in spans),
        "unique": len(tree),
        "floor s": work / rate,
        "dense limit s": limit,
        "packs": packs,
    }
    return found | against_loop(lm, rung, kind, choice)


def against_loop(lm: CausalLM, rung: str, kind: str, choice: argparse.Namespace) -> dict[str, Any]:
    """The same questions by the loop and by ours, the loop with the best of its batch sizes, ours as by default."""
    spans = made(kind, min(choice.questions, LOOP_QUESTIONS[kind]))
    path = LADDER[rung](lm, PACKS["cuda"])
    score(path, spans[: 4 * CHOICES])
    taken = seconds(lambda: score(path, spans))
    scores, times = score(path, spans), {}
    sums = scores
    for batch in choice.batch:
        try:
            torch.cuda.empty_cache()
            loop(lm.model, spans[: 2 * batch], batch)
            start = time.perf_counter()
            sums, tokens = loop(lm.model, spans, batch)
            times[batch] = time.perf_counter() - start
        except torch.OutOfMemoryError:
            continue
    if not times:
        return {"loop": "ran out of memory with every batch size"}
    best = min(times, key=lambda batch: times[batch])
    chosen = scores.reshape(-1, CHOICES).argmax(1) != sums.reshape(-1, CHOICES).argmax(1)
    return {
        "loop questions": len(spans) // CHOICES,
        "loop s by batch": times,
        "loop tokens": tokens,
        "ours s on the same": taken,
        "loop / ours": times[best] / taken,
        "largest difference": float(np.abs(scores - sums).max()),
        "flips": int(chosen.sum()),
    }


def against_truth(lm: CausalLM, rung: str, questions: int = 8) -> dict[str, float]:
    """How far bfloat16 is from float32 with the same weights, by the tree and by the loop."""
    spans = made("text", questions)
    path = LADDER[rung](lm, PACKS["cuda"])
    tree, (plain, _) = score(path, spans), loop(lm.model, spans, 1)
    lm.model.float()
    torch.backends.cuda.matmul.allow_tf32 = False
    truth, _ = loop(lm.model, spans, 1)
    exact = score(LADDER[rung](lm, PACKS["cuda"]), spans)
    return {
        "tree bf16 - fp32, largest": float(np.abs(tree - truth).max()),
        "loop bf16 - fp32, largest": float(np.abs(plain - truth).max()),
        "tree bf16 - fp32, mean": float(np.abs(tree - truth).mean()),
        "loop bf16 - fp32, mean": float(np.abs(plain - truth).mean()),
        "tree fp32 - loop fp32, largest": float(np.abs(exact - truth).max()),
    }


def main() -> None:
    """Print a table on the way and everything as JSON at the end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", action="append", choices=["1b", "7b"], help="repeatable; both")
    parser.add_argument(
        "--workload", action="append", choices=list(LOOP_QUESTIONS), help="repeatable; both"
    )
    parser.add_argument("--questions", type=int, default=240, help="of every subject")
    parser.add_argument(
        "--batch-tokens", action="append", type=int, help="tokens in a pack; repeatable"
    )
    parser.add_argument(
        "--batch", action="append", type=int, help="sequences in a batch of the loop; repeatable"
    )
    parser.add_argument(
        "--rung", choices=list(LADDER), help="this one; the fastest that the self-check finds right"
    )
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument(
        "--vllm", type=Path, help="a model folder that vLLM computes; nothing else is measured then"
    )
    parser.add_argument("--json", type=Path, help="also write the results there")
    choice = parser.parse_args()
    choice.batch = choice.batch or [8, 32]
    if not torch.cuda.is_available():
        print("gpu.py: there is no CUDA device here, so there is nothing to measure")
        return
    if choice.vllm is not None:
        ways = {
            "device": torch.cuda.get_device_name(),
            **through_vllm(choice.vllm, choice.questions),
        }
        print(json.dumps(ways, indent=1))
        if choice.json:
            choice.json.write_text(json.dumps(ways, indent=1) + "\n")
        return
    rate = matrix_rate()
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "matrix TFLOP/s": rate / 1e12,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
        }
        | {"transformers": transformers.__version__},
        "models": {},
    }
    print(f"{results['device']}: {rate / 1e12:.0f} TFLOP/s in bfloat16 matrix products", flush=True)
    for shape in choice.model or ["1b", "7b"]:
        lm = CausalLM(llama(shape, torch.bfloat16, "cuda"), 4096, VOCABULARY)
        start = time.perf_counter()
        report = check(
            lm, rungs(lm.device.type) if choice.rung is None else {choice.rung: LADDER[choice.rung]}
        )
        told: dict[str, Any] = {
            "self-check s": time.perf_counter() - start,
            "self-check": asdict(report),
        }
        told["workloads"] = []
        print(f"{shape}: {report}, {told['self-check s']:.1f} s", flush=True)
        for kind in choice.workload or list(LOOP_QUESTIONS):
            told["workloads"].append(measured(lm, report.rung, kind, choice, rate))
            show(shape, told["workloads"][-1])
        if shape == "1b":
            told["numbers"] = against_truth(lm, report.rung)
            print(f"  {told['numbers']}", flush=True)
        results["models"][shape] = told
        del lm
        gc.collect()
        torch.cuda.empty_cache()
    print(json.dumps(results, indent=1))
    if choice.json:
        choice.json.write_text(json.dumps(results, indent=1) + "\n")


def show(shape: str, found: dict[str, Any]) -> None:
    """The table of one workload."""
    print(
        f"{shape} {found['workload']}: {found['asked']:,} tokens asked, {found['unique']:,} unique, {found['rung']}"
    )
    print(
        f"  {'pack':>8} {'seconds':>8} {'TFLOP/s':>8} {'of rate':>8} {'/ limit':>8} {'/ floor':>8} {'GB':>6}"
    )
    for pack in found["packs"]:
        print(
            f"  {pack['batch tokens']:>8} {pack['seconds']:>8.2f} {pack['TFLOP/s']:>8.0f} "
            f"{pack['of matrix rate']:>8.1%} {pack['ours / limit']:>8.2f} {pack['ours / floor']:>8.2f} "
            f"{pack['peak GB']:>6.1f}"
        )
    if "loop / ours" in found:
        print(
            f"  loop / ours {found['loop / ours']:.1f} on {found['loop questions']} questions "
            f"(loop {found['loop s by batch']}), largest difference {found['largest difference']:.2g}, "
            f"{found['flips']} flips",
            flush=True,
        )


if __name__ == "__main__":
    main()
