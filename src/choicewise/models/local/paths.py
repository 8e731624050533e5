"""The fast compute paths, from the fastest to the simplest (:data:`LADDER`).

On a CUDA device :class:`TreePath` launches a kernel per segment.  :class:`VarlenPath` launches two
per layer, in 16 bits.  :class:`FlexPath` launches one and computes in float32 too, but compiles the
rule of visibility into it for half a minute; on a CPU it runs uncompiled, as a test of the rule.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from choicewise.engine import Pack, Reach, Tree, build, next_pack, next_path
from choicewise.errors import ModelError
from choicewise.models.local import attention
from choicewise.models.local.attention import (
    AttentionOptions,
    DecodePass,
    KeysValues,
    TreePass,
    hidden_states,
    visible,
)
from choicewise.models.local.causal_lm import (
    LIKELIEST,
    CausalLM,
    ComputePath,
    Draft,
    PlainPath,
    Readout,
    Rung,
    state_of,
)
from choicewise.models.local.devices import TOGETHER, pack_tokens, room_beside, to_device
from choicewise.models.local.flex import block_mask, flex
from choicewise.models.local.fused import FusedLayers
from choicewise.models.local.parallel import LESS_MEMORY, out_of_memory, same_on_all_ranks
from choicewise.models.local.varlen import KernelCall, flash, layout
from choicewise.questions import Answers, Generation, Ids, Mass, Span, TokenScores

_MASKED_TOKENS = 512
"""Tokens of a pack with a dense mask, which costs the square of its length."""

PAIRS = 2**24
"""Pack times path at most: after a very long path packs are short, so that masks stay small."""


class PackedPath(ComputePath):
    """Scores pack by pack; ``forward`` says how a pack goes through the model.

    ``budget``: the most tokens of a pack, halved whenever memory runs out.
    """

    def __init__(self, lm: CausalLM, budget: int) -> None:
        super().__init__(lm)
        self.budget = budget

    @abstractmethod
    def forward(self, tree: Tree, pack: Pack, past: KeysValues) -> tuple[torch.Tensor, KeysValues]:
        """Return hidden states of the pack [nodes, width], and the next pack's ``past``.

        ``past``: keys and values [1, heads, path, width] along the path to the pack, a pair per
        layer.
        """

    @torch.inference_mode()
    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """Yield the answers, pack by pack; every node of their tree is computed once."""
        tree = build(questions)
        readout = Readout(self.lm, tree)
        self.lm.work.planned += len(tree)
        yield from self.run_packs(tree, lambda pack, hidden: readout.read(pack.start, hidden))
        yield from readout.finish()

    def run_packs(self, tree: Tree, read: Callable[[Pack, torch.Tensor], Answers]) -> Answers:
        """Yield what ``read`` does for every pack and its hidden states; packs shrink if memory
        runs out.
        """
        past: KeysValues = []
        path = np.empty(0, dtype=np.int32)
        start = 0
        while start < len(tree):
            most = max(attention.SEGMENT, PAIRS // (len(path) + 1))
            pack = next_pack(tree, start, path, min(self.budget, most))
            answers: list[tuple[int, TokenScores]] = []
            try:
                hidden, next_past = self.forward(tree, pack, past)
                for answer in read(pack, hidden):
                    answers.append(answer)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                # Generations that ended before memory ran out are answered.
                yield from answers
                if len(pack) == 1:
                    raise ModelError(
                        f"there is not enough memory for one token of one prompt: {LESS_MEMORY}"
                    ) from error
                self._halve(len(pack))
                continue
            yield from answers
            past = next_past
            path = next_path(pack)
            start = pack.stop

    def inputs(self, tree: Tree, pack: Pack) -> dict[str, Any]:
        """Return the pack as one row: its tokens, and their depths as positions."""
        nodes = slice(pack.start, pack.stop)
        return {
            "input_ids": self.lm.tensor(same_on_all_ranks(tree.tokens[nodes]))[None],
            "position_ids": self.lm.tensor(tree.depth[nodes])[None],
        }

    def _halve(self, tokens: int) -> None:
        """Take packs of half as many tokens, after ``tokens`` were too many for the memory."""
        self.budget = tokens // 2
        if self.lm.device.type == "cuda":
            torch.cuda.empty_cache()


class TreePath(PackedPath):
    """The tree's own attention function inside the model: hardly a masked product is computed."""

    name = "tree"
    cost = "every unique token once"
    pass_type = TreePass
    layers: FusedLayers | None = None
    """The layers of the model, if they are compiled."""
    _calls = 0
    _states: KeysValues | None = None

    def objection(self) -> str | None:
        """Return that layers computed something else than the tree's attention, or None."""
        if self._calls == self.lm.layers:
            return None
        return (
            f"the model called the tree's attention {self._calls} times for {self.lm.layers} layers"
        )

    def forward(self, tree: Tree, pack: Pack, past: KeysValues) -> tuple[torch.Tensor, KeysValues]:
        """Compute one pass with the tree's attention."""
        tree_pass = self.pass_type(tree, pack, past, self._states, self.lm.multiply)
        inputs = self.inputs(tree, pack)
        compiled = nullcontext() if self.layers is None else self.layers.running()
        with compiled:
            hidden = hidden_states(self.lm, tree_pass.attend, inputs)
        self._calls = tree_pass.calls
        return hidden, tree_pass.next_past

    @torch.inference_mode()
    def generate(
        self,
        generations: Sequence[Generation],
        ends: Collection[int],
        token_bytes: Sequence[bytes] = (),
    ) -> Answers:
        """Yield the tokens of every generation.

        Contexts are computed once, and those that end in one pack are continued together from its
        keys and values.  Some generations go at a time, as what is kept of each grows.
        """
        tree = build([Span(generation.context, LIKELIEST) for generation in generations])
        nodes = tree.rows[tree.span_of]
        vocabulary = self.lm.vocabulary
        known = min(vocabulary, len(token_bytes) or vocabulary)
        self.lm.work.planned += len(tree) + sum(generation.limit - 1 for generation in generations)
        is_waiting = np.ones(len(generations), dtype=np.bool_)

        def read(pack: Pack, hidden: torch.Tensor) -> Answers:
            ending = np.flatnonzero((nodes >= pack.start) & (nodes < pack.stop) & is_waiting)
            size = min(self.budget, TOGETHER)
            for start in range(0, len(ending), size):
                part = ending[start : start + size]
                drafts = [Draft(generations[index], ends, token_bytes) for index in part]
                rows = self.lm.tensor(nodes[part] - pack.start, hidden.device)
                decoding = DecodePass(tree, pack, nodes[part], self._states or [])
                _decode(self.lm, decoding, hidden.index_select(0, rows), drafts, known)
                is_waiting[part] = False
                for index, draft in zip(part.tolist(), drafts, strict=True):
                    self.lm.work.planned -= draft.generation.limit - draft.steps
                    yield index, draft.scores

        self._states = []
        try:
            yield from self.run_packs(tree, read)
        finally:
            self._states = None


class _FlexPass(TreePass):
    """A pack whose rows see their ancestors by a rule instead of masks."""

    def output(
        self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Return the attention of all rows from one kernel; ValueError for a layer with sinks."""
        if options.sinks is not None:
            raise ValueError("flex attention can't compute attention sinks")
        kind = (options.reach, query.device)
        if kind not in self.masks:
            self.masks[kind] = block_mask(self.tree, self.pack, options.reach, query.device)
        output = flex(query, key, value, self.masks[kind], options.scaling, options.softcap)
        return output.transpose(1, 2)


class FlexPath(TreePath):
    """The tree in one attention kernel per layer."""

    name = "flex"
    pass_type = _FlexPass


class _VarlenPass(TreePass):
    """A pack whose rows attend in two calls a layer, whatever the number of runs."""

    def output(
        self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Return the attention of all rows from two kernels.

        Raises ValueError for weights that are capped, and for float32 on a GPU.
        """
        if options.softcap is not None:
            raise ValueError("FlashAttention can't cap attention weights")
        if query.is_cuda and query.dtype == torch.float32:
            raise ValueError("FlashAttention computes in 16 bits, not in float32")
        kind = (options.reach, query.device)
        if kind not in self.masks:
            calls = layout(self.tree, self.pack, options.reach)
            runs = KernelCall.on(calls.runs, query.device)
            shared = None
            if calls.shared is not None:
                shared = KernelCall.on(calls.shared, query.device)
            self.masks[kind] = (runs, shared, calls.window)
        runs, shared, window = self.masks[kind]
        rows = query[0].transpose(0, 1).contiguous()
        keys = key[0].transpose(0, 1)
        values = value[0].transpose(0, 1)
        scaling = options.scaling
        attended = flash(rows, keys, values, runs, scaling, causal=True, window=window)
        if shared is not None:
            sharing = rows.index_select(0, shared.rows)
            attended.add(flash(sharing, keys, values, shared, scaling), shared.rows)
        if options.sinks is not None:
            attended.add_sinks(options.sinks)
        return attended.output[None]


class VarlenPath(TreePath):
    """The tree in two calls of FlashAttention per layer, which computes in 16 bits alone."""

    name = "varlen"
    pass_type = _VarlenPass


LADDER: dict[str, Rung] = {
    "varlen": VarlenPath,
    "flex": FlexPath,
    "tree": TreePath,
    "mask": lambda lm, tokens: MaskPath(lm, min(tokens, _MASKED_TOKENS)),
    "additive mask": lambda lm, tokens: MaskPath(lm, min(tokens, _MASKED_TOKENS), additive=True),
    "prefix": lambda lm, tokens: PrefixPath(lm),
    "sequence": lambda lm, tokens: SequencePath(lm),
    "plain": lambda lm, tokens: PlainPath(lm),
}


def compute_path(rung: str, lm: CausalLM, batch_tokens: int | None = None) -> ComputePath:
    """Return the path named ``rung``, in packs of ``batch_tokens`` tokens or of what suits the
    device.
    """
    if batch_tokens is None:
        batch_tokens = pack_tokens(lm.device.type, room_beside(lm.model, lm.device))
    return LADDER[rung](lm, batch_tokens)


def rungs(device: str) -> dict[str, Rung]:
    """Return the rungs worth trying on a kind of device, fastest first."""
    if device == "cuda":
        return dict(LADDER)
    return {name: rung for name, rung in LADDER.items() if name not in ("varlen", "flex")}


class MaskPath(PackedPath):
    """A four-dimensional mask for the model's own attention; one per kind of layer where it has
    several kinds.
    """

    cost = "every unique token once, with every pair of a pack's tokens masked"

    def __init__(self, lm: CausalLM, budget: int, *, additive: bool = False) -> None:
        super().__init__(lm, budget)
        self.name = "additive mask" if additive else "mask"
        self._additive = additive
        self._reach = declared(lm.model.config.get_text_config())

    def forward(self, tree: Tree, pack: Pack, past: KeysValues) -> tuple[torch.Tensor, KeysValues]:
        """Compute one pass with a cache of the path."""
        cache = DynamicCache()
        for layer, (key, value) in enumerate(past):
            cache.update(key, value, layer)
        masks = {kind: self._mask(tree, pack, reach) for kind, reach in self._reach.items()}
        # A model with layers of several kinds takes a dictionary, others a mask.
        mask = masks.get("", masks)
        inputs = self.inputs(tree, pack)
        hidden = self.lm.body(**inputs, attention_mask=mask, state=cache, use_cache=True)[0][0]
        next_past = []
        for layer_cache in cache.layers:
            keep = to_device(pack.keep, layer_cache.keys.device)
            next_past.append(
                (layer_cache.keys.index_select(2, keep), layer_cache.values.index_select(2, keep))
            )
        return hidden, next_past

    def _mask(self, tree: Tree, pack: Pack, reach: Reach) -> torch.Tensor:
        rows = np.arange(pack.start, pack.stop, dtype=np.int32)
        mask = to_device(visible(tree, rows, pack.nodes(), reach), self.lm.device)[None, None]
        if not self._additive:
            return mask
        dtype = self.lm.model.dtype
        zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
        return zeros.masked_fill_(~mask, torch.finfo(dtype).min)


class PrefixPath(ComputePath):
    """Every branch of the tree from a copy of its prefix's state: a cache or a recurrent state."""

    name = "prefix"
    cost = "every unique token about once, one branch at a time"
    worth: float = 16
    """Tokens that a prefix must save to be worth a copy of the state and a forward pass of its own."""

    @torch.inference_mode()
    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """Yield the answers, branch by branch; prefixes that save less than ``worth`` are computed
        again.
        """
        tree = build(questions)
        readout = Readout(self.lm, tree)
        path = np.empty(tree.depth.max(initial=-1) + 1, dtype=np.int32)
        states: list[tuple[int, Any]] = [(0, None)]
        runs = branches(tree)
        begins = tree.depth[np.asarray([start for start, _ in runs], dtype=np.int64)]
        self.lm.work.planned += len(tree)
        if self.worth == math.inf:
            self.lm.work.planned += int(begins.sum())
        for index, (start, stop) in enumerate(runs):
            depth = int(begins[index])
            while states[-1][0] > depth:
                states.pop()
            path[depth : depth + stop - start] = tree.tokens[start:stop]
            at, kept = states[-1]
            state = copy.deepcopy(kept)
            needed = _needed(begins[index + 1 :], at, self.worth)
            for end in [*needed, depth + stop - start]:
                if end == at:
                    continue
                hidden, state = self._continue(path[at:end], state)
                if end > depth:
                    repeated = max(depth - at, 0)
                    yield from readout.read(start + at + repeated - depth, hidden[repeated:])
                at = end
                if end in needed:
                    states.append((end, copy.deepcopy(state)))
        yield from readout.finish()

    def _continue(self, tokens: Ids, state: Any) -> tuple[torch.Tensor, Any]:
        output = self.lm.body(
            input_ids=self.lm.tensor(same_on_all_ranks(tokens))[None], state=state, use_cache=True
        )
        after = state_of(output)
        if after is None:
            raise ValueError("the model returns no state to continue from")
        return output[0][0], after


class SequencePath(PrefixPath):
    """Every sequence in full, one at a time; one that begins another is not run by itself."""

    name = "sequence"
    cost = "every distinct sequence in full, one at a time"
    worth = math.inf

    def _continue(self, tokens: Ids, state: Any) -> tuple[torch.Tensor, Any]:
        return self.lm.body(
            input_ids=self.lm.tensor(same_on_all_ranks(tokens))[None], use_cache=False
        )[0][0], state


def declared(config: Any) -> dict[str, Reach]:
    """Return how far every kind of layer looks by the configuration; the kind is "" if there is
    one.
    """
    window = getattr(config, "sliding_window", None)
    reaches = {
        "full_attention": Reach(),
        "sliding_attention": Reach(window=window),
        "chunked_attention": Reach(chunk=getattr(config, "attention_chunk_size", None)),
    }
    kinds = set(getattr(config, "layer_types", None) or [])
    if kinds and kinds <= reaches.keys():
        return {kind: reaches[kind] for kind in kinds}
    return {"": Reach(window=window)}


def branches(tree: Tree) -> list[tuple[int, int]]:
    """Return the runs of nodes [start, stop) that follow their parents directly: together the tree."""
    starts = np.flatnonzero(np.diff(tree.depth, prepend=np.int32(0)) != 1)
    return list(pairwise([*starts.tolist(), len(tree)]))


def _needed(begins: Ids, at: int, worth: float) -> list[int]:
    """Return depths beyond ``at`` at which later branches start while this branch is their prefix."""
    lowest = np.minimum.accumulate(begins)
    depths: list[int] = []
    last = at
    for depth in np.unique(lowest[lowest > at]).tolist():
        if depth - last >= worth:
            depths.append(depth)
            last = depth
    return depths


def _decode(
    lm: CausalLM, decoding: DecodePass, hidden: Tensor, drafts: Sequence[Draft], known: int
) -> None:
    """Complete ``drafts``, whose contexts end in a pack; a draft that ends leaves the batch.

    ``hidden``: their states there, [drafts, width].  ``known``: how many tokens may be drawn.
    """
    while True:
        shares = np.asarray([draft.share for draft in drafts])
        tokens, logprobs, ranks = lm.choose(hidden, shares, known)
        chosen = zip(drafts, tokens.tolist(), logprobs.tolist(), ranks.tolist(), strict=True)
        for draft, token, logprob, rank in chosen:
            draft.add(token, logprob, rank)
        rows = [row for row, draft in enumerate(drafts) if not draft.ended]
        if not rows:
            return
        if len(rows) < len(drafts):
            decoding.restrict(rows)
            drafts = [drafts[row] for row in rows]
        newest = np.asarray([draft.tokens[-1] for draft in drafts])
        inputs = {
            "input_ids": lm.tensor(same_on_all_ranks(newest))[None],
            "position_ids": lm.tensor(decoding.depth)[None],
        }
        hidden = hidden_states(lm, decoding.attend, inputs)
        decoding.end_token()
