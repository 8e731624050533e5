"""What the benchmarks ask: the spans of published protocols on real or bundled questions."""

from __future__ import annotations

from dataclasses import dataclass

from choicewise.bundled import BENCHMARK
from choicewise.data.open import open_dataset
from choicewise.engine.asking import Asking
from choicewise.engine.span import Span
from choicewise.engine.tokenizer import ByteTokenizer, Tokenizer
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.render import render
from choicewise.protocols.shots import sample

PROTOCOLS = {"letters": "mmlu/original", "text": "mmlu/letter-text", "cloze": "mmlu/cloze"}


@dataclass
class Asker:
    """A tokenizer and a window, which is all that asking needs of a model."""

    tokenizer: Tokenizer
    window: int = 4096


def mmlu(workload: str, data: str | None, tokenizer: str | None, subjects: list[str], questions: int) -> list[Span]:
    """The spans of one workload: the first ``questions`` of every subject."""
    recipe = next(iter(resolve(PROTOCOLS[workload]).values()))
    dataset = open_dataset(data or BENCHMARK)
    asker = Asker(_tokenizer(tokenizer))
    asking = Asking()
    for subject in dataset.choose(recipe.split, subjects if data else None)[:3]:
        items = dataset.rows(recipe.split, subject)[:questions]
        shots = sample(recipe, dataset, subject)
        asking.add(recipe, [render(recipe, item, some) for item, some in zip(items, shots, strict=False)], asker)
    return [question for question in asking.wanted.values() if isinstance(question, Span)]


def _tokenizer(folder: str | None) -> Tokenizer:
    if folder is None:
        return ByteTokenizer()
    from choicewise.models.hf_tokenizer import HfTokenizer

    return HfTokenizer(folder)
