"""The two fastest rungs: packs of the token tree, one unpadded row each, with the path's keys and values kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache

from choicewise.engine.pack import Pack, next_pack, next_path
from choicewise.engine.tree import Tree, build
from choicewise.errors import ModelError
from choicewise.models.local import attention
from choicewise.models.local.attention import Reach, TreePass, visible
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.greedy_decoding import DecodePass, decode
from choicewise.models.local.greedy_rounds import LIKELIEST, greedy_rounds
from choicewise.models.local.readout import Readout
from choicewise.models.local.transfer import to_device
from choicewise.questions.generation import Generation
from choicewise.questions.mass import Mass
from choicewise.questions.span import Span
from choicewise.questions.token_scores import TokenScores

Kept = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values along the path to the next pack, one pair per layer, each of shape [1, heads, path, width]."""

Answer = tuple[int, TokenScores]

PAIRS = 2**24
"""Pack times path at most: after a very long path packs are short, lest their masks outgrow the model."""


class Packed:
    """Scores spans pack by pack; how a pack passes through the model is up to ``forward``.

    ``budget``: the most tokens in a pack.  It halves whenever memory runs out.
    """

    name: str

    def __init__(self, lm: CausalLM, budget: int) -> None:
        self.lm = lm
        self.budget = budget

    def objection(self) -> str | None:
        """Why the numbers can't be trusted even where they agree."""
        return None

    def forward(self, tree: Tree, pack: Pack, kept: Kept) -> tuple[torch.Tensor, Kept]:
        """Hidden states of the pack, shape [nodes, width], and what to keep for the next one."""
        raise TypeError(f"{type(self).__name__} does not say how a pack is computed")

    @torch.inference_mode()
    def score(self, spans: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``spans``, what was seen), every node of their tree computed once."""
        tree = build(spans)
        readout = Readout(self.lm, tree)
        yield from self.each(tree, lambda pack, hidden: readout.take(pack.start, hidden))
        yield from readout.rest()

    def generate(self, prompts: Sequence[Generation], ends: Collection[int]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``prompts``, the greedy tokens), as generations end."""
        return greedy_rounds(self, prompts, ends)

    def each(self, tree: Tree, take: Callable[[Pack, torch.Tensor], Iterable[Answer]]) -> Iterator[Answer]:
        """What ``take`` makes of every pack and its hidden states, with smaller packs where memory runs out."""
        kept: Kept = []
        path, start = np.empty(0, dtype=np.int32), 0
        while start < len(tree):
            pack = next_pack(tree, start, path, min(self.budget, max(attention.SEGMENT, PAIRS // (len(path) + 1))))
            try:
                hidden, keeping = self.forward(tree, pack, kept)
                found = list(take(pack, hidden))
            except (RuntimeError, MemoryError) as error:
                self._shrink(error, len(pack))
                continue
            yield from found
            kept, path, start = keeping, next_path(pack), pack.stop

    def inputs(self, tree: Tree, pack: Pack) -> dict[str, Any]:
        """The pack as one row: its tokens, and their depths as positions."""
        nodes = slice(pack.start, pack.stop)
        return {
            "input_ids": self.lm.tensor(tree.tokens[nodes])[None],
            "position_ids": self.lm.tensor(tree.depth[nodes])[None],
        }

    def _shrink(self, error: Exception, tokens: int) -> None:
        """Halve the budget when ``error`` says that memory ran out; raise it again when it says anything else."""
        if not out_of_memory(error):
            raise error
        if tokens == 1:
            raise ModelError(
                "there is not enough memory for one token of one prompt: "
                "use a smaller model, a narrower --dtype, or a --device with more memory"
            ) from error
        self.budget = tokens // 2
        if self.lm.device.type == "cuda":
            torch.cuda.empty_cache()


def out_of_memory(error: Exception) -> bool:
    """Whether an exception means that memory ran out, on a device or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


class TreePath(Packed):
    """The tree's own attention function inside the model: nothing is masked that need not be computed."""

    name = "tree"
    cost = "every unique token once"

    def __init__(self, lm: CausalLM, budget: int, segment: int = attention.SEGMENT) -> None:
        super().__init__(lm, budget)
        self._segment = segment
        self._calls = 0
        self._states: Kept | None = None

    def carry(self, tree: Tree, pack: Pack, kept: Kept) -> TreePass:
        """The pack on its way through the layers."""
        return TreePass(tree, pack, kept, self._segment, states=self._states)

    def objection(self) -> str | None:
        """A layer that never called the tree's attention function did something else."""
        if self._calls == self.lm.layers:
            return None
        return f"the model called the tree's attention {self._calls} times for {self.lm.layers} layers"

    def forward(self, tree: Tree, pack: Pack, kept: Kept) -> tuple[torch.Tensor, Kept]:
        """As in ``Packed``."""
        running = self.carry(tree, pack, kept)
        with self.lm.attention(attention.NAME), attention.running(running):
            inputs = self.inputs(tree, pack)
            # A two-dimensional mask keeps transformers from guessing sequences out of the positions.
            ones = torch.ones_like(inputs["input_ids"])
            hidden = self.lm.body(**inputs, attention_mask=ones, use_cache=False)[0][0]
        self._calls = running.calls
        return hidden, running.keeping

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Generation], ends: Collection[int]) -> Iterator[tuple[int, TokenScores]]:
        """As in ``Packed``, but the prompts that end in a pack go on together while its keys and values are there."""
        tree = build([Span(prompt.context, LIKELIEST) for prompt in prompts])
        limits = np.zeros(len(tree.rows), dtype=np.int64)
        np.maximum.at(limits, tree.span_of, [prompt.limit for prompt in prompts])

        def take(pack: Pack, hidden: torch.Tensor) -> Iterator[Answer]:
            low, high = np.searchsorted(tree.rows, [pack.start, pack.stop])
            if low == high:
                return
            going = DecodePass(tree, pack, tree.rows[low:high], self._states or [])
            found = decode(self.lm, going, hidden, limits[low:high], ends)
            for asker in map(int, np.flatnonzero((tree.span_of >= low) & (tree.span_of < high))):
                scores, most = found[tree.span_of[asker] - low], prompts[asker].limit
                yield asker, TokenScores(scores.tokens[:most], scores.logprobs[:most], scores.ranks[:most])

        self._states = []
        try:
            yield from self.each(tree, take)
        finally:
            self._states = None


class MaskPath(Packed):
    """A four-dimensional mask for the model's own attention; one per kind of layer where it has several kinds."""

    cost = "every unique token once, with every pair of a pack's tokens masked"

    def __init__(self, lm: CausalLM, budget: int, *, additive: bool = False) -> None:
        super().__init__(lm, budget)
        self.name = "additive mask" if additive else "mask"
        self._additive = additive
        self._reach = declared(lm.model.config.get_text_config())

    def forward(self, tree: Tree, pack: Pack, kept: Kept) -> tuple[torch.Tensor, Kept]:
        """As in ``Packed``."""
        cache = DynamicCache()
        for layer, (key, value) in enumerate(kept):
            cache.update(key, value, layer)
        masks = {kind: self._mask(tree, pack, reach) for kind, reach in self._reach.items()}
        mask = masks.get("", masks)
        inputs = self.inputs(tree, pack)
        hidden = self.lm.body(**inputs, attention_mask=mask, past_key_values=cache, use_cache=True)[0][0]
        keep = self.lm.tensor(pack.keep)
        return hidden, [
            (layer.keys.index_select(2, keep), layer.values.index_select(2, keep)) for layer in cache.layers
        ]

    def _mask(self, tree: Tree, pack: Pack, reach: Reach) -> torch.Tensor:
        seen: npt.NDArray[np.bool_] = visible(
            tree, np.arange(pack.start, pack.stop, dtype=np.int32), pack.nodes(), reach
        )
        mask = to_device(seen, self.lm.device)[None, None]
        if not self._additive:
            return mask
        dtype = self.lm.model.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


def declared(config: Any) -> dict[str, Reach]:
    """How far each kind of layer looks, by the configuration; the kind is empty where all layers are one."""
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
