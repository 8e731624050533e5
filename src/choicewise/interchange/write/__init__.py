"""Formats of other tools that results can be written in: a file each, read when it is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from choicewise.errors import UsageError, did_you_mean
from choicewise.interchange.place import Place, own_folder

if TYPE_CHECKING:
    from choicewise.records.sweep import Sweep
    from choicewise.results.run import Run


@dataclass(frozen=True)
class Export:
    """What is exported: ``runs``, whose numbers are read one run at a time and released by the format that reads them.

    ``sweeps``: the folders of several runs among what was named, for the averages of their suites.  ``url``: where the
    evaluation can be looked at; ``organization``: who evaluated; both may be empty.
    """

    runs: tuple["Run", ...]
    sweeps: tuple[tuple[Path, "Sweep"], ...] = ()
    url: str = ""
    organization: str = ""


@dataclass(frozen=True, slots=True)
class Writer:
    """A format.  ``about``: who reads it, in a line.

    ``write`` fills the path that it is given, a new folder or a new file by ``place``, and returns what of the export
    the format has no place for, a line each with the reason.
    """

    about: str
    write: Callable[[Export, Path], Sequence[str]]
    place: Place = own_folder


WRITERS: dict[str, str] = {
    "harness": "harness:WRITER",
    "every-eval-ever": "every_eval_ever:WRITER",
    "eval-results": "eval_results:WRITER",
    "csv": "row_table:CSV",
    "parquet": "row_table:PARQUET",
    "markdown": "markdown:WRITER",
    "latex": "latex:WRITER",
    "scores-csv": "item_scores:CSV",
    "scores-parquet": "item_scores:PARQUET",
    "items-csv": "item_table:CSV",
    "items-parquet": "item_table:PARQUET",
    "inspect": "inspect_log:WRITER",
    "wandb": "wandb:WRITER",
    "mlflow": "mlflow:WRITER",
}
"""Name → the module in this room and the name of the :class:`Writer` there."""


def library(name: str, extra: str) -> None:
    """Check that another tool's library is there.  Raises UsageError with the line that installs it."""
    if find_spec(name) is None:
        raise UsageError(f"{name} is not installed; `pip install 'choicewise[{extra}]'`")


def writer(name: str) -> Writer:
    """The format of that name; its module is imported now.  Raises UsageError for a name that nobody knows."""
    if name not in WRITERS:
        raise UsageError(f"no format {name!r}; {did_you_mean(name, WRITERS)}")
    module, _, attribute = WRITERS[name].partition(":")
    value: Writer = getattr(import_module(f"{__name__}.{module}"), attribute)
    return value
