"""Decisions against a plain loop over items, the published tie rules by hand, and rules that find letters in text."""

import json
import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import DataError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import EXTRACTIONS
from choicewise.scoring.combine import extract
from choicewise.scoring.decide import TIES, Decisions, argmax, gold_rows, greedy_match, letter_match
from choicewise.scoring.extract import RULES
from tests.paths import GOLDENS

SCORES = st.one_of(
    st.sampled_from([-2.0, -1.0, 0.0, math.nan, -math.inf, math.inf]), st.floats(-5, 0)
)
GOLD = [
    st.sets(st.integers(0, max(count - 1, 0)), max_size=2 if count else 0) for count in range(6)
]
ITEM = st.lists(SCORES, max_size=5).flatmap(
    lambda scores: st.tuples(st.just(scores), GOLD[len(scores)])
)


def decide(scores: list[list[float]], gold: Sequence[Sequence[int]], ties: str) -> Decisions:
    items = np.cumsum([0] + [len(item) for item in scores])
    flat = np.array([score for item in scores for score in item], dtype=np.float64)
    return argmax(flat, items, gold_rows(gold, items), ties)


def reference(
    scores: list[float], gold: set[int], ties: str
) -> tuple[int, float, bool, float, bool]:
    """(prediction, credit, tied, margin, missing) of one item, read off a sorted list."""
    if not scores or any(math.isnan(score) for score in scores):
        return -1, math.nan, False, math.nan, True
    best, *others = sorted(scores, reverse=True)
    tops = [index for index, score in enumerate(scores) if score == best]
    tied, first = len(tops) > 1, float(tops[0] in gold)
    credit = {
        "first": first,
        "split": len(gold & set(tops)) / len(tops),
        "wrong": first * (not tied),
    }[ties]
    margin = 0.0 if tied else best - others[0] if others else math.nan
    return tops[0], credit, tied, margin, False


@given(items=st.lists(ITEM, max_size=8), ties=st.sampled_from(sorted(TIES)))
def test_argmax_equals_the_plain_reference(
    items: list[tuple[list[float], set[int]]], ties: str
) -> None:
    decided = decide([scores for scores, _ in items], [sorted(gold) for _, gold in items], ties)
    expected = (
        np.array([reference(scores, gold, ties) for scores, gold in items], dtype=float)
        .reshape(-1, 5)
        .T
    )
    for name, column in zip(
        ("prediction", "credit", "tied", "margin", "missing"), expected, strict=True
    ):
        np.testing.assert_array_equal(getattr(decided, name), column, err_msg=name)


def test_three_way_tie_under_each_rule() -> None:
    credits = {ties: decide([[0.0, -1.0, 0.0, 0.0]], [[2, 3]], ties).credit[0] for ties in TIES}
    assert credits == {"first": 0.0, "split": 2 / 3, "wrong": 0.0}


def test_a_missing_choice_never_wins_and_makes_the_item_missing() -> None:
    decided = decide([[math.nan, -1.0], [-1.0, -2.0]], [[0], [0]], "first")
    assert (decided.prediction.tolist(), decided.missing.tolist()) == ([-1, 0], [True, False])


def test_an_impossible_choice_loses_by_an_infinite_margin() -> None:
    decided = decide([[-1.0, -math.inf], [-math.inf, -math.inf]], [[0], [1]], "first")
    assert (decided.prediction.tolist(), decided.margin.tolist()) == ([0, 0], [math.inf, 0.0])


@pytest.mark.parametrize("index", [-1, 2])
def test_gold_outside_the_choices_is_refused(index: int) -> None:
    with pytest.raises(DataError, match=f"item 1 has gold {index} but 2 choices"):
        gold_rows([[0], [index]], np.array([0, 3, 5]))


def test_letter_match_reads_generated_text_as_helm_does() -> None:
    """Option C has the right option's text; E is a letter, but of no option."""
    read = {
        " B": 1,
        "B": 1,
        "B\n": 1,
        " C": 2,
        " A": 0,
        "b": -1,
        "B.": -1,
        "Rome": -1,
        "E": -1,
        "": -1,
    }
    texts, options = [*read, None], ["Paris", "Rome ", "Rome", "Oslo"]
    decided = letter_match(texts, [options] * len(texts), [[1]] * len(texts), "ABCDE")
    assert decided.prediction.tolist() == [*read.values(), -1]
    np.testing.assert_array_equal(
        decided.credit, [*(index in (1, 2) for index in read.values()), math.nan]
    )
    assert decided.missing.tolist() == [False] * len(read) + [True]


def test_greedy_match_asks_of_the_right_choice_alone() -> None:
    greedy, gold = (
        [[0, 1], [0, 1], [0, 0], [1, 1], [0, 1], [1, math.nan]],
        [[1], [0], [0], [1], [0, 1], [0]],
    )
    items = np.arange(7) * 2
    decided = greedy_match(np.array(greedy, dtype=float).ravel(), items, gold_rows(gold, items))
    assert decided.prediction.tolist() == [1, 1, -1, 0, 1, -1]
    np.testing.assert_array_equal(decided.credit, [1, 0, 0, 1, 1, math.nan])
    assert not decided.tied.any()
    assert np.isnan(decided.margin).all()


READ: dict[str, dict[str | None, list[str]]] = {
    "simple-evals@f517a91": {
        "A": ["Answer: A. No, wait.\nAnswer: B"],  # the first match, whatever is concluded
        "B": ["Let me think.\nAnswer: B"],
        "C": ["answer:C"],
        "D": ["Answer : $D$"],
        "b": ["Answer: because"],  # the case it was written in, so no option's letter
        # only blanks may stand between, and nothing is taken out first
        None: ["Answer:\nB", "Answer: **B**", "The answer is B", "Answer: E", ""],
    },
    "simple-evals-multilingual@f517a91": {
        "A": ["Antwort:A"],
        # languages are tried in turn, English first
        "B": ["Answer: **B**", "答案: B", "الإجابة: ب", "Respuesta: A, no: Answer: B"],
        "C": ["Answer: $\\boxed{C}$", "উত্তর: ড"],
        "D": ["答案：D", "正解は Answer: Ｄ"],
        None: ["I do not know.", "Answer:\n\nC"],  # blanks and tabs only after the colon
    },
    "opencompass@14ca958": {
        "A": [
            "故选A只有B对",
            "Apples and Bears",
        ],  # the last resort takes the first letter of the options anywhere
        "B": [
            "答案是B",
            "the correct answer is option: B",
            "B. because it is round",
            "Bears and Apples",
        ],
        # glued behind another pattern, "only B is right" is never tried
        "C": ["答案：C", "The answer is (C).", "I think C: it is round", "C怎么样? 只有B是对的"],
        "D": ["所以选D", "A dog, so D"],
        None: ["nothing at all"],
    },
    "harness-letter@4e7e0d4": {
        **{"A": ["A bad one is B"], "C": ["C"], "D": ["The answer: D."]},
        None: ["none of them", "", "E or b"],
    },
}
"""Rule → the letter that was worked out by hand from its patterns → texts."""

BY_INSPECT = json.loads((GOLDENS / "logs" / "rules.json").read_text(encoding="utf-8"))
"""Release → text → the letter that its own solver reads among four options (make_logs_rules.py)."""

BY_SOURCE = json.loads((GOLDENS / "extractors.json").read_text(encoding="utf-8"))["read"]
"""Rules that are held against their sources' own code (test_extract.py)."""


@pytest.mark.parametrize(
    ("rule", "letter", "text"),
    [
        (rule, letter, text)
        for rule, by in READ.items()
        for letter, texts in by.items()
        for text in texts
    ],
)
def test_a_rule_reads_this_letter(rule: str, letter: str | None, text: str) -> None:
    assert RULES[rule](text, "ABCD") == letter


@pytest.mark.parametrize("release", BY_INSPECT)
def test_a_rule_reads_what_its_release_of_inspect_reads(release: str) -> None:
    rule = RULES[f"inspect@{release}"]
    assert {text: rule(text, "ABCD") for text in BY_INSPECT[release]} == BY_INSPECT[release]


def test_every_rule_of_the_protocol_exists() -> None:
    assert set(Protocol.__dataclass_fields__["ties"].metadata["allowed"]) == {*TIES, "none"}
    by_hand_or_release = {*READ, *(f"inspect@{release}" for release in BY_INSPECT)}
    assert set(RULES) == set(EXTRACTIONS) == {*by_hand_or_release, *BY_SOURCE}
    assert (
        len({tuple(read.values()) for read in BY_INSPECT.values()}) == len(BY_INSPECT) == 4
    )  # the releases differ


@given(
    text=st.text("ABCDE答案是选：: .\n(wer)tThe", max_size=30),
    letters=st.sampled_from(["AB", "ABCD", "ABCDE"]),
)
def test_a_rule_finds_a_letter_of_the_text_or_nothing(text: str, letters: str) -> None:
    for name, rule in RULES.items():
        letter = rule(text, letters)
        assert letter is None or letter.upper() in letters
        assert letter is None or re.search(re.escape(letter), text, re.IGNORECASE), name


def test_extract_counts_what_names_no_option_as_wrong_and_no_text_as_missing() -> None:
    texts = ["Answer: B", "Answer: C", "who knows", "Answer: a", None]
    decided = extract(
        "simple-evals@f517a91", texts, [[1], [0, 1], [0], [0], [0]], [4, 2, 4, 4, 4], "ABCD"
    )
    assert decided.prediction.tolist() == [1, -1, -1, -1, -1]  # the second has no option C
    np.testing.assert_array_equal(decided.credit, [1, 0, 0, 0, np.nan])
    assert decided.missing.tolist() == [False] * 4 + [True]
