"""A worker: takes submissions from the queue of a board, beside the board's folder, and evaluates them there."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import Any, Final

from choicewise.board.queue import SECONDS, Lease
from choicewise.board.service import SubmissionService
from choicewise.board.submission import Busy, CheckedModel, LeaseLost, check_model, ends_worker, is_of_model, words
from choicewise.data.hub import Download
from choicewise.errors import ChoicewiseError, StoreError
from choicewise.models.load import load_model
from choicewise.records import SWEEP
from choicewise.running.progress import Progress
from choicewise.running.sources import Chosen, Source, SweepModel
from choicewise.running.sweep import Audience, plan_of, sweep
from choicewise.running.workers import ONE_PROCESS, Parallel
from choicewise.store.manifest import read_sweep
from choicewise.util.background import Every, give_model_back
from choicewise.util.files import is_locked

SHORTEST, LONGEST = 1.0, 30.0
"""Seconds between two looks whether a submission waits."""

MOST: Final = 3
"""Submissions that fail here one after the other, after which it is rather this machine than all those models."""


class End(StrEnum):
    """How it ended with one submission."""

    DONE = "done"
    FAILED = "failed"
    """The model can't be evaluated."""
    BACK = "given back"
    """Another worker may do better, or this one later."""
    LOST = "lost"
    """It is another worker's by now."""


@dataclass(frozen=True)
class Outcome:
    """What became of the submission of the model that is ``called`` so, and why.

    ``here``: whether this machine may be the reason that it was given back.
    """

    called: str
    end: End
    reason: str = ""
    here: bool = True


@contextmanager
def _unseen(title: str) -> Iterator[Progress]:
    yield lambda done, total: None


@dataclass(frozen=True)
class Workplace:
    """How a worker evaluates.

    ``here``: further arguments of :func:`choicewise.load_model`, such as the device.  ``parallel``: how the work is
    spread, as of a sweep, like ``command``.  ``say`` gets a line now and then; ``shown`` takes a title and gives what
    hears of (done, total); ``download`` hears of downloads.
    """

    here: Mapping[str, Any] = field(default_factory=dict)
    parallel: Parallel = ONE_PROCESS
    say: Callable[[str], None] = lambda line: None
    shown: Callable[[str], AbstractContextManager[Progress]] = _unseen
    download: Download | None = None
    command: Callable[[SweepModel, Source, Chosen], Sequence[str]] = lambda model, source, chosen: ()


class Worker:
    """Takes submissions from ``service`` and evaluates them as ``place`` says.

    ``pauses``: the shortest and the longest seconds between two looks whether something waits.  ``outcomes``: what
    became of every submission so far.
    """

    def __init__(
        self, service: SubmissionService, place: Workplace, *, pauses: tuple[float, float] = (SHORTEST, LONGEST)
    ) -> None:
        self.service, self.place, self.outcomes = service, place, list[Outcome]()
        self._shortest, self._longest = pauses
        self.name = f"{socket.gethostname()}-{os.getpid()}"

    def work(self, once: bool = False) -> None:
        """Take submissions until nothing waits (``once``), or for ever, and wait between them.

        Raises whatever this machine fails by with every model: that submission is given back before.
        KeyboardInterrupt and whatever else ends it gives it back as well.
        """
        pause, troubles = self._shortest, set[str]()
        while True:
            lease = self._next()
            if lease is None:
                if once:
                    return
                pause = self._wait(pause)
                continue
            outcome = self._do(lease)
            self.outcomes.append(outcome)
            self.place.say(_told(outcome))
            if outcome.end is not End.BACK:
                troubles = set()
            elif outcome.here:
                troubles |= {lease.submission.id}
            if len(troubles) >= MOST:
                raise ChoicewiseError(
                    f"{len(troubles)} submissions in a row could not be evaluated here, the last one because: "
                    f"{outcome.reason}; look at this machine's memory and network, then start the worker again"
                )
            pause = self._wait(pause) if outcome.end is End.BACK and not once else self._shortest

    def _next(self) -> Lease | None:
        while True:
            try:
                return self.service.queue.lease(self.name)
            except Busy as error:
                self.place.say(f"{error.message}; it is asked again")
                Event().wait(self._shortest)

    def _wait(self, pause: float) -> float:
        """Wait so long; the next pause."""
        Event().wait(pause)
        return min(2 * pause, self._longest)

    def _do(self, lease: Lease) -> Outcome:
        """What becomes of a submission; raises what ends the worker, after it was given back."""
        called = lease.submission.wanted.name
        folder = self.service.unfinished(lease.submission)
        self.place.say(f"takes {called} (submission {lease.submission.id})")
        if folder.is_dir() and is_locked(folder):  # of a worker that did not renew its lease and goes on
            self._give_back(lease, "another worker still writes to its runs", again=True, counts=False)
            return Outcome(called, End.BACK, "another worker still writes to its runs", here=False)
        job = _Job(self.service, lease, self.place)
        try:
            with Every(SECONDS / 4, job.renew):
                job.do(folder)
                self.service.finish(lease)
        except (Interrupted, LeaseLost):
            return Outcome(called, End.LOST, "another worker has it by now")
        except Exception as error:
            outcome = self._failed(lease, job, folder, error)
            if ends_worker(error):
                raise
            return outcome
        except BaseException as error:
            if is_of_model(error):  # a package written in Rust gave up
                return self._failed(lease, job, folder, error)
            self._give_back(lease, "its worker was ended", again=True, counts=False)
            self.outcomes.append(Outcome(called, End.BACK, "this worker was ended"))
            raise
        return Outcome(called, End.DONE)

    def _failed(self, lease: Lease, job: _Job, folder: Path, error: BaseException) -> Outcome:
        """What becomes of a submission over which that was raised, once the queue knows."""
        reason, of_model = words(error), is_of_model(error)
        ended = of_model and not job.opened
        if ended:
            shutil.rmtree(folder, ignore_errors=True)
        given = self._give_back(lease, reason, again=not ended)
        end = End.FAILED if ended else End.BACK
        return Outcome(lease.submission.wanted.name, end if given else End.LOST, reason, here=not of_model)

    def _give_back(self, lease: Lease, reason: str, again: bool, counts: bool = True) -> bool:
        """Whether it was still this worker's."""
        try:
            self.service.queue.fail(lease.submission.id, lease.secret, reason, again, counts)
        except LeaseLost:
            return False
        except Busy as error:  # the lease runs out
            self.place.say(f"{lease.submission.wanted.name} is not given back: {error.message}")
        return True


def _told(outcome: Outcome) -> str:
    return f"{outcome.called}: {outcome.end}" + (f": {outcome.reason}" if outcome.reason else "")


class Interrupted(BaseException):
    """The lease is lost: whoever computes stops here.  No error, so that nobody takes it for one of the model."""


class _Job:
    """A submission under a ``lease``, which a thread renews.

    ``opened``: whether the model was, so that what fails from then on may be this machine's fault.
    """

    def __init__(self, service: SubmissionService, lease: Lease, place: Workplace) -> None:
        self._service, self._lease, self._place = service, lease, place
        self._progress, self._lost = (0, 0), Event()
        self.opened = False

    def renew(self) -> None:
        """Say that the work goes on, and how far it is."""
        with suppress(Busy):  # the next call is soon enough
            try:
                self._service.queue.renew(self._lease.submission.id, self._lease.secret, *self._progress)
            except LeaseLost:
                self._lost.set()

    def do(self, folder: Path) -> None:
        """Evaluate it into ``folder``, where an earlier worker may have begun.

        Raises Refused and other ModelErrors where the model can't be evaluated, StoreError where this disk is the
        reason, DataError where the questions can't be had, and Interrupted where the lease is lost meanwhile.
        """
        wanted, place = self._lease.submission.wanted, self._place
        pinned = check_model(wanted, self._service.asked.policy)
        options = {"dtype": wanted.dtype} if wanted.dtype else {}
        here = {**place.here, **place.parallel.loading(place.here.get("device"))}
        opened = load_model(pinned, progress=self._download, say=place.say, **{**here, **options})
        self.opened = True
        if wanted.revision:  # else the board would call all revisions of a model the same
            opened.name = wanted.name
        model = CheckedModel(wanted.name, options, opened=opened)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._sweep(model, folder)
        except StoreError as error:
            unfinished = _unfinished(folder)
            if isinstance(error.__cause__, OSError) or not unfinished:  # the disk
                raise
            place.say(f"what was computed before does not go on ({error.message}); it is computed again")
            for run in unfinished:
                shutil.rmtree(run, ignore_errors=True)
            self._sweep(model, folder)
        del opened, model
        give_model_back()

    def _sweep(self, model: CheckedModel, folder: Path) -> None:
        place, plan = self._place, plan_of({**self._service.asked.plan(), "models": [model.name]})
        asked = replace(plan, models=[model], go_on=False, command=place.command, parallel=place.parallel)
        with place.shown(model.name) as shown:

            def progress(done: int, total: int) -> None:
                shown(done, total)
                self._progress = done, total
                self._check()

            sweep(asked, folder, Audience(progress, place.say, download=self._download))
        self._check()

    def _check(self) -> None:
        """A safe point: raises Interrupted where the lease is lost."""
        if self._lost.is_set():
            raise Interrupted

    def _download(self, name: str, done: int, total: int) -> None:
        self._check()
        if self._place.download is not None:
            self._place.download(name, done, total)


def _unfinished(folder: Path) -> list[Path]:
    """The runs in ``folder`` that a sweep has begun and not done."""
    cells = read_sweep(folder).missing if (folder / SWEEP).exists() else ()
    return [run for cell in cells if (run := folder / cell.folder).is_dir()]
