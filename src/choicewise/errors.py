"""Everything that is raised on purpose.

A message says what is wrong, where, and what to do next; everything that is wrong at once is listed at once.  The
command line prints it without a traceback and ends with the class's ``exit_code``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Self


def install_line(extra: str) -> str:
    """Return the command that installs Choicewise with ``extra`` (as in ``hf``), typed in its checkout."""
    constraints = "constraints.txt"
    if extra == "vllm":  # it excludes versions that all other extras are tested with
        constraints = "constraints-vllm.txt"
    return f"pip install --constraint {constraints} '.[{extra}]'"


class ChoicewiseError(Exception):
    """Base of every error a user is meant to read: a ``message``, and ``problems`` where it is about several.

    As text it is the message, and each problem on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message, tuple(problems))
        self.message, self.problems = message, tuple(problems)

    def __str__(self) -> str:
        return "\n  ".join((self.message, *self.problems))

    @property
    def parts(self) -> tuple[str, ...]:
        """Everything that is wrong, one by one."""
        return self.problems or (self.message,)

    @classmethod
    def of_problems(cls, problems: Sequence[str]) -> Self:
        """The error about all of ``problems``, of which there is at least one."""
        if len(problems) == 1:
            return cls(problems[0])
        return cls(f"{len(problems)} things are wrong", problems)

    def within(self, where: str) -> Self:
        """The same error, saying first where."""
        return type(self)(f"{where}: {self.message}", self.problems)


class UsageError(ChoicewiseError):
    """The command line or a call asks for something that does not exist."""

    exit_code = 2


class DataError(ChoicewiseError):
    """A question, a split or a file of them can't be used as it is."""

    exit_code = 3


class MissingData(DataError):
    """The questions of ``benchmarks`` are nowhere on this machine and can't be fetched now."""

    def __init__(
        self, message: str = "", problems: Sequence[str] = (), benchmarks: Sequence[str] = ()
    ) -> None:
        super().__init__(message, problems)
        self.benchmarks = tuple(benchmarks)

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\n  with network: `choicewise fetch {' '.join(self.benchmarks)}`"
        )

    def within(self, where: str) -> Self:
        """The same error, saying first where."""
        return type(self)(f"{where}: {self.message}", self.problems, self.benchmarks)


class UnknownShape(DataError):
    """Columns that can't be read as they are; its ``problems`` are the lines of a mapping in TOML that may fit them."""


class UnusableRow(DataError):
    """Why one row can't become an item; the reader adds the file and the row."""


class NoAnswer(UnusableRow):
    """A row whose answer is not published: the cell is missing, null, empty or -1."""


class ProtocolError(ChoicewiseError):
    """A protocol file, name or signature is not a protocol."""

    exit_code = 4


class ModelError(ChoicewiseError):
    """A model or its tokenizer can't be loaded or can't answer as asked."""

    exit_code = 5


class MachinesLost(ModelError):
    """The machines are the reason that nothing is answered, or the model is too much for them."""


class StoreError(ChoicewiseError):
    """A run folder is foreign, damaged, newer than this version or can't be written."""

    exit_code = 6


def near_names(name: str, known: Collection[str]) -> list[str]:
    """Return up to three of the ``known`` names for which ``name`` may be a slip."""
    return get_close_matches(name, known, n=3, cutoff=0.65)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown ``name``: the nearest of the ``known`` names, or the first ten of them."""
    if near := near_names(name, known):
        return f"did you mean {' or '.join(near)}?"
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    return f"known are {', '.join(list(known)[:10]) or 'none'}{more}"
