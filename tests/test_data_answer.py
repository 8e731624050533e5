"""What an answer cell means, and when the file leaves it open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.answer import Answer, answer_kind
from choicewise.data.cell import Number, UnusableRow
from choicewise.errors import DataError

FRUIT = ("fig", "pear", "plum")


@pytest.mark.parametrize(
    ("answer", "kind", "gold"),
    [
        (Answer("B", FRUIT), "label", (1,)),
        (Answer("2", FRUIT, ("1", "2", "3")), "label", (1,)),
        (Answer(True, ("yes", "no"), ("true", "false")), "label", (0,)),
        (Answer("2", FRUIT), "index", (2,)),
        (Answer(2, FRUIT), "index", (2,)),
        (Answer("plum", FRUIT), "text", (2,)),
        (Answer(["C", "A"], FRUIT), "label", (0, 2)),
        (Answer([0, 1, 1], FRUIT), "flags", (1, 2)),
    ],
)
def test_gold(answer: Answer, kind: str, gold: tuple[int, ...]) -> None:
    assert answer.gold(kind) == gold


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (Answer("D", FRUIT), "label", "none of A, B, C"),
        (Answer("b", FRUIT), "label", "none of A, B, C"),
        (Answer("A, B", FRUIT), "label", "none of A, B, C"),
        (Answer("4", FRUIT, ("1", "2", "3")), "label", "none of 1, 2, 3"),
        (Answer(3, FRUIT), "index", "outside 0 to 2"),
        (Answer(-1, FRUIT), "index", "outside 0 to 2"),
        (Answer("01", FRUIT), "index", "no index"),
        (Answer("٢", FRUIT), "index", "no index"),
        (Answer("9" * 5000, FRUIT), "index", "no index"),
        (Answer(1.0, FRUIT), "index", "spelling is lost"),
        (Answer(True, FRUIT), "index", "no index"),
        (Answer(None, FRUIT), "label", "null"),
        (Answer("", FRUIT), "label", "empty"),
        (Answer([], FRUIT), "label", "empty"),
        (Answer([1, 1], FRUIT), "index", "choice 1 .* twice"),
        (Answer("fig", ("fig", "fig")), "text", "more than one"),
        (Answer("apple", FRUIT), "text", "none of the texts"),
        (Answer([0, 1], FRUIT), "flags", "1 or 0 for each of 3"),
        (Answer([0, 0, 0], FRUIT), "flags", "at least once"),
        (Answer([0, 2, 0], FRUIT), "flags", "be 1 or 0"),
    ],
)
def test_gold_is_refused(answer: Answer, kind: str, reason: str) -> None:
    with pytest.raises(UnusableRow, match=reason):
        answer.gold(kind)


def test_readings() -> None:
    assert Answer("1", ("1", "2")).readings() == {"index": (1,), "text": (0,)}
    assert Answer("B", ("B", "A")).readings() == {"label": (1,), "text": (0,)}
    assert Answer("1", ("1", "2"), ("0", "1")).readings() == {"label": (1,)}, "own labels are the only reading"
    assert Answer(Number("1"), ("1", "2")).readings() == {"index": (1,)}, "a number beside texts"
    assert Answer(Number("1"), ("1", "2"), numbers=True).readings() == {"index": (1,), "text": (0,)}
    assert Answer("Z", ("1", "2")).readings() == {}


def rows(*answers: Answer) -> list[tuple[str, Answer]]:
    return [(f"row {number}", answer) for number, answer in enumerate(answers)]


def test_settle_refuses_what_the_file_leaves_open() -> None:
    with pytest.raises(DataError, match=r'row 1: the answer \'2\' can be read as index .choice 2.*answer_is = "label"'):
        answer_kind(rows(Answer("0", ("0", "1", "2")), Answer("2", ("2", "4", "6"))))


def test_settle_refuses_a_mixture() -> None:
    with pytest.raises(DataError, match="row 1: .* only be read as index, those before it only as text"):
        answer_kind(rows(Answer("plum", FRUIT), Answer("2", FRUIT)))


def test_settle_refuses_indices_that_seem_counted_from_one() -> None:
    counted = [Answer(number, FRUIT) for number in (1, 2, 3, 2)]
    with pytest.raises(DataError, match="row 2: .*counted from 1"):
        answer_kind(rows(*counted))
    with pytest.raises(DataError, match="counted from 1"):
        answer_kind(rows(*counted[2:3]))
    assert answer_kind(rows(*counted, Answer(0, FRUIT))) == "index", "a single wrong row is its own affair"
    assert answer_kind(rows(Answer("3", FRUIT, ("1", "2", "3")))) == "label"


def test_settle_lets_other_rows_decide() -> None:
    """A row that is open by itself is not, once another can only be read one way; whichever comes first."""
    open_row, text_row = Answer("2", ("2", "4", "6")), Answer("9", ("7", "8", "9"))
    assert answer_kind(rows(open_row, text_row)) == answer_kind(rows(text_row, open_row)) == "text"
    assert answer_kind(rows(Answer("Z", FRUIT), Answer("1", FRUIT))) == "index", "an unreadable row has no say"
    assert answer_kind([]) == "label"


choice_lists = st.lists(st.sampled_from(["0", "1", "2", "A", "B", "C", "x"]), min_size=3, max_size=3, unique=True)


@given(
    st.lists(st.tuples(choice_lists, st.integers(0, 2)), min_size=1, max_size=6),
    st.sampled_from(["label", "index", "text"]),
)
def test_settled_answers_are_never_misread(drawn: list[tuple[list[str], int]], kind: str) -> None:
    """Whatever the author meant, the gold is theirs or the file is refused; another gold is never made of it."""
    spelled = {"label": lambda c, g: "ABC"[g], "index": lambda c, g: str(g), "text": lambda c, g: c[g]}[kind]
    answers = [(Answer(spelled(choices, gold), tuple(choices)), gold) for choices, gold in drawn]
    try:
        settled = answer_kind(rows(*(answer for answer, _ in answers)))
    except DataError:
        return
    assert [answer.gold(settled) for answer, _ in answers] == [(gold,) for _, gold in answers]
