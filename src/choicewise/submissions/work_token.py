"""The token that a worker shows to a board, from a file or from the environment; never from a command line."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from choicewise.errors import UsageError

VARIABLE: Final = "CHOICEWISE_WORK_TOKEN"


def read_work_token(file: Path | None, say: Callable[[str], None]) -> str:
    """The token in ``file``, else in the environment; ``say`` hears of a file that others on this machine can read.

    Raises UsageError, which does not tell the token, where there is none or it is no line of plain characters.
    """
    if file is None:
        token, where = os.environ.get(VARIABLE, "").strip(), f"the variable {VARIABLE}"
        if not token:
            raise UsageError(
                f"a worker needs the board's work token: name the file with it, or set {VARIABLE};"
                " `choicewise serve` says where it wrote the file"
            )
    else:
        where = str(file)
        try:
            token = file.read_text(encoding="utf-8").strip()
            mode = file.stat().st_mode
        except OSError as error:
            raise UsageError(f"{file} can't be read: {error.strerror}; name the file with the work token") from error
        except ValueError as error:
            raise UsageError(f"{file} is no text; name the file with the work token") from error
        if mode & (stat.S_IRGRP | stat.S_IROTH):
            say(f"note: others on this machine can read {file}; run `chmod 600 {shlex.quote(str(file))}`")
    if not token:
        raise UsageError(f"{where} is empty; it must hold the board's work token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"the token in {where} must be one line of letters, digits and signs, without spaces")
    return token
