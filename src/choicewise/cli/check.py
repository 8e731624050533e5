"""``choicewise check``: which compute path is exact on a model, and how much noise is in its scores."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options

if TYPE_CHECKING:
    from choicewise.models.model import Model

Folder = Annotated[str, typer.Option("--model", help="A model folder.")]


def check(
    model: Folder,
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    window: options.Window = None,
    json: options.Json = False,
) -> None:
    """Measure on this very model by how much ways of computing a score differ, in nats.

    Shows which fast path a run would take and why others were refused. Items whose best two scores are closer than
    twice the noise are shown as near ties in reports.
    """
    from choicewise.models.load import load_model
    from choicewise.report.table import console
    from choicewise.results.json_value import json_value

    noise = measure_noise(load_model(model, dtype=dtype, device=device, window=window))
    if json:
        print(dumps(json_value(noise), ensure_ascii=False, indent=1))
        return
    out = console()
    if not noise["trials"]:
        out.print(f"{noise['model']} computes the same numbers in one way only: no noise to measure")
        return
    for part in _tables(noise):
        out.print(part)
        out.print()


def measure_noise(model: Model) -> dict[str, Any]:
    """The self-check of ``model`` with its noise, and by how much common ways to run it differ (nats)."""
    head: dict[str, Any] = {"model": model.name, "dtype": model.dtype, "device": model.device}
    check = model.selfcheck
    if check is None:
        return {**head, "rung": None, "noise": None, "trials": [], "paths": []}
    from choicewise.models.local.local_model import LocalModel
    from choicewise.models.local.path_differences import path_differences

    differences = path_differences(model.lm) if isinstance(model, LocalModel) else []
    return {**head, **asdict(check), "noise": max(check.difference, check.floor), "paths": [*map(asdict, differences)]}


def _tables(noise: dict[str, Any]) -> list[Any]:
    from choicewise.report.table import table, titled
    from choicewise.report.visible_text import safe

    rungs = table("path", "nats")
    rungs.add_column("", overflow="fold")
    for trial in noise["trials"]:
        verdict = f"refused: {safe(trial['refused'])}" if trial["refused"] else "taken"
        rungs.add_row(trial["rung"], _nats(trial["difference"]), verdict)
    paths = table("way of running the model", "nats")
    paths.add_column("", overflow="fold")
    for path in noise["paths"]:
        paths.add_row(path["path"], _nats(path["difference"]), safe(path["failed"] or ""))
    return [
        titled(
            f"{noise['model']}, {noise['dtype']} on {noise['device']}: a run takes the path {noise['rung']!r},"
            f" {noise['cost']}",
            rungs,
            f"largest difference from one sequence at a time, on sequences up to {noise['depth']} tokens;"
            f" up to {noise['tolerance']:.2g} nats are allowed",
        ),
        titled(
            "what other ways of running it would change, at most",
            paths,
            f"noise of a score: {noise['noise']:.2g} nats; reports count items closer than twice that as near ties",
        ),
    ]


def _nats(difference: float | None) -> str:
    return "-" if difference is None else f"{difference:.2g}"
