"""The rungs that give the model's own attention a mask of what every row of a pack sees."""

from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from choicewise.engine.pack import Pack
from choicewise.engine.tree import Tree
from choicewise.models.local.attention import KeysValues, Reach, visible
from choicewise.models.local.causal_lm import CausalLM, to_device
from choicewise.models.local.packed_path import PackedPath


class MaskPath(PackedPath):
    """A four-dimensional mask for the model's own attention; one per kind of layer where it has several kinds."""

    cost = "every unique token once, with every pair of a pack's tokens masked"

    def __init__(self, lm: CausalLM, budget: int, *, additive: bool = False) -> None:
        super().__init__(lm, budget)
        self.name = "additive mask" if additive else "mask"
        self._additive = additive
        self._reach = declared(lm.model.config.get_text_config())

    def forward(self, tree: Tree, pack: Pack, past: KeysValues) -> tuple[torch.Tensor, KeysValues]:
        """One pass with a cache of the path."""
        cache = DynamicCache()
        for layer, (key, value) in enumerate(past):
            cache.update(key, value, layer)
        masks = {kind: self._mask(tree, pack, reach) for kind, reach in self._reach.items()}
        mask = masks.get("", masks)
        inputs = self.inputs(tree, pack)
        hidden = self.lm.body(**inputs, attention_mask=mask, past_key_values=cache, use_cache=True)[0][0]
        keep = {device: to_device(pack.keep, device) for device in {layer.keys.device for layer in cache.layers}}
        return hidden, [
            (layer.keys.index_select(2, keep[layer.keys.device]), layer.values.index_select(2, keep[layer.keys.device]))
            for layer in cache.layers
        ]

    def _mask(self, tree: Tree, pack: Pack, reach: Reach) -> torch.Tensor:
        rows = np.arange(pack.start, pack.stop, dtype=np.int32)
        mask = to_device(visible(tree, rows, pack.nodes(), reach), self.lm.device)[None, None]
        if not self._additive:
            return mask
        dtype = self.lm.model.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


def declared(config: Any) -> dict[str, Reach]:
    """How far each kind of layer looks, by the configuration; the kind is "" where there is only one."""
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
