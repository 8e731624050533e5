"""Greedy, sampled and tree generation."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from choicewise.engine import Pack, Tree
from choicewise.models.local import attention, plain
from choicewise.models.local.attention import AttentionOptions, KeysValues, Reach, additive, visible
from choicewise.models.local.causal_lm import CausalLM, to_device
from choicewise.questions import Generation, Ids, Span, TokenScores


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

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these generations alone."""
        self.nodes = self.nodes[rows]
        kept = np.asarray(rows, dtype=np.int64)
        index = {device: to_device(kept, device) for device in {key.device for key, _ in self.generated}}
        self.generated = [tuple(each.index_select(0, index[each.device]) for each in pair) for pair in self.generated]

    def forward(self, lm: CausalLM, tokens: Sequence[int]) -> Tensor:
        """Hidden states after one more token of every generation, shape [generations, width]."""
        self.calls = 0
        self.masks.clear()
        inputs, depth = lm.tensor(np.asarray(tokens)), lm.tensor(self._depth)
        with lm.attention(attention.NAME), attention.running(self.attend):
            ones = torch.ones_like(inputs[None])
            output = lm.body(input_ids=inputs[None], position_ids=depth[None], attention_mask=ones, use_cache=False)
        self.tokens += 1
        hidden: Tensor = output[0][0]
        return hidden

    def attend(self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """The next layer's attention, shapes as in :data:`choicewise.models.local.attention.Attend`."""
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
        return attend(query[0], shared, own, self.masks[kind], options)

    @property
    def _depth(self) -> Ids:
        """The depth of every newest token."""
        return self.tree.depth[self.nodes] + 1 + self.tokens

    def _visible(self, reach: Reach) -> npt.NDArray[np.bool_]:
        """What every newest token sees, shape [generations, path + pack + generated tokens]."""
        before = visible(self.tree, self.nodes, self.pack.nodes(), reach, ahead=self.tokens + 1)
        back = np.arange(self.tokens, -1, -1, dtype=np.int32)
        own = self._depth[:, None] - back >= reach.lowest(self._depth)[:, None]
        return np.concatenate([before, own], axis=1)


def attend(
    query: Tensor, shared: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], mask: Tensor, options: AttentionOptions
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
    weights = weights.float() * (width**-0.5 if options.scaling is None else options.scaling)
    if options.softcap is not None:
        weights = torch.tanh(weights / options.softcap) * options.softcap
    weights = weights + mask
    if options.sinks is not None:
        sinks = options.sinks.float().reshape(key_heads, -1, 1, 1).expand(-1, -1, rows, 1)
        weights = torch.cat([weights, sinks], dim=-1)
    shares = torch.softmax(weights, dim=-1).to(shared[1].dtype)
    output = (shares[..., :keys].flatten(1, 2) @ shared[1]).reshape(key_heads, -1, rows, shared[1].shape[-1])
    output = output + torch.einsum("kgrt,rktw->kgrw", shares[..., keys : mask.shape[1]], own[1])
    return output.reshape(1, heads, rows, -1).transpose(1, 2)


def decode(lm: CausalLM, decoding: DecodePass, hidden: Tensor, drafts: Sequence[Draft], known: int) -> None:
    """Complete ``drafts``, whose contexts end in a pack; ``hidden``: their states there, shape [drafts, width].

    A draft that ends leaves the batch.  ``known``: how many tokens may be drawn.
    """
    while True:
        chosen = lm.choose(hidden, np.asarray([draft.share for draft in drafts]), known)
        for draft, token, logprob, rank in zip(drafts, *(part.tolist() for part in chosen), strict=True):
            draft.add(token, logprob, rank)
        rows = [row for row, draft in enumerate(drafts) if not draft.ended]
        if not rows:
            return
        if len(rows) < len(drafts):
            decoding.keep(rows)
            drafts = [drafts[row] for row in rows]
        hidden = decoding.forward(lm, [draft.tokens[-1] for draft in drafts])


class Draft:
    """The tokens of one generation of a limit of at least 1.

    ``ends``: tokens that end a sequence; a greedy generation includes the first of them, a sampled one does not.
    ``token_bytes``: the bytes of every token, by which stops are found.  ``steps``: tokens chosen, the last of which
    may not belong to the generation.
    """

    def __init__(self, generation: Generation, ends: Collection[int], token_bytes: Sequence[bytes]) -> None:
        self.generation = generation
        self.ended = False
        self.steps = 0
        self.tokens: list[int] = []
        self._logprobs: list[float] = []
        self._ranks: list[int] = []
        self._text = b""
        self._ends = ends
        self._token_bytes = token_bytes

    @property
    def share(self) -> float:
        """The share of the probabilities at which the next token is drawn; NaN for the likeliest token."""
        sampling = self.generation.sampling
        return math.nan if sampling is None else sampling.share(len(self.tokens))

    @property
    def scores(self) -> TokenScores:
        """The answer, once it has ended."""
        return TokenScores.of(self.tokens, self._logprobs, self._ranks)

    def add(self, token: int, logprob: float, rank: int) -> None:
        """The next token as it was chosen, with its log-probability (nats) and rank."""
        self.steps += 1
        self._text += self._token_bytes[token] if token < len(self._token_bytes) else b""
        stopped = any(stop in self._text for stop in self.generation.stops)
        if (stopped and not self.generation.keep_stop) or (
            token in self._ends and self.generation.sampling is not None
        ):
            self.ended = True
            return
        self.tokens.append(token)
        self._logprobs.append(logprob)
        self._ranks.append(rank)
        self.ended = stopped or token in self._ends or len(self.tokens) == self.generation.limit


@torch.inference_mode()
def sample(
    model: Any, vocabulary: int, generation: Generation, ends: Collection[int], token_bytes: Sequence[bytes]
) -> TokenScores:
    """The tokens of a sampled ``generation``; the plain way where the model keeps no keys and values, or wrong ones.

    That shows in one more pass over all tokens, which costs little beside a pass for each of them.
    """
    assert generation.sampling is not None
    inputs = torch.from_numpy(generation.context.astype(np.int64))[None].to(model.device)
    tokens: list[int] = []
    parts = [TokenScores.of()]
    past, last = None, plain.last_rows(model, 1)
    while len(tokens) < generation.limit:
        output = model(input_ids=inputs, past_key_values=past, use_cache=True, **last)
        past = getattr(output, "past_key_values", None)
        if past is None:
            return plain.sample(model, vocabulary, generation, ends, token_bytes)
        row = output.logits[0, -1:, :vocabulary].float().cpu()
        token = generation.sampling.draw(row[0, : len(token_bytes)].double().softmax(0).numpy(), len(tokens))
        if token in ends or generation.stopped([*tokens, token], token_bytes):
            break
        tokens.append(token)
        parts.append(plain.scores(row, np.asarray([token], dtype=np.int32)))
        inputs = inputs.new_tensor([[token]])
    scores = TokenScores.joined(parts)
    if tokens:
        reference = plain.score(model, vocabulary, Span(generation.context, scores.tokens)).logprobs
        rounding = max(1e-3, 64 * torch.finfo(model.dtype).eps)
        if not np.allclose(scores.logprobs, reference, rtol=0.01, atol=rounding, equal_nan=True):
            return plain.sample(model, vocabulary, generation, ends, token_bytes)
    return scores
