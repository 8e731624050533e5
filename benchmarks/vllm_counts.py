"""What vLLM computes for the same questions: asked as ours asks it, and as lm-evaluation-harness does.

    python benchmarks/vllm_counts.py count --mmlu DIR --hellaswag FILE --arc FILE [--model FOLDER] [--json FILE]
    python benchmarks/vllm_counts.py compare VLLM_RUN LOCAL_RUN [--json FILE]

``count`` is arithmetic, from the requests alone: a cache that never forgets, of whole blocks, and requests in our
order.  ``compare`` holds the run folders of ``choicewise run --model vllm:...`` and of the same model by transformers
beside one another: the largest difference of a token, and what vLLM itself said that it read from its cache.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from choicewise import evaluate, open_run
from choicewise.bundled import MODELS
from choicewise.engine import build
from choicewise.extensions.endpoints.vllm.vllm_routes import (
    PLACES,
    PROMPTS,
    ROWS,
    TRACE,
    Abilities,
    EngineRequest,
    EngineRoute,
    hit,
)
from choicewise.models.fake import HashModel
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.questions import Answers, Prompt, Span, TokenScores
from choicewise.tokens.encode import PartwiseTokenizer

WORKLOADS = [
    ("mmlu", "mmlu/harness-v1", 0, 250),
    ("mmlu", "mmlu/harness-v1", 5, 250),
    ("hellaswag", "hellaswag/harness", 0, 125),
    ("hellaswag", "hellaswag/harness", 10, 125),
    ("arc", "arc-challenge/harness", 0, 125),
    ("arc", "arc-challenge/harness", 25, 125),
]
"""Data, protocol, shots, questions: 2,000 continuations without shots, and 2,000 with those of the leaderboards."""


class Recording(HashModel):
    """A model that scores nothing and remembers what it is asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        tokenizer = HfTokenizer(folder)
        self.tokenizer = PartwiseTokenizer(tokenizer, tokenizer.cut)
        self.window, self.asked = 1 << 20, list[Span]()

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Zeros."""
        for index, question in enumerate(questions):
            assert isinstance(question, Span)
            self.asked.append(question)
            count = len(question.continuation)
            yield (
                index,
                TokenScores.of(question.continuation, np.full(count, -1.0), np.zeros(count)),
            )


@dataclass
class Cache:
    """Whole blocks of prompts and of what was generated after them; nothing is ever dropped."""

    block: int
    known: set[bytes] = field(default_factory=set)

    def computed(self, request: EngineRequest) -> int:
        """Input tokens of ``request`` that are not in it; then they are."""
        trace = request.params.get("trace_decode_token_ids") or [0]
        tokens = np.asarray([*request.prompt, *trace[:-1]], np.int32)
        sizes = range(self.block, len(tokens) + 1, self.block)
        keys = [tokens[:size].tobytes() for size in sizes]
        most = (
            0
            if request.params.get("skip_reading_prefix_cache")
            else hit(len(request.prompt), self.block)
        )
        cached = 0
        for size, key in zip(sizes, keys, strict=True):
            if size > most or key not in self.known:
                break
            cached = size
        self.known.update(keys)
        return len(tokens) - cached


def counted(spans: Sequence[Span]) -> dict[str, Any]:
    """Tokens of the workload: unique, computed with blocks of 16 and 32, and as lm-evaluation-harness asks."""
    found: dict[str, Any] = {"continuations": len(spans), "unique": len(build(spans))}
    for block in (16, 32):
        cache, abilities = (
            Cache(block),
            Abilities((TRACE, ROWS, PLACES, PROMPTS), block, 1 << 20, 1 << 30),
        )
        requests: Iterator[EngineRequest] = EngineRoute(abilities).requests([*enumerate(spans)])
        found[f"blocks of {block}"] = sum(map(cache.computed, requests))
    # lm_eval/models/vllm_causallms.py: context and continuation as one prompt with prompt_logprobs, without the cache
    found["harness"] = sum(len(span.context) + len(span.continuation) for span in spans)
    return found


def count(choice: argparse.Namespace) -> list[dict[str, Any]]:
    """Every workload."""
    rows = []
    for name, protocol, shots, questions in WORKLOADS:
        model = Recording(choice.model)
        with tempfile.TemporaryDirectory() as folder:
            asked = f"{protocol}@shots={shots}"
            data = str(getattr(choice, name))
            evaluate(
                model=model,
                data=data,
                protocols=[asked],
                sample=questions,
                seed=1,
                out=Path(folder) / "run",
            )
        rows.append({"protocol": asked, "questions": questions, **counted(model.asked)})
        print(rows[-1], flush=True)
    return rows


def compare(ours: Path, local: Path) -> dict[str, Any]:
    """The two runs of one workload."""
    tables = [open_run(folder).observations().to_pylist() for folder in (ours, local)]
    other = {
        (row["prompt"], row["item"], row["choice"], row["part"], row["null"]): row
        for row in tables[1]
    }
    largest, tokens, ranks = 0.0, 0, 0
    for row in tables[0]:
        like = other[row["prompt"], row["item"], row["choice"], row["part"], row["null"]]
        assert (row["tokens"], row["missing"]) == (like["tokens"], like["missing"])
        largest = max(
            [
                largest,
                *(
                    abs(one - two)
                    for one, two in zip(row["logprobs"], like["logprobs"], strict=True)
                ),
            ]
        )
        ranks += sum(
            one not in (-1, two)
            for one, two in zip(row["ranks"], like["ranks"], strict=True)
            if one >= 0
        )
        tokens += len(row["tokens"])
    spent = open_run(ours).manifest.engine.spent
    assert spent is not None
    computed = {
        "unique": spent.tokens_unique,
        "computed": spent.tokens_computed,
        "asked": spent.tokens_asked,
    }
    return {
        "continuations": len(tables[0]),
        "tokens": tokens,
        "largest": largest,
        "other ranks": ranks,
        **computed,
    }


def main() -> None:
    """Count or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    counting, comparing = commands.add_parser("count"), commands.add_parser("compare")
    default = next(folder for folder in MODELS if folder.name == "merrow-bpe-2048")
    counting.add_argument("--model", type=Path, default=default, help="a folder with a tokenizer")
    for name in ("mmlu", "hellaswag", "arc"):
        counting.add_argument(f"--{name}", type=Path, required=True)
    comparing.add_argument(
        "runs", type=Path, nargs="+", help="a run by vLLM and one by transformers, in turn"
    )
    for command in (counting, comparing):
        command.add_argument("--json", type=Path, help="also write the results there")
    choice = parser.parse_args()
    pairs = (
        []
        if choice.command == "count"
        else list(zip(choice.runs[::2], choice.runs[1::2], strict=True))
    )
    rows = count(choice) if choice.command == "count" else [compare(*pair) for pair in pairs]
    print(json.dumps(rows, indent=1))
    if choice.json:
        known = json.loads(choice.json.read_text()) if choice.json.exists() else {}
        choice.json.write_text(json.dumps({**known, choice.command: rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
