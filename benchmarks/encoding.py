"""Seconds from questions to tokens: every text of the 5-shot MMLU protocols, encoded in parts or whole.

    RAYON_NUM_THREADS=2 taskset -c 0,1 python benchmarks/encoding.py MMLU_FOLDER TOKENIZER_FOLDER [--whole]

One measurement per process, so that the peak of memory is its own.
"""

from __future__ import annotations

import argparse
import resource
from pathlib import Path
from time import perf_counter, process_time

from workload import requests

from choicewise.data.open import open_dataset
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.protocols.catalogue import resolve
from choicewise.tokens.boundary import choice_prompts_batch
from choicewise.tokens.encode import Encodings, PartwiseTokenizer

PROTOCOLS = ("mmlu/original", "mmlu/helm", "mmlu/harness-v0")


class Timed(PartwiseTokenizer):
    """Counts texts, their characters and the seconds it takes to encode them."""

    texts = characters = 0
    seconds = 0.0

    def encode(self, texts, *, special):
        """As the tokenizer it is, with a clock."""
        start = perf_counter()
        found = super().encode(texts, special=special)
        self.seconds += perf_counter() - start
        self.texts += len(texts)
        self.characters += sum(map(len, texts))
        return found


def main() -> None:
    """Print one line of figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--whole", action="store_true", help="encode every text whole")
    parser.add_argument("--subjects", type=int, help="only the first N subjects")
    wanted = parser.parse_args()
    data, inner = open_dataset(wanted.data), HfTokenizer(wanted.tokenizer)
    tokenizer = Timed(inner, None if wanted.whole else inner.cut)
    recipes = {recipe.prompt_digest: recipe for recipe in resolve(*PROTOCOLS).values()}.values()
    start, rendering, questions = perf_counter(), 0.0, 0
    for subject in list(data.choose("test", None))[: wanted.subjects]:
        for recipe in recipes:
            before = perf_counter()
            asked = list(requests(recipe, data, subject))
            contexts = [request.context() for request in asked]
            rendering += perf_counter() - before
            continuations, golds = zip(
                *((request.continuations, request.gold) for request in asked), strict=True
            )
            choice_prompts_batch(
                Encodings(tokenizer, recipe.bos), recipe.boundary, contexts, continuations, golds
            )
            questions += len(asked)
    total = perf_counter() - start
    boundary = total - rendering - tokenizer.seconds
    print(
        f"{wanted.tokenizer.name} {'in parts' if tokenizer.rule else 'whole'}: {questions} questions, "
        f"{tokenizer.texts} texts, {tokenizer.characters / 1e6:.0f} M characters; "
        f"{total:.1f} s ({process_time():.1f} s of CPU, start included) = "
        f"render {rendering:.1f} + encode {tokenizer.seconds:.1f} + boundary {boundary:.1f}; "
        f"{tokenizer.characters / tokenizer.seconds / 1e6:.1f} M characters/s; "
        f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()
