"""Which numbers of a run are better than guessing, and which would be."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from choicewise.results.measurement import of_items
from choicewise.results.rows import Row
from choicewise.scoring.sampling import unseen
from choicewise.scoring.significance import LEVEL, binomial_tail, holm

FEWEST = 20
"""Questions from which on a number may be called better than guessing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guessing:
    """How many numbers of one model on one dataset are better than guessing.

    ``scores``: numbers that are shares of right answers and that guessing could make.  ``beating``: scores that lie
    above guessing if each is looked at alone.  ``better``: scores that do so after Holm's correction for all protocols
    with different predictions; none below :data:`FEWEST` questions.  ``questions``: the fewest and the most of a score.
    ``chances``: the least and the greatest accuracy that guessing is expected to have.  ``needed``: the least and the
    greatest accuracy that a score needs at least, infinite where not even 1 is enough, NaN where that does not follow
    from the number of questions.
    """

    scores: int = 0
    beating: int = 0
    better: int = 0
    questions: tuple[int, int] = (0, 0)
    chances: tuple[float, float] = (math.nan, math.nan)
    needed: tuple[float, float] = (math.nan, math.nan)

    @property
    def guesses(self) -> int:
        """How many scores are no better than guessing."""
        return self.scores - self.better

    @property
    def few(self) -> bool:
        """Check that there are too few questions for a score that lies above guessing, or for any."""
        return self.needed[0] > 1 or (self.beating > 0 and self.questions[1] < FEWEST)

    @property
    def lucky(self) -> bool:
        """Check that some scores lie above guessing, but no more than chance may give to so many."""
        # By Markov's inequality half of the tests rarely reject a guesser, however they depend on each other.
        return not self.better and 0 < 2 * self.beating <= self.scores


def merged(parts: Sequence[Guessing]) -> Guessing:
    """Count the numbers of several runs together, each of which was corrected by itself."""
    counted = [part for part in parts if part.scores]
    if not counted:
        return Guessing()
    return Guessing(
        scores=sum(part.scores for part in counted),
        beating=sum(part.beating for part in counted),
        better=sum(part.better for part in counted),
        questions=_ends([number for part in counted for number in part.questions]),
        chances=_ends([chance for part in counted for chance in part.chances]),
        needed=_known_ends([edge for part in counted for edge in part.needed]),
    )


def guessing(rows: Sequence[Row]) -> Guessing:
    """Count the numbers better than guessing among ``rows``, which are of one model on one dataset."""
    scores = [row for row in rows if _is_score(row)]
    if not scores:
        return Guessing()
    return Guessing(
        scores=len(scores),
        beating=sum(_is_above(row) for row in scores),
        better=len(scores) - sum(guesses(scores)),
        questions=_ends([row.n for row in scores]),
        chances=_ends([row.chance for row in scores]),
        needed=_known_ends([enough(row) for row in scores]),
    )


def guesses(rows: Sequence[Row]) -> list[bool]:
    """Mark the scores among ``rows`` that are no better than guessing, after Holm's correction for all of them.

    ``rows``: of one model on one dataset.
    """
    # Protocols with the same predictions are one test.
    p_of = {_test(row): row.diagnosis.guessing_p for row in rows if _is_score(row)}
    adjusted = dict(zip(p_of, holm(list(p_of.values())).tolist(), strict=True))
    marks = []
    for row in rows:
        if _is_score(row):
            marks.append(guess(row) or adjusted[_test(row)] > LEVEL)
        else:
            marks.append(False)
    return marks


def guess(row: Row) -> bool:
    """Check that a number, looked at alone, is no better than guessing; False where nothing can be guessed."""
    if math.isnan(row.chance) or math.isnan(row.value):
        return False
    return row.n < FEWEST or not _is_above(row)


def enough(row: Row) -> float:
    """Return the least accuracy of as many questions that lies above guessing, looked at alone.

    Infinite where not even 1 does.  NaN where the interval follows from more than the number of right answers: from
    subjects, or credits of any size.
    """
    if row.interval not in ("wilson", "beta-binomial") or not row.n or math.isnan(row.chance):
        return math.nan
    low = of_items(row.interval, row.value * row.n, row.n)[0]
    if row.population is not None:
        low = row.value - unseen(row.n, row.population) * (row.value - low)
    if not math.isclose(low, row.ci_low, abs_tol=1e-9):
        return math.nan

    def is_above(right: int) -> bool:
        lies_above = of_items(row.interval, right, row.n)[0] > row.chance
        return lies_above and (row.n < FEWEST or binomial_tail(right, row.n, row.chance) <= LEVEL)

    right = bisect_left(range(row.n + 1), True, key=is_above)
    return right / row.n if right <= row.n else math.inf


def _is_score(row: Row) -> bool:
    return row.counted and not math.isnan(row.chance) and not math.isnan(row.value)


def _is_above(row: Row) -> bool:
    """Check that the interval lies above guessing, and that guessing is rarely as good.

    The interval of a sample is about the questions it was drawn from.  That it lies above what guessing is expected to
    have says that a guesser had luck on these questions, so the test is made before the interval is narrowed.
    """
    if row.ci_low <= row.chance or row.value < enough(row):
        return False
    return row.n < FEWEST or row.diagnosis.guessing_p <= LEVEL


def _test(row: Row) -> tuple[str, str]:
    return row.subject, row.diagnosis.predictions


_Number = TypeVar("_Number", int, float)


def _ends(numbers: Sequence[_Number]) -> tuple[_Number, _Number]:
    return min(numbers), max(numbers)


def _known_ends(numbers: Sequence[float]) -> tuple[float, float]:
    known = [number for number in numbers if not math.isnan(number)]
    return _ends(known) if known else (math.nan, math.nan)
