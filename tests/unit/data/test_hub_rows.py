"""Rows in the field names of their publishers are recognised without a mapping, and mean what those say."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from syrupy.assertion import SnapshotAssertion

from choicewise.data.guess import UnknownShape
from choicewise.data.open import open_dataset
from choicewise.data.rows import SHAPES, Shape, recognise, shape_of
from choicewise.errors import DataError
from tests.paths import SHARED

Row = dict[str, Any]

FOUR = ["a fir", "a bee", "a cup", "a tin"]
LABELLED = {"text": FOUR, "label": ["A", "B", "C", "D"]}
NUMBERED = {"text": FOUR, "label": ["1", "2", "3", "4"]}
OBJECTS = [{"text": text, "label": label} for text, label in zip(FOUR, "1234", strict=True)]
A_TO_D = dict(zip("ABCD", FOUR, strict=True))
BEST = {"choices": [FOUR[0], *FOUR[2:]], "labels": [1, 0, 0]}

ROWS: dict[str, Row] = {
    "allenai/ai2_arc": {"id": "M_1", "question": "What flies?", "choices": LABELLED, "answerKey": "B"},
    "allenai/ai2_arc with numbers": {"id": "M_2", "question": "Q?", "choices": NUMBERED, "answerKey": "4"},
    "ARC as published": {"id": "x", "question": {"stem": "Q", "choices": OBJECTS, "para": "p"}, "answerKey": "2"},
    "Rowan/hellaswag": {"ind": 24, "activity_label": "Baking", "ctx_a": "He stirs.", "ctx_b": "he"}
    | {"ctx": "He stirs. he", "endings": FOUR, "source_id": "x~v_1", "split": "val", "label": "3"}
    | {"split_type": "indomain"},
    "HellaSwag, cleaned": {"ind": 7, "query": "Q", "endings": ["a", "b"], "label": 1},
    "allenai/openbookqa main": {"id": "7-9", "question_stem": "Bees", "choices": LABELLED, "answerKey": "C"},
    "allenai/openbookqa additional": {"id": "7-9", "question_stem": "Bees", "choices": LABELLED, "answerKey": "C"}
    | {"fact1": "bees fly", "humanScore": 1, "clarity": 2, "turkIdAnonymized": "t"},
    "ybisk/piqa": {"goal": "Sit", "sol1": "on a fir", "sol2": "on a cup", "label": 1},
    "allenai/winogrande": {"sentence": "The cup held the tin, as _ was big.", "option1": "cup", "option2": "tin"}
    | {"answer": "1"},
    "tau/commonsense_qa": {"id": "8f", "question": "Q?", "question_concept": "bee", "choices": LABELLED}
    | {"answerKey": "D"},
    "allenai/social_i_qa": {"context": "Ada sat.", "question": "Why?", "answerA": "rest", "answerB": "run"}
    | {"answerC": "sing", "label": "3"},
    "super_glue copa": {"premise": "It rained.", "choice1": "I got wet.", "choice2": "I ate.", "question": "effect"}
    | {"idx": 4, "label": 0},
    "super_glue boolq": {"question": "do bees fly", "passage": "Bees fly.", "idx": 5, "label": 1},
    "google/boolq": {"question": "do firs fly", "answer": False, "passage": "Bees fly."},
    "truthful_qa multiple_choice": {"question": "Q?", "mc1_targets": BEST}
    | {"mc2_targets": {"choices": FOUR, "labels": [1, 1, 0, 0]}},
    "truthful_qa generation": {"id": 1, "type": "A", "category": "Bees", "question": "Q?", "best_answer": "a"}
    | {"correct_answers": ["a", "b", ""], "incorrect_answers": ["c"], "source": "s"},
    "nyu-mll/blimp": {"sentence_good": "Bees fly.", "sentence_bad": "Bees flies.", "field": "syntax"}
    | {"UID": "agreement", "linguistics_term": "x", "simple_LM_method": True, "pair_id": 3},
    "BLiMP as published": {"sentence_good": "a", "sentence_bad": "b", "UID": "island", "pairID": "7"},
    "cais/mmlu": {"question": "Q?", "subject": "bees", "choices": FOUR, "answer": 2},
    "TIGER-Lab/MMLU-Pro": {"question_id": 70, "question": "Q?", "options": ["10", "2", "1", "12", "7"], "answer": "C"}
    | {"answer_index": 2, "cot_content": "", "category": "math", "src": "s"},
    "edinburgh-dawg/mmlu-redux": {"question": "Q?", "choices": FOUR, "answer": 1, "error_type": "ok", "source": None}
    | {"correct_answer": None, "potential_reason": None},
    "haonan-li/cmmlu": {"Question": "Q?", **A_TO_D, "Answer": "B"},
    "ceval/ceval-exam": {"id": 0, "question": "Q?", **A_TO_D, "answer": "D", "explanation": "e"},
    "Idavidrein/gpqa": {"Question": "Q?", "Correct Answer": "a fir", "Incorrect Answer 1": "a bee"}
    | {"Incorrect Answer 2": "a cup", "Incorrect Answer 3": "a tin", "Record ID": "rec0", "Subdomain": "Botany"},
    "TAUR-Lab/MuSR": {"narrative": "n", "question": "Who?", "choices": "['Ann', \"O'Hara\"]", "answer_index": 1}
    | {"answer_choice": "O'Hara"},
    "ehovy/race": {"example_id": "h1.txt", "article": "text", "answer": "A", "question": "Q?", "options": FOUR},
    "allenai/sciq": {"question": "Q?", "distractor3": "a cup", "distractor1": "a fir", "distractor2": "a bee"}
    | {"correct_answer": "a tin", "support": "s"},
}


def write(path: Path, rows: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_recognised(tmp_path: Path, name: str, snapshot: SnapshotAssertion) -> None:
    row, seen = ROWS[name], set()
    for ending in ("jsonl", "parquet"):
        (item,) = open_dataset(write(tmp_path / ending / f"test.{ending}", [row])).splits["test"]
        about = [shape_of(row), item.id, item.question, item.choices, item.gold, item.subject, dict(item.fields)]
        seen.add("\n".join(map(str, about)))
    assert len(seen) == 1
    assert seen.pop() == snapshot
    assert recognise(row) is not None


def test_every_shape_has_a_row_here_and_other_tables_are_left_alone() -> None:
    lettered = {name for name in SHAPES if name.startswith("question, A to")}
    assert set(SHAPES) - lettered == {shape_of(row) for row in ROWS.values()} - lettered
    assert len(lettered) == 9
    assert all(isinstance(shape, Shape) for shape in SHAPES.values())
    assert recognise({"question": "Q", "answer": "An open one, without choices"}) is None
    assert recognise({}) is None


@pytest.mark.parametrize("file", sorted((SHARED / "hf_rows").glob("*.jsonl")), ids=lambda file: file.stem)
def test_real_rows(file: Path, snapshot: SnapshotAssertion) -> None:
    """Of every place, how many right choices stand there."""
    dataset = open_dataset(file)
    ((split, items),) = dataset.splits.items()
    assert dataset.columns is not None
    counts = sorted(Counter(item.gold for item in items).items())
    assert f"{dataset.name} {split}: {', '.join(f'{gold} {count}' for gold, count in counts)}" == snapshot


def test_real_rows_of_truthfulqa_and_blimp(shared_data: Path) -> None:
    items = open_dataset(shared_data / "hf_rows" / "truthfulqa.en.jsonl").splits["test"]
    assert len(items) == 817
    assert all(item.gold == tuple(range(len(item.gold))) for item in items)
    assert all(item.choices[0] == item.fields["best_answer"] for item in items)
    for path in sorted((shared_data / "blimp").glob("*.jsonl")):
        dataset = open_dataset(path)
        assert Counter(item.gold for item in dataset.splits["test"]) == {(0,): 1000}
        assert dataset.subjects("test") == (path.stem,)


def test_labels_of_two_kinds_in_one_file(tmp_path: Path) -> None:
    rows = [ROWS["allenai/ai2_arc"], ROWS["allenai/ai2_arc with numbers"]]
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
    row = ROWS["allenai/ai2_arc with numbers"]
    one = open_dataset(write(tmp_path / "a" / "test.parquet", [row]))
    other = open_dataset(write(tmp_path / "b" / "test.parquet", [row | {"choices": OBJECTS}]))
    assert one.digest == other.digest


UNANSWERED = {
    **dict.fromkeys(["ybisk/piqa", "super_glue boolq", "super_glue copa"], ("label", -1)),
    **dict.fromkeys(["allenai/winogrande", "ceval/ceval-exam"], ("answer", "")),
    **{"Rowan/hellaswag": ("label", ""), "tau/commonsense_qa": ("answerKey", None), "cais/mmlu": ("answer", None)},
}


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", UNANSWERED)
def test_a_split_without_answers_is_named(tmp_path: Path, name: str, ending: str) -> None:
    row, (column, nothing) = ROWS[name], UNANSWERED[name]
    write(tmp_path / f"validation.{ending}", [row])
    write(tmp_path / f"test.{ending}", [row | {column: nothing}] * 3)
    with pytest.raises(DataError, match=r"the split test has no answers \(.*test\.\w+, row 0 .*skip bad items"):
        open_dataset(tmp_path)
    dataset = open_dataset(tmp_path, on_bad_item="skip")
    assert {split: len(items) for split, items in dataset.splits.items()} == {"validation": 1}
    assert (len(dataset.skipped), dataset.evaluated) == (3, "validation")


def test_a_split_that_lacks_the_column_of_answers_is_named(tmp_path: Path) -> None:
    for name in ("Rowan/hellaswag", "ybisk/piqa", "allenai/ai2_arc", "TIGER-Lab/MMLU-Pro"):
        row, folder = ROWS[name], tmp_path / name
        lacking = {key: value for key, value in row.items() if key not in ("label", "answer", "answerKey")}
        assert shape_of(lacking) == shape_of(row)
        write(folder / "validation.jsonl", [row])
        write(folder / "test.jsonl", [lacking])
        with pytest.raises(DataError, match=r"the split test has no answers .*column \w+ is missing"):
            open_dataset(folder)


def test_rows_without_answers_among_others_are_counted(tmp_path: Path) -> None:
    row = ROWS["ybisk/piqa"]
    rows = [row, row | {"label": -1}, row | {"label": 0}, row | {"label": None}]
    path = write(tmp_path / "piqa.jsonl", rows)
    with pytest.raises(DataError, match=r"2 rows of the split test have no answer, the first .*row 1 .*answer is -1"):
        open_dataset(path)
    dataset = open_dataset(path, on_bad_item="skip")
    assert [item.id for item in dataset.splits["test"]] == ["test/0", "test/2"]
    assert [skipped.reason for skipped in dataset.skipped] == ["the answer is -1", "the answer is null"]


def test_texts_that_are_no_list_are_refused(tmp_path: Path) -> None:
    for value in ("['a', 'b'", "[a, b]", "['a' 'b']", r"['\x', 'b']", "['a', 'b') + ('c']", "['a', f('b')]"):
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
