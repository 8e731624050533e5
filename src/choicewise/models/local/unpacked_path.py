"""The slower rungs: one sequence at a time, or one branch from the cached state of its prefix."""

import copy
import math
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from choicewise.engine.tree import Tree, build
from choicewise.models.local import plain
from choicewise.models.local.causal_lm import GREEDY
from choicewise.models.local.compute_path import ComputePath
from choicewise.models.local.readout import Readout
from choicewise.questions import Answers, Generation, Ids, Mass, Span

STATES = ("past_key_values", "cache_params", "state")
"""The names under which models return, and take back, their state after the tokens so far."""


def branches(tree: Tree) -> list[tuple[int, int]]:
    """The runs of nodes [start, stop) that each follow their parent directly; together they are the tree."""
    starts = np.flatnonzero(np.diff(tree.depth, prepend=np.int32(0)) != 1)
    return list(pairwise([*map(int, starts), len(tree)]))


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
        states: list[tuple[int, dict[str, Any]]] = [(0, {})]
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

    def _continue(self, tokens: Ids, state: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
        output = self.lm.body(input_ids=self.lm.tensor(tokens)[None], use_cache=True, **state)
        after = {name: output[name] for name in STATES if output.get(name) is not None}
        if not after:
            raise ValueError("the model returns no state to continue from")
        return output[0][0], after


class SequencePath(PrefixPath):
    """Every sequence in full, one at a time; one that begins another is not run by itself."""

    name = "sequence"
    cost = "every distinct sequence in full, one at a time"
    worth = math.inf

    def _continue(self, tokens: Ids, state: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
        return self.lm.body(input_ids=self.lm.tensor(tokens)[None], use_cache=False)[0][0], state


class PlainPath(ComputePath):
    """The reference itself, for a model on which no other path is right."""

    name = "plain"
    cost = "every span in full, one at a time, with the vocabulary at every token"

    def generate(
        self, generations: Sequence[Generation], ends: Collection[int], token_bytes: Sequence[bytes] = ()
    ) -> Answers:
        """The tokens, one generation at a time."""
        for index, generation in enumerate(generations):
            way = plain.generate if generation.sampling is None else plain.sample
            most = generation.limit * generation.inputs - generation.limit * (generation.limit - 1) // 2
            with self.lm.work.expecting(most), self.lm.counting():
                answer = way(self.lm.model, self.lm.vocabulary, generation, ends, token_bytes)
            yield index, answer

    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """The answers in order."""
        self.lm.work.planned += sum(question.inputs for question in questions)
        for index, question in enumerate(questions):
            with self.lm.counting():
                if isinstance(question, Span) and question.continuation[0] == GREEDY:
                    asked = Generation(question.context, 1)
                    answer = plain.generate(self.lm.model, self.lm.vocabulary, asked, ())
                else:
                    answer = plain.score(self.lm.model, self.lm.vocabulary, question)
            yield index, answer


def _needed(begins: Ids, at: int, worth: float) -> list[int]:
    """Depths beyond ``at`` from which later branches will start, while this branch's tokens are still their prefix."""
    lowest = np.minimum.accumulate(begins)
    depths: list[int] = []
    for depth in np.unique(lowest[lowest > at]):
        if depth - (depths[-1] if depths else at) >= worth:
            depths.append(int(depth))
    return depths
