"""Rows of a report, made up, for tests of what is said about them."""

import math
from dataclasses import fields
from typing import Any

from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import family, short_signature, signature
from choicewise.results.rows import Diagnosis, Row
from choicewise.scoring.intervals import wilson
from choicewise.scoring.significance import binomial_tail

PROTOCOLS = resolve("mmlu")  # all of the catalogue

NAMES = tuple(PROTOCOLS)

NO_WARNINGS = {
    "warnings": (),
    "text_sibling": None,
    "permutation_sibling": None,
    "choices_sibling": None,
}


def made(
    protocol: str = NAMES[0], value: float = 0.5, model: str = "model", n: int = 100, **changed: Any
) -> Row:
    """A row of ``value`` (share of 1) over ``n`` items of four choices each, with its Wilson interval."""
    recipe = PROTOCOLS[protocol]
    missing = math.isnan(value)
    warnings, chance = changed.pop("warnings", ()), changed.pop("chance", 0.25)
    unknown = {field.name: math.nan for field in fields(Diagnosis) if field.name not in NO_WARNINGS}
    known = {"warnings": warnings, "predictions": changed.pop("predictions", protocol)}
    if not missing:
        known |= {"chance": chance, "guessing_p": binomial_tail(round(value * n), n, chance)}
    diagnosis = Diagnosis(**{**unknown, **NO_WARNINGS, **known})
    low, high = (math.nan, math.nan) if missing else wilson(value, n)
    content: Any = {
        "model": model,
        "dataset": "isles",
        "data": "#D123456",
        "selection": "",
        "subject": "all",
    }
    content |= {"protocol": protocol, "signature": signature(recipe), "family": family(recipe)}
    content |= {
        "id": short_signature(recipe),
        "i": "#I123456",
        "t": "#T123456",
        "r": "#R123456",
        "metric": "acc",
    }
    content |= {
        "value": value,
        "se": math.nan,
        "interval": "wilson",
        "ci_low": low,
        "ci_high": high,
    }
    content |= {
        "low": value,
        "high": value,
        "n": 0 if missing else n,
        "missing": n if missing else 0,
        "noise": 0.0,
    }
    counts = (
        "invalid",
        "ties",
        "near_ties",
        "skipped",
        "shots_dropped",
        "truncated",
        "merged",
        "noncanonical",
    )
    content |= dict.fromkeys((*counts, "lossy", "unknown"), 0)
    return Row(**{**content, "diagnosis": diagnosis, **changed})
