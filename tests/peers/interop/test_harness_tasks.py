"""Harness tasks and groups that we invent, asked by the released harness and by us: the same texts and numbers."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from choicewise.errors import DataError, ProtocolError
from choicewise.extensions.interop.harness_tasks.as_protocols import load_harness_tasks
from choicewise.protocols.protocol import parse_signature, signature
from choicewise.results.run import open_run
from tests.helpers.messages import Gist
from tests.peers.harness_compared import (
    by_harness,
    compare,
    texts_by_harness,
    texts_here,
    write_rows,
    write_task,
)

METRICS = "metric_list:\n  - metric: acc\n  - metric: acc_norm\n"

PLAIN = """output_type: multiple_choice
training_split: train
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{label}}"
doc_to_choice: "{{options}}"
metadata: {version: 2.5}
"""
PLAIN += METRICS


def rows(count: int, seed: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Questions about an invented town."""
    draw = random.Random(seed)
    places = ["the mill", "a long pier", "Tollgate Lane", "St. Brannoc's tower {old}", "the  weir"]
    made = []
    for number in range(count):
        options = [
            f"{place} number {draw.randrange(50)}"
            for place in draw.sample(places, draw.choice([3, 4]))
        ]
        does = draw.choice(["end", "begin", "turn"])
        row = {
            "question": f"Where does road {number} of Merrowick {does} in {draw.randrange(2000)}?"
        }
        made.append(
            {
                **row,
                "options": options,
                "label": draw.randrange(3),
                "topic": f"roads {number % 3}",
                **more,
            }
        )
    return made


SPLITS = {"train": rows(30, 1), "test": rows(12, 2)}


@pytest.mark.parametrize("shots", [None, 3])
def test_a_plain_task_is_a_protocol_value(shots: int | None, tmp_path: Path) -> None:
    task = compare(str(write_task(tmp_path, "roads", SPLITS, PLAIN)), tmp_path / "run", shots=shots)
    suffix = "" if shots is None else "@shots=3"
    assert list(task.protocols) == [f"lm-eval:roads:acc{suffix}", f"lm-eval:roads:acc_norm{suffix}"]
    assert (task.rendered, task.notes) == ((), ())
    recipe = task.protocols[f"lm-eval:roads:acc{suffix}"]
    assert (recipe.question, recipe.shots) == ("Question: {question}\nAnswer:", shots or 0)
    assert parse_signature(signature(recipe)) == recipe
    assert task.data.read_with == "lm-eval 0.4.13: task roads, version 2.5, data json"


ANSWERS = "doc_to_target: label\ndoc_to_choice: options\n"

SHAPES = {
    "a field as text, a text as target": "doc_to_text: question\ndoc_to_target: answer\ndoc_to_choice: options\n",
    "expressions": 'doc_to_text: "{{question.upper()}} ({{topic}})\\n{{options[0]}}\\n"\ndoc_to_target: "{{label}}"\n'
    'doc_to_choice: ["A", "B", "C"]\n',
    "letters": 'doc_to_text: "{{question}}\\nAnswer:"\ndoc_to_target: letter\ndoc_to_choice: [A, B, C]\n',
    "a description": 'description: "Roads of {old} Merrowick.\\n\\n"\ndoc_to_text: "{{question}}"\n'
    + ANSWERS,
    "a description with a field": 'description: "About {{topic}}.\\n"\ndoc_to_text: "{{question}}"\n'
    + ANSWERS,
    "fields that we call otherwise": 'doc_to_text: "{{subject}}: {{question}} {{choice}}"\n'
    + ANSWERS,
    "a delimiter": 'doc_to_text: "{{question}}\\n"\ntarget_delimiter: "\\n"\nfewshot_delimiter: "\\n---\\n"\n'
    + ANSWERS,
    "no delimiter": 'doc_to_text: "{{question}} "\ntarget_delimiter: ""\n' + ANSWERS,
    "choices of a table": 'doc_to_text: "{{question}}"\ndoc_to_target: 1\ndoc_to_choice: {a: "yes", b: "no"}\n',
    "first shots": 'doc_to_text: "{{question}}"\nfewshot_config: {sampler: first_n}\n' + ANSWERS,
}
KEPT = {
    "statements": 'doc_to_text: "{% if label %}Which? {% endif %}{{question}}"\n' + ANSWERS,
    "white space control": 'doc_to_text: "Q: {{- question -}} A:"\n' + ANSWERS,
    "a prefix": 'doc_to_text: "{{question}}"\ngen_prefix: "The answer is"\n' + ANSWERS,
    "shots of another form": 'doc_to_text: "{{question}}"\nfewshot_config: {doc_to_text: "So: {{question}}"}\n'
    + ANSWERS,
    "choices that are contexts": 'doc_to_text: "{{label}}"\ndoc_to_target: "{{topic}}."\n'
    "doc_to_choice: \"{{[question ~ ' ' ~ options[0], question ~ ' ' ~ options[1], question ~ ' no']}}\"\n",
}


def shaped(shape: str) -> str:
    return "output_type: multiple_choice\ntraining_split: train\ntest_split: test\n" + shape


def filled(count: int, seed: int) -> list[dict[str, Any]]:
    return [
        {**row, "answer": row["options"][row["label"]], "letter": "ABC"[row["label"]]}
        for row in rows(count, seed, subject="a_b", choice="{c}")
    ]


@pytest.mark.parametrize("shots", [0, 2])
@pytest.mark.parametrize("name", [*SHAPES, *KEPT])
def test_shapes_are_rendered_by_a_protocol_or_kept_as_rendered(
    name: str, shots: int, tmp_path: Path
) -> None:
    text = shaped({**SHAPES, **KEPT}[name]) + "metric_list:\n  - metric: acc\n"
    path = write_task(tmp_path, "roads", {"train": filled(20, 3), "test": filled(6, 4)}, text)
    task = compare(str(path), tmp_path / "run", shots=shots)
    if name in SHAPES:
        assert task.rendered == (), task.notes
        return
    (rendered,) = task.rendered
    assert all(each.requests == rendered.digest for each in task.protocols.values())
    assert any("as the harness renders" in note for note in task.notes)


def listed(rows: list[dict[str, Any]], gold: Any) -> list[dict[str, Any]]:
    return [{**row, "label": gold(number, row)} for number, row in enumerate(rows)]


LABELLED = shaped('doc_to_text: "{{question}}"\ndoc_to_target: label\ndoc_to_choice: options\n')


def test_all_metrics_of_choices(tmp_path: Path) -> None:
    names = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")
    metrics = "metric_list:\n" + "".join(f"  - metric: {name}\n" for name in names)
    path = write_task(
        tmp_path, "roads", {"train": rows(5, 1), "test": rows(15, 9)}, LABELLED + metrics
    )
    task = compare(str(path), tmp_path / "run")
    scores = {name.rpartition(":")[2]: recipe.score for name, recipe in task.protocols.items()}
    expected = {
        "acc": "sum",
        "acc_norm": "char_mean_bare",
        "acc_bytes": "byte_mean_bare",
        "acc_mutual_info": "pmi",
    }
    assert scores == expected | {"exact_match": "greedy"}


def test_a_metric_that_is_aggregated_otherwise_is_not_averaged_in_silence(tmp_path: Path) -> None:
    metrics = "metric_list:\n  - {metric: acc, aggregation: median}\n  - {metric: acc_norm, aggregation: nanmean}\n"
    path = write_task(
        tmp_path, "roads", {"train": rows(5, 1), "test": rows(9, 9)}, LABELLED + metrics
    )
    task = compare(str(path), tmp_path / "run")
    assert list(task.protocols) == ["lm-eval:roads:acc_norm"]
    assert task.notes == (Gist("lm-eval:roads: ... metric acc ... by median"),)
    with pytest.raises(ProtocolError, match="metric acc is not"):
        load_harness_tasks(f"lm-eval:{path}:acc")


def test_several_right_answers(tmp_path: Path) -> None:
    several = listed(rows(20, 10), lambda number, row: [0, 2] if number % 2 else [1])
    metrics = "metric_list:\n  - metric: acc\n  - metric: acc_norm\n  - metric: exact_match\n"
    path = write_task(
        tmp_path, "roads", {"train": several, "test": several[:9]}, LABELLED + metrics
    )
    task = compare(str(path), tmp_path / "run")
    assert [item.gold for item in task.data.splits["test"]][:2] == [(1,), (0, 2)]


@pytest.mark.parametrize(
    ("asked", "shots"), [("", (0, 2)), ("{% set words = question.split(' ') %}", (0,))]
)
def test_one_target_to_continue_with(asked: str, shots: tuple[int, ...], tmp_path: Path) -> None:
    """After a text that is a template's value, or one of statements, which is kept."""
    words = "words[:-1]" if asked else "question.split(' ')[:-1]"
    text = "output_type: loglikelihood\ntest_split: test\n" + "training_split: train\n" * (
        not asked
    )
    text += f"doc_to_text: \"{asked}{{{{{words}|join(' ')}}}}\"\n"
    text += "doc_to_target: \"{{' ' + question.split(' ')[-1]}}\"\nmetric_list: [{metric: perplexity}, {metric: acc}]\n"
    path = write_task(tmp_path, "roads", {"train": rows(20, 11), "test": rows(9, 12)}, text)
    for count in shots:
        task = compare(
            str(path), tmp_path / f"run-{count}", shots=count if len(shots) > 1 else None
        )
        assert len(task.rendered) == bool(asked), task.notes


def test_test_rows_as_shots_contain_the_answer_and_that_is_said(tmp_path: Path) -> None:
    text = "\n".join(line for line in PLAIN.split("\n") if not line.startswith("training_split"))
    task = compare(
        str(write_task(tmp_path, "roads", {"test": rows(7, 13)}, text)), tmp_path / "run", shots=4
    )
    own = [note for note in task.notes if "own few-shot examples" in note]
    assert len(own) == 1
    assert "of 7 rows of roads" in own[0]
    assert len(task.rendered) == 1


@pytest.mark.parametrize(
    "keys", ["", "fewshot_split: train\n", "fewshot_split: test\n", "fewshot_split: validation\n"]
)
@pytest.mark.parametrize(
    "splits", [("train", "test"), ("train", "validation"), ("validation", "test")]
)
def test_shots_from_every_split(keys: str, splits: tuple[str, str], tmp_path: Path) -> None:
    names = {"train": "training_split", "validation": "validation_split", "test": "test_split"}
    if keys and keys.split()[1] not in splits:
        pytest.skip("no such split")
    text = PLAIN.replace("training_split: train\ntest_split: test\n", keys)
    text += "".join(f"{names[split]}: {split}\n" for split in splits)
    path = write_task(tmp_path, "roads", {splits[0]: rows(25, 14), splits[1]: rows(10, 15)}, text)
    (task,) = load_harness_tasks(f"lm-eval:{path}@shots=3")
    assert (
        texts_here(task, next(iter(task.protocols)))
        == texts_by_harness(str(path), shots=3)["roads"]
    )


def test_samples_written_in_the_file(tmp_path: Path) -> None:
    samples = "".join(f"    - {row!r}\n" for row in rows(4, 16))
    text = f"{PLAIN}fewshot_config:\n  sampler: first_n\n  samples:\n{samples}"
    path = write_task(tmp_path, "roads", {"train": rows(5, 17), "test": rows(5, 18)}, text)
    compare(str(path), tmp_path / "run", shots=3)


BAD = {"negative": "-1", "out of range": "7", "no index": None, "another kind": "[0]"}


@pytest.mark.parametrize("name", BAD)
def test_rows_without_a_right_answer_are_refused_or_missing(name: str, tmp_path: Path) -> None:
    made = listed(rows(6, 19), lambda number, row: "0")
    bad: list[dict[str, Any]] = [*made[:3], {**made[3], "label": BAD[name]}, *made[4:]]
    text = LABELLED.replace("doc_to_target: label", 'doc_to_target: "{{ label }}"') + METRICS
    path = write_task(tmp_path, "roads", {"train": made, "test": bad}, text)
    with pytest.raises(DataError, match="lm-eval:roads, row 3: its target") as error:
        load_harness_tasks(f"lm-eval:{path}")
    assert "skip bad items" in str(error.value)
    (task,) = load_harness_tasks(f"lm-eval:{path}", on_bad_item="skip")
    assert [item.id for item in task.data.splits["test"]] == ["0", "1", "2", "4", "5"]
    assert [(each.row, each.file) for each in task.data.skipped] == [(3, "lm-eval:roads")]


def test_the_shots_of_other_rows_stay_those_of_the_harness_where_one_is_left_out(
    tmp_path: Path,
) -> None:
    test = listed(rows(6, 20), lambda number, row: 9 if number == 2 else 1)
    path = write_task(tmp_path, "roads", {"train": rows(20, 21), "test": test}, LABELLED + METRICS)
    (task,) = load_harness_tasks(f"lm-eval:{path}@shots=2", on_bad_item="skip")
    counts = [len(row["options"]) for row in test]
    theirs = texts_by_harness(str(path), shots=2)["roads"]
    start = sum(counts[:2])
    kept = theirs[:start] + theirs[start + counts[2] :]
    assert texts_here(task, next(iter(task.protocols))) == kept
    assert task.rendered


def test_digits_are_an_index_as_in_the_harness_and_that_is_said(tmp_path: Path) -> None:
    made = [
        {"question": f"{n} + 1?", "options": ["3", "1", "2", "0"], "answer": str(n % 3 + 1)}
        for n in range(6)
    ]
    text = (
        shaped(
            'doc_to_text: "{{question}}"\ndoc_to_target: "{{answer}}"\ndoc_to_choice: "{{options}}"\n'
        )
        + METRICS
    )
    task = compare(
        str(write_task(tmp_path, "sums", {"train": made, "test": made}, text)), tmp_path / "run"
    )
    assert [item.gold for item in task.data.splits["test"]][:3] == [(1,), (2,), (3,)]
    (note,) = (note for note in task.notes if "index" in note)
    assert note == Gist("lm-eval:sums: ... 2 rows of sums ... text of one choice")


# Groups and tags: one dataset with a subject for each task, or a dataset for each

TEMPLATE = (
    "dataset_path: json\noutput_type: multiple_choice\ntest_split: test\nfewshot_split: dev\n"
)
TEMPLATE += (
    'doc_to_text: "{{question.strip()}}\\nAnswer:"\ndoc_to_target: label\ndoc_to_choice: options\n'
    + METRICS
)


def write_group(folder: Path, group: str, sampler: str = "first_n") -> Path:
    """A group of tasks ``town_a``, ``town_b`` and ``town_c`` of different sizes, which include one template."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_template").write_text(TEMPLATE + f"fewshot_config: {{sampler: {sampler}}}\n")
    for number in range(3):
        name = f"town_{'abc'[number]}"
        test = write_rows(folder, f"{name}-test", rows(4 + 5 * number, number))
        dev = write_rows(folder, f"{name}-dev", rows(6, 50 + number))
        files = json.dumps({"data_files": {"test": str(test), "dev": str(dev)}})
        text = f"include: _template\ntask: {name}\ntask_alias: {name[-1]}\ntag: towns_tag\ndataset_kwargs: {files}\n"
        text += f'description: "Questions about town {number}.\\n\\n"\n'
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
def test_a_group_is_one_dataset_with_its_tasks_as_subjects(
    sampler: str, shots: int | None, tmp_path: Path
) -> None:
    folder = write_group(tmp_path / "tasks", MICRO, sampler=sampler)
    task = compare("towns", tmp_path / "run", [folder], shots)
    acc, norm = task.protocols.values()
    assert (acc.aggregation, norm.aggregation) == ("micro", "macro")
    assert (task.data.subjects("test"), task.rendered) == (("town_a", "town_b", "town_c"), ())
    assert acc.header == "{task description}"
    assert task.data.read_with.startswith("lm-eval 0.4.13: group of 3 tasks towns, version 3")
    if (sampler, shots) == (
        "first_n",
        None,
    ):  # that over rows the harness pools, which leaves out how tasks differ
        error = by_harness("towns", [folder], iterations=2)["results"]["towns"][
            "acc_norm_stderr,none"
        ]
        norm = open_run(tmp_path / "run").measurements["lm-eval:towns:acc_norm"]
        assert math.isclose(norm.values()["all"].se, error, rel_tol=1e-6)


def test_nested_groups_average_over_all_their_tasks(tmp_path: Path) -> None:
    nested = """group: county
task:
  - group: inner
    task: [town_a, town_b]
    aggregate_metric_list: [{metric: acc, weight_by_size: true}]
  - town_c
aggregate_metric_list: [{metric: acc, weight_by_size: false}]
"""
    task = compare("county", tmp_path / "run", [write_group(tmp_path / "tasks", nested)])
    assert {name: each.aggregation for name, each in task.protocols.items()}[
        "lm-eval:county:acc"
    ] == "macro"
    assert any("how acc_norm is averaged" in note for note in task.notes)


def test_overrides_of_a_group_and_tasks_that_it_spells_out(tmp_path: Path) -> None:
    folder = write_group(tmp_path / "tasks", "")
    files = json.dumps({"data_files": {"test": str(write_rows(folder, "own", rows(5, 77)))}})
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
    assert texts_here(task, "lm-eval:mixed:acc") == [
        pair for pairs in theirs.values() for pair in pairs
    ]
    assert any("acc_norm is not computed" in note and "mixed::own" in note for note in task.notes)
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
    "a circle": (
        "one",
        "group: one\ntask: [two]\n",
        CIRCLE,
        "one holds two holds one: groups in a circle",
    ),
    "a task that generates": (
        "towns",
        MICRO,
        GENERATED,
        "output type generate_until",
    ),
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
