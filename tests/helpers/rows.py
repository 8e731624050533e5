"""Rows of a report, made up, for tests of what is said about them."""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import family, short_signature, signature
from choicewise.results.number import (
    Bounds,
    Counts,
    Diagnosis,
    Interval,
    Number,
    NumberIdentity,
    Ranking,
)
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


_RENAMED = {
    "interval": ("interval", "name"),
    "ci_low": ("interval", "low"),
    "ci_high": ("interval", "high"),
    "low": ("bounds", "low"),
    "high": ("bounds", "high"),
    "noise": ("bounds", "noise"),
    "rounding": ("bounds", "rounding"),
    "rank": ("ranks", "rank"),
    "rank_low": ("ranks", "low"),
    "rank_high": ("ranks", "high"),
    "lead_p": ("ranks", "lead_p"),
}
_GROUPS: dict[str, type] = {
    "identity": NumberIdentity,
    "interval": Interval,
    "bounds": Bounds,
    "counts": Counts,
    "ranks": Ranking,
}


_PATHS = {
    field.name: (group, field.name)
    for group in ("identity", "counts")
    for field in fields(_GROUPS[group])
} | _RENAMED
"""Key of a number's JSON → the group that it lies in, and the field there; other keys are fields of the number."""


def _grouped(flat: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    direct = {}
    for key, value in flat.items():
        if key in _PATHS:
            group, name = _PATHS[key]
            groups.setdefault(group, {})[name] = value
        else:
            direct[key] = value
    return groups, direct


def nested(flat: Mapping[str, Any]) -> Number:
    """Return the number with these fields, named as its JSON names them."""
    groups, direct = _grouped(flat)
    return Number(**{name: _GROUPS[name](**values) for name, values in groups.items()}, **direct)


def altered(number: Number, **flat: Any) -> Number:
    """Return the number with some fields replaced, named as its JSON names them."""
    groups, direct = _grouped(flat)
    parts = {name: replace(getattr(number, name), **values) for name, values in groups.items()}
    return replace(number, **parts, **direct)


def made(
    protocol: str = NAMES[0], value: float = 0.5, model: str = "model", n: int = 100, **changed: Any
) -> Number:
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
    return nested({**content, "diagnosis": diagnosis, **changed})
