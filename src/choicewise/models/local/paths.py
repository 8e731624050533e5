"""The fast compute paths, from the fastest to the simplest (:data:`LADDER`).

On a CUDA device :class:`TreePath` launches a kernel per segment.  :class:`VarlenPath` launches two per layer, in 16
bits.  :class:`FlexPath` launches one and computes in float32 too, but compiles the rule of visibility into it for half
a minute; on a CPU it runs uncompiled, as a test of the rule.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import cache, cached_property
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import DynamicCache

from choicewise.engine import Pack, Reach, Tree, build, next_pack, next_path
from choicewise.errors import ModelError
from choicewise.models.local import attention, plain
from choicewise.models.local.attention import (
    AttentionOptions,
    DecodePass,
    KeysValues,
    TreePass,
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
from choicewise.models.local.devices import PACKS, TOGETHER, ranks, to_device
from choicewise.models.local.parallel import refuse_memory
from choicewise.models.local.varlen import Call, flash, layout
from choicewise.questions import Answers, Generation, Ids, Mass, SetSpan, Span, TokenScores

_MASKED_TOKENS = 512  # packs with a dense mask cost the square of their length
BLOCK = 128  # rows, and keys, that the compiled kernel visits or skips together
COMPILED = 64  # kernels at most: one for each width of heads, scale and arithmetic, and for one block or several
PAIRS = (
    2**24
)  # pack times path at most: after a very long path packs are short, so that masks do not outgrow the model

_LESS = "use a smaller model, a narrower dtype, or a device with more memory"
_UNABLE = "this model can't read options as a set: "


class PackedPath(ComputePath):
    """Scores pack by pack; ``forward`` says how a pack goes through the model.

    ``budget``: the most tokens of a pack, halved whenever memory runs out.
    """

    def __init__(self, lm: CausalLM, budget: int) -> None:
        super().__init__(lm)
        self.budget = budget

    @abstractmethod
    def forward(self, tree: Tree, pack: Pack, past: KeysValues) -> tuple[torch.Tensor, KeysValues]:
        """Hidden states of the pack, shape [nodes, width], and the next pack's ``past``.

        ``past``: keys and values along the path to the pack, one pair per layer, each of shape [1, heads, path, width].
        """

    @torch.inference_mode()
    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """The answers, pack by pack; every node of their tree is computed once."""
        tree = build(questions)
        readout = Readout(self.lm, tree)
        self.lm.work.planned += len(tree)
        yield from self.run_packs(tree, lambda pack, hidden: readout.read(pack.start, hidden))
        yield from readout.finish()

    def run_packs(self, tree: Tree, read: Callable[[Pack, torch.Tensor], Answers]) -> Answers:
        """What ``read`` yields for every pack and its hidden states, with smaller packs where memory runs out."""
        past: KeysValues = []
        path, start = np.empty(0, dtype=np.int32), 0
        while start < len(tree):
            pack = next_pack(
                tree,
                start,
                path,
                min(self.budget, max(attention.SEGMENT, PAIRS // (len(path) + 1))),
            )
            try:
                hidden, next_past = self.forward(tree, pack, past)
                answers = list(read(pack, hidden))
            except (RuntimeError, MemoryError) as error:
                self._shrink(error, len(pack))
                continue
            yield from answers
            past, path, start = next_past, next_path(pack), pack.stop

    def inputs(self, tree: Tree, pack: Pack) -> dict[str, Any]:
        """The pack as one row: its tokens, and their depths as positions."""
        nodes = slice(pack.start, pack.stop)
        return {
            "input_ids": self.lm.tensor(tree.tokens[nodes])[None],
            "position_ids": self.lm.tensor(tree.depth[nodes])[None],
        }

    def _shrink(self, error: Exception, tokens: int) -> None:
        """Halve the budget where ``error`` says that memory ran out; raise any other error again."""
        if not out_of_memory(error):
            raise error
        if tokens == 1:
            raise ModelError(
                f"there is not enough memory for one token of one prompt: {_LESS}"
            ) from error
        self.budget = tokens // 2
        if self.lm.device.type == "cuda":
            torch.cuda.empty_cache()


class TreePath(PackedPath):
    """The tree's own attention function inside the model: hardly a masked product is computed."""

    name = "tree"
    cost = "every unique token once"
    pass_type = TreePass
    _calls = 0
    _states: KeysValues | None = None

    def objection(self) -> str | None:
        """A layer that never called the tree's attention function computed something else."""
        if self._calls == self.lm.layers:
            return None
        return (
            f"the model called the tree's attention {self._calls} times for {self.lm.layers} layers"
        )

    def forward(self, tree: Tree, pack: Pack, past: KeysValues) -> tuple[torch.Tensor, KeysValues]:
        """One pass with the tree's attention."""
        tree_pass = self.pass_type(tree, pack, past, self._states, self.lm.multiply)
        hidden = _attended(self.lm, tree_pass.attend, self.inputs(tree, pack))
        self._calls = tree_pass.calls
        return hidden, tree_pass.next_past

    @torch.inference_mode()
    def generate(
        self,
        generations: Sequence[Generation],
        ends: Collection[int],
        token_bytes: Sequence[bytes] = (),
    ) -> Answers:
        """Contexts are computed once, and those that end in one pack are continued together from its keys and values.

        Some generations at a time: what is kept of each grows with its length.
        """
        tree = build([Span(generation.context, LIKELIEST) for generation in generations])
        nodes, known = (
            tree.rows[tree.span_of],
            min(self.lm.vocabulary, len(token_bytes) or self.lm.vocabulary),
        )
        self.lm.work.planned += len(tree) + sum(generation.limit - 1 for generation in generations)

        def read(pack: Pack, hidden: torch.Tensor) -> Answers:
            ending = np.flatnonzero((nodes >= pack.start) & (nodes < pack.stop))
            size = min(self.budget, TOGETHER)
            for part in (ending[start : start + size] for start in range(0, len(ending), size)):
                drafts = [Draft(generations[index], ends, token_bytes) for index in part]
                rows = hidden.index_select(
                    0, self.lm.tensor(nodes[part] - pack.start, hidden.device)
                )
                _decode(
                    self.lm,
                    DecodePass(tree, pack, nodes[part], self._states or []),
                    rows,
                    drafts,
                    known,
                )
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
        """One kernel for all rows."""
        if options.sinks is not None:
            raise ValueError("flex attention has no place for attention sinks")
        softcap, reach, kind = options.softcap, options.reach, (options.reach, query.device)
        if kind not in self.masks:
            self.masks[kind] = block_mask(self.tree, self.pack, reach, query.device)

        def capped(weight: Tensor, *place: Tensor) -> Tensor:
            return weight if softcap is None else torch.tanh(weight / softcap) * softcap

        look = {"score_mod": None if softcap is None else capped, "block_mask": self.masks[kind]}
        shared = query.shape[1] != key.shape[1]
        ordered = (
            states.contiguous() for states in (query, key, value)
        )  # another order in memory is another kernel
        output = _kernel(query.device.type)(
            *ordered, **look, scale=options.scaling, enable_gqa=shared
        )
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
        """Two kernels for all rows."""
        if options.softcap is not None:
            raise ValueError("FlashAttention can't cap attention weights")
        if query.is_cuda and query.dtype == torch.float32:
            raise ValueError("FlashAttention computes in 16 bits, not in float32")
        kind = (options.reach, query.device)
        if kind not in self.masks:
            calls = layout(self.tree, self.pack, options.reach)
            runs = Call.on(calls.runs, query.device)
            shared = None
            if calls.shared is not None:
                shared = Call.on(calls.shared, query.device)
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
    """The path of the rung called ``rung``, in packs of ``batch_tokens`` tokens or what suits the device."""
    return LADDER[rung](lm, batch_tokens or PACKS.get(lm.device.type, PACKS["cpu"]))


def rungs(device: str) -> dict[str, Rung]:
    """The rungs worth trying on a kind of device, fastest first."""
    if device == "cuda":
        return dict(LADDER)
    return {name: rung for name, rung in LADDER.items() if name not in ("varlen", "flex")}


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
        hidden = self.lm.body(**inputs, attention_mask=mask, state=cache, use_cache=True)[0][0]
        keep = {
            device: to_device(pack.keep, device)
            for device in {layer.keys.device for layer in cache.layers}
        }
        return hidden, [
            (
                layer.keys.index_select(2, keep[layer.keys.device]),
                layer.values.index_select(2, keep[layer.keys.device]),
            )
            for layer in cache.layers
        ]

    def _mask(self, tree: Tree, pack: Pack, reach: Reach) -> torch.Tensor:
        rows = np.arange(pack.start, pack.stop, dtype=np.int32)
        mask = to_device(visible(tree, rows, pack.nodes(), reach), self.lm.device)[None, None]
        if not self._additive:
            return mask
        dtype = self.lm.model.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(
            ~mask, torch.finfo(dtype).min
        )


class PrefixPath(ComputePath):
    """Every branch of the tree from a copy of its prefix's state: a cache or a recurrent state."""

    name = "prefix"
    cost = "every unique token about once, one branch at a time"
    worth: float = 16
    """Tokens that a prefix must save to be worth a copy of the state and a forward pass of its own."""

    @torch.inference_mode()
    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """The answers, branch by branch; prefixes that save less than ``worth`` are computed again."""
        tree = build(questions)
        readout = Readout(self.lm, tree)
        path = np.empty(tree.depth.max(initial=-1) + 1, dtype=np.int32)
        states: list[tuple[int, Any]] = [(0, None)]
        runs = branches(tree)
        begins = tree.depth[np.asarray([start for start, _ in runs], dtype=np.int64)]
        self.lm.work.planned += len(tree) + (int(begins.sum()) if self.worth == math.inf else 0)
        for index, (start, stop) in enumerate(runs):
            depth = int(begins[index])
            while states[-1][0] > depth:
                states.pop()
            path[depth : depth + stop - start] = tree.tokens[start:stop]
            at, state = states[-1][0], copy.deepcopy(states[-1][1])
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
        output = self.lm.body(input_ids=self.lm.tensor(tokens)[None], state=state, use_cache=True)
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
        return self.lm.body(input_ids=self.lm.tensor(tokens)[None], use_cache=False)[0][0], state


class SetBasedPath:
    """Answers :class:`~choicewise.questions.SetSpan`: one pass for a context and all continuations after it.

    Options that do not see each other (McIlroy-Young et al. 2024, arXiv:2406.06581), so that no order of theirs changes
    more than rounding.  Masks and windows go by positions, as in the tree of tokens.

    ``objection``: why the model can't be asked; None where it can.
    """

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm

    @torch.inference_mode()
    def answer(self, questions: Sequence[SetSpan]) -> Answers:
        """The answers, context by context; unanswered, with the reason, where the model can't be asked."""
        groups: dict[bytes, list[int]] = {}
        for index, question in enumerate(questions):
            groups.setdefault(question.edges.tobytes() + question.context.tobytes(), []).append(
                index
            )
        objection = self.objection
        if objection is None:
            firsts = (questions[places[0]] for places in groups.values())
            own = sum(len(question.continuation) - 1 for question in questions)
            self.lm.work.planned += own + sum(len(first.context) for first in firsts)
        for places in groups.values():
            group = [questions[place] for place in places]
            if objection is not None:
                yield from (
                    (at, TokenScores.unanswered(objection, questions[at].continuation))
                    for at in places
                )
                continue
            try:
                scores = self._scores(group)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                raise ModelError(
                    f"there is not enough memory for {group[0].inputs} tokens at once; {_LESS}"
                ) from error
            yield from zip(places, scores, strict=True)

    @cached_property
    def objection(self) -> str | None:
        """Asked once, with a few options in two orders, and with one, which is then a text like any other."""
        random = np.random.default_rng(0)
        before, first, second, third, after, scored = (
            random.integers(0, self.lm.vocabulary, size, dtype=np.int32)
            for size in (5, 3, 1, 6, 4, 8)
        )
        context, text = (
            np.concatenate([before, first, second, third, after]),
            np.concatenate([before, third, after]),
        )
        asked = SetSpan(context, scored, np.asarray([5, 8, 9, 15], dtype=np.int32))
        alone = SetSpan(text, scored, np.asarray([5, 11], dtype=np.int32))
        allowed = max(1e-3, 64 * torch.finfo(self.lm.model.dtype).eps)
        with self.lm.counting():
            truth = plain.score(self.lm.model, self.lm.vocabulary, Span(text, scored)).logprobs
        try:
            with torch.inference_mode():
                tried = [
                    self._scores([each])[0] for each in (asked, asked.in_order((2, 0, 1)), alone)
                ]
        except Exception as error:  # a model's own code fails in every way there is
            return _UNABLE + (str(error).splitlines() or [type(error).__name__])[0][:200]
        one, other, single = (each.logprobs for each in tried)
        difference = max(np.abs(one - other).max(), np.abs(single - truth).max())
        told = f"{difference:.2g} nats a token depend on their order, or on the way in which one is read"
        return None if difference <= allowed else _UNABLE + told

    def _scores(self, group: Sequence[SetSpan]) -> list[TokenScores]:
        """The answers to questions with the same context and options."""
        layout = _Layout(group)
        run = _SetPass(layout)
        tokens = self.lm.tensor(layout.tokens)[None]
        positions = self.lm.tensor(layout.positions)[None]
        hidden = _attended(self.lm, run.attend, {"input_ids": tokens, "position_ids": positions})
        if run.calls != (layers := self.lm.layers):
            raise ValueError(
                f"{layers - run.calls} of its {layers} layers have no attention whose mask can be set"
            )
        order = np.argsort(layout.rows, kind="stable")
        read = [
            part.cpu().numpy()
            for part in self.lm.read(hidden, layout.rows[order], layout.targets[order])
        ]
        place = np.argsort(order, kind="stable")
        ends = np.cumsum([len(each.continuation) for each in group])[:-1]
        parts = zip(*(np.split(each[place], ends) for each in read), strict=True)
        return [TokenScores(*part) for part in parts]


def out_of_memory(error: Exception) -> bool:
    """Whether an exception means that memory ran out, on a device or on the host.

    One of several ranks that share a model can't go on with less than the others: its process ends.
    """
    if ranks() > 1:
        refuse_memory(error)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(
        error
    )


def block_mask(tree: Tree, pack: Pack, reach: Reach, device: torch.device) -> BlockMask:
    """Which keys (places of the pack) every row of the pack sees: itself and its ancestors within reach.

    Blocks that no row sees, and those that all rows see whole, follow from where the keys' subtrees begin and end, so
    that no array has a place for every pair.
    """
    nodes, count = pack.nodes(), pack.stop - pack.start
    lowest = reach.lowest(tree.depth[pack.start : pack.stop])
    node, end, depth = nodes - pack.start, tree.end[nodes] - pack.start, tree.depth[nodes]

    def visible(batch: Tensor, head: Tensor, row: Tensor, place: Tensor) -> Tensor:
        return (
            (on_device[0][place] <= row)
            & (row < on_device[1][place])
            & (on_device[2][place] >= on_device[3][row])
        )

    on_device = [to_device(array.astype(np.int32), device) for array in (node, end, depth, lowest)]
    blocks = -(-count // BLOCK), -(-len(nodes) // BLOCK)
    first, last = np.maximum(node, 0), np.minimum(end, count)
    of = np.arange(len(nodes)) // BLOCK
    some, whole = (np.zeros((blocks[0] + 1, blocks[1]), dtype=np.int32) for _ in range(2))
    for covered, begin, stop in (
        (some, first // BLOCK, -(-last // BLOCK)),
        (whole, -(-first // BLOCK), last // BLOCK),
    ):
        valid = begin < stop
        np.add.at(covered, (begin[valid], of[valid]), 1)
        np.add.at(covered, (stop[valid], of[valid]), -1)
    seen, full = (
        covered.cumsum(axis=0)[:-1] >= least for covered, least in ((some, 1), (whole, BLOCK))
    )
    deep, shallow = (_by_block(depth, ufunc) for ufunc in (np.maximum, np.minimum))
    high, low = (_by_block(lowest, ufunc) for ufunc in (np.minimum, np.maximum))
    seen &= deep >= high[:, None]
    full &= shallow >= low[:, None]
    partly = to_device(seen & ~full, device), to_device(full, device)
    tables = [
        table
        for which in partly
        for table in (
            which.sum(1, dtype=torch.int32)[None, None],
            which.int().argsort(dim=1, descending=True, stable=True).int()[None, None],
        )
    ]
    return BlockMask.from_kv_blocks(
        *tables, BLOCK_SIZE=BLOCK, mask_mod=visible, seq_lengths=(count, len(nodes))
    )


def _by_block(values: Ids, ufunc: np.ufunc) -> Ids:
    return ufunc.reduceat(values, np.arange(0, len(values), BLOCK))


def declared(config: Any) -> dict[str, Reach]:
    """How far each kind of layer looks, by the configuration; the kind is "" where there is only one."""
    window, chunk = (
        getattr(config, "sliding_window", None),
        getattr(config, "attention_chunk_size", None),
    )
    known = {
        "full_attention": Reach(),
        "sliding_attention": Reach(window=window),
        "chunked_attention": Reach(chunk=chunk),
    }
    kinds = set(getattr(config, "layer_types", None) or [])
    if kinds and kinds <= known.keys():
        return {kind: known[kind] for kind in kinds}
    return {"": Reach(window=window)}


def branches(tree: Tree) -> list[tuple[int, int]]:
    """The runs of nodes [start, stop) that each follow their parent directly; together they are the tree."""
    starts = np.flatnonzero(np.diff(tree.depth, prepend=np.int32(0)) != 1)
    return list(pairwise([*map(int, starts), len(tree)]))


@cache
def _kernel(device: str) -> Callable[..., Any]:
    if device != "cuda":
        return flex_attention
    # In one graph: beyond its limit the compiler would go on without a kernel, in memory for every pair, and now fails.
    most = (
        {"recompile_limit": COMPILED}
        if "recompile_limit" in signature(torch.compile).parameters
        else {}
    )
    return torch.compile(flex_attention, dynamic=True, fullgraph=True, **most)


def _needed(begins: Ids, at: int, worth: float) -> list[int]:
    """Depths beyond ``at`` from which later branches will start, while this branch's tokens are still their prefix."""
    lowest = np.minimum.accumulate(begins)
    depths: list[int] = []
    for depth in np.unique(lowest[lowest > at]):
        if depth - (depths[-1] if depths else at) >= worth:
            depths.append(int(depth))
    return depths


def _decode(
    lm: CausalLM, decoding: DecodePass, hidden: Tensor, drafts: Sequence[Draft], known: int
) -> None:
    """Complete ``drafts``, whose contexts end in a pack; ``hidden``: their states there, shape [drafts, width].

    A draft that ends leaves the batch.  ``known``: how many tokens may be drawn.
    """
    while True:
        chosen = lm.choose(hidden, np.asarray([draft.share for draft in drafts]), known)
        for draft, token, logprob, rank in zip(
            drafts, *(part.tolist() for part in chosen), strict=True
        ):
            draft.add(token, logprob, rank)
        rows = [row for row, draft in enumerate(drafts) if not draft.ended]
        if not rows:
            return
        if len(rows) < len(drafts):
            decoding.restrict(rows)
            drafts = [drafts[row] for row in rows]
        newest = lm.tensor(np.asarray([draft.tokens[-1] for draft in drafts]))
        inputs = {"input_ids": newest[None], "position_ids": lm.tensor(decoding.depth)[None]}
        hidden = _attended(lm, decoding.attend, inputs)
        decoding.end_token()


def _attended(lm: CausalLM, attend: attention.Attend, inputs: dict[str, Tensor]) -> Tensor:
    """Hidden states of one row of ``inputs``, shape [tokens, width]; ``attend``: the attention of every layer."""
    # A two-dimensional mask keeps transformers from guessing sequences out of the positions.
    ones = torch.ones_like(inputs["input_ids"])
    with lm.attention(attention.NAME), attention.running(attend):
        hidden: Tensor = lm.body(**inputs, attention_mask=ones, use_cache=False)[0][0]
    return hidden


class _Layout:
    """A context and the inputs of all continuations after it as one row.

    ``tokens`` and ``positions``: [tokens].  ``option`` and ``branch``: of each token the number of its option or of its
    continuation, from 1 on, else 0.  ``rows`` are read for the ``targets``, those of one question after the other's.
    """

    def __init__(self, group: Sequence[SetSpan]) -> None:
        context, edges = group[0].context, group[0].edges
        sizes = np.diff(edges)
        start, after = int(edges[0]), len(context) - int(edges[-1])
        resumed = start + int(sizes.max(initial=0))
        own = [np.arange(start, start + size) for size in sizes]
        inputs = [each.continuation[:-1] for each in group]
        lengths = [len(each) for each in inputs]
        begins = len(context) + np.cumsum([0, *lengths])
        self.tokens: Ids = np.concatenate([context, *inputs]).astype(np.int32)
        self.positions: Ids = np.concatenate(
            [
                np.arange(start),
                *own,
                np.arange(resumed, resumed + after),
                *(np.arange(resumed + after, resumed + after + length) for length in lengths),
            ]
        ).astype(np.int32)
        self.option = np.zeros(len(self.tokens), dtype=np.int32)
        self.option[start : edges[-1]] = np.repeat(np.arange(1, len(sizes) + 1), sizes)
        self.branch = np.zeros(len(self.tokens), dtype=np.int32)
        self.branch[len(context) :] = np.repeat(np.arange(1, len(group) + 1), lengths)
        last = len(context) - 1
        self.rows: Ids = np.concatenate(
            [
                [last, *range(begin, begin + length)]
                for begin, length in zip(begins, lengths, strict=False)
            ]
        ).astype(np.int32)
        self.targets: Ids = np.concatenate([each.continuation for each in group])

    def visible(self, rows: slice, reach: Reach) -> npt.NDArray[np.bool_]:
        """Which tokens up to the last of ``rows`` each of them sees, shape [rows, tokens]."""
        keys = slice(rows.stop)
        row, key = np.arange(rows.start, rows.stop)[:, None], np.arange(rows.stop)
        mine, other = self.option[rows, None], self.option[keys]
        seen = (key <= row) & ((mine == 0) | (other == 0) | (mine == other))
        seen &= (self.branch[keys] == 0) | (self.branch[keys] == self.branch[rows, None])
        return np.asarray(
            seen & (self.positions[keys] >= reach.lowest(self.positions[rows])[:, None])
        )


class _SetPass:
    """One row on its way through the layers, which ``calls`` counts."""

    def __init__(self, layout: _Layout) -> None:
        self.layout = layout
        self.calls = 0
        self._masks: dict[Any, list[tuple[slice, Tensor]]] = {}

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """The next layer's attention, shapes as in :data:`~choicewise.models.local.attention.Attend`."""
        self.calls += 1
        count, group = query.shape[2], query.shape[1] // key.shape[1]
        kind = options.reach, group, query.device
        if kind not in self._masks:
            starts = range(0, count, attention.SEGMENT)
            parts = [slice(start, min(start + attention.SEGMENT, count)) for start in starts]
            visible_to = [self.layout.visible(rows, options.reach) for rows in parts]
            masks = [attention.additive(seen, group, query) for seen in visible_to]
            self._masks[kind] = list(zip(parts, masks, strict=True))
        output = query.new_empty(1, count, query.shape[1], value.shape[3])
        for rows, mask in self._masks[kind]:
            keys, values = key[:, :, : rows.stop], value[:, :, : rows.stop]
            output[:, rows] = attention.attend(query[:, :, rows], keys, values, mask, options)
        return output
