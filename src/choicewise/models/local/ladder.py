"""The compute paths: ways to compute the same numbers, fastest first."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.flex_path import FlexPath
from choicewise.models.local.mask_path import MaskPath
from choicewise.models.local.packed_path import TreePath
from choicewise.models.local.unpacked_path import PlainPath, PrefixPath, SequencePath
from choicewise.questions import Generation, Mass, Span, TokenScores


class ComputePath(Protocol):
    """One way to score and generate.  ``cost`` says in words how many tokens it sends through the model."""

    name: str
    cost: str

    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``questions``, the answer) of every one, as results become available."""
        ...

    def generate(self, generations: Sequence[Generation], ends: Collection[int]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``generations``, its greedy tokens), as they end: after one of ``ends``, or at their limits.

        Limits are at least 1; stops are not looked at.
        """
        ...

    def objection(self) -> str | None:
        """After ``score``: why the numbers can't be trusted even where they agree, or None."""
        ...


Rung = Callable[[CausalLM, int], ComputePath]
"""Makes a compute path from a model and the most tokens of one pack."""

BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}
"""Tokens of a pack at first, halved where memory runs out: on a CPU few, because its caches are small."""

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


def compute_path(rung: str, lm: CausalLM, batch_tokens: int | None = None) -> ComputePath:
    """The path of the rung called ``rung``, in packs of ``batch_tokens`` tokens or what suits the device."""
    return LADDER[rung](lm, batch_tokens or BATCH_TOKENS.get(lm.device.type, BATCH_TOKENS["cpu"]))


def rungs(device: str) -> dict[str, Rung]:
    """The rungs worth trying on a kind of device, fastest first."""
    return {name: rung for name, rung in LADDER.items() if name != "flex" or device == "cuda"}
