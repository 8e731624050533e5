"""What is computed from a model's hidden states: its own loss, and how similar two texts are.

The states come from the path that scores spans, so here too every unique token is computed once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from choicewise.models.local.causal_lm import CausalLM, Reads
from choicewise.models.local.compute_path import ComputePath
from choicewise.models.local.workload import Workload
from choicewise.questions import Answers, Cosine, Ids, MaskedLoss, Span

_ANY_TOKEN = np.zeros(1, dtype=np.int32)


class HiddenStates(CausalLM):
    """A model that keeps the hidden states that a path gives it to read: in the path's answers, tokens are places
    among the kept states, and log-probabilities and ranks mean nothing."""

    def __init__(self, model: Any, window: int, vocabulary: int, work: Workload | None = None) -> None:
        super().__init__(model, window, vocabulary, work)
        self._kept: list[Tensor] = []

    def read(self, hidden: Tensor, rows: Ids, targets: Ids, *_: Any) -> Reads:
        """Keep ``rows`` of ``hidden``, and answer with their places."""
        distinct, place = np.unique(rows, return_inverse=True)
        places = self.tensor(place + sum(map(len, self._kept)), hidden.device).int()
        self._kept.append(hidden.index_select(0, self.tensor(distinct, hidden.device)))
        return places, torch.zeros_like(places, dtype=torch.float32), torch.zeros_like(places)

    @torch.inference_mode()
    def answer(self, path: ComputePath, questions: Sequence[MaskedLoss | Cosine]) -> Answers:
        """The model's own loss on a continuation, or the cosine of the last states of two texts, in order.

        ``path`` computes on this model.
        """
        states = self._states(path, [span for question in questions for span in _spans(question)])
        for index, question in enumerate(questions):
            if isinstance(question, MaskedLoss):
                yield index, question.answer(self.loss(next(states), question.span.continuation))
            else:
                left, right = (next(states)[-1].double() for _ in range(2))
                yield index, Cosine.answer(float(torch.nn.functional.cosine_similarity(left, right, dim=0)))

    def _states(self, path: ComputePath, spans: Sequence[Span]) -> Iterator[Tensor]:
        """For every span the hidden states that predict its continuation, shape [tokens, width]."""
        answers = dict(path.score(spans))
        kept = torch.cat(self._kept)
        self._kept = []
        for index in range(len(spans)):
            yield kept.index_select(0, self.tensor(answers[index].tokens, kept.device))


def _spans(question: MaskedLoss | Cosine) -> list[Span]:
    if isinstance(question, MaskedLoss):
        return [question.span]
    return [Span(text, _ANY_TOKEN) for text in (question.left, question.right)]
