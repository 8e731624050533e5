"""Groups and tags of harness tasks: one dataset with a subject for each task, or a dataset for each."""

import json
import math
from pathlib import Path

import pytest

from choicewise.errors import ProtocolError
from choicewise.interchange.harness_tasks.as_protocols import load_harness_tasks
from tests.peers.harness_compared import by_harness, by_us, compare, texts_by_harness, texts_here, write_rows
from tests.peers.test_harness_tasks import METRICS, rows

TEMPLATE = "dataset_path: json\noutput_type: multiple_choice\ntest_split: test\nfewshot_split: dev\n"
TEMPLATE += 'doc_to_text: "{{question.strip()}}\\nAnswer:"\ndoc_to_target: label\ndoc_to_choice: options\n' + METRICS


def write_group(
    folder: Path, group: str, subjects: int = 3, sampler: str = "first_n", description: bool = True
) -> Path:
    """A group of tasks ``town_a``, ``town_b``, ... of different sizes, which include one template."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_template").write_text(TEMPLATE + f"fewshot_config: {{sampler: {sampler}}}\n")
    for number in range(subjects):
        name = f"town_{'abcdef'[number]}"
        test = write_rows(folder, f"{name}-test", rows(4 + 5 * number, number))
        dev = write_rows(folder, f"{name}-dev", rows(6, 50 + number))
        files = json.dumps({"data_files": {"test": str(test), "dev": str(dev)}})
        text = f"include: _template\ntask: {name}\ntask_alias: {name[-1]}\ntag: towns_tag\ndataset_kwargs: {files}\n"
        text += f'description: "Questions about town {number}.\\n\\n"\n' if description else ""
        (folder / f"{name}.yaml").write_text(text)
    (folder / "group.yaml").write_text(group)
    return folder


MICRO = """group: towns
task: [town_a, town_b, town_c]
aggregate_metric_list:
  - metric: acc
    weight_by_size: true
  - metric: acc_norm
    weight_by_size: false
metadata: {version: 3}
"""


@pytest.mark.parametrize("sampler", ["first_n", "default"])
@pytest.mark.parametrize("shots", [None, 2])
def test_a_group_is_one_dataset_with_its_tasks_as_subjects(sampler: str, shots: int | None, tmp_path: Path) -> None:
    folder = write_group(tmp_path / "tasks", MICRO, sampler=sampler)
    task = compare("towns", tmp_path / "run", [folder], shots)
    acc, norm = task.protocols.values()
    assert (acc.aggregation, norm.aggregation) == ("micro", "macro")
    assert task.data.subjects("test") == ("town_a", "town_b", "town_c")
    assert task.rendered == ()
    assert acc.header == "{task description}"
    assert task.data.read_with.startswith("lm-eval 0.4.13: group of 3 tasks towns, version 3")


def test_standard_errors_of_groups(tmp_path: Path) -> None:
    """Of the mean over tasks the harness has ours; that over rows it pools, which leaves out how tasks differ."""
    folder = write_group(tmp_path / "tasks", MICRO)
    (task,) = load_harness_tasks("lm-eval:towns", include_path=[folder])
    run = by_us(task, tmp_path / "run")
    theirs = by_harness("towns", [folder], iterations=2)["results"]["towns"]
    values = {name: measured.values()["all"] for name, measured in run.measurements.items()}
    assert math.isclose(values["lm-eval:towns:acc_norm"].se, theirs["acc_norm_stderr,none"], rel_tol=1e-6)


def test_nested_groups_average_over_all_their_tasks(tmp_path: Path) -> None:
    nested = """group: county
task:
  - group: inner
    task: [town_a, town_b]
    aggregate_metric_list: [{metric: acc, weight_by_size: true}]
  - town_c
aggregate_metric_list: [{metric: acc, weight_by_size: false}]
"""
    folder = write_group(tmp_path / "tasks", nested)
    task = compare("county", tmp_path / "run", [folder])
    assert {name: each.aggregation for name, each in task.protocols.items()}["lm-eval:county:acc"] == "macro"
    assert any("how acc_norm is averaged" in note for note in task.notes)


def test_overrides_of_a_group_and_tasks_that_it_spells_out(tmp_path: Path) -> None:
    folder = write_group(tmp_path / "tasks", "")
    row = rows(5, 77)
    files = json.dumps({"data_files": {"test": str(write_rows(folder, "own", row))}})
    (folder / "group.yaml").write_text(
        f"""group: mixed
num_fewshot: 1
task:
  - town_a
  - task: town_b
    num_fewshot: 2
  - task: own
    dataset_path: json
    dataset_kwargs: {files}
    output_type: multiple_choice
    test_split: test
    doc_to_text: "{{{{question}}}}"
    doc_to_target: label
    doc_to_choice: options
    metric_list: [{{metric: acc}}]
    num_fewshot: 0
aggregate_metric_list: [{{metric: acc}}]
"""
    )
    (task,) = load_harness_tasks("lm-eval:mixed", include_path=[folder])
    theirs = texts_by_harness("mixed", [folder])
    assert list(theirs) == ["town_a", "town_b", "mixed::own"]
    assert task.data.subjects("test") == tuple(theirs)
    assert texts_here(task, "lm-eval:mixed:acc") == [pair for pairs in theirs.values() for pair in pairs]
    assert any("acc_norm is not computed here" in note and "mixed::own" in note for note in task.notes)
    assert any("differ in" in note for note in task.notes)


def test_a_tag_is_a_dataset_for_each_task_and_a_named_folder_comes_first(tmp_path: Path) -> None:
    folder = write_group(tmp_path / "tasks", MICRO.replace("towns", "mmlu"))
    tasks = load_harness_tasks("lm-eval:towns_tag:acc", include_path=[folder])
    assert [task.name for task in tasks] == ["lm-eval:town_a", "lm-eval:town_b", "lm-eval:town_c"]
    assert [list(task.protocols) for task in tasks] == [[f"{task.name}:acc"] for task in tasks]
    assert tasks[0].data.subjects("test") == ("",)
    (task,) = load_harness_tasks("lm-eval:mmlu", include_path=[folder])
    assert task.data.subjects("test") == ("town_a", "town_b", "town_c")


CIRCLE, GENERATED = (
    "group: two\ntask: [town_a, one]\n",
    "task: town_b\ninclude: _template\noutput_type: generate_until\n",
)
REFUSED = {
    "a circle": ("one", "group: one\ntask: [two]\n", CIRCLE, "one holds two holds one: groups in a circle"),
    "a task that generates": ("towns", MICRO, GENERATED, "task town_b has output type generate_until"),
    "a name that is none": (
        "towns",
        "group: towns\ntask:\n  - town_a\n  - town_x\n",
        "task: other\n",
        r"group.yaml, line 2: group towns: no task.*'town_x'; did you mean town_",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_group_that_can_not_be_asked_is_refused_by_name(name: str, tmp_path: Path) -> None:
    group, text, further, says = REFUSED[name]
    folder = write_group(tmp_path / "tasks", text)
    (folder / ("town_b.yaml" if further == GENERATED else "further.yaml")).write_text(further)
    with pytest.raises(ProtocolError, match=says):
        load_harness_tasks(f"lm-eval:{group}", include_path=[folder])
