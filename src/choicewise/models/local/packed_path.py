"""The fastest rungs: packs of the token tree, one unpadded row each, with the keys and values of its path kept."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch

from choicewise.engine.pack import Pack, next_pack, next_path
from choicewise.engine.tree import Tree, build
from choicewise.errors import ModelError
from choicewise.models.local import attention
from choicewise.models.local.attention import KeysValues, TreePass
from choicewise.models.local.causal_lm import LIKELIEST, CausalLM
from choicewise.models.local.compute_path import ComputePath
from choicewise.models.local.decoding import DecodePass, decode
from choicewise.models.local.draft import Draft
from choicewise.models.local.readout import Readout
from choicewise.questions import Answers, Generation, Mass, Span

PAIRS = 2**24
"""Pack times path at most: after a very long path packs are short, so that masks do not outgrow the model."""

TOGETHER = 128
"""Generations that go on together: more gain little, and each needs memory for its keys and values."""


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
            pack = next_pack(tree, start, path, min(self.budget, max(attention.SEGMENT, PAIRS // (len(path) + 1))))
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
                "there is not enough memory for one token of one prompt: "
                "use a smaller model, a narrower dtype, or a device with more memory"
            ) from error
        self.budget = tokens // 2
        if self.lm.device.type == "cuda":
            torch.cuda.empty_cache()


def out_of_memory(error: Exception) -> bool:
    """Whether an exception means that memory ran out, on a device or on the host."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


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
        return f"the model called the tree's attention {self._calls} times for {self.lm.layers} layers"

    def forward(self, tree: Tree, pack: Pack, past: KeysValues) -> tuple[torch.Tensor, KeysValues]:
        """One pass with the tree's attention."""
        tree_pass = self.pass_type(tree, pack, past, self._states)
        with self.lm.attention(attention.NAME), attention.running(tree_pass.attend):
            inputs = self.inputs(tree, pack)
            # A two-dimensional mask keeps transformers from guessing sequences out of the positions.
            ones = torch.ones_like(inputs["input_ids"])
            hidden = self.lm.body(**inputs, attention_mask=ones, use_cache=False)[0][0]
        self._calls = tree_pass.calls
        return hidden, tree_pass.next_past

    @torch.inference_mode()
    def generate(
        self, generations: Sequence[Generation], ends: Collection[int], token_bytes: Sequence[bytes] = ()
    ) -> Answers:
        """Contexts are computed once, and those that end in one pack are continued together from its keys and values.

        Some generations at a time: what is kept of each grows with its length.
        """
        tree = build([Span(generation.context, LIKELIEST) for generation in generations])
        nodes, known = tree.rows[tree.span_of], min(self.lm.vocabulary, len(token_bytes) or self.lm.vocabulary)
        self.lm.work.planned += len(tree) + sum(generation.limit - 1 for generation in generations)

        def read(pack: Pack, hidden: torch.Tensor) -> Answers:
            ending = np.flatnonzero((nodes >= pack.start) & (nodes < pack.stop))
            size = min(self.budget, TOGETHER)
            for part in (ending[start : start + size] for start in range(0, len(ending), size)):
                drafts = [Draft(generations[index], ends, token_bytes) for index in part]
                rows = hidden.index_select(0, self.lm.tensor(nodes[part] - pack.start, hidden.device))
                decode(self.lm, DecodePass(tree, pack, nodes[part], self._states or []), rows, drafts, known)
                for index, draft in zip(part.tolist(), drafts, strict=True):
                    self.lm.work.planned -= draft.generation.limit - draft.steps
                    yield index, draft.scores

        self._states = []
        try:
            yield from self.run_packs(tree, read)
        finally:
            self._states = None
