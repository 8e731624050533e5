"""Logs that tests write, and what is read of the runs that they become."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from choicewise import Run, import_log

Rows = list[dict[str, Any]]


def write_lines(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_csv(path: Path, rows: Rows) -> Path:
    cells = [[*rows[0]], *(["" if value is None else str(value) for value in row.values()] for row in rows)]
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
        numbers[name.rpartition(":")[2]] = (measured.overall if n else None, n, len(measured.credit) - n)
    return numbers


def reasons(run: Run) -> dict[str, str]:
    """Why the first missing items have no number, likewise."""
    return {row.protocol.rpartition(":")[2]: row.missing_reasons[0].reason for row in run.rows() if row.missing_reasons}


def unused(run: Run) -> tuple[str, ...]:
    assert run.manifest.imported is not None
    return run.manifest.imported.unused
