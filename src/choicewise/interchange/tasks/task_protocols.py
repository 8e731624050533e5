"""The metrics of loaded tasks as protocols by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from choicewise.errors import ProtocolError, did_you_mean
from choicewise.interchange.tasks.probed_metric import as_axes, probed, results_code
from choicewise.interchange.tasks.selector import SHOTS, TaskSelector
from choicewise.interchange.tasks.task_form import AskedTask, TaskForm
from choicewise.interchange.tasks.task_metrics import (
    CHOICES,
    COMMON,
    OURS,
    TARGETS,
    Unavailable,
    metric_axes,
    other_aggregation,
    own_metrics,
)
from choicewise.protocols.changed_axes import CHANGES, change_axes
from choicewise.protocols.protocol import Protocol


@dataclass(frozen=True)
class TaskProtocols:
    """Makes the protocols of a task or group that is ``called`` so; ``group``: the harness's object, if it is one.

    ``note`` hears what whoever compares numbers should know.
    """

    called: str
    group: Any | None
    note: Callable[[str], None]

    def under(self, selector: TaskSelector, asked: Sequence[AskedTask], form: TaskForm) -> dict[str, Protocol]:
        """The protocols that ``selector`` names, of tasks that are ``asked`` in this ``form``.

        Raises ProtocolError for a metric that there is not, or that is not computed here.
        """
        metrics = self._metrics(selector.metric, asked)
        own = {each.task.config.num_fewshot or 0 for each in asked}
        shots = [f"{SHOTS}={selector.shots}"] if selector.shots is not None and own != {selector.shots} else []
        named = {
            f"{self.called}:{name}": Protocol(benchmark=self.called, **{**COMMON, **form.axes, **axes})
            for name, axes in metrics.items()
        }
        if not selector.changes and not shots:
            return named
        changed = {}
        for name, protocol in named.items():
            other = protocol
            if selector.changes:
                (other,) = change_axes({name: protocol}, selector.changes).values()
            changes = [*shots, *([selector.changes] if other != protocol else [])]
            changed[f"{name}{CHANGES}{','.join(changes)}" if changes else name] = other
        return changed

    def _metrics(self, wanted: str | None, asked: Sequence[AskedTask]) -> dict[str, dict[str, Any]]:
        """Metric → axes: all of the tasks' own that are computed here, or the one that is ``wanted``."""
        own = list(dict.fromkeys(name for each in asked for name in own_metrics(each.task)))
        kinds = {each.task.OUTPUT_TYPE for each in asked}
        if len(kinds) > 1:
            raise ProtocolError(
                f"{self.called} mixes output types {', '.join(sorted(kinds))}; ask its tasks by themselves"
            )
        ours, fallback = OURS[kinds.pop()]
        known = [*dict.fromkeys([*own, *(CHOICES if ours == "sum" else TARGETS), ours])]
        if wanted is not None and wanted not in known:
            raise ProtocolError(f"{self.called} has no metric {wanted!r}; {did_you_mean(wanted, known)}")
        metrics: dict[str, dict[str, Any]] = {}
        for name in own if wanted is None else [wanted]:
            axes = fallback if name == ours and ours not in own else self._common_axes(name, asked)
            if not isinstance(axes, Unavailable):
                metrics[name] = {**axes, "aggregation": self._aggregation(name)}
            elif wanted is None:
                self.note(f"its metric {name} is not computed here: {axes.reason}")
            else:
                raise ProtocolError(f"{self.called}: metric {name} is not computed here: {axes.reason}")
        if not metrics:
            self.note(f"{ours}, which is asked instead, is no metric of its own")
            return {ours: {**fallback, "aggregation": self._aggregation(ours)}}
        return metrics

    def _common_axes(self, name: str, asked: Sequence[AskedTask]) -> Mapping[str, Any] | Unavailable:
        """The axes of a metric, where they are the same for all tasks."""
        every = []
        for each in asked:
            if (aggregation := other_aggregation(name, each.task)) is not None:
                return Unavailable(f"the task {each.task.config.task} aggregates it by {aggregation}")
            rows = [row for row in each.rows if row.refused is None]
            if results_code(each.task) and name in own_metrics(each.task):
                result = probed(each.task, name, rows) if each.task.OUTPUT_TYPE == "multiple_choice" else None
                if result is None or [row.gold for row in rows] != [row.gold for row in result[1]]:
                    return Unavailable(f"code of the task {each.task.config.task} computes it")
                axes: Mapping[str, Any] | Unavailable = as_axes(result[0])
            elif len(asked) > 1 and name not in own_metrics(each.task):
                return Unavailable(f"the task {each.task.config.task} does not have it; ask tasks by themselves")
            else:
                axes = metric_axes(name, each.task, rows)
            if isinstance(axes, Unavailable):
                return axes
            every.append(axes)
        if any(axes != every[0] for axes in every[1:]):
            return Unavailable("its tasks compute it in different ways; ask them by themselves")
        return every[0]

    def _aggregation(self, metric: str) -> str:
        """``micro`` where a group weights its tasks by their sizes, as the harness does unless told otherwise."""
        group = self.group
        if group is None:
            return "micro"
        listed = {each.metric: each for each in group.aggregate_metric_list or ()}
        if metric not in listed:
            self.note(f"the group says not how {metric} is averaged; here every row counts alike (micro)")
            return "micro"
        return "micro" if listed[metric].weight_by_size else "macro"
