"""What is computed from a model's hidden states: its own loss, and how similar two texts are.

The states come from the path that scores spans, so here too every unique token is computed once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.ladder import ComputePath
from choicewise.questions import Cosine, Ids, MaskedLoss, Span, TokenScores

_ANY_TOKEN = np.zeros(1, dtype=np.int32)


class HiddenStates(CausalLM):
    """A model that keeps the hidden states that a path gives it to read: in the path's answers, tokens are places
    among the kept states, and log-probabilities and ranks mean nothing."""

    def __init__(self, model: Any, window: int, vocabulary: int) -> None:
        super().__init__(model, window, vocabulary)
        self._kept: list[torch.Tensor] = []
        self._count = 0

    def read(
        self, hidden: torch.Tensor, rows: Ids, targets: Ids, *_: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Keep ``rows`` of ``hidden``, and answer with their places."""
        distinct, place = np.unique(rows, return_inverse=True)
        self._kept.append(hidden.index_select(0, self.tensor(distinct)))
        places = self.tensor(place + self._count).int()
        self._count += len(distinct)
        return places, torch.zeros_like(places, dtype=torch.float32), torch.zeros_like(places)

    @torch.inference_mode()
    def losses(self, path: ComputePath, questions: Sequence[MaskedLoss]) -> Iterator[tuple[int, TokenScores]]:
        """(index, the model's own loss on the continuation) of every question; ``path`` computes on this model."""
        for index, hidden in self._states(path, [question.span for question in questions]):
            yield index, questions[index].answer(self.loss(hidden, questions[index].span.continuation))

    @torch.inference_mode()
    def cosines(self, path: ComputePath, questions: Sequence[Cosine]) -> Iterator[tuple[int, TokenScores]]:
        """(index, the cosine of the last states of both texts) of every question; distinct texts are computed once."""
        number: dict[bytes, int] = {}
        for question in questions:
            for text in (question.left, question.right):
                number.setdefault(text.tobytes(), len(number))
        texts = [Span(np.frombuffer(text, dtype=np.int32), _ANY_TOKEN) for text in number]
        states = {index: hidden[-1].double() for index, hidden in self._states(path, texts)}
        for index, question in enumerate(questions):
            left, right = (states[number[text.tobytes()]] for text in (question.left, question.right))
            yield index, Cosine.answer(float(torch.nn.functional.cosine_similarity(left, right, dim=0)))

    def _states(self, path: ComputePath, spans: Sequence[Span]) -> Iterator[tuple[int, torch.Tensor]]:
        """(index into ``spans``, the hidden states that predict its continuation, shape [tokens, width])."""
        answers = list(path.score(spans))
        kept = torch.cat(self._kept) if self._kept else torch.empty(0)
        self._kept, self._count = [], 0
        for index, answer in answers:
            yield index, kept.index_select(0, self.tensor(answer.tokens))
