"""A run as experiment trackers keep one: facts, a number per name, the rows as a table, and the page."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from choicewise.interchange.write import Export
from choicewise.interchange.write.row_table import row_table
from choicewise.interchange.write.shown_runs import shown_runs
from choicewise.results.identity import data_id, run_id
from choicewise.results.row import Row, chosen_part
from choicewise.web.study import ShownRun, Study


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """``about``: what was measured; ``signatures``: protocol → signature; ``numbers``: name → number, never NaN.

    ``table``: its rows (:func:`choicewise.interchange.write.row_table.row_table`).
    """

    name: str
    about: Mapping[str, str]
    signatures: Mapping[str, str]
    numbers: Mapping[str, float]
    table: pa.Table
    folder: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        return list(self.table.to_pylist())


def tracked_runs(export: Export) -> Iterator[TrackedRun]:
    """Every run of the export."""
    for run in shown_runs(export).runs:
        rows = [*run.rows, *run.apart]
        numbers = {name: value for row in rows for name, value in _numbers(row, rows).items() if math.isfinite(value)}
        signatures = {row.protocol: row.signature for row in rows}
        dataset = run.manifest.dataset.name
        name = run.label if run.label.endswith(f" on {dataset}") else f"{run.label} on {dataset}"
        yield TrackedRun(name, _about(run), signatures, numbers, row_table(Study((run,))), run.folder)


@contextmanager
def page(run: TrackedRun) -> Iterator[Path]:
    """The page of the run as a file, which is gone when the block ends."""
    from choicewise.web.page.write import write_page

    with TemporaryDirectory() as folder:
        yield write_page([run.folder], Path(folder) / "page.html").page


def _about(run: ShownRun) -> dict[str, str]:
    manifest = run.manifest
    facts = {
        "model": manifest.model.name,
        "model source": manifest.model.source,
        "model digest": manifest.model.digest,
        "dtype": manifest.model.dtype,
        "dataset": manifest.dataset.name,
        "dataset source": manifest.dataset.source,
        "dataset digest": manifest.dataset.digest,
        "selection": chosen_part(manifest.selection),
        "complete": "yes" if manifest.complete else "no",
        "ids": f"{run_id(manifest)} {data_id(manifest.dataset)}",
    }
    versions = {f"version of {package}": version for package, version in manifest.versions.items()}
    return {name: value for name, value in (facts | versions).items() if value}


def _numbers(row: Row, rows: list[Row]) -> dict[str, float]:
    grouped = any(other.subject != row.subject for other in rows if other.protocol == row.protocol)
    name = "/".join([row.protocol, *([row.subject] if grouped else []), row.metric])
    numbers = {"": row.value, "_se": row.se, "_ci_low": row.ci_low, "_ci_high": row.ci_high}
    return {f"{name}{end}": value for end, value in (numbers | {"_n": row.n, "_missing": row.missing}).items()}
