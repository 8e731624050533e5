"""Keep the submissions of a board in a queue with leases, for a server and the workers beside it."""

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
from choicewise.util.jsonio import JsonDict

FOLDER = "submitted"
"""Of all runs of submitted models, in the folder of the board."""

# The server and the workers (`choicewise work`) use the same folder: what a board asks is a file in
# it. Every change of the queue is one transaction, so that no submission is lost, and none is with
# two workers. A queue has several writers at once and must not lose what it answered for, which is
# what a database in WAL mode is for; nothing that was measured is in it. Whoever leases a
# submission gets a secret, of which the queue keeps the sha256 alone. Time is that of the board's
# clock.

QUEUE_FOLDER = ".submissions"
"""The folder of the queue in the folder of the board, if no other is named; nobody looks for runs
in it.
"""

_QUEUE = "queue.sqlite3"
_ASKED = "asked.json"


@dataclass(frozen=True)
class Asked:
    """Hold how every submitted model is evaluated, as `choicewise sweep` takes it, and which models
    are taken.
    """

    protocols: tuple[str, ...]
    data: tuple[str, ...] = ()
    limit: int | None = None
    policy: Policy = field(default_factory=Policy)
    sample: int | None = None
    seed: int | None = None

    @property
    def part(self) -> str:
        """Return the part of the data in words, an empty text for all of it."""
        return chosen_part(Selection.of(None, self.limit, self.sample, self.seed))

    def plan(self) -> JsonDict:
        """Return the keys of a sweep's plan."""
        plan: JsonDict = {
            "protocols": list(self.protocols) or None,
            "data": list(self.data) or None,
            "limit": self.limit,
            "sample": self.sample,
            "seed": self.seed,
        }
        return {name: value for name, value in plan.items() if value is not None}


class SubmissionService:
    """Take submissions for the board in the folder ``board``, and keep them in the folder
    ``queue``.

    Raises StoreError if one of them can't be used.
    """

    def __init__(self, board: Path, queue: Path, asked: Asked) -> None:
        self.board = board
        self.asked = asked
        _check_board(board)
        make_private(queue)
        self.queue = Queue(queue / _QUEUE)

    @classmethod
    def begin(cls, board: Path, queue: Path, asked: Asked) -> SubmissionService:
        """Return the service of the server; workers beside it evaluate from now on as ``asked``
        says.
        """
        service = cls(board, queue, asked)
        # Workers read in this file how to evaluate a submission.
        with new_file(queue / _ASKED) as partial:
            partial.write_bytes(TypeAdapter(Asked).dump_json(asked))
        return service

    @classmethod
    def join(cls, board: Path, queue: Path) -> SubmissionService:
        """Return the service of a worker; StoreError if no board with submissions was there."""
        try:
            asked = TypeAdapter(Asked).validate_json(read_bytes(queue / _ASKED, 1_000_000))
        except FileNotFoundError:
            raise StoreError(
                f"{board} has no submissions: start its board first, with `choicewise serve` and "
                "submissions, or name "
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
        """Return the submission of a model and whether it is new; one that can't be evaluated is
        listed as refused.

        Raises NotAllowed and Busy.
        """
        if not self.asked.policy.takes(wanted.model):
            allowed = ", ".join(self.asked.policy.allow)
            raise NotAllowed(
                f"this board takes no models called {wanted.model}; it takes {allowed}"
            )
        return self.queue.submit(wanted, refusal(wanted))

    def unfinished(self, submission: Submission) -> Path:
        """Return the folder of its runs while they are computed, where the next worker resumes."""
        # The board looks for no runs in hidden folders.
        return self.board / FOLDER / f".{submission.id}"

    def finish(self, lease: Lease, remark: str = "") -> None:
        """Show the runs of a submission on the board, in one step, with a ``remark`` on how they
        were evaluated.

        Raises LeaseLost if another worker has it.
        """
        submission = lease.submission
        # No other submission has this name, as the id is in it.
        name = folder_name(submission.wanted.name)[:80].rstrip("-.")
        folder = f"{FOLDER}/{name}-{submission.id}"
        unfinished = self.unfinished(submission)
        finished = self.board / folder

        def show() -> None:
            with disk_errors(finished):
                if unfinished.is_dir():
                    remove(finished)
                    unfinished.rename(finished)
                    sync(finished.parent)

        self.queue.finish(submission.id, lease.secret, folder, show, remark)


def make_private(folder: Path) -> None:
    """Make a folder that only whoever runs the board can look into."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.is_symlink() or not folder.is_dir():
        raise StoreError(f"{folder} is no folder; name another one for the queue")


def _check_board(board: Path) -> None:
    """Raise StoreError if the folder of the board can't take runs, or would put them elsewhere."""
    folder = board / FOLDER
    if folder.is_symlink():
        raise StoreError(
            f"{folder} is a link, and runs of submitted models must not lie elsewhere; put a "
            "folder there"
        )
    if os.path.lexists(folder) and not folder.is_dir():
        raise StoreError(
            f"{folder} is no folder; move it away, as the runs of submitted models go there"
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
"""Seconds before what a worker gave back is leased again: after the first time in a row, and after
each further one.
"""

MOST = 10_000
"""Submissions that wait."""

_LONGEST = 2000
"""Characters of a reason."""

_COLUMNS = (
    "id, model, revision, dtype, state, reason, submitted, changed, worker, done, total, attempts, "
    "folder, until"
)


@dataclass(frozen=True)
class Lease:
    """Hold a submission for one worker, who shows the ``secret`` with every change."""

    submission: Submission
    secret: str


class Queue:
    """Keep submissions in the file ``path``, made if it is new. Threads and processes may use it at
    once.

    Raises StoreError if the file is damaged, foreign or of a later version, before anything in it
    changes, and Busy if another process holds it.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._lock = Lock()
        with self._in_words():
            # A connection that stays open keeps SQLite from folding in the log after every
            # transaction.
            self._connection = self._connect()
            try:
                self._check()
            except BaseException:
                self.close()
                raise
        with self._write() as connection:
            # Whatever the clock said before, nothing lasts longer than that.
            connection.execute(
                "UPDATE submissions "
                "SET until = min(until, CASE state WHEN 'waiting' THEN ? ELSE ? END)",
                [now() + PAUSES[-1], now() + SECONDS],
            )

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def submit(self, wanted: Wanted, refused: str = "") -> tuple[Submission, bool]:
        """Return the submission of a model, and whether it is new: what is under way or done is not
        done again.

        ``refused``: why it is only listed, and no worker gets it.
        """
        with self._write() as connection:
            fields = [wanted.model, wanted.revision, wanted.dtype]
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM submissions "
                "WHERE model = ? AND revision = ? AND dtype = ? "
                "AND (state NOT IN ('failed', 'refused') OR (state = 'refused' AND reason = ?)) "
                "ORDER BY number DESC LIMIT 1",
                [*fields, refused],
            ).fetchone()
            if row is not None:
                return _submission(row, self._now()), False
            waiting = connection.execute(
                "SELECT count(*) FROM submissions WHERE state = 'waiting'"
            ).fetchone()[0]
            # Whoever has the token could fill the disk.
            if waiting >= MOST:
                raise Busy(
                    f"{waiting:,} submissions are waiting; try again when workers have taken some"
                )
            now = self._now()
            name = secrets.token_hex(6)
            state = State.WAITING
            if refused:
                state = State.REFUSED
            connection.execute(
                "INSERT INTO submissions "
                "(id, model, revision, dtype, state, reason, submitted, changed) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [name, *fields, state, refused[:_LONGEST], now, now],
            )
            return _get(connection, name, now), True

    def submissions(self, most: int = 1000) -> list[Submission]:
        """Return the newest submissions, the newest first."""
        with self._read() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM submissions ORDER BY number DESC LIMIT ?", [most]
            )
            return [_submission(row, self._now()) for row in rows]

    def version(self) -> tuple[int, int]:
        """Return what changes whenever a page of the queue may; the end of a lease shows within
        some seconds.
        """
        with self._in_words(), self._lock:
            changes = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        return changes, int(self._now() / SHOWN)

    def counts(self) -> dict[State, int]:
        """Count the submissions in each state, in the order of the states."""
        with self._read() as connection:
            rows = connection.execute("SELECT state, count(*) FROM submissions GROUP BY state")
            counts = dict(rows.fetchall())
        return {state: counts[state] for state in State if state in counts}

    def get(self, name: str) -> Submission:
        """Return the submission of that id; NoSubmission if there is none."""
        with self._read() as connection:
            return _get(connection, name, self._now())

    def lease(self, worker: str) -> Lease | None:
        """Return the submission that waits the longest, for ``worker`` alone; None if nothing
        waits.

        A submission whose worker did not renew its lease waits again, or fails if that happens
        again and again. What was given back is not leased for a while (:data:`PAUSES`): its reason
        may pass, or another worker come.
        """
        # Most of the time nothing waits, and nobody has to be kept out.
        with self._read() as connection:
            now = self._now()
            if not connection.execute(
                "SELECT 1 FROM submissions WHERE state IN ('waiting', 'leased') "
                "AND (until <= ? OR until > ?) LIMIT 1",
                [now, now + PAUSES[-1]],
            ).fetchone():
                return None
        with self._write() as connection:
            now = self._now()
            # What lasts longer than anything does was written before the clock was put back, and
            # counts from now.
            connection.execute(
                "UPDATE submissions SET until = ? WHERE until > ?",
                [now + SECONDS, now + PAUSES[-1]],
            )
            ended = "SELECT * FROM submissions WHERE state = 'leased' AND until < ?"
            for row in connection.execute(ended, [now]).fetchall():
                _release(connection, row, _unheard(row["worker"]), now, again=True)
            row = connection.execute(
                "SELECT id FROM submissions WHERE state = 'waiting' AND until <= ? "
                "ORDER BY number LIMIT 1",
                [now],
            ).fetchone()
            if row is None:
                return None
            secret = secrets.token_urlsafe(24)
            connection.execute(
                "UPDATE submissions SET state = 'leased', reason = '', worker = ?, lease = ?, "
                "until = ?, changed = ?, "
                "done = 0, total = 0, attempts = attempts + 1, fruitless = fruitless + 1 "
                "WHERE id = ?",
                [worker, _digest(secret), now + SECONDS, now, row["id"]],
            )
            return Lease(_get(connection, row["id"], now), secret)

    def renew(self, name: str, secret: str, done: int, total: int) -> None:
        """Keep a lease, and say how far the work is; LeaseLost if it has ended."""
        with self._write() as connection:
            _leased_row(connection, name, secret)
            connection.execute(
                "UPDATE submissions SET until = max(until, ?), done = ?, total = ?, "
                "furthest = max(furthest, ?), "
                "fruitless = CASE WHEN ? > furthest THEN 0 ELSE fruitless END WHERE id = ?",
                [self._now() + SECONDS, done, total, done, done, name],
            )

    def finish(
        self, name: str, secret: str, folder: str, show: Callable[[], None], remark: str = ""
    ) -> None:
        """Note that its runs are in ``folder``, once ``show`` has put them there while nobody else
        gets the submission.

        ``remark``: how they were evaluated otherwise than the board says, which is listed as its
        reason.
        """
        with self._write() as connection:
            _leased_row(connection, name, secret)
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
        """Give a submission back: ``again`` for another worker to try, else because the model can't
        be evaluated.

        ``counts``: whether it was an attempt. A worker that somebody ended tried nothing in vain,
        and the next one may take the submission at once, unless there is reason to ``pause``.
        """
        with self._write() as connection:
            row = connection.execute("SELECT * FROM submissions WHERE id = ?", [name]).fetchone()
            if row is not None and row["state"] == State.FAILED and _same(row["lease"], secret):
                return
            now = self._now()
            after = 0.0
            if again and not counts:
                connection.execute(
                    "UPDATE submissions SET fruitless = max(fruitless - 1, 0) WHERE id = ?", [name]
                )
            row = _leased_row(connection, name, secret)
            if counts or pause or not again:
                attempt = min(max(row["fruitless"], 1), len(PAUSES))
                after = now + PAUSES[attempt - 1]
            _release(connection, row, reason, now, again, after)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that nobody else writes beside; all of it happens, or nothing."""
        with self._in_words(), closing(self._connect()) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that sees the file at one moment, whoever writes meanwhile."""
        with self._in_words(), closing(self._connect()) as connection:
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
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if version and application != _APPLICATION:
            raise StoreError(
                f"{self._path} is a database of something else; name another folder for the queue"
            )
        if version > VERSION:
            raise StoreError(
                f"the queue {self._path} has version {version}, and this Choicewise knows "
                f"{VERSION}; nothing of it was "
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
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(
                f"the disk of the queue {self._path} can't share it ({mode}); name a folder on "
                "another one"
            )
        problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise StoreError(_damaged(self._path, problem))

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Raise errors of SQLite as errors of ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._store_error(error) from error

    def _store_error(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreError(_damaged(self._path, str(error)))
        reason = ""
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            reason = "another process holds it; try again in a few seconds"
        elif code == sqlite3.SQLITE_FULL:
            reason = "its disk is full (nothing is lost); free some space and try again"
        if reason:
            return Busy(f"the queue {self._path.name} can't be written now: {reason}")
        return StoreError(
            f"the queue {self._path} can't be used: {error}; see that its folder can be written"
        )


def _leased_row(connection: sqlite3.Connection, name: str, secret: str) -> sqlite3.Row:
    """Return the row of a submission if ``secret`` is of the lease that counts, else raise
    LeaseLost.
    """
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM submissions WHERE id = ?", [name]
    ).fetchone()
    if row is None:
        raise NoSubmission(f"there is no submission {name}")
    if row["state"] != State.LEASED or not _same(row["lease"], secret):
        raise LeaseLost(
            f"the lease of {name} is lost: another worker has it, or it has ended; take the next "
            "one"
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
    """Let a submission wait until it may be leased ``after`` that time, or fail if it had too many
    attempts.
    """
    state = State.WAITING
    lease = ""
    until = after
    if not again or row["fruitless"] >= ATTEMPTS:
        state = State.FAILED
        lease = row["lease"]  # so that a worker that says the same twice is no error
        until = 0.0
        if again:
            reason = f"{reason} (after {row['attempts']} attempts)"
    connection.execute(
        "UPDATE submissions SET state = ?, reason = ?, changed = ?, lease = ?, until = ? "
        "WHERE id = ?",
        [state, reason[:_LONGEST], now, lease, until, row["id"]],
    )


def _get(connection: sqlite3.Connection, name: str, now: float) -> Submission:
    row = connection.execute(f"SELECT {_COLUMNS} FROM submissions WHERE id = ?", [name]).fetchone()
    if row is None:
        raise NoSubmission(f"there is no submission {name}")
    return _submission(row, now)


def _submission(row: sqlite3.Row, now: float) -> Submission:
    """Return the submission of a row; it waits if its lease has ended, though nobody leased it
    since.
    """
    state = State(row["state"])
    reason = row["reason"]
    if state is State.LEASED and row["until"] < now:
        state = State.WAITING
        reason = _unheard(row["worker"])
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


def _same(digest: str, secret: str) -> bool:
    return bool(digest) and secrets.compare_digest(digest, _digest(secret))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


VERSION = 2
"""The version of the tables; files of a later one are left alone."""

PATIENCE = 2.0
"""Seconds that a transaction waits for another process."""

_APPLICATION = 0x43485753
"""The mark in the head of the file that it is ours."""

_SETTINGS = (
    f"PRAGMA busy_timeout = {PATIENCE * 1000:.0f}",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
)
"""The settings of every connection: what was answered for is on the disk."""

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


def _damaged(path: Path, problem: str) -> str:
    return (
        f"the queue {path} is damaged ({problem}); move it elsewhere and start again: runs that "
        "are on the board stay "
        "there, and what still waited must be submitted again"
    )
