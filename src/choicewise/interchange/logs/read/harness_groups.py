"""Groups of the harness's tasks: one log of all their tasks, each a subject, where the results have a number of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from choicewise.interchange.logs.log import Log, LoggedItem
from choicewise.interchange.logs.read.harness_results import Results
from choicewise.interchange.logs.recorded import ROUNDING


class Apart(Exception):
    """Why the tasks of a group are logs of their own."""


@dataclass(frozen=True, slots=True)
class Part:
    """The log of a task, and how many items (``size``) it has."""

    log: Log
    size: int


@dataclass(frozen=True)
class GroupItems:
    """The items of several tasks, named ``TASK/ID`` with the task as subject, as our own runs of a group name them."""

    logs: Sequence[Log]

    def __iter__(self) -> Iterator[LoggedItem]:
        for log in self.logs:
            for item in log.items:
                yield replace(item, id=f"{log.task}/{item.id}", subject=log.task)


def outermost(results: Results, tasks: Sequence[str]) -> list[str]:
    """The groups with a number that are in no other such group and have any of ``tasks``."""
    leaves = {name: results.leaves(name) for name in results.groups if results.numbers(name)}
    known = [name for name, own in leaves.items() if len(own) > 1 and {*own} & {*tasks}]
    inner = {below for name in known for below in results.below(name)}
    return [name for name in known if name not in inner]


def together(group: str, results: Results, parts: Mapping[str, Part]) -> Log:
    """The tasks of ``group`` as one log; ``parts``: those there are by their task.

    Its tasks count by their items (micro) or alike (macro), as the group's own numbers do.  Raises :class:`Apart` where
    these are neither, where tasks are absent, and where they are asked in different ways.
    """
    leaves = results.leaves(group)
    if absent := [task for task in leaves if task not in parts]:
        raise Apart(
            f"samples that can be used are absent of {len(absent)} of its {len(leaves)} tasks, such as {absent[0]}"
        )
    kinds = sorted({str(results.config(task).get("output_type")) for task in leaves})
    if len(kinds) > 1:
        raise Apart(f"its tasks are of the output types {', '.join(kinds)}")
    aggregations = _aggregations(group, results, {task: parts[task].size for task in leaves})
    logs = [parts[task].log for task in leaves]
    every = dict.fromkeys(name for log in logs for name in log.settings)
    settings = {name: _joined([log.settings.get(name, "") for log in logs]) for name in every}
    unused = tuple(dict.fromkeys(text for log in logs for text in log.unused))
    if inner := [name for name in results.below(group) if results.numbers(name)]:
        unused += (f"the numbers of {', '.join(inner)}, groups in {group}: they are of some of its subjects",)
    return replace(
        logs[0],
        task=group,
        items=GroupItems(logs),
        settings={**settings, "tasks": f"{len(leaves)}, a subject each"},
        null=next((log.null for log in logs if log.null is not None), None),
        recorded={name.partition(",")[0]: value for name, value in results.numbers(group).items()},
        unused=unused,
        aggregations=aggregations,
    )


def _joined(values: Sequence[str]) -> str:
    """What the tasks have, each once."""
    different = list(dict.fromkeys(value for value in values if value))
    text = "; ".join(different[:3])
    return text if len(different) <= 3 else f"{text}; and {len(different) - 3} others"


def _aggregations(group: str, results: Results, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """How the group's numbers follow from those of its tasks: that of the first number, then another one's.

    Where a number is the same both ways, the configuration says which (lm_eval/api/group.py@4e7e0d4, aggregate).
    """
    fitting: list[set[str]] = []
    for name, number in results.numbers(group).items():
        values = {task: results.numbers(task)[name] for task in sizes if name in results.numbers(task)}
        if len(values) < len(sizes):
            continue
        means = {
            "micro": sum(values[task] * size for task, size in sizes.items()) / sum(sizes.values()),
            "macro": sum(values.values()) / len(values),
        }
        fitting.append({way for way, mean in means.items() if abs(mean - number) <= ROUNDING})
        if not fitting[-1]:
            raise Apart(
                f"its {name} is {number:.6g}, and its tasks have {means['micro']:.6g} over all items and "
                f"{means['macro']:.6g} over tasks"
            )
    if not fitting:
        raise Apart("none of its numbers is one of all of its tasks")
    if common := set.intersection(*fitting):
        return (common.pop() if len(common) == 1 else _configured(results.config(group)),)
    first = next(ways for ways in fitting if len(ways) == 1)
    return (*first, *({"micro", "macro"} - first))


def _configured(config: Mapping[str, Any]) -> str:
    listed = config.get("aggregate_metric_list")
    every = [each for each in (listed if isinstance(listed, list) else [listed]) if isinstance(each, dict)]
    return "macro" if every and not any(each.get("weight_by_size", True) for each in every) else "micro"
