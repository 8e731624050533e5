"""The two fastest rungs: packs of the token tree, one unpadded row each, with the path's keys and values kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache

from choicewise.engine.pack import Pack, cut, following
from choicewise.engine.span import Span, TokenScores
from choicewise.engine.tree import Tree, build
from choicewise.errors import ModelError
from choicewise.models import attention
from choicewise.models.attention import Reach, TreePass, visible
from choicewise.models.causal import CausalLM
from choicewise.models.readout import Readout

Kept = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values along the path to the next pack, one pair per layer, each of shape [1, heads, path, width]."""


class Packed:
    """Scores spans pack by pack; how a pack passes through the model is up to ``forward``.

    ``budget``: the most tokens in a pack.  It halves whenever memory runs out.
    """

    name: str

    def __init__(self, lm: CausalLM, budget: int) -> None:
        self.lm = lm
        self.budget = budget

    def objection(self) -> str | None:
        """Why the numbers can't be trusted even where they agree."""
        return None

    def forward(self, tree: Tree, pack: Pack, kept: Kept) -> tuple[torch.Tensor, Kept]:
        """Hidden states of the pack, shape [nodes, width], and what to keep for the next one."""
        raise TypeError(f"{type(self).__name__} does not say how a pack is computed")

    @torch.inference_mode()
    def score(self, spans: Sequence[Span]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``spans``, what was seen), every node of their tree computed once."""
        tree = build(spans)
        readout = Readout(self.lm, tree)
        kept: Kept = []
        path, start = np.empty(0, dtype=np.int32), 0
        while start < len(tree):
            pack = cut(tree, start, path, self.budget)
            try:
                hidden, keeping = self.forward(tree, pack, kept)
                found = list(readout.take(start, hidden))
            except (RuntimeError, MemoryError) as error:
                self._shrink(error, len(pack))
                continue
            yield from found
            kept, path, start = keeping, following(pack), pack.stop
        yield from readout.rest()

    def inputs(self, tree: Tree, pack: Pack) -> dict[str, Any]:
        """The pack as one row: its tokens, and their depths as positions."""
        nodes = slice(pack.start, pack.stop)
        return {
            "input_ids": self.lm.tensor(tree.tokens[nodes])[None],
            "position_ids": self.lm.tensor(tree.depth[nodes])[None],
        }

    def _shrink(self, error: Exception, tokens: int) -> None:
        """Halve the budget when ``error`` says that memory ran out; raise it again when it says anything else."""
        if not out_of_memory(error):
            raise error
        if tokens == 1:
            raise ModelError(
                "there is not enough memory for one token of one prompt: "
                "use a smaller model, a narrower --dtype, or a --device with more memory"
            ) from error
        self.budget = tokens // 2
        if self.lm.device.type == "cuda":
            torch.cuda.empty_cache()


def out_of_memory(error: Exception) -> bool:
    """Whether an exception means that memory ran out, on a device or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


class TreePath(Packed):
    """The tree's own attention function inside the model: nothing is masked that need not be computed."""

    name = "tree"
    cost = "every unique token once"

    def __init__(self, lm: CausalLM, budget: int, segment: int = attention.SEGMENT) -> None:
        super().__init__(lm, budget)
        self._segment = segment
        self._calls = 0

    def objection(self) -> str | None:
        """A layer that never called the tree's attention function did something else."""
        if self._calls == self.lm.layers:
            return None
        return f"the model called the tree's attention {self._calls} times for {self.lm.layers} layers"

    def forward(self, tree: Tree, pack: Pack, kept: Kept) -> tuple[torch.Tensor, Kept]:
        """As in ``Packed``."""
        running = TreePass(tree, pack, kept, self._segment)
        with self.lm.attention(attention.NAME), running.running():
            inputs = self.inputs(tree, pack)
            # A two-dimensional mask keeps transformers from guessing sequences out of the positions.
            ones = torch.ones_like(inputs["input_ids"])
            hidden = self.lm.body(**inputs, attention_mask=ones, use_cache=False)[0][0]
        self._calls = running.calls
        return hidden, running.keeping


class MaskPath(Packed):
    """A four-dimensional mask for the model's own attention; one per kind of layer where it has several kinds."""

    cost = "every unique token once, with every pair of a pack's tokens masked"

    def __init__(self, lm: CausalLM, budget: int, *, additive: bool = False) -> None:
        super().__init__(lm, budget)
        self.name = "additive mask" if additive else "mask"
        self._additive = additive
        self._reach = declared(lm.model.config.get_text_config())

    def forward(self, tree: Tree, pack: Pack, kept: Kept) -> tuple[torch.Tensor, Kept]:
        """As in ``Packed``."""
        cache = DynamicCache()
        for layer, (key, value) in enumerate(kept):
            cache.update(key, value, layer)
        masks = {kind: self._mask(tree, pack, reach) for kind, reach in self._reach.items()}
        mask = masks.get("", masks)
        inputs = self.inputs(tree, pack)
        hidden = self.lm.body(**inputs, attention_mask=mask, past_key_values=cache, use_cache=True)[0][0]
        keep = self.lm.tensor(pack.keep)
        return hidden, [
            (layer.keys.index_select(2, keep), layer.values.index_select(2, keep)) for layer in cache.layers
        ]

    def _mask(self, tree: Tree, pack: Pack, reach: Reach) -> torch.Tensor:
        seen: npt.NDArray[np.bool_] = visible(tree, slice(pack.start, pack.stop), pack.nodes(), reach)
        mask = torch.from_numpy(seen)[None, None].to(self.lm.device)
        if not self._additive:
            return mask
        dtype = self.lm.model.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


def declared(config: Any) -> dict[str, Reach]:
    """How far each kind of layer looks, by the configuration; the kind is empty where all layers are one."""
    window, chunk = getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None)
    known = {
        "full_attention": Reach(),
        "sliding_attention": Reach(window=window),
        "chunked_attention": Reach(chunk=chunk),
    }
    kinds = set(getattr(config, "layer_types", None) or [])
    if kinds and kinds <= known.keys():
        return {kind: known[kind] for kind in kinds}
    return {"": Reach(window=window)}
