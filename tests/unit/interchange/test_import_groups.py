"""Groups of the harness's tasks: one run with a subject for each task, and the group's own numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise import import_log, open_run
from choicewise.cli.commands import invoke
from choicewise.errors import DataError, UsageError
from choicewise.store.folder import read_sweep, write_manifest
from tests.unit.interchange.test_import_logs import DATE, Rows, only, results_of, sample, values, write_lines

SIZES = {"town_a": 4, "town_b": 9, "town_c": 14}


def mean(rows: Rows, metric: str) -> float:
    return float(np.mean([row[metric] for row in rows]))


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
    rows = {task: [sample(number) for number in range(size)] for task, size in sizes.items()}
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
    run = only(import_log(tmp_path / "out", tmp_path / "run"))
    assert run.manifest.dataset.name == "towns"
    numbers = values(run)
    assert numbers["sum"][0] == pytest.approx(results["groups"]["towns"]["acc,none"])
    assert numbers["char_mean_bare"][0] == pytest.approx(results["groups"]["towns"]["acc_norm,none"])
    assert numbers["sum"][1] == sum(SIZES.values())
    assert run.protocols["towns:sum"].aggregation == ("micro" if by_items else "macro")
    by = {row["subject"]: row for row in run.report(by="subjects").to_pylist() if row["protocol"] == "towns:sum"}
    for task in SIZES:
        assert by[task]["value"] == pytest.approx(results["results"][task]["acc,none"])
    items = run.tables.items.to_pylist()
    assert items[0]["item"] == "town_a/0"


def test_metrics_that_are_averaged_in_two_ways(tmp_path: Path) -> None:
    results = write_group(tmp_path / "out", {"acc": True, "acc_norm": False})
    numbers = values(only(import_log(tmp_path / "out", tmp_path / "run")))
    assert numbers["sum"][0] == pytest.approx(results["groups"]["towns"]["acc,none"])
    macro = numbers["char_mean_bare@aggregation=macro"]
    assert macro[0] == pytest.approx(results["groups"]["towns"]["acc_norm,none"])
    assert macro[0] != pytest.approx(numbers["char_mean_bare"][0])


def test_equal_sizes_are_averaged_as_the_group_says(tmp_path: Path) -> None:
    same = {"town_a": 4, "town_b": 4}
    write_group(tmp_path / "one", {"acc": True}, sizes=same)
    assert only(import_log(tmp_path / "one", tmp_path / "a")).protocols["towns:sum"].aggregation == "micro"
    results = write_group(tmp_path / "two", {"acc": True}, sizes=same)
    results["configs"]["towns"] = {"aggregate_metric_list": [{"metric": "acc", "weight_by_size": False}]}
    (tmp_path / "two" / f"results_{DATE}.json").write_text(json.dumps(results))
    assert only(import_log(tmp_path / "two", tmp_path / "b")).protocols["towns:sum"].aggregation == "macro"


def test_of_nested_groups_the_outer_one_is_the_run(tmp_path: Path) -> None:
    tree = {"county": ["inner", "town_c"], "inner": ["town_a", "town_b"]}
    results = write_group(tmp_path / "out", {"acc": True}, tree)
    run = only(import_log(tmp_path / "out", tmp_path / "run"))
    assert run.manifest.dataset.name == "county"
    assert values(run)["sum"][0] == pytest.approx(results["groups"]["county"]["acc,none"])
    assert run.manifest.imported is not None
    assert any("inner" in text for text in run.manifest.imported.unused)


def test_a_group_in_a_circle_ends(tmp_path: Path) -> None:
    write_group(tmp_path / "out", {"acc": True}, group_subtasks={"towns": ["other"], "other": ["towns", *SIZES]})
    assert len(import_log(tmp_path / "out", tmp_path / "run")) in (1, len(SIZES))


@pytest.mark.parametrize("why", ["no number", "another number", "absent", "kinds", "tag"])
def test_tasks_stay_apart_where_they_are_not_the_group(why: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    results = write_group(folder, {"acc": True})
    if why == "no number":
        results["groups"] = {}
        del results["results"]["towns"]
    if why == "another number":
        results["groups"]["towns"]["acc,none"] = results["results"]["towns"]["acc,none"] = 0.987
    if why == "absent":
        (folder / f"samples_town_b_{DATE}.jsonl").unlink()
    if why == "kinds":
        results["configs"]["town_a"]["output_type"] = "loglikelihood"
    if why == "tag":
        results["group_subtasks"] = {}
    (folder / f"results_{DATE}.json").write_text(json.dumps(results))
    if why in ("no number", "tag"):
        runs = import_log(folder, tmp_path / "runs")
    else:
        with pytest.warns(UserWarning, match="stay apart"):
            runs = import_log(folder, tmp_path / "runs")
    assert {run.manifest.dataset.name for run in runs} == {*SIZES} - ({"town_b"} if why == "absent" else set())


def test_a_broken_file_does_not_lose_the_others(tmp_path: Path) -> None:
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


def test_all_broken_files_are_named(tmp_path: Path) -> None:
    write_group(tmp_path / "out", {"acc": True}, group_subtasks={})
    for path in (tmp_path / "out").glob("samples_*"):
        path.write_text(path.read_text()[:-40])
    with pytest.raises(DataError, match="3 of 3") as caught:
        import_log(tmp_path / "out", tmp_path / "runs")
    assert all(task in str(caught.value) for task in SIZES)


@pytest.mark.parametrize("command", [("report",), ("ladder", "towns:sum", "towns:char_mean_bare")])
def test_an_unfinished_import_is_finished_by_import(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_group(tmp_path / "out", {"acc": True})
    run = only(import_log(tmp_path / "out", tmp_path / "run"))
    write_manifest(run.folder, replace(run.manifest, complete=False))
    invoke([*command, str(run.folder)])
    assert "is not complete; run the same `choicewise import` command again" in capsys.readouterr().err


LATER = "2025-01-01T00-00-00.000001"


@pytest.mark.parametrize("shots", [0, 5])
def test_of_repeated_runs_the_newest_is_taken(shots: int, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_group(folder, {"acc": True})
    rows = [sample(number) for number in range(3)]
    results = results_of(rows, "town_a")
    results["n-shot"] = {"town_a": shots}
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
    run = only(import_log(folder, tmp_path / "run"))
    assert values(run)["sum"][1] == 3
    assert run.manifest.imported is not None
    assert run.manifest.imported.unused == (f"samples_town_a_{DATE}.jsonl, which is older",)
