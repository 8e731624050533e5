"""Compute one shard of the runs of a model, in a process of this machine or in a task of Ray."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic

from choicewise import __version__, errors
from choicewise.errors import ChoicewiseError, MissingData, UsageError
from choicewise.extensions.run.sweep import Audience, evaluate_runs
from choicewise.ports import ModelRuns
from choicewise.running.job import job_of
from choicewise.util.files import write_text
from choicewise.util.isolate import Record
from choicewise.util.jsonio import JsonMapping, exact_json, read_json

BEAT = 0.5
"""Seconds between two reports of a shard."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Describe the work of one process, so that JSON can carry it.

    ``number`` of ``of``: the shard, from 1 on.  ``job``: its table.  ``folders``: the run folder of
    every dataset, absolute.  ``state``: the file of :class:`State`, in a folder that is there.
    ``go_on`` and ``command``: as in :class:`choicewise.ports.ModelRuns`.
    """

    number: int
    of: int
    job: JsonMapping
    folders: Mapping[str, str]
    state: str
    go_on: bool
    command: list[str]
    version: str = __version__

    def __str__(self) -> str:
        return f"shard {self.number}/{self.of}"


@dataclass
class State:
    """Hold what a shard reports while it computes: ``share`` done, lines and warnings."""

    share: float = 0.0
    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> State:
        """Read the file at ``path``; a shard that has not begun has done nothing."""
        try:
            return cls(**read_json(path.read_bytes()))
        except FileNotFoundError:
            return cls()


class _Reporter:
    """Write the state of a shard for the command that waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = State()
        self._written = monotonic()

    def progress(self, done: int, total: int) -> None:
        """Note the work done, and write it now and then."""
        self._state.share = done / max(total, 1)
        if monotonic() - self._written >= BEAT:
            self.write()

    def say(self, line: str) -> None:
        """Report a line."""
        self._state.lines.append(line)
        self.write()

    def warn(self, message: Warning | str, *_: object, **__: object) -> None:
        """Report a warning, in place of printing it."""
        self._state.warnings.append(str(message))
        self.write()

    def write(self) -> None:
        """Replace the file in one step."""
        write_text(self._path, exact_json(asdict(self._state)))
        self._written = monotonic()


def compute_part(part: Part) -> Record:
    """Compute a shard, and return ``failures`` by dataset, or the ``error`` that ended it."""
    try:
        return {"failures": _compute(part)}
    except ChoicewiseError as error:
        record: Record = {
            "kind": type(error).__name__,
            "message": error.message,
            "problems": list(error.problems),
        }
        if isinstance(error, MissingData):
            record["benchmarks"] = list(error.benchmarks)
        return {"error": record}


def error_of(record: JsonMapping) -> ChoicewiseError:
    """Return the error that :func:`compute_part` has put into ``record``."""
    arguments = dict(record)
    kind: type[ChoicewiseError] = getattr(errors, arguments.pop("kind"), ChoicewiseError)
    return kind(**arguments)


def _compute(part: Part) -> dict[str, str]:
    state = Path(part.state)
    if not state.parent.is_dir():
        raise UsageError(
            f"{platform.node()} does not see {state.parent}; put the run folder on a disk that all "
            "nodes share"
        )
    if part.version != __version__:
        raise UsageError(
            f"{platform.node()} has Choicewise {__version__}, and this machine {part.version}; "
            "install the same version on every node"
        )
    table = dict(part.job)
    if part.of > 1:
        table["shard"] = f"{part.number}/{part.of}"
    runs = ModelRuns(
        job=job_of(table),
        folders={dataset: Path(folder) for dataset, folder in part.folders.items()},
        scratch=state.parent,
        go_on=part.go_on,
        command=part.command,
    )
    reporter = _Reporter(state)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = reporter.warn
        failures = evaluate_runs(runs, Audience(progress=reporter.progress, say=reporter.say))
    reporter.write()
    return failures
