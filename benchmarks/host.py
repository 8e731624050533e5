"""Unique tokens a second of all that surrounds the model: a run with a real tokenizer and a model that costs nothing.

python benchmarks/host.py MMLU_FOLDER TOKENIZER_FOLDER [--subject NAME ...] [--protocol mmlu ...] [--profile]

The model builds the token tree and hands out answers as the engine does, but computes no number.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time, thread_time

import numpy as np
from machine import machine

from choicewise.data.open import open_dataset
from choicewise.engine import build
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.protocols.catalogue import resolve
from choicewise.questions import (
    KINDS,
    Answers,
    Cosine,
    Generation,
    MaskedLoss,
    Mass,
    Prompt,
    Span,
    TokenScores,
)
from choicewise.running.evaluate import evaluate
from choicewise.tokens.encode import PartwiseTokenizer

HERE = Path(__file__).parent


class FreeModel:
    """Answers everything with ln(1/2) a token after building the tree of all it is asked."""

    name, digest, dtype, device, window = "free", "0" * 64, "float32", "cpu", 4096
    kind_name = ""
    supports = KINDS

    def __init__(self, folder: Path) -> None:
        inner = HfTokenizer(folder)
        inner.eos_id = inner.eos_id or 0  # a folder without configuration names neither BOS nor EOS
        self.tokenizer = PartwiseTokenizer(inner, inner.cut)
        self.computed = self.planned = 0
        self.seconds = 0.0

    def check(self, depth: int) -> None:
        """There is nothing to choose from."""

    def objection(self, question: Prompt) -> None:
        """Everything has an answer."""

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Scored questions from one tree, in its order; the others one by one, as if they cost no token."""
        scored: list[int] = []
        spans: list[Span | Mass] = []
        for index, question in enumerate(questions):
            match question:
                case Span() | Mass():
                    scored.append(index)
                    spans.append(question)
                case MaskedLoss():
                    yield index, question.answer(0.5)
                case Cosine():
                    yield index, Cosine.answer(0.5)
                case Generation():
                    yield index, TokenScores.of([0], [-0.5], [0])
        start = thread_time()
        tree = build(spans)
        self.seconds += thread_time() - start
        self.computed += len(tree)
        self.planned = self.computed
        logprobs, ranks = (
            np.full(len(tree.rows), np.log(0.5), np.float32),
            np.zeros(len(tree.rows), np.int32),
        )
        order = np.argsort(tree.span_of, kind="stable")
        starts = tree.starts.tolist()
        for place, span in zip(order.tolist(), tree.span_of[order].tolist(), strict=True):
            part = slice(starts[span], starts[span + 1])
            yield scored[place], TokenScores(tree.targets[part], logprobs[part], ranks[part])


def main() -> None:
    """Print one line of JSON and keep it with the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--subject", action="append", help="repeatable; all")
    parser.add_argument("--protocol", action="append", help="repeatable; the family mmlu")
    parser.add_argument(
        "--profile", action="store_true", help="print where the time goes, in the main thread"
    )
    parser.add_argument("--results", type=Path, default=HERE / "results" / "host.json")
    choice = parser.parse_args()
    model, data, protocols = (
        FreeModel(choice.tokenizer),
        open_dataset(choice.data),
        choice.protocol or ["mmlu"],
    )
    profile = cProfile.Profile()
    start, cpu = perf_counter(), process_time()
    with tempfile.TemporaryDirectory() as folder:
        if choice.profile:
            profile.enable()
        evaluate(
            model=model,
            data=data,
            protocols=protocols,
            subjects=choice.subject,
            out=Path(folder) / "run",
        )
        profile.disable()
    seconds, cpu = perf_counter() - start, process_time() - cpu
    measured = {
        "subjects": ", ".join(choice.subject) if choice.subject else "all",
        "protocols": len(resolve(*protocols)),
        "tokenizer": choice.tokenizer.name,
        "unique": model.computed,
        "seconds": seconds,
        "cpu": cpu,
        "per_second": model.computed / seconds,
        "per_cpu_second": model.computed / cpu,
        "tree": model.seconds,
        "lossless": model.tokenizer.lossless,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }
    print(json.dumps(measured))
    if choice.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        return
    kept = json.loads(choice.results.read_text()) if choice.results.exists() else []
    kept = [
        one
        for one in kept
        if (one["subjects"], one["tokenizer"]) != (measured["subjects"], measured["tokenizer"])
    ]
    choice.results.write_text(
        json.dumps([*kept, {**measured, "machine": machine()}], indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
