"""What an Inspect log says of the run as a whole: its version, its state, its settings and its own numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from choicewise.errors import DataError

VERSIONS: Final = (1, 2)
"""Versions of the log format that are read."""

RULES: Final = (
    ((0, 3, 264), "inspect@0.3.264"),
    ((0, 3, 221), "inspect@0.3.221"),
    ((0, 3, 121), "inspect@0.3.121"),
    ((0, 0, 0), "inspect@0.3.42"),
)
"""By which published rule a release, from this one on, reads the letter in a text."""

OTHER_RULES: Final = ("simple-evals@f517a91", "simple-evals-multilingual@f517a91", "opencompass@14ca958")
"""Rules of others that read texts of the form that Inspect asks for, which is simple-evals'."""


def check(path: Path, header: Mapping[str, Any], samples: int) -> None:
    """Refuse logs of another version, without ``samples``, or of which a part was never answered."""
    version, status = header.get("version"), header.get("status", "started")
    if version not in VERSIONS:
        raise DataError(
            f"{path} is of version {version} of Inspect's logs; {' and '.join(map(str, VERSIONS))} are read:"
            " write it again with `inspect log convert`"
        )
    if not samples:
        raise DataError(f"{path} holds no samples (status {status}); run it again, and log the samples")
    dataset, config = (header["eval"].get(key) or {} for key in ("dataset", "config"))
    ids = dataset.get("sample_ids") or []
    expected = len(ids) * int(config.get("epochs") or 1)
    if status != "success" and (samples < expected or not ids):
        raise DataError(
            f"{path} has status {status} and {samples} of {expected or 'an unknown number of'} samples;"
            " those that came first are no sample of all: finish it with `inspect eval-retry`"
        )


def settings(header: Mapping[str, Any]) -> dict[str, str]:
    """What a reader needs to know of the run; arguments of the model stay out, as they may hold secrets."""
    spec = header["eval"]
    packages = spec.get("packages") or {}
    steps = [step for step in (header.get("plan") or {}).get("steps") or () if isinstance(step, dict)]
    limits = [(step.get("params") or {}).get("max_tokens") for step in steps]
    generated = spec.get("model_generate_config") or {}
    said = {
        "inspect_ai": packages.get("inspect_ai"),
        "created": spec.get("created"),
        "task_version": spec.get("task_version"),
        "dataset": (spec.get("dataset") or {}).get("name"),
        "solver": ", ".join(str(step.get("solver")) for step in steps),
        **{key: generated.get(key) for key in ("temperature", "top_p", "seed", "reasoning_effort")},
        "max_tokens": next((limit for limit in (*limits, generated.get("max_tokens")) if limit), None),
    }
    return {key: str(value) for key, value in said.items() if value not in (None, "")}


def rules(header: Mapping[str, Any]) -> tuple[str, ...]:
    """The rule of the release that wrote the log first, then those of other releases and tools."""
    said = str((header["eval"].get("packages") or {}).get("inspect_ai", ""))
    release = tuple(int(number) for number in re.findall(r"\d+", said)[:3]) or RULES[0][0]
    own = next((rule for start, rule in RULES if release >= start), RULES[-1][1])
    return own, *(rule for _, rule in RULES if rule != own), *OTHER_RULES


def totals(header: Mapping[str, Any]) -> dict[str, float]:
    """The log's own numbers, as SCORER/METRIC."""
    scores = (header.get("results") or {}).get("scores") or ()
    return {
        f"{score.get('name')}/{name}": float(metric["value"])
        for score in scores
        for name, metric in (score.get("metrics") or {}).items()
        if isinstance(metric, dict) and isinstance(metric.get("value"), int | float)
    }
