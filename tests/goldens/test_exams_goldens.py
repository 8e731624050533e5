"""Benchmarks after MMLU, held against what the released harness sends for rows in the Hub's field names."""

import json
import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.data.splits import SPLITS
from choicewise.errors import DataError
from choicewise.protocols.catalogue import one
from choicewise.protocols.preparations import PREPARATIONS
from choicewise.protocols.shots import sample
from choicewise.requests.render import render
from tests.helpers.protocols import requests
from tests.paths import GOLDENS

HERE = GOLDENS / "exams"
ROWS = json.loads((HERE / "rows.json").read_text(encoding="utf-8"))
SENT = json.loads((HERE / "requests.json").read_text(encoding="utf-8"))["requests"]
CASES = [(name, shots, subject) for name, each in SENT.items() for shots, of in each.items() for subject in of]


def dataset(name: str, subject: str, folder: Path) -> Dataset:
    """The rows of one subject as a user's files give them, under the benchmark's own mapping."""
    for split, rows in ROWS[name][subject].items():
        lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    opened = open_dataset(folder, columns=benchmark(name).columns)
    named = {split: [replace(item, subject=subject) for item in items] for split, items in opened.splits.items()}
    return Dataset(name, named if subject else opened.splits)


@pytest.mark.parametrize(("name", "shots", "subject"), CASES)
def test_the_harness_sends_the_same(name: str, shots: str, subject: str, tmp_path: Path) -> None:
    protocol = replace(one(name).protocol, shots=int(shots))
    data = dataset(name.partition("/")[0], subject, tmp_path)
    asked = [request for each in data.subjects(protocol.split or "") for request in requests(protocol, data, each)]
    golden = SENT[name][shots][subject]
    assert len(asked) == len(golden)
    for request, sent in zip(asked, golden, strict=True):
        if protocol.reading == "generate":
            ((context, how),) = sent
            assert (request.context(), protocol.stop) == (context, how["until"][0])
        else:
            assert [[request.context(), text] for text in request.continuations] == sent


@pytest.mark.parametrize(
    ("name", "subject", "query", "shot", "continuation"),
    [
        (
            *("mmlu-pro/olmes-mcf", "math"),
            "Question: What is 7 times 8?\n A. 48\n B. 49\n C. 50\n D. 52\n E. 54\n F. 55\n G. 56\n H. 58\n I. 63\n"
            " J. 64\nAnswer:",
            *("Question: Which is a set?\n{1, 2}\n A. {{1}}\n B. a\n C. b\n D. c\n E. d\nAnswer: A", " G"),
        ),
        (
            *("mmlu-pro/olmes-cf", "math", "Question: What is 7 times 8?\nAnswer:"),
            *("Question: Which is a set?\n{1, 2}\nAnswer: {{1}}", " 56"),
        ),
        (
            *("cmmlu/original", "ancient_chinese"),
            "题目：“目”字的意思是什么？\nA. 耳朵\nB. 鼻子\nC. 嘴\nD. 眼睛\n答案是：",
            *("题目：“走”在古汉语中的意思是什么？\nA. 走路\nB. 跑\nC. 坐\nD. 站\n答案是：B", "D"),
        ),
        (
            *("ceval/original", "accountant"),
            "下列哪项是资产？ \nA. 应付工资\nB. 现金\nC. 借款\nD. 应交税费\n答案：",
            *("下列哪项是负债？\nA. 现金\nB. 应付账款\nC. 存货\nD. 设备\n答案：B", "B"),
        ),
    ],
)
def test_entries_without_a_golden_of_their_own_print_what_their_source_prints(
    name: str, subject: str, query: str, shot: str, continuation: str, tmp_path: Path
) -> None:
    protocol, benchmark_name = replace(one(name).protocol, shots=2), name.partition("/")[0]
    data = dataset(benchmark_name, subject if subject in ROWS[benchmark_name] else "", tmp_path)
    request = next(requests(protocol, data, subject))
    assert request.context().endswith(f"\n\n{shot}\n\n{query}")
    assert request.continuations[request.gold[0]] == continuation


def test_examples_of_the_leaderboard_are_the_same_for_every_subject(tmp_path: Path) -> None:
    data = dataset("mmlu-pro", "", tmp_path)
    protocol = one("mmlu-pro/harness").protocol
    shots = {sample(protocol, data, subject)[0] for subject in data.subjects("test")}
    assert len(data.subjects("test")) == 3
    assert [[item.id for item in own] for own in shots] == [["0", "1", "2", "3", "4"]]
    with pytest.raises(DataError, match="has 6 rows in split 'validation'; 7 shots"):
        sample(replace(protocol, shots=7), data, "math")
    with pytest.raises(DataError, match="would show answers"):
        sample(replace(protocol, shots=1, shot_split="test"), data, "math")


@pytest.mark.parametrize("name", SENT)
def test_a_benchmark_has_the_shots_of_its_task_and_the_splits_it_needs(name: str) -> None:
    protocol = one(name).protocol
    assert protocol.shots == (5 if name == "mmlu-pro/harness" else 0)
    needed = {protocol.split, *([protocol.shot_split] if protocol.shot_split else [])}
    assert needed <= set(benchmark(protocol.benchmark).files) <= set(SPLITS.values())


@pytest.mark.parametrize(("exam", "subjects"), [("cmmlu", 67), ("ceval", 52)])
def test_every_subject_has_its_name_in_chinese(exam: str, subjects: int) -> None:
    table = files("choicewise.protocols").joinpath("preparations", "chinese_subjects.toml").read_text(encoding="utf-8")
    items = [Item("1", "Q", ("a", "b"), (0,), subject) for subject in tomllib.loads(table)[exam]]
    names = [PREPARATIONS[f"{exam}-subjects"](item).fields["chinese_subject"] for item in items]
    assert len(names) == subjects
    assert all(not name.isascii() and name == name.strip() for name in names)


def test_a_subject_that_the_exam_has_not_and_questions_with_an_error_are_refused() -> None:
    item = Item("1", "Q", ("a", "b", "c", "d"), (0,), "agronomie")
    with pytest.raises(DataError, match="subject 'agronomie', which cmmlu has not; did you mean agronomy"):
        PREPARATIONS["cmmlu-subjects"](item)
    assert PREPARATIONS["redux-ok"](item) is item
    wrong = replace(item, fields={"error_type": "wrong_groundtruth"})
    for name, refused, says in (
        ("ceval/harness", item, "which ceval has not"),
        ("mmlu-redux/harness", wrong, "item 1 has the error_type 'wrong_groundtruth' and does not count"),
    ):
        with pytest.raises(DataError, match=says):
            render(one(name).protocol, refused, [])
