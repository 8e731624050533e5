"""Greedy decoding of many generations at once, from the keys and values of the pack in which their contexts end."""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from choicewise.engine.pack import Pack
from choicewise.engine.tree import Tree
from choicewise.models.local import attention
from choicewise.models.local.attention import AttentionOptions, KeysValues, Reach, additive, attend, visible
from choicewise.models.local.causal_lm import LIKELIEST, CausalLM
from choicewise.questions import Ids, TokenScores


@dataclass(eq=False)
class DecodePass:
    """One more token of every generation: it sees the path to its node of ``nodes``, where its context ends, and the
    tokens generated for it so far.

    ``states``: keys and values of the pack and its path, one pair per layer.  ``generated``: those of the tokens
    generated so far, step by step; ``step`` counts them.
    """

    tree: Tree
    pack: Pack
    nodes: Ids
    states: KeysValues
    generated: KeysValues = field(default_factory=list)
    step: int = -1
    calls: int = 0
    masks: dict[Reach, Tensor] = field(default_factory=dict)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """The next layer's attention to context and generated tokens."""
        if self.step:
            past = self.generated[self.calls]
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
            self.generated[self.calls] = key, value
        else:
            self.generated.append((key, value))
        keys, values = self.states[self.calls]
        self.calls += 1
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        if options.reach not in self.masks:
            group = query.shape[1] // keys.shape[1]
            self.masks[options.reach] = additive(self._visible(options.reach), group, query)
        return attend(query, keys, values, self.masks[options.reach], options)

    def _visible(self, reach: Reach) -> npt.NDArray[np.bool_]:
        """What every newest token sees, shape [generations, path + pack + steps * generations]."""
        before = visible(self.tree, self.nodes, self.pack.nodes(), reach, ahead=self.step + 1)
        depth = self.tree.depth[self.nodes] + 1
        own = [np.diag(depth + step >= reach.lowest(depth + self.step)) for step in range(self.step + 1)]
        return np.concatenate([before, *own], axis=1)


def decode(
    lm: CausalLM, decoding: DecodePass, hidden: Tensor, limits: npt.NDArray[np.int64], ends: Collection[int]
) -> list[TokenScores]:
    """The greedy tokens of every generation whose context ends in a pack, at most ``limits``, shape [generations].

    ``hidden``: the pack's hidden states, shape [nodes, width].  A generation ends after the first token of ``ends``.
    """
    rows = np.arange(len(decoding.nodes), dtype=np.int32)
    likeliest = LIKELIEST.repeat(len(rows))
    steps = [lm.read(hidden, decoding.nodes - decoding.pack.start, likeliest)]
    lengths = np.where(np.isin(steps[0][0].cpu(), list(ends)), 1, limits)
    while len(steps) < lengths.max():
        decoding.step, decoding.calls = decoding.step + 1, 0
        decoding.masks.clear()
        depth = decoding.tree.depth[decoding.nodes] + len(steps)
        with lm.attention(attention.NAME), attention.running(decoding.attend):
            inputs, positions = steps[-1][0].long()[None], lm.tensor(depth)[None]
            ones = torch.ones_like(inputs)
            output = lm.body(input_ids=inputs, position_ids=positions, attention_mask=ones, use_cache=False)
        steps.append(lm.read(output[0][0], rows, likeliest))
        ended = np.isin(steps[-1][0].cpu(), list(ends))
        lengths = np.where(ended, np.minimum(lengths, len(steps)), lengths)
    tokens, logprobs, ranks = (torch.stack(parts, dim=1).cpu().numpy() for parts in zip(*steps, strict=True))
    return [TokenScores(tokens[row], logprobs[row], ranks[row]).first(length) for row, length in enumerate(lengths)]
