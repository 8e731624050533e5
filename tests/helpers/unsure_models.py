"""Models as servers make them: some questions have no answer, and of some tokens only an upper bound is known."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from choicewise.models.fake import HashModel
from choicewise.questions import Answers, Prompt, Span, TokenScores

REASON = "the server answers 500 after 5 tries: Internal Server Error"


class Silent(HashModel):
    """Gives no answer to the questions that ``lost`` names; all others are those of ``fake:hash``."""

    def __init__(self, lost: Callable[[Prompt], bool], reason: str = REASON) -> None:
        super().__init__()
        self._lost, self._reason = lost, reason

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        for index, scores in super().answer(questions):
            gone = self._lost(questions[index])
            yield index, TokenScores.unanswered(self._reason) if gone else scores


class Listing(HashModel):
    """Of the last token asked about, tells whether it is among the ``top`` likeliest; else that it is no likelier."""

    def __init__(self, top: int, seed: int = 0) -> None:
        super().__init__(seed)
        self._top = top

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        for index, scores in super().answer(questions):
            yield index, self._listed(questions[index], scores)

    def _listed(self, question: Prompt, scores: TokenScores) -> TokenScores:
        if not isinstance(question, Span) or scores.ranks[-1] < self._top:
            return scores
        before = np.concatenate([question.context, question.continuation[:-1]])
        weights = np.sort(self._weights(self._after(before)))[::-1]
        bound = np.log(weights[self._top - 1] / weights.sum())
        told = TokenScores.of(
            scores.tokens, [*scores.logprobs[:-1], bound], [*scores.ranks[:-1], -1 - self._top]
        )
        return replace(told, at_most=True)
