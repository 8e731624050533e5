"""Write runs for Weights & Biases (offline) and for MLflow (a folder or a server).

Nothing is sent to W&B from here, and no key is read: ``wandb sync`` sends, with its own login.
Logins of an MLflow server are read by the library alone, from its variables
(``MLFLOW_TRACKING_TOKEN`` and others). Reports of the libraries to their makers are switched off
unless the environment switches them on.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

from choicewise.errors import StoreError, UsageError
from choicewise.extensions.interop.export import library
from choicewise.extensions.interop.write.common import export_study
from choicewise.extensions.interop.write.tables import row_table
from choicewise.page.embed import check_libraries
from choicewise.page.study import ShownRun, Study
from choicewise.ports import Export
from choicewise.results.number import Number
from choicewise.results.rows import chosen_part, data_id, run_id
from choicewise.table import table_csv
from choicewise.util.files import disk_errors

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

NAME = "choicewise"
"""The project (W&B) or experiment (MLflow) of the runs, unless the environment names another."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """Hold a run as trackers take it.

    ``facts``: model, data and versions in words. ``signatures``: by protocol. ``numbers``: by name,
    without NaN. ``table``: its rows
    (:func:`choicewise.extensions.interop.write.tables.row_table`).
    """

    name: str
    facts: Mapping[str, str]
    signatures: Mapping[str, str]
    numbers: Mapping[str, float]
    table: pa.Table
    folder: Path


def tracked_runs(export: Export) -> Iterator[TrackedRun]:
    """Yield every run of the export."""
    for run in export_study(export).runs:
        rows = [*run.rows, *run.other_metrics]
        dataset = run.manifest.dataset.name
        name = run.label
        if not name.endswith(f" on {dataset}"):
            name = f"{name} on {dataset}"
        yield TrackedRun(
            name=name,
            facts=_facts(run),
            signatures={row.identity.protocol: row.identity.signature for row in rows},
            numbers=_numbers(rows),
            table=row_table(Study((run,))),
            folder=run.folder,
        )


def _facts(run: ShownRun) -> dict[str, str]:
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
    for package, version in manifest.versions.items():
        facts[f"version of {package}"] = version
    return {name: value for name, value in facts.items() if value}


def _numbers(rows: Sequence[Number]) -> dict[str, float]:
    """Return the finite numbers of all rows by protocol, subject if there are several, and metric."""
    subjects_of: dict[str, set[str]] = {}
    for row in rows:
        subjects_of.setdefault(row.identity.protocol, set()).add(row.identity.subject)
    numbers = {}
    for row in rows:
        identity = row.identity
        name = identity.protocol
        if len(subjects_of[name]) > 1:
            name += f"/{identity.subject}"
        name += f"/{identity.metric}"
        values = {
            name: row.value,
            f"{name}_se": row.se,
            f"{name}_ci_low": row.interval.low,
            f"{name}_ci_high": row.interval.high,
            f"{name}_n": row.counts.n,
            f"{name}_missing": row.counts.missing,
        }
        for key, value in values.items():
            if math.isfinite(value):
                numbers[key] = value
    return numbers


@contextmanager
def page(run: TrackedRun) -> Iterator[Path]:
    """Yield the page of the run as a file, which is gone when the block ends."""
    from choicewise.page.document import write_page

    with TemporaryDirectory() as folder:
        yield write_page([run.folder], Path(folder) / "page.html").page


def write_wandb(export: Export, out: Path) -> Sequence[str]:
    """Write the runs offline below ``out``, and return the line that sends each."""
    library("wandb", "wandb")
    check_libraries("wandb")
    lines = []
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        for run in tracked_runs(export):
            lines.append(f"{run.name}: `wandb sync {_wandb_log(run, out)}` sends it")
    return lines


def _wandb_log(run: TrackedRun, out: Path) -> Path:
    """Write a run, and return the folder in which it is kept."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    settings = wandb.Settings(
        console="off",
        save_code=False,
        silent=True,
        disable_git=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
    )
    with page(run) as file:
        opened = wandb.init(
            name=run.name,
            dir=str(out),
            mode="offline",
            # Several runs of one process must not become one.
            reinit="create_new",
            project=os.environ.get("WANDB_PROJECT") or NAME,
            config={**run.facts, "signatures": dict(run.signatures)},
            settings=settings,
        )
        with opened as tracked:
            columns = run.table.column_names
            rows = [list(row.values()) for row in run.table.to_pylist()]
            table = wandb.Table(columns=columns, data=rows)
            html = wandb.Html(str(file), inject=False)
            tracked.log({**run.numbers, "rows": table, "page": html})
            return Path(tracked.settings.sync_dir)


def check_wandb(out: Path) -> None:
    """Raise UsageError if ``out`` holds something else than runs of W&B."""
    has_other_files = out.is_dir() and any(file.name != "wandb" for file in out.iterdir())
    if out.is_file() or has_other_files:
        raise UsageError(
            f"{out} holds files that are no runs of W&B; choose a new folder, or one of W&B"
        )


ALLOW = "MLFLOW_ALLOW_FILE_STORE"
"""The variable that the library wants set before it writes to a folder, a store that it no longer
develops.
"""


def write_mlflow(export: Export, out: Path) -> Sequence[str]:
    """Write the runs to the folder or server ``out``, and return where they are shown."""
    library("mlflow", "mlflow")
    check_libraries("mlflow")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.exceptions import MlflowException

    server = server_of(out)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or NAME
    try:
        if server is not None:
            _mlflow_log_all(export, name, server)
            return [f"experiment {name} is at {server}"]
        os.environ.setdefault(ALLOW, "true")
        with disk_errors(out):
            _mlflow_log_all(export, name, out.resolve().as_uri())
    except MlflowException as error:
        raise StoreError(f"MLflow at {server or out} refused the export: {error}") from error
    return [f"see experiment {name}: `{ALLOW}=true mlflow ui --backend-store-uri {out}`"]


def _mlflow_log_all(export: Export, name: str, address: str) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        experiment_id = client.create_experiment(name)
    else:
        experiment_id = experiment.experiment_id
    for run in tracked_runs(export):
        _mlflow_log(run, client, experiment_id)


def _mlflow_log(run: TrackedRun, client: MlflowClient, experiment: str) -> None:
    from mlflow.entities import Metric, Param, RunTag

    created = client.create_run(experiment, run_name=run.name)
    identity = created.info.run_id
    time = created.info.start_time
    # Every server takes 500 characters of a parameter; signatures are longer and are tags (8,000).
    params = [Param(_key(name), text[:500]) for name, text in run.facts.items()]
    tags = [RunTag(f"signature {_key(name)}", text) for name, text in run.signatures.items()]
    metrics = [Metric(_key(name), value, time, 0) for name, value in run.numbers.items()]
    # A server takes 100 parameters and tags in one request, and 1,000 of all.
    longest = max(len(params), len(tags), len(metrics))
    for start in range(0, longest, 100):
        part = slice(start, start + 100)
        client.log_batch(identity, metrics=metrics[part], params=params[part], tags=tags[part])
    client.log_text(identity, table_csv(run.table.column_names, run.table.to_pylist()), "rows.csv")
    with page(run) as file:
        client.log_artifact(identity, str(file))
    client.set_terminated(identity)


def server_of(out: Path) -> str | None:
    """Return the address of a server that ``out`` names, None for a folder; UsageError if the
    address holds a login.
    """
    # A path has lost one of the two slashes of an address.
    match = re.fullmatch("(https?):/+(.*)", str(out), re.DOTALL)
    if match is None:
        return None
    scheme, address = match.groups()
    parts = urlsplit(f"{scheme}://{address}")
    if parts.username or parts.password or parts.query:
        raise UsageError(
            "the address of the server holds a login; remove it, and set MLFLOW_TRACKING_USERNAME "
            "and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    return parts.geturl()


def _key(name: str) -> str:
    """Return ``name`` in the characters that MLflow takes."""
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)


def check_mlflow(out: Path) -> None:
    """Raise UsageError if ``out`` is an address with a login, or holds something else than runs of
    MLflow.
    """
    if server_of(out) is not None:
        return
    is_other_folder = out.is_dir() and any(out.iterdir()) and not any(out.glob("*/meta.yaml"))
    if out.is_file() or is_other_folder:
        raise UsageError(
            f"{out} holds files that are no runs of MLflow; choose a new folder, or one of MLflow"
        )
