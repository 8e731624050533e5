"""Rules that read a letter, against what the code of the tools they are from reads in the same texts."""

import json
import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.scoring.combine import extract
from choicewise.scoring.extract import RULES
from tests.paths import GOLDENS

GOLDEN = json.loads((GOLDENS / "extractors.json").read_text(encoding="utf-8"))
"""``texts``, and by rule the letter of each (make_extractors.py)."""

COLUMNS = {
    **{"SE": "simple-evals@f517a91", "MP": "mmlu-pro@f418b11", "L1": "harness-answer-is@4e7e0d4"},
    **{
        "L2": "harness-letter@4e7e0d4",
        "HG": "helm-gpqa@63754d0",
        "IN": "inspect@499e615",
        "ES": "evalscope@1.14.1",
    },
    **{
        "OG": "olmo-eval-gpqa@e8b88f1",
        "LE": "lighteval-indices@3fd1526",
        "OC": "opencompass@a5acc4b",
    },
}

TABLE = {
    "B": "-B-B--BBBB",
    "(B)": "-B-B--BBBB",
    "B. Madrid": "-B-B---BBB",
    "Answer: B": "BB-A-BBBBB",
    "answer: b": "b----B-B--",  # simple-evals compares the small letter, and no option has that
    "The answer is B.": "-BBBB-BBBB",
    "The correct answer is **B**.": "-B-BB-BBBB",
    "Answer: **B**": "-B-A--BBBA",
    r"\boxed{B}": "-B-B--BB-B",
    "Answer: A is tempting, but no.\nAnswer: B": "AA-A-BBBBB",
    "I think A is wrong. The answer is B because C is not.": "-BBAB-CCBB",
    "The answer is A? No, the answer is B.": "-AAAA-BBBB",
    "A car is fast, so option B": "-B-A--BBAB",
    "Let me check A first: it has mass": "-A-A--AA-A",
    "<think>Maybe the answer is A": "-AAAA-AAAA",
}
"""Text → what the rules of the columns read in it: what ten tools make of the same answer."""


@pytest.mark.parametrize("text", TABLE)
def test_ten_rules_read_this_in_one_text(text: str) -> None:
    assert "".join(RULES[rule](text, "ABCD") or "-" for rule in COLUMNS.values()) == TABLE[text]
    assert TABLE[text] == "".join(
        GOLDEN["read"][rule][GOLDEN["texts"].index(text)] for rule in COLUMNS.values()
    )


@pytest.mark.parametrize("rule", GOLDEN["read"])
def test_a_rule_reads_what_its_source_reads(rule: str) -> None:
    """A letter of no option is wrong there, and so here, where it is none."""
    golden = [letter if letter.upper() in "ABCD" else "-" for letter in GOLDEN["read"][rule]]
    assert [RULES[rule](text, "ABCD") or "-" for text in GOLDEN["texts"]] == golden


def mmlu_pro(text: str) -> str | None:
    """The plain reference: the source's three patterns, two of which take time by the square of the text."""
    for pattern in (r"answer is \(?([A-J])\)?", r".*[aA]nswer:\s*([A-J])"):
        if match := re.search(pattern, text):
            return match[1]
    match = re.search(r"\b[A-J]\b(?!.*\b[A-J]\b)", text, re.DOTALL)
    return match and match[0]


pieces = st.sampled_from(
    ["Answer:", "answer: ", "answer is ", "A", "D", "E", "J", "I", "(", "\n", " ", "a", "xB", "é"]
)


@given(text=st.lists(pieces, max_size=14).map("".join))
def test_mmlu_pro_is_read_by_its_three_patterns(text: str) -> None:
    letter = mmlu_pro(text)
    assert RULES["mmlu-pro@f418b11"](text, "ABCD") == (letter if letter in {*"ABCD"} else None)
    assert RULES["mmlu-pro@f418b11"](text, "ABCDEFGHIJ") == letter


@pytest.mark.parametrize(
    "text", ["x" * 50_000, "answer:" * 5_000, "A " * 20_000, "**A " * 10_000, "answer:\n" * 5_000]
)
def test_no_rule_takes_time_by_the_square_of_a_text(text: str) -> None:
    start = process_time()
    for name in COLUMNS.values():
        RULES[name](text, "ABCD")
    assert process_time() - start < 3  # the source's patterns take minutes


def test_an_answer_that_mmlu_pro_does_not_read_is_wrong_and_no_draw() -> None:
    """The source draws one of the options."""
    decided = extract("mmlu-pro@f418b11", ["who knows"] * 40, [[0, 1, 2, 3]] * 40, [4] * 40, "ABCD")
    assert decided.credit.tolist() == [0.0] * 40
    assert set(decided.prediction.tolist()) == {-1}


def test_rules_read_as_many_letters_as_an_item_has() -> None:
    read = {
        name: RULES[name]("The answer is (F).\nAnswer: F", "ABCDEFGHIJ")
        for name in COLUMNS.values()
    }
    assert read == dict.fromkeys(COLUMNS.values(), "F")
