"""Keeps a lease from a thread of its own, however long one question takes."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Final, Self

from choicewise.submissions.board_faults import BoardFailed
from choicewise.submissions.client import BoardClient
from choicewise.submissions.leased_work import LeasedWork
from choicewise.submissions.trouble import LeaseLost

_PART: Final = 4
"""A lease is renewed so many times as often as it must be."""


class Interrupted(BaseException):
    """The lease is lost: whoever computes stops here.  No error, so that nobody takes it for one of the model."""


class LeaseKeeper:
    """Renews the lease of ``work`` while the ``with`` lasts; ``lost`` once the board says that it is another's.

    A board that does not answer is asked again and again: whether the lease still holds is for the board to say, by its
    own clock.  ``say`` hears once of such a silence, and of its end.
    """

    def __init__(self, client: BoardClient, work: LeasedWork, say: Callable[[str], None] = lambda line: None) -> None:
        self._client, self._work, self._say = client, work, say
        self._pause, self._progress, self._silent = work.seconds / _PART, (0, 0), False
        self._lost, self._ended = Event(), Event()
        self._thread = Thread(target=self._keep, name="choicewise-lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def lost(self) -> bool:
        """Whether the submission is another worker's by now."""
        return self._lost.is_set()

    def lose(self) -> None:
        """The board said so elsewhere."""
        self._lost.set()

    def progress(self, done: int, total: int) -> None:
        """How far the work is, for the board's page; a safe point: raises Interrupted where the lease is lost."""
        self._progress = done, total
        self.check()

    def check(self) -> None:
        """A safe point alone."""
        if self.lost:
            raise Interrupted

    def _keep(self) -> None:
        while not self._ended.wait(self._pause) and not self.lost:
            try:
                self._pause = self._client.renew(self._work, *self._progress) / _PART
            except LeaseLost:
                self._lost.set()
            except BoardFailed as error:
                if not self._silent:
                    self._say(f"the lease can't be renewed for now: {error.message}; the work goes on meanwhile")
                self._silent = True
            else:
                if self._silent:
                    self._say("the board answers again")
                self._silent = False
