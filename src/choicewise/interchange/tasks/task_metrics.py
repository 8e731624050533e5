"""The metrics of a harness task as axes of our protocols, where both give every row the same credit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from choicewise.interchange.tasks.asked_row import AskedRow

Axes = Mapping[str, Any]

COMMON: Axes = {"fit": "cut-start", "boundary": "moved-space"}
"""How the harness cuts what is too long and where it puts the boundary (lm_eval/models/huggingface.py, 0.4.13)."""

CHARACTERS: Mapping[str, Callable[[str], int]] = {
    "char_mean_bare": lambda text: len(text.removeprefix(" ")),
    "char_mean": len,
}
"""Scores that divide by characters of what is sent, and by how many."""

BYTES: Mapping[str, Callable[[str], int]] = {"byte_mean_bare": lambda text: len(text.removeprefix(" ").encode())}
"""Likewise by bytes."""


@dataclass(frozen=True)
class Unavailable:
    """A metric that is not computed here, and why."""

    reason: str


def metric_axes(name: str, task: Any, rows: Sequence[AskedRow]) -> Axes | Unavailable:
    """The axes that compute the metric ``name`` of ``task``, whose ``rows`` are those that can be asked."""
    if task.OUTPUT_TYPE == "loglikelihood":
        return TARGETS.get(name) or Unavailable(f"metric {name} is none of {', '.join(TARGETS)}")
    if name not in CHOICES:
        return Unavailable(f"metric {name} is none of {', '.join(CHOICES)}")
    several = bool(task.multiple_input)
    if several and name not in ("acc", "exact_match"):
        return Unavailable(f"metric {name} means nothing where choices are contexts, as their texts are not scored")
    if name == "acc_mutual_info" and task.multiple_target:
        return Unavailable(f"metric {name} fails in the harness where rows have lists of targets")
    return CHOICES[name](rows)


def other_aggregation(name: str, task: Any) -> str | None:
    """How ``task`` makes one number of the rows' values of its metric ``name``; None where that is what is done here.

    A task file may state it; a metric for which a task states nothing is averaged.
    """
    from lm_eval.api.registry import get_aggregation

    stated = task.aggregation().get(name)
    ours = ("perplexity",) if name == "perplexity" else ("mean", "nanmean")  # no value here is NaN
    if stated is None or any(stated is get_aggregation(each) for each in ours):
        return None
    return str(getattr(stated, "__name__", stated))


def _plain(score: str, **axes: Any) -> Callable[[Sequence[AskedRow]], Axes]:
    return lambda rows: {"score": score, **axes}


def _mean(lengths: Mapping[str, Callable[[str], int]], own: Callable[[str], int]) -> Callable[..., Axes | Unavailable]:
    """The score whose lengths are those of the choices, which the harness divides by."""

    def axes(rows: Sequence[AskedRow]) -> Axes | Unavailable:
        pairs = {pair for row in rows for pair in zip(row.continuations, row.choices, strict=True)}
        for score, length in lengths.items():
            if all(length(sent) == own(choice) for sent, choice in pairs):
                return {"score": score}
        sent, choice = next(iter(pairs))
        return Unavailable(f"it divides by the length of {choice[:40]!r}, and no score here by that of {sent[:40]!r}")

    return axes


CHOICES: Mapping[str, Callable[[Sequence[AskedRow]], Axes | Unavailable]] = {
    "acc": _plain("sum"),
    "acc_norm": _mean(CHARACTERS, len),
    "acc_bytes": _mean(BYTES, lambda choice: len(choice.encode())),
    "acc_mutual_info": _plain("pmi", null=""),
    "exact_match": _plain("greedy", decision="greedy-match"),
}
"""Metrics of tasks with choices (lm_eval/api/task.py, 0.4.13, process_results)."""

TARGETS: Mapping[str, Axes] = {
    "acc": {"score": "greedy", "decision": "greedy-match"},
    "perplexity": {"score": "sum", "metric": "perplexity"},
}
"""Metrics of tasks with one target."""

OURS: Mapping[str, tuple[str, Axes]] = {
    "multiple_choice": ("sum", {"score": "sum"}),
    "loglikelihood": ("greedy", TARGETS["acc"]),
}
"""What is asked where nothing of a task's own is computed here, by output type: its name and axes."""


def own_metrics(task: Any) -> Iterator[str]:
    """The names of a task's metrics, in its order; those that are functions by the functions' names."""
    yield from task._metric_fn_list
