"""Rows in the Hub's own field names, made up here, are recognised in JSON Lines and in Parquet without a mapping."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.data.guess import UnknownShape
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.data.rows import shape_of
from choicewise.errors import DataError

Row = dict[str, Any]

FOUR = ["a fir", "a bee", "a cup", "a tin"]
LABELLED = {"text": FOUR, "label": ["A", "B", "C", "D"]}
A_TO_D = dict(zip("ABCD", FOUR, strict=True))

ROWS: dict[str, tuple[Row, Item]] = {
    "allenai/ai2_arc": (
        {"id": "M_1", "question": "What flies?", "choices": LABELLED, "answerKey": "B"},
        Item("M_1", "What flies?", FOUR, (1,)),
    ),
    "allenai/ai2_arc with numbers": (
        {"id": "M_2", "question": "Q?", "choices": {"text": FOUR, "label": ["1", "2", "3", "4"]}, "answerKey": "4"},
        Item("M_2", "Q?", FOUR, (3,)),
    ),
    "Rowan/hellaswag": (
        {"ind": 24, "activity_label": "Baking", "ctx_a": "He stirs.", "ctx_b": "he", "ctx": "He stirs. he"}
        | {"endings": FOUR, "source_id": "x~v_1", "split": "val", "split_type": "indomain", "label": "3"},
        Item("24", "He stirs. he", FOUR, (3,), "", {"activity_label": "Baking", "ctx_a": "He stirs.", "ctx_b": "he"}),
    ),
    "allenai/openbookqa main": (
        {"id": "7-9", "question_stem": "Bees", "choices": LABELLED, "answerKey": "C"},
        Item("7-9", "Bees", FOUR, (2,)),
    ),
    "allenai/openbookqa additional": (
        {"id": "7-9", "question_stem": "Bees", "choices": LABELLED, "answerKey": "C", "fact1": "bees fly"}
        | {"humanScore": 1, "clarity": 2, "turkIdAnonymized": "t"},
        Item("7-9", "Bees", FOUR, (2,), "", {"fact1": "bees fly"}),
    ),
    "ybisk/piqa": (
        {"goal": "Sit", "sol1": "on a fir", "sol2": "on a cup", "label": 1},
        Item("test/0", "Sit", ("on a fir", "on a cup"), (1,)),
    ),
    "allenai/winogrande": (
        {"sentence": "The cup held the tin, as _ was big.", "option1": "cup", "option2": "tin", "answer": "1"},
        Item("test/0", "The cup held the tin, as _ was big.", ("cup", "tin"), (0,)),
    ),
    "tau/commonsense_qa": (
        {"id": "8f", "question": "Q?", "question_concept": "bee", "choices": LABELLED, "answerKey": "D"},
        Item("8f", "Q?", FOUR, (3,), "", {"question_concept": "bee"}),
    ),
    "allenai/social_i_qa": (
        {
            "context": "Ada sat.",
            "question": "Why?",
            "answerA": "rest",
            "answerB": "run",
            "answerC": "sing",
            "label": "1",
        },
        Item("test/0", "Why?", ("rest", "run", "sing"), (0,), "", {"context": "Ada sat."}),
    ),
    "super_glue copa": (
        {
            "premise": "It rained.",
            "choice1": "I got wet.",
            "choice2": "I ate.",
            "question": "effect",
            "idx": 4,
            "label": 0,
        },
        Item("4", "It rained.", ("I got wet.", "I ate."), (0,), "", {"asks_for": "effect"}),
    ),
    "super_glue boolq": (
        {"question": "do bees fly", "passage": "Bees fly.", "idx": 5, "label": 1},
        Item("5", "do bees fly", ("yes", "no"), (0,), "", {"passage": "Bees fly."}),
    ),
    "google/boolq": (
        {"question": "do firs fly", "answer": False, "passage": "Bees fly."},
        Item("test/0", "do firs fly", ("yes", "no"), (1,), "", {"passage": "Bees fly."}),
    ),
    "truthful_qa multiple_choice": (
        {"question": "Q?", "mc1_targets": {"choices": [FOUR[0], *FOUR[2:]], "labels": [1, 0, 0]}}
        | {"mc2_targets": {"choices": FOUR, "labels": [1, 1, 0, 0]}},
        Item("test/0", "Q?", FOUR, (0, 1)),
    ),
    "truthful_qa generation": (
        {"type": "Adversarial", "category": "Bees", "question": "Q?", "best_answer": "a", "correct_answers": ["a", "b"]}
        | {"incorrect_answers": ["c"], "source": "s"},
        Item("test/0", "Q?", ("a", "b", "c"), (0, 1), "", {"category": "Bees"}),
    ),
    "nyu-mll/blimp": (
        {"sentence_good": "Bees fly.", "sentence_bad": "Bees flies.", "field": "syntax", "UID": "agreement"}
        | {"linguistics_term": "x", "simple_LM_method": True, "pair_id": 3},
        Item("agreement/test/0", "", ("Bees fly.", "Bees flies."), (0,), "agreement", {"field": "syntax"}),
    ),
    "cais/mmlu": (
        {"question": "Q?", "subject": "bees", "choices": FOUR, "answer": 2},
        Item("bees/test/0", "Q?", FOUR, (2,), "bees"),
    ),
    "TIGER-Lab/MMLU-Pro": (
        {"question_id": 70, "question": "Q?", "options": ["10", "2", "1", "12", "7"], "answer": "C", "answer_index": 2}
        | {"cot_content": "", "category": "math", "src": "s"},
        Item("70", "Q?", ("10", "2", "1", "12", "7"), (2,), "math", {"answer_index": "2"}),
    ),
    "edinburgh-dawg/mmlu-redux": (
        {"question": "Q?", "choices": FOUR, "answer": 1, "error_type": "ok", "source": None, "correct_answer": None}
        | {"potential_reason": None},
        Item("test/0", "Q?", FOUR, (1,), "", {"error_type": "ok"}),
    ),
    "haonan-li/cmmlu": ({"Question": "Q?", **A_TO_D, "Answer": "B"}, Item("test/0", "Q?", FOUR, (1,))),
    "ceval/ceval-exam": (
        {"id": 0, "question": "Q?", **A_TO_D, "answer": "D", "explanation": "e"},
        Item("0", "Q?", FOUR, (3,), "", {"explanation": "e"}),
    ),
    "Idavidrein/gpqa": (
        {"Question": "Q?", "Correct Answer": "a fir", "Incorrect Answer 1": "a bee", "Incorrect Answer 2": "a cup"}
        | {"Incorrect Answer 3": "a tin", "Record ID": "rec0", "Subdomain": "Botany"},
        Item("rec0", "Q?", FOUR, (0,), "", {"Subdomain": "Botany"}),
    ),
    "TAUR-Lab/MuSR": (
        {
            "narrative": "n",
            "question": "Who?",
            "choices": "['Ann', \"O'Hara\"]",
            "answer_index": 1,
            "answer_choice": "O'Hara",
        },
        Item("test/0", "Who?", ("Ann", "O'Hara"), (1,), "", {"narrative": "n"}),
    ),
    "ehovy/race": (
        {"example_id": "h1.txt", "article": "text", "answer": "A", "question": "Q?", "options": FOUR},
        Item("test/0", "Q?", FOUR, (0,), "", {"article": "text"}),
    ),
    "allenai/sciq": (
        {
            "question": "Q?",
            "distractor3": "a cup",
            "distractor1": "a fir",
            "distractor2": "a bee",
            "correct_answer": "a tin",
        }
        | {"support": "s"},
        Item("test/0", "Q?", FOUR, (3,), "", {"support": "s"}),
    ),
}


def write(path: Path, rows: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_are_recognised(tmp_path: Path, name: str, ending: str) -> None:
    row, expected = ROWS[name]
    (item,) = open_dataset(write(tmp_path / f"test.{ending}", [row])).splits["test"]
    assert (item.id, item.question, item.choices, item.gold, item.subject) == (
        expected.id,
        expected.question,
        expected.choices,
        expected.gold,
        expected.subject,
    )
    assert expected.fields.items() <= item.fields.items()


def test_labels_of_two_kinds_in_one_file(tmp_path: Path) -> None:
    rows = [ROWS["allenai/ai2_arc"][0], ROWS["allenai/ai2_arc with numbers"][0]]
    for ending in ("jsonl", "parquet"):
        items = open_dataset(write(tmp_path / f"test.{ending}", rows)).splits["test"]
        assert [item.gold for item in items] == [(1,), (3,)]


def test_parquet_dictionaries_and_class_labels(tmp_path: Path) -> None:
    table = pa.table({"question": ["P?", "Q?"], "choices": [FOUR, FOUR[::-1]], "answer": [3, 0], "subject": ["s", "s"]})
    names = {"info": {"features": {"answer": {"names": ["A", "B", "C", "D"], "_type": "ClassLabel"}}}}
    table = table.set_column(3, "subject", table["subject"].dictionary_encode())
    table = table.set_column(0, "question", table["question"].dictionary_encode())
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(names)}), tmp_path / "test.parquet")
    items = open_dataset(tmp_path).splits["test"]
    assert [(item.question, item.gold, item.subject) for item in items] == [("P?", (3,), "s"), ("Q?", (0,), "s")]


def test_lists_of_structs_and_structs_of_lists_are_the_same(tmp_path: Path) -> None:
    row = ROWS["allenai/ai2_arc"][0]
    objects = [{"text": text, "label": label} for text, label in zip(FOUR, "ABCD", strict=True)]
    one = open_dataset(write(tmp_path / "a" / "test.parquet", [row]))
    other = open_dataset(write(tmp_path / "b" / "test.parquet", [row | {"choices": objects}]))
    assert one.digest == other.digest


UNANSWERED = {
    "Rowan/hellaswag": ("label", ""),
    "ybisk/piqa": ("label", -1),
    "allenai/winogrande": ("answer", ""),
    "tau/commonsense_qa": ("answerKey", None),
    "super_glue boolq": ("label", -1),
    "super_glue copa": ("label", -1),
    "ceval/ceval-exam": ("answer", ""),
    "cais/mmlu": ("answer", None),
}


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", UNANSWERED)
def test_a_split_without_answers_is_named(tmp_path: Path, name: str, ending: str) -> None:
    row, _ = ROWS[name]
    column, nothing = UNANSWERED[name]
    write(tmp_path / f"validation.{ending}", [row])
    write(tmp_path / f"test.{ending}", [row | {column: nothing}] * 3)
    with pytest.raises(DataError, match=r"the split test has no answers \(.*test\.\w+, row 0 .*skip bad items"):
        open_dataset(tmp_path)
    dataset = open_dataset(tmp_path, on_bad_item="skip")
    assert {split: len(items) for split, items in dataset.splits.items()} == {"validation": 1}
    assert len(dataset.skipped) == 3
    assert dataset.evaluated == "validation"


@pytest.mark.parametrize("name", ["Rowan/hellaswag", "ybisk/piqa", "allenai/ai2_arc", "TIGER-Lab/MMLU-Pro"])
def test_a_split_that_lacks_the_column_of_answers_is_named(tmp_path: Path, name: str) -> None:
    row, _ = ROWS[name]
    lacking = {key: value for key, value in row.items() if key not in ("label", "answer", "answerKey")}
    assert shape_of(lacking) == shape_of(row)
    write(tmp_path / "validation.jsonl", [row])
    write(tmp_path / "test.jsonl", [lacking])
    with pytest.raises(DataError, match=r"the split test has no answers .*column \w+ is missing"):
        open_dataset(tmp_path)


def test_rows_without_answers_among_others_are_counted(tmp_path: Path) -> None:
    row, _ = ROWS["ybisk/piqa"]
    rows = [row, row | {"label": -1}, row | {"label": 0}, row | {"label": None}]
    path = write(tmp_path / "piqa.jsonl", rows)
    with pytest.raises(DataError, match=r"2 rows of the split test have no answer, the first .*row 1 .*answer is -1"):
        open_dataset(path)
    dataset = open_dataset(path, on_bad_item="skip")
    assert [item.id for item in dataset.splits["test"]] == ["test/0", "test/2"]
    assert [skipped.reason for skipped in dataset.skipped] == ["the answer is -1", "the answer is null"]


@pytest.mark.parametrize(
    "value", ["['a', 'b'", "[a, b]", "['a' 'b']", r"['\x', 'b']", "['a', 'b') + ('c']", "['a', f('b')]"]
)
def test_texts_that_are_no_list_are_refused(tmp_path: Path, value: str) -> None:
    path = write(tmp_path / "quiz.jsonl", [{"question": "Q", "choices": value, "answer": 0}])
    with pytest.raises(DataError, match="a text where a list of choices is needed"):
        open_dataset(path)


@pytest.mark.parametrize(
    "row", [{"input": "Q Options: (A) x (B) y", "target": "(A)"}, {"question": "2+2?", "answer": "4"}]
)
def test_rows_whose_choices_have_no_column_are_refused_with_a_mapping_to_fill_in(tmp_path: Path, row: Row) -> None:
    with pytest.raises(UnknownShape, match="no known shape") as refused:
        open_dataset(write(tmp_path / "test.jsonl", [row]))
    assert f'question = "{next(iter(row))}"' in refused.value.problems


@pytest.mark.costly("many files")
def test_every_shared_set_is_recognised(shared_data: Path) -> None:
    for path in sorted([*(shared_data / "hf_rows").glob("*.jsonl"), *(shared_data / "blimp").glob("*.jsonl")]):
        assert open_dataset(path).columns is not None, path
