"""The submissions of a board: what every model is asked, a queue with leases in SQLite, and where runs of them lie.

The server and the workers beside it (`choicewise work`) use the same folder: what a board asks is a file in it.

Every change of the queue is one transaction, so that no submission is lost, and none is with two workers.  Whoever
leases one gets a secret, of which the queue keeps the sha256 alone.  Time is that of the board's clock.  A queue has
several writers at once and must not lose what it answered for, which is what a database in WAL mode is for; nothing
that was measured lies in it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from pydantic import TypeAdapter

from choicewise.errors import StoreError
from choicewise.extensions.board.submission import (
    Busy,
    LeaseLost,
    NoSubmission,
    NotAllowed,
    Policy,
    State,
    Submission,
    Wanted,
    refusal,
)
from choicewise.records import Selection
from choicewise.results.rows import chosen_part
from choicewise.util.files import disk_errors, folder_name, new_file, read_bytes, remove, sync

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
    sample: int | None = None
    seed: int | None = None

    @property
    def part(self) -> str:
        """The part of the data, in words; nothing for all of it."""
        return chosen_part(Selection.of(None, self.limit, self.sample, self.seed))

    def plan(self) -> dict[str, Any]:
        """The keys of a sweep's plan."""
        table: dict[str, Any] = {
            "protocols": [*self.protocols] or None,
            "data": [*self.data] or None,
        }
        table |= {"limit": self.limit, "sample": self.sample, "seed": self.seed}
        return {name: value for name, value in table.items() if value is not None}


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
            partial.write_bytes(TypeAdapter(Asked).dump_json(asked))
        return service

    @classmethod
    def join(cls, board: Path, queue: Path) -> SubmissionService:
        """The same, for a worker.  Raises StoreError where no board with submissions was there."""
        try:
            asked = TypeAdapter(Asked).validate_json(read_bytes(queue / _ASKED, 1_000_000))
        except FileNotFoundError:
            raise StoreError(
                f"{board} has no submissions: start its board first, with `choicewise serve` and submissions, or name "
                "the folder of its queue"
            ) from None
        except (OSError, ValueError) as error:
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
            raise NotAllowed(
                f"this board takes no models called {wanted.model}; it takes {allowed}"
            )
        return self.queue.submit(wanted, refusal(wanted))

    def unfinished(self, submission: Submission) -> Path:
        """Where its runs lie while they are computed; the board looks for none there, and the next worker resumes."""
        return self.board / FOLDER / f".{submission.id}"

    def finish(self, lease: Lease, remark: str = "") -> None:
        """Show the runs of a submission on the board, in one step, with a ``remark`` on how they were asked.

        Raises LeaseLost where another worker has it.
        """
        submission = lease.submission
        folder = f"{FOLDER}/{_name(submission)}"
        unfinished, place = self.unfinished(submission), self.board / folder

        def show() -> None:
            with disk_errors(place):
                if unfinished.is_dir():
                    remove(place)
                    unfinished.rename(place)
                    sync(place.parent)

        self.queue.finish(submission.id, lease.secret, folder, show, remark)


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
        raise StoreError(
            f"{place} is a link, and runs of submitted models must not lie elsewhere; put a folder there"
        )
    if os.path.lexists(place) and not place.is_dir():
        raise StoreError(
            f"{place} is no folder; move it away, as the runs of submitted models go there"
        )
    if not os.access(board, os.W_OK | os.X_OK):
        raise StoreError(
            f"{board} can't be written, and the runs of submitted models go there; make it writable"
        )


SECONDS = 60.0
"""How long a lease holds unless it is renewed."""

SHOWN = 5.0
"""Seconds after which a lease that has ended shows at the latest."""

ATTEMPTS = 3
"""How often a submission is taken without getting any further, before it has failed."""

PAUSES = (60.0, 600.0)
"""Seconds before what a worker gave back is leased again: after the first time in a row, and after each further one."""

MOST = 10_000
"""Submissions that wait."""

_LONGEST = 2000
"""Characters of a reason."""

_COLUMNS = "id, model, revision, dtype, state, reason, submitted, changed, worker, done, total, attempts, folder, until"


@dataclass(frozen=True, slots=True)
class Lease:
    """A submission for one worker, who says ``secret`` with everything about it."""

    submission: Submission
    secret: str


class Queue:
    """The queue in the file ``path``, made where it is new.  Threads and processes may use it at once.

    Raises StoreError where the file is damaged, foreign or of a later version, before anything in it changes, and Busy
    where another process holds it: that may be asked again.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path, self._now, self._lock = path, now, Lock()
        with self._told():
            self._connection = (
                self._connect()
            )  # so that the log is not folded in after every transaction
            try:
                self._check()
            except BaseException:
                self.close()
                raise
        with (
            self._write() as connection
        ):  # whatever the clock said before, nothing lasts longer than that
            connection.execute(
                "UPDATE submissions SET until = min(until, CASE state WHEN 'waiting' THEN ? ELSE ? END)",
                [now() + PAUSES[-1], now() + SECONDS],
            )

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def submit(self, wanted: Wanted, refused: str = "") -> tuple[Submission, bool]:
        """The submission of what is ``wanted``, and whether it is new: what is under way or done is not done again.

        ``refused``: why it is only listed, and no worker gets it.
        """
        with self._write() as connection:
            fields = [wanted.model, wanted.revision, wanted.dtype]
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM submissions WHERE model = ? AND revision = ? AND dtype = ? "
                "AND (state NOT IN ('failed', 'refused') OR (state = 'refused' AND reason = ?)) "
                "ORDER BY number DESC LIMIT 1",
                [*fields, refused],
            ).fetchone()
            if row is not None:
                return _submission(row, self._now()), False
            waiting = connection.execute(
                "SELECT count(*) FROM submissions WHERE state = 'waiting'"
            ).fetchone()[0]
            if waiting >= MOST:
                raise Busy(
                    f"{waiting:,} submissions wait already; ask again when workers have taken some"
                )
            now, name = self._now(), secrets.token_hex(6)
            state = State.REFUSED if refused else State.WAITING
            connection.execute(
                "INSERT INTO submissions (id, model, revision, dtype, state, reason, submitted, changed) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [name, *fields, state, refused[:_LONGEST], now, now],
            )
            return _get(connection, name, now), True

    def submissions(self, most: int = 1000) -> list[Submission]:
        """The newest ones, the newest first."""
        with self._read() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM submissions ORDER BY number DESC LIMIT ?", [most]
            )
            return [_submission(row, self._now()) for row in rows]

    def version(self) -> tuple[int, int]:
        """What differs where anything that is shown may; leases that end show within some seconds."""
        with self._told(), self._lock:
            changes = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        return changes, int(self._now() / SHOWN)

    def counts(self) -> dict[State, int]:
        """How many submissions are in each state, in the order of the states."""
        with self._read() as connection:
            counted = dict(
                connection.execute(
                    "SELECT state, count(*) FROM submissions GROUP BY state"
                ).fetchall()
            )
            return {state: counted[state] for state in State if state in counted}

    def get(self, name: str) -> Submission:
        """The submission of that id; NoSubmission where there is none."""
        with self._read() as connection:
            return _get(connection, name, self._now())

    def lease(self, worker: str) -> Lease | None:
        """The submission that waits the longest, for ``worker`` alone; None where nothing waits.

        Those whose worker did not renew its lease wait again, or have failed where that happens again and again.  What
        was given back is not leased for a while (:data:`PAUSES`): its reason may pass, or another worker come.
        """
        with (
            self._read() as connection
        ):  # most of the time nothing waits, and nobody has to be kept out
            now = self._now()
            if not connection.execute(
                "SELECT 1 FROM submissions WHERE state IN ('waiting', 'leased') AND (until <= ? OR until > ?) LIMIT 1",
                [now, now + PAUSES[-1]],
            ).fetchone():
                return None
        with self._write() as connection:
            now = self._now()
            # what lasts longer than anything does was said before the clock was put back; it is counted from now
            connection.execute(
                "UPDATE submissions SET until = ? WHERE until > ?",
                [now + SECONDS, now + PAUSES[-1]],
            )
            ended = "SELECT * FROM submissions WHERE state = 'leased' AND until < ?"
            for row in connection.execute(ended, [now]).fetchall():
                _release(connection, row, _unheard(row["worker"]), now, again=True)
            row = connection.execute(
                "SELECT id FROM submissions WHERE state = 'waiting' AND until <= ? ORDER BY number LIMIT 1",
                [now],
            ).fetchone()
            if row is None:
                return None
            secret = secrets.token_urlsafe(24)
            connection.execute(
                "UPDATE submissions SET state = 'leased', reason = '', worker = ?, lease = ?, until = ?, changed = ?, "
                "done = 0, total = 0, attempts = attempts + 1, fruitless = fruitless + 1 WHERE id = ?",
                [worker, _digest(secret), now + SECONDS, now, row["id"]],
            )
            return Lease(_get(connection, row["id"], now), secret)

    def renew(self, name: str, secret: str, done: int, total: int) -> None:
        """Keep a lease, and say how far the work is.  LeaseLost where it is no more."""
        with self._write() as connection:
            _held(connection, name, secret)
            connection.execute(
                "UPDATE submissions SET until = max(until, ?), done = ?, total = ?, furthest = max(furthest, ?), "
                "fruitless = CASE WHEN ? > furthest THEN 0 ELSE fruitless END WHERE id = ?",
                [self._now() + SECONDS, done, total, done, done, name],
            )

    def finish(
        self, name: str, secret: str, folder: str, show: Callable[[], None], remark: str = ""
    ) -> None:
        """Its runs lie in ``folder`` once ``show`` has put them there, while nobody else gets the submission.

        ``remark``: how they were asked otherwise than the board says, which is listed as its reason.
        """
        with self._write() as connection:
            _held(connection, name, secret)
            show()
            connection.execute(
                "UPDATE submissions SET state = 'done', reason = ?, changed = ?, folder = ?, "
                "done = CASE WHEN total > 0 THEN total ELSE done END WHERE id = ?",
                [remark[:_LONGEST], self._now(), folder, name],
            )

    def fail(
        self,
        name: str,
        secret: str,
        reason: str,
        again: bool,
        counts: bool = True,
        pause: bool = False,
    ) -> None:
        """The worker gives it back: ``again`` for another one to try, else because the model can't be evaluated.

        ``counts``: whether it was an attempt; a worker that somebody ended tried nothing in vain, and the next one may
        take it at once, unless there is reason to ``pause``.
        """
        with self._write() as connection:
            row = connection.execute("SELECT * FROM submissions WHERE id = ?", [name]).fetchone()
            if row is not None and row["state"] == State.FAILED and _same(row["lease"], secret):
                return
            now, after = self._now(), 0.0
            if again and not counts:
                connection.execute(
                    "UPDATE submissions SET fruitless = max(fruitless - 1, 0) WHERE id = ?", [name]
                )
            row = _held(connection, name, secret)
            if counts or pause or not again:
                after = now + PAUSES[min(max(row["fruitless"], 1), len(PAUSES)) - 1]
            _release(connection, row, reason, now, again, after)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else writes beside; all of it happens, or nothing."""
        with self._told(), closing(self._connect()) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        """What the file holds at one moment, whoever writes meanwhile."""
        with self._told(), closing(self._connect()) as connection:
            connection.execute("BEGIN")
            yield connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        for setting in _SETTINGS:
            connection.execute(setting)
        return connection

    def _check(self) -> None:
        connection = self._connection
        version, application = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("user_version", "application_id")
        )
        if version and application != _APPLICATION:
            raise StoreError(
                f"{self._path} is a database of something else; name another folder for the queue"
            )
        if version > VERSION:
            raise StoreError(
                f"the queue {self._path} has version {version}, and this Choicewise knows {VERSION}; nothing of it was "
                "changed: upgrade Choicewise, or name another folder for the queue"
            )
        with disk_errors(self._path):
            self._path.chmod(0o600)
        if not version:
            # A second server that begins at the same time waits here, and then sees the tables.
            connection.execute("BEGIN IMMEDIATE")
            if not connection.execute("PRAGMA user_version").fetchone()[0]:
                for statement in _TABLES.split(";\n"):
                    connection.execute(statement)
            connection.execute("COMMIT")
        if (mode := connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]) != "wal":
            raise StoreError(
                f"the disk of the queue {self._path} can't share it ({mode}); name a folder on another one"
            )
        if (told := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise StoreError(_damaged(self._path, told))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say in our words what SQLite says."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._in_words(error) from error

    def _in_words(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreError(_damaged(self._path, str(error)))
        full = "its disk is full; what it holds is safe: free some space there and ask again"
        held = "another process holds it; ask again in some seconds"
        busy = {sqlite3.SQLITE_BUSY: held, sqlite3.SQLITE_LOCKED: held, sqlite3.SQLITE_FULL: full}
        if code in busy:
            return Busy(f"the queue {self._path.name} can't be written now: {busy[code]}")
        return StoreError(
            f"the queue {self._path} can't be used: {error}; see that its folder can be written"
        )


def _held(connection: sqlite3.Connection, name: str, secret: str) -> sqlite3.Row:
    """The row of a submission, where ``secret`` is of the lease that counts."""
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM submissions WHERE id = ?", [name]
    ).fetchone()
    if row is None:
        raise NoSubmission(f"there is no submission {name}")
    if row["state"] != State.LEASED or not _same(row["lease"], secret):
        raise LeaseLost(
            f"the lease of {name} is lost: another worker has it, or it has ended; take the next one"
        )
    return row


def _release(
    connection: sqlite3.Connection,
    row: sqlite3.Row,
    reason: str,
    now: float,
    again: bool,
    after: float = 0.0,
) -> None:
    """Let it wait until it may be leased ``after`` that time; or fail."""
    ended = not again or row["fruitless"] >= ATTEMPTS
    words = f"{reason} (after {row['attempts']} attempts)" if again and ended else reason
    lease = (row["lease"], 0.0) if ended else ("", after)
    connection.execute(
        "UPDATE submissions SET state = ?, reason = ?, changed = ?, lease = ?, until = ? WHERE id = ?",
        [*((State.FAILED if ended else State.WAITING), words[:_LONGEST], now), *lease, row["id"]],
    )


def _get(connection: sqlite3.Connection, name: str, now: float) -> Submission:
    row = connection.execute(f"SELECT {_COLUMNS} FROM submissions WHERE id = ?", [name]).fetchone()
    if row is None:
        raise NoSubmission(f"there is no submission {name}")
    return _submission(row, now)


def _submission(row: sqlite3.Row, now: float) -> Submission:
    """What the row says; who did not renew a lease has none, though nobody asked for the submission since."""
    state, reason = State(row["state"]), row["reason"]
    if state is State.LEASED and row["until"] < now:
        state, reason = State.WAITING, _unheard(row["worker"])
    after = 0.0
    if row["state"] == State.WAITING and row["until"] > now:
        after = row["until"]
    return Submission(
        id=row["id"],
        wanted=Wanted(row["model"], row["revision"], row["dtype"]),
        state=state,
        reason=reason,
        submitted=row["submitted"],
        changed=row["changed"],
        worker=row["worker"],
        done=row["done"],
        total=row["total"],
        attempts=row["attempts"],
        folder=row["folder"],
        after=after,
    )


def _unheard(worker: str) -> str:
    return f"its worker {worker} was not heard of any more"


def _same(kept: str, secret: str) -> bool:
    return bool(kept) and secrets.compare_digest(kept, _digest(secret))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


VERSION = 2
"""Of the tables; files of a later one are left alone."""

PATIENCE = 2.0
"""Seconds that a transaction waits for another process."""

_APPLICATION = 0x43485753
"""Says in the head of the file that it is ours."""

_SETTINGS = (
    f"PRAGMA busy_timeout = {PATIENCE * 1000:.0f}",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
)
"""Of every connection: what was answered for is on the disk."""

_TABLES = f"""
-- until: the end of a lease, or before which no worker gets what waits
CREATE TABLE submissions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    model TEXT NOT NULL,
    revision TEXT NOT NULL,
    dtype TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    submitted REAL NOT NULL,
    changed REAL NOT NULL,
    worker TEXT NOT NULL DEFAULT '',
    done INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    fruitless INTEGER NOT NULL DEFAULT 0,
    furthest INTEGER NOT NULL DEFAULT 0,
    lease TEXT NOT NULL DEFAULT '',
    until REAL NOT NULL DEFAULT 0,
    folder TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX once ON submissions (model, revision, dtype) WHERE state NOT IN ('failed', 'refused');
CREATE INDEX next ON submissions (state, number);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {VERSION};
"""


def _damaged(path: Path, told: str) -> str:
    return (
        f"the queue {path} is damaged ({told}); move it elsewhere and start again: runs that are on the board stay "
        "there, and what still waited must be submitted again"
    )
