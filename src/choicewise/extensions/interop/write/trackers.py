"""W&B, MLflow.

Nothing is sent from here and no key is read: `wandb sync` does that, with the login of that program.

Logins of a server are read by the library alone, from its own variables (``MLFLOW_TRACKING_TOKEN`` and others); what
it says of its use to its makers is switched off where the environment doesn't switch it on.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pyarrow as pa

from choicewise.errors import StoreError, UsageError
from choicewise.extensions.interop.export import library
from choicewise.extensions.interop.write.common import shown_runs
from choicewise.extensions.interop.write.tables import row_table
from choicewise.page.embed import check_libraries
from choicewise.page.study import ShownRun, Study
from choicewise.ports import Export
from choicewise.results.number import Number
from choicewise.results.rows import chosen_part, data_id, run_id
from choicewise.table import table_csv
from choicewise.util.files import disk_errors

NAME = "choicewise"
"""The project (W&B) or experiment (MLflow) that runs belong to, where the environment names no other."""


def write_wandb(export: Export, out: Path) -> Sequence[str]:
    """Write the runs offline below ``out``, and return the line that sends each."""
    library("wandb", "wandb")
    check_libraries("wandb")
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        return [
            f"{run.name}: `wandb sync {_wandb_log(run, out)}` sends it"
            for run in tracked_runs(export)
        ]


def _wandb_log(run: TrackedRun, out: Path) -> Path:
    """The folder in which the run is kept."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    silent = dict.fromkeys(
        ("silent", "disable_git", "x_disable_meta", "x_disable_stats", "x_disable_machine_info"),
        True,
    )
    begun = {
        "project": os.environ.get("WANDB_PROJECT") or NAME,
        "config": {**run.about, "signatures": dict(run.signatures)},
        "settings": wandb.Settings(console="off", save_code=False, **silent),
    }
    with (
        page(run) as file,
        wandb.init(
            name=run.name, dir=str(out), mode="offline", reinit="create_new", **begun
        ) as tracked,
    ):
        columns = run.table.column_names
        rows = [[row[name] for name in columns] for row in run.table.to_pylist()]
        table = wandb.Table(columns=columns, data=rows)
        tracked.log({**run.numbers, "rows": table, "page": wandb.Html(str(file), inject=False)})
        return Path(tracked.settings.sync_dir)


def check_wandb(out: Path) -> None:
    """Raise UsageError if ``out`` holds something else than runs of W&B."""
    if out.is_file() or (out.is_dir() and any(file.name != "wandb" for file in out.iterdir())):
        raise UsageError(
            f"{out} holds something else than runs of W&B; choose a new folder, or one it logs to"
        )


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """``about``: what was measured; ``signatures``: protocol → signature; ``numbers``: name → number, never NaN.

    ``table``: its rows (:func:`choicewise.extensions.interop.write.tables.row_table`).
    """

    name: str
    about: Mapping[str, str]
    signatures: Mapping[str, str]
    numbers: Mapping[str, float]
    table: pa.Table
    folder: Path


def tracked_runs(export: Export) -> Iterator[TrackedRun]:
    """Every run of the export."""
    for run in shown_runs(export).runs:
        rows = [*run.rows, *run.other_metrics]
        numbers = {
            name: value
            for row in rows
            for name, value in _numbers(row, rows).items()
            if math.isfinite(value)
        }
        signatures = {row.identity.protocol: row.identity.signature for row in rows}
        dataset = run.manifest.dataset.name
        name = run.label if run.label.endswith(f" on {dataset}") else f"{run.label} on {dataset}"
        yield TrackedRun(
            name, _about(run), signatures, numbers, row_table(Study((run,))), run.folder
        )


@contextmanager
def page(run: TrackedRun) -> Iterator[Path]:
    """The page of the run as a file, which is gone when the block ends."""
    from choicewise.page.document import write_page

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


def _numbers(row: Number, rows: list[Number]) -> dict[str, float]:
    grouped = any(
        other.identity.subject != row.identity.subject
        for other in rows
        if other.identity.protocol == row.identity.protocol
    )
    name = "/".join(
        [row.identity.protocol, *([row.identity.subject] if grouped else []), row.identity.metric]
    )
    numbers = {
        "": row.value,
        "_se": row.se,
        "_ci_low": row.interval.low,
        "_ci_high": row.interval.high,
    }
    return {
        f"{name}{end}": value
        for end, value in (numbers | {"_n": row.counts.n, "_missing": row.counts.missing}).items()
    }


ALLOW = "MLFLOW_ALLOW_FILE_STORE"
"""What the library wants to be set before it writes to a folder, which it does no more work on."""


def write_mlflow(export: Export, out: Path) -> Sequence[str]:
    """Write the runs to the folder or server ``out``, and return where they are shown."""
    library("mlflow", "mlflow")
    check_libraries("mlflow")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    server = server_of(out)
    if server is None:
        os.environ.setdefault(ALLOW, "true")
    address = server or out.resolve().as_uri()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or NAME
    try:
        with nullcontext() if server else disk_errors(out):
            client = MlflowClient(tracking_uri=address)
            known = client.get_experiment_by_name(name)
            experiment = client.create_experiment(name) if known is None else known.experiment_id
            for run in tracked_runs(export):
                _mlflow_log(run, client, experiment)
    except MlflowException as error:
        raise StoreError(f"MLflow at {server or out} refuses: {error}") from error
    shown = (
        f"it is at {server}"
        if server
        else f"`{ALLOW}=true mlflow ui --backend-store-uri {out}` shows it"
    )
    return [f"experiment {name}: {shown}"]


def _mlflow_log(run: TrackedRun, client: object, experiment: str) -> None:
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.tracking import MlflowClient

    assert isinstance(client, MlflowClient)
    created = client.create_run(experiment, run_name=run.name)
    identity, time = created.info.run_id, created.info.start_time
    tags = [RunTag(f"signature {_key(name)}", text) for name, text in run.signatures.items()]
    # every server takes 500 characters of a parameter; signatures are longer and are tags (8,000)
    params = [Param(_key(name), text[:500]) for name, text in run.about.items()]
    metrics = [Metric(_key(name), value, time, 0) for name, value in run.numbers.items()]
    for kind, entries, most in (
        ("params", params, 100),
        ("tags", tags, 100),
        ("metrics", metrics, 1000),
    ):
        for start in range(0, len(entries), most):
            client.log_batch(identity, **{kind: entries[start : start + most]})
    client.log_text(identity, table_csv(run.table.column_names, run.table.to_pylist()), "rows.csv")
    with page(run) as file:
        client.log_artifact(identity, str(file))
    client.set_terminated(identity)


def server_of(out: Path) -> str | None:
    """The address of a server that ``out`` names, None for a folder.  UsageError where it holds a password.

    A path has lost one of the two slashes of an address.
    """
    scheme, address = re.fullmatch(r"(?:(https?):/+)?(.*)", str(out), re.DOTALL).groups()  # type: ignore[union-attr]
    if scheme is None:
        return None
    parts = urlsplit(f"{scheme}://{address}")
    if parts.username or parts.password or parts.query:
        advice = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, instead"
        raise UsageError(f"the address of a server must hold no login; {advice}")
    return parts.geturl()


def _key(name: str) -> str:
    """``name`` in the characters that MLflow takes."""
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)


def check_mlflow(out: Path) -> None:
    """Raise UsageError if ``out`` is an address with a login, or holds something else than runs of MLflow."""
    if server_of(out) is not None:
        return
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not any(out.glob("*/meta.yaml"))):
        raise UsageError(
            f"{out} holds something else than runs of MLflow; choose a new folder, or one it logs to"
        )
