"""Outcomes of runs that nobody made: credits as a test wants them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise.protocols.protocol import Protocol
from choicewise.results.outcomes import Outcome, Outcomes
from choicewise.results.sweep import Average, PartValue, ScoredPart, Stratum


def outcome(
    protocol: Protocol,
    credit: npt.ArrayLike,
    subjects: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    name: str = "one",
    questions: Sequence[str] | None = None,
    golds: Sequence[str] | None = None,
) -> Outcome:
    """The outcome of these credits, NaN for missing; items are called by their numbers and of one subject.
    Without ``questions`` and ``golds``, no item has a text, and the first choice is right."""
    values, codes = np.unique(np.asarray(credit, dtype=np.float64), return_inverse=True)
    count = len(codes)
    own = [
        [str(number) for number in range(count)] if ids is None else ids,
        subjects or ["all"] * count,
        questions or ["no text"] * count,
        golds or ["0"] * count,
    ]
    names = ["item", "subject", "question", "gold"]
    items = pa.table([pa.array(column, pa.string()) for column in own], names)
    predicted = np.zeros(count, dtype=np.int64)
    return Outcome(
        name=name,
        protocol=protocol,
        categories={},
        selection="",
        items=items,
        values=values,
        codes=codes.astype(np.uint8),
        predicted=predicted,
        first=protocol.digest,
    )


def outcomes(*members: Outcome) -> Outcomes:
    return Outcomes("model", "data", "0" * 64, members)


def drawn_average(
    rng: np.random.Generator, sizes: Sequence[Sequence[int]], p: float, low: float = 0.0
) -> Average:
    """Of a suite with a part for each of ``sizes``, which are those of its strata; items are right with chance ``p``.
    Values are normalised where ``low`` is not 0: they are those above guessing, which is right with chance ``low``."""

    def part(own: Sequence[int]) -> PartValue:
        strata = tuple(Stratum(float(rng.binomial(n, p)), n, low) for n in own)
        value = float(np.mean([max(0.0, (right / n - low) / (1 - low)) for right, n, _ in strata]))
        return PartValue(
            "a",
            (
                ScoredPart(
                    protocol="p",
                    metric="acc",
                    value=value,
                    raw=value,
                    se=0.1,
                    n=sum(own),
                    missing=0,
                    strata=strata,
                ),
            ),
        )

    return Average(suite="suite", model="model", normalised=low > 0, parts=tuple(map(part, sizes)))
