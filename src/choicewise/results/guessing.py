"""Count which numbers of a run are better than guessing, and find what would be."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from choicewise.results.measurement import of_items
from choicewise.results.number import Number
from choicewise.scoring.significance import LEVEL, binomial_tail, holm

FEWEST = 20
"""Questions that a number needs to be called better than guessing."""


@dataclass(frozen=True, kw_only=True)
class Guessing:
    """Count the numbers of one model on one dataset that are better than guessing.

    ``scores``: numbers that are shares of right answers, which guessing could reach.
    ``beating``: scores above guessing, each tested alone.
    ``better``: scores above guessing after Holm's correction for all protocols with different
    predictions; none below :data:`FEWEST` questions.
    ``questions``: the smallest and the largest number of questions of a score.
    ``chances``: the smallest and the largest accuracy expected of guessing.
    ``needed``: the smallest and the largest accuracy that a score needs to be above guessing,
    infinite if 1 is not enough, NaN if it does not follow from the number of questions.
    """

    scores: int = 0
    beating: int = 0
    better: int = 0
    questions: tuple[int, int] = (0, 0)
    chances: tuple[float, float] = (math.nan, math.nan)
    needed: tuple[float, float] = (math.nan, math.nan)

    @property
    def guesses(self) -> int:
        """The number of scores that are no better than guessing."""
        return self.scores - self.better

    @property
    def few(self) -> bool:
        """Check that there are too few questions for a score above guessing, or for any score."""
        least_needed, _ = self.needed
        if least_needed > 1:
            return True
        _, most_questions = self.questions
        return self.beating > 0 and most_questions < FEWEST

    @property
    def lucky(self) -> bool:
        """Check that some scores lie above guessing, but no more than chance allows of so many."""
        # By Markov's inequality half of the tests rarely reject a guesser, however they depend on
        # each other.
        return not self.better and 0 < 2 * self.beating <= self.scores


def merged(parts: Sequence[Guessing]) -> Guessing:
    """Count the numbers of several runs together, each of which was corrected by itself."""
    counted = [part for part in parts if part.scores]
    if not counted:
        return Guessing()
    questions: list[int] = []
    chances: list[float] = []
    needed: list[float] = []
    for part in counted:
        questions += part.questions
        chances += part.chances
        needed += part.needed
    return Guessing(
        scores=sum(part.scores for part in counted),
        beating=sum(part.beating for part in counted),
        better=sum(part.better for part in counted),
        questions=(min(questions), max(questions)),
        chances=_range(chances),
        needed=_range(needed),
    )


def guessing(rows: Sequence[Number]) -> Guessing:
    """Count the numbers better than guessing in ``rows``, which are of one model on one dataset."""
    scores = [row for row in rows if _is_score(row)]
    parts = []
    for row, is_guess in zip(scores, guesses(scores), strict=True):
        n = row.counts.n
        needed = enough(row)
        parts.append(
            Guessing(
                scores=1,
                beating=int(_is_above(row)),
                better=int(not is_guess),
                questions=(n, n),
                chances=(row.chance, row.chance),
                needed=(needed, needed),
            )
        )
    return merged(parts)


def guesses(rows: Sequence[Number]) -> list[bool]:
    """Mark the scores of one model on one dataset that are no better than guessing.

    Holm's correction is made for all scores among ``rows``; other numbers are not marked.
    """
    # Protocols with the same predictions are one test.
    scores = [row for row in rows if _is_score(row)]
    p_of_test = {_test(row): row.diagnosis.guessing_p for row in scores}
    adjusted = holm(list(p_of_test.values())).tolist()
    adjusted_of_test = dict(zip(p_of_test, adjusted, strict=True))
    marks = []
    for row in rows:
        is_guess = False
        if _is_score(row):
            is_guess = guess(row) or adjusted_of_test[_test(row)] > LEVEL
        marks.append(is_guess)
    return marks


def guess(row: Number) -> bool:
    """Check that a number, tested alone, is no better than guessing; False if guessing has none."""
    if not _has_chance(row):
        return False
    return row.counts.n < FEWEST or not _is_above(row)


def enough(row: Number) -> float:
    """Return the smallest accuracy on as many questions that lies above guessing, tested alone.

    It is infinite if 1 is not enough, and NaN if the interval does not follow from the number of
    right answers alone, but from subjects, or from credits of any size.
    """
    n = row.counts.n
    interval = row.interval.name
    if interval not in ("wilson", "beta-binomial"):
        return math.nan
    if not n or math.isnan(row.chance):
        return math.nan
    low, _ = of_items(interval, row.value * n, n)
    # The interval of a sample is narrower, as a part of the items is known.
    if row.population is not None:
        from choicewise.scoring.sampling import unseen

        low = row.value - unseen(n, row.population) * (row.value - low)
    if not math.isclose(low, row.interval.low, abs_tol=1e-9):
        return math.nan

    def is_above(right: int) -> bool:
        low, _ = of_items(interval, right, n)
        if low <= row.chance:
            return False
        return n < FEWEST or binomial_tail(right, n, row.chance) <= LEVEL

    right = bisect_left(range(n + 1), True, key=is_above)
    if right > n:
        return math.inf
    return right / n


def _is_score(row: Number) -> bool:
    return row.counted and _has_chance(row)


def _has_chance(row: Number) -> bool:
    return not (math.isnan(row.chance) or math.isnan(row.value))


def _is_above(row: Number) -> bool:
    """Check that the interval lies above guessing, and that guessing is rarely as good.

    The interval of a sample is about the questions it was drawn from.  A guesser with luck on the
    sample lies above guessing on them, too, so the test takes the interval before it is narrowed.
    """
    if row.interval.low <= row.chance or row.value < enough(row):
        return False
    return row.counts.n < FEWEST or row.diagnosis.guessing_p <= LEVEL


def _test(row: Number) -> tuple[str, str]:
    return row.identity.subject, row.diagnosis.predictions


def _range(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the smallest and the largest of the numbers that are not NaN."""
    numeric = [number for number in numbers if not math.isnan(number)]
    if not numeric:
        return math.nan, math.nan
    return min(numeric), max(numeric)
