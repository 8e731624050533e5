"""One run folder of HELM: its requests by instance, and what HELM says of them.

benchmark/runner.py of stanford-crfm/helm@63754d0 (2026) and @cab5d89 (June 2023) writes the files; what is in them say
benchmark/adaptation/request_state.py and common/request.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final

from choicewise.errors import DataError
from choicewise.interchange.logs.read.helm_instance import JOINT, SEPARATE, Group, Instance, new_instance, perturbation
from choicewise.interchange.logs.read.json_parts import parts, whole

STATE: Final = "scenario_state.json"
"""The file that every run folder has."""

RECORDED: Final = ("exact_match", "quasi_exact_match", "prefix_exact_match", "max_prob", "predicted_index")
"""Statistics of HELM that say how an instance was answered."""

_ARGUMENTS: Final = ("model", "model_deployment", "subject")
"""Parts of a run's name that are no part of its task's."""

_SETTINGS: Final = (
    *("model_deployment", "max_train_instances", "max_eval_instances", "max_tokens", "temperature", "instructions"),
    "output_mapping_pattern",
)
"""What of the adapter's specification is kept."""


@dataclass(frozen=True)
class HelmRun:
    """One run folder."""

    folder: Path
    model: str
    task: str
    settings: Mapping[str, str]
    method: str
    instances: Mapping[Group, Sequence[Instance]]
    judged: Mapping[tuple[int, str, str], Mapping[str, float]] | None
    """What HELM says by (trial, perturbation, id); None where the folder has no ``per_instance_stats.json``."""
    totals: Mapping[str, float]


def read_folder(folder: Path) -> HelmRun:
    """All of a folder.  Raises DataError where it is no finished run of multiple-choice questions by one model."""
    spec = _optional(folder / "run_spec.json") or {}
    name, arguments = _name(str(spec.get("name") or folder.name))
    subject = str(((spec.get("scenario_spec") or {}).get("args") or {}).get("subject") or arguments.get("subject", ""))
    adapter: dict[str, Any] = spec.get("adapter_spec") or {}
    method, models = str(adapter.get("method", "")), set()
    instances: dict[tuple[Group, str], Instance] = {}
    state_file = folder / STATE
    for number, (key, state) in enumerate(parts(state_file, "request_states")):
        if key == "adapter_spec" and isinstance(state, dict):
            adapter, method = state, _method(state, state_file)
        if key != "request_states":
            continue
        place = f"{state_file}, request state {number - 1}"
        if not isinstance(state, dict):
            raise DataError(f"{place} is no object; it is no scenario state of HELM")
        group, instance = new_instance(state, place, subject)
        instance = instances.setdefault((group, instance.id), instance)
        instance.add(state, _method({"method": method}, state_file), place)
        models.add(str((state.get("request") or {}).get("model") or adapter.get("model") or ""))
    if not instances:
        raise DataError(f"{state_file} holds no requests; the run has no instances, or was stopped before the first")
    if len(models) > 1:
        raise DataError(f"{state_file} mixes the models {', '.join(sorted(models))}; a run has one, so split it")
    grouped: dict[Group, list[Instance]] = {}
    for (group, _), instance in instances.items():
        grouped.setdefault(group, []).append(instance)
    kept = {key: value for key, value in arguments.items() if key not in _ARGUMENTS}
    task = name + (":" if kept else "") + ",".join(f"{key}={value}" for key, value in kept.items())
    settings = {"method": method, **_settings(adapter)}
    totals = _totals(_optional(folder / "stats.json"))
    return HelmRun(folder, models.pop(), task, settings, method, grouped, _judged(folder), totals)


def _name(name: str) -> tuple[str, dict[str, str]]:
    """``mmlu:subject=anatomy,model=x`` → mmlu and its arguments."""
    scenario, _, rest = name.partition(":")
    pairs = (part.partition("=") for part in rest.split(",") if "=" in part)
    return scenario, {key: value for key, _, value in pairs}


def _method(adapter: Mapping[str, Any], path: Path) -> str:
    method = str(adapter.get("method", ""))
    if method not in (*JOINT, *SEPARATE):
        raise DataError(f"{path} has adapter method {method or 'unknown'}; {', '.join((*JOINT, *SEPARATE))} are read")
    return method


def _settings(adapter: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(adapter[key]) for key in _SETTINGS if adapter.get(key) not in (None, "")}


def _optional(path: Path) -> Any:
    return whole(path) if path.exists() else None


def _judged(folder: Path) -> dict[tuple[int, str, str], dict[str, float]] | None:
    path = folder / "per_instance_stats.json"
    if not path.exists():
        return None
    judged: dict[tuple[int, str, str], dict[str, float]] = {}
    for _, given in parts(path, ""):
        if not isinstance(given, dict):
            raise DataError(f"{path} holds no list of instances; it is no file of HELM")
        key = (int(given.get("train_trial_index") or 0), perturbation(given), str(given.get("instance_id")))
        judged.setdefault(key, {}).update((str(name["name"]), value) for name, value in _statistics(given.get("stats")))
    return judged


def _totals(stats: Any) -> dict[str, float]:
    return {
        " ".join([str(name["name"]), *([str(name["split"])] if name.get("split") else [])]): value
        for name, value in _statistics(stats)
        if not name.get("perturbation")
    }


def _statistics(stats: Any) -> Iterator[tuple[Mapping[str, Any], float]]:
    """(name, mean) of the statistics that are kept; HELM leaves out a mean that is no number."""
    for stat in stats if isinstance(stats, list) else ():
        name = stat.get("name") if isinstance(stat, dict) else None
        if isinstance(name, dict) and name.get("name") in RECORDED:
            mean = stat.get("mean")
            if isinstance(mean, int | float) and isfinite(mean):
                yield name, float(mean)
