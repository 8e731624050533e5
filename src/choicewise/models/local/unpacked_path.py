"""The slower rungs: one sequence at a time, or one branch from the cached state of its prefix."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from choicewise.engine.tree import Tree, build
from choicewise.models.local import plain
from choicewise.models.local.causal_lm import GREEDY, CausalLM
from choicewise.models.local.greedy_rounds import greedy_rounds
from choicewise.models.local.readout import Readout
from choicewise.questions import Generation, Ids, Mass, Span, TokenScores

STATES = ("past_key_values", "cache_params", "state")
"""The names under which models return, and take back, their state after the tokens so far."""

WORTH = 16
"""Tokens that a prefix must save to be worth a copy of the state and a forward pass of its own."""


def branches(tree: Tree) -> list[tuple[int, int]]:
    """The runs of nodes [start, stop) that each follow their parent directly; together they are the tree."""
    starts = np.flatnonzero(np.diff(tree.depth, prepend=np.int32(0)) != 1)
    return list(pairwise([*map(int, starts), len(tree)]))


class _UnpackedPath(ABC):
    """A path that runs sequences or branches: the self-check sees all its errors, and it generates by scoring."""

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm

    def objection(self) -> str | None:
        """None."""
        return None

    def generate(self, generations: Sequence[Generation], ends: Collection[int]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``generations``, its greedy tokens), as they end."""
        return greedy_rounds(self, generations, ends)

    @abstractmethod
    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``questions``, the answer) of every one."""


class SequencePath(_UnpackedPath):
    """Every sequence in full, one at a time; one that begins another is not run by itself."""

    name = "sequence"
    cost = "every distinct sequence in full, one at a time"

    @torch.inference_mode()
    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``questions``, the answer) of every one."""
        tree = build(questions)
        readout = Readout(self.lm, tree)
        path = np.empty(_deepest(tree), dtype=np.int32)
        for start, stop in branches(tree):
            depth = int(tree.depth[start])
            path[depth : depth + stop - start] = tree.tokens[start:stop]
            sequence = self.lm.tensor(path[: depth + stop - start])[None]
            hidden = self.lm.body(input_ids=sequence, use_cache=False)[0][0]
            yield from readout.read(start, hidden[depth:])
        yield from readout.finish()


class PrefixPath(_UnpackedPath):
    """Every branch of the tree from a copy of its prefix's state: a cache or a recurrent state."""

    name = "prefix"
    cost = "every unique token about once, one branch at a time"

    @torch.inference_mode()
    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``questions``, the answer) of every one; prefixes shorter than ``WORTH`` are computed again."""
        tree = build(questions)
        readout = Readout(self.lm, tree)
        path = np.empty(_deepest(tree), dtype=np.int32)
        states: list[tuple[int, dict[str, Any]]] = [(0, {})]
        runs = branches(tree)
        begins = tree.depth[[start for start, _ in runs]] if runs else np.empty(0, dtype=np.int32)
        for index, (start, stop) in enumerate(runs):
            depth = int(begins[index])
            while states[-1][0] > depth:
                states.pop()
            path[depth : depth + stop - start] = tree.tokens[start:stop]
            at, state = states[-1][0], copy.deepcopy(states[-1][1])
            needed = _needed(begins[index + 1 :], at)
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


class PlainPath:
    """The reference itself, for a model on which no other path is right."""

    name = "plain"
    cost = "every span in full, one at a time, with the vocabulary at every token"

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm

    def objection(self) -> str | None:
        """None: the others are compared with this one."""
        return None

    def generate(self, generations: Sequence[Generation], ends: Collection[int]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``generations``, its greedy tokens)."""
        for index, generation in enumerate(generations):
            yield index, self._generate(generation, ends)

    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``questions``, the answer) of every one."""
        for index, question in enumerate(questions):
            if isinstance(question, Span) and question.continuation[0] == GREEDY:
                yield index, self._generate(Generation(question.context, 1), ())
            else:
                yield index, self._score(question)

    def _generate(self, generation: Generation, ends: Collection[int]) -> TokenScores:
        with self.lm.counting():
            return plain.generate(self.lm.model, self.lm.vocabulary, generation, ends)

    def _score(self, question: Span | Mass) -> TokenScores:
        with self.lm.counting():
            return plain.score(self.lm.model, self.lm.vocabulary, question)


def _needed(begins: Ids, at: int) -> list[int]:
    """Depths beyond ``at`` from which later branches will start, while this branch's tokens are still their prefix."""
    lowest = np.minimum.accumulate(begins)
    depths: list[int] = []
    for depth in np.unique(lowest[lowest > at]):
        if depth - (depths[-1] if depths else at) >= WORTH:
            depths.append(int(depth))
    return depths


def _deepest(tree: Tree) -> int:
    return int(tree.depth.max()) + 1 if len(tree) else 0
