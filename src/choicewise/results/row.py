"""A row of a report."""

from dataclasses import asdict, dataclass
from typing import Any

from choicewise.results.diagnosis import Diagnosis
from choicewise.results.json_value import json_value


@dataclass(frozen=True, slots=True)
class Row:
    """One number with everything that is needed to trust or distrust it.

    ``data`` and ``id`` are the short digests of dataset and protocol.  ``selection`` says in words which part of the
    data the run is about, nothing for all of it.  ``value``, ``se``, ``ci_low`` and ``ci_high`` are shares of 1, NaN
    where there is nothing to average; ``interval`` names the 95 % interval.  ``low`` and ``high`` bound the value
    that numeric noise of ``noise`` nats allows (None: not measured), ``ties`` counts the items that are tied exactly,
    ``near_ties`` the further ones that noise leaves open.  ``n`` counts the items the value is a mean over,
    ``missing`` those that could not be scored, ``invalid`` those of ``n`` whose generated text names no option,
    ``skipped`` the rows of the data that could not be used at all.

    Items of the row with a doubt: ``shots_dropped`` and ``truncated`` lost few-shot examples or tokens, ``merged`` have
    a token across the end of the context, ``noncanonical`` were scored in other tokens than the text's own, ``lossy``
    in tokens that do not spell it, ``unknown`` in unknown ones.  ``diagnosis`` says what speaks against the value.
    ``rank`` is 1 for the best of the models measured on the same; ``rank_low`` and ``rank_high`` bound it over draws of
    items.
    """

    model: str
    dataset: str
    data: str
    selection: str
    subject: str
    protocol: str
    signature: str
    id: str
    metric: str
    value: float
    se: float
    interval: str
    ci_low: float
    ci_high: float
    low: float
    high: float
    n: int
    missing: int
    invalid: int
    ties: int
    near_ties: int
    noise: float | None
    skipped: int
    shots_dropped: int
    truncated: int
    merged: int
    noncanonical: int
    lossy: int
    unknown: int
    diagnosis: Diagnosis
    rank: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The row as JSON knows it: NaN and infinity become null, flags stand beside the numbers."""
        content = asdict(self)
        diagnosis = content.pop("diagnosis")
        flags = list(diagnosis.pop("flags"))
        return json_value({**content, "flags": flags, "diagnosis": diagnosis})
