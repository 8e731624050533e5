"""The tree's attention as one kernel: blocks of keys that no row sees are skipped, and nothing is masked by hand.

``torch.nn.attention.flex_attention`` compiles the rule of visibility into the kernel.  On a CUDA device that is one
launch a layer, where :class:`~choicewise.models.local.packed_path.TreePath` needs one a segment; on a processor, where compiling
takes half a minute and gains nothing, it runs uncompiled and serves as a test of the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from choicewise.engine.pack import Pack
from choicewise.engine.tree import Tree
from choicewise.models.local.attention import How, Reach, TreePass
from choicewise.models.local.packed_path import Kept, TreePath
from choicewise.models.local.transfer import to_device


class FlexPass(TreePass):
    """A pack whose rows see their ancestors by a rule instead of by masks."""

    def look(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, how: How) -> torch.Tensor:
        """As in ``TreePass``."""
        if how.sinks is not None:
            raise ValueError("flex attention has no place for attention sinks")
        softcap = how.softcap

        def capped(weight: torch.Tensor, *place: torch.Tensor) -> torch.Tensor:
            return weight if softcap is None else torch.tanh(weight / softcap) * softcap

        found = _kernel(query.device.type)(
            query,
            key,
            value,
            score_mod=None if softcap is None else capped,
            block_mask=self._mask(how.reach, query.device),
            scale=how.scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return found.transpose(1, 2)

    def _mask(self, reach: Reach, device: torch.device) -> BlockMask:
        if reach not in self.masks:
            self.masks[reach] = block_mask(self.tree, self.pack, reach, device)
        return self.masks[reach]


def block_mask(tree: Tree, pack: Pack, reach: Reach, device: torch.device) -> BlockMask:
    """Which keys (places of the pack) every row of the pack sees: itself and its ancestors within reach."""
    nodes = pack.nodes()
    rows = np.arange(pack.start, pack.stop, dtype=np.int32)
    lowest = to_device(reach.lowest(tree.depth[rows]), device)
    node, end, depth = (to_device(each, device) for each in (nodes, tree.end[nodes], tree.depth[nodes]))
    start = pack.start

    def visible(batch: torch.Tensor, head: torch.Tensor, row: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        asking = row + start
        return (node[place] <= asking) & (asking < end[place]) & (depth[place] >= lowest[row])

    return create_block_mask(visible, None, None, len(rows), len(nodes), device=device)


@cache
def _kernel(device: str) -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=True) if device == "cuda" else flex_attention


class FlexPath(TreePath):
    """The tree in one attention kernel a layer."""

    name = "flex"

    def carry(self, tree: Tree, pack: Pack, kept: Kept) -> TreePass:
        """As in ``TreePath``."""
        return FlexPass(tree, pack, kept, self._segment, states=self._states)
