"""Runs as offline runs of Weights & Biases, which its own command sends when somebody wants that.

Nothing is sent from here and no key is read: `wandb sync` does that, with the login of that program.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from choicewise.errors import UsageError
from choicewise.interchange.place import Filled, Write, own_store
from choicewise.interchange.write import Export, Writer, library
from choicewise.interchange.write.tracked_run import TrackedRun, page, tracked_runs

PROJECT = "choicewise"
"""The project that runs are sent to, where the environment names no other (``WANDB_PROJECT``)."""

FOLDER = "wandb"
"""What the library makes in the folder that it is given."""


def _write(export: Export, out: Path) -> Sequence[str]:
    library("wandb", "wandb")
    library("vl_convert", "wandb")
    out.mkdir(parents=True, exist_ok=True)
    lines = [_log(run, out) for run in tracked_runs(export)]
    return [f"{name}: `wandb sync {folder}` sends it" for name, folder in lines]


def _log(run: TrackedRun, out: Path) -> tuple[str, Path]:
    """The name of the run and the folder in which it is kept."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    settings = wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        save_code=False,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
    )
    project = os.environ.get("WANDB_PROJECT") or PROJECT
    config = {**run.about, "signatures": dict(run.signatures)}
    with (
        page(run) as file,
        wandb.init(
            project=project,
            name=run.name,
            config=config,
            dir=str(out),
            mode="offline",
            settings=settings,
            reinit="create_new",
        ) as tracked,
    ):
        columns = run.table.column_names
        table = wandb.Table(columns=columns, data=[[row[name] for name in columns] for row in run.rows])
        tracked.log({**run.numbers, "rows": table, "page": wandb.Html(str(file), inject=False)})
        folder = Path(tracked.settings.sync_dir)
    return run.name, folder


def _store(out: Path, name: str, content: Sequence[str], write: Write) -> Filled:
    if out.is_file() or (out.is_dir() and any(file.name != FOLDER for file in out.iterdir())):
        raise UsageError(f"{out} holds something else than runs of W&B; choose a new folder, or one it logs to")
    return own_store(out, name, content, write)


WRITER = Writer(
    "offline runs of Weights & Biases in a folder: numbers, rows, page, signatures (extra: wandb)", _write, _store
)
