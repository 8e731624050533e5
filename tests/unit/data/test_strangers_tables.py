"""Tables of strangers are read with all options and the right answers, or refused with a line that helps."""

import io
import json
import re
import runpy
import shlex
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.data.cells import Cells, Choices
from choicewise.data.dataset import Columns, Dataset, columns_of
from choicewise.data.open import open_dataset
from choicewise.errors import DataError, UnknownShape
from tests.helpers.imported_runs import write_lines
from tests.helpers.messages import Gist
from tests.paths import SHARED

CASES = SHARED / "cases"
FOLDERS = [*range(1, 36), 52, 54, 60, 61, 62, 63]
"""Numbers of the folders that hold tables of questions; the others hold runs, models and servers."""


@dataclass(frozen=True)
class Read:
    """A file that is read: how many options its rows have, and a word of the note that comes with it, if any."""

    options: frozenset[int]
    note: str = ""


@dataclass(frozen=True)
class Refused:
    """A file that is refused: a word of the line that helps, and what comes of the mapping in that line.

    ``then`` is empty where no mapping is proposed, ``read`` where it reads the right answers, and else a word of the
    error with which it is refused again.  ``fill`` is what to put in place of ... so that it reads the right answers.
    """

    word: str
    then: str = ""
    fill: str = ""


def read(*options: int, note: str = "") -> Read:
    return Read(frozenset(options), note)


EXPECTED: dict[str, Read | Refused] = {
    "01-five-options-capital-header/quiz.csv": read(5),
    "03-four-distractors/quiz.jsonl": read(5),
    "05-passage-options-label/quiz.jsonl": read(2),
    "06-passage-true-false/quiz.jsonl": read(2),
    "07-arabic-ragged-options/quiz.csv": Refused("drop_empty = true", then="read"),
    "07-arabic-ragged-options/quiz.jsonl": Refused("drop_empty = true", then="read"),
    "10-medical-cop/hub.jsonl": read(4),
    "10-medical-cop/original.jsonl": read(4),
    "10-medical-cop/test.jsonl": Refused("cop is -1"),
    "11-options-that-are-letters/quiz.jsonl": Refused('answer_is = "label"'),
    "12-odd-letters/brackets.csv": read(4),
    "12-odd-letters/cyrillic.csv": Refused("CYRILLIC CAPITAL LETTER A"),
    "12-odd-letters/dot.csv": read(4),
    "12-odd-letters/fullwidth.csv": Refused("FULLWIDTH LATIN CAPITAL LETTER A"),
    "12-odd-letters/letter-text.csv": Refused("only the label: A"),
    "12-odd-letters/lower.csv": read(4),
    "12-odd-letters/one-cyrillic.csv": Refused("CYRILLIC CAPITAL LETTER A"),
    "12-odd-letters/space.csv": Refused("white space"),
    "12-odd-letters/word.csv": Refused("only the label: A"),
    "13-several-right/commas.jsonl": Refused('["A", "B", "C"]'),
    "13-several-right/glued.jsonl": Refused('["A", "B", "C"]'),
    "13-several-right/indices.jsonl": read(4),
    "13-several-right/lists.jsonl": read(4),
    "14-answer-not-among/quiz.jsonl": Refused("'hoot'"),
    "15-labels-are-texts/quiz.jsonl": read(4),
    "17-space-tells-the-answer/quiz.jsonl": read(10, note="spaces at an edge"),
    "18-na-filled/quiz.jsonl": read(10, note="repeat a choice"),
    "20-unsorted-flags/quiz.jsonl": read(4),
    "22-no-answers/empty.jsonl": Refused("no answers"),
    "22-no-answers/minus.jsonl": Refused("no answers"),
    "22-no-answers/minus_int.jsonl": Refused("no answers"),
    "22-no-answers/none.jsonl": Refused("no answers"),
    "23-forty-options/quiz.jsonl": read(40),
    "25-letters-in-options/brackets.jsonl": read(4, note="letters"),
    "25-letters-in-options/dots.jsonl": read(4, note="letters"),
    "25-letters-in-options/seven.jsonl": read(4, 7, note="letters"),
    "26-excel/bom-semicolon.csv": read(4),
    "26-excel/german.csv": Refused('"Antwort"', then="read"),
    "26-excel/sep.csv": read(4),
    "26-excel/spaces.csv": read(4),
    "26-excel/title-row.csv": Refused("'Animals quiz, spring'"),
    "26-excel/trailing-columns.csv": read(4),
    "26-excel/trailing-rows.csv": read(4),
    "26-excel/utf16.csv": Refused("iconv -f utf-16"),
    "26-excel/utf16.txt": Refused(".csv"),
    "27-json/data.json": Refused("python -c"),
    "27-json/dict.jsonl": read(4),
    "27-json/list.json": Refused("python -c"),
    "27-json/list.jsonl": Refused("python -c"),
    "27-json/parenthesised.jsonl": read(4, note="letters"),
    "27-json/pretty.jsonl": Refused("python -c"),
    "27-json/string.jsonl": Refused('choices_split = " , "', then="read"),
    "30-no-header/animals_test.csv": Refused("header", then="fill it in"),
    "31-identical-pairs/quiz.jsonl": read(2, note="repeat a choice"),
    "32-shapes-with-more-options/piqa3.jsonl": read(3),
    "32-shapes-with-more-options/siqa4.jsonl": Refused(
        '"answerD"', then="has ... for answer_is", fill="number"
    ),
    "33-passage-with-own-options/passage-choices.jsonl": read(2),
    "34-ten-numbered-options/ten-numbered.jsonl": Refused(
        '"option_10"', then="has ... for answer_is", fill="number"
    ),
    "35-one-based-in-known-shapes/copa-one.jsonl": Refused('answer_is = "number"', then="read"),
    "35-one-based-in-known-shapes/piqa-one.jsonl": Refused('answer_is = "number"', then="read"),
    "52-tables-from-pandas/arcnumpy.csv": Refused("df.to_json"),
    "52-tables-from-pandas/arcrepr.csv": Refused("df.to_json"),
    "52-tables-from-pandas/bool-lists.jsonl": read(4),
    "52-tables-from-pandas/chat.jsonl": Refused("messages holds chats", then="fill it in"),
    "52-tables-from-pandas/correct-in-choice.jsonl": Refused(
        "answers marks the right choice", then="fill it in"
    ),
    "52-tables-from-pandas/float.csv": Refused("write 0"),
    "52-tables-from-pandas/float.parquet": Refused("write 0"),
    "52-tables-from-pandas/harness-gold.jsonl": read(4),
    "52-tables-from-pandas/in-question.jsonl": Refused("columns A, B, C", then="fill it in"),
    "52-tables-from-pandas/index-column.csv": read(4),
    "52-tables-from-pandas/nfd.jsonl": read(4),
    "52-tables-from-pandas/numpy.csv": Refused("df.to_json"),
    "52-tables-from-pandas/onestring.jsonl": Refused('choices_split = "\\n"', then="read"),
    "52-tables-from-pandas/pyrepr.csv": read(4),
    "52-tables-from-pandas/typed.parquet": read(4),
    "52-tables-from-pandas/unnamed.csv": read(4),
    "54-first-row-decides/good-short-first.jsonl": Refused("drop_empty = true", then="read"),
    "60-five-options-everywhere/quiz.csv": read(5),
    "60-five-options-everywhere/some-four.csv": Refused("drop_empty = true", then="read"),
    "61-premise-and-question/quiz.jsonl": read(2),
    "62-fifth-option-none-of-these/quiz.csv": read(5),
    "63-all-answers-first/quiz.jsonl": read(3, note="none is 3"),
}

Right = Callable[[dict[str, Any]], list[str]]
RIGHT: dict[str, Right] = {
    "13-several-right/indices.jsonl": lambda row: [
        row["choices"][index] for index in row["answer"]
    ],
    "13-several-right/lists.jsonl": lambda row: [
        row["choices"]["ABCD".index(letter)] for letter in row["answer"]
    ],
    "20-unsorted-flags/quiz.jsonl": lambda row: [
        text for text in row["mc2_targets"]["choices"] if text.startswith("right")
    ],
    "25-letters-in-options/dots.jsonl": lambda row: [row["choices"]["ABCD".index(row["answer"])]],
    "27-json/parenthesised.jsonl": lambda row: [row["options"]["ABCD".index(row["correct"])]],
    "32-shapes-with-more-options/piqa3.jsonl": lambda row: [row[f"sol{row['label'] + 1}"]],
    "32-shapes-with-more-options/siqa4.jsonl": lambda row: [
        row["answer" + " ABCD"[int(row["label"])]]
    ],
    "33-passage-with-own-options/passage-choices.jsonl": lambda row: [row["choices"][row["label"]]],
    "35-one-based-in-known-shapes/copa-one.jsonl": lambda row: [row[f"choice{row['label']}"]],
    "35-one-based-in-known-shapes/piqa-one.jsonl": lambda row: [row[f"sol{row['label']}"]],
    "54-first-row-decides/good-short-first.jsonl": lambda row: [row[row["answer"]]],
    "34-ten-numbered-options/ten-numbered.jsonl": lambda row: [row[f"option_{row['answer']}"]],
    "52-tables-from-pandas/nfd.jsonl": lambda row: [row["answer"]],
}
"""What is right in a row, for files whose rows say it and whose folder's texts do not."""


def meant(name: str) -> list[list[str]]:
    """The right texts of a case's rows, sorted."""
    path = CASES / name
    if name in RIGHT:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [sorted(RIGHT[name](row)) for row in rows]
    return [
        [text]
        for text in json.loads((path.parent / "expected.json").read_text(encoding="utf-8"))["right"]
    ]


def right_texts(data: Dataset) -> list[list[str]]:
    return [sorted(item.choices[index] for index in item.gold) for item in data.splits["test"]]


@pytest.fixture(params=EXPECTED)
def case(request: pytest.FixtureRequest, shared_data: Path) -> str:
    return str(request.param)


def test_a_table_is_read_right_or_refused_with_a_line_that_helps(case: str) -> None:
    expected = EXPECTED[case]
    if isinstance(expected, Refused):
        with pytest.raises(DataError, match=re.escape(expected.word)) as refused:
            open_dataset(CASES / case)
        assert Path(case).name in str(refused.value)
        assert isinstance(refused.value, UnknownShape) == bool(expected.then)
        return
    data = open_dataset(CASES / case)
    assert right_texts(data) == meant(case)
    assert {len(item.choices) for item in data.splits["test"]} == expected.options
    told = [note for note in data.notes if "same question" not in note]
    assert [expected.note in note for note in told] == ([True] if expected.note else [])


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, expected in EXPECTED.items()
        if isinstance(expected, Refused) and expected.then
    ],
)
def test_a_proposed_mapping_reads_right_or_is_refused(name: str, shared_data: Path) -> None:
    """It is copied as it is printed."""
    expected = EXPECTED[name]
    assert isinstance(expected, Refused)
    with pytest.raises(UnknownShape) as refused:
        open_dataset(CASES / name)
    lines = "\n".join(refused.value.problems)
    if expected.then == "read":
        columns = columns_of(tomllib.loads(lines), "mapping")
        assert right_texts(open_dataset(CASES / name, columns=columns)) == meant(name)
        return
    with pytest.raises(DataError, match=re.escape(expected.then)):
        open_dataset(CASES / name, columns=columns_of(tomllib.loads(lines), "mapping"))
    if expected.fill:
        columns = columns_of(tomllib.loads(lines.replace("...", expected.fill)), "mapping")
        assert right_texts(open_dataset(CASES / name, columns=columns)) == meant(name)


def test_every_table_has_its_line(shared_data: Path) -> None:
    tables = set()
    for folder in CASES.iterdir():
        if folder.is_dir() and int(folder.name[:2]) in FOLDERS:
            tables |= {f"{folder.name}/{file.name}" for file in folder.iterdir()}
    besides = {name for name in tables if name.endswith(("/expected.json", "/run.sh"))}
    assert tables - besides == set(EXPECTED)


def asked(path: Path, mapping: str = "") -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """The choices and the right ones of each question of a file, under a mapping in TOML if there is one."""
    columns = columns_of(tomllib.loads(mapping), "mapping") if mapping else None
    return [
        (item.choices, item.gold) for item in open_dataset(path, columns=columns).splits["test"]
    ]


def proposed(path: Path) -> str:
    """The mapping that is proposed for a file."""
    with pytest.raises(UnknownShape) as refused:
        open_dataset(path)
    return "\n".join(refused.value.problems)


ANIMALS = (
    "moo",
    "woof",
    "meow",
    "quack",
    "croak",
    "hoot",
    "buzz",
    "oink",
    "baa",
    "roar",
    "hiss",
    "neigh",
)


@pytest.mark.parametrize(
    "names", [[f"option_{n}" for n in range(1, 13)], [f"Option{n:02}" for n in range(12)]]
)
def test_options_beyond_the_ninth_number_are_options(tmp_path: Path, names: list[str]) -> None:
    rows = [
        {"stem": f"Q{n}", **dict(zip(names, ANIMALS, strict=True)), "key": ANIMALS[n]}
        for n in (0, 9, 11)
    ]
    path = write_lines(tmp_path / "quiz.jsonl", rows)
    assert asked(path) == [(ANIMALS, (0,)), (ANIMALS, (9,)), (ANIMALS, (11,))]


def test_options_beyond_the_tenth_letter_are_options(tmp_path: Path) -> None:
    letters = "ABCDEFGHIJKL"
    options = {f"Option {letter}": text for letter, text in zip(letters, ANIMALS, strict=True)}
    rows = [{"stem": f"Q{n}", **options, "N": n, "key": letters[n].lower()} for n in (0, 9, 11)]
    assert asked(write_lines(tmp_path / "quiz.jsonl", rows)) == [
        (ANIMALS, (0,)),
        (ANIMALS, (9,)),
        (ANIMALS, (11,)),
    ]
    for row in rows:
        del row["Option K"]
    assert (
        "Option L"
        not in proposed(write_lines(tmp_path / "gap.jsonl", rows)).partition("question =")[2]
    )


def test_a_letter_far_from_those_of_the_options_is_another_column(tmp_path: Path) -> None:
    rows = [{"N": n, "stem": f"Q{n}", "A": "x", "B": "y", "key": "AB"[n]} for n in range(2)]
    assert asked(write_lines(tmp_path / "quiz.jsonl", rows)) == [
        (("x", "y"), (0,)),
        (("x", "y"), (1,)),
    ]


RAGGED = 'choices = ["A", "B", "C", "D"]\nanswer = "key"\nanswer_is = "label"\ndrop_empty = true\n'


@pytest.mark.parametrize(
    "lacking", [{"C": "", "D": " "}, {"C": None, "D": None}, {}], ids=["empty", "null", "no key"]
)
def test_a_row_may_end_in_empty_choices(tmp_path: Path, lacking: dict[str, Any]) -> None:
    full = {"question": "Q1", "A": "w", "B": "x", "C": "y", "D": "z", "key": "D"}
    short = {"question": "Q2", "A": "w", "B": "x", **lacking, "key": "B"}
    path = write_lines(tmp_path / "quiz.jsonl", [full, short])
    assert asked(path, RAGGED) == [(("w", "x", "y", "z"), (3,)), (("w", "x"), (1,))]
    write_lines(path, [full, {**short, "key": "C"}])
    with pytest.raises(DataError, match="line 2 .* 'C' is not one"):
        asked(path, RAGGED)
    write_lines(path, [full, {**full, "B": ""}])
    with pytest.raises(DataError, match=r"line 2 .*choice 1 .counted from 0. is ''"):
        asked(path, RAGGED)
    with pytest.raises(DataError, match="no row .* 'DD'"):
        asked(write_lines(path, [full, short]), RAGGED.replace('"D"', '"DD"'))


def test_a_lost_text_is_no_shorter_row_without_a_mapping(tmp_path: Path) -> None:
    row = {"question": "Q", "A": "w", "B": "x", "C": "y", "key": "A"}
    path = write_lines(tmp_path / "quiz.jsonl", [row, row, {**row, "C": ""}])
    lines = proposed(path)
    assert "no text was lost" in lines
    assert [len(choices) for choices, _ in asked(path, lines)] == [3, 3, 2]
    long = write_lines(
        tmp_path / "long.jsonl",
        [{**row, "question": f"Q{n}"} for n in range(300)] + [{**row, "C": ""}],
    )
    with pytest.raises(DataError, match="line 301 .*drop_empty = true"):
        asked(long, proposed(long))


def test_a_list_in_one_cell_is_no_choice(tmp_path: Path) -> None:
    wrong = ["television | refrigerator | airplane", "hen|owl"]
    rows = [
        {"q": f"Which {n}?", "correct": "hammer", "wrong": cell} for n, cell in enumerate(wrong)
    ]
    path = write_lines(tmp_path / "quiz.jsonl", rows)
    lines = proposed(path)
    assert 'choices_split = "|"' in lines
    choices = [("hammer", "television", "refrigerator", "airplane"), ("hammer", "hen", "owl")]
    assert asked(path, lines) == [(texts, (0,)) for texts in choices]
    minimal = [{"good": f"Yes, {n} are.", "bad": f"Yes, {n} is."} for n in range(3)]
    assert asked(write_lines(tmp_path / "pairs.jsonl", minimal))[0] == (
        ("Yes, 0 are.", "Yes, 0 is."),
        (0,),
    )


def test_right_and_wrong_ones_in_two_cells(tmp_path: Path) -> None:
    """As TruthfulQA's sheet has them, where the separator also ends a cell."""
    rows = [
        {
            "ask": f"Q{n}",
            "Best": f"a {n}",
            "Correct Answers": f"a {n}; b {n}",
            "Incorrect Answers": f"c {n}; d {n};",
        }
        for n in range(3)
    ]
    path = write_lines(tmp_path / "quiz.jsonl", rows)
    assert asked(path, proposed(path))[1] == (("a 1", "b 1", "c 1", "d 1"), (0, 1))


def test_several_columns_of_right_ones(tmp_path: Path) -> None:
    names = ("correct_answer", "correct_answer_2", "wrong_answer_1", "wrong_answer_2")
    row = {"ask": "Q", **dict(zip(names, ANIMALS, strict=False))}
    assert asked(write_lines(tmp_path / "quiz.jsonl", [row])) == [(ANIMALS[:4], (0, 1))]


def test_a_letter_is_no_choice_beside_others(tmp_path: Path) -> None:
    rows = [
        {"ask": f"Q{n}", "A": "x", "B": "y", "correct": "AB"[n], "wrong_rate": n} for n in range(2)
    ]
    assert asked(write_lines(tmp_path / "quiz.jsonl", rows)) == [
        (("x", "y"), (0,)),
        (("x", "y"), (1,)),
    ]
    sums = [
        {"ask": f"{n} + 1?", "correct": n + 1, "wrong_1": n, "wrong_2": n + 2} for n in range(2)
    ]
    path = write_lines(tmp_path / "sums.jsonl", sums)
    assert asked(path) == [(("1", "0", "2"), (0,)), (("2", "1", "3"), (0,))]


def test_a_comma_may_stand_in_a_choice(tmp_path: Path) -> None:
    """So the mapping leaves open whether it parts choices."""
    rows = [
        {"q": f"Which {n}?", "correct": "hammer", "wrong": f"tin, {n}, cow, hen"} for n in range(3)
    ]
    path = write_lines(tmp_path / "quiz.jsonl", rows)
    lines = proposed(path)
    with pytest.raises(DataError, match=r"has \.\.\. for choices_split"):
        asked(path, lines)
    filled = lines.replace('"..."', '", "')
    assert asked(path, filled)[0] == (("hammer", "tin", "0", "cow", "hen"), (0,))
    as_one = lines.replace('choices_split = "..."', "").replace(
        'wrong = "wrong"', 'wrong = ["wrong"]'
    )
    assert asked(path, as_one)[0] == (("hammer", "tin, 0, cow, hen"), (0,))


@pytest.mark.parametrize(
    ("cell", "separator", "texts"),
    [
        ("red|green", "|", ("red", "green")),
        ("A) red\nB) green", "\n", ("red", "green")),
        ("a ) 3,000 , b ) 4,000", " , ", ("3,000", "4,000")),
        ("A. Lincoln", "|", ("A. Lincoln",)),
        ("(B) red; (C) green", ";", ("(B) red", "(C) green")),
    ],
)
def test_choices_in_one_cell(
    tmp_path: Path, cell: str, separator: str, texts: tuple[str, ...]
) -> None:
    row = {"question": "Q", "right": "blue", "wrong": cell}
    mapping = f'right = ["right"]\nwrong = "wrong"\nchoices_split = {json.dumps(separator)}\n'
    assert asked(write_lines(tmp_path / "quiz.jsonl", [row]), mapping) == [(("blue", *texts), (0,))]


def test_a_separator_inside_a_choice_stops(tmp_path: Path) -> None:
    row = {"question": "Q", "options": "a ) 3,000 , b ) 4,000", "answer": "b"}
    path = write_lines(tmp_path / "quiz.jsonl", [row])
    with pytest.raises(DataError, match="A, B, C.*correct choices_split"):
        asked(
            path,
            'choices = "options"\nanswer = "answer"\nchoices_split = ","\nlabels = ["a", "b", "c"]\n',
        )
    with pytest.raises(DataError, match="choices_split splits"):
        columns_of({"choices": ["a", "b"], "answer": "c", "choices_split": "|"}, "mapping")


def test_a_column_named_q_is_the_question_of_pairs(tmp_path: Path) -> None:
    rows = [{"q": f"Which {n}?", "correct_qs": ["x", "y"], "wrong": ["z", "w"]} for n in range(2)]
    (first, _) = open_dataset(write_lines(tmp_path / "quiz.jsonl", rows)).splits["test"]
    assert (first.question, first.choices) == ("Which 0?", ("x", "y", "z", "w"))
    cells = Cells(rows)
    assert cells.questions == ["q"]
    assert list(cells.pairs()) == [(Choices("correct_qs"), Choices("wrong"))]


def test_answers_under_another_name_are_found(tmp_path: Path) -> None:
    rows = [{"question": f"Q{n}", "A": "x", "B": "y", "key": key} for n, key in enumerate("AB")]
    assert asked(write_lines(tmp_path / "quiz.jsonl", rows)) == [
        (("x", "y"), (0,)),
        (("x", "y"), (1,)),
    ]
    rows = [{"question": f"Q{n}", "A": "x", "B": "y", "key": 1} for n in range(9)]
    assert 'answer = "key"' in proposed(write_lines(tmp_path / "open.jsonl", rows))


@pytest.mark.parametrize(
    ("name", "is_subject"), [("Subject", True), ("category", True), ("Topic", False)]
)
def test_a_column_called_subject_is_the_subject(
    tmp_path: Path, name: str, is_subject: bool
) -> None:
    topics = ("geography", "science", "science", "history")
    rows = [
        {name: topic, "Question": f"Q{n}", "A": "x", "B": "y", "Correct": "A"}
        for n, topic in enumerate(topics)
    ]
    data = open_dataset(write_lines(tmp_path / "quiz.jsonl", rows))
    assert data.subjects("test") == (("geography", "science", "history") if is_subject else ("",))
    told = [note for note in data.notes if f"{name} (3 values in 4 rows)" in note]
    assert len(told) == (not is_subject)


LETTERS = "ABCDEFGHIJKLM"
ANSWERS: dict[str, Callable[[int, str], object]] = {
    "letter": lambda gold, text: LETTERS[gold],
    "small letter": lambda gold, text: LETTERS[gold].lower(),
    "letter in brackets": lambda gold, text: f"({LETTERS[gold]})",
    "letter with a dot": lambda gold, text: f"{LETTERS[gold]}.",
    "number from 0": lambda gold, text: gold,
    "number from 1": lambda gold, text: str(gold + 1),
    "text": lambda gold, text: text,
}
NAMES: list[Callable[[int], str]] = [
    lambda index: LETTERS[index],
    lambda index: f"Option {LETTERS[index]}",
    lambda index: f"op{LETTERS[index].lower()}",
    lambda index: f"option_{index + 1}",
    lambda index: f"choice{index}",
]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(2, 13), st.integers(0, 12)), min_size=1, max_size=9),
    st.sampled_from(NAMES),
    st.sampled_from([*ANSWERS]),
    st.sampled_from(["stem", "Frage"]),
    st.sampled_from(["Correct", "key", "Antwort"]),
)
def test_no_table_is_read_wrongly(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[int, int]],
    name: Callable[[int], str],
    spelling: str,
    question: str,
    answer: str,
) -> None:
    """Rows of any number of options are read as meant or refused, and so they are by the mapping that is proposed."""
    width = max(count for count, _ in drawn)
    rows = []
    right = []
    for number, (count, place) in enumerate(drawn):
        texts = [f"{ANIMALS[index % 12]} {number}.{index}" for index in range(count)]
        gold = place % count
        cells = {name(index): text for index, text in enumerate(texts + [""] * (width - count))}
        rows.append(
            {
                question: f"What is number {number}?",
                **cells,
                answer: ANSWERS[spelling](gold, texts[gold]),
            }
        )
        right.append((tuple(texts), (gold,)))
    path = write_lines(tmp_path_factory.mktemp("drawn") / "quiz.jsonl", rows)
    read_as = right
    try:
        read_as = asked(path)
    except UnknownShape as refused:
        with suppress(DataError):
            read_as = asked(path, "\n".join(refused.problems))
    assert read_as == right


def run_printed(message: str, folder: Path) -> Path:
    """Do what the command ``python -c`` in a message does, and return the file that it writes."""
    command = re.search(r'python -c "([^"]+)" > (.+)', message)
    assert command is not None
    [name] = shlex.split(command[2])
    script = folder / "printed.py"
    script.write_text(command[1], encoding="utf-8")
    printed = io.StringIO()
    with redirect_stdout(printed):
        runpy.run_path(str(script))
    path = folder / name
    path.write_text(printed.getvalue(), encoding="utf-8")
    return path


JSON_FORMS = {
    "list.json": lambda rows: json.dumps(rows, indent=1),
    "keyed.json": lambda rows: json.dumps({"version": 1, "rows": rows}),
    "list.jsonl": json.dumps,
    "pretty.jsonl": lambda rows: "\n".join(json.dumps(row, indent=2) for row in rows),
    "mark.json": lambda rows: f"\ufeff{json.dumps(rows)}",
    "Ada's.json": json.dumps,
}


@pytest.mark.parametrize("name", JSON_FORMS)
def test_the_command_that_is_printed_makes_json_lines(tmp_path: Path, name: str) -> None:
    rows = [{"question": f"Ø }} {{ {n}?", "choices": ["x", "y"], "answer": n} for n in range(2)]
    path = tmp_path / name
    path.write_text(JSON_FORMS[name](rows), encoding="utf-8")
    with pytest.raises(DataError) as refused:
        open_dataset(path)
    lines = run_printed(str(refused.value), tmp_path.parent)
    assert [json.loads(line) for line in lines.read_text().splitlines()] == rows
    assert asked(lines) == [(("x", "y"), (0,)), (("x", "y"), (1,))]


def test_json_lines_under_another_ending_are_renamed(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "quiz.json", [{"question": "Q"}, {"question": "R"}])
    with pytest.raises(DataError, match=r"can't read .*quiz.json: .*rename it to quiz.jsonl"):
        open_dataset(path)
    path.write_text('"no rows"')
    with pytest.raises(DataError, match="JSON object per line"):
        open_dataset(path)


def test_empty_cells_around_a_table_hold_nothing(tmp_path: Path) -> None:
    """Those that a spreadsheet leaves at its right and below; a text there is a fault."""
    path = tmp_path / "quiz.csv"
    path.write_text("sep=;\nquestion;A;B;answer;;\nQ;x;y;A;;\n;;;;;\nR;x;y;B;;\n;;;;;\n;;;;;\n")
    with pytest.raises(DataError, match="row 3 .the header is row 1.: .*column question is"):
        open_dataset(path)
    data = open_dataset(path, on_bad_item="skip")
    assert [item.id for item in data.splits["test"]] == ["test/0", "test/2"]
    path.write_text("question,A,B,answer,,\nQ,x,y,A,,\nR,x,y,B,,note\n")
    with pytest.raises(DataError, match="row 3 .*6 cells .* header of 4"):
        open_dataset(path)


def test_wrong_answers_in_one_cell_stop_whatever_parts_them(tmp_path: Path) -> None:
    """A column in the plural holds several texts, also behind a separator that no rule knows."""
    for separator in ("$", " or ", "•"):
        rows = [
            {"question": "Q", "correct_answer": "hen", "wrong_answers": f"ant{separator}bee"}
            for _ in range(3)
        ]
        path = write_lines(tmp_path / "quiz.jsonl", rows)
        lines = proposed(path)
        with pytest.raises(DataError, match=r"mapping has \.\.\. for choices_split; fill it in"):
            asked(path, lines)
        assert asked(path, lines.replace('"..."', f'"{separator}"'))[0] == (
            ("hen", "ant", "bee"),
            (0,),
        )


def test_a_remark_on_a_wrong_answer_is_none(tmp_path: Path) -> None:
    row = {"question": "Q", "opt_a": "ant", "opt_b": "bee", "answer": "B"}
    rows = [
        row | {"correct_answer_text": "bee", "wrong_answer_explanation": "It has two wings."}
        for _ in range(3)
    ]
    assert asked(write_lines(tmp_path / "quiz.jsonl", rows))[0] == (("ant", "bee"), (1,))


def test_two_groups_of_columns_leave_open_which_are_choices(tmp_path: Path) -> None:
    """Also where the question by one of them is a choice by the other."""
    story = {"sentence1": "She woke.", "sentence2": "It rained."}
    ends = {"quiz_sentence1": "She ran.", "quiz_sentence2": "She slept."}
    lines = proposed(
        write_lines(
            tmp_path / "quiz.jsonl", [story | ends | {"right": 1 + n % 2} for n in range(9)]
        )
    )
    assert 'question = "..."' in lines
    assert 'choices = "..."' in lines


def test_a_column_that_may_hold_one_more_choice_is_named_beside_the_mapping(tmp_path: Path) -> None:
    row = {"question": "Q", "A": "ant", "B": "bee", "C": "cat", "D": "dog", "answer": "D"}
    path = write_lines(tmp_path / "quiz.jsonl", [row | {"F": 0.5}])
    lines = proposed(path)
    assert "# not used: F; " in lines
    assert asked(path, lines) == [(("ant", "bee", "cat", "dog"), (3,))]


def test_answers_in_a_column_that_the_shape_does_not_have(tmp_path: Path) -> None:
    rows = [{"question": "Q", "choices": ["ant", "bee"], "label": 1} for _ in range(3)]
    with pytest.raises(UnknownShape, match="can't tell which columns .*: question, choices, label"):
        open_dataset(write_lines(tmp_path / "quiz.jsonl", rows))


def test_a_filler_in_place_of_choices_is_noted(tmp_path: Path) -> None:
    """It is asked, as ``N/A`` may be meant, and said."""
    row = {"question": "Q", "A": "ant", "B": "bee", "C": "N/A", "D": "N/A", "answer": "B"}
    (note,) = [
        note
        for note in open_dataset(write_lines(tmp_path / "quiz.jsonl", [row])).notes
        if "repeat a choice" in note
    ]
    assert note == Gist("quiz.jsonl: 1 of 1 questions ... 'N/A'")


def test_a_long_answer_is_not_printed_whole(tmp_path: Path) -> None:
    row = {"question": "Q", "choices": ["ant", "bee"], "answer": "9" * 5000}
    with pytest.raises(DataError) as refused:
        open_dataset(write_lines(tmp_path / "quiz.jsonl", [row, row | {"answer": 1}]))
    assert len(str(refused.value)) < 1000


def test_the_mapping_for_an_option_far_down_asks_it(tmp_path: Path) -> None:
    row = {"question": "Q", "A": "ant", "B": "bee", "C": "cat", "D": "dog", "answer": "D"}
    path = write_lines(
        tmp_path / "quiz.jsonl",
        [row | {"id": n} for n in range(250)] + [row | {"id": 250, "E": "emu"}],
    )
    lines = proposed(path)
    assert asked(path, lines)[-1] == (("ant", "bee", "cat", "dog", "emu"), (3,))


def test_a_column_with_bars_is_offered_as_the_choices(tmp_path: Path) -> None:
    file = tmp_path / "fragen.csv"
    file.write_text("Frage;Antworten;Loesung\nRot?;Mars|Venus|Erde;Mars\nVier?;3|4|5;4\n")
    with pytest.raises(DataError) as error:
        open_dataset(file)
    mapping = error.value.problems
    assert 'choices = "Antworten"' in mapping
    assert 'choices_split = "|"' in mapping
    filled = Columns(question="Frage", choices="Antworten", answer="Loesung", choices_split="|")
    items = open_dataset(file, columns=filled).splits["test"]
    assert [(len(item.choices), item.gold) for item in items] == [(3, (0,)), (3, (1,))]


ROWS_OF_BARS = [
    {"question": "Rot?", "options": "Mars | Venus | Erde", "answer": "A"},
    {"question": "Vier?", "options": "3 | 4", "answer": "B"},
]


@pytest.mark.parametrize("separator", ["|", ";"])
@pytest.mark.parametrize("column", ["options", "choices"])
@pytest.mark.parametrize("answers", [("A", "B"), ("Mars", "4"), ("0", "1")])
def test_options_behind_a_sure_separator_are_read_with_a_note(
    tmp_path: Path, separator: str, column: str, answers: tuple[str, str]
) -> None:
    rows = []
    for row, answer in zip(ROWS_OF_BARS, answers, strict=True):
        cell = row["options"].replace("|", separator)
        rows.append({"question": row["question"], column: cell, "answer": answer})
    data = open_dataset(write_lines(tmp_path / "quiz.jsonl", rows))
    items = data.splits["test"]
    assert [item.choices for item in items] == [("Mars", "Venus", "Erde"), ("3", "4")]
    assert [item.gold for item in items] == [(0,), (1,)]
    assert f"{column} (split at {separator})" in data.guess


@pytest.mark.parametrize(
    "change",
    [
        {"options": "3; x | 4; y"},  # with the other row changed alike, two separators fit
        {"options": "3, 4"},
        {"options": "3 | 4 |"},
        {"answer": "C"},
        {"answer": "4"},
        {"A": "3", "B": "4"},
    ],
)
def test_options_in_a_cell_stop_if_a_row_or_another_column_speaks_against_it(
    tmp_path: Path, change: dict[str, str]
) -> None:
    first, last = ROWS_OF_BARS
    if "x" in change.get("options", ""):
        first = first | {"options": "Mars; red | Venus; hot"}
    if "A" in change:
        first = first | {"A": "Mars", "B": "Venus"}
        first |= {"C": "Erde"}
    path = write_lines(tmp_path / "quiz.jsonl", [first, last | change])
    with pytest.raises(DataError):
        open_dataset(path)


def test_spellings_of_one_answer_are_no_options(tmp_path: Path) -> None:
    rows = [
        {"question": f"Q{n}", "answers": f"Paris {n}|paris {n}", "answer": f"Paris {n}"}
        for n in range(3)
    ]
    assert 'choices_split = "|"' in proposed(write_lines(tmp_path / "quiz.jsonl", rows))
