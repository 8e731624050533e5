"""Everything Choicewise raises on purpose.

A message says what is wrong, where, and what to do next; the command line prints it without a traceback and ends with
the class's ``exit_code``.
"""

from collections.abc import Collection
from difflib import get_close_matches


class ChoicewiseError(Exception):
    """Base of every error a user is meant to read."""

    exit_code = 1


class UsageError(ChoicewiseError):
    """The command line or a call asks for something that does not exist."""

    exit_code = 2


class DataError(ChoicewiseError):
    """A question, a split or a file of them can't be used as it is."""

    exit_code = 3


class ProtocolError(ChoicewiseError):
    """A protocol file, name or signature is not a protocol."""

    exit_code = 4


class ModelError(ChoicewiseError):
    """A model or its tokenizer can't be loaded or can't answer as asked."""

    exit_code = 5


class StoreError(ChoicewiseError):
    """A run folder is foreign, damaged, newer than this version or can't be written."""

    exit_code = 6


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown ``name``: the nearest of the ``known`` names, or the first ten of them."""
    if near := get_close_matches(name, known, n=3, cutoff=0.65):
        return f"did you mean {' or '.join(near)}?"
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    return f"known are {', '.join(list(known)[:10]) or 'none'}{more}"
