"""The errors that are raised on purpose.

A message says what is wrong, where, and what to do next; all faults are listed at once.  The
command line prints it without a traceback and ends with the class's ``exit_code``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Self


def install_line(extra: str) -> str:
    """Return the command that installs Choicewise with ``extra`` (as in ``hf``), typed in its
    checkout.
    """
    constraints = "constraints.txt"
    if extra == "vllm":  # it excludes versions that all other extras are tested with
        constraints = "constraints-vllm.txt"
    return f"pip install --constraint {constraints} '.[{extra}]'"


class ChoicewiseError(Exception):
    """Tell a user what is wrong: a ``message``, and ``problems`` if there are several.

    As text it is the message, followed by a line for each problem.
    """

    exit_code = 1

    def __init__(self, message: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message, tuple(problems))
        self.message = message
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n  ".join((self.message, *self.problems))

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the problems, or the message if there are none."""
        return self.problems or (self.message,)

    @classmethod
    def of_problems(cls, problems: Sequence[str]) -> Self:
        """Make one error of ``problems``, of which there is at least one."""
        if len(problems) == 1:
            return cls(problems[0])
        return cls(f"{len(problems)} things are wrong", problems)

    def within(self, where: str) -> Self:
        """Return the error with ``where`` before its message."""
        return type(self)(f"{where}: {self.message}", self.problems)


class UsageError(ChoicewiseError):
    """Report that a command or a call names something that does not exist."""

    exit_code = 2


class DataError(ChoicewiseError):
    """Report an item, a split or a file that can't be used."""

    exit_code = 3


class MissingData(DataError):
    """Report that the items of ``benchmarks`` are not on this machine and can't be fetched."""

    def __init__(
        self, message: str = "", problems: Sequence[str] = (), benchmarks: Sequence[str] = ()
    ) -> None:
        super().__init__(message, problems)
        self.benchmarks = tuple(benchmarks)

    def __str__(self) -> str:
        names = " ".join(self.benchmarks)
        return f"{super().__str__()}\n  with network: `choicewise fetch {names}`"

    def within(self, where: str) -> Self:
        """Return the error with ``where`` before its message."""
        return type(self)(f"{where}: {self.message}", self.problems, self.benchmarks)


class UnknownShape(DataError):
    """Report unknown columns; ``problems`` are the lines of a TOML mapping that may fit them."""


class UnfitRow(UnknownShape):
    """Report unknown columns with a mapping that may be right, but does not fit a row."""


class UnusableRow(DataError):
    """Report a row that can't become an item; the reader adds the file and the row."""


class NoAnswer(UnusableRow):
    """Report a row without a published answer: the cell is missing, null, empty or -1."""


class ProtocolError(ChoicewiseError):
    """Report a file, name or signature that is no protocol."""

    exit_code = 4


class ModelError(ChoicewiseError):
    """Report a model or tokenizer that can't be loaded, or can't answer a prompt."""

    exit_code = 5


class NoProtocol(ModelError):
    """Report that a model supports none of the protocols.

    ``instead``: options of a run that it supports, such as ``{"protocol": NAME}``, or none.
    """

    def __init__(
        self,
        message: str = "",
        problems: Sequence[str] = (),
        instead: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, problems)
        self.instead = dict(instead or {})

    def within(self, where: str) -> Self:
        """Return the error with ``where`` before its message."""
        return type(self)(f"{where}: {self.message}", self.problems, self.instead)


class MachinesLost(ModelError):
    """Report machines that are lost, or too small for the model."""


class StoreError(ChoicewiseError):
    """Report a run folder that is foreign, damaged, too new, or can't be written."""

    exit_code = 6


def not_applicable(options: Sequence[str], target: str) -> str:
    """Return a message: ``options`` do not apply to ``target`` and are to be left out."""
    names = " and ".join(options)
    verb = "does" if len(options) == 1 else "do"
    return f"{names} {verb} not apply to {target}; leave {names} out"


def first_lines(lines: Sequence[str], most: int) -> list[str]:
    """Return at most ``most`` of ``lines`` for an error, and a line that counts the others."""
    if len(lines) <= most:
        return list(lines)
    return [*lines[:most], f"and {len(lines) - most} more"]


def near_names(name: str, names: Collection[str]) -> list[str]:
    """Return up to three of ``names`` for which ``name`` may be a slip."""
    return get_close_matches(name, names, n=3, cutoff=0.65)


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Return the end of a message about an unknown ``name``: the nearest of ``names``, or ten."""
    near = near_names(name, names)
    if near:
        return f"did you mean {' or '.join(near)}?"
    others = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"available: {', '.join(list(names)[:10]) or 'none'}{others}"
