"""Where submissions are taken, handed to workers, and put on the board: everything that HTTP asks for, without HTTP."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from choicewise.errors import ChoicewiseError, StoreError
from choicewise.store.atomic import disk_errors, remove
from choicewise.submissions.assembly import assemble, check_place
from choicewise.submissions.listing import checked_listing
from choicewise.submissions.parts import Parts
from choicewise.submissions.policy import Policy, refusal
from choicewise.submissions.queue import SECONDS, Lease, Queue
from choicewise.submissions.submission import Submission, Wanted
from choicewise.submissions.trouble import Lacking, LeaseLost, NotAllowed, TooMuch

MOST_SENT = 64_000_000_000
"""Bytes of all parts that are sent for one submission."""

CLEANED = 3600.0
"""Seconds between two looks for parts that nobody needs."""

QUEUE = "queue.sqlite3"
PARTS = "parts"


@dataclass(frozen=True, slots=True)
class Ask:
    """What every submitted model is asked: as `choicewise sweep` takes it."""

    protocols: tuple[str, ...]
    data: tuple[str, ...] = ()
    limit: int | None = None

    def as_json(self, wanted: Wanted) -> dict[str, Any]:
        """For a worker, with the dtype that was wanted."""
        own = {"protocols": [*self.protocols], "data": [*self.data], "limit": self.limit}
        return {**own, "dtype": wanted.dtype or None}


class Desk:
    """The submissions of the board in the folder ``board``, kept in the folder ``kept``.

    Raises StoreError where one of them can't be used.
    """

    def __init__(self, board: Path, kept: Path, ask: Ask, policy: Policy) -> None:
        self.board, self.ask, self.policy = board, ask, policy
        check_place(board)
        make_private(kept)
        self.queue, self.parts = Queue(kept / QUEUE), Parts(kept / PARTS)
        self._finishing, self._keeping, self._cleaned = Lock(), Lock(), -CLEANED
        self._clean_up()

    def close(self) -> None:
        """Let go of the queue."""
        self.queue.close()

    def submit(self, wanted: Wanted) -> tuple[Submission, bool]:
        """The submission of what is wanted, and whether it is new; one that can't be evaluated is listed as refused.

        Raises NotAllowed and Busy.
        """
        if not self.policy.takes(wanted.model):
            allowed = ", ".join(self.policy.allow)
            raise NotAllowed(f"this board takes no models called {wanted.model}; it takes {allowed}")
        return self.queue.submit(wanted, refusal(wanted))

    def lease(self, worker: str) -> Lease | None:
        """The next submission for a worker, if one waits."""
        return self.queue.lease(worker)

    def lease_json(self, lease: Lease) -> dict[str, Any]:
        """What the worker has to know."""
        return {
            "submission": lease.submission.as_json(),
            "lease": lease.secret,
            "seconds": SECONDS,
            "ask": self.ask.as_json(lease.submission.wanted),
            "policy": self.policy.as_json(),
            "files": dict(lease.files),
        }

    def count_sent(self, name: str, secret: str, size: int) -> None:
        """Note bytes that were sent; TooMuch where they are too many for one submission."""
        if self.queue.count_sent(name, secret, size) > MOST_SENT:
            raise TooMuch(f"more than {MOST_SENT:,} bytes were sent for {name}; a board takes no more")

    def list_files(self, name: str, secret: str, files: object) -> None:
        """Take the listing of a submission.  Raises WrongPart, TooMuch, Lacking and LeaseLost."""
        listing = checked_listing(files)
        self.queue.check(name, secret)
        with self._keeping:
            if lacking := self.parts.lacking(listing.values()):
                raise Lacking(lacking)
            before = self.queue.files(name)
            self.queue.list_files(name, secret, listing)
        self._forget({*before.values()} - {*listing.values()})
        self._clean_up()

    def finish(self, name: str, secret: str) -> None:
        """Make runs of what was listed, on the board; again and again the same.  Raises Damaged and LeaseLost.

        One after the other, as each is examined in a process of its own.
        """
        with self._finishing:
            files = self.queue.begin_finish(name, secret)
            if files is None:
                return
            try:
                if lacking := self.parts.lacking(files.values()):
                    raise Lacking(lacking)
                folder, examination = assemble(self.queue.get(name), files, self.parts, self.board)
            except BaseException:
                with suppress(ChoicewiseError):
                    self.queue.give_up_finish(name, secret)
                raise
            try:
                self.queue.finish(name, secret, folder, examination.missing)
            except LeaseLost:  # given back meanwhile: whoever gets it next makes its runs
                remove(self.board / folder)
                raise
        self._forget({*files.values()})

    def fail(self, name: str, secret: str, reason: str, again: bool, counts: bool = True) -> None:
        """Take a submission back from its worker."""
        files = self.queue.files(name)
        self.queue.fail(name, secret, reason, again, counts)
        self._forget({*files.values()})

    def _clean_up(self) -> None:
        """Remove what was sent long ago and never listed, now and then: its worker was ended in between."""
        with self._keeping:
            if monotonic() < self._cleaned + CLEANED:
                return
            self._cleaned = monotonic()
        with suppress(StoreError):
            self._clean(self.parts.old())

    def _forget(self, sums: set[str]) -> None:
        """Remove parts that are listed no more; what fails is removed another day."""
        with suppress(StoreError):
            self._clean(sums)

    def _clean(self, sums: set[str]) -> None:
        """Remove those of the parts that no listing names."""
        with self._keeping:
            self.parts.remove(sums - self.queue.referred(sums))


def make_private(folder: Path) -> None:
    """The folder, which only whoever runs the board can look into."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.is_symlink() or not folder.is_dir():
        raise StoreError(f"{folder} is no folder; name another one for the queue")
