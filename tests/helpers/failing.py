"""A model that gives no answer to some questions, as one behind a server that fails now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from choicewise.models.fake import HashModel
from choicewise.questions import Question, TokenScores


class Failing(HashModel):
    """``fails`` says of a question's key whether it gets no answer; ``asked``: the keys of all questions, in order."""

    def __init__(self, fails: Callable[[str], bool] = lambda key: False) -> None:
        super().__init__()
        self.fails = fails
        self.asked: list[str] = []

    def answer(self, questions: Sequence[Question]) -> Iterator[tuple[int, TokenScores]]:
        for (index, scores), question in zip(super().answer(questions), questions, strict=True):
            self.asked.append(question.key)
            yield index, TokenScores.unanswered("HTTP 500", scores.tokens) if self.fails(question.key) else scores


def third(key: str) -> bool:
    """Whether the key is one of about a third of all."""
    return int(key[:4], 16) % 3 == 0
