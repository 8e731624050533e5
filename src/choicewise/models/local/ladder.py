"""The ways to compute the same numbers, fastest first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.flex_path import FlexPath
from choicewise.models.local.packed_path import MaskPath, TreePath
from choicewise.models.local.unpacked_path import PlainPath, PrefixPath, SequencePath
from choicewise.questions.generation import Generation
from choicewise.questions.mass import Mass
from choicewise.questions.span import Span
from choicewise.questions.token_scores import TokenScores


class ComputePath(Protocol):
    """One way to score spans.  ``cost`` says in words how many tokens it pushes through the model."""

    name: str
    cost: str

    def score(self, spans: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``spans``, what was seen) for every span, as results become available."""
        ...

    def generate(self, prompts: Sequence[Generation], ends: Collection[int]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``prompts``, at least one greedy token of each, up to one of ``ends``), as generations end."""
        ...

    def objection(self) -> str | None:
        """After ``score``: why the numbers can't be trusted even where they agree, or nothing."""
        ...


Rung = Callable[[CausalLM, int], ComputePath]
"""A path from a model and the most tokens that should be in one pack."""

BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}
"""Where the search for the largest pack begins; a processor's caches are soon too small, a device's memory is not."""

MASKED_TOKENS = 512
"""Packs with a dense mask cost the square of their length."""

LADDER: dict[str, Rung] = {
    "flex": FlexPath,
    "tree": TreePath,
    "mask": lambda lm, tokens: MaskPath(lm, min(tokens, MASKED_TOKENS)),
    "additive mask": lambda lm, tokens: MaskPath(lm, min(tokens, MASKED_TOKENS), additive=True),
    "prefix": lambda lm, tokens: PrefixPath(lm),
    "sequence": lambda lm, tokens: SequencePath(lm),
    "plain": lambda lm, tokens: PlainPath(lm),
}


def rungs(device: str) -> dict[str, Rung]:
    """The rungs worth trying on a kind of device, fastest first."""
    return {name: rung for name, rung in LADDER.items() if name != "flex" or device == "cuda"}
