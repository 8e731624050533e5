"""The file of the queue: opened, checked, and used in transactions.  With the queue the only file that knows of SQLite.

A run folder is plain files, which a copy or a kill leaves whole.  A queue has several writers at once and must not lose
what it answered for, which is what a database in WAL mode is made for; nothing that was measured lies in it.
"""

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock

from choicewise.errors import StoreError
from choicewise.store.atomic import disk_errors
from choicewise.submissions.trouble import Busy

VERSION = 1
"""Of the tables; files of a later one are left alone."""

PATIENCE = 2.0
"""Seconds that a transaction waits for another process."""

_APPLICATION = 0x43485753
"""Says in the head of the file that it is ours."""

_SETTINGS = (f"PRAGMA busy_timeout = {PATIENCE * 1000:.0f}", "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON")
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
    sent INTEGER NOT NULL DEFAULT 0,
    lease TEXT NOT NULL DEFAULT '',
    until REAL NOT NULL DEFAULT 0,
    folder TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX once ON submissions (model, revision, dtype) WHERE state NOT IN ('failed', 'refused');
CREATE INDEX next ON submissions (state, number);
CREATE TABLE files (
    submission TEXT NOT NULL REFERENCES submissions (id),
    path TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    PRIMARY KEY (submission, path)
);
CREATE INDEX parts ON files (sha256);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {VERSION};
"""


class Database:
    """The tables in the file ``path``, made where it is new.

    Raises StoreError where the file is damaged, foreign or of a later version, before anything in it changes, and Busy
    where another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        _check_head(path)
        with self._told():
            self._kept = self._connect()  # so that the log is not folded in after every transaction
            try:
                self._check()
            except BaseException:
                self._kept.close()
                raise

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else writes beside; all of it happens, or nothing."""
        with self._told(), closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:
                    connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """What the file holds at one moment, whoever writes meanwhile."""
        with self._told(), closing(self._connect()) as connection:
            connection.execute("BEGIN")
            yield connection

    def version(self) -> int:
        """A number that is another one after every change, whoever made it."""
        with self._told(), self._lock:
            return int(self._kept.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        self._kept.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        for setting in _SETTINGS:
            connection.execute(setting)
        return connection

    def _check(self) -> None:
        kept = self._kept
        with disk_errors(self._path):
            self._path.chmod(0o600)
        version = kept.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise StoreError(_newer(self._path, version))
        if not version:
            # A second server that begins at the same time waits here, and then sees the tables.
            kept.execute("BEGIN IMMEDIATE")
            if not kept.execute("PRAGMA user_version").fetchone()[0]:
                for statement in _TABLES.split(";\n"):
                    kept.execute(statement)
            kept.execute("COMMIT")
        if (mode := kept.execute("PRAGMA journal_mode = WAL").fetchone()[0]) != "wal":
            raise StoreError(
                f"the disk of the queue {self._path} can't share it ({mode}); name a folder on another one"
            )
        if (told := kept.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
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
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            words = "another process holds it; ask again in some seconds"
            return Busy(f"the queue {self._path.name} can't be written now: {words}")
        if code == sqlite3.SQLITE_FULL:
            words = "its disk is full; what it holds is safe: free some space there and ask again"
            return Busy(f"the queue {self._path.name} can't be written now: {words}")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreError(_damaged(self._path, str(error)))
        return StoreError(f"the queue {self._path} can't be used: {error}; see that its folder can be written")


def _check_head(path: Path) -> None:
    """Look at the file without opening it as a database, which would change it."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"the queue {path} can't be read: {error.strerror}; make it readable") from error
    if not head:
        return
    if len(head) < 100 or head[:16] != b"SQLite format 3\0":
        raise StoreError(_damaged(path, "it is no database"))
    (version,), (application,) = struct.unpack(">i", head[60:64]), struct.unpack(">I", head[68:72])
    if version and application != _APPLICATION:
        raise StoreError(f"{path} is a database of something else; name another folder for the queue")
    if version > VERSION:
        raise StoreError(_newer(path, version))


def _newer(path: Path, version: int) -> str:
    return (
        f"the queue {path} has version {version}, and this Choicewise knows {VERSION}; nothing of it was changed: "
        "upgrade Choicewise, or name another folder for the queue"
    )


def _damaged(path: Path, told: str) -> str:
    return (
        f"the queue {path} is damaged ({told}); move it elsewhere and start again: runs that are on the board stay "
        "there, and what still waited must be submitted again"
    )
