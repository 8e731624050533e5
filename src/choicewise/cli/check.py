"""``choicewise check``: which way of computing is exact on a model, and how much noise is under its scores."""

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
    """Measure on this very model how far different ways of computing a score lie apart, in nats.

    Shows which fast path a run would take and why others were refused. Items whose best two scores are closer than
    twice the noise are shown as near ties in reports.
    """
    from choicewise.models.load import load_model
    from choicewise.report.table import console
    from choicewise.results.json_value import json_value

    found = measured(load_model(model, dtype=dtype, device=device, window=window))
    if json:
        print(dumps(json_value(found), ensure_ascii=False, indent=1))
        return
    out = console()
    if not found["paths"]:
        out.print(f"{found['model']} computes the same numbers in one way only: no noise to measure")
        return
    for part in _tables(found):
        out.print(part)
        out.print()


def measured(model: Model) -> dict[str, Any]:
    """What the self-check found on ``model``, and how far common ways of running it are apart (nats)."""
    about: dict[str, Any] = {"model": model.name, "dtype": model.dtype, "device": model.device}
    chosen = getattr(model, "selfcheck", None)
    if chosen is None:
        return {**about, "rung": None, "noise": None, "trials": [], "paths": []}
    from choicewise.models.local.causal_lm import CausalLM
    from choicewise.models.local.local_model import LocalModel
    from choicewise.models.local.path_differences import path_differences

    assert isinstance(model, LocalModel)  # the only kind that has a self-check
    return {
        **about,
        "rung": chosen.rung,
        "cost": chosen.cost,
        "noise": max(chosen.difference, chosen.floor),
        "floor": chosen.floor,
        "tolerance": chosen.tolerance,
        "depth": chosen.depth,
        "trials": [asdict(trial) for trial in chosen.trials],
        "paths": [asdict(path) for path in path_differences(CausalLM(model.model, model.window, model.vocabulary))],
    }


def _tables(found: dict[str, Any]) -> list[Any]:
    from choicewise.report.table import table, titled
    from choicewise.report.visible_text import safe

    rungs = table("path", "nats")
    rungs.add_column("", overflow="fold")
    for trial in found["trials"]:
        told = f"refused: {safe(trial['refused'])}" if trial["refused"] else "taken"
        rungs.add_row(trial["rung"], _nats(trial["difference"]), told)
    paths = table("way of running the model", "nats")
    paths.add_column("", overflow="fold")
    for path in found["paths"]:
        paths.add_row(path["path"], _nats(path["difference"]), safe(path["failed"] or ""))
    where = f"{found['model']}, {found['dtype']} on {found['device']}"
    return [
        titled(
            f"{where}: a run takes the path {found['rung']!r}, {found['cost']}",
            rungs,
            f"largest difference from one sequence at a time, on sequences up to {found['depth']} tokens;"
            f" up to {found['tolerance']:.2g} nats are allowed",
        ),
        titled(
            "what other ways of running it would change, at most",
            paths,
            f"noise of a score: {found['noise']:.2g} nats; reports count items closer than twice that as near ties",
        ),
    ]


def _nats(difference: float | None) -> str:
    return "-" if difference is None else f"{difference:.2g}"
