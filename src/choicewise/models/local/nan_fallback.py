"""Fast answers, except where they are NaN."""

from collections.abc import Callable, Iterable, Iterator

from choicewise.questions import TokenScores


def nan_fallback(
    fast: Iterable[tuple[int, TokenScores]] | None, count: int, plainly: Callable[[int], TokenScores]
) -> Iterator[tuple[int, TokenScores]]:
    """(index, answer) of ``count`` questions: first the ``fast`` ones, then ``plainly`` where those are NaN or None.

    In a pack, one token's NaN reaches tokens that do not look at it: weighed with 0 it is still NaN.
    """
    remaining = list(range(count)) if fast is None else []
    for index, answer in fast or ():
        if answer.is_nan:
            remaining.append(index)
        else:
            yield index, answer
    for index in remaining:
        yield index, plainly(index)
