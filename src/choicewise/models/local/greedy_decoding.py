"""Greedy decoding of many prompts at once, from the keys and values of the pack in which they end."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from choicewise.engine.pack import Pack
from choicewise.engine.tree import Tree
from choicewise.models.local import attention
from choicewise.models.local.attention import How, Reach, additive, attend, visible
from choicewise.models.local.causal_lm import GREEDY, CausalLM
from choicewise.questions.span import Ids
from choicewise.questions.token_scores import TokenScores

States = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass(eq=False)
class DecodePass:
    """One more token of every prompt: it sees the path to ``nodes``, where the prompts end, and its own past.

    ``states``: keys and values of the pack and its path, one pair per layer.  ``grown``: those of the tokens generated
    so far, step by step; ``step`` counts them.
    """

    tree: Tree
    pack: Pack
    nodes: Ids
    states: States
    grown: States = field(default_factory=list)
    step: int = -1
    calls: int = 0
    _masks: dict[Reach, torch.Tensor] = field(default_factory=dict)

    def begin(self) -> None:
        """The next step."""
        self.step, self.calls = self.step + 1, 0
        self._masks.clear()

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, how: How) -> torch.Tensor:
        """As in ``attention.Pass``."""
        if self.step:
            past = self.grown[self.calls]
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
            self.grown[self.calls] = key, value
        else:
            self.grown.append((key, value))
        keys, values = self.states[self.calls]
        self.calls += 1
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        if how.reach not in self._masks:
            self._masks[how.reach] = additive(self._seen(how.reach), query.shape[1] // keys.shape[1], query)
        return attend(query, keys, values, self._masks[how.reach], how)

    def _seen(self, reach: Reach) -> npt.NDArray[np.bool_]:
        """What every prompt's newest token sees, shape [prompts, path + pack + steps * prompts]."""
        before = visible(self.tree, self.nodes, self.pack.nodes(), reach, ahead=self.step + 1)
        depth = self.tree.depth[self.nodes] + 1
        own = [np.diag(depth + step >= reach.lowest(depth + self.step)) for step in range(self.step + 1)]
        return np.concatenate([before, *own], axis=1)


def decode(
    lm: CausalLM, going: DecodePass, hidden: torch.Tensor, limits: npt.NDArray[np.int64], ends: Collection[int]
) -> list[TokenScores]:
    """The greedy tokens of every prompt that ends in a pack, at most ``limits`` of each, shape [prompts].

    ``hidden``: the pack's hidden states, shape [nodes, width].  A generation ends behind the first token of ``ends``.
    """
    every = np.arange(len(going.nodes), dtype=np.int32)
    likeliest = np.full(len(every), GREEDY, dtype=np.int32)
    steps = [lm.read(hidden, going.nodes - going.pack.start, likeliest)]
    lengths = np.where(np.isin(_host(steps[0][0]), list(ends)), 1, limits)
    while len(steps) < lengths.max():
        going.begin()
        depth = going.tree.depth[going.nodes] + len(steps)
        with lm.attention(attention.NAME), attention.running(going):
            inputs = steps[-1][0].long()[None]
            positions = lm.tensor(depth)[None]
            found = lm.body(
                input_ids=inputs, position_ids=positions, attention_mask=torch.ones_like(inputs), use_cache=False
            )
        steps.append(lm.read(found[0][0], every, likeliest))
        ended = np.isin(_host(steps[-1][0]), list(ends))
        lengths = np.where(ended, np.minimum(lengths, len(steps)), lengths)
    tokens, logprobs, ranks = (np.stack([_host(step[part]) for step in steps], axis=1) for part in range(3))
    return [
        TokenScores(tokens[row, :length], logprobs[row, :length], ranks[row, :length])
        for row, length in enumerate(lengths)
    ]


def _host(tensor: torch.Tensor) -> npt.NDArray[np.generic]:
    return tensor.cpu().numpy()
