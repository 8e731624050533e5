"""What a run will cost, and what it saved, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from choicewise.cli.output import print_json, show
from choicewise.results.refused import by_reason
from choicewise.running.progress import duration

if TYPE_CHECKING:
    from choicewise.models.model import Model
    from choicewise.records.manifest import Spent
    from choicewise.running.plan import Plan


def token_savings(spent: Spent) -> str:
    """How many input tokens were asked and how many computed; of a server with how many requests."""
    fewer = f"{spent.tokens_asked / max(spent.tokens_computed, 1):.1f} × fewer"
    if spent.requests:
        asked = f"asked {spent.tokens_asked:,} tokens in {spent.requests:,} requests"
        known = f": {fewer}" if spent.tokens_computed < spent.tokens_asked else ", as it says nothing of its cache"
        return f"{asked}; the server computed {spent.tokens_computed:,} at most{known}"
    return f"asked {spent.tokens_asked:,} tokens, computed {spent.tokens_computed:,}: {fewer}"


def print_plan(plan: Plan, model: Model, json: bool) -> None:
    """The plan on stdout."""
    if json:
        print_json(_as_json(plan, model))
        return
    lines = _lines(plan, model)
    width = max(map(len, lines))
    for name, value in lines.items():
        show(f"{name:<{width}}  {value}")


def print_plans(plans: Mapping[str, Plan], model: Model, json: bool) -> None:
    """The plans of several benchmarks on stdout, and what they come to in all."""
    from choicewise.running.plan import total

    plans = {**plans, "all": total(list(plans.values()))}
    if json:
        print_json([{"dataset": name, **_as_json(each, model)} for name, each in plans.items()])
        return
    for number, (name, each) in enumerate(plans.items()):
        show(*([""] if number else []), name)
        lines = _lines(each, model)
        width = max(map(len, lines))
        show(*(f"  {title:<{width}}  {value}" for title, value in lines.items()))


def _as_json(plan: Plan, model: Model) -> dict[str, object]:
    asked = asdict(plan)
    derived = {"ratio": plan.ratio, "tokens_per_second": asked.pop("speed"), "seconds": plan.seconds}
    return {"model": model.name, "rung": _path(model)} | asked | derived


def _lines(plan: Plan, model: Model) -> dict[str, str]:
    lines = {
        "requests": f"{plan.requests:,}",
        **({} if plan.sent is None else {"requests to the server": f"{plan.sent:,}"}),
        "tokens as asked": f"{plan.tokens_asked:,}",
        "unique tokens": f"{plan.tokens_unique:,} ({plan.ratio:.1f} × fewer)",
    }
    if plan.speed is not None and plan.seconds is not None:
        path = " ".join(filter(None, [_path(model), f"{model.dtype} on {model.device}"]))
        path = path if plan.sent is None else "with the answers of a short probe"
        lines["estimated time"] = f"{duration(plan.seconds)} ({plan.speed:,.0f} tokens/s, {path})"
    if plan.shots_dropped:
        lines["lose shots"] = f"{plan.shots_dropped:,} requests"
    if plan.tokens_dropped:
        lines["lose tokens"] = f"{plan.tokens_dropped:,} requests"
    refused = {f"refused {len(names):,}": reason for reason, names in by_reason(plan.refused).items()}
    return lines | {f"missing {count:,}": reason for reason, count in plan.missing.items()} | refused


def _path(model: Model) -> str | None:
    return None if model.selfcheck is None else f"{model.selfcheck.rung} path"
