"""Fast answers, except where they are NaN."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from choicewise.questions import Answers, TokenScores

Asked = TypeVar("Asked")


def nan_fallback(fast: Answers | None, questions: Sequence[Asked], plainly: Callable[[Asked], TokenScores]) -> Answers:
    """The answers to ``questions``: first the ``fast`` ones, then ``plainly`` where those are NaN or None.

    In a pack, one token's NaN reaches tokens that do not look at it: weighed with 0 it is still NaN.
    """
    remaining = list(range(len(questions))) if fast is None else []
    for index, answer in fast or ():
        if answer.is_nan:
            remaining.append(index)
        else:
            yield index, answer
    for index in remaining:
        yield index, plainly(questions[index])
