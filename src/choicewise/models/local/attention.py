"""How a pack of the token tree attends inside the model: to ancestors, and to what was generated
after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

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

SEGMENT = 256
"""Rows that share one set of keys: so few that hardly any key is masked, enough for one matrix
product.
"""

KeysValues = list[tuple[Tensor, Tensor]]
"""Keys and values [1, heads, tokens, width], a pair per layer."""

Attend = Callable[[Tensor, Tensor, Tensor, "AttentionOptions"], Tensor]
"""A layer's attention from its query, key and value [1, heads, rows, width].

The result is [1, rows, heads, value width].
"""

_attend: ContextVar[Attend] = ContextVar("choicewise_tree_attention")


@dataclass(eq=False)
class TreePass:
    """One pack on its way through the layers.

    ``past``: keys and values along the path to this pack, a pair per call of attention, in the
    order of the calls.  ``next_past`` collects them for the next pack, and ``states``, if it is a
    list, those of path and pack.  ``masks``: what layers of one kind share, on every device that
    has such.  ``multiply``: the product that the network uses, if it is not torch's.
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
        """Return the next layer's attention, and keep its keys and values for the next pack."""
        if self.past:
            past_key, past_value = self.past[self.calls]
            key = torch.cat([past_key, key], dim=2)
            value = torch.cat([past_value, value], dim=2)
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
        """Return the attention of every row to the keys and values of path and pack that it sees."""
        group = query.shape[1] // key.shape[1]
        kind = (options.reach, group, query.device)
        if kind not in self.masks:
            self.masks[kind] = [
                _view(self.tree, self.pack, rows, places, options.reach, group, query)
                for rows, places in segments(self.tree, self.pack, SEGMENT)
            ]
        output = query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])
        for rows, keys, mask in self.masks[kind]:
            seen_key = _select(key, keys)
            seen_value = _select(value, keys)
            output[:, rows] = attend(
                query[:, :, rows], seen_key, seen_value, mask, options, self.multiply
            )
        return output


@dataclass(eq=False)
class DecodePass:
    """One more token of every generation.

    It sees the path to its node of ``nodes``, at which its context ends, and the tokens generated
    for it so far.  ``states``: keys and values of the pack and its path, a pair per layer.
    ``generated``: those of the generated tokens, [generations, heads, tokens, width]; ``tokens``
    counts them.
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
        kept = []
        for key, value in self.generated:
            index = to_device(remaining, key.device)
            kept.append((key.index_select(0, index), value.index_select(0, index)))
        self.generated = kept

    @property
    def depth(self) -> Ids:
        """Return the depth of every newest token."""
        return self.tree.depth[self.nodes] + 1 + self.tokens

    def end_token(self) -> None:
        """Be ready for the layers of one more token of every generation."""
        self.calls = 0
        self.tokens += 1
        self.masks.clear()

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Return the next layer's attention; shapes as in :data:`Attend`."""
        generated_key = key[0].transpose(0, 1)[:, :, None]
        generated_value = value[0].transpose(0, 1)[:, :, None]
        if self.tokens:
            past_key, past_value = self.generated[self.calls]
            generated_key = torch.cat([past_key, generated_key], dim=2)
            generated_value = torch.cat([past_value, generated_value], dim=2)
            self.generated[self.calls] = (generated_key, generated_value)
        else:
            self.generated.append((generated_key, generated_value))
        shared_key, shared_value = self.states[self.calls]
        self.calls += 1
        kind = (options.reach, query.device)
        if kind not in self.masks:
            self.masks[kind] = additive(self._visible(options.reach), 1, query)
        shared = (shared_key[0], shared_value[0])
        generated = (generated_key, generated_value)
        return _attend_to_both(query[0], shared, generated, self.masks[kind], options)

    def _visible(self, reach: Reach) -> npt.NDArray[np.bool_]:
        """Return what every newest token sees, [generations, path + pack + generated tokens]."""
        before = visible(self.tree, self.nodes, self.pack.nodes(), reach, ahead=self.tokens + 1)
        back = np.arange(self.tokens, -1, -1, dtype=np.int32)
        depth = self.depth[:, None]
        within = depth - back >= reach.lowest(depth)
        return np.concatenate([before, within], axis=1)


def visible(
    tree: Tree, rows: Ids, keys: Ids, reach: Reach, ahead: int = 0
) -> npt.NDArray[np.bool_]:
    """Return which of the nodes ``keys`` every row sees, [rows, keys]: itself and ancestors within
    reach.

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
    """Have ``attend`` compute the attention of one layer after another."""
    token = _attend.set(attend)
    try:
        yield
    finally:
        _attend.reset(token)


class Network(Protocol):
    """A network whose attention function can be set, such as a ``CausalLM``."""

    def attention(self, implementation: str) -> AbstractContextManager[None]:
        """Compute with another attention function."""

    def body(self, state: Any = None, **inputs: Any) -> Any:
        """Return the output before the head."""


def hidden_states(lm: Network, attend: Attend, inputs: dict[str, Tensor]) -> Tensor:
    """Return hidden states [tokens, width] of a row of ``inputs``, with ``attend`` in every layer."""
    # A two-dimensional mask keeps transformers from guessing sequences out of the positions.
    ones = torch.ones_like(inputs["input_ids"])
    with lm.attention(NAME), running(attend):
        hidden: Tensor = lm.body(**inputs, attention_mask=ones, use_cache=False)[0][0]
    return hidden


def additive(visible_keys: npt.NDArray[np.bool_], group: int, like: Tensor) -> Tensor:
    """Return a mask to add to weights, [group * rows, keys], from what rows see, [rows, keys]."""
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
    """Return the attention of rows to keys; shapes as in :data:`Attend`.

    Heads that share keys become rows of one matrix product.  ``multiply`` computes it, or torch if
    it is None.
    """
    rows = query.shape[2]
    group = query.shape[1] // key.shape[1]
    grouped = query.reshape(1, key.shape[1], group * rows, query.shape[3])
    if options.softcap is not None or options.sinks is not None:
        output = _step_by_step(grouped, key, value, mask, options)
    elif multiply is not None:
        output = _head_by_head(grouped, key, value, mask, options, multiply)
    else:
        output = scaled_dot_product_attention(
            grouped, key, value, attn_mask=mask, scale=options.scaling
        )
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
    """Attend as a layer of ``transformers`` does; shapes as in :data:`Attend`.

    How far up its path a layer looks comes from ``tree_reach`` in place of a mask, or from
    ``sliding_window``.
    """
    if other.get("position_bias") is not None or other.get("is_causal") is False:
        raise ValueError(
            f"{type(module).__name__} asks for position biases or non-causal attention"
        )
    reach = Reach(window=sliding_window)
    if isinstance(attention_mask, Reach):
        reach = attention_mask
    return _attend.get()(query, key, value, AttentionOptions(reach, scaling, softcap, s_aux)), None


def tree_reach(*, mask_function: Any, local_size: int | None = None, **other: Any) -> Reach:
    """Return, in place of a mask, how far a layer looks, by the mask function that it would use."""
    if local_size is None:
        return Reach()
    # The last token of a chunk is out of reach of the next chunk's first, and within any window.
    row = torch.tensor(local_size)
    before = torch.tensor(local_size - 1)
    if mask_function(0, 0, row, before):
        return Reach(window=local_size)
    return Reach(chunk=local_size)


def _view(
    tree: Tree, pack: Pack, rows: Ids, places: Places, reach: Reach, group: int, like: Tensor
) -> tuple[slice, slice | Tensor, Tensor]:
    """Return a segment's rows in the pack, the keys they look at, and an additive mask [group *
    rows, keys].
    """
    visible_keys = visible(tree, rows, pack.nodes()[places], reach)
    needed = visible_keys.any(axis=0)
    keys = places[needed]
    first = int(keys[0])
    last = int(keys[-1])
    seen: slice | Tensor = slice(first, last + 1)
    if last + 1 - first != len(keys):
        seen = to_device(keys, like.device)
    segment = slice(int(rows[0]) - pack.start, int(rows[-1]) + 1 - pack.start)
    return segment, seen, additive(visible_keys[:, needed], group, like)


def _select(states: Tensor, keys: slice | Tensor) -> Tensor:
    if isinstance(keys, slice):
        return states[:, :, keys]
    return states.index_select(2, keys)


def _head_by_head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    options: AttentionOptions,
    multiply: Multiply,
) -> Tensor:
    """Attend by two products a key head, which oneDNN computes faster than torch's kernel on a CPU."""
    scale = _scale(query.shape[3], options)
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
    """Attend with capped weights, or with sinks: a weight per head that takes a share and has no
    value.
    """
    weights = torch.matmul(query, key.transpose(2, 3))
    shares = _shares(weights, query.shape[3], mask, options)[..., : key.shape[2]]
    return torch.matmul(shares.to(value.dtype), value)


def _attend_to_both(
    query: Tensor,
    shared: tuple[Tensor, Tensor],
    generated: tuple[Tensor, Tensor],
    mask: Tensor,
    options: AttentionOptions,
) -> Tensor:
    """Return the attention [1, rows, heads, width] of a row per generation to all that it may see.

    ``query``: [heads, rows, width].  ``shared`` keys and values, which all rows see: [key heads,
    keys, width].  ``generated``, those of the row's generation: [rows, key heads, tokens, width].
    ``mask``, to add to the weights: [rows, keys + tokens].
    """
    heads, rows, width = query.shape
    shared_key, shared_value = shared
    generated_key, generated_value = generated
    key_heads, keys = shared_key.shape[:2]
    grouped = query.reshape(key_heads, -1, rows, width)
    to_shared = grouped.flatten(1, 2) @ shared_key.transpose(1, 2)
    to_generated = torch.einsum("kgrw,rktw->kgrt", grouped, generated_key)
    weights = torch.cat([to_shared.reshape(key_heads, -1, rows, keys), to_generated], dim=-1)
    shares = _shares(weights, width, mask, options).to(shared_value.dtype)
    of_shared = shares[..., :keys].flatten(1, 2) @ shared_value
    of_generated = torch.einsum(
        "kgrt,rktw->kgrw", shares[..., keys : mask.shape[1]], generated_value
    )
    output = of_shared.reshape(of_generated.shape) + of_generated
    return output.reshape(1, heads, rows, -1).transpose(1, 2)


def _shares(weights: Tensor, width: int, mask: Tensor, options: AttentionOptions) -> Tensor:
    """Return the softmax of ``weights``, scaled and capped as in the layer, with a column for its
    sinks.

    The first dimensions but the last are heads, by key heads, and rows.
    """
    weights = weights.float() * _scale(width, options)
    if options.softcap is not None:
        weights = torch.tanh(weights / options.softcap) * options.softcap
    weights = weights + mask
    if options.sinks is not None:
        before = weights.shape[:-1]
        sinks = options.sinks.float()[:, None].expand(-1, before.numel() // len(options.sinks))
        weights = torch.cat([weights, sinks.reshape(*before, 1)], dim=-1)
    return torch.softmax(weights, dim=-1)


def _scale(width: int, options: AttentionOptions) -> float:
    if options.scaling is not None:
        return options.scaling
    return float(width**-0.5)


AttentionInterface.register(NAME, tree_attention)
AttentionMaskInterface.register(NAME, tree_reach)
