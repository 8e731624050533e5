"""Runs in MLflow: in a folder, or on a tracking server.

Logins of a server are read by the library alone, from its own variables (``MLFLOW_TRACKING_TOKEN`` and others); what
it says of its use to its makers is switched off where the environment doesn't switch it on.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from choicewise.errors import StoreError, UsageError
from choicewise.interchange.place import Filled, Write, own_store
from choicewise.interchange.write import Export, Writer, library
from choicewise.interchange.write.tracked_run import TrackedRun, page, tracked_runs
from choicewise.web.table_csv import table_csv

EXPERIMENT = "choicewise"
"""The experiment that runs belong to, where the environment names no other (``MLFLOW_EXPERIMENT_NAME``)."""

ALLOW = "MLFLOW_ALLOW_FILE_STORE"
"""What the library wants to be set before it writes to a folder, which it does no more work on."""

LONGEST = 500
"""Characters of a parameter that every server takes; signatures are longer and are tags (8,000)."""


def _write(export: Export, out: Path) -> Sequence[str]:
    library("mlflow", "mlflow")
    library("vl_convert", "mlflow")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    server = server_of(out)
    if server is None:
        os.environ.setdefault(ALLOW, "true")
    address = server or out.resolve().as_uri()
    try:
        client = MlflowClient(tracking_uri=address)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        known = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if known is None else known.experiment_id
        for run in tracked_runs(export):
            _log(run, client, experiment)
    except MlflowException as error:
        raise StoreError(f"MLflow at {server or out} refuses: {error}") from error
    shown = f"it is at {server}" if server else f"`{ALLOW}=true mlflow ui --backend-store-uri {out}` shows it"
    return [f"experiment {name}: {shown}"]


def _log(run: TrackedRun, client: object, experiment: str) -> None:
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.tracking import MlflowClient

    assert isinstance(client, MlflowClient)
    made = client.create_run(experiment, run_name=run.name)
    identity, time = made.info.run_id, made.info.start_time
    tags = [RunTag(f"signature {_key(name)}", text) for name, text in run.signatures.items()]
    params = [Param(_key(name), text[:LONGEST]) for name, text in run.about.items()]
    metrics = [Metric(_key(name), value, time, 0) for name, value in run.numbers.items()]
    for kind, entries, most in (("params", params, 100), ("tags", tags, 100), ("metrics", metrics, 1000)):
        for start in range(0, len(entries), most):
            client.log_batch(identity, **{kind: entries[start : start + most]})
    client.log_text(identity, table_csv(run.table.column_names, run.rows), "rows.csv")
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


def _store(out: Path, name: str, content: Sequence[str], write: Write) -> Filled:
    if server_of(out) is not None:
        return Filled((), tuple(write(out)))
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not any(out.glob("*/meta.yaml"))):
        raise UsageError(f"{out} holds something else than runs of MLflow; choose a new folder, or one it logs to")
    return own_store(out, name, content, write)


WRITER = Writer(
    "runs in MLflow: numbers, rows, page, signatures; a folder, or http(s)://... of a server (extra: mlflow)",
    _write,
    _store,
)
