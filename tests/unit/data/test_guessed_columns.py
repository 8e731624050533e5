"""Columns that one guess alone fits in every row are read so, and the dataset says it."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.data.dataset import Columns, columns_of, mapping_table
from choicewise.data.files import RowPlace
from choicewise.data.guess import UnknownShape
from choicewise.data.open import open_dataset

HEADER = ("Question", "Option A", "Option B", "Option C", "Option D", "Correct", "Topic")
ROWS = [(f"What is {n}?", f"{n}", f"{n + 1} b", f"{n + 2} c", f"{n + 3} d", "ABCD"[n % 4], "sums") for n in range(12)]


def sheet(path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...] = HEADER, delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def test_a_guess_that_fits_every_row_is_used_and_said(tmp_path: Path) -> None:
    data = open_dataset(sheet(tmp_path / "quiz.csv", ROWS))
    assert data.guess == (
        "quiz.csv: question = Question, choices = Option A..D, answer = Correct (label), subject = Topic"
    )
    assert [item.gold for item in data.splits["test"]] == [(n % 4,) for n in range(12)]
    assert data.columns == Columns("Question", HEADER[1:5], answer="Correct", answer_is="label", subject="Topic")
    again = open_dataset(tmp_path / "quiz.csv", columns=columns_of(mapping_table(data.columns), "mapping"))
    assert (again.digest, again.guess) == (data.digest, "")


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ";"), ("b.csv", "\t"), ("c.tsv", "\t"), ("d.csv", ",")])
def test_cells_are_parted_by_what_parts_the_header(tmp_path: Path, name: str, delimiter: str) -> None:
    read = open_dataset(sheet(tmp_path / name, ROWS, delimiter=delimiter))
    assert [item.question for item in read.splits["test"]] == [row[0] for row in ROWS]


@pytest.mark.parametrize(
    ("answers", "kind"),
    [("0123", "index from 0"), ("1234", "number from 1"), ("abcd", "label"), (["Option A", "Option C"], "label")],
)
def test_answers_that_mean_one_thing(tmp_path: Path, answers: list[str], kind: str) -> None:
    rows = [(*row[:5], answers[n % len(answers)], row[6]) for n, row in enumerate(ROWS)]
    data = open_dataset(sheet(tmp_path / "quiz.csv", rows))
    assert f"answer = Correct ({kind})" in data.guess
    assert data.splits["test"][1].gold == ((1,) if len(answers) == 4 else (2,))


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        ([(*row[:5], "123"[n % 3], row[6]) for n, row in enumerate(ROWS)], HEADER),  # from 0 or from 1
        ([(*row, "DCBA"[n % 4]) for n, row in enumerate(ROWS)], (*HEADER, "Key")),  # two columns of other answers
        (
            [(*row[:5], "Z" if n == 7 else row[5], row[6]) for n, row in enumerate(ROWS)],
            HEADER,
        ),  # a row it does not fit
        (
            [(*row[:4], "" if n == 7 else "d", "ABC"[n % 3], row[6]) for n, row in enumerate(ROWS)],
            HEADER,
        ),  # D left empty
        ([("" if n == 7 else row[0], *row[1:], "a text") for n, row in enumerate(ROWS)], (*HEADER, "Context")),
        ([(*row, f"Was ist {n}?") for n, row in enumerate(ROWS)], ("Question EN", *HEADER[1:], "Question DE")),
        ([(*row[:3], *("true", "false")[n % 2 :][:1]) for n, row in enumerate(ROWS)], (*HEADER[:3], "Correct")),
    ],
    ids=["digits", "answers", "row", "choice", "question", "languages", "truth"],
)
def test_what_stays_open_stops(tmp_path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...]) -> None:
    for on_bad_item in ("error", "skip"):
        with pytest.raises(UnknownShape, match="no known shape"):
            open_dataset(sheet(tmp_path / "quiz.csv", rows, header), on_bad_item=on_bad_item)


def test_the_row_that_a_proposal_does_not_fit_is_named(tmp_path: Path) -> None:
    rows = [(*row[:5], "Z" if n == 7 else row[5], row[6]) for n, row in enumerate(ROWS)]
    with pytest.raises(UnknownShape) as refused:
        open_dataset(sheet(tmp_path / "quiz.csv", rows))
    assert any(
        "quiz.csv, row 9 (the header is row 1): the answer 'Z' is none of" in each for each in refused.value.problems
    )


def test_all_files_decide(tmp_path: Path) -> None:
    """Digits of which one file alone has the 4 count from 1 in both."""
    for split, answers in {"test": "123", "dev": "1234"}.items():
        rows = [(*row[:5], answers[n % len(answers)], row[6]) for n, row in enumerate(ROWS)]
        sheet(tmp_path / f"{split}.csv", rows)
    data = open_dataset(tmp_path)
    assert "number from 1" in data.guess
    assert data.splits["test"][0].gold == data.splits["dev"][0].gold == (0,)


@settings(max_examples=20)
@given(st.permutations(range(7)), st.lists(st.integers(0, 3), min_size=2, max_size=6), st.booleans())
def test_a_guess_reads_what_a_declared_mapping_reads(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], golds: list[int], as_text: bool
) -> None:
    """Beside a plain reference: the columns by their names, in whatever order they stand."""
    rows = [
        (f"Q{n}?", *(texts := [f"{n} {letter}" for letter in "wxyz"]), texts[gold] if as_text else "ABCD"[gold], "t")
        for n, gold in enumerate(golds)
    ]
    path = tmp_path_factory.mktemp("quiz") / "quiz.csv"
    sheet(path, [tuple(row[place] for place in order) for row in rows], tuple(HEADER[place] for place in order))
    read = open_dataset(path).splits["test"]
    assert [(item.question, item.gold) for item in read] == [(f"Q{n}?", (gold,)) for n, gold in enumerate(golds)]
    assert {len(item.choices) for item in read} == {4}


MAPPINGS = st.builds(
    Columns,
    question=st.sampled_from([None, "ask"]),
    choices=st.sampled_from(["options", ("a", "b")]),
    answer=st.just("key"),
    answer_is=st.sampled_from(["any", "label", "number"]),
    labels=st.sampled_from([(), ("x", "y")]),
    subject=st.sampled_from([None, "area"]),
    rename=st.sampled_from([{}, {"question": "who"}]),
    shuffled=st.sampled_from([None, 0, 3]),
    others=st.booleans(),
)


@given(MAPPINGS | st.builds(Columns, right=st.just(("good",)), wrong=st.just(("bad",)), drop_empty=st.booleans()))
def test_a_mapping_as_a_table_is_the_mapping(columns: Columns) -> None:
    table = mapping_table(columns)
    assert columns_of(json.loads(json.dumps(table)), "table") == columns


TEXT = st.text(st.sampled_from('ab,;"\n'), max_size=6)


@settings(max_examples=30)
@given(st.lists(st.tuples(TEXT, st.integers(0, 2)), min_size=1, max_size=6))
def test_a_row_has_the_number_that_a_spreadsheet_shows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]]
) -> None:
    """Beside a plain count: line breaks in a cell make no row, empty lines do."""
    path = tmp_path_factory.mktemp("rows") / "quiz.csv"
    shown, lines = [], ["question,end"]
    for cell, empty in rows:
        lines += [""] * empty
        lines.append(f'"{cell.replace(chr(34), chr(34) * 2)}",x')
        shown.append(len(lines))
    path.write_text("\n".join(lines) + "\n", newline="")
    assert [RowPlace(path, row).number for row in range(len(rows))] == shown


def test_a_line_of_jsonl_counts_from_1_and_with_the_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "quiz.jsonl").write_text('\n{"question": "q"}\n\n{"question": "r"}\n')
    assert [RowPlace(tmp_path / "quiz.jsonl", row).number for row in range(2)] == [2, 4]
    assert str(RowPlace(tmp_path / "gone.csv", 3)).endswith("gone.csv, row 5 (the header is row 1)")
    assert str(RowPlace(tmp_path / "rows.parquet", 3)).endswith("rows.parquet, row 3 (counted from 0)")


def test_rows_that_stand_twice_are_named(tmp_path: Path) -> None:
    rows = [*ROWS[:4], ROWS[1], (*ROWS[2][:5], "A", "sums")]
    data = open_dataset(sheet(tmp_path / "quiz.csv", rows))
    assert data.notes == (
        "quiz.csv: rows 3 and 6, 4 and 7 (with other answers) have the same question and choices; each counts",
    )
    assert open_dataset(sheet(tmp_path / "quiz.csv", ROWS)).notes == ()


def test_the_same_question_about_another_passage_is_another(tmp_path: Path) -> None:
    rows = [(*ROWS[0], f"A passage, number {n}.") for n in range(3)]
    assert open_dataset(sheet(tmp_path / "quiz.csv", rows, (*HEADER, "Passage"))).notes == ()
