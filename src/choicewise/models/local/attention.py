"""How a pack of the token tree attends inside the model: to ancestors, and to what was generated after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from choicewise.engine import Pack, Places, Reach, Tree, segments
from choicewise.models.local.devices import to_device
from choicewise.models.local.products import Multiply
from choicewise.questions import Ids

NAME = "choicewise_tree"
SEGMENT = 256  # rows that share one set of keys: so few that hardly any key is masked, enough for one matrix product
KeysValues = list[
    tuple[Tensor, Tensor]
]  # keys and values, one pair per layer, each of shape [1, heads, tokens, width]
_attend: ContextVar[Attend] = ContextVar("choicewise_tree_attention")


@dataclass(eq=False)
class TreePass:
    """One pack on its way through the layers.

    ``past``: keys and values along the path to this pack, one pair per attention call, in the order of the calls.
    ``next_past`` collects the same for the next pack, and ``states``, where it is a list, those of path and pack.
    ``masks``: what layers of one kind share, on each device that has such.  ``multiply``: the product that the
    network uses, if it is not torch's.
    """

    tree: Tree
    pack: Pack
    past: KeysValues
    states: KeysValues | None = None
    multiply: Multiply | None = None
    next_past: KeysValues = field(default_factory=list)
    calls: int = 0
    masks: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.states is not None:
            self.states.clear()

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """The next layer's attention; its keys and values are kept for the next pack."""
        if self.past:
            past = self.past[self.calls]
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        self.calls += 1
        if self.states is not None:
            self.states.append((key, value))
        output = self.output(query, key, value, options)
        keep = to_device(self.pack.keep, key.device)
        self.next_past.append((key.index_select(2, keep), value.index_select(2, keep)))
        return output

    def output(
        self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """The attention of every row of the pack to the keys and values of path and pack that it sees."""
        reach, group = options.reach, query.shape[1] // key.shape[1]
        kind = reach, group, query.device
        if kind not in self.masks:
            self.masks[kind] = [
                _view(self.tree, self.pack, rows, places, reach, group, query)
                for rows, places in segments(self.tree, self.pack, SEGMENT)
            ]
        output = query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])
        for rows, keys, mask in self.masks[kind]:
            seen_key, seen_value = (
                each[:, :, keys] if isinstance(keys, slice) else each.index_select(2, keys)
                for each in (key, value)
            )
            output[:, rows] = attend(
                query[:, :, rows], seen_key, seen_value, mask, options, self.multiply
            )
        return output


@dataclass(eq=False)
class DecodePass:
    """One more token of every generation: it sees the path to its node of ``nodes``, where its context ends, and the
    tokens generated for it so far.

    ``states``: keys and values of the pack and its path, one pair per layer.  ``generated``: those of the generated
    tokens, of shape [generations, heads, tokens, width] each; ``tokens`` counts them.
    """

    tree: Tree
    pack: Pack
    nodes: Ids
    states: KeysValues
    generated: KeysValues = field(default_factory=list)
    tokens: int = 0
    calls: int = 0
    masks: dict[tuple[Reach, torch.device], Tensor] = field(default_factory=dict)

    def restrict(self, rows: Sequence[int]) -> None:
        """Go on with these generations alone."""
        self.nodes = self.nodes[rows]
        remaining = np.asarray(rows, dtype=np.int64)
        index = {
            device: to_device(remaining, device)
            for device in {key.device for key, _ in self.generated}
        }
        self.generated = [
            tuple(each.index_select(0, index[each.device]) for each in pair)
            for pair in self.generated
        ]

    @property
    def depth(self) -> Ids:
        """The depth of every newest token."""
        return self.tree.depth[self.nodes] + 1 + self.tokens

    def end_token(self) -> None:
        """Be ready for the layers of one more token of every generation."""
        self.calls = 0
        self.tokens += 1
        self.masks.clear()

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """The next layer's attention, shapes as in :data:`Attend`."""
        own = key[0].transpose(0, 1)[:, :, None], value[0].transpose(0, 1)[:, :, None]
        if self.tokens:
            past = self.generated[self.calls]
            own = torch.cat([past[0], own[0]], dim=2), torch.cat([past[1], own[1]], dim=2)
            self.generated[self.calls] = own
        else:
            self.generated.append(own)
        shared = self.states[self.calls][0][0], self.states[self.calls][1][0]
        self.calls += 1
        kind = options.reach, query.device
        if kind not in self.masks:
            self.masks[kind] = additive(self._visible(options.reach), 1, query)
        return _attend_with_own(query[0], shared, own, self.masks[kind], options)

    def _visible(self, reach: Reach) -> npt.NDArray[np.bool_]:
        """What every newest token sees, shape [generations, path + pack + generated tokens]."""
        before = visible(self.tree, self.nodes, self.pack.nodes(), reach, ahead=self.tokens + 1)
        back = np.arange(self.tokens, -1, -1, dtype=np.int32)
        depth = self.depth
        return np.concatenate(
            [before, depth[:, None] - back >= reach.lowest(depth)[:, None]], axis=1
        )


def visible(
    tree: Tree, rows: Ids, keys: Ids, reach: Reach, ahead: int = 0
) -> npt.NDArray[np.bool_]:
    """Which of the nodes ``keys`` every row sees, shape [rows, keys]: itself and its ancestors within reach.

    With ``ahead`` the rows are that many tokens below the nodes they are named after.
    """
    row = rows[:, None]
    within = tree.depth[keys] >= reach.lowest(tree.depth[rows] + ahead)[:, None]
    return (keys <= row) & (row < tree.end[keys]) & within


class AttentionOptions(NamedTuple):
    """What a layer gives its attention besides queries, keys and values."""

    reach: Reach
    scaling: float | None
    softcap: float | None
    sinks: Tensor | None


@contextmanager
def running(attend: Attend) -> Iterator[None]:
    """Meanwhile ``attend`` computes the attention of one layer after another."""
    token = _attend.set(attend)
    try:
        yield
    finally:
        _attend.reset(token)


def additive(visible_keys: npt.NDArray[np.bool_], group: int, like: Tensor) -> Tensor:
    """A mask to add to attention weights, shape [group * rows, keys], from what rows see, shape [rows, keys]."""
    mask = torch.zeros(visible_keys.shape, dtype=like.dtype, device=like.device)
    return mask.masked_fill_(to_device(~visible_keys, like.device), float("-inf")).repeat(group, 1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    options: AttentionOptions,
    multiply: Multiply | None = None,
) -> Tensor:
    """Attention of rows to keys, shapes [1, heads, rows, width] in and [1, rows, heads, value width] out.

    Heads that share keys become rows of one matrix product.  ``multiply`` computes it, or torch if it is None.
    """
    rows, group = query.shape[2], query.shape[1] // key.shape[1]
    grouped = query.reshape(1, key.shape[1], group * rows, query.shape[3])
    if options.softcap is None and options.sinks is None and multiply is not None:
        output = _head_by_head(grouped, key, value, mask, options, multiply)
    elif options.softcap is None and options.sinks is None:
        output = scaled_dot_product_attention(
            grouped, key, value, attn_mask=mask, scale=options.scaling
        )
    else:
        output = _step_by_step(grouped, key, value, mask, options)
    return output.reshape(1, query.shape[1], rows, -1).transpose(1, 2)


def tree_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    sliding_window: int | None = None,
    **other: Any,
) -> tuple[Tensor, None]:
    """The function registered with ``transformers``; shapes [1, heads, rows, width] in, [1, rows, heads, width] out.

    How far up its path a layer looks comes from ``tree_reach`` in place of a mask, or from ``sliding_window``.
    """
    if other.get("position_bias") is not None or other.get("is_causal") is False:
        raise ValueError(
            f"{type(module).__name__} asks for position biases or non-causal attention"
        )
    reach = attention_mask if isinstance(attention_mask, Reach) else Reach(window=sliding_window)
    return _attend.get()(query, key, value, AttentionOptions(reach, scaling, softcap, s_aux)), None


def tree_reach(*, mask_function: Any, local_size: int | None = None, **other: Any) -> Reach:
    """In place of a mask: how far up its path this layer looks, in depth, by the mask function it would use."""
    if local_size is None:
        return Reach()
    row, before = torch.tensor(local_size), torch.tensor(local_size - 1)
    return (
        Reach(window=local_size)
        if bool(mask_function(0, 0, row, before))
        else Reach(chunk=local_size)
    )


Attend = Callable[[Tensor, Tensor, Tensor, AttentionOptions], Tensor]
"""A layer's attention from its query, key, value, shapes [1, heads, rows, width]; [1, rows, heads, value width] out."""


def _view(
    tree: Tree, pack: Pack, rows: Ids, places: Places, reach: Reach, group: int, like: Tensor
) -> tuple[slice, slice | Tensor, Tensor]:
    """A segment's rows in the pack, the keys they look at, and an additive mask, shape [group * rows, keys]."""
    visible_keys = visible(tree, rows, pack.nodes()[places], reach)
    needed = visible_keys.any(axis=0)
    keys = places[needed]
    consecutive = len(keys) > 0 and int(keys[-1]) - int(keys[0]) + 1 == len(keys)
    seen = slice(int(keys[0]), int(keys[-1]) + 1) if consecutive else to_device(keys, like.device)
    own = slice(int(rows[0]) - pack.start, int(rows[-1]) + 1 - pack.start)
    return own, seen, additive(visible_keys[:, needed], group, like)


def _head_by_head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    options: AttentionOptions,
    multiply: Multiply,
) -> Tensor:
    """Attention by two products a key head, which oneDNN computes faster than torch's kernel on a CPU."""
    scale = options.scaling
    if scale is None:
        scale = query.shape[3] ** -0.5
    output = query.new_empty(*query.shape[:3], value.shape[3])
    for head in range(key.shape[1]):
        weights = multiply(query[0, head].contiguous(), key[0, head].contiguous())
        weights.mul_(scale).add_(mask)
        shares = torch.softmax(weights, dim=-1)
        output[0, head] = multiply(shares, value[0, head].T.contiguous())
    return output


def _step_by_step(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, options: AttentionOptions
) -> Tensor:
    """Attention with capped weights, or with sinks: one weight per head that takes a share and has no value."""
    weights = torch.matmul(query, key.transpose(2, 3))
    shares = _shares(weights, query.shape[3], mask, options)[..., : key.shape[2]]
    return torch.matmul(shares.to(value.dtype), value)


def _attend_with_own(
    query: Tensor,
    shared: tuple[Tensor, Tensor],
    own: tuple[Tensor, Tensor],
    mask: Tensor,
    options: AttentionOptions,
) -> Tensor:
    """Attention of one row per generation to what all may see and to the generation's own tokens.

    ``query``: shape [heads, rows, width].  ``shared`` keys and values: [key heads, keys, width].  ``own``: [rows, key
    heads, tokens, width].  ``mask``, to add to the weights: [rows, keys + tokens].  Result: [1, rows, heads, width].
    """
    heads, rows, width = query.shape
    key_heads, keys = shared[0].shape[:2]
    grouped = query.reshape(key_heads, -1, rows, width)
    weights = torch.cat(
        [
            (grouped.flatten(1, 2) @ shared[0].transpose(1, 2)).reshape(key_heads, -1, rows, keys),
            torch.einsum("kgrw,rktw->kgrt", grouped, own[0]),
        ],
        dim=-1,
    )
    shares = _shares(weights, width, mask, options).to(shared[1].dtype)
    output = (shares[..., :keys].flatten(1, 2) @ shared[1]).reshape(
        key_heads, -1, rows, shared[1].shape[-1]
    )
    output = output + torch.einsum("kgrt,rktw->kgrw", shares[..., keys : mask.shape[1]], own[1])
    return output.reshape(1, heads, rows, -1).transpose(1, 2)


def _shares(weights: Tensor, width: int, mask: Tensor, options: AttentionOptions) -> Tensor:
    """The softmax of ``weights`` as the layer scales and caps them, with ``mask``, and with a column for its sinks.

    The first dimensions but the last are heads, by key heads, and rows.
    """
    weights = weights.float() * (width**-0.5 if options.scaling is None else options.scaling)
    if options.softcap is not None:
        weights = torch.tanh(weights / options.softcap) * options.softcap
    weights = weights + mask
    if options.sinks is not None:
        before = weights.shape[:-1]
        sinks = options.sinks.float()[:, None].expand(-1, before.numel() // len(options.sinks))
        weights = torch.cat([weights, sinks.reshape(*before, 1)], dim=-1)
    return torch.softmax(weights, dim=-1)


AttentionInterface.register(NAME, tree_attention)
AttentionMaskInterface.register(NAME, tree_reach)
