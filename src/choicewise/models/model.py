"""The one interface behind which every kind of model answers."""

from collections.abc import Sequence
from typing import Protocol

from choicewise.models.selfcheck import SelfCheck
from choicewise.questions import Answers, Question
from choicewise.tokens.tokenizer import Tokenizer


class Model(Protocol):
    """A language model with its tokenizer, wherever it runs.

    ``window``: the most tokens that can be inputs at once; the last token of a span is never an input, so a span may
    have ``window + 1`` tokens.  ``digest`` (64 hex) identifies weights and configuration, ``dtype`` the arithmetic,
    ``device`` where it runs.  ``supports``: the kinds of question it answers (classes of
    :data:`~choicewise.questions.Question`, and ``Sampling`` where it samples generations).
    """

    name: str
    digest: str
    dtype: str
    device: str
    window: int
    tokenizer: Tokenizer
    supports: frozenset[type]

    @property
    def selfcheck(self) -> SelfCheck | None:
        """Its compute path and how exact that is, measured when first asked for; None where there is no choice."""

    @property
    def computed(self) -> int | None:
        """Input tokens that went through the model so far; None where that is not counted."""

    @property
    def planned(self) -> int | None:
        """Input tokens to compute for all that it was asked so far, those computed included; None if not counted."""

    def answer(self, questions: Sequence[Question]) -> Answers:
        """The answers, in any order, as results become available.

        The same question has the same answer, whatever else is asked.  Raises ModelError for what the model can't
        answer: more tokens than its window, tokens that it does not know.
        """
