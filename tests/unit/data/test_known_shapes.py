"""Files with the columns of a known shape and something else: no option is lost, and no answer is one off."""

import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from choicewise.data.dataset import Dataset, columns_of
from choicewise.data.open import open_dataset
from choicewise.data.options import paths
from choicewise.data.rows import SHAPES, shape_of
from choicewise.errors import DataError, UnknownShape
from tests.helpers.imported_runs import write_lines
from tests.helpers.messages import Gist

Row = dict[str, Any]
Spell = Callable[[int], object]

LETTERS = "ABCDEFGHIJ"
EXTRA = "an option more"

SPELLED: dict[str, Spell] = {
    "index": lambda place: place,
    "index as text": lambda place: str(place),
    "number": lambda place: place + 1,
    "number as text": lambda place: str(place + 1),
    "letter": lambda place: LETTERS[place],
}
FIXED: dict[str, dict[str, Spell]] = {
    "BoolQ": {"as published": lambda place: place == 0},
    "BoolQ, SuperGLUE": {
        "as published": lambda place: 1 - place,
        "from 1": lambda place: 2 - place,
        "from 1 as text": lambda place: str(2 - place),
    },
}
PUBLISHED = {"index": "index", "number": "number", "label": "letter", "any": "index"}
ALIKE = [f"question, A to {letter}, answer" for letter in "CEFGHI"]
"""Shapes that differ from others in the number of columns alone."""
DISTINCT = [name for name in SHAPES if name not in ALIKE]
ANSWERED = [
    name
    for name in DISTINCT
    if SHAPES[name].columns.answer and SHAPES[name].columns.answer_is in PUBLISHED
]
LABELLED = ("ARC, original", "OpenBookQA", "ARC, CommonsenseQA")


def put(row: Row, path: str, cell: object) -> None:
    name, _, inner = path.partition(".")
    if inner:
        row.setdefault(name, {})[inner] = cell
    else:
        row[name] = cell


def texts(number: int, count: int) -> list[str]:
    return [f"{number} {letter}" for letter in LETTERS[:count]]


def spellings(name: str) -> dict[str, Spell]:
    return FIXED.get(name, SPELLED)


def row_of(name: str, number: int, gold: int, spell: Spell | None = None) -> Row:
    """A row with the columns of that shape, in which choice ``gold`` is right."""
    shape = SHAPES[name]
    columns = shape.columns
    row: Row = {}
    for path in shape.also:
        put(row, path, f"about {number}")
    for path, allowed in shape.values.items():
        put(row, path, allowed[0])
    if columns.question is not None:
        put(row, columns.question, f"What is {number}?")
    if isinstance(columns.choices, tuple):
        for path, text in zip(columns.choices, texts(number, len(columns.choices)), strict=True):
            put(row, path, text)
    elif columns.choices is not None and name not in LABELLED:
        put(row, columns.choices, texts(number, 4))
    elif columns.choices is not None:
        put(row, columns.choices, {"text": texts(number, 4), "label": list("ABCD")})
    for source, start in ((columns.right, 0), (columns.wrong, 1)):
        if isinstance(source, tuple):
            for place, path in enumerate(source, start=start):
                put(row, path, f"{number} {LETTERS[place]}")
        elif source is not None:
            put(row, source, [f"{number} {LETTERS[start]}"])
    if isinstance(columns.single, str):
        put(row, columns.single, f"{number} A")
    elif columns.single is not None:
        put(row, columns.single[0], texts(number, 4))
        put(row, columns.single[1], [1, 0, 0, 0])
    if columns.answer_is == "flags":
        put(row, str(columns.answer), [1, 0, 0, 0])
    elif columns.answer is not None and columns.answer_is != "text":
        published = (
            FIXED[name]["as published"] if columns.fixed else SPELLED[PUBLISHED[columns.answer_is]]
        )
        put(row, columns.answer, (spell or published)(gold))
    return row


def count_of(name: str) -> int:
    columns = SHAPES[name].columns
    if columns.fixed:
        return len(columns.fixed)
    return len(columns.choices) if isinstance(columns.choices, tuple) else 4


def rows_of(name: str, golds: list[int], spell: Spell | None = None) -> list[Row]:
    return [row_of(name, number, gold, spell) for number, gold in enumerate(golds)]


def further_columns(name: str) -> Iterator[tuple[str, object]]:
    """Columns with one more option: of the same series as those of the shape, or by their own name."""
    columns = SHAPES[name].columns
    for source in (columns.choices, columns.right, columns.wrong):
        if isinstance(source, tuple):
            last = source[-1]
            following = chr(ord(last[-1]) + 1)
            if len(last) == 1 or last[-1].isdecimal() or last[-1].isupper():
                yield last[:-1] + following, EXTRA
            else:
                yield f"{last}_2", EXTRA
        elif source is not None and "." not in source:
            yield f"{source}_2", [EXTRA, "another"]
    yield "option_9", EXTRA
    yield "wrong_answer", EXTRA
    yield "foil", EXTRA
    yield "fifth_option", EXTRA
    yield "H_choice", EXTRA
    yield "alternatives", [EXTRA, "another"]
    yield "candidates", json.dumps([EXTRA, "another"])
    yield "options" if "options" not in columns.used else "choices", {"A": EXTRA, "B": "another"}


FURTHER = [(name, *column) for name in DISTINCT for column in further_columns(name)]


def opened(path: Path) -> Dataset | None:
    """The data of a file, also where it is refused with the advice to skip bad items; None if that is refused, too."""
    try:
        return open_dataset(path)
    except DataError as refusal:
        if "skip" not in str(refusal):
            return None
    try:
        return open_dataset(path, on_bad_item="skip")
    except DataError:
        return None


@pytest.mark.parametrize("name", SHAPES)
def test_rows_made_here_are_of_the_shape(tmp_path: Path, name: str) -> None:
    rows = rows_of(name, [number % count_of(name) for number in range(12)])
    assert {shape_of(row) for row in rows} == {name}
    data = open_dataset(write_lines(tmp_path / "test.jsonl", rows))
    assert (data.guess, data.notes) == ("", ())
    # A column of the same series that is empty in every row holds no option.
    if "A to" not in name:
        empty = {column: None for column, _ in further_columns(name)}
        assert {shape_of(row | empty) for row in rows} == {name}


@pytest.mark.parametrize(
    ("name", "column", "cell"), FURTHER, ids=lambda cell: cell if isinstance(cell, str) else ""
)
def test_one_more_option_is_asked_or_the_file_is_refused(
    tmp_path: Path, name: str, column: str, cell: object
) -> None:
    """Whether all rows have it, or only a later one."""
    rows = rows_of(name, [number % count_of(name) for number in range(6)])
    for first in (0, 4):
        more = [row | {column: cell} if number >= first else row for number, row in enumerate(rows)]
        path = write_lines(tmp_path / f"from-{first}.jsonl", more)
        data = opened(path)
        for item in data.splits["test"] if data is not None else ():
            assert any(EXTRA in choice for choice in item.choices)


@pytest.mark.parametrize("count", [5, 12])
@pytest.mark.parametrize("name", ANSWERED)
def test_answers_are_never_one_off(tmp_path: Path, name: str, count: int) -> None:
    """However they are spelled; where that leaves it open, there is a note, or the file is refused."""
    choices = count_of(name)
    places = {
        "all": list(range(choices)),
        "never the first": list(range(1, choices)),
        "never the last": list(range(choices - 1)),
    }
    if name in FIXED:
        del places["never the first"]  # labels that are all 1 are all yes, as published
    for which, some in places.items():
        golds = [some[number % len(some)] for number in range(max(count, len(some)))]
        for kind, spell in spellings(name).items():
            path = write_lines(tmp_path / f"{which} {kind}.jsonl", rows_of(name, golds, spell))
            data = opened(path)
            if data is not None and not any("If they count from" in note for note in data.notes):
                for item in data.splits["test"]:
                    number = item.question.removeprefix("What is ").removesuffix("?")
                    assert item.gold == (golds[int(number)],)


@pytest.mark.parametrize(
    "name", [name for name in ANSWERED if SHAPES[name].columns.answer_is in ("index", "any")]
)
def test_answers_from_1_are_told_once_and_no_row_is_to_be_skipped(
    tmp_path: Path, name: str
) -> None:
    golds = [number % count_of(name) for number in range(12)]
    path = write_lines(tmp_path / "test.jsonl", rows_of(name, golds, SPELLED["number"]))
    for on_bad_item in ("error", "skip"):
        with pytest.raises(UnknownShape, match="from 1, not from 0") as refused:
            open_dataset(path, on_bad_item=on_bad_item)
        mapping = columns_of(tomllib.loads("\n".join(refused.value.problems)), "proposed")
        assert mapping == replace(
            SHAPES[name].columns, answer_is="number", subject=mapping.subject, id=mapping.id
        )
        assert "skip" not in str(refused.value)


@pytest.mark.parametrize("name", ["Social IQa", "WinoGrande", *LABELLED])
def test_answers_from_0_beside_labels_from_1(tmp_path: Path, name: str) -> None:
    rows = rows_of(
        name, [number % count_of(name) for number in range(12)], SPELLED["index as text"]
    )
    for row in rows if name in LABELLED else ():
        put(row, str(SHAPES[name].columns.choices), {"text": texts(0, 4), "label": list("1234")})
    with pytest.raises(UnknownShape, match="from 0, not from 1") as refused:
        open_dataset(write_lines(tmp_path / "test.jsonl", rows), on_bad_item="skip")
    assert 'answer_is = "index"' in refused.value.problems


def test_yes_and_no_from_1_are_asked_about(tmp_path: Path) -> None:
    """The mapping that comes with it can't be used before a person has said which of them is 1."""
    rows = rows_of("BoolQ, SuperGLUE", [0, 1, 0], FIXED["BoolQ, SuperGLUE"]["from 1"])
    with pytest.raises(UnknownShape, match="from 1, not from 0") as refused:
        open_dataset(write_lines(tmp_path / "test.jsonl", rows), on_bad_item="skip")
    lines = "\n".join(refused.value.problems)
    with pytest.raises(DataError, match=r"has \.\.\. for labels"):
        columns_of(tomllib.loads(lines), "proposed")
    columns = columns_of(tomllib.loads(lines.replace('"...", "..."', '"2", "1"')), "proposed")
    items = open_dataset(tmp_path / "test.jsonl", columns=columns).splits["test"]
    assert [item.gold for item in items] == [(0,), (1,), (0,)]


def test_a_declared_mapping_is_held_against_the_answers_as_well(tmp_path: Path) -> None:
    rows = rows_of("PIQA", [0, 1, 0], SPELLED["number"])
    path = write_lines(tmp_path / "test.jsonl", rows)
    with pytest.raises(
        DataError, match='count from 1, not from 0; in the mapping, answer_is = "number" counts'
    ):
        open_dataset(path, columns=SHAPES["PIQA"].columns, on_bad_item="skip")
    alone = write_lines(tmp_path / "other" / "dev.jsonl", rows[:1])
    assert open_dataset(alone, columns=SHAPES["PIQA"].columns).notes == ()


def test_a_note_says_how_few_answers_are_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "test.jsonl", rows_of("HellaSwag", [1, 2, 1]))
    assert open_dataset(path).notes == (
        Gist('test.jsonl: ... counting from 0 ... answer_is = "number"'),
    )
    path = write_lines(tmp_path / "other" / "dev.jsonl", rows_of("Social IQa", [0] * 9))
    (note,) = open_dataset(path).notes
    assert note == Gist("dev.jsonl: ... counting from 1, ... 3")


def test_the_first_row_does_not_decide_how_many_options_there_are(tmp_path: Path) -> None:
    short = {"question": "Q", "A": "w", "B": "x", "answer": "A"}
    long = short | {"C": "y", "answer": "C"}
    path = write_lines(tmp_path / "test.jsonl", [short, long])
    with pytest.raises(UnknownShape, match="line 2 .*: column C seems"):
        open_dataset(path, on_bad_item="skip")
    nested = [{"ask": "Q", "options": {"A": "w", "B": "x"}, "gold": "A"}] * 300
    nested.append({"ask": "Q", "options": {"A": "w", "B": "x", "C": "y"}, "gold": "A"})
    with pytest.raises(UnknownShape, match=r"line 301 .*: column options\.C seems"):
        open_dataset(write_lines(tmp_path / "other" / "dev.jsonl", nested), on_bad_item="skip")


def test_a_question_beside_a_premise_is_asked(tmp_path: Path) -> None:
    rows = [row | {"question": f"Why {n}?"} for n, row in enumerate(rows_of("COPA", [0, 1, 0, 1]))]
    items = open_dataset(write_lines(tmp_path / "test.jsonl", rows)).splits["test"]
    assert [item.question for item in items] == [f"Why {n}?" for n in range(4)]
    assert "premise" in items[0].fields
    mixed = write_lines(tmp_path / "other" / "dev.jsonl", [*rows_of("COPA", [0, 1]), rows[0]])
    with pytest.raises(DataError, match="line 3 .*: column question .* 'cause' nor 'effect'"):
        open_dataset(mixed)


def test_passage_and_question_with_options_of_the_row_are_not_boolq(tmp_path: Path) -> None:
    asked = {"passage": "P", "question": "Q"}
    for options in (
        {"choices": ["moo", "roar"]},
        {"A": "moo", "B": "roar"},
        {"o": {"x1": "moo", "x2": "roar"}},
    ):
        path = write_lines(
            tmp_path / "test.jsonl",
            [asked | options | {"label": number % 2} for number in range(4)],
        )
        data = open_dataset(path)
        assert [(item.choices, item.gold) for item in data.splits["test"]] == [
            (("moo", "roar"), (number % 2,)) for number in range(4)
        ]
    bare = write_lines(
        tmp_path / "other" / "dev.jsonl", [asked | {"answer": True, "title": "T", "tags": ["one"]}]
    )
    assert open_dataset(bare).splits["dev"][0].choices == ("yes", "no")


def test_deep_tables_are_looked_into_a_few_levels_deep() -> None:
    deep: Row = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert [*paths(deep)] == ["a.a.a.a.a"]


def test_a_small_letter_may_go_on_from_capitals(tmp_path: Path) -> None:
    rows = rows_of("question, A to D, answer", [0, 1, 2, 3])
    with pytest.raises(UnknownShape, match="# not used: e; "):
        open_dataset(write_lines(tmp_path / "e.jsonl", [row | {"e": EXTRA} for row in rows]))
    for column in ("f", "b", "n_options", "choice", "other"):
        data = open_dataset(
            write_lines(tmp_path / "test.jsonl", [row | {column: EXTRA} for row in rows])
        )
        assert len(data.splits["test"][0].choices) == 4
