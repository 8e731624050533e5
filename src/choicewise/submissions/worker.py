"""A worker of a board: takes a submission, evaluates it, sends it, and takes the next."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from threading import Event
from typing import Final

from choicewise.errors import ChoicewiseError
from choicewise.submissions.blame import ends_worker, is_of_model, is_panic, words
from choicewise.submissions.board_faults import BoardFailed, BoardFull, NotTaken, OutOfReach
from choicewise.submissions.client import BoardClient
from choicewise.submissions.job import Job, Workplace
from choicewise.submissions.lease_keeper import Interrupted, LeaseKeeper
from choicewise.submissions.leased_work import LeasedWork
from choicewise.submissions.trouble import LeaseLost

SHORTEST, LONGEST = 1.0, 30.0
"""Seconds between two questions whether a submission waits."""

MOST: Final = 3
"""Submissions that fail here one after the other, after which it is rather this machine than all those models."""

_BRIEF: Final = 5.0
"""Seconds of patience with the board where the user waits for the end."""


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


class Worker:
    """Takes submissions from the board of ``client`` and evaluates them as ``place`` says.

    ``pauses``: the shortest and the longest seconds between two questions whether something waits.  ``outcomes``: what
    became of every submission so far.
    """

    def __init__(
        self, client: BoardClient, place: Workplace, *, pauses: tuple[float, float] = (SHORTEST, LONGEST)
    ) -> None:
        self.client, self.place, self.outcomes = client, place, list[Outcome]()
        self._shortest, self._longest = pauses
        self.name = f"{socket.gethostname()}-{os.getpid()}"

    def work(self, once: bool = False) -> None:
        """Take submissions until nothing waits (``once``), or for ever, and wait between them.

        Raises BoardFailed where the board can't be asked, and whatever this machine fails by with every model: that
        submission is given back before.  KeyboardInterrupt and whatever else ends it gives it back as well.
        """
        pause, troubles = self._shortest, set[str]()
        answered = False
        while True:
            work = self._next(once, answered)
            answered = True
            if work is None:
                if once:
                    return
                pause = self._wait(pause)
                continue
            outcome = self._do(work)
            self.outcomes.append(outcome)
            self.place.say(_told(outcome))
            if outcome.end is not End.BACK:
                troubles = set()
            elif outcome.here:
                troubles |= {work.id}
            if len(troubles) >= MOST:
                raise ChoicewiseError(
                    f"{len(troubles)} submissions in a row could not be evaluated here, the last one because: "
                    f"{outcome.reason}; look at this machine's memory and network, then start the worker again"
                )
            pause = self._wait(pause) if outcome.end is End.BACK and not once else self._shortest

    def _next(self, once: bool, answered: bool) -> LeasedWork | None:
        """The next submission; a board that has ``answered`` before and is out of reach is waited for."""
        try:
            return self.client.lease(self.name, self.client.patience if answered else _BRIEF)
        except OutOfReach as error:  # a wrong address is told at once
            if once or not answered:
                raise
            self.place.say(f"{error.message}; it is asked again")
            return None

    def _wait(self, pause: float) -> float:
        """Wait so long; the next pause."""
        Event().wait(pause)
        return min(2 * pause, self._longest)

    def _do(self, work: LeasedWork) -> Outcome:
        """What becomes of a submission; raises what ends the worker, after it was given back."""
        called = work.wanted.name
        self.place.say(f"takes {called} (submission {work.id})")
        with LeaseKeeper(self.client, work, self.place.say) as keeper:
            job: Job | None = None
            try:
                job = Job(self.client, work, self.place, keeper)
                job.do()
            except (Interrupted, LeaseLost):
                if job is not None:
                    job.remove()
                return Outcome(called, End.LOST, "another worker has it by now")
            except (BoardFull, NotTaken) as error:
                self._give_back(work, words(error), again=True)
                return Outcome(called, End.BACK, words(error))
            except BoardFailed as error:
                raise _kept(error, job) from error
            except Exception as error:
                outcome = self._failed(work, job, error)
                if ends_worker(error):
                    raise
                return outcome
            except BaseException as error:
                if is_panic(error):
                    return self._failed(work, job, error)
                self._save(job, False)
                self._give_back(work, "its worker was ended", again=True, counts=False)
                self.outcomes.append(Outcome(called, End.BACK, "this worker was ended"))
                raise
        job.remove()
        return Outcome(called, End.DONE)

    def _failed(self, work: LeasedWork, job: Job | None, error: BaseException) -> Outcome:
        """What becomes of a submission over which that was raised, once the board knows."""
        reason, of_model = words(error), is_of_model(error)
        ended = of_model and (job is None or not job.opened)
        self._save(job, ended)
        given = self._give_back(work, reason, again=not ended)
        end = End.FAILED if ended else End.BACK
        return Outcome(work.wanted.name, end if given else End.LOST, reason, here=not of_model)

    def _save(self, job: Job | None, of_model: bool) -> None:
        """Send what was computed, where it is of use to the next worker."""
        if job is not None and of_model:
            job.remove()
        elif job is not None:
            with suppress(ChoicewiseError):
                job.send(_BRIEF)
                job.remove()  # which may be what fills the disk

    def _give_back(self, work: LeasedWork, reason: str, again: bool, counts: bool = True) -> bool:
        """Whether it was still this worker's."""
        try:
            self.client.fail(work, reason, again, _BRIEF, counts)
        except LeaseLost:
            return False
        except BoardFailed as error:  # the lease runs out
            self.place.say(f"the board does not hear that {work.wanted.name} is given back: {error.message}")
        return True


def _kept(error: BoardFailed, job: Job | None) -> BoardFailed:
    """The same, saying where what was computed lies."""
    if job is None or not job.folder.is_dir():
        return error
    return type(error)(f"{error.message}; what was computed stays in {job.folder}, and the same line goes on with it")


def _told(outcome: Outcome) -> str:
    return f"{outcome.called}: {outcome.end}" + (f": {outcome.reason}" if outcome.reason else "")
