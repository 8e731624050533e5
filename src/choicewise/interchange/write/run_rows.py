"""What formats ask of runs besides their items: the runs of a model, a row per protocol, and a date."""

from collections.abc import Iterable
from datetime import UTC, datetime

from choicewise.records.format import MANIFEST
from choicewise.results.row import Row
from choicewise.results.run import Run


def by_model(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of every model, in the order in which the models come; imported logs know a model by its name alone."""
    models: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        model = run.manifest.model
        digest = model.digest if run.manifest.imported is None else ""
        models.setdefault((model.name, digest, model.dtype), []).append(run)
    return list(models.values())


def report_rows(run: Run) -> dict[str, Row]:
    """One row of the run's report per protocol, by its name: over all items where it has several groups."""
    rows = run.rows()
    several = {name for name in run.protocols if sum(row.protocol == name for row in rows) != 1}
    micro = run.rows("micro") if several else []
    kept = [row for row in rows if row.protocol not in several] + [row for row in micro if row.protocol in several]
    by_name = {row.protocol: row for row in kept}
    return {name: by_name[name] for name in run.protocols if name in by_name}


def last_written(runs: Iterable[Run]) -> datetime:
    """When the latest of the runs was last written to, in UTC."""
    return datetime.fromtimestamp(max((run.folder / MANIFEST).stat().st_mtime for run in runs), UTC)
