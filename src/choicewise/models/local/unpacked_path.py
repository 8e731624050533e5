"""The slower rungs: one sequence at a time, from a cached prefix where the model can continue one."""

from __future__ import annotations

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
from choicewise.questions.generation import Generation
from choicewise.questions.mass import Mass
from choicewise.questions.span import Ids, Span
from choicewise.questions.token_scores import TokenScores

STATES = ("past_key_values", "cache_params", "state")
"""The names under which models return, and take back, what they know of the tokens so far."""

WORTH = 16
"""Tokens that a prefix must save before it is worth a copy of the state and a forward pass of its own."""


def branches(tree: Tree) -> list[tuple[int, int]]:
    """The runs of nodes [start, stop) that each follow their parent directly; together they are the tree."""
    starts = np.flatnonzero(np.diff(tree.depth, prepend=np.int32(0)) != 1)
    return list(pairwise([*map(int, starts), len(tree)]))


class _Unpacked(ABC):
    """What goes by sequences or branches has nothing to object to, and generates in greedy_rounds of scoring."""

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm

    def objection(self) -> str | None:
        """Nothing that the numbers would not show."""
        return None

    def generate(self, prompts: Sequence[Generation], ends: Collection[int]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``prompts``, the greedy tokens), as generations end."""
        return greedy_rounds(self, prompts, ends)

    @abstractmethod
    def score(self, spans: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``spans``, what was seen)."""


class SequencePath(_Unpacked):
    """Every sequence whole, one at a time; a sequence that is the beginning of another is not run on its own."""

    name = "sequence"
    cost = "every distinct sequence in full, one at a time"

    @torch.inference_mode()
    def score(self, spans: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``spans``, what was seen)."""
        tree = build(spans)
        readout = Readout(self.lm, tree)
        path = np.empty(_deepest(tree), dtype=np.int32)
        for start, stop in branches(tree):
            depth = int(tree.depth[start])
            path[depth : depth + stop - start] = tree.tokens[start:stop]
            whole = self.lm.tensor(path[: depth + stop - start])[None]
            hidden = self.lm.body(input_ids=whole, use_cache=False)[0][0]
            yield from readout.take(start, hidden[depth:])
        yield from readout.rest()


class PrefixPath(_Unpacked):
    """Every branch of the tree from a copy of the state its prefix left behind: a cache or a recurrent state."""

    name = "prefix"
    cost = "every unique token about once, one branch at a time"

    @torch.inference_mode()
    def score(self, spans: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``spans``, what was seen); prefixes shorter than ``WORTH`` are computed again."""
        tree = build(spans)
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
                    fresh = max(depth - at, 0)
                    yield from readout.take(start + at + fresh - depth, hidden[fresh:])
                at = end
                if end in needed:
                    states.append((end, copy.deepcopy(state)))
        yield from readout.rest()

    def _continue(self, tokens: Ids, state: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
        output = self.lm.body(input_ids=self.lm.tensor(tokens)[None], use_cache=True, **state)
        after = {name: output[name] for name in STATES if output.get(name) is not None}
        if not after:
            raise ValueError("the model returns no state to continue from")
        return output[0][0], after


class PlainPath:
    """The reference itself, for a model on which nothing else is right."""

    name = "plain"
    cost = "every span in full, one at a time, with the vocabulary at every token"

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm

    def objection(self) -> str | None:
        """Nothing: the others are held against this one."""
        return None

    def generate(self, prompts: Sequence[Generation], ends: Collection[int]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``prompts``, the greedy tokens)."""
        for index, prompt in enumerate(prompts):
            yield index, self._generate(prompt, ends)

    def score(self, spans: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``spans``, what was seen)."""
        for index, span in enumerate(spans):
            if isinstance(span, Span) and span.continuation[0] == GREEDY:
                yield index, self._generate(Generation(span.context, 1), ())
            else:
                yield index, self._score(span)

    def _generate(self, prompt: Generation, ends: Collection[int]) -> TokenScores:
        with plain.counted(self.lm):
            return plain.generate(self.lm.model, self.lm.vocabulary, prompt, ends)

    def _score(self, span: Span | Mass) -> TokenScores:
        with plain.counted(self.lm):
            return plain.score(self.lm.model, self.lm.vocabulary, span)


def _needed(begins: Ids, at: int) -> list[int]:
    """Depths beyond ``at`` from which later branches will start, while this branch's tokens are still their prefix."""
    lowest = np.minimum.accumulate(begins)
    found: list[int] = []
    for depth in np.unique(lowest[lowest > at]):
        if depth - (found[-1] if found else at) >= WORTH:
            found.append(int(depth))
    return found


def _deepest(tree: Tree) -> int:
    return int(tree.depth.max()) + 1 if len(tree) else 0
