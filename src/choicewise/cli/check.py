"""``choicewise check``: which compute path is exact on a model, and how much noise is in its scores."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.load_one import load_one
from choicewise.cli.output import print_json, print_parts, show

if TYPE_CHECKING:
    from choicewise.models.model import Model


def check(
    model: Annotated[str, typer.Option("--model", help="A model folder, or one behind a server.")],
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    window: options.Window = None,
    adapter: options.Adapter = None,
    tokenizer: options.Tokenizer = None,
    json: options.Json = False,
) -> None:
    """Measure on this very model by how much ways of computing a score differ, in nats.

    Shows which fast path a run would take and why others were refused. Items whose best two scores are closer than
    the noise of both are shown as near ties in reports. Of a model behind a server: which ways of asking give right
    numbers, and which protocols can be asked.
    """
    loaded = load_one(model, dtype=dtype, device=device, window=window, adapter=adapter, tokenizer=tokenizer)
    from choicewise.models.model import SERVER

    if loaded.device == SERVER:
        from choicewise.cli.check_server import measure_server, show_server

        measured = measure_server(loaded)
        print_json(measured) if json else show_server(measured)
        return
    noise = measure_noise(loaded)
    if json:
        print_json(noise)
    elif not noise["trials"]:
        show(f"{noise['model']} computes the same numbers in one way only: no noise to measure")
    else:
        print_parts(_tables(noise))
        show(f"readings that {noise['model']} can be asked with: {', '.join(noise['readings'])}")


def measure_noise(model: Model) -> dict[str, Any]:
    """The self-check of ``model`` with its noise, and by how much common ways to run it differ (nats)."""
    from choicewise.protocols.readings import supported_readings

    readings = supported_readings(model.supports)
    head: dict[str, Any] = {"model": model.name, "dtype": model.dtype, "device": model.device, "readings": readings}
    if (check := model.selfcheck) is None:
        return {**head, "rung": None, "noise": None, "trials": [], "paths": []}
    from choicewise.models.local.folder_model import FolderModel
    from choicewise.models.local.local_model import LocalModel
    from choicewise.models.local.path_differences import path_differences

    local = model.local if isinstance(model, FolderModel) else model
    differences = path_differences(local.lm) if isinstance(local, LocalModel) else []
    return {**head, **asdict(check), "paths": [*map(asdict, differences)]}


def _tables(noise: dict[str, Any]) -> list[Any]:
    from choicewise.report.table import titled

    trials = [
        (trial["rung"], trial["difference"], f"refused: {trial['refused']}" if trial["refused"] else "taken")
        for trial in noise["trials"]
    ]
    paths = [(path["path"], path["difference"], path["failed"] or "") for path in noise["paths"]]
    return [
        titled(
            f"{noise['model']}, {noise['dtype']} on {noise['device']}: a run takes the path {noise['rung']!r},"
            f" {noise['cost']}",
            _table("path", trials),
            f"largest difference from one sequence at a time, of n tokens over √n, on sequences up to {noise['depth']}"
            f" tokens; up to {noise['tolerance']:.2g} nats are allowed",
        ),
        titled(
            "what other ways of running it would change, at most",
            _table("way of running the model", paths),
            f"noise of a token's log-probability: {noise['noise']:.2g} nats, of n tokens √n times that;"
            " reports count items closer than twice that as near ties",
        ),
    ]


def _table(name: str, rows: list[tuple[str, float | None, str]]) -> Any:
    from choicewise.report.table import table
    from choicewise.report.visible_text import safe

    shown = table(name, "nats")
    shown.add_column("", overflow="fold")
    for way, difference, remark in rows:
        shown.add_row(way, "-" if difference is None else f"{difference:.2g}", safe(remark))
    return shown
