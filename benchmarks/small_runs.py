"""Whole commands with one and two workers on this machine, and what the simulation says they take.

Two runs with one worker give the start and the speed; two of them at once give the speed while both cores are busy.
From these, the counted shards and nothing else, the other runs are predicted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counts import cut, real, shards, total
from data import prepare
from llama import folder
from scheduler import Cluster, Job, Node, simulate
from workload import PROTOCOLS

from choicewise.data.open import open_dataset
from choicewise.models.local.tokenizer import HfTokenizer

SHAPE, PROTOCOL = "25m", PROTOCOLS / "mmlu-text.toml"
QUESTIONS = 10
"""Of each subject of MMLU; a subject is one shard."""
SMALL, MIDDLE, LARGE = 2, 11, 25
"""Subjects."""
PREPARED = 3e5
"""Tokens a second that a driver prepares and writes; so small a model leaves it idle."""
SECONDS = 1200
"""A run that takes longer hangs."""


def environment() -> dict[str, str]:
    """One thread a process, offline, no cluster that happens to run."""
    kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {**kept, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def timed(commands: Sequence[Sequence[str]]) -> float:
    """Seconds until all of them, started at once, have ended.  RuntimeError with the words of one that fails."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as words:
        children = [
            subprocess.Popen(each, env=environment(), stdout=words, stderr=words)
            for each in commands
        ]
        failed = [child for child in children if child.wait(SECONDS)]
        seconds = time.perf_counter() - start
        if failed:
            words.seek(0)
            raise RuntimeError(f"{' '.join(commands[0])} failed:\n{words.read()[-3000:]}")
    return seconds


class SmallRuns:
    """Runs of one executor on the first questions of subjects of ``data``, each in a folder that is removed.

    ``computed``: tokens that the last one computed, over all workers.
    """

    def __init__(self, executor: str, shape: str, data: Path, tokenizer: Path, work: Path) -> None:
        self.executor, self.data, self.out = executor, data, work / "parallel-runs"
        self.model, self.tokenizer = folder(shape, tokenizer, work), HfTokenizer(tokenizer)
        self.names = sorted(open_dataset(data).choose("test", None))
        self.computed = 0
        shutil.rmtree(self.out, ignore_errors=True)

    def blocks(self, subjects: int) -> list[list[tuple[int, int]]]:
        """What they are asked, as the executor cuts it."""
        return cut(
            self.data, str(PROTOCOL), self.tokenizer, QUESTIONS, self.names[:subjects]
        ).blocks["cpu"]

    def seconds(self, workers: int, subjects: int, at_once: int = 1) -> float:
        """Of one command, or of several equal ones at once."""
        outs = [self.out / str(number) for number in range(at_once)]
        try:
            return timed([self._command(workers, subjects, out) for out in outs])
        finally:
            self.computed = sum(map(_computed, outs))
            shutil.rmtree(self.out, ignore_errors=True)

    def _command(self, workers: int, subjects: int, out: Path) -> list[str]:
        """The command line as a user writes it."""
        asked = [
            "--model",
            self.model,
            "--data",
            self.data,
            "--protocol",
            PROTOCOL,
            "--limit",
            QUESTIONS,
        ]
        chosen = [word for name in self.names[:subjects] for word in ("--subject", name)]
        how = ["--device", "cpu", "--executor", self.executor, "--workers", workers, "--out", out]
        return [sys.executable, "-m", "choicewise", "run", *map(str, [*asked, *chosen, *how])]


def _computed(out: Path) -> int:
    if not (out / "manifest.json").exists():
        return 0
    return int(
        json.loads((out / "manifest.json").read_text())["engine"]["spent"]["tokens_computed"]
    )


def measured(executor: str, work: Path, shared: Path) -> dict[str, Any]:
    """Parameters of one executor, and its other runs as measured and predicted."""
    _, tokenizer = prepare(work, shared)
    runs = SmallRuns(executor, SHAPE, real(work, shared) / "mmlu", tokenizer, work)
    blocks = {subjects: runs.blocks(subjects) for subjects in (SMALL, MIDDLE, LARGE)}
    tokens = {subjects: total(own) for subjects, own in blocks.items()}
    small, large = runs.seconds(1, SMALL), runs.seconds(1, LARGE)
    both = runs.seconds(1, LARGE, at_once=2)
    speed = (tokens[LARGE] - tokens[SMALL]) / (large - small)
    start = small - tokens[SMALL] / speed
    together = tokens[LARGE] / (both - start)
    cases = []
    for workers, subjects in ((1, MIDDLE), (2, SMALL), (2, MIDDLE), (2, LARGE)):
        seconds = runs.seconds(workers, subjects)
        asked = shards(blocks[subjects])
        job = Job(executor, asked, workers, together if workers > 1 else speed, PREPARED, start)
        said = simulate([job], Cluster([Node()])).makespan
        case = {"workers": workers, "questions": QUESTIONS * subjects, "tokens": tokens[subjects]}
        cases.append({**case, "measured": seconds, "predicted": said, "error": said / seconds - 1})
        print(json.dumps(cases[-1]), file=sys.stderr, flush=True)
    one = [{"tokens": tokens[SMALL], "seconds": small}, {"tokens": tokens[LARGE], "seconds": large}]
    parameters = {
        "executor": executor,
        "model": SHAPE,
        "start": start,
        "speed": speed,
        "speed of two": together,
    }
    return {**parameters, "one worker": one, "cases": cases}
