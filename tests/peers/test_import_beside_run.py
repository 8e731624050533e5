"""Samples that the released harness writes of a model, beside our own run of the same task with the same model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lm_eval import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from choicewise import evaluate, import_log
from choicewise.bundled import MODELS
from choicewise.interchange.harness_tasks.as_protocols import load_harness_tasks
from choicewise.results.compare import comparisons
from choicewise.results.run import Run

from .harness_models import theirs
from .test_harness_task_groups import MICRO, write_group

FOLDER = sorted(MODELS)[0]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The task files, and what the harness writes of a model on a group of them with two shots."""
    tasks = write_group(tmp_path_factory.mktemp("tasks") / "towns", MICRO)
    out = tmp_path_factory.mktemp("out")
    tracker = EvaluationTracker(output_path=str(out))
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    results = simple_evaluate(
        model=theirs(FOLDER.name),
        tasks=["towns"],
        num_fewshot=2,
        task_manager=manager,
        bootstrap_iters=2,
        evaluation_tracker=tracker,
    )
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for name in results["configs"]:
        tracker.save_results_samples(task_name=name, samples=samples[name])
    return tasks, out


@pytest.fixture(scope="module")
def runs(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The imported run and our own."""
    tasks, out = folders
    (logged,) = import_log(out, tmp_path_factory.mktemp("logged") / "run")
    (task,) = load_harness_tasks("lm-eval:towns@shots=2", include_path=[tasks])
    own = evaluate(
        model=str(FOLDER), data=task.data, protocols=task.protocols, out=tmp_path_factory.mktemp("own") / "run"
    )
    return logged, own


def test_the_group_has_the_harness_s_own_numbers(runs: tuple[Run, Run], folders: tuple[Path, Path]) -> None:
    (path,) = folders[1].rglob("results_*.json")
    group = json.loads(path.read_text(encoding="utf-8"))["groups"]["towns"]
    numbers = {row["protocol"]: row["value"] for run in runs for row in run.report().to_pylist()}
    assert numbers["towns:sum"] == pytest.approx(group["acc,none"])
    assert numbers["towns:char_mean_bare@aggregation=macro"] == pytest.approx(group["acc_norm,none"])
    ours = {name.rpartition(":")[2].partition("@")[0]: value for name, value in numbers.items() if "lm-eval" in name}
    assert ours["acc"] == pytest.approx(group["acc,none"])
    assert ours["acc_norm"] == pytest.approx(group["acc_norm,none"])


def test_the_sums_of_every_choice_agree(runs: tuple[Run, Run]) -> None:
    sums = []
    for run in runs:
        name = next(name for name, each in run.protocols.items() if each.score == "sum" and each.metric == "acc")
        measured = run.measurements[name]
        sums.append((list(measured.evidence.ids), measured.scores.tolist()))
    assert sums[0][0] == sums[1][0]
    assert sums[0][1] == pytest.approx(sums[1][1], abs=1e-4)


def test_they_are_comparable(runs: tuple[Run, Run]) -> None:
    logged, own = runs
    name = next(name for name, each in own.protocols.items() if each.score == "sum")
    (compared,) = comparisons(logged, own, ["towns:sum", name])
    assert compared.agree.i
    assert compared.verdict == "comparable"
    (other,) = comparisons(logged, own, ["towns:char_mean_bare", name])
    assert other.verdict == "not comparable"
