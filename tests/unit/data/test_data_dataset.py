"""The dataset value: its digest, its subjects and their rows."""

from dataclasses import replace

import pytest

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError, UsageError
from choicewise.requests.blocks import with_split
from tests.helpers.protocols import mmlu_protocol

FIRST = Item("1", "Q", ("a", "b"), (0,), "law", {"note": "x"})
SECOND = Item("2", "Q", ("a", "b"), (1,), "art")
THIRD = Item("3", "R", ("a", "b"), (1,), "law")
QUIZ = Dataset("quiz", {"test": (FIRST, SECOND, THIRD), "dev": (FIRST,)})


@pytest.mark.parametrize(
    "change",
    [
        {"id": "0"},
        {"question": "Q "},
        {"choices": ("b", "a")},
        {"choices": ("a", "b", "c")},
        {"gold": (1,)},
        {"gold": (0, 1)},
        {"subject": "art"},
        {"fields": {"note": "y"}},
        {"fields": {"not": "ex"}},
    ],
)
def test_digest_moves_with_every_part_of_an_item(change: dict[str, object]) -> None:
    changed = (replace(FIRST, **change), SECOND, THIRD)  # type: ignore[arg-type]
    assert Dataset("quiz", {**QUIZ.splits, "test": changed}).digest != QUIZ.digest


def test_digest_is_of_the_content() -> None:
    assert Dataset("other", dict(reversed(QUIZ.splits.items()))).digest == QUIZ.digest, "neither name nor split order"
    assert Dataset("quiz", {**QUIZ.splits, "test": (SECOND, FIRST, THIRD)}).digest != QUIZ.digest, "items are ordered"
    assert Dataset("quiz", {"test": QUIZ.splits["test"], "train": (FIRST,)}).digest != QUIZ.digest


def test_subjects_and_rows() -> None:
    assert QUIZ.subjects("test") == ("law", "art")
    assert QUIZ.subjects("train") == ()
    assert QUIZ.rows("test", "law") == (FIRST, THIRD)
    assert QUIZ.rows("dev", "art") == ()


def test_choose() -> None:
    assert QUIZ.choose("test") == ("law", "art")
    assert QUIZ.choose("test", ["art", "law"]) == ("law", "art")
    with pytest.raises(DataError, match="no split 'train', only dev, test"):
        QUIZ.choose("train")
    with pytest.raises(UsageError, match="no subject 'lav'.*did you mean law"):
        QUIZ.choose("test", ["lav"])


@pytest.mark.parametrize(
    ("splits", "evaluated"),
    [("test dev", "test"), ("validation train", "validation"), ("train", "train"), ("dev train", None), ("", None)],
)
def test_a_dataset_knows_the_split_it_is_evaluated_on(splits: str, evaluated: str | None) -> None:
    item = Item("1", "Q?", ("a", "b"), (0,))
    dataset = Dataset("toy", dict.fromkeys(splits.split(), (item,)))
    if evaluated is None:
        with pytest.raises(DataError, match="toy has neither test nor validation, only (dev, train|none)"):
            with_split(mmlu_protocol(split=None), dataset)
        return
    assert dataset.evaluated == evaluated
    assert with_split(mmlu_protocol(split=None), dataset) == mmlu_protocol(split=evaluated)
    assert with_split(mmlu_protocol(split="dev"), dataset) == mmlu_protocol(split="dev")


def test_lists_in_an_item_are_as_good_as_tuples() -> None:
    listed = Item("2", "Q", ["a", "b"], [1], "art")
    assert listed == SECOND
    assert hash(listed) == hash(SECOND)


def test_an_item_holds_no_half_character() -> None:
    for change in ({"id": "\ud800"}, {"choices": ("a", "\udfff")}, {"fields": {"note": "\ud800"}}):
        with pytest.raises(DataError, match="half a character"):
            replace(FIRST, **change)  # type: ignore[arg-type]
