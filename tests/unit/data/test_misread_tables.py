"""Tables that look as if they were read rightly, and were not: their labels, names or quotes mean something else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
