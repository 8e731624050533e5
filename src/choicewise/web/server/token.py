"""Tokens, as the one that readers of a board need: from a file or from the environment; never from a command line."""

import os
from pathlib import Path

from choicewise.errors import UsageError
from choicewise.web.server.access import SHORTEST

VARIABLE = "CHOICEWISE_TOKEN"


def read_token(file: Path | None, variable: str = VARIABLE) -> str | None:
    """The token in ``file``, else in the environment's ``variable``; None where there is none.

    Raises UsageError for a file that can't be read, and for a token that is too short or no line of plain characters.
    Its message does not tell the token.
    """
    if file is None:
        token, where = os.environ.get(variable), f"the variable {variable}"
    else:
        where = str(file)
        try:
            token = file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UsageError(f"{file} can't be read: {error.strerror}") from error
        except ValueError as error:
            raise UsageError(f"{file} is no text") from error
    if token is None:
        return None
    if len(token) < SHORTEST:
        raise UsageError(f"the token in {where} has {len(token)} characters; take {SHORTEST} or more")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"the token in {where} must be one line of letters, digits and signs, without spaces")
    return token
