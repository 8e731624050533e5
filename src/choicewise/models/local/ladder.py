"""The compute paths: ways to compute the same numbers, fastest first."""

from collections.abc import Callable

from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.compute_path import ComputePath
from choicewise.models.local.flex_path import FlexPath
from choicewise.models.local.mask_path import MaskPath
from choicewise.models.local.packed_path import TreePath
from choicewise.models.local.unpacked_path import PlainPath, PrefixPath, SequencePath

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
