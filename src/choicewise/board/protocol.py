"""Where submissions are taken, handed to workers, and put on the board: everything that HTTP asks for, without HTTP."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import IO, Any

from choicewise.board.examination import Examination, examined
from choicewise.board.queue import SECONDS, Lease, Queue
from choicewise.board.submission import (
    DiskFull,
    Lacking,
    LeaseLost,
    NotAllowed,
    Policy,
    Submission,
    TooMuch,
    Wanted,
    WrongPart,
    refusal,
)
from choicewise.errors import ChoicewiseError, StoreError
from choicewise.records import BLOCK_FOLDER, ITEM_FILE, MANIFEST, SWEEP
from choicewise.running.sources import folder_name
from choicewise.store.tables import SCHEMAS
from choicewise.util.files import copy_of, disk_errors, remove, sync

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


FOLDER = "submitted"
"""Of all that came from workers, in the folder of the board."""


def name_of(submission: Submission) -> str:
    """The folder of a submission's runs, which no other submission has: the id is in it."""
    return f"{folder_name(submission.wanted.name)[:80].rstrip('-.')}-{submission.id}"


def check_place(board: Path) -> None:
    """Raise StoreError where the folder of the board can't take runs, or would put them elsewhere."""
    place = board / FOLDER
    if place.is_symlink():
        raise StoreError(f"{place} is a link, and runs that are sent must not lie elsewhere; put a folder there")
    if os.path.lexists(place) and not place.is_dir():
        raise StoreError(f"{place} is no folder; move it away, as the runs of workers go there")
    if not os.access(board, os.W_OK | os.X_OK):
        raise StoreError(f"{board} can't be written, and the runs of workers go there; make it writable")


def assemble(submission: Submission, files: Mapping[str, str], parts: Parts, board: Path) -> tuple[str, Examination]:
    """Make the runs of a submission from its parts: examined first, then in the folder of the board in one step.

    Returns the folder, relative to the board's, and what is there.  Raises Damaged, and StoreError where the disk does
    not take it.
    """
    check_place(board)
    name = name_of(submission)
    place, made = board / FOLDER / name, board / FOLDER / f".{submission.id}"  # nobody looks for runs in the latter
    with disk_errors(place):
        remove(made)
        made.mkdir(parents=True)
        try:
            for path, sha256 in checked_listing(files).items():
                _put(parts.path(sha256), made / path)
            examination = examined(made)
            for folder, _, _ in os.walk(made, topdown=False):
                sync(Path(folder))
            remove(place)  # it is this submission's: an earlier try was ended before the queue knew of it
            made.rename(place)
            sync(place.parent)
        except BaseException:
            with suppress(OSError):
                shutil.rmtree(made)
            raise
    return f"{FOLDER}/{name}", examination


def _put(part: Path, path: Path) -> None:
    """The part under its name; its content once on the disk, where that can be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(part, path, follow_symlinks=False)
    except OSError:
        shutil.copyfile(part, path, follow_symlinks=False)
        sync(path)
    path.chmod(0o644)


LARGEST = 512_000_000
"""Bytes of a part."""

LEFT = 24 * 3600.0
"""Seconds after which what was never finished, or never listed, is removed."""

_NAME = re.compile(r"[0-9a-f]{64}", re.ASCII)
_UNFINISHED = ".partial"


class Parts:
    """The parts in ``folder``, in folders by the first two digits of their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, sha256: str) -> Path:
        """Where the part lies or would lie.  WrongPart for what is no sha256."""
        if not _NAME.fullmatch(sha256):
            raise WrongPart("a part is named by the sha256 of its content: 64 digits of 0-9 and a-f")
        return self._folder / sha256[:2] / sha256

    def has(self, sha256: str) -> bool:
        """Whether the part is here."""
        return self.path(sha256).is_file()

    def begin(self, sha256: str) -> Arriving:
        """A part that is about to come."""
        return Arriving(self.path(sha256))

    def lacking(self, sums: Iterable[str]) -> tuple[str, ...]:
        """Those that are not here, each once."""
        return tuple(dict.fromkeys(each for each in sums if not self.has(each)))

    def remove(self, sums: Iterable[str]) -> None:
        """Forget these."""
        for each in sums:
            with suppress(OSError):
                self.path(each).unlink()

    def old(self) -> set[str]:
        """The parts that came so long ago that they are listed by now; what was never finished is removed."""
        before, names = time.time() - LEFT, set()
        for path in self._folder.glob("[0-9a-f][0-9a-f]/*"):
            with suppress(OSError):
                if path.lstat().st_mtime >= before:
                    continue
                if _NAME.fullmatch(path.name):
                    names.add(path.name)
                elif path.name.endswith(_UNFINISHED):
                    path.unlink()
        return names


class Arriving:
    """A part that comes in pieces, in a file of its own until it is whole; to be ended, or dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_UNFINISHED}")
        self._sum, self._size = hashlib.sha256(), 0
        self._file: IO[bytes] | None = None

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._size

    def add(self, piece: bytes) -> None:
        """Take a piece.  TooMuch for a part that is too large, DiskFull where there is no room for it."""
        self._size += len(piece)
        if self._size > LARGEST:
            raise TooMuch(f"a part may have {LARGEST:,} bytes; make smaller blocks")
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._file = self._partial.open("xb")
            self._file.write(piece)
        except OSError as error:
            raise _no_room(error) from error
        self._sum.update(piece)

    def end(self) -> None:
        """Put the whole part into its place.  WrongPart where its content has another sha256 than its name."""
        if self._sum.hexdigest() != self._path.name:
            raise WrongPart(f"the content has the sha256 {self._sum.hexdigest()}, not {self._path.name}; send it again")
        if self._file is None:
            self.add(b"")
        assert self._file is not None
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._partial.replace(self._path)
            sync(self._path.parent)
        except OSError as error:
            raise _no_room(error) from error

    def drop(self) -> None:
        """Remove what came of it; nothing where it was ended."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)


def _no_room(error: OSError) -> StoreError:
    words = f"the board can't keep the part: {error.strerror}"
    return DiskFull(f"{words}; free some space on its disk, then the part can be sent again")


MOST = 40_000
"""Files of a submission."""

_SUM = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FOLDER = re.compile(r"(?!.*\.partial$)[A-Za-z0-9_@+][A-Za-z0-9_.@+-]{0,119}", re.ASCII)
_BLOCK = re.compile(r"[0-9]{1,9}", re.ASCII)
_TOP = frozenset({SWEEP, copy_of(Path(SWEEP)).name})
_RUN = frozenset({MANIFEST, copy_of(Path(MANIFEST)).name, ITEM_FILE})
"""Of a run, without its summary: the board computes that itself."""

_TABLES = frozenset(f"{table}.parquet" for table in SCHEMAS)


def checked_listing(files: object) -> dict[str, str]:
    """The listing as it came (path → sha256) where all of it can be of a sweep of one model.

    Raises WrongPart, naming the first path that can't be, and TooMuch.
    """
    if not isinstance(files, Mapping):
        raise WrongPart('"files" must be an object of paths and their sha256')
    if len(files) > MOST:
        raise TooMuch(f"{len(files):,} files are listed; a submission may have {MOST:,}")
    folders = set()
    for path, sha256 in files.items():
        if not isinstance(sha256, str) or not _SUM.fullmatch(sha256):
            raise WrongPart(f"{path[:200]!r} is listed without a sha256 of 64 digits")
        if not is_known(path):
            raise WrongPart(f"{path[:200]!r} is no file of a sweep or its runs; list those alone")
        folders.add(path.split("/")[0] if "/" in path else "")
    if len({path.casefold() for path in files}) < len(files):
        raise WrongPart("two listed paths differ in their case alone; name folders apart")
    if len(folders - {""}) > 1:
        raise WrongPart("the listing has folders of several models; a submission is about one")
    return dict(files)


def is_known(path: str) -> bool:
    """Whether a sweep has such a file: ``sweep.json``, or a file of a run in ``MODEL/DATASET``."""
    match path.split("/"):
        case [name]:
            return name in _TOP
        case [model, data, name]:
            return _is_folder(model) and _is_folder(data) and name in _RUN
        case [model, data, folder, block, name]:
            known = folder == BLOCK_FOLDER and _BLOCK.fullmatch(block) is not None and name in _TABLES
            return known and _is_folder(model) and _is_folder(data)
    return False


def _is_folder(name: str) -> bool:
    return _FOLDER.fullmatch(name) is not None
