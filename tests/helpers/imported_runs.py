"""The logs of tests/goldens/logs under the names of their tools, logs that tests write, and runs that they become."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from choicewise import Run, import_log
from tests.paths import GOLDENS

Rows = list[dict[str, Any]]


def write_lines(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def write_csv(path: Path, rows: Rows) -> Path:
    cells = [
        [*rows[0]],
        *(["" if value is None else str(value) for value in row.values()] for row in rows),
    ]
    path.write_text("".join(",".join(row) + "\n" for row in cells), encoding="utf-8")
    return path


def one_run(path: Path, out: Path, **named: Any) -> Run:
    """The only run that the log at ``path`` becomes."""
    (run,) = import_log(path, out, **named)
    return run


def values(run: Run) -> dict[str, tuple[float | None, int, int]]:
    """(value, n, missing) by the part of the protocol's name after the task."""
    numbers = {}
    for name, measured in run.measurements.items():
        n = int(np.isfinite(measured.credit).sum())
        numbers[name.rpartition(":")[2]] = (
            measured.overall if n else None,
            n,
            len(measured.credit) - n,
        )
    return numbers


def reasons(run: Run) -> dict[str, str]:
    """Why the first missing items have no number, likewise."""
    return {
        row.identity.protocol.rpartition(":")[2]: row.missing_reasons[0].reason
        for row in run.rows()
        if row.missing_reasons
    }


def unused(run: Run) -> tuple[str, ...]:
    assert run.manifest.imported is not None
    return run.manifest.imported.unused


LOGS = GOLDENS / "logs"


def golden(name: str, to: Path) -> Path:
    """A copy of LOGS/NAME below ``to``, its names as the tool writes them (| and :, which not every system has)."""
    source, copy = LOGS / name, to / Path(name).name
    for file in (
        [source]
        if source.is_file()
        else sorted(path for path in source.rglob("*") if path.is_file())
    ):
        target = (
            to / Path(name).name / unquote(str(file.relative_to(source)))
            if file != source
            else copy
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return copy


def edited(file: Path, change: Callable[[Any], Any]) -> Path:
    """The JSON ``file`` after ``change``, which may change its value or give another."""
    value = json.loads(file.read_text(encoding="utf-8"))
    changed = change(value)
    file.write_text(json.dumps(value if changed is None else changed), encoding="utf-8")
    return file
