"""The token tree's attention on a GPU without masks: two calls of FlashAttention a layer, merged.

Consecutive nodes of the tree that follow one another are a *run*.  Ancestors that many rows of the
pack have in common are attended to by all those rows at once.  A run's other ancestors are gathered
before its keys, so that the kernel's causal rule is the tree's.  The two outputs are merged by
their log-sum-exps, as in cascade attention (Ye et al. 2024,
https://flashinfer.ai/2024/02/02/cascade-inference.html).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from choicewise.engine import Pack, Reach, Tree
from choicewise.models.local.devices import to_device
from choicewise.questions import Ids

SHARED = 256
"""Rows that must have an ancestor in common before they attend to it in a call of their own."""

_Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sequences:
    """The rows and the keys of one call of the kernel, sequence after sequence.

    ``rows``: indices of rows of the pack.  ``keys``: indices of keys, of the path and the pack.
    Sequence ``s`` has ``rows[row_starts[s] : row_starts[s + 1]]`` and the keys between its
    ``key_starts``.
    """

    rows: _Indices
    keys: _Indices
    row_starts: _Indices
    key_starts: _Indices

    @classmethod
    def joined(cls, rows: list[_Indices], keys: list[_Indices]) -> Sequences:
        """Return sequences from the rows and the keys of every one of them."""
        row_counts = [len(part) for part in rows]
        key_counts = [len(part) for part in keys]
        return cls(
            rows=np.concatenate(rows),
            keys=np.concatenate(keys),
            row_starts=np.cumsum([0, *row_counts]),
            key_starts=np.cumsum([0, *key_counts]),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout:
    """What the rows of a pack attend to.

    ``runs``: causal; every row of the pack, in order.  ``shared``: not causal; None if no ancestor
    has enough rows below it.  ``window``: tokens that a row of ``runs`` looks back at, itself
    included; None for all.
    """

    runs: Sequences
    shared: Sequences | None
    window: int | None


def layout(tree: Tree, pack: Pack, reach: Reach, least: int = SHARED) -> Layout:
    """Return what the rows of ``pack`` attend to within ``reach``.

    ``least``: rows below an ancestor from which on it is shared.
    """
    depth = tree.depth[pack.start : pack.stop]
    reach = _needed_reach(reach, int(depth.max()))
    nodes = pack.nodes().astype(np.int64)
    # Rows of the pack at or below every key.
    rows_below = np.minimum(tree.end[nodes], pack.stop) - np.maximum(nodes, pack.start)
    path = len(pack.path)
    # Keys of the run's ancestors by depth; deeper entries are of earlier runs.
    chain = np.arange(max(path, int(depth.max()) + 1), dtype=np.int64)
    run_rows: list[_Indices] = []
    run_keys: list[_Indices] = []
    shared_rows: list[_Indices] = []
    shared_keys: list[_Indices] = []
    for start, stop in _runs(depth, reach):
        top = int(depth[start])
        ancestors = chain[:top].copy()
        count = 0
        if reach == Reach():
            # Rows below ancestors fall with depth, so that the shared ones are the first.
            count = int(np.searchsorted(-rows_below[ancestors], -least, side="right"))
        lowest = max(count, int(reach.lowest(depth[start : start + 1])[0]))
        rows = np.arange(start, stop)
        keys = path + rows
        run_rows.append(rows)
        run_keys.append(np.concatenate([ancestors[lowest:], keys]))
        if count:
            shared_rows.append(rows)
            shared_keys.append(ancestors[:count])
        chain[top : top + len(rows)] = keys
    shared = None
    if shared_rows:
        shared = _grouped(shared_rows, shared_keys)
    return Layout(
        runs=Sequences.joined(run_rows, run_keys),
        shared=shared,
        window=reach.window,
    )


def _needed_reach(reach: Reach, deepest: int) -> Reach:
    """Return ``reach``, without a window or chunk that ends beyond the deepest row."""
    if reach.window is not None and reach.window > deepest:
        return Reach()
    if reach.chunk is not None and reach.chunk > deepest:
        return Reach()
    return reach


def _runs(depth: Ids, reach: Reach) -> list[tuple[int, int]]:
    """Return the runs of rows [start, stop), which also end where a chunk does."""
    starts = np.flatnonzero(np.diff(depth, prepend=np.int32(-2)) != 1)
    if reach.chunk is not None:
        starts = np.union1d(starts, np.flatnonzero(depth % reach.chunk == 0))
    return list(pairwise([*starts.tolist(), len(depth)]))


def _grouped(rows: list[_Indices], keys: list[_Indices]) -> Sequences:
    """Join consecutive runs with the same shared ancestors, which are then read once for all."""
    group_rows: list[list[_Indices]] = []
    group_keys: list[_Indices] = []
    for run, ancestors in zip(rows, keys, strict=True):
        if group_keys and np.array_equal(group_keys[-1], ancestors):
            group_rows[-1].append(run)
            continue
        group_rows.append([run])
        group_keys.append(ancestors)
    return Sequences.joined([np.concatenate(runs) for runs in group_rows], group_keys)


@dataclass(frozen=True, eq=False)
class KernelCall:
    """Sequences on the device on which they are computed."""

    rows: Tensor
    keys: Tensor
    row_starts: Tensor
    key_starts: Tensor
    most_rows: int
    most_keys: int

    @classmethod
    def on(cls, sequences: Sequences, device: torch.device) -> KernelCall:
        """Return ``sequences`` on ``device``."""
        return cls(
            to_device(sequences.rows, device),
            to_device(sequences.keys, device),
            to_device(sequences.row_starts.astype(np.int32), device),
            to_device(sequences.key_starts.astype(np.int32), device),
            int(np.diff(sequences.row_starts).max()),
            int(np.diff(sequences.key_starts).max()),
        )


@dataclass(eq=False)
class Attended:
    """Outputs [rows, heads, width] and the log-sum-exps of their weights [rows, heads] (float32)."""

    output: Tensor
    weight: Tensor

    def add(self, other: Attended, rows: Tensor) -> None:
        """Merge in what ``rows`` attended to in another call."""
        output = self.output.index_select(0, rows)
        weight = self.weight.index_select(0, rows)
        total = torch.logaddexp(weight, other.weight)
        merged = output * _share(weight, total) + other.output * _share(other.weight, total)
        self.output = self.output.index_copy(0, rows, merged.to(output.dtype))
        self.weight = self.weight.index_copy(0, rows, total)

    def add_sinks(self, sinks: Tensor) -> None:
        """Merge in a weight per head that takes its share and has no value."""
        total = torch.logaddexp(self.weight, sinks.float()[None])
        self.output = (self.output * _share(self.weight, total)).to(self.output.dtype)
        self.weight = total


def _share(part: Tensor, total: Tensor) -> Tensor:
    """Return the share of ``part`` of ``total``, both log-sum-exps [rows, heads], to multiply
    outputs by.
    """
    return (part - total).exp()[..., None]


def flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    call: KernelCall,
    scaling: float | None,
    *,
    causal: bool = False,
    window: int | None = None,
) -> Attended:
    """Return what ``query`` attends to in one call.

    ``query``: [rows, heads, width], those of the call; ``key`` and ``value``: [keys, key heads,
    width], those of path and pack.  ``causal``: the last row of a sequence sees all of its keys,
    and every row before it one less.
    """
    keys = key.index_select(0, call.keys)
    values = value.index_select(0, call.keys)
    if query.device.type != "cuda":
        return _stand_in(query, keys, values, call, scaling, causal=causal, window=window)
    behind = None
    ahead = None
    if window is not None:
        behind = window - 1
        ahead = 0
    output, weight, *_ = torch.ops.aten._flash_attention_forward(
        query,
        keys,
        values,
        call.row_starts,
        call.key_starts,
        call.most_rows,
        call.most_keys,
        0.0,
        causal,
        False,
        scale=scaling,
        window_size_left=behind,
        window_size_right=ahead,
    )
    return Attended(output, weight.transpose(0, 1))


def _stand_in(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    call: KernelCall,
    scaling: float | None,
    *,
    causal: bool,
    window: int | None,
) -> Attended:
    """Return what the kernel does, sequence by sequence: the reference, for tests without a GPU."""
    group = query.shape[1] // keys.shape[1]
    scale = scaling
    if scale is None:
        scale = query.shape[2] ** -0.5
    outputs = []
    weights = []
    row_bounds = pairwise(call.row_starts.tolist())
    key_bounds = pairwise(call.key_starts.tolist())
    for (row, row_stop), (first, last) in zip(row_bounds, key_bounds, strict=True):
        seen_keys = keys[first:last].repeat_interleave(group, 1).float()
        seen_values = values[first:last].repeat_interleave(group, 1).float()
        logits = torch.einsum("rhw,khw->hrk", query[row:row_stop].float(), seen_keys) * scale
        # The rows are the last keys.
        index = torch.arange(last - first, device=query.device)
        behind = index[len(index) - (row_stop - row) :, None] - index
        if causal:
            logits = logits.masked_fill(behind < 0, float("-inf"))
        if window is not None:
            logits = logits.masked_fill(behind >= window, float("-inf"))
        weights.append(logits.logsumexp(-1).transpose(0, 1))
        outputs.append(torch.einsum("hrk,khw->rhw", logits.softmax(-1), seen_values))
    return Attended(torch.cat(outputs).to(query.dtype), torch.cat(weights))
