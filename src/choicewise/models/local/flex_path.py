"""The tree's attention as one kernel: blocks of keys that no row sees are skipped, and nothing is masked by hand.

``torch.nn.attention.flex_attention`` compiles the rule of visibility into the kernel.  On a CUDA device that is one
launch per layer, where :class:`~choicewise.models.local.packed_path.TreePath` needs one per segment; on a CPU, where
compiling takes half a minute and gains nothing, it runs uncompiled and serves as a test of the rule.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from choicewise.engine.pack import Pack
from choicewise.engine.tree import Tree
from choicewise.models.local.attention import AttentionOptions, Reach, TreePass
from choicewise.models.local.causal_lm import to_device
from choicewise.models.local.packed_path import TreePath


class FlexPass(TreePass):
    """A pack whose rows see their ancestors by a rule instead of masks."""

    def output(self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """One kernel for all rows."""
        if options.sinks is not None:
            raise ValueError("flex attention has no place for attention sinks")
        softcap, reach, kind = options.softcap, options.reach, (options.reach, query.device)
        if kind not in self.masks:
            self.masks[kind] = block_mask(self.tree, self.pack, reach, query.device)

        def capped(weight: Tensor, *place: Tensor) -> Tensor:
            return weight if softcap is None else torch.tanh(weight / softcap) * softcap

        output = _kernel(query.device.type)(
            query,
            key,
            value,
            score_mod=None if softcap is None else capped,
            block_mask=self.masks[kind],
            scale=options.scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return output.transpose(1, 2)


def block_mask(tree: Tree, pack: Pack, reach: Reach, device: torch.device) -> BlockMask:
    """Which keys (places of the pack) every row of the pack sees: itself and its ancestors within reach."""
    nodes = pack.nodes()
    rows = np.arange(pack.start, pack.stop, dtype=np.int32)
    lowest = to_device(reach.lowest(tree.depth[rows]), device)
    node, end, depth = (to_device(array, device) for array in (nodes, tree.end[nodes], tree.depth[nodes]))
    start = pack.start

    def visible(batch: Tensor, head: Tensor, row: Tensor, place: Tensor) -> Tensor:
        row_node = row + start
        return (node[place] <= row_node) & (row_node < end[place]) & (depth[place] >= lowest[row])

    return create_block_mask(visible, None, None, len(rows), len(nodes), device=device)


@cache
def _kernel(device: str) -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=True) if device == "cuda" else flex_attention


class FlexPath(TreePath):
    """The tree in one attention kernel per layer."""

    name = "flex"
    pass_type = FlexPass
