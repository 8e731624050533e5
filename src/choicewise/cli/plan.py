"""What a run will cost, and what it saved, in words."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from choicewise.models.model import Model
    from choicewise.running.plan import Plan


def saved(asked: int, computed: int) -> str:
    """How many input tokens were asked and how many computed."""
    return f"asked {asked:,} tokens, computed {computed:,}: {asked / max(computed, 1):.1f} × fewer"


def print_plan(plan: Plan, model: Model, json: bool) -> None:
    """The plan on stdout."""
    if json:
        print(dumps(_row(plan, model), ensure_ascii=False, indent=1))
        return
    lines = {
        "requests": f"{plan.requests:,}",
        "tokens as asked": f"{plan.asked:,}",
        "unique tokens": f"{plan.unique:,} ({plan.ratio:.1f} × fewer)",
    }
    if plan.speed is not None and plan.seconds is not None:
        how = " ".join(filter(None, [_rung(model), f"{model.dtype} on {model.device}"]))
        lines["estimated time"] = f"{_spoken(plan.seconds)} ({plan.speed:,.0f} tokens/s, {how})"
    if plan.dropped:
        lines["lose shots"] = f"{plan.dropped:,} requests"
    if plan.cut:
        lines["lose tokens"] = f"{plan.cut:,} requests"
    for reason, count in plan.missing.items():
        lines[f"missing {count:,}"] = reason
    width = max(map(len, lines))
    for name, value in lines.items():
        print(f"{name:<{width}}  {value}")


def _row(plan: Plan, model: Model) -> dict[str, object]:
    return {
        "model": model.name,
        "rung": _rung(model),
        "requests": plan.requests,
        "tokens_asked": plan.asked,
        "tokens_unique": plan.unique,
        "ratio": plan.ratio,
        "tokens_per_second": plan.speed,
        "seconds": plan.seconds,
        "shots_dropped": plan.dropped,
        "tokens_dropped": plan.cut,
        "missing": plan.missing,
    }


def _rung(model: Model) -> str | None:
    check = getattr(model, "selfcheck", None)
    return None if check is None else f"{check.rung} path"


def _spoken(seconds: float) -> str:
    """A duration to two places that matter."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
