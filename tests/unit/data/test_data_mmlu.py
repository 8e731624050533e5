"""The original MMLU layout."""

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.items import duplicate_choices
from choicewise.data.open import open_dataset
from choicewise.data.tables import is_mmlu, read_mmlu
from choicewise.errors import DataError

GOOD = 'What?,a,b,c,d,C\n"Two\r\nlines, ""quoted""", x ,007,1e5,None,A\n'


def layout(folder: Path, test: str | bytes, dev: str = "Which?,1,2,3,4,B\n", subject: str = "law") -> Path:
    for split, text in (("test", test), ("dev", dev)):
        (folder / split).mkdir(parents=True, exist_ok=True)
        data = text if isinstance(text, bytes) else text.encode()
        (folder / split / f"{subject}_{split}.csv").write_bytes(data)
    return folder


def test_read_mmlu(tmp_path: Path) -> None:
    dataset = read_mmlu(layout(tmp_path / "tiny", GOOD))
    first, second = dataset.splits["test"]
    assert (first.id, first.subject, first.question, first.gold) == ("law/test/0", "law", "What?", (2,))
    assert second.question == 'Two\r\nlines, "quoted"'
    assert second.choices == (" x ", "007", "1e5", "None")
    assert dataset.splits["dev"][0].id == "law/dev/0"
    assert dataset.name == "tiny"


def test_subject_without_dev_is_no_error(tmp_path: Path) -> None:
    layout(tmp_path, GOOD)
    (tmp_path / "dev" / "law_dev.csv").unlink()
    assert set(read_mmlu(tmp_path).splits) == {"test"}


def test_byte_order_mark_only_at_the_start_of_the_file(tmp_path: Path) -> None:
    rows = "\ufeff\ufeffWhat?,\ufeffa,b,c,d,C\n"
    item = read_mmlu(layout(tmp_path, rows)).splits["test"][0]
    assert (item.question, item.choices[0]) == ("\ufeffWhat?", "\ufeffa")


def test_every_row_has_as_many_columns_as_most(tmp_path: Path) -> None:
    rows = "Q,a,b,c,C\nR,a,b,c,d,D\nS,a,b,c,d,e,E\nT,a,b,c,d,A\n"
    with pytest.raises(DataError, match="2 rows can't be used") as raised:
        read_mmlu(layout(tmp_path, rows))
    assert re.search(
        r"law_test.csv, row 0 .counted from 0.: 5 columns, .*: a question, 4 choices and a letter\n"
        r".*law_test.csv, row 2 .counted from 0.: 7 columns, where most rows here have 6",
        str(raised.value),
    )
    dataset = read_mmlu(tmp_path, on_bad_item="skip")
    assert [item.id for item in dataset.splits["test"]] == ["law/test/1", "law/test/3"]
    assert [bad.row for bad in dataset.skipped] == [0, 2]


def test_another_number_of_choices_is_read_where_all_rows_have_it(tmp_path: Path) -> None:
    items = read_mmlu(layout(tmp_path, "Q,a,b,c,C\n\nR,a,b,c,A\n", dev="Q,a,b,c,B\n")).splits["test"]
    assert [(item.id, len(item.choices), item.gold) for item in items] == [
        ("law/test/0", 3, (2,)),
        ("law/test/1", 3, (0,)),
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("Q,a,A", "3 columns"),
        ("Q,a,b,c,d,E", "'E' is none of A, B, C, D"),
        ("Q,a,b,c,d,", "answer is empty"),
        ("Q,a,,c,d,A", r"choice 1 .counted from 0. is ''"),
        ("Q,a,b, \t,d,A", "choice 2"),
        (" ,a,b,c,d,A", "the question is ' '"),
        ("Q,a,b\0,c,d,A", "NUL character"),
    ],
)
def test_bad_rows(tmp_path: Path, row: str, reason: str) -> None:
    folder = layout(tmp_path, f"What?,a,b,c,d,C\n{row}\nWhy?,a,b,c,d,D\n")
    with pytest.raises(
        DataError, match=rf"law_test.csv, row 1 .counted from 0.: .*{reason}.*correct the row, or skip bad items"
    ):
        read_mmlu(folder)
    dataset = read_mmlu(folder, on_bad_item="skip")
    assert [item.id for item in dataset.splits["test"]] == ["law/test/0", "law/test/2"], "ids don't move"
    (bad,) = dataset.skipped
    assert bad.file.endswith("law_test.csv")
    assert bad.row == 1


def test_files_that_can_not_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"0xe9 at offset 11 \(line 2"):
        read_mmlu(layout(tmp_path / "latin", b"Q,a,b,A\nCaf\xe9,a,b,A\n"), on_bad_item="skip")
    with pytest.raises(DataError, match="no CSV, at line 2"):
        read_mmlu(layout(tmp_path / "open", 'Q,a,b,A\n"Q,a,b,A\n'), on_bad_item="skip")
    with pytest.raises(DataError, match="law_test.csv is empty"):
        read_mmlu(layout(tmp_path / "empty", ""))
    with pytest.raises(DataError, match="no questions that can be used; .*first because the answer is empty"):
        read_mmlu(layout(tmp_path / "all-bad", "Q,a,b,\n", dev="Q,a,b,\n"), on_bad_item="skip")
    stray = layout(tmp_path / "stray", GOOD)
    (stray / "test" / "notes.csv").write_text("x")
    with pytest.raises(DataError, match="not named <subject>_test.csv"):
        read_mmlu(stray)


def test_missing_test_folder(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    assert is_mmlu(tmp_path)
    with pytest.raises(DataError, match="has no folder test/"):
        open_dataset(tmp_path)
    (tmp_path / "test").mkdir()
    with pytest.raises(DataError, match="holds no <subject>_test.csv"):
        open_dataset(tmp_path)


def test_long_cells_leave_the_limit_of_the_process_alone(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    long = "x" * (limit + 1)
    assert read_mmlu(layout(tmp_path, f"{long},a,b,c,d,A\n")).splits["test"][0].question == long
    assert csv.field_size_limit() == limit


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
choice_texts = texts.filter(str.strip)


@given(
    st.integers(2, 6).flatmap(
        lambda width: st.lists(
            st.tuples(choice_texts, st.lists(choice_texts, min_size=width, max_size=width)), min_size=1, max_size=4
        )
    )
)
def test_any_text_comes_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, list[str]]]
) -> None:
    folder = layout(tmp_path_factory.mktemp("mmlu"), "")
    (folder / "dev" / "law_dev.csv").unlink()
    with (folder / "test" / "law_test.csv").open("w", newline="", encoding="utf-8") as file:
        # Quoted throughout, since the writer leaves a bare carriage return unquoted.
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows((question, *choices, "B") for question, choices in rows)
    items = read_mmlu(folder).splits["test"]
    assert [(item.question, list(item.choices), item.gold) for item in items] == [(q, c, (1,)) for q, c in rows]


@pytest.mark.costly("many files")
def test_all_of_mmlu(shared_data: Path) -> None:
    dataset = open_dataset(shared_data / "mmlu")
    assert {split: len(items) for split, items in dataset.splits.items()} == {
        "dev": 285,
        "validation": 1531,
        "test": 14042,
    }
    assert len(dataset.subjects("test")) == 57
    assert not dataset.skipped
    none = [item for item in dataset.splits["test"] if "None" in item.choices]
    assert len(none) == 10, "the number of test prompts that a reader with missing values damages"
    doubles = {split: sum(map(duplicate_choices, items)) for split, items in dataset.splits.items()}
    assert doubles == {"dev": 1, "validation": 3, "test": 9}
