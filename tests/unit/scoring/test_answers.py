"""What became of every answer in text, what that counts, and between which numbers the score lies."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.protocols.readings import EXTRACTIONS
from choicewise.questions import EOS, FILTERED, LENGTH, STOP
from choicewise.scoring.answers import (
    SETTLED,
    STATUSES,
    Written,
    answer_counts,
    cut_range,
    is_cut,
    judged,
)
from choicewise.scoring.decide import Decisions
from choicewise.scoring.extract import RULES
from tests.helpers.messages import Gist
from tests.helpers.thinking import reads

RULE = "inspect@0.3.264"
LAST = reads(100)


def written(
    text: str, finish: str | None = EOS, raw: str | None = None, opened: str = "", **how: bool
) -> Written:
    return Written.of(text, raw, opened, finish=finish, **how)


CASES: list[tuple[Written | str | None, bool, str]] = [
    (written("Answer: B"), True, "answered"),
    (written("<think>A?</think>Answer: B", STOP), True, "answered"),
    (written("no idea"), False, "unread"),
    (written("no idea", None), False, "unread"),
    (written("<think>Answer: A", LENGTH), False, "cut_thinking"),
    (written("Answer: A", LENGTH, opened="<think>"), False, "cut_thinking"),
    (written("<think>a stop fired in here", STOP), False, "cut_thinking"),
    (written("<think>nobody says how it ended", None), False, "cut_thinking"),
    (written("<think>it ended itself", EOS), False, "empty"),
    (written("Let me see. Answer: A is", LENGTH), True, "cut_answer"),
    (written("Let me see", LENGTH), False, "cut_answer"),
    (written("<think>a</think>", LENGTH, named=True), False, "cut_answer"),
    (written("", LENGTH, thought=True), False, "cut_thinking"),
    (written("", LENGTH), False, "cut_thinking"),  # a server that hides its thoughts
    (written(" \n", LENGTH, named=True), False, "cut_answer"),
    (written("<think>a</think>\n"), False, "empty"),
    (written(""), False, "empty"),
    (written("hmB", raw="[THINK]hm[/THINK]B"), True, "answered"),
    (written("hm", LENGTH, raw="[THINK]hm"), False, "cut_thinking"),
    (FILTERED, False, "filtered"),
    (None, False, "error"),
]


@pytest.mark.parametrize(("text", "read", "status"), CASES)
def test_the_status_of_a_text(text: Written | str | None, read: bool, status: str) -> None:
    _, statuses = judged(LAST, [text], np.array([read]), decisions(1.0))
    assert STATUSES[statuses[0] % 8] == status
    counts = asdict(answer_counts(statuses, LAST))
    assert {name for name in STATUSES if counts[name]} == {status}
    assert counts["unknown"] == int(isinstance(text, Written) and text.finish is None)


def decisions(*credit: float) -> Decisions:
    return Decisions.uncompared(np.zeros(len(credit), dtype=np.int64), np.array(credit))


@pytest.mark.parametrize(
    ("cut", "credits"),
    [
        ("read", [1.0, 0.0, 1.0, 1.0, 0.0, np.nan]),
        ("wrong", [1.0, 0.0, 0.0, 0.0, 0.0, np.nan]),
        ("missing", [1.0, 0.0, np.nan, np.nan, np.nan, np.nan]),
    ],
)
def test_what_each_counts(cut: str, credits: list[float]) -> None:
    texts = [
        written("B"),
        written("?"),
        written("<think>B", LENGTH),
        written("B", LENGTH),
        written(""),
        None,
    ]
    read = np.array([True, False, True, True, False, False])
    given_ = decisions(1, 0, 1, 1, 0, np.nan)
    counted, statuses = judged(replace(LAST, cut=cut), texts, read, given_)
    np.testing.assert_array_equal(counted.credit, credits)
    assert [STATUSES[each] for each in statuses] == [
        *("answered", "unread", "cut_thinking", "cut_answer", "empty", "error")
    ]
    assert is_cut(statuses).tolist() == [False, False, True, True, False, False]


def test_what_is_read_of_an_open_thought_is_all_there_is_or_nothing() -> None:
    cut = written("<think>Answer: A", LENGTH)
    assert [cut.read(axis) for axis in ("read", "wrong", "missing")] == [
        "<think>Answer: A",
        None,
        None,
    ]
    closed = written("<think>Answer: A</think>Answer: B")
    assert {closed.read(axis) for axis in ("read", "wrong", "missing")} == {"Answer: B"}


@pytest.mark.parametrize(
    ("cut", "on_cut", "on_complete", "overall", "low", "high"),
    [
        (0.354, 0.271, 0.883, 66.7, 57.0, 92.4),
        (0.207, 0.341, 0.860, 75.3, 68.2, 88.9),
        (0.368, 0.241, 0.956, 69.3, 60.4, 97.2),
        (0.192, 0.173, 0.945, 79.7, 76.4, 95.6),
    ],
)
def test_published_shares_have_their_bounds(
    cut: float, on_cut: float, on_complete: float, overall: float, low: float, high: float
) -> None:
    """olmo-eval issue 399: GPQA diamond and IFEval, Qwen3.5 of 4 and 9 billion; the shares are rounded."""
    items = 100_000
    lost, right_lost = round(items * cut), round(items * cut * on_cut)
    right = round((items - lost) * on_complete)
    credit = np.zeros(items)
    credit[:right_lost] = 1
    credit[lost : lost + right] = 1
    texts = [written("B", LENGTH)] * lost + [written("B")] * (items - lost)
    counted, statuses = judged(LAST, texts, np.ones(items, dtype=np.bool_), decisions(*credit))
    least, most = cut_range(statuses, counted.credit)
    assert 100 * counted.credit.mean() == pytest.approx(overall, abs=0.11)
    assert 100 * least.mean() == pytest.approx(low, abs=0.06)
    assert 100 * most.mean() == pytest.approx(high, abs=0.06)


def test_the_alarm_says_what_was_cut_and_between_what_the_score_lies() -> None:
    texts = [written("?", LENGTH)] * 21 + [written("B")] * 79
    _, statuses = judged(reads(8192), texts, np.ones(100, dtype=np.bool_), decisions(*[1.0] * 100))
    counts = answer_counts(statuses, reads(8192))
    assert counts.bounds_text(0.682, 0.889) == Gist("21 % ... 8,192 tokens: ... 68.2 and 88.9")
    assert (counts.cut, counts.share, counts.limit) == (21, 0.21, 8192)
    assert answer_counts(statuses[21:], reads(8192, thought_tokens=100)).bounds_text(0.5, 0.5) == ""


LETTERS = "ABCD"
WORDS = st.sampled_from(
    ["Answer: ", "ANSWER:", "the answer is ", "(", ")", "A", "B", "c", ".", "\n", " ", "$", "of "]
)
SAID = st.lists(WORDS, max_size=8).map("".join)


@pytest.mark.parametrize("rule", sorted(SETTLED))
@given(text=SAID, more=SAID)
def test_what_a_settled_rule_reads_no_further_text_changes(rule: str, text: str, more: str) -> None:
    if (letter := RULES[rule](text, LETTERS)) in [*LETTERS]:
        assert RULES[rule](text + more, LETTERS) == letter


def test_settled_answers_are_read_where_they_were_cut_and_whole_texts_may_end_where_they_like() -> (
    None
):
    assert set(EXTRACTIONS) >= SETTLED
    text = [written("Answer: B and so", LENGTH, named=True)]
    for rule, status in (
        ("simple-evals@f517a91", "answered"),
        (RULE, "cut_answer"),
        ("letter-match", "answered"),
    ):
        _, statuses = judged(reads(4, rule), text, np.array([True]), decisions(1.0))
        assert STATUSES[statuses[0]] == status
        _, statuses = judged(
            reads(4, rule), [written("<think>B", LENGTH)], np.array([True]), decisions(1.0)
        )
        assert STATUSES[statuses[0]] == "cut_thinking"


UNTOLD = "Say A? Answer: A is what I would"
"""What a chat server gives of a thought that its template opened, before the text closes it."""


@pytest.mark.parametrize("rule", sorted(SETTLED))
@pytest.mark.parametrize(
    ("text", "axes", "status"),
    [
        (written(UNTOLD, LENGTH), {}, "cut_answer"),
        (written(f"{UNTOLD}</think>ANSWER: B is", LENGTH), {}, "answered"),
        (written(f"<think>{UNTOLD}</think>ANSWER: B is", LENGTH), {}, "answered"),
        (written("ANSWER: B is", LENGTH, thought=True), {}, "answered"),
        (written("ANSWER: B is", LENGTH, named=True), {}, "answered"),
        (written("ANSWER: B is", LENGTH), {"chat": "none"}, "answered"),
    ],
)
def test_an_answer_is_settled_only_behind_a_beginning_outside_a_thought(
    rule: str, text: Written, axes: dict[str, str], status: str
) -> None:
    _, statuses = judged(reads(4, rule, **axes), [text], np.array([True]), decisions(1.0))
    assert STATUSES[statuses[0]] == status
