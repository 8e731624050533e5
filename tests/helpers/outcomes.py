"""Outcomes of runs that nobody made: credits as a test wants them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise.protocols.protocol import Protocol
from choicewise.results.outcomes import Outcome, Outcomes


def outcome(
    protocol: Protocol,
    credit: npt.ArrayLike,
    subjects: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    name: str = "one",
) -> Outcome:
    """The outcome of these credits, NaN for missing; items are called by their numbers and of one subject."""
    values, codes = np.unique(np.asarray(credit, dtype=np.float64), return_inverse=True)
    count = len(codes)
    items = pa.table(
        {
            "item": pa.array([str(number) for number in range(count)] if ids is None else ids, pa.string()),
            "subject": pa.array(["all"] * count if subjects is None else subjects, pa.string()),
        }
    )
    predicted = np.zeros(count, dtype=np.int64)
    return Outcome(name, protocol, {}, "", items, values, codes.astype(np.uint8), predicted, protocol.digest)


def outcomes(*members: Outcome) -> Outcomes:
    return Outcomes("model", "data", "0" * 64, members)
