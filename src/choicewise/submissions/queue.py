"""The queue of a board: what was submitted, who evaluates it, and what of it was sent.

Every change is one transaction, so that no submission is lost, and none is with two workers.  Whoever leases one gets a
secret, of which the queue keeps the sha256 alone.  Time is that of the board's clock.
"""

import hashlib
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from choicewise.submissions.database import Database
from choicewise.submissions.submission import State, Submission, Wanted
from choicewise.submissions.trouble import Busy, LeaseLost, NoSubmission

SECONDS = 60.0
"""How long a lease holds unless it is renewed."""

FINISHING = 900.0
"""The same while what was sent is examined."""

SHOWN = 5.0
"""Seconds after which a lease that has ended shows at the latest."""

ATTEMPTS = 3
"""How often a submission is taken without anything new being sent, before it has failed."""

PAUSES = (60.0, 600.0)
"""Seconds before what a worker gave back is leased again: after the first time in a row, and after each further one."""

MOST = 10_000
"""Submissions that wait."""

_LONGEST = 2000
"""Characters of a reason."""

_COLUMNS = "id, model, revision, dtype, state, reason, submitted, changed, worker, done, total, attempts, folder, until"


@dataclass(frozen=True, slots=True)
class Lease:
    """A submission for one worker, who says ``secret`` with everything about it, and ``files`` that others sent."""

    submission: Submission
    secret: str
    files: Mapping[str, str]


class Queue:
    """The queue in the file ``path``.  Threads and processes may use it at once.

    What raises Busy may be asked again.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._database, self._now = Database(path), now
        with self._database.write() as connection:  # whatever the clock said before, nothing lasts longer than that
            connection.execute(
                "UPDATE submissions SET until = min(until, CASE state WHEN 'waiting' THEN ? ELSE ? END)",
                [now() + PAUSES[-1], now() + SECONDS],
            )

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def submit(self, wanted: Wanted, refused: str = "") -> tuple[Submission, bool]:
        """The submission of what is ``wanted``, and whether it is new: what is under way or done is not done again.

        ``refused``: why it is only listed, and no worker gets it.
        """
        with self._database.write() as connection:
            fields = [wanted.model, wanted.revision, wanted.dtype]
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM submissions WHERE model = ? AND revision = ? AND dtype = ? "
                "AND (state NOT IN ('failed', 'refused') OR (state = 'refused' AND reason = ?)) "
                "ORDER BY number DESC LIMIT 1",
                [*fields, refused],
            ).fetchone()
            if row is not None:
                return _submission(row, self._now()), False
            waiting = connection.execute("SELECT count(*) FROM submissions WHERE state = 'waiting'").fetchone()[0]
            if waiting >= MOST:
                raise Busy(f"{waiting:,} submissions wait already; ask again when workers have taken some")
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
        with self._database.read() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM submissions ORDER BY number DESC LIMIT ?", [most])
            return [_submission(row, self._now()) for row in rows]

    def version(self) -> tuple[int, int]:
        """What differs where anything that is shown may; leases that end show within some seconds."""
        return self._database.version(), int(self._now() / SHOWN)

    def counts(self) -> dict[State, int]:
        """How many submissions are in each state, in the order of the states."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT state, count(*) FROM submissions GROUP BY state").fetchall()
            counted = dict(rows)
            return {state: counted[state] for state in State if state in counted}

    def get(self, name: str) -> Submission:
        """The submission of that id; NoSubmission where there is none."""
        with self._database.read() as connection:
            return _get(connection, name, self._now())

    def files(self, name: str) -> dict[str, str]:
        """The sha256 of what was sent and listed for a submission, by path."""
        with self._database.read() as connection:
            return _files(connection, name)

    def lease(self, worker: str) -> Lease | None:
        """The submission that waits the longest, for ``worker`` alone; None where nothing waits.

        Those whose worker did not renew its lease wait again, or have failed where that happens again and again.  What
        was given back is not leased for a while (:data:`PAUSES`): its reason may pass, or another worker come.
        """
        with self._database.read() as connection:  # most of the time nothing waits, and nobody has to be kept out
            now = self._now()
            if not connection.execute(
                "SELECT 1 FROM submissions WHERE state IN ('waiting', 'leased') AND (until <= ? OR until > ?) LIMIT 1",
                [now, now + FINISHING],
            ).fetchone():
                return None
        with self._database.write() as connection:
            now = self._now()
            self._free(connection, now)
            row = connection.execute(
                "SELECT id FROM submissions WHERE state = 'waiting' AND until <= ? ORDER BY number LIMIT 1", [now]
            ).fetchone()
            if row is None:
                return None
            secret = secrets.token_urlsafe(24)
            connection.execute(
                "UPDATE submissions SET state = 'leased', reason = '', worker = ?, lease = ?, until = ?, changed = ?, "
                "done = 0, total = 0, attempts = attempts + 1, fruitless = fruitless + 1 WHERE id = ?",
                [worker, _digest(secret), now + SECONDS, now, row["id"]],
            )
            return Lease(_get(connection, row["id"], now), secret, _files(connection, row["id"]))

    def renew(self, name: str, secret: str, done: int, total: int) -> None:
        """Keep a lease, and say how far the work is.  LeaseLost where it is no more."""
        with self._database.write() as connection:
            self._held(connection, name, secret)
            connection.execute(
                "UPDATE submissions SET until = max(until, ?), done = ?, total = ? WHERE id = ?",
                [self._now() + SECONDS, done, total, name],
            )

    def check(self, name: str, secret: str) -> None:
        """LeaseLost where the lease is no more."""
        with self._database.read() as connection:
            self._held(connection, name, secret)

    def count_sent(self, name: str, secret: str, size: int) -> int:
        """Note that ``size`` bytes were sent; all that were, so far."""
        with self._database.write() as connection:
            self._held(connection, name, secret)
            connection.execute("UPDATE submissions SET sent = sent + ? WHERE id = ?", [size, name])
            return int(connection.execute("SELECT sent FROM submissions WHERE id = ?", [name]).fetchone()[0])

    def list_files(self, name: str, secret: str, files: Mapping[str, str]) -> None:
        """Let these be the files of the submission, by path, instead of what was listed before."""
        with self._database.write() as connection:
            self._held(connection, name, secret)
            before = set(_files(connection, name).values())
            connection.execute("DELETE FROM files WHERE submission = ?", [name])
            rows = [(name, path, sha256) for path, sha256 in files.items()]
            connection.executemany("INSERT INTO files VALUES (?, ?, ?)", rows)
            if set(files.values()) - before:  # the next worker that is lost has done something
                connection.execute("UPDATE submissions SET fruitless = 0 WHERE id = ?", [name])

    def begin_finish(self, name: str, secret: str) -> dict[str, str] | None:
        """The files to be made runs, while nobody else gets the submission; None where this lease has finished it."""
        with self._database.write() as connection:
            row = connection.execute("SELECT state, lease FROM submissions WHERE id = ?", [name]).fetchone()
            if row is not None and row["state"] == State.DONE and _same(row["lease"], secret):
                return None
            self._held(connection, name, secret)
            connection.execute("UPDATE submissions SET until = ? WHERE id = ?", [self._now() + FINISHING, name])
            return _files(connection, name)

    def give_up_finish(self, name: str, secret: str) -> None:
        """What was sent could not be made runs; the worker has its lease as before."""
        with self._database.write() as connection:
            self._held(connection, name, secret)
            connection.execute("UPDATE submissions SET until = ? WHERE id = ?", [self._now() + SECONDS, name])

    def finish(self, name: str, secret: str, folder: str, reason: str = "") -> None:
        """Its runs lie in ``folder``; ``reason`` says what of them is missing."""
        with self._database.write() as connection:
            self._held(connection, name, secret)
            connection.execute(
                "UPDATE submissions SET state = 'done', reason = ?, changed = ?, folder = ?, "
                "done = CASE WHEN total > 0 THEN total ELSE done END WHERE id = ?",
                [reason[:_LONGEST], self._now(), folder, name],
            )
            connection.execute("DELETE FROM files WHERE submission = ?", [name])

    def fail(self, name: str, secret: str, reason: str, again: bool, counts: bool = True) -> None:
        """The worker gives it back: ``again`` for another one to try, else because the model can't be evaluated.

        ``counts``: whether it was an attempt; a worker that somebody ended tried nothing in vain.
        """
        with self._database.write() as connection:
            row = connection.execute("SELECT * FROM submissions WHERE id = ?", [name]).fetchone()
            if row is not None and row["state"] == State.FAILED and _same(row["lease"], secret):
                return
            held, now = self._held(connection, name, secret), self._now()
            if again and not counts:
                connection.execute("UPDATE submissions SET fruitless = max(fruitless - 1, 0) WHERE id = ?", [name])
                _release(connection, self._held(connection, name, secret), reason, now, again)
            else:
                pause = PAUSES[min(max(held["fruitless"], 1), len(PAUSES)) - 1]
                _release(connection, held, reason, now, again, now + pause)

    def referred(self, parts: set[str]) -> set[str]:
        """Those of the ``parts`` (sha256) that a listing names."""
        with self._database.read() as connection:
            query = "SELECT 1 FROM files WHERE sha256 = ? LIMIT 1"
            return {part for part in parts if connection.execute(query, [part]).fetchone()}

    def _free(self, connection: sqlite3.Connection, now: float) -> None:
        """Take the submissions back from workers that did not renew their lease.

        What lasts longer than anything does was said before the clock was put back; it is counted from now.
        """
        connection.execute("UPDATE submissions SET until = ? WHERE until > ?", [now + SECONDS, now + FINISHING])
        lost = connection.execute("SELECT * FROM submissions WHERE state = 'leased' AND until < ?", [now]).fetchall()
        for row in lost:
            _release(connection, row, _unheard(row["worker"]), now, again=True)

    def _held(self, connection: sqlite3.Connection, name: str, secret: str) -> sqlite3.Row:
        """The row of a submission, where ``secret`` is of the lease that counts."""
        row: sqlite3.Row | None = connection.execute("SELECT * FROM submissions WHERE id = ?", [name]).fetchone()
        if row is None:
            raise NoSubmission(f"there is no submission {name}")
        if row["state"] != State.LEASED or not _same(row["lease"], secret):
            raise LeaseLost(f"the lease of {name} is lost: another worker has it, or it has ended; take the next one")
        return row


def _release(
    connection: sqlite3.Connection, row: sqlite3.Row, reason: str, now: float, again: bool, after: float = 0.0
) -> None:
    """Let it wait until it may be leased ``after`` that time; or fail."""
    ended = not again or row["fruitless"] >= ATTEMPTS
    words = f"{reason} (after {row['attempts']} attempts)" if again and ended else reason
    kept = (row["lease"], 0.0) if ended else ("", after)
    connection.execute(
        "UPDATE submissions SET state = ?, reason = ?, changed = ?, lease = ?, until = ? WHERE id = ?",
        [*((State.FAILED if ended else State.WAITING), words[:_LONGEST], now), *kept, row["id"]],
    )
    if ended:
        connection.execute("DELETE FROM files WHERE submission = ?", [row["id"]])


def _get(connection: sqlite3.Connection, name: str, now: float) -> Submission:
    row = connection.execute(f"SELECT {_COLUMNS} FROM submissions WHERE id = ?", [name]).fetchone()
    if row is None:
        raise NoSubmission(f"there is no submission {name}")
    return _submission(row, now)


def _files(connection: sqlite3.Connection, name: str) -> dict[str, str]:
    rows = connection.execute("SELECT path, sha256 FROM files WHERE submission = ? ORDER BY path", [name])
    return {row["path"]: row["sha256"] for row in rows}


def _submission(row: sqlite3.Row, now: float) -> Submission:
    """What the row says; who did not renew a lease has none, though nobody asked for the submission since."""
    state, reason = State(row["state"]), row["reason"]
    if state is State.LEASED and row["until"] < now:
        state, reason = State.WAITING, _unheard(row["worker"])
    wanted = Wanted(row["model"], row["revision"], row["dtype"])
    after = row["until"] if row["state"] == State.WAITING and row["until"] > now else 0.0
    about = row["worker"], row["done"], row["total"], row["attempts"], row["folder"]
    return Submission(row["id"], wanted, state, reason, row["submitted"], row["changed"], *about, after=after)


def _unheard(worker: str) -> str:
    return f"its worker {worker} was not heard of any more"


def _same(kept: str, secret: str) -> bool:
    return bool(kept) and secrets.compare_digest(kept, _digest(secret))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
