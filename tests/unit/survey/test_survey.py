"""A dataset in numbers, which are those of a plain count, and in sentences."""

import math
import unicodedata
from collections import Counter
from itertools import combinations
from pathlib import Path
from statistics import fmean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from choicewise.data.dataset import Dataset, Items
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.extensions.survey.fitting import fits
from choicewise.extensions.survey.patterns import answer_pattern
from choicewise.extensions.survey.survey import doubles, is_mojibake, survey, text_faults
from choicewise.extensions.survey.survey_report import data_tables, data_warnings, recognised
from tests.helpers.imported_runs import write_lines
from tests.helpers.messages import Gist
from tests.helpers.printed import printed


@st.composite
def item_lists(draw: st.DrawFn) -> list[Item]:
    made = []
    for number in range(draw(st.integers(1, 30))):
        choices = draw(st.lists(st.text("abc é", min_size=1, max_size=4), min_size=2, max_size=5))
        gold = draw(st.sets(st.integers(0, len(choices) - 1), min_size=1, max_size=2))
        made.append(
            Item(str(number), draw(st.text("xy", max_size=1)), tuple(choices), tuple(sorted(gold)))
        )
    return made


def guessed(item: Item, rule: str) -> set[int]:
    lengths = [len(choice) for choice in item.choices]
    if rule in ("longest", "shortest"):
        length = max(lengths) if rule == "longest" else min(lengths)
        return {place for place, own in enumerate(lengths) if own == length}
    return {"first": {0}, "last": {len(lengths) - 1}}[rule]


@given(item_lists())
def test_guesses_are_those_of_a_plain_count(items: list[Item]) -> None:
    pattern = answer_pattern(Items.of(items))
    assert pattern.counts == Counter(len(item.choices) for item in items)
    assert pattern.several == sum(len(item.gold) > 1 for item in items)
    assert pattern.constant == (len(items) > 1 and len({item.gold for item in items}) == 1)
    for count, places in pattern.positions.items():
        own = [item.gold[0] for item in items if len(item.choices) == count and len(item.gold) == 1]
        assert places == tuple(own.count(place) for place in range(count))
    for rule, guess in pattern.guesses.items():
        scores, chances, variances = [], [], []
        for item in items:
            named = guessed(item, rule)
            sets = combinations(
                range(len(item.choices)), len(item.gold)
            )  # of right choices, all equally likely
            outcomes = [len(named & {*right}) / len(named) for right in sets]
            scores.append(len(named & {*item.gold}) / len(named))
            chances.append(fmean(outcomes))
            variances.append(pvariance(outcomes))
        assert guess.score == pytest.approx(sum(scores) / len(items))
        assert guess.chance == pytest.approx(sum(chances) / len(items))
        if sum(variances) > 1e-9:
            z = (sum(scores) - sum(chances)) / math.sqrt(sum(variances))
            assert guess.p == pytest.approx(2 * stats.norm.sf(abs(z)), abs=1e-12)


def test_uneven_positions_have_the_p_of_chi_squared() -> None:
    empty = answer_pattern(Items.of([]))
    assert (empty.counts, empty.guesses, empty.constant) == ({}, {}, False)
    items = [
        Item(str(n), "Q", ("a", "b", "c"), (place,))
        for n, place in enumerate([0] * 20 + [1] * 10 + [2] * 6)
    ]
    assert answer_pattern(Items.of(items)).p_positions == pytest.approx(
        stats.chisquare([20, 10, 6]).pvalue
    )
    assert math.isnan(answer_pattern(Items.of(items[:10])).p_positions), "too few for the test"
    both = [*items, *(Item(f"x{n}", "Q", ("a", "b"), (n % 4 // 3,)) for n in range(20))]
    statistic = stats.chisquare([20, 10, 6]).statistic + stats.chisquare([15, 5]).statistic
    assert answer_pattern(Items.of(both)).p_positions == pytest.approx(stats.chi2.sf(statistic, 3))


@given(item_lists(), item_lists())
def test_doubles_are_those_of_a_plain_comparison(test: list[Item], train: list[Item]) -> None:
    seen = doubles(Dataset("quiz", {"test": test, "train": train}))

    def alike(one: Item, other: Item) -> bool:
        return one.question == other.question and sorted(one.choices) == sorted(other.choices)

    for split, items in (("test", test), ("train", train)):
        again = sum(
            any(alike(item, before) for before in items[:place]) for place, item in enumerate(items)
        )
        assert seen.within.get(split, 0) == again
    assert seen.across.get(("test", "train"), 0) == sum(
        any(alike(item, other) for other in train) for item in test
    )


def test_doubles_say_which_and_whether_the_answers_agree() -> None:
    test = [
        Item("a", "Q", ("x", "y"), (0,)),
        Item("b", "Q", ("y", "x"), (0,)),
        Item("c", "P", ("x", "y"), (0,), "", {"passage": "One story."}),
        Item("d", "P", ("x", "y"), (0,), "", {"passage": "Another story."}),
    ]
    found = doubles(Dataset("quiz", {"test": test, "dev": [Item("s", "Q", ("x", "y"), (0,))]}))
    assert (found.within, found.across) == ({"test": 1}, {("test", "dev"): 2})
    examples = [(each.item, each.other, each.disagree) for each in found.examples]
    assert (examples, found.disagreeing) == (
        [("a", "b", True), ("a", "s", False), ("b", "s", True)],
        2,
    )


FAULTY = {
    "same choices": Item("i", "Q", ("x", "y", "x"), (1,)),
    "same choices but for case or spaces": Item("i", "Q", ("a cup", "A cup"), (0,)),
    "spaces at an edge": Item("i", "Q", ("x ", "y"), (0,)),
    "control characters": Item("i", "Q\u200b?", ("x", "y"), (0,)),
    "mojibake": Item("i", "CafÃ©?", ("x", "y"), (0,)),
    "replacement character": Item("i", "Q", ("x\ufffd", "y"), (0,)),
    "not NFC": Item("i", "Q", ("x", "y"), (0,), "", {"passage": "cafe\u0301"}),
}


def test_a_fault_is_seen() -> None:
    good = [Item(f"g{n}", "Café – “Что?” 你好 naïve â", ("x", "y"), (0,)) for n in range(3)]
    for fault, item in FAULTY.items():
        seen = text_faults(Items.of([*good, item, *good]))
        assert {name: (each.count, each.example) for name, each in seen.items()} == {
            fault: (1, "i")
        }


@given(st.text("éßñç–’“€ж😀 aA", min_size=1, max_size=6))
def test_text_read_in_the_wrong_encoding_is_seen(text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    assert not is_mojibake(text)
    try:
        wrong = text.encode().decode("cp1252")
    except UnicodeDecodeError:
        wrong = text.encode().decode("latin-1")
    assert is_mojibake(wrong) == (not text.isascii())


def test_a_survey_of_everything(tmp_path: Path) -> None:
    path = tmp_path / "quiz.jsonl"
    asked = [("Q1?", 1, "One story."), ("Q2?", 1, "Another story."), ("Q3?", -1, "No story.")]
    names, choices = ("question", "answer", "passage"), {"choices": ["x", "longer"]}
    write_lines(path, [dict(zip(names, row, strict=True)) | choices for row in asked])
    whole = survey(open_dataset(path, on_bad_item="skip"))
    assert whole.shape == "question, choices, answer (MMLU on the Hub)"
    assert (whole.evaluated, whole.content, whole.fields) == ("test", ("passage",), ("passage",))
    assert (whole.skipped, [item.id for item in whole.rows]) == (
        {"the answer is -1": 1},
        ["test/0", "test/1"],
    )
    assert whole.splits["test"].answers.guesses["longest"].score == 1.0
    assert whole.splits["test"].answers.constant
    assert whole.as_json()["splits"]["test"]["answers"]["guesses"]["first"]["score"] == 0.0
    many = [Item(str(n), "Q", ("x", "y"), (0,)) for n in range(100)]
    spread = [item.id for item in survey(Dataset("quiz", {"test": many})).rows]
    assert spread == [str(n * 11) for n in range(10)]


def quiz(*gold: int) -> Dataset:
    return Dataset(
        "quiz",
        {"test": [Item(f"q{n}", f"Q{n}?", ("a", "bb"), (right,)) for n, right in enumerate(gold)]},
    )


def test_a_dataset_is_told_with_what_is_to_look_at() -> None:
    assert data_warnings(survey(quiz(0, 1, 1, 0))) == []
    alike, longest = data_warnings(survey(quiz(*[1] * 30)))
    assert alike == Gist("test: the right answer ... position")
    assert longest == Gist("test: ... longest choice scores 100.0 %")
    surveyed = survey(quiz(0, 1, 1, 1))
    assert next(iter(recognised(surveyed))) == f"quiz, data {surveyed.digest[:12]}"
    lines = printed(*data_tables(surveyed), width=120)
    assert any(line.startswith("test   A 25.0, B 75.0") for line in lines)
    assert [line.split() for line in lines[-3:]] == [["q3", "Q3?"], ["A", "a"], ["[B]", "bb"]]
    can = {
        "options/cloze": "",
        "options/rating": "",
        "piqa/harness": "",
        "mmlu/original": "it has no subjects",
    }
    general, own = fits(survey(quiz(0, 1)), can)
    assert general.endswith("options (2)"), "of any dataset first"
    assert "piqa (1)" in own
    assert "mmlu" not in own
