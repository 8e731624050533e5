"""Rows of reports that nobody measured: values, intervals and ranks as a test of charts wants them."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from choicewise.results.number import Diagnosis, Number
from choicewise.results.outcomes import ranked
from tests.helpers.rows import nested

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "a\u2028b\u2029c\u202egnirts",
    "\x1b]0;title\x07\x1b[31mred",
    "quote\" ' ` \\ ${x} {{y}} datum.value",
    "long " * 2000,
    "\ud800\uffff\x00",
    "数学问题" * 40,
    "",
]
"""Names of models and protocols that are no names."""


def row(model: str = "m", protocol: str = "mmlu/a", value: float = 0.5, **more: Any) -> Number:
    """A row about 100 items, its interval 10 points wide."""
    chance = more.pop("chance", 0.25)
    texts = dict.fromkeys(("data", "i", "t", "r"), "#1")
    texts |= {"dataset": "quiz", "selection": "", "subject": "", "metric": "acc"}
    counts = dict.fromkeys(
        ("missing", "invalid", "ties", "near_ties", "skipped", "shots_dropped", "truncated"), 0
    )
    counts |= dict.fromkeys(("merged", "noncanonical", "lossy", "unknown"), 0)
    shares = {
        "value": value,
        "se": 0.05,
        "low": value,
        "high": value,
        "ci_low": value - 0.05,
        "ci_high": value + 0.05,
    }
    about = {
        "signature": f"signature of {protocol}",
        "id": "#P000000",
        "family": "letters",
        "interval": "wilson",
    }
    unknown: dict[str, Any] = {
        each.name: math.nan if "float" in str(each.type) else None for each in fields(Diagnosis)
    }
    diagnosis = Diagnosis(**{**unknown, "warnings": (), "chance": chance, "predictions": protocol})
    own: dict[str, Any] = {
        "model": model,
        "protocol": protocol,
        "n": 0 if math.isnan(value) else 100,
        "noise": None,
    }
    return nested({**texts, **counts, **shares, **about, **own, "diagnosis": diagnosis, **more})


def table(values: Mapping[str, Mapping[str, float]]) -> list[Number]:
    """Ranked rows of ``values[model][protocol]``."""
    return ranked(
        [row(model, name, value) for model, own in values.items() for name, value in own.items()]
    )
