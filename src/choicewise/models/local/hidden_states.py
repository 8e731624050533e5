"""What is computed from a model's hidden states: its own loss, and how much alike two texts are.

The states come from the path that scores spans, so every unique token is computed once here, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.ladder import ComputePath, Rung
from choicewise.questions.cosine import Cosine
from choicewise.questions.span import Ids, Span

_ANY = np.zeros(1, dtype=np.int32)


class States(CausalLM):
    """A model whose rows are kept instead of read: what a path takes for tokens are the rows' places among them."""

    def __init__(self, model: Any, window: int, vocabulary: int) -> None:
        super().__init__(model, window, vocabulary)
        self._kept: list[torch.Tensor] = []
        self._count = 0

    def read(
        self, hidden: torch.Tensor, rows: Ids, targets: Ids, *_: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As in ``CausalLM``, with the places of the rows for tokens; the rest means nothing."""
        distinct, place = np.unique(rows, return_inverse=True)
        self._kept.append(hidden.index_select(0, self.tensor(distinct)))
        places = self.tensor(place + self._count).int()
        self._count += len(distinct)
        return places, torch.zeros_like(places, dtype=torch.float32), torch.zeros_like(places)

    def of(self, path: ComputePath, spans: Sequence[Span]) -> Iterator[tuple[int, torch.Tensor]]:
        """(index into ``spans``, the hidden states that its tokens are read from, shape [tokens, width])."""
        found = list(path.score(spans))
        kept = torch.cat(self._kept) if self._kept else torch.empty(0)
        self._kept, self._count = [], 0
        for index, seen in found:
            yield index, kept.index_select(0, self.tensor(seen.tokens))


@torch.inference_mode()
def masked(lm: States, rung: Rung, budget: int, spans: Sequence[Span]) -> Iterator[tuple[int, float]]:
    """(index, the model's own loss on the continuation in nats per token) of every span."""
    for index, hidden in lm.of(rung(lm, budget), spans):
        yield index, lm.loss(hidden, spans[index].continuation)


@torch.inference_mode()
def cosines(lm: States, rung: Rung, budget: int, pairs: Sequence[Cosine]) -> Iterator[tuple[int, float]]:
    """(index, the cosine of the last states of both texts) of every pair; every distinct text is computed once."""
    place: dict[bytes, int] = {}
    for pair in pairs:
        for text in (pair.left, pair.right):
            place.setdefault(text.tobytes(), len(place))
    texts = [Span(np.frombuffer(text, dtype=np.int32), _ANY) for text in place]
    states = {index: hidden[-1].double() for index, hidden in lm.of(rung(lm, budget), texts)}
    for index, pair in enumerate(pairs):
        left, right = states[place[pair.left.tobytes()]], states[place[pair.right.tobytes()]]
        yield index, float(torch.nn.functional.cosine_similarity(left, right, dim=0))
