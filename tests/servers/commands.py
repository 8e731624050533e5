"""``choicewise`` as a user runs it, and what its runs hold."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from choicewise.results.run import open_run

Key = tuple[Any, ...]
"""What is the same of an observation in two runs that ask the same."""

COMMAND = (sys.executable, "-m", "choicewise")
DATA = ("--data", "bundled:merrowick")
SAME = ("tokens", "text", "missing")


QUIET = {**os.environ, "COLUMNS": "200"}
"""No terminal's width."""


def choicewise(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command, which ends with ``code``."""
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, env=QUIET, check=False)
    assert done.returncode == code, done.stderr[-3000:]
    return done


def begin(*words: str | Path) -> subprocess.Popen[bytes]:
    """The command under way."""
    sink = subprocess.DEVNULL
    return subprocess.Popen([*COMMAND, *words], stdout=sink, stderr=sink, env=QUIET, start_new_session=True)


def printed(*words: str | Path) -> Any:
    """What a command prints as JSON."""
    return json.loads(choicewise(*words, "--json").stdout)


def trials(found: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The ways of asking that a check tried."""
    return {trial["rung"]: trial for trial in found["trials"]}


def observations(folder: Path) -> dict[Key, dict[str, Any]]:
    """What a run holds, by what was asked."""
    names = ("prompt", "item", "choice", "part", "null")
    rows = open_run(folder).observations().to_pylist()
    found = {tuple(row[name] for name in names): row for row in rows}
    assert len(found) == len(rows)
    return found


def largest_difference(one: Path, other: Path, *, subset: bool = False) -> float:
    """Nats between the log-probabilities of the same tokens in two runs that hold the same observations.

    ``subset``: the second may hold more.
    """
    first, second = observations(one), observations(other)
    assert first
    assert first.keys() <= second.keys() if subset else first.keys() == second.keys()
    differences = [0.0]
    for key, row in first.items():
        assert [row[name] for name in SAME] == [second[key][name] for name in SAME]
        pairs = zip(row["logprobs"], second[key]["logprobs"], strict=True)
        differences += [abs(mine - theirs) for mine, theirs in pairs]
    return max(differences)
