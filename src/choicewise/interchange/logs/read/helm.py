"""Run folders of HELM: ``scenario_state.json``, and beside it its specification and statistics.

Runs that differ in their subject alone are one log; every train trial, split and perturbation is a log of its own, as
HELM counts each by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from choicewise.errors import DataError
from choicewise.interchange.logs.log import Log, LoggedItem, unreadable
from choicewise.interchange.logs.read import Reader
from choicewise.interchange.logs.read.helm_folder import STATE, HelmRun, read_folder
from choicewise.interchange.logs.read.helm_instance import SEPARATE, Group, Instance, null_context
from choicewise.interchange.logs.read.layout import laid_out_by

RULES: Final = {
    "multiple_choice_joint": ("letter-match", "opencompass@14ca958", "harness-letter@4e7e0d4"),
    "multiple_choice_joint_chain_of_thought": ("letter-match", "opencompass@14ca958", "simple-evals@f517a91"),
}
"""Rules that read a letter in what the model wrote, by adapter method, HELM's own first."""


def _recognises(path: Path) -> bool:
    return path.name == STATE or (path.is_dir() and any(_folders(path)))


def _folders(path: Path) -> Iterator[Path]:
    """The run folders in ``path``, itself included, and those of a suite."""
    if path.is_dir():
        yield from (
            file.parent for pattern in (STATE, f"*/{STATE}", f"*/*/{STATE}") for file in sorted(path.glob(pattern))
        )
    else:
        yield path.parent


def _read(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """A log for every model, task, trial, split and perturbation; runs that differ in their subject alone are one."""
    if results is not None:
        raise DataError(f"{results}: a run folder of HELM holds its own results; leave the file of results out")
    together: dict[tuple[str, str], list[HelmRun]] = {}
    lost: list[str] = []
    for folder in dict.fromkeys(folder for path in paths for folder in _folders(path)):
        try:
            with laid_out_by("HELM", folder):
                run = read_folder(folder)
        except DataError as error:
            lost.append(folder.name)
            yield unreadable("helm", folder, error)
            continue
        together.setdefault((run.model, run.task), []).append(run)
    for (_, task), runs in together.items():
        scenario = task.partition(":")[0]
        parts = tuple(f"{name}, which can't be read" for name in lost if name.partition(":")[0] == scenario)
        for log in _logs(runs):
            yield replace(log, unused=(*log.unused, *parts))


def _logs(runs: Sequence[HelmRun]) -> Iterator[Log]:
    first, several = runs[0], len(runs) > 1
    groups = sorted({group for run in runs for group in run.instances})
    for group in groups:
        instances = [(run, each) for run in runs for each in run.instances.get(group, ())]
        null = null_context([each for _, each in instances])
        facts = {
            "trial": str(group.trial) if len({each.trial for each in groups}) > 1 else "",
            "split": group.split if len({each.split for each in groups}) > 1 else "",
            "perturbation": group.perturbation,
        }
        yield Log(
            tool="helm",
            model=first.model,
            task=" ".join([first.task, *(f"{key}={value}" for key, value in facts.items() if value)]),
            items=tuple(_item(run, each, group, null, several) for run, each in instances),
            settings={**first.settings, **{key: value for key, value in facts.items() if value}},
            null=null,
            recorded={} if several or len(groups) > 1 else first.totals,
            unused=_unused(runs),
            rules=RULES.get(first.method, ()),
        )


def _item(run: HelmRun, instance: Instance, group: Group, null: str | None, several: bool) -> LoggedItem:
    recorded = (run.judged or {}).get((group.trial, group.perturbation, instance.id), {})
    if several:
        instance.id = f"{instance.subject or run.folder.name}/{instance.id}"
    return instance.item(recorded, null)


def _unused(runs: Sequence[HelmRun]) -> tuple[str, ...]:
    unused = ["the log-probabilities of single tokens"] if runs[0].method in SEPARATE else []
    without = [run.folder.name for run in runs if run.judged is None]
    if without:
        unused.append(f"nothing to check against: {without[0]} has no per_instance_stats.json")
    return tuple(unused)


READER = Reader("HELM's run folders of multiple choice (scenario_state.json)", _recognises, _read)
"""Run folders of HELM."""
