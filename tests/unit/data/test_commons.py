"""The bundled questions of school knowledge: evenly spread answers, options of like length, no question twice."""

from collections import Counter
from statistics import mean

import pytest

from choicewise.data.open import open_dataset
from choicewise.errors import DataError

COMMONS = open_dataset("bundled:commons")


def test_every_subject_has_twenty_questions_and_five_examples() -> None:
    for split, size in (("test", 20), ("validation", 6), ("dev", 5)):
        assert set(Counter(item.subject for item in COMMONS.splits[split]).values()) == {size}
    assert len(COMMONS.splits["test"]) == 120


def test_every_letter_is_right_in_five_questions_of_a_subject() -> None:
    counts = Counter((item.subject, *item.gold) for item in COMMONS.splits["test"])
    assert len(counts) == 6 * 4
    assert set(counts.values()) == {5}


def test_the_length_of_an_option_gives_nothing_away() -> None:
    ratios = []
    for item in COMMONS.splits["test"]:
        right = len(item.choices[item.gold[0]])
        others = mean(len(text) for text in item.choices if text != item.choices[item.gold[0]])
        ratios.append(right / others)
    assert 0.9 < mean(ratios) < 1.1


def test_no_question_and_no_option_stands_twice() -> None:
    items = [item for split in COMMONS.splits.values() for item in split]
    assert len({item.question for item in items}) == len(items)
    assert all(len(set(item.choices)) == 4 for item in items)


def test_another_bundled_name_is_refused_with_both_names() -> None:
    with pytest.raises(DataError, match=r"bundled:merrowick.*bundled:commons"):
        open_dataset("bundled:common")
