"""What the rows of a report say in short: how far the numbers spread, how many are guesses, and who leads."""

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from choicewise.results.interval import of_items
from choicewise.results.lead import Lead, lead
from choicewise.results.ranks import measured_as
from choicewise.results.row import Row

_INCOMPLETE = re.compile(r"(?:^|, )(incomplete(?:: [\d,]+ of [\d,]+ items)?)$")
"""How :func:`choicewise.results.row.selection` ends for a run that goes on."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of one model on one dataset, a number per protocol (and group, where ``grouped``).

    ``count`` of them are there; ``unmeasured`` are NaN, as no item was scored.  ``items``: the fewest and the most
    that one was asked about.  ``lowest`` and ``highest`` are rows (the first of several), ``median`` a share of 1.
    ``guesses``: numbers whose 95 % interval reaches down to the expected accuracy of guessing, ``chance`` (the mean
    over the rows).  ``enough``: the least and the greatest accuracy from which on one of them would be better than
    guessing, NaN where that does not follow from the number of items; above 1 where there are too few of them.
    """

    model: str
    dataset: str
    data: str
    count: int
    unmeasured: int
    grouped: bool
    items: tuple[int, int]
    lowest: Row | None
    median: float
    highest: Row | None
    guesses: int
    chance: float
    enough: tuple[float, float]

    @property
    def few(self) -> bool:
        """Whether there are so few items that not even all of them right would be better than guessing."""
        return self.enough[0] > 1


@dataclass(frozen=True, slots=True)
class Finding:
    """What the rows of one or several runs say.

    ``numbers``: per model and dataset, in the order of the rows.  ``leads``: per dataset with several models, who
    leads.  ``missing``: the row that lacks the most items, and ``lacking``, how many rows lack any.  ``incomplete``:
    what the runs that go on have by now, in the words of their selection.  ``apart``: rows whose values are no shares
    of 1 and belong to none of these.
    """

    numbers: tuple[Numbers, ...]
    leads: tuple[Lead, ...]
    missing: Row | None
    lacking: int
    incomplete: tuple[str, ...]
    apart: tuple[Row, ...]

    @property
    def count(self) -> int:
        """How many numbers there are in all."""
        return sum(each.count for each in self.numbers)

    @property
    def guesses(self) -> int:
        """How many of them are no better than guessing."""
        return sum(each.guesses for each in self.numbers)

    @property
    def models(self) -> tuple[str, ...]:
        """The models, each once."""
        return tuple(dict.fromkeys(each.model for each in self.numbers))

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets by their short digests, each once."""
        return tuple(dict.fromkeys(each.data for each in self.numbers))


def finding(rows: Sequence[Row]) -> Finding:
    """What ``rows`` say.

    A protocol that stands there under two names counts once.  A model that was computed in several ways under one
    protocol counts as several, named with their ids (``#R``).
    """
    apart, rows = tuple(row for row in rows if not row.share), _distinct([row for row in rows if row.share])
    runs: dict[tuple[str, str], list[Row]] = {}
    datasets: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault((row.model, row.data), []).append(row)
        datasets.setdefault(row.data, []).append(row)
    leads = (lead(own) for own in datasets.values())
    lacking = [row for row in rows if row.missing]
    return Finding(
        numbers=tuple(map(_numbers, runs.values())),
        leads=tuple(each for each in leads if each is not None),
        missing=max(lacking, key=lambda row: row.missing, default=None),
        lacking=len(lacking),
        incomplete=tuple(dict.fromkeys(_incomplete([*rows, *apart]))),
        apart=apart,
    )


def guess(row: Row) -> bool:
    """Whether a number is no better than guessing: its 95 % interval reaches down to the accuracy of guessing."""
    return row.ci_low <= row.chance


def enough(row: Row) -> float:
    """The least accuracy of as many items that is better than guessing; infinite where not even 1 is.

    NaN where the interval follows from more than the number of right answers: from subjects, or credits of any size.
    """
    if row.interval not in ("wilson", "beta-binomial") or not row.n or math.isnan(row.chance):
        return math.nan
    if not math.isclose(of_items(row.interval, row.value * row.n, row.n)[0], row.ci_low, abs_tol=1e-9):
        return math.nan
    right = bisect_right(range(row.n + 1), row.chance, key=lambda right: of_items(row.interval, right, row.n)[0])
    return right / row.n if right <= row.n else math.inf


def _distinct(rows: Sequence[Row]) -> list[Row]:
    alike: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        alike.setdefault((row.model, *measured_as(row)), {}).setdefault(row.r, row)
    twice = {model for (model, *_), ways in alike.items() if len(ways) > 1}
    distinct = (row for ways in alike.values() for row in ways.values())
    return [replace(row, model=f"{row.model} {row.r}") if row.model in twice else row for row in distinct]


def _numbers(rows: Sequence[Row]) -> Numbers:
    known = [row for row in rows if not math.isnan(row.value)]
    asked = [row.n + row.missing for row in rows]
    chances = [row.chance for row in known if not math.isnan(row.chance)]
    edges = [enough(row) for row in known if guess(row)]
    unknown = not edges or any(map(math.isnan, edges))
    return Numbers(
        model=rows[0].model,
        dataset=rows[0].dataset,
        data=rows[0].data,
        count=len(known),
        unmeasured=len(rows) - len(known),
        grouped=len({row.subject for row in rows}) > 1,
        items=(min(asked), max(asked)),
        lowest=min(known, key=lambda row: row.value, default=None),
        median=median(row.value for row in known) if known else math.nan,
        highest=max(known, key=lambda row: row.value, default=None),
        guesses=sum(map(guess, known)),
        chance=sum(chances) / len(chances) if chances else math.nan,
        enough=(math.nan, math.nan) if unknown else (min(edges), max(edges)),
    )


def _incomplete(rows: Iterable[Row]) -> Iterable[str]:
    for row in rows:
        if part := _INCOMPLETE.search(row.selection):
            yield part[1]
