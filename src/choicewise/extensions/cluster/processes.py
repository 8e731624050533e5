"""Compute shards in processes of this machine, each with a GPU of its own if there are any."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from choicewise.errors import MachinesLost, UsageError
from choicewise.extensions.cluster.part import Part, compute_part
from choicewise.extensions.cluster.spread import ShardedRuns, compute_all, failures_of
from choicewise.models.kinds import kind_of
from choicewise.models.local.devices import AUTO, gpu_bytes, gpu_count
from choicewise.models.local.folder_model import footprint_of
from choicewise.models.model import Model
from choicewise.ports import ModelRuns, Watcher
from choicewise.util.isolate import Limits, Record, TrustedProcess, serve
from choicewise.util.text import size

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that names the GPUs of a process."""

_PRINTED = 3
"""Lines that a process printed before it died, and that a message repeats."""


def evaluate(models: Iterable[ModelRuns], workers: int | None, watcher: Watcher) -> None:
    """Compute the runs of one model after the other, each as ``workers`` shards.

    Raises UsageError if this machine has not enough memory or GPUs for so many processes.
    """
    count = workers or 1
    for runs in models:
        try:
            gpus = gpus_of(runs, count)
            check_memory(runs, count, gpus)
        except UsageError as error:
            watcher.ended(runs.job.models[0].label, failures_of(runs, error))
            continue
        compute_all([ShardedRuns(runs, count, Processes(gpus, count))], watcher)


def gpus_of(runs: ModelRuns, count: int) -> list[str]:
    """Return the value of CUDA_VISIBLE_DEVICES for each process; none without GPUs.

    All processes share a device that the job names.
    """
    (choice,) = runs.job.models
    names = visible_gpus()
    if not names or choice.device not in (None, "cuda", AUTO):
        return []
    gpus_each = kind_of(_opened(runs)).gpus(choice.name)
    if choice.device == AUTO:
        gpus_each = max(len(names) // count, 1)
    if gpus_each * count > len(names):
        raise UsageError(
            f"{count} processes of {choice.name} need {gpus_each * count} GPUs, and this machine "
            f"has {len(names)}; use workers = {max(len(names) // gpus_each, 1)}"
        )
    starts = range(0, gpus_each * count, gpus_each)
    return [",".join(names[start : start + gpus_each]) for start in starts]


def _opened(runs: ModelRuns) -> Model:
    assert runs.model is not None
    return runs.model


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    count = gpu_count()
    named = os.environ.get(VISIBLE)
    if named is None:
        return [str(number) for number in range(count)]
    return named.split(",")[:count]


def check_memory(runs: ModelRuns, count: int, gpus: Sequence[str]) -> None:
    """Raise UsageError if ``count`` processes need more memory than there is.

    The main memory of all processes is compared with what is free, and the memory of a process on
    its GPUs with theirs.
    """
    needed = footprint_of(_opened(runs))
    name = runs.job.models[0].name
    free = free_memory()
    if free is not None and count * needed.host > free:
        raise UsageError(
            f"{count} processes of {name} need {size(count * needed.host)} of memory, and "
            f"{size(free)} are free; use workers = {max(int(free // needed.host), 1)}"
        )
    if not gpus or not needed.weights:
        return
    gpus_each = len(gpus[0].split(","))
    memory = gpu_bytes()
    if needed.on_each(gpus_each) > memory:
        raise UsageError(
            f"{name} needs {size(needed.on_each(gpus_each))} on each of {gpus_each} GPUs, which "
            f"have {size(memory)}; use fewer workers with the device auto"
        )


def free_memory() -> int | None:
    """Return the bytes of main memory that new processes can have; None if nobody says so."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    return None


class _ShardProcess(TrustedProcess):
    """Compute a part in a process with ``environment`` beside that of this one."""

    module = "choicewise.extensions.cluster.processes"
    # A shard takes as long as it takes.
    limits = Limits(seconds=None, wait=1e8, memory=None, answer=1 << 30)
    called = "its process"
    remedy = "run the same command again to resume"
    error = MachinesLost
    starting = 3600.0

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__()
        self._added = environment

    def compute(self, part: Part) -> Record:
        """Return the record of the part; MachinesLost if the process dies."""
        try:
            return self._ask(asdict(part))
        finally:
            self._drop()

    def _environment(self) -> dict[str, str]:
        return super()._environment() | self._added

    def _why_ended(self, status: int | None) -> str:
        if status is not None and status < 0:
            return f"was stopped by signal {-status}"
        return super()._why_ended(status)

    def _give_up(self, reason: str) -> NoReturn:
        self._drop()
        lines = [line[:300] for line in self._last_lines()[-_PRINTED:]]
        if lines:
            reason = f"{reason}, after it printed: {' | '.join(lines)}"
        raise MachinesLost(reason)


class Processes:
    """Start processes with ``gpus`` (as CUDA_VISIBLE_DEVICES names them) and a part of the cores."""

    def __init__(self, gpus: Sequence[str], count: int) -> None:
        self._gpus = gpus
        self._threads = max(1, (os.cpu_count() or 1) // count)
        self._waiting = ThreadPoolExecutor(count, "choicewise-shard")
        self._process_of: dict[Future[Record], _ShardProcess] = {}

    def start(self, part: Part) -> Future[Record]:
        """Start a process for ``part``."""
        environment = {}
        if "OMP_NUM_THREADS" not in os.environ:
            environment["OMP_NUM_THREADS"] = str(self._threads)
        if self._gpus:
            environment[VISIBLE] = self._gpus[(part.number - 1) % len(self._gpus)]
        process = _ShardProcess(environment)
        future = self._waiting.submit(process.compute, part)
        self._process_of[future] = process
        return future

    def stop(self, futures: Iterable[Future[Record]]) -> None:
        """End the processes of ``futures``; what they have written stays."""
        for future in futures:
            self._process_of[future].close()


def _prepare() -> Callable[[Record], Record]:
    return lambda record: compute_part(Part(**record))


if __name__ == "__main__":
    serve(_prepare)
