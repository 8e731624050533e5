"""Groups of the harness's tasks: one run with a subject for each task, and the group's own numbers."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise import import_log, open_run
from choicewise.errors import DataError, UsageError
from choicewise.interchange.logs.import_log import read_logs
from choicewise.store.folder import read_sweep, write_manifest
from tests.helpers.commands import choicewise
from tests.helpers.harness_logs import DATE, mean, results_of, samples
from tests.helpers.imported_runs import one_run, unused, values, write_lines

SIZES = {"town_a": 4, "town_b": 9, "town_c": 14}


def write_group(
    folder: Path,
    weighted: dict[str, bool],
    tree: dict[str, list[str]] | None = None,
    sizes: dict[str, int] = SIZES,
    **changes: Any,
) -> dict[str, Any]:
    """A folder of the harness on tasks of ``sizes``; ``weighted``: metric → whether the group counts items.

    ``tree``: group → what it names; every group has all numbers.
    """
    tree = tree or {"towns": [*sizes]}
    rows = {task: samples(size) for task, size in sizes.items()}
    results = results_of(rows["town_a"])
    each = {task: results_of(own, task) for task, own in rows.items()}
    for part in ("results", "configs", "versions", "n-shot", "n-samples"):
        results[part] = {task: own[part][task] for task, own in each.items()}
    results["group_subtasks"] = tree
    results["groups"] = {}

    def leaves(name: str) -> list[str]:
        return [leaf for child in tree[name] for leaf in (leaves(child) if child in tree else [child])]

    for group in tree:
        own = leaves(group)
        numbers = {}
        for metric, by_items in weighted.items():
            counts = [sizes[task] if by_items else 1 for task in own]
            means = [mean(rows[task], metric) for task in own]
            numbers[f"{metric},none"] = float(np.average(means, weights=counts))
            numbers[f"{metric}_stderr,none"] = 0.1
        results["groups"][group] = results["results"][group] = {"alias": group, "name": group, **numbers}
    results |= changes
    for task, own_rows in rows.items():
        write_lines(folder / f"samples_{task}_{DATE}.jsonl", own_rows)
    (folder / f"results_{DATE}.json").write_text(json.dumps(results), encoding="utf-8")
    return results


@pytest.mark.parametrize("by_items", [True, False])
def test_a_group_is_one_run_with_its_number(by_items: bool, tmp_path: Path) -> None:
    results = write_group(tmp_path / "out", {"acc": by_items, "acc_norm": by_items})
    run = one_run(tmp_path / "out", tmp_path / "run")
    assert run.manifest.dataset.name == "towns"
    numbers, group = values(run), results["groups"]["towns"]
    assert numbers["sum"][:2] == (pytest.approx(group["acc,none"]), sum(SIZES.values()))
    assert numbers["char_mean_bare"][0] == pytest.approx(group["acc_norm,none"])
    assert run.protocols["towns:sum"].aggregation == ("micro" if by_items else "macro")
    by = {row["subject"]: row for row in run.report(by="subjects").to_pylist() if row["protocol"] == "towns:sum"}
    for task in SIZES:
        assert by[task]["value"] == pytest.approx(results["results"][task]["acc,none"])
    assert run.tables.items["item"][0].as_py() == "town_a/0"


def test_metrics_are_averaged_each_in_its_own_way(tmp_path: Path) -> None:
    results = write_group(tmp_path / "out", {"acc": True, "acc_norm": False})
    numbers, group = values(one_run(tmp_path / "out", tmp_path / "run")), results["groups"]["towns"]
    assert numbers["sum"][0] == pytest.approx(group["acc,none"])
    macro = numbers["char_mean_bare@aggregation=macro"][0]
    assert macro == pytest.approx(group["acc_norm,none"])
    assert macro != pytest.approx(numbers["char_mean_bare"][0])


@pytest.mark.parametrize("by_items", [True, False])
def test_equal_sizes_are_averaged_as_the_group_says(by_items: bool, tmp_path: Path) -> None:
    results = write_group(tmp_path / "out", {"acc": True}, sizes={"town_a": 4, "town_b": 4})
    if not by_items:
        results["configs"]["towns"] = {"aggregate_metric_list": [{"metric": "acc", "weight_by_size": False}]}
    (tmp_path / "out" / f"results_{DATE}.json").write_text(json.dumps(results))
    run = one_run(tmp_path / "out", tmp_path / "run")
    assert run.protocols["towns:sum"].aggregation == ("micro" if by_items else "macro")


def test_of_nested_groups_the_outer_one_is_the_run(tmp_path: Path) -> None:
    tree = {"county": ["inner", "town_c"], "inner": ["town_a", "town_b"]}
    results = write_group(tmp_path / "out", {"acc": True}, tree)
    run = one_run(tmp_path / "out", tmp_path / "run")
    assert run.manifest.dataset.name == "county"
    assert values(run)["sum"][0] == pytest.approx(results["groups"]["county"]["acc,none"])
    assert any("inner" in text for text in unused(run))


def test_a_group_in_a_circle_ends(tmp_path: Path) -> None:
    write_group(tmp_path / "out", {"acc": True}, group_subtasks={"towns": ["other"], "other": ["towns", *SIZES]})
    assert len(import_log(tmp_path / "out", tmp_path / "run")) in (1, len(SIZES))


SEPARATE: dict[str, tuple[Any, str]] = {
    "no number": (lambda results: results.update(groups={}) or results["results"].pop("towns"), ""),
    "another number": (
        lambda results: results["groups"]["towns"].update({"acc,none": 0.987}),
        "its acc,none is 0.987, and its tasks have",
    ),
    "absent": (lambda results: None, "absent of 1 of its 3 tasks, such as town_b"),
    "kinds": (lambda results: results["configs"]["town_a"].update(output_type="loglikelihood"), "output types"),
    "tag": (lambda results: results.update(group_subtasks={}), ""),
}
"""What a file of results says → why the tasks stay apart; nothing is said where it has no group with a number."""


@pytest.mark.parametrize("name", SEPARATE)
def test_tasks_stay_apart_where_they_are_not_the_group(name: str, tmp_path: Path) -> None:
    results, (change, says) = write_group(tmp_path, {"acc": True}), SEPARATE[name]
    change(results)
    (tmp_path / f"results_{DATE}.json").write_text(json.dumps(results))
    if name == "absent":
        (tmp_path / f"samples_town_b_{DATE}.jsonl").unlink()
    with pytest.warns(UserWarning, match=f"stay apart.*{says}") if says else nullcontext():
        logs = read_logs([tmp_path])
    assert {log.task for log in logs} == {*SIZES} - ({"town_b"} if name == "absent" else set())


def test_broken_files_are_named_and_do_not_lose_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_group(folder, {"acc": True}, group_subtasks={})
    path = folder / f"samples_town_b_{DATE}.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-40])
    with pytest.raises(DataError, match=r"town_b.*line 9.*cut off.*the others are in"):
        import_log(folder, tmp_path / "runs")
    cells = {cell.dataset: cell for cell in read_sweep(tmp_path / "runs").cells}
    assert {task: cell.done for task, cell in cells.items()} == {"town_a": True, "town_b": False, "town_c": True}
    assert "line 9" in cells["town_b"].failure
    for task in ("town_a", "town_c"):
        assert open_run(tmp_path / "runs" / cells[task].folder).manifest.complete
    path.write_text(whole)
    assert len(import_log(folder, tmp_path / "runs")) == 3
    for path in folder.glob("samples_*"):
        path.write_text(path.read_text()[:-40])
    with pytest.raises(DataError, match="3 of 3") as caught:
        import_log(folder, tmp_path / "others")
    assert all(task in str(caught.value) for task in SIZES)


@pytest.mark.parametrize("command", [("report",), ("ladder", "towns:sum", "towns:char_mean_bare")])
def test_an_unfinished_import_is_finished_by_import(command: tuple[str, ...], tmp_path: Path) -> None:
    write_group(tmp_path / "out", {"acc": True})
    run = one_run(tmp_path / "out", tmp_path / "run")
    write_manifest(run.folder, replace(run.manifest, complete=False))
    printed = choicewise(*command, run.folder).stderr
    assert "is not complete; run the same `choicewise import` command again" in printed


LATER = "2025-01-01T00-00-00.000001"


@pytest.mark.parametrize("shots", [0, 5])
def test_of_repeated_runs_the_newest_is_taken(shots: int, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_group(folder, {"acc": True})
    rows = samples(3)
    results = results_of(rows, "town_a", **{"n-shot": {"town_a": shots}})
    write_lines(folder / f"samples_town_a_{LATER}.jsonl", rows)
    (folder / f"results_{LATER}.json").write_text(json.dumps(results))
    for task in ("town_b", "town_c"):
        (folder / f"samples_{task}_{DATE}.jsonl").unlink()
    early = folder / f"results_{DATE}.json"
    early.write_text(json.dumps(json.loads(early.read_text()) | {"group_subtasks": {}}))
    if shots:
        with pytest.raises(UsageError, match=rf"{DATE}.* and .*{LATER}.*one by one"):
            import_log(folder, tmp_path / "run")
        return
    run = one_run(folder, tmp_path / "run")
    assert values(run)["sum"][1] == 3
    assert unused(run) == (f"samples_town_a_{DATE}.jsonl, which is older",)
