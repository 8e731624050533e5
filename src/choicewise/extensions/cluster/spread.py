"""Have processes compute the shards of runs, and merge them into the run folders."""

from __future__ import annotations

import shutil
import typing
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from pathlib import Path

from choicewise.errors import ChoicewiseError, MachinesLost, UsageError
from choicewise.extensions.cluster.merge import merge
from choicewise.extensions.cluster.part import BEAT, Part, State, error_of
from choicewise.models.local.devices import ranks
from choicewise.ports import ModelRuns, Watcher
from choicewise.records import MANIFEST
from choicewise.util.files import disk_errors, locked
from choicewise.util.isolate import Record

DEATHS = 3
"""How often a shard may die without having got any further."""


class Launcher(typing.Protocol):
    """Start processes; a future has the record of ``compute_part``, or MachinesLost."""

    def start(self, part: Part) -> Future[Record]:
        """Start a process for ``part``."""

    def stop(self, futures: Iterable[Future[Record]]) -> None:
        """End the processes of ``futures``; what they have written stays."""


class ShardedRuns:
    """Compute the runs of one model as ``count`` shards that a ``launcher`` starts.

    A run folder that is there already is continued by one process, which needs no merge.
    """

    def __init__(self, runs: ModelRuns, count: int, launcher: Launcher) -> None:
        self.label = runs.job.models[0].label
        self._runs = runs
        self._launcher = launcher
        self._scratch = runs.scratch.absolute()
        begun = [folder for folder in runs.folders.values() if (folder / MANIFEST).exists()]
        self.continues = bool(begun) and count > 1
        self._count = 1 if begun else count
        self._deaths: dict[int, int] = {}
        self._shares: dict[int, float] = {}
        self._futures: dict[Future[Record], int] = {}
        self._records: dict[int, Record] = {}
        self._lines = set[str]()

    def begin(self) -> None:
        """Start a process for every shard; UsageError if shards of another number are there."""
        counts = {
            path.name.rpartition("-of-")[2] for path in self._scratch.iterdir() if path.is_dir()
        }
        others = counts - {str(self._count)}
        if others:
            raise UsageError(
                f"{self._scratch} has shards for workers = {min(others)}; use that number to resume, "
                "or remove the folder"
            )
        for number in range(1, self._count + 1):
            self._start(number)

    def lock(self, stack: ExitStack) -> None:
        """Keep other commands out of the folder of the shards until ``stack`` ends."""
        with disk_errors(self._scratch):
            self._scratch.mkdir(parents=True, exist_ok=True)
        stack.enter_context(locked(self._scratch))

    @property
    def futures(self) -> Sequence[Future[Record]]:
        """Return the shards that compute."""
        return list(self._futures)

    @property
    def share(self) -> float:
        """Return the done share of the work."""
        return sum(self._shares.values()) / self._count

    def advance(self, say: Callable[[str], None]) -> None:
        """Read what the shards report, and start those again that died.

        Raises MachinesLost for a shard that died :data:`DEATHS` times without getting any further,
        and the error that a shard reports.
        """
        for number in range(1, self._count + 1):
            state = State.read(self._state(number))
            self._report(state, say)
            if state.share > self._shares.get(number, 0.0):
                self._shares[number] = state.share
                self._deaths[number] = 0
        for future in [future for future in self._futures if future.done()]:
            number = self._futures.pop(future)
            try:
                record = future.result()
            except MachinesLost as death:
                self._again(number, death, say)
                continue
            if "error" in record:
                raise error_of(record["error"])
            self._records[number] = record

    def finish(self) -> dict[str, str]:
        """Merge the shards, remove them, and return by dataset why a run failed, or ""."""
        failures = {dataset: self._failure(dataset) for dataset in self._runs.folders}
        if self._count > 1:
            for dataset, folder in self._runs.folders.items():
                if not failures[dataset]:
                    self._merge(dataset, folder)
        if not any(failures.values()):
            shutil.rmtree(self._scratch, ignore_errors=True)
        return failures

    def stop(self) -> None:
        """End the processes that are left."""
        self._launcher.stop(self._futures)

    def fail(self, error: ChoicewiseError) -> dict[str, str]:
        """End the processes, and return the error by dataset."""
        self.stop()
        return failures_of(self._runs, error)

    def _failure(self, dataset: str) -> str:
        for record in self._records.values():
            failure: str = record["failures"][dataset]
            if failure:
                return failure
        return ""

    def _merge(self, dataset: str, folder: Path) -> None:
        shards = []
        for number in range(1, self._count + 1):
            shards.append(self._folder(number, dataset))
        # The folder of a run may be there, as long as it is empty.
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        merge(shards, folder, lambda path, manifest: "the same command")

    def _report(self, state: State, say: Callable[[str], None]) -> None:
        """Pass on what no other shard has reported."""
        for line in state.lines:
            if line not in self._lines:
                self._lines.add(line)
                say(line)
        for text in state.warnings:
            if text not in self._lines:
                self._lines.add(text)
                warnings.warn(text, stacklevel=2)

    def _again(self, number: int, death: MachinesLost, say: Callable[[str], None]) -> None:
        self._deaths[number] = self._deaths.get(number, 0) + 1
        if self._deaths[number] >= DEATHS:
            raise MachinesLost(
                f"shard {number}/{self._count} died {DEATHS} times without any progress; "
                f"the last time: {death.message}"
            ) from death
        say(f"shard {number}/{self._count} died ({death.message}); restarting it")
        self._start(number)

    def _start(self, number: int) -> None:
        folders = {}
        for dataset, folder in self._runs.folders.items():
            path = folder.absolute()
            if self._count > 1:
                path = self._folder(number, dataset)
            folders[dataset] = str(path)
        part = Part(
            number=number,
            of=self._count,
            job=self._runs.job.model_dump(mode="json", exclude_defaults=True),
            folders=folders,
            state=str(self._state(number)),
            go_on=self._runs.go_on,
            command=list(self._runs.command),
        )
        self._futures[self._launcher.start(part)] = number

    def _folder(self, number: int, dataset: str) -> Path:
        name = self._runs.folders[dataset].name
        return self._scratch / f"{number}-of-{self._count}" / name

    def _state(self, number: int) -> Path:
        return self._scratch / f"{number}.json"


def failures_of(runs: ModelRuns, error: ChoicewiseError) -> dict[str, str]:
    """Return ``error`` as the failure of all runs, by dataset; raise it if they don't go on."""
    if not runs.go_on:
        raise error
    return dict.fromkeys(runs.folders, "; ".join((error.message, *error.problems)))


def compute_all(sharded: Sequence[ShardedRuns], watcher: Watcher) -> None:
    """Compute the runs of several models at once, and merge those of each as they end.

    Raises the error of a shard unless the runs go on after one.  Whatever ends this, no process
    is left, and what shards have written stays for the same command.
    """
    if ranks() > 1:
        raise UsageError("torchrun's processes share one model; leave out workers and executor")
    with ExitStack() as stack:
        for runs in sharded:
            runs.lock(stack)
            stack.callback(runs.stop)
            if runs.continues:
                watcher.say(f"{runs.label}: one process continues the existing run")
            runs.begin()
        waiting = list(sharded)
        while waiting:
            computing: list[Future[Record]] = []
            for runs in waiting:
                computing += runs.futures
            wait(computing, BEAT, FIRST_COMPLETED)
            for runs in list(waiting):
                # How the runs ended by dataset, None while they are computed.
                failures = None
                try:
                    runs.advance(watcher.say)
                    if not runs.futures:
                        failures = runs.finish()
                except ChoicewiseError as error:
                    failures = runs.fail(error)
                watcher.progress(runs.label, runs.share)
                if failures is not None:
                    waiting.remove(runs)
                    watcher.ended(runs.label, failures)
