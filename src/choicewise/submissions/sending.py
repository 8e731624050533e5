"""Sends what a sweep has written: now and then from a thread while it is under way, and all of it at its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

from choicewise.errors import StoreError
from choicewise.submissions.board_faults import BoardFailed
from choicewise.submissions.client import BoardClient
from choicewise.submissions.leased_work import LeasedWork
from choicewise.submissions.sent_files import Changed, sent_files
from choicewise.submissions.trouble import Lacking, LeaseLost

EVERY: Final = 5.0
"""Seconds between two looks at what was written."""

_TRIES: Final = 3
"""How often parts that the board lost are sent again."""


class Sending:
    """Sends the sweep in ``folder`` to the board, each content once.

    What goes wrong in the thread is tried again, and what does not heal is said at the end; ``lost`` is called there
    when the lease is.
    """

    def __init__(
        self,
        client: BoardClient,
        work: LeasedWork,
        folder: Path,
        lost: Callable[[], None] = lambda: None,
        every: float = EVERY,
    ) -> None:
        self._client, self._work, self._folder, self._lost, self._every = client, work, folder, lost, every
        self._there, self._listed = set(work.files.values()), dict(work.files)
        self._ended = Event()
        self._thread = Thread(target=self._now_and_then, name="choicewise-sending", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def send(self, patience: float | None = None) -> bool:
        """Send what the board lacks; whether there was anything.

        ``patience``: as of :class:`~choicewise.submissions.client.BoardClient`.  Raises BoardFailed, LeaseLost, and
        StoreError where the folder can't be read.
        """
        files = sent_files(self._folder)
        listing = {file.path: file.sha256 for file in files}
        if not listing or listing == self._listed:
            return False
        for _ in range(_TRIES):
            for file in files:
                if file.sha256 not in self._there:
                    self._there.add(self._client.put(self._work, file.read(self._folder), patience))
            try:
                self._client.list_files(self._work, listing, patience)
            except Lacking as lacking:
                self._there -= {*lacking.sums}
                continue
            self._listed = listing
            return True
        raise BoardFailed(f"{self._client.address} keeps losing what it was sent; look at its disk")

    def _now_and_then(self) -> None:
        pause = self._every
        while not self._ended.wait(pause):
            try:
                self.send(patience=0.0)
                pause = self._every
            except LeaseLost:
                self._lost()
                return
            except Changed:  # it is being written
                pause = self._every
            except (BoardFailed, StoreError):  # at the end it is tried again, patiently, and said
                pause = min(2 * pause, 60.0)
