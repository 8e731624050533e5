"""Tables that look as if they were read rightly, and were not: their labels, names or quotes mean something else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.data.open import open_dataset
from choicewise.errors import DataError, UnknownShape
from tests.helpers.imported_runs import write_lines

ANIMALS = ("moo", "woof", "meow", "quack")
ORDER = (2, 0, 3, 1)
"""The places of the choices after a shuffle that kept their labels."""


def right_ones(path: Path) -> list[tuple[str, ...]]:
    """The right choices of each question of a file."""
    items = open_dataset(path).splits["test"]
    return [tuple(item.choices[index] for index in item.gold) for item in items]


def quiz(path: Path, row: Callable[[int], dict[str, Any]]) -> Path:
    """Write four rows, of which the row ``n`` has the animal ``n`` as its right choice."""
    return write_lines(path, [{"question": f"What says number {n}?"} | row(n) for n in range(4)])


ALL_RIGHT = [(animal,) for animal in ANIMALS]


@pytest.mark.parametrize(
    ("name", "labels", "answers"),
    [
        ("id", "ABCD", "ABCD"),
        ("key", "abcd", "abcd"),
        ("Label", "ABCD", "ABCD"),
        ("option_letter", "ABCD", "ABCD"),
        ("id", range(4), range(4)),
        ("id", "1234", "1234"),
        ("id", "ABCD", ANIMALS),
    ],
)
def test_labels_beside_the_texts_are_read_whatever_they_are_called(
    tmp_path: Path, name: str, labels: Any, answers: Any
) -> None:
    def objects(n: int) -> dict[str, Any]:
        choices = [{name: labels[place], "text": ANIMALS[place]} for place in ORDER]
        return {"choices": choices, "answer": answers[n]}

    assert right_ones(quiz(tmp_path / "objects.jsonl", objects)) == ALL_RIGHT

    def lists(n: int) -> dict[str, Any]:
        choices = {
            "text": [ANIMALS[place] for place in ORDER],
            f"{name}s": [labels[place] for place in ORDER],
        }
        return {"choices": choices, "answer": answers[n]}

    assert right_ones(quiz(tmp_path / "lists.jsonl", lists)) == ALL_RIGHT


@pytest.mark.parametrize("answers", ["ABCD", [["A"], ["B"], ["C"], ["D"]], range(4), ANIMALS])
def test_letters_in_a_column_of_their_own_are_those_of_the_choices(
    tmp_path: Path, answers: Any
) -> None:
    is_index = answers == range(4)

    def row(n: int) -> dict[str, Any]:
        return {
            "choices": [ANIMALS[place] for place in ORDER],
            "labels": ["ABCD"[place] for place in ORDER],
            "answer": ORDER.index(n) if is_index else answers[n],
        }

    assert right_ones(quiz(tmp_path / "quiz.jsonl", row)) == ALL_RIGHT


def test_what_a_model_answered_is_not_the_answer(tmp_path: Path) -> None:
    def row(n: int) -> dict[str, Any]:
        return {"choices": ANIMALS, "gpt4_answer": "ABCD"[n], "is_correct": n < 2}

    with pytest.raises(UnknownShape) as refused:
        open_dataset(quiz(tmp_path / "quiz.jsonl", row))
    assert "gpt4_answer" not in "".join(refused.value.problems)


def test_numbers_may_be_labels_or_count_the_choices(tmp_path: Path) -> None:
    def row(n: int) -> dict[str, Any]:
        return {"options": [{"id": place, "text": ANIMALS[place]} for place in ORDER], "key": n}

    with pytest.raises(UnknownShape) as refused:
        open_dataset(quiz(tmp_path / "quiz.jsonl", row))
    assert 'answer_is = "..."' in refused.value.problems


def test_what_is_no_label_counts_no_choice(tmp_path: Path) -> None:
    def row(n: int) -> dict[str, Any]:
        choices = [{"text": text, "id": 70 - at} for at, text in enumerate(ANIMALS)]
        return {"choices": choices, "answer": "ABCD"[n]}

    assert right_ones(quiz(tmp_path / "quiz.jsonl", row)) == ALL_RIGHT


def test_letters_in_the_texts_must_not_be_in_another_order(tmp_path: Path) -> None:
    """The letter of the answer may be that of a place, or the one that the text begins with."""
    texts = [f"{'ABCD'[place]}. {ANIMALS[place]}" for place in ORDER]
    rows = quiz(tmp_path / "list.jsonl", lambda n: {"choices": texts, "answer": "ABCD"[n]})
    with pytest.raises(DataError, match=r"letters in another order .*; sort them"):
        open_dataset(rows)
    cells = quiz(tmp_path / "cell.jsonl", lambda n: {"options": "|".join(texts), "key": "ABCD"[n]})
    with pytest.raises(UnknownShape):
        open_dataset(cells)
    answers = quiz(tmp_path / "texts.jsonl", lambda n: {"options": texts, "key": texts[n]})
    assert right_ones(answers) == [(text,) for text in texts]


WRONG_ONES = {f"distractor{n}": f"no {n}" for n in (1, 2, 3)}


@pytest.mark.parametrize(
    "further",
    [
        {"distractor_type": "near"},
        {"Distractor analysis": "It has feathers."},
        {"why_wrong": "It has feathers."},
        {"wrong answer url": "https://example.org"},
        {"wrong_share": "0.4"},
    ],
)
def test_a_column_about_wrong_choices_is_none_of_them(
    tmp_path: Path, further: dict[str, str]
) -> None:
    rows = quiz(tmp_path / "quiz.jsonl", lambda n: {"right": ANIMALS[n], **WRONG_ONES, **further})
    with pytest.raises(UnknownShape, match="can't tell which columns"):
        open_dataset(rows)


@pytest.mark.parametrize("further", [{"correct_position": 2}, {"correct_letter": "B"}])
def test_a_column_about_the_right_choice_is_none(tmp_path: Path, further: dict[str, Any]) -> None:
    names = {**further, "correct_text": "moo", "wrong_text_1": "woof", "wrong_text_2": "meow"}
    with pytest.raises(UnknownShape, match="can't tell which columns"):
        open_dataset(quiz(tmp_path / "quiz.jsonl", lambda _: names))


def test_shares_of_right_answers_are_no_choices(tmp_path: Path) -> None:
    options = dict(zip("abcd", ANIMALS, strict=True))
    shares = {"share_correct": "0.6", "share_incorrect": "0.4"}
    rows = quiz(tmp_path / "quiz.jsonl", lambda n: {**options, "key": f"{'abcd'[n]})", **shares})
    with pytest.raises(UnknownShape):
        open_dataset(rows)


def test_wrong_choices_may_be_counted_in_words(tmp_path: Path) -> None:
    names = ("first wrong", "second wrong", "third wrong")

    def row(n: int) -> dict[str, Any]:
        return {"correct": ANIMALS[n], **dict.fromkeys(names, "hiss")}

    assert right_ones(quiz(tmp_path / "quiz.jsonl", row)) == ALL_RIGHT


@pytest.mark.parametrize(
    "row",
    [
        {"response": "moo", "correct": True},
        {"option": "moo", "is_correct": True},
        {"answer": "moo", "label": True},
        {"answer": "A", "answer_verified": "yes"},
        {"AnswerKey": "A", "multiple_choice": "yes"},
    ],
)
def test_what_yes_or_no_judges_is_part_of_the_question(tmp_path: Path, row: dict[str, Any]) -> None:
    """Without it, whether the answer of a row is right would be asked of the question alone."""
    with pytest.raises(UnknownShape, match="can't tell which columns"):
        open_dataset(quiz(tmp_path / "quiz.jsonl", lambda _: row))


def test_a_reason_for_yes_or_no_is_not_judged(tmp_path: Path) -> None:
    def row(n: int) -> dict[str, Any]:
        return {"answer": ["yes", "no"][n % 2], "answer_explanation": f"It is so, {n}."}

    assert right_ones(quiz(tmp_path / "quiz.jsonl", row)) == [("yes",), ("no",)] * 2


def test_a_kind_of_question_is_no_question(tmp_path: Path) -> None:
    """The columns of e-CARE; a question of one word is read if no column has sentences."""

    def row(n: int) -> dict[str, Any]:
        kind = {"ask-for": ["cause", "effect"][n % 2]}
        ends = {"hypothesis1": f"It rained {n}.", "hypothesis2": f"It snowed {n}."}
        return kind | {"premise": f"The street is wet, {n}."} | ends | {"label": n % 2}

    path = write_lines(tmp_path / "quiz.jsonl", list(map(row, range(4))))
    questions = [item.question for item in open_dataset(path).splits["test"]]
    assert questions == [f"The street is wet, {n}." for n in range(4)]


@pytest.mark.parametrize("name", ["student_answer", "predicted_label", "model answer"])
def test_answers_that_someone_gave_are_not_the_right_ones(tmp_path: Path, name: str) -> None:
    options = dict(zip(("A", "B", "C", "D"), ANIMALS, strict=True))
    given = quiz(tmp_path / "quiz.jsonl", lambda _: {**options, name: "A"})
    with pytest.raises(DataError):
        open_dataset(given)
    both = quiz(tmp_path / "both.jsonl", lambda n: {**options, name: "A", "key": "ABCD"[n]})
    assert right_ones(both) == ALL_RIGHT


def test_an_index_is_no_question_in_the_layout_of_mmlu(tmp_path: Path) -> None:
    """What pandas writes before each row would make the question the first choice."""
    (tmp_path / "test").mkdir()
    file = tmp_path / "test" / "law_test.csv"
    file.write_text("7,What?,a,b,c,d,B\n3,Why?,a,b,c,d,D\n")
    with pytest.raises(DataError, match="law_test.csv: .* numbers; .*index"):
        open_dataset(tmp_path)
    file.write_text("7 + 1?,8,9,A\n3,8,3,B\n")
    assert len(open_dataset(tmp_path).splits["test"]) == 2


def test_a_quote_that_is_never_closed_glues_no_rows(tmp_path: Path) -> None:
    """Programs write tabs without quotes around cells; two rows then look like one."""
    path = tmp_path / "quiz.tsv"
    rows = '"Who went\tx\ty\tA\nShe came"\tx\ty\tB\n'
    path.write_text(f"question\tA\tB\tanswer\nWhat?\tx\ty\tB\n{rows}")
    with pytest.raises(DataError, match="row 3 .* into the next: .Who went"):
        open_dataset(path)
    path.write_text('question\tA\tB\tanswer\n"What\n\tis it?"\tx\ty\tB\n')
    assert right_ones(path) == [("y",)]


def test_a_space_before_quotes_does_not_keep_them(tmp_path: Path) -> None:
    path = tmp_path / "quiz.csv"
    path.write_text('question, choice1, choice2, answer\n"Who?", "x", "y", "x"\n')
    with pytest.raises(DataError, match="space before its quotes: ' \"x\"'; remove it"):
        open_dataset(path)


def test_commas_in_a_header_part_no_cells(tmp_path: Path) -> None:
    path = tmp_path / "quiz.csv"
    path.write_text("question (en, de, fr, it, es);A;B;key\nWhat?;1,5;2,5;B\n")
    assert right_ones(path) == [("2,5",)]
    path.write_text("question;A;B;answer\nWhat?;1,5;2,5;B;\nWho?;1,5;2,5;B\n")
    with pytest.raises(DataError, match="row 2 .*5 cells .* of 4"):
        open_dataset(path)


@pytest.mark.parametrize(
    ("name", "cells", "is_told"),
    [
        ("gold", "DCBA", True),
        ("gold", [*reversed(ANIMALS)], True),
        ("corrected_answer", [None, "1", None, "1"], True),
        ("gold", "ABCD", False),
        ("answer_index", [0, 1, 2, 3], False),
        ("answer_text", ANIMALS, False),
        ("answer_type", "xyxy", False),
    ],
)
def test_a_column_with_other_answers_is_told(
    tmp_path: Path, name: str, cells: Any, is_told: bool
) -> None:
    def row(n: int) -> dict[str, Any]:
        answers = {"answer": "ABCD"[n % 4], name: cells[n % 4]}
        return {"question": f"What says number {n}?", "choices": ANIMALS, **answers}

    data = open_dataset(write_lines(tmp_path / "quiz.jsonl", list(map(row, range(8)))))
    told = [note for note in data.notes if f"column {name} says other" in note]
    assert bool(told) == is_told


def test_spaces_around_all_choices_are_told(tmp_path: Path) -> None:
    path = tmp_path / "quiz.csv"
    path.write_text("question, A, B,answer\nWho?, Ada, Bea,B\n")
    assert "spaces at an edge (' Ada')" in open_dataset(path).notes[0]


def test_a_separator_in_one_choice_stops(tmp_path: Path) -> None:
    """Nine of ten cells tell how many choices there are; one more text would move the others."""

    def row(n: int) -> dict[str, Any]:
        first = "moo; loudly" if n == 7 else "moo"
        return {"question": f"Q{n}?", "options": f"{first}; woof; meow", "answer": "ABC"[n % 3]}

    path = write_lines(tmp_path / "quiz.jsonl", list(map(row, range(12))))
    with pytest.raises(UnknownShape) as refused:
        open_dataset(path)
    assert "more choices than most" in str(refused.value)
    rows = [row(n) for n in range(12) if n != 7]
    assert len(open_dataset(write_lines(path, rows)).splits["test"]) == 11


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("quiz.csv.gz", "unpack it"),
        ("quiz.ndjson", "rename it to quiz.jsonl"),
        ("data-00000-of-00001.arrow", "load_from_disk"),
        (".", "files of Arrow; .*load_from_disk"),
    ],
)
def test_files_of_other_kinds_are_refused_with_what_helps(
    tmp_path: Path, name: str, remedy: str
) -> None:
    for file in ("quiz.csv.gz", "quiz.ndjson", "data-00000-of-00001.arrow"):
        (tmp_path / file).touch()
    with pytest.raises(DataError, match=f"can't read .*{remedy}"):
        open_dataset(tmp_path / name)


def test_answers_under_a_name_that_no_rule_knows_are_asked_for(tmp_path: Path) -> None:
    rows = quiz(tmp_path / "quiz.jsonl", lambda n: {"choices": ANIMALS, "flags": [0, 1, 0, 0]})
    with pytest.raises(DataError, match="name the column .* in a mapping"):
        open_dataset(rows)


@pytest.mark.parametrize(
    ("names", "right"),
    [("BCD", "woof meow"), ("ABCD", "moo woof"), ("0123", "moo woof"), ("023", "moo meow")],
)
def test_codes_of_answers_are_read_by_their_names(tmp_path: Path, names: str, right: str) -> None:
    """``class_encode_column`` of datasets counts the answers that a split has."""
    rows = {"question": ["Q?", "R?"], "choices": [ANIMALS] * 2, "answer": [0, 1]}
    feature = {"names": list(names), "_type": "ClassLabel"}
    told = json.dumps({"info": {"features": {"answer": feature}}})
    table = pa.table(rows).replace_schema_metadata({"huggingface": told})
    pq.write_table(table, tmp_path / "quiz.parquet")
    assert right_ones(tmp_path / "quiz.parquet") == [(text,) for text in right.split()]


def test_a_code_of_yes_or_no_is_read_by_its_name(tmp_path: Path) -> None:
    rows = {"question": ["Q?", "R?"], "passage": ["It is.", "It is not."], "label": [0, 1]}
    feature = {"names": ["yes", "no"], "_type": "ClassLabel"}
    told = json.dumps({"info": {"features": {"label": feature}}})
    table = pa.table(rows).replace_schema_metadata({"huggingface": told})
    pq.write_table(table, tmp_path / "quiz.parquet")
    assert right_ones(tmp_path / "quiz.parquet") == [("yes",), ("no",)]
