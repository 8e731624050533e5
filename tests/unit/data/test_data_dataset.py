"""The dataset value, its digest, subjects and rows; cells and answers as they are read."""

import datetime
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.dataset import Dataset
from choicewise.data.files import Number, is_number, spell, text, value_at
from choicewise.data.items import Item, content_fields
from choicewise.data.rows import Answer, AnswerReader
from choicewise.errors import DataError, UnusableRow, UsageError
from choicewise.requests.blocks import with_split
from choicewise.util.jsonio import lines_digest
from tests.helpers.protocols import mmlu_protocol

FIRST = Item("1", "Q", ("a", "b"), (0,), "law", {"note": "x"})
SECOND = Item("2", "Q", ("a", "b"), (1,), "art")
THIRD = Item("3", "R", ("a", "b"), (1,), "law")
QUIZ = Dataset("quiz", {"test": (FIRST, SECOND, THIRD), "dev": (FIRST,)})
CHANGES = [
    {"id": "0"},
    {"question": "Q "},
    {"choices": ("b", "a")},
    {"choices": ("a", "b", "c")},
    {"gold": (1,)},
]
CHANGES += [
    {"gold": (0, 1)},
    {"subject": "art"},
    {"fields": {"note": "y"}},
    {"fields": {"not": "ex"}},
]


WORDS = st.text(st.sampled_from('ab"\\/\n\x00é\u2028😀') | st.characters(codec="utf-8"), max_size=6)
ITEM = st.builds(
    Item,
    id=WORDS,
    question=WORDS,
    choices=st.lists(WORDS, min_size=2, max_size=3).map(tuple),
    gold=st.just((0, 1)) | st.just((1,)),
    subject=WORDS,
    fields=st.dictionaries(WORDS, WORDS, max_size=2),
)


@given(items=st.lists(ITEM, max_size=3))
def test_the_digest_is_that_of_lines_of_json(items: list[Item]) -> None:
    lines = []
    for item in items:
        texts = [item.id, item.subject, item.question]
        lines.append(["test", *texts, item.choices, item.gold, dict(item.fields)])
    assert Dataset("any", {"test": tuple(items)}).digest == lines_digest(lines)


@given(
    questions=st.lists(st.sampled_from(["Why _?", "A_b", "Why?"]), max_size=12),
    fields=st.lists(st.sampled_from([{}, {"passage": "a b"}, {"id": "3"}]), max_size=12),
)
def test_the_content_is_that_of_all_items(
    questions: list[str], fields: list[dict[str, str]]
) -> None:
    items = [replace(FIRST, question=question, fields={}) for question in questions]
    items += [replace(SECOND, fields=more) for more in fields]
    half = len(items) // 2
    quiz = Dataset("quiz", {"test": items[:half], "dev": items[half:]})
    assert quiz.content == content_fields(items)


def test_digest_is_of_the_content() -> None:
    changed = [(replace(FIRST, **change), SECOND, THIRD) for change in CHANGES]
    digests = {Dataset("quiz", {**QUIZ.splits, "test": items}).digest for items in changed}
    assert len({*digests, QUIZ.digest}) == len(CHANGES) + 1, "every part of an item counts"
    assert Dataset("other", dict(reversed(QUIZ.splits.items()))).digest == QUIZ.digest, (
        "neither name nor split order"
    )
    assert Dataset("quiz", {**QUIZ.splits, "test": (SECOND, FIRST, THIRD)}).digest != QUIZ.digest, (
        "items are ordered"
    )
    assert Dataset("quiz", {"test": QUIZ.splits["test"], "train": (FIRST,)}).digest != QUIZ.digest


def test_subjects_and_rows_of_a_split() -> None:
    assert (QUIZ.subjects("test"), QUIZ.subjects("train")) == (("law", "art"), ())
    assert (QUIZ.rows("test", "law"), QUIZ.rows("dev", "art")) == ((FIRST, THIRD), ())
    assert QUIZ.choose("test") == QUIZ.choose("test", ["art", "law"]) == ("law", "art")
    with pytest.raises(DataError, match="no split 'train', only dev, test"):
        QUIZ.choose("train")
    with pytest.raises(UsageError, match="no subject 'lav'.*did you mean law"):
        QUIZ.choose("test", ["lav"])


def test_a_dataset_knows_the_split_it_is_evaluated_on() -> None:
    for splits, evaluated in {
        "test dev": "test",
        "validation train": "validation",
        "train": "train",
    }.items():
        dataset = Dataset("toy", dict.fromkeys(splits.split(), (FIRST,)))
        assert dataset.evaluated == evaluated
        assert with_split(mmlu_protocol(split=None), dataset) == mmlu_protocol(split=evaluated)
        assert with_split(mmlu_protocol(split="dev"), dataset) == mmlu_protocol(split="dev")
    for splits, told in {"dev train": "dev, train", "": "none"}.items():
        with pytest.raises(DataError, match=f"toy .* validation, only {told}"):
            with_split(
                mmlu_protocol(split=None), Dataset("toy", dict.fromkeys(splits.split(), (FIRST,)))
            )


def test_lists_in_an_item_are_as_good_as_tuples_and_it_holds_no_half_character() -> None:
    listed = Item("2", "Q", ["a", "b"], [1], "art")
    assert (listed, hash(listed)) == (SECOND, hash(SECOND))
    for change in ({"id": "\ud800"}, {"choices": ("a", "\udfff")}, {"fields": {"note": "\ud800"}}):
        with pytest.raises(DataError, match="lone surrogate"):
            replace(FIRST, **change)  # type: ignore[arg-type]


def test_text_is_unchanged() -> None:
    for cell in ("", " None ", "007", "1e5", "\ufeff", "a\x00b", "\r\n"):
        assert text(cell, "x") == cell
    assert text(Number("-10"), "x") == "-10"
    assert type(text(Number("1"), "x")) is str
    assert text(12, "x") == "12"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        *[
            (None, "null"),
            (0.5, "binary number 0.5"),
            (True, "true or false"),
            ([], "a list"),
            ({}, "nested"),
        ],
        (Number("1.50"), "number 1.50, .* quotes"),
        *[(Number("1e5"), "number 1e5"), (Number("-0"), "number -0"), (b"", "bytes")],
    ],
)
def test_text_refuses(cell: object, reason: str) -> None:
    with pytest.raises(UnusableRow, match=f"column why.*{reason}"):
        text(cell, "why")


def test_numbers_and_what_is_kept_of_other_cells() -> None:
    assert all(map(is_number, (1, 1.5, Number("1"))))
    assert not any(map(is_number, ("1", True, None)))
    nested, date = {"a": [Number("1e5"), "1", None, 2]}, datetime.date(2024, 1, 2)
    spelled = ["a", "true", '{"a": [1e5, "1", null, 2]}', '"2024-01-02"']
    assert [spell(cell, "x") for cell in ("a", True, nested, date)] == spelled
    with pytest.raises(UnusableRow, match="column x has bytes"):
        spell(b"1", "x")


def test_value_at() -> None:
    row = {"a": {"b": 1}, "a.c": 2}
    assert value_at(row, "a.b") == 1
    assert value_at(row, "a.c") == 2, "a column whose own name has a dot"
    for path in ("a.d", "b", "a.b.c"):
        with pytest.raises(UnusableRow, match=f"column {path} is missing"):
            value_at(row, path)


FRUIT = ("fig", "pear", "plum")


def test_gold() -> None:
    assert (
        Answer("B", FRUIT).gold("label")
        == Answer("2", FRUIT, ("1", "2", "3")).gold("label")
        == (1,)
    )
    assert Answer(True, ("yes", "no"), ("true", "false")).gold("label") == (0,)
    assert (
        {Answer(cell, FRUIT).gold("index") for cell in ("2", 2)}
        == {Answer("plum", FRUIT).gold("text")}
        == {(2,)}
    )
    assert Answer("2", FRUIT).gold("number") == (1,)
    assert (
        Answer([3, 1], FRUIT, ("x", "y", "z")).gold("number")
        == Answer(["C", "A"], FRUIT).gold("label")
        == (0, 2)
    )
    assert Answer([0, 1, 1], FRUIT).gold("flags") == (1, 2)


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        *((Answer(cell, FRUIT), "label", "not one of A, B, C") for cell in ("D", "b", "A, B")),
        (Answer("4", FRUIT, ("1", "2", "3")), "label", "not one of 1, 2, 3"),
        *((Answer(cell, FRUIT), "index", "outside 0 to 2") for cell in (3, -2)),
        *((Answer(cell, FRUIT), "index", "no index") for cell in ("01", "٢", "9" * 5000, True)),
        (Answer(-1, FRUIT), "index", "the answer is -1"),
        *(
            (Answer(n, FRUIT), "number", f"the answer is number {n}, outside 1 to 3")
            for n in (0, 4)
        ),
        (Answer("B", FRUIT), "number", "no number that counts from 1"),
        (Answer(1.0, FRUIT), "index", "1.0, not a whole number; write 1"),
        (Answer(None, FRUIT), "label", "null"),
        *((Answer(cell, FRUIT), "label", "empty") for cell in ("", [])),
        (Answer([1, 1], FRUIT), "index", "choice 1 .* twice"),
        (Answer([1, 0], ("fig", "pear")), "index", "every choice; .*flags"),
        (Answer("fig", ("fig", "fig")), "text", "several choices"),
        (Answer("apple", FRUIT), "text", "not one of the texts"),
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
    assert Answer("1", ("1", "2"), ("0", "1")).readings() == {"label": (1,)}, (
        "own labels are the only reading"
    )
    assert Answer(Number("1"), ("1", "2")).readings() == {"index": (1,)}, "a number beside texts"
    assert Answer(Number("1"), ("1", "2"), numbers=True).readings() == {"index": (1,), "text": (0,)}
    assert Answer("Z", ("1", "2")).readings() == {}


def rows(*answers: Answer) -> list[tuple[str, Answer]]:
    return [(f"row {number}", answer) for number, answer in enumerate(answers)]


def read(answers: list[tuple[str, Answer]]) -> str:
    """The kind as which all are read, by the same two passes that a file gets."""
    reader = AnswerReader(answers)
    for where, answer in answers:
        with suppress(UnusableRow):
            assert reader.gold(where, answer) == answer.gold(reader.kind)
    reader.counting.check()
    return reader.kind


def test_settle_refuses_a_mixture() -> None:
    """And what the file leaves open, and indices that seem counted from 1."""
    with pytest.raises(DataError, match="row 1: .* index, earlier .* text"):
        read(rows(Answer("plum", FRUIT), Answer("2", FRUIT)))
    with pytest.raises(
        DataError,
        match=r"row 1: .* \'2\' .* index .choice 2.*answer_is = \"label\"",
    ):
        read(rows(Answer("0", ("0", "1", "2")), Answer("2", ("2", "4", "6"))))
    counted = [Answer(number, FRUIT) for number in (1, 2, 3, 2)]
    with pytest.raises(
        DataError, match="row 2: the answer is 3, and no answer is 0: .* count from 1"
    ):
        read(rows(*counted))
    with pytest.raises(DataError, match="count from 1"):
        read(rows(*counted[2:3]))
    assert read(rows(*counted, Answer(0, FRUIT))) == "index", "a single wrong row is its own affair"
    assert read(rows(Answer("3", FRUIT, ("1", "2", "3")))) == "label"


def test_many_indices_without_a_zero_are_asked_about() -> None:
    """Eight answers of which none is the last choice's number either may still be counted from 1."""
    counted = rows(*(Answer(number, FRUIT) for number in (1, 2, 1, 2, 1, 2, 1, 2)))
    with pytest.raises(DataError, match="none of 8 answers is 0"):
        read(counted)
    assert read(counted[:7]) == "index"
    assert read(rows(*(answer for _, answer in counted), Answer(0, FRUIT))) == "index"
    texts = rows(*(Answer("1", ("0", "1", "2")) for _ in range(8)))
    assert read(texts) == "index", "as texts of choices they mean the same"
    assert read(rows(*(Answer("1", FRUIT, ("1", "2", "3")) for _ in range(8)))) == "label"


def test_settle_lets_other_rows_decide() -> None:
    """A row that is open by itself is not, once another can only be read one way; whichever comes first."""
    open_row, text_row = Answer("2", ("2", "4", "6")), Answer("9", ("7", "8", "9"))
    assert read(rows(open_row, text_row)) == read(rows(text_row, open_row)) == "text"
    assert read(rows(Answer("Z", FRUIT), Answer("1", FRUIT))) == "index", (
        "an unreadable row has no say"
    )
    assert read([]) == "label"


choice_lists = st.lists(
    st.sampled_from(["0", "1", "2", "A", "B", "C", "x"]), min_size=3, max_size=3, unique=True
)


@given(
    st.lists(st.tuples(choice_lists, st.integers(0, 2)), min_size=1, max_size=6),
    st.sampled_from(["label", "index", "text"]),
)
def test_settled_answers_are_never_misread(drawn: list[tuple[list[str], int]], kind: str) -> None:
    """Whatever the author meant, the gold is theirs or the file is refused; another gold is never made of it."""
    spelled = {
        "label": lambda c, g: "ABC"[g],
        "index": lambda c, g: str(g),
        "text": lambda c, g: c[g],
    }[kind]
    answers = [(Answer(spelled(choices, gold), tuple(choices)), gold) for choices, gold in drawn]
    try:
        settled = read(rows(*(answer for answer, _ in answers)))
    except DataError:
        return
    assert [answer.gold(settled) for answer, _ in answers] == [(gold,) for _, gold in answers]


def plain_kind(answers: list[tuple[str, Answer]]) -> str:
    """What `AnswerReader` decides, with every reading of every answer at hand."""
    readable = [(where, readings) for where, answer in answers if (readings := answer.readings())]
    kinds = ["label", "index", "text"]
    for where, readings in readable:
        kinds = [kind for kind in kinds if kind in readings]
        if not kinds:
            raise DataError(f"{where} mixture")
    for where, readings in readable:
        if len({readings[kind] for kind in kinds}) > 1:
            raise DataError(f"{where} open")
    indices = [
        (where, int(str(answer.cell))) for where, answer in answers if str(answer.cell).isdecimal()
    ]
    beyond = [where for where, index in indices if index == 3]
    if beyond and all(index for _, index in indices) and (kinds[0] == "index" or not readable):
        raise DataError(f"{beyond[0]} counted from 1")
    return kinds[0]


spelled_answers = st.sampled_from(
    ["0", "1", "2", "3", "A", "B", "C", "D", "x", Number("0"), Number("1"), Number("3")]
)


@given(st.lists(st.tuples(choice_lists, spelled_answers), max_size=6))
def test_answers_read_one_by_one_are_read_as_all_at_hand(
    drawn: list[tuple[list[str], str]],
) -> None:
    answers = rows(*(Answer(answer, tuple(choices)) for choices, answer in drawn))
    try:
        expected = plain_kind(answers)
    except DataError as refusal:
        place = str(refusal).split(" ", 2)
        with pytest.raises(DataError, match=f"^{place[0]} {place[1]}:"):
            read(answers)
    else:
        assert read(answers) == expected
