"""Every published shape is recognised, and its answers mean what its publishers say."""

import json
from pathlib import Path

import pytest

from choicewise.data.open import open_dataset
from choicewise.data.rows import SHAPES, Shape, recognise, shape_of

NESTED = [{"text": "a", "label": "1"}, {"text": "b", "label": "2"}]
ROWS = {
    "ARC, original": ({"id": "x", "question": {"stem": "Q", "choices": NESTED, "para": "p"}, "answerKey": "2"}, (1,)),
    "OpenBookQA": (
        {"question_stem": "Q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"},
        (1,),
    ),
    "ARC, CommonsenseQA": (
        {"id": "x", "question": "Q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"},
        (1,),
    ),
    "PIQA": ({"goal": "Q", "sol1": "a", "sol2": "b", "label": 1}, (1,)),
    "COPA": ({"premise": "Q", "choice1": "a", "choice2": "b", "question": "cause", "idx": 7, "label": 1}, (1,)),
    "Social IQa": (
        {"context": "c", "question": "Q", "answerA": "a", "answerB": "b", "answerC": "c", "label": "3"},
        (2,),
    ),
    "WinoGrande": ({"sentence": "Q", "option1": "a", "option2": "b", "answer": "1"}, (0,)),
    "HellaSwag, cleaned": ({"ind": 7, "query": "Q", "endings": ["a", "b"], "label": 1}, (1,)),
    "HellaSwag": ({"ind": 7, "ctx_a": "x", "ctx": "Q", "endings": ["a", "b"], "label": "1"}, (1,)),
    "TruthfulQA, multiple choice": (
        {
            "question": "Q",
            "mc1_targets": {"choices": ["b", "c"], "labels": [1, 0]},
            "mc2_targets": {"choices": ["a", "b", "c"], "labels": [1, 1, 0]},
        },
        (0, 1),
    ),
    "TruthfulQA, generation": (
        {"id": 1, "question": "Q", "best_answer": "a", "correct_answers": ["a", "b", ""], "incorrect_answers": ["c"]},
        (0, 1),
    ),
    "BLiMP": ({"sentence_good": "a", "sentence_bad": "b", "UID": "island", "pairID": "7"}, (0,)),
    "question, choices, answer (MMLU on the Hub)": (
        {"question": "Q", "subject": "law", "choices": ["0", "1", "2"], "answer": 2},
        (2,),
    ),
    "question, A to C, answer": ({"question": "Q", "A": "a", "B": "b", "C": "c", "answer": "C"}, (2,)),
    "SciQ": (
        {"question": "Q", "distractor3": "c", "distractor1": "a", "distractor2": "b", "correct_answer": "d"}
        | {"support": ""},
        (3,),
    ),
    "GPQA": (
        {"Question": "Q", "Correct Answer": "a", "Incorrect Answer 1": "b", "Incorrect Answer 2": "c"}
        | {"Incorrect Answer 3": "d", "Record ID": "rec1"},
        (0,),
    ),
    "MMLU-Pro": (
        {"question_id": 70, "question": "Q", "options": ["0", "1", "2"], "answer": "B", "answer_index": 1}
        | {"category": "business", "cot_content": "", "src": "stemez"},
        (1,),
    ),
    "RACE": (
        {"example_id": "high19088.txt", "article": "a", "answer": "B", "question": "Q", "options": ["a", "b"]},
        (1,),
    ),
    "MuSR": (
        {"narrative": "n", "question": "Q", "choices": "['Ann', \"O'Hara\"]", "answer_index": 1}
        | {"answer_choice": "O'Hara"},
        (1,),
    ),
    "CMMLU": ({"Question": "Q", "A": "a", "B": "b", "C": "c", "D": "d", "Answer": "C"}, (2,)),
    "BoolQ": ({"question": "Q", "passage": "p", "answer": False}, (1,)),
    "BoolQ, SuperGLUE": ({"question": "Q", "passage": "p", "idx": 0, "label": 1}, (0,)),
}


@pytest.mark.parametrize("name", ROWS)
def test_shape(tmp_path: Path, name: str) -> None:
    row, gold = ROWS[name]
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    (item,) = open_dataset(tmp_path).splits["test"]
    assert item.gold == gold
    assert item.question == ("" if name == "BLiMP" else "Q")
    assert shape_of(row) == name
    assert recognise(row) is not None


def test_every_shape_has_a_row_here() -> None:
    lettered = {name for name in SHAPES if name.startswith("question, A to")}
    assert set(SHAPES) - lettered == set(ROWS) - lettered
    assert len(lettered) == 9
    assert all(isinstance(shape, Shape) for shape in SHAPES.values())


def test_further_columns_are_kept(tmp_path: Path) -> None:
    kept = {}
    for name in ("COPA", "ARC, original", "Social IQa", "TruthfulQA, generation", "BLiMP"):
        (tmp_path / "test.jsonl").write_text(json.dumps(ROWS[name][0]))
        (item,) = open_dataset(tmp_path).splits["test"]
        kept[name] = (item.id, item.subject, dict(item.fields))
    assert kept == {
        "COPA": ("7", "", {"asks_for": "cause"}),
        "ARC, original": ("x", "", {"question.para": "p"}),
        "Social IQa": ("test/0", "", {"context": "c"}),
        "TruthfulQA, generation": ("1", "", {"best_answer": "a"}),
        "BLiMP": ("7", "island", {}),
    }


def test_recognise_leaves_other_tables_alone() -> None:
    assert recognise({"question": "Q", "answer": "An open one, without choices"}) is None
    assert recognise({}) is None


@pytest.mark.parametrize(
    ("file", "split", "count", "gold"),
    [
        ("arc_challenge.test.original", "test", 1172, {0: 266, 1: 311, 2: 310, 3: 285}),
        ("arc_challenge.validation", "validation", 299, {0: 64, 1: 73, 2: 78, 3: 83, 4: 1}),
        ("arc_easy.validation", "validation", 570, {0: 158, 1: 152, 2: 142, 3: 118}),
        ("boolq.validation.first500", "validation", 500, {0: 315, 1: 185}),
        ("commonsense_qa.validation", "validation", 1221, {0: 239, 1: 255, 2: 241, 3: 251, 4: 235}),
        ("copa.validation", "validation", 100, {0: 55, 1: 45}),
        ("hellaswag.validation.first2000", "validation", 2000, {0: 521, 1: 469, 2: 521, 3: 489}),
        ("openbookqa.validation", "validation", 500, {0: 126, 1: 138, 2: 110, 3: 126}),
        ("piqa.validation", "validation", 1838, {0: 910, 1: 928}),
        ("social_i_qa.validation", "validation", 1954, {0: 643, 1: 654, 2: 657}),
        ("winogrande.validation", "validation", 1267, {0: 628, 1: 639}),
    ],
)
def test_real_rows(shared_data: Path, file: str, split: str, count: int, gold: dict[int, int]) -> None:
    dataset = open_dataset(shared_data / "hf_rows" / f"{file}.jsonl")
    items = dataset.splits[split]
    assert len(items) == count
    assert {index: sum(item.gold == (index,) for item in items) for index in gold} == gold
    assert sum(gold.values()) == count
    assert dataset.name == file.replace(f".{split}", "")


def test_real_truthfulqa(shared_data: Path) -> None:
    items = open_dataset(shared_data / "hf_rows" / "truthfulqa.en.jsonl").splits["test"]
    assert len(items) == 817
    assert all(item.gold == tuple(range(len(item.gold))) for item in items)
    assert all(item.choices[0] == item.fields["best_answer"] for item in items)


def test_real_blimp(shared_data: Path) -> None:
    for path in sorted((shared_data / "blimp").glob("*.jsonl")):
        dataset = open_dataset(path)
        assert len(dataset.splits["test"]) == 1000
        assert dataset.subjects("test") == (path.stem,)
        assert {item.gold for item in dataset.splits["test"]} == {(0,)}
