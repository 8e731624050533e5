"""The files that workers sent, each named by the sha256 of its content."""

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from choicewise.errors import StoreError
from choicewise.store.atomic import sync
from choicewise.submissions.trouble import DiskFull, TooMuch, WrongPart

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

    def begin(self, sha256: str) -> "Arriving":
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
