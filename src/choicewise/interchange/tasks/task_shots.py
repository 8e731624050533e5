"""Where a harness task takes its few-shot examples from, as axes of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from choicewise.interchange.tasks.loading import SEEDS
from choicewise.interchange.tasks.task_template import Inexpressible

SAMPLERS = {
    ("ContextSampler", False): "harness",
    ("ContextSampler", True): "harness-spare",
    ("FirstNSampler", False): "first",
}
"""Our sampler by the class of the harness's, and by whether the item itself is left out."""


@dataclass(frozen=True)
class TaskPool:
    """The rows that examples come from: their split, and the rows as the task has processed them."""

    split: str
    docs: tuple[Any, ...]


def evaluated_split(task: Any) -> str:
    """The name of the split that is asked."""
    return str(task.config.test_split if task.has_test_docs() else task.config.validation_split)


def task_pool(task: Any) -> TaskPool | None:
    """The pool of ``task``; None where it has none (lm_eval/api/task.py, 0.4.13, fewshot_docs)."""
    if getattr(task, "sampler", None) is None:
        return None
    config, shots = task.config, task.fewshot_cfg
    names = [shots.split, "fewshot" if shots.samples is not None else None]
    names += [config.training_split, config.validation_split, config.test_split]
    return TaskPool(str(next(name for name in names if name is not None)), tuple(task.sampler.df))


def shot_axes(task: Any, shots: int) -> dict[str, Any]:
    """The axes about examples; raises Inexpressible for a sampler that is none of ours."""
    if not shots:
        return {"shots": 0, "shot_split": None, "sampler": "none"}
    spare = task.fewshot_cfg.split == task.config.test_split
    sampler = SAMPLERS.get((type(task.sampler).__name__, spare))
    pool = task_pool(task)
    if sampler is None or pool is None:
        raise Inexpressible(
            f"its sampler is {type(task.sampler).__name__}" + ", which leaves out the row itself" * spare
        )
    seed = None if sampler == "first" else SEEDS["shots"]
    return {"shots": shots, "shot_split": pool.split, "sampler": sampler, "seed": seed}
