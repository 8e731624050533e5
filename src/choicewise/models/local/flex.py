"""The token tree's attention as one compiled kernel: the rule of visibility, by blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from choicewise.engine import Pack, Reach, Tree
from choicewise.models.local.devices import to_device
from choicewise.questions import Ids

BLOCK = 128
"""Rows, and keys, that the compiled kernel visits or skips together."""

COMPILED = 64
"""Kernels at most: one for each width of heads, scale and arithmetic, and for one block or several."""

_Blocks = npt.NDArray[np.bool_]


def flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: BlockMask,
    scaling: float | None,
    softcap: float | None,
) -> Tensor:
    """Return the attention [1, heads, rows, width] of rows to the keys that ``mask`` lets them see."""

    def capped(weight: Tensor, *_: Tensor) -> Tensor:
        return torch.tanh(weight / softcap) * softcap

    score_mod = None
    if softcap is not None:
        score_mod = capped
    # Another order in memory would be another kernel.
    output: Tensor = _kernel(query.device.type)(
        query.contiguous(),
        key.contiguous(),
        value.contiguous(),
        score_mod=score_mod,
        block_mask=mask,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return output


@cache
def _kernel(device: str) -> Callable[..., Any]:
    if device != "cuda":
        return flex_attention
    options: dict[str, Any] = {}
    if "recompile_limit" in signature(torch.compile).parameters:
        options["recompile_limit"] = COMPILED
    # In one graph, as beyond its limit the compiler would go on without a kernel, in memory for
    # every pair; so it fails.
    return torch.compile(flex_attention, dynamic=True, fullgraph=True, **options)


def block_mask(tree: Tree, pack: Pack, reach: Reach, device: torch.device) -> BlockMask:
    """Return which keys every row of the pack sees: itself and its ancestors within reach.

    Blocks that no row sees, and those that all rows see whole, follow from where the subtrees of
    keys begin and end, so that no array has an entry for every pair.
    """
    nodes = pack.nodes()
    count = len(pack)
    depth = tree.depth[nodes]
    lowest = reach.lowest(tree.depth[pack.start : pack.stop])
    # Rows that see a key are those from ``first`` to before ``end``, counted from the pack's start.
    first = nodes - pack.start
    end = tree.end[nodes] - pack.start
    firsts, ends, depths, lowests = (
        to_device(array.astype(np.int32), device) for array in (first, end, depth, lowest)
    )

    def visible(batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        below = (firsts[key] <= row) & (row < ends[key])
        return below & (depths[key] >= lowests[row])

    shape = (_blocks(count), _blocks(len(nodes)))
    begin = np.maximum(first, 0)
    stop = np.minimum(end, count)
    # In part if any row of the block sees any of its keys; whole if all see all.
    some = _covered(begin // BLOCK, -(-stop // BLOCK), shape) >= 1
    whole = _covered(-(-begin // BLOCK), stop // BLOCK, shape) >= BLOCK
    some &= _by_block(depth, np.maximum) >= _by_block(lowest, np.minimum)[:, None]
    whole &= _by_block(depth, np.minimum) >= _by_block(lowest, np.maximum)[:, None]
    partial_counts, partial_keys = _table(some & ~whole, device)
    whole_counts, whole_keys = _table(whole, device)
    return BlockMask.from_kv_blocks(
        partial_counts,
        partial_keys,
        whole_counts,
        whole_keys,
        BLOCK_SIZE=BLOCK,
        mask_mod=visible,
        seq_lengths=(count, len(nodes)),
    )


def _blocks(count: int) -> int:
    return -(-count // BLOCK)


def _covered(begin: Ids, stop: Ids, shape: tuple[int, int]) -> npt.NDArray[np.int32]:
    """Count, for blocks of rows and of keys, the keys whose rows cover the blocks ``begin`` to
    ``stop``.
    """
    steps = np.zeros((shape[0] + 1, shape[1]), dtype=np.int32)
    block_of_key = np.arange(len(begin)) // BLOCK
    valid = begin < stop
    np.add.at(steps, (begin[valid], block_of_key[valid]), 1)
    np.add.at(steps, (stop[valid], block_of_key[valid]), -1)
    return steps.cumsum(axis=0, dtype=np.int32)[:-1]


def _by_block(values: Ids, ufunc: np.ufunc) -> Ids:
    return ufunc.reduceat(values, np.arange(0, len(values), BLOCK))


def _table(blocks: _Blocks, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return, for every block of rows, the number of blocks of keys, and those blocks before all
    others.
    """
    on_device = to_device(blocks, device)
    counts = on_device.sum(1, dtype=torch.int32)
    order = on_device.int().argsort(dim=1, descending=True, stable=True).int()
    return counts[None, None], order[None, None]
