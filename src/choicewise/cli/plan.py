"""What a run will cost, and what it saved, in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from choicewise.cli.output import print_json, show
from choicewise.running.progress import duration

if TYPE_CHECKING:
    from choicewise.models.model import Model
    from choicewise.running.plan import Plan


def token_savings(asked: int, computed: int) -> str:
    """How many input tokens were asked and how many computed."""
    return f"asked {asked:,} tokens, computed {computed:,}: {asked / max(computed, 1):.1f} × fewer"


def print_plan(plan: Plan, model: Model, json: bool) -> None:
    """The plan on stdout."""
    if json:
        head = {"model": model.name, "rung": _path(model)}
        asked = asdict(plan)
        derived = {"ratio": plan.ratio, "tokens_per_second": asked.pop("speed"), "seconds": plan.seconds}
        print_json(head | asked | derived)
        return
    lines = {
        "requests": f"{plan.requests:,}",
        "tokens as asked": f"{plan.tokens_asked:,}",
        "unique tokens": f"{plan.tokens_unique:,} ({plan.ratio:.1f} × fewer)",
    }
    if plan.speed is not None and plan.seconds is not None:
        path = " ".join(filter(None, [_path(model), f"{model.dtype} on {model.device}"]))
        lines["estimated time"] = f"{duration(plan.seconds)} ({plan.speed:,.0f} tokens/s, {path})"
    if plan.shots_dropped:
        lines["lose shots"] = f"{plan.shots_dropped:,} requests"
    if plan.tokens_dropped:
        lines["lose tokens"] = f"{plan.tokens_dropped:,} requests"
    for reason, count in plan.missing.items():
        lines[f"missing {count:,}"] = reason
    width = max(map(len, lines))
    for name, value in lines.items():
        show(f"{name:<{width}}  {value}")


def _path(model: Model) -> str | None:
    return None if model.selfcheck is None else f"{model.selfcheck.rung} path"
