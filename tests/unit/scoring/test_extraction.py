"""The published rules that find a letter in text, on texts whose letter was worked out by hand from the patterns."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.protocols.readings import EXTRACTIONS
from choicewise.scoring.combine import extract
from choicewise.scoring.extract import RULES, first_answer_in_any_language, first_option
from choicewise.scoring.extract import simple_evals_first_answer as first_answer


def test_every_rule_of_the_protocol_exists() -> None:
    assert set(RULES) == set(EXTRACTIONS)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Let me think.\nAnswer: B", "B"),
        ("answer:C", "C"),
        ("Answer : $D$", "D"),
        ("Answer: A. No, wait.\nAnswer: B", "A"),  # the first match, whatever is concluded
        ("Answer: because", "b"),  # the case it was written in, so no option's letter
        ("Answer:\nB", None),  # only blanks may stand between
        ("Answer: **B**", None),  # nothing is taken out first
        ("The answer is B", None),
        ("Answer: E", None),
        ("", None),
    ],
)
def test_first_answer(text: str, letter: str | None) -> None:
    assert first_answer(text, "ABCD") == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Answer: **B**", "B"),
        ("Answer:\n\nC", None),  # blanks and tabs only after the colon
        ("Answer: $\\boxed{C}$", "C"),
        ("答案：D", "D"),
        ("答案: B", "B"),
        ("الإجابة: ب", "B"),
        ("উত্তর: ড", "C"),
        ("正解は Answer: Ｄ", "D"),
        ("Respuesta: A, no: Answer: B", "B"),  # languages are tried in turn, English first
        ("Antwort:A", "A"),
        ("I do not know.", None),
    ],
)
def test_first_answer_in_any_language(text: str, letter: str | None) -> None:
    assert first_answer_in_any_language(text, "ABCD") == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("答案是B", "B"),
        ("答案：C", "C"),
        ("所以选D", "D"),
        ("The answer is (C).", "C"),
        ("the correct answer is option: B", "B"),
        ("B. because it is round", "B"),
        ("I think C: it is round", "C"),
        ("C怎么样? 只有B是对的", "C"),  # glued behind another pattern, "only B is right" is never tried
        ("故选A只有B对", "A"),
        ("A dog, so D", "D"),
        ("Apples and Bears", "A"),  # the last resort takes the first letter of the options anywhere
        ("Bears and Apples", "B"),
        ("nothing at all", ""),
    ],
)
def test_first_option(text: str, letter: str) -> None:
    assert (first_option(text, "ABCD") or "") == letter


@given(text=st.text("ABCDE答案是选：: .\n(wer)tThe", max_size=30), letters=st.sampled_from(["AB", "ABCD", "ABCDE"]))
def test_a_rule_finds_a_letter_of_the_text_or_nothing(text: str, letters: str) -> None:
    for name, rule in RULES.items():
        found = rule(text, letters)
        assert found is None or found.upper() in letters
        assert found is None or re.search(re.escape(found), text, re.IGNORECASE), name


def test_extract_counts_what_names_no_option_as_wrong_and_no_text_as_missing() -> None:
    texts = ["Answer: B", "Answer: C", "who knows", "Answer: a", None]
    decided = extract("simple-evals@f517a91", texts, [[1], [0, 1], [0], [0], [0]], [4, 2, 4, 4, 4], "ABCD")
    assert decided.prediction.tolist() == [1, -1, -1, -1, -1]  # the second has no option C
    np.testing.assert_array_equal(decided.credit, [1, 0, 0, 0, np.nan])
    assert decided.missing.tolist() == [False] * 4 + [True]
