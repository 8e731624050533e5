"""The tokens of a board that evaluates: one for who submits, one for workers."""

import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from choicewise.errors import UsageError
from choicewise.store.atomic import disk_errors
from choicewise.web.server.access import same_token
from choicewise.web.server.token import read_token

SUBMIT = "CHOICEWISE_SUBMIT_TOKEN"
WORK = "CHOICEWISE_WORK_TOKEN"
"""The variables that hold them where no file does."""


@dataclass(frozen=True)
class Tokens:
    """``submit`` opens submitting, ``work`` the leases; neither is ever shown."""

    submit: str = field(repr=False)
    work: str = field(repr=False)

    def may_submit(self, given: str | None) -> bool:
        """Whether that is the token of who submits."""
        return same_token(given, self.submit)

    def may_work(self, given: str | None) -> bool:
        """Whether that is the token of workers."""
        return same_token(given, self.work)

    def may_follow(self, given: str | None) -> bool:
        """Whether that is one of the two, which see what becomes of submissions."""
        return self.may_submit(given) | self.may_work(given)


def kept_token(file: Path) -> tuple[str, bool]:
    """The token in ``file``, a random one that is written there where there is none, and whether it is new.

    Only whoever runs the board can read the file.  Raises UsageError for a file that others can read.
    """
    if os.path.lexists(file):
        about = file.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077:
            raise UsageError(f"{file} can be read or replaced by others; delete it, and a new token is made")
        token = read_token(file)
        assert token is not None
        return token, False
    token = secrets.token_urlsafe(24)
    with disk_errors(file):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as opened:
            opened.write(f"{token}\n")
    return token, True
