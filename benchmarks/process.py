"""A command as a user starts it: how long it took from start to end, what it computed, how much memory it held."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Measured:
    """``seconds`` from start to end, ``cpu`` seconds of all its threads, ``peak`` resident memory in GB."""

    seconds: float
    cpu: float
    peak: float


def measure(command: Sequence[str | Path], extra: Mapping[str, str]) -> Measured:
    """Run ``command`` offline with ``extra`` variables in its environment; RuntimeError with its words if it fails."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", **extra}
    with tempfile.TemporaryFile("w+") as words:
        start = time.perf_counter()
        child = subprocess.Popen(
            [str(word) for word in command], env=environment, stdout=words, stderr=words
        )
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            words.seek(0)
            raise RuntimeError(
                f"{command[0]} ended with {child.returncode}:\n{words.read()[-3000:]}"
            )
    return Measured(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9)
