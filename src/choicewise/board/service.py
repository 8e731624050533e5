"""The submissions of a board: what every submitted model is asked, the queue, and where runs of it lie.

The server and the workers beside it (`choicewise work`) use the same folder: what a board asks is a file in it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from choicewise.board.queue import Lease, Queue
from choicewise.board.submission import NotAllowed, Policy, Submission, Wanted, refusal
from choicewise.errors import StoreError
from choicewise.running.sources import folder_name
from choicewise.util.files import disk_errors, new_file, read_bytes, remove, sync

FOLDER: Final = "submitted"
"""Of all runs of submitted models, in the folder of the board."""

QUEUE_FOLDER: Final = ".submissions"
"""Of the queue, in the folder of the board, where no other is named; nobody looks for runs in it."""

_QUEUE: Final = "queue.sqlite3"
_ASKED: Final = "asked.json"


@dataclass(frozen=True, slots=True)
class Asked:
    """What every submitted model is asked, as `choicewise sweep` takes it, and what models are taken."""

    protocols: tuple[str, ...]
    data: tuple[str, ...] = ()
    limit: int | None = None
    policy: Policy = field(default_factory=Policy)

    def plan(self) -> dict[str, Any]:
        """The keys of a sweep's plan."""
        table = {"protocols": [*self.protocols], "data": [*self.data], "limit": self.limit}
        return {name: value for name, value in table.items() if value}


class SubmissionService:
    """The submissions of the board in the folder ``board``, in the folder ``queue``.

    Raises StoreError where one of them can't be used.
    """

    def __init__(self, board: Path, queue: Path, asked: Asked) -> None:
        self.board, self.asked = board, asked
        _check_place(board)
        make_private(queue)
        self.queue = Queue(queue / _QUEUE)

    @classmethod
    def begin(cls, board: Path, queue: Path, asked: Asked) -> SubmissionService:
        """The same, for the server: workers beside it ask from now on what is ``asked``."""
        service = cls(board, queue, asked)
        with new_file(queue / _ASKED) as partial:
            partial.write_text(json.dumps(asked.plan() | {"policy": asked.policy.as_json()}), encoding="utf-8")
        return service

    @classmethod
    def join(cls, board: Path, queue: Path) -> SubmissionService:
        """The same, for a worker.  Raises StoreError where no board with submissions was there."""
        try:
            table = json.loads(read_bytes(queue / _ASKED, 1_000_000))
            policy = Policy(tuple(table["policy"]["allow"]), table["policy"]["largest"])
            asked = Asked(tuple(table["protocols"]), tuple(table.get("data", ())), table.get("limit"), policy)
        except FileNotFoundError:
            raise StoreError(
                f"{board} has no submissions: start its board first, with `choicewise serve` and submissions, or name "
                "the folder of its queue"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{queue / _ASKED} can't be read ({error}); start the board again, which writes it"
            ) from error
        return cls(board, queue, asked)

    def close(self) -> None:
        """Let go of the queue."""
        self.queue.close()

    def submit(self, wanted: Wanted) -> tuple[Submission, bool]:
        """The submission of what is wanted, and whether it is new; one that can't be evaluated is listed as refused.

        Raises NotAllowed and Busy.
        """
        if not self.asked.policy.takes(wanted.model):
            allowed = ", ".join(self.asked.policy.allow)
            raise NotAllowed(f"this board takes no models called {wanted.model}; it takes {allowed}")
        return self.queue.submit(wanted, refusal(wanted))

    def unfinished(self, submission: Submission) -> Path:
        """Where its runs lie while they are computed; the board looks for none there, and the next worker resumes."""
        return self.board / FOLDER / f".{submission.id}"

    def finish(self, lease: Lease) -> None:
        """Show the runs of a submission on the board, in one step.  Raises LeaseLost where another worker has it."""
        submission = lease.submission
        folder = f"{FOLDER}/{_name(submission)}"
        unfinished, place = self.unfinished(submission), self.board / folder

        def show() -> None:
            with disk_errors(place):
                if unfinished.is_dir():
                    remove(place)
                    unfinished.rename(place)
                    sync(place.parent)

        self.queue.finish(submission.id, lease.secret, folder, show)


def make_private(folder: Path) -> None:
    """The folder, which only whoever runs the board can look into."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.is_symlink() or not folder.is_dir():
        raise StoreError(f"{folder} is no folder; name another one for the queue")


def _name(submission: Submission) -> str:
    """The folder of a submission's runs, which no other submission has: the id is in it."""
    return f"{folder_name(submission.wanted.name)[:80].rstrip('-.')}-{submission.id}"


def _check_place(board: Path) -> None:
    """Raise StoreError where the folder of the board can't take runs, or would put them elsewhere."""
    place = board / FOLDER
    if place.is_symlink():
        raise StoreError(f"{place} is a link, and runs of submitted models must not lie elsewhere; put a folder there")
    if os.path.lexists(place) and not place.is_dir():
        raise StoreError(f"{place} is no folder; move it away, as the runs of submitted models go there")
    if not os.access(board, os.W_OK | os.X_OK):
        raise StoreError(f"{board} can't be written, and the runs of submitted models go there; make it writable")
