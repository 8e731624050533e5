"""``choicewise`` as a user runs it, and what its runs hold."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from choicewise.results.run import open_run

Key = tuple[Any, ...]  # what is the same of an observation in two runs that ask the same

COMMAND = (sys.executable, "-m", "choicewise")
DATA = ("--data", "bundled:merrowick")


def choicewise(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command, which ends with ``code``."""
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, env=quiet(), check=False
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done


def begin(*words: str | Path) -> subprocess.Popen[bytes]:
    """The command under way."""
    sink = subprocess.DEVNULL
    return subprocess.Popen(
        [*COMMAND, *words], stdout=sink, stderr=sink, env=quiet(), start_new_session=True
    )


def quiet() -> dict[str, str]:
    """One thread, and no terminal's width."""
    return {**os.environ, "COLUMNS": "200"}


def checked(model: str, *options: str) -> dict[str, Any]:
    """What ``check --json`` prints."""
    printed: dict[str, Any] = json.loads(
        choicewise("check", "--model", model, *options, "--json").stdout
    )
    return printed


def trials(found: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The ways of asking that a check tried."""
    return {trial["rung"]: trial for trial in found["trials"]}


def report(folder: Path) -> list[dict[str, Any]]:
    """What ``report --json`` prints."""
    printed: list[dict[str, Any]] = json.loads(choicewise("report", folder, "--json").stdout)
    return printed


def observations(folder: Path) -> dict[Key, dict[str, Any]]:
    """What a run holds, by what was asked."""
    names = ("prompt", "item", "choice", "part", "null")
    rows = open_run(folder).observations().to_pylist()
    found = {tuple(row[name] for name in names): row for row in rows}
    assert len(found) == len(rows)
    return found


def largest_difference(one: Path, other: Path, *, subset: bool = False) -> float:
    """Nats between the log-probabilities of the same tokens in two runs that hold the same observations. ``subset``:
    the second may hold more."""
    first, second = observations(one), observations(other)
    assert first
    assert first.keys() <= second.keys() if subset else first.keys() == second.keys()
    largest = 0.0
    for key, row in first.items():
        like = second[key]
        assert (row["tokens"], row["text"], row["missing"]) == (
            like["tokens"],
            like["text"],
            like["missing"],
        )
        for a, b in zip(row["logprobs"], like["logprobs"], strict=True):
            largest = max(largest, abs(a - b))
    return largest
