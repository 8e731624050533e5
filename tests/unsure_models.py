"""Models as servers make them: some questions have no answer, and of some tokens only an upper bound is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from choicewise.models.fake import HashModel
from choicewise.questions import Answers, Generation, Mass, Question, Span, TokenScores

REASON = "the server answers 500 after 5 tries: Internal Server Error"


class Silent(HashModel):
    """Gives no answer to the questions that ``lost`` names; all others are those of ``fake:hash``."""

    def __init__(self, lost: Callable[[Question], bool], reason: str = REASON) -> None:
        super().__init__()
        self._lost, self._reason = lost, reason

    def answer(self, questions: Sequence[Question]) -> Answers:
        for index, scores in super().answer(questions):
            gone = self._lost(questions[index])
            yield index, TokenScores.unanswered(self._reason) if gone else scores


class Listing(HashModel):
    """Tells the ``top`` likeliest next tokens alone; of any other no more than that it is no likelier than these."""

    def __init__(self, top: int, seed: int = 0) -> None:
        super().__init__(seed)
        self._top = top

    def answer(self, questions: Sequence[Question]) -> Answers:
        for index, scores in super().answer(questions):
            yield index, self._listed(questions[index], scores)

    def _listed(self, question: Question, scores: TokenScores) -> TokenScores:
        if isinstance(question, Mass | Generation) or not isinstance(question, Span) or scores.ranks[0] < self._top:
            return scores
        weights = np.sort(self._weights(self._after(question.context)))[::-1]
        bound = np.log(weights[self._top - 1] / weights.sum())
        told = TokenScores.of(scores.tokens, [bound, *scores.logprobs[1:]], [-1] * len(scores.tokens))
        return replace(told, at_most=True)
