"""JSON Lines, CSV, Parquet and MMLU's layout: the same content is the same dataset, and nothing is lost unsaid."""

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from choicewise.data.dataset import Columns
from choicewise.data.files import RowPlace, cells, parquet_rows, text_lines
from choicewise.data.hub import HubName, hub_name
from choicewise.data.intake import build_dataset, check_item
from choicewise.data.items import Item, duplicate_choices
from choicewise.data.open import open_dataset
from choicewise.data.rows import RowDraft, draft
from choicewise.data.splits import folder_files, matching, sibling_files, split_of
from choicewise.data.splits import repository_configurations as configurations
from choicewise.data.tables import is_mmlu, read_mmlu, read_tabular
from choicewise.errors import DataError, UnusableRow, UsageError
from choicewise.records import SkippedRow
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import shared_mmlu

GOOD = {"question": "Q", "choices": ["a", "b"], "answer": "B"}


def jsonl(folder: Path, *rows: Any, name: str = "test.jsonl") -> Path:
    path = folder / name
    path.write_bytes(
        "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows).encode()
    )
    return path


def parquet(folder: Path, rows: list[dict[str, Any]], name: str = "test.parquet") -> Path:
    pq.write_table(pa.Table.from_pylist(rows), folder / name)
    return folder / name


def comma(folder: Path, rows: list[dict[str, str]], name: str = "test.csv") -> Path:
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [rows[0], *([row[each] for each in rows[0]] for row in rows)]
        )
    return folder / name


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
filled = texts.filter(str.strip)
drawn = st.fixed_dictionaries(
    {"question": filled, "note": texts, "choices": st.lists(filled, min_size=2, max_size=5)}
)


@given(st.lists(drawn, min_size=1, max_size=4))
def test_any_text_survives_every_format(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("tabular")
    rows = [{"id": f"q{n}", **row, "answer": "B"} for n, row in enumerate(drawn)]
    columns = Columns(choices="choices", answer="answer", answer_is="label", id="id")
    paths = [jsonl(folder, *rows, name="quiz.jsonl"), parquet(folder, rows, name="quiz.parquet")]
    paths.append(
        comma(
            folder,
            [{**row, "choices": json.dumps(row["choices"])} for row in rows],
            name="quiz.csv",
        )
    )
    datasets = [open_dataset(path, columns=columns) for path in paths]
    for dataset in datasets:
        seen = [
            (i.id, i.question, list(i.choices), dict(i.fields), i.gold)
            for i in dataset.splits["test"]
        ]
        assert seen == [
            (r["id"], r["question"], r["choices"], {"note": r["note"]}, (1,)) for r in rows
        ]
    assert len({dataset.digest for dataset in datasets}) == 1


def test_mmlu_is_the_same_in_every_layout(tmp_path: Path) -> None:
    (tmp_path / "mmlu" / "test").mkdir(parents=True)
    for subject in ("art", "law"):
        (tmp_path / "mmlu" / "test" / f"{subject}_test.csv").write_text(
            "Q1,1,0,NA, d ,C\nQ2,a,b,c,d,A\n"
        )
    questions = [("Q1", ["1", "0", "NA", " d "], 2), ("Q2", ["a", "b", "c", "d"], 0)]
    about = [
        {"question": question, "subject": subject}
        for subject in ("art", "law")
        for question, _, _ in questions
    ]
    asked = [
        (row, choices, answer)
        for row, (_, choices, answer) in zip(about, questions * 2, strict=True)
    ]
    hub = [row | {"choices": choices, "answer": answer} for row, choices, answer in asked]
    cells = [
        dict(zip("ABCD", choices, strict=True)) | {"answer": "ABCD"[answer]}
        for _, choices, answer in asked
    ]
    letters = [row | own for row, own in zip(about, cells, strict=True)]
    paths = [
        tmp_path / "mmlu",
        jsonl(tmp_path, *hub),
        parquet(tmp_path, hub),
        comma(tmp_path, letters),
    ]
    datasets = [open_dataset(path) for path in paths]
    assert (datasets[0].splits["test"][2].id, len({dataset.digest for dataset in datasets})) == (
        "law/test/0",
        1,
    )


def test_numbers_keep_their_spelling(tmp_path: Path) -> None:
    row = '{"question": 7, "choices": [1, -12, "1.50", "None"], "answer": "C", "year": 2.0, "seen": true, "gone": null}'
    (item,) = open_dataset(jsonl(tmp_path, row)).splits["test"]
    assert (item.question, item.choices) == ("7", ("1", "-12", "1.50", "None"))
    assert item.fields == {"year": "2.0", "seen": "true"}
    (item,) = open_dataset(
        comma(tmp_path, [{"question": "7", "A": "1e5", "B": "1.50", "answer": "B"}])
    ).splits["test"]
    assert (item.question, item.choices) == ("7", ("1e5", "1.50"))


def test_byte_order_mark_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    second = '{"question": "\u2028\ufeff", "choices": ["a", "b"], "answer": "B"}'
    path.write_bytes(f"\ufeff{json.dumps(GOOD)}\r\n\r\n{second}\r\n".encode())
    assert [item.question for item in open_dataset(path).splits["test"]] == ["Q", "\u2028\ufeff"]
    table = tmp_path / "quiz.csv"
    table.write_bytes(b'\xef\xbb\xbfquestion,A,B,answer\r\n"one\r\ntwo",\x01,"""x""",A\r\n')
    (item,) = open_dataset(table).splits["test"]
    assert (item.question, item.choices) == ("one\r\ntwo", ("\x01", '"x"'))
    assert next(text_lines(table)).startswith("question")
    assert next(cells(table)) == ["question", "A", "B", "answer"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "not valid JSON: .* at character"),
        ('{"question": "a\tb"}', "Invalid control character at character 15"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"question": "Q", "choices": ["a", NaN], "answer": 0}', "NaN .* JSON"),
        (
            '{"question": "Q", "choices": ["a", "b"], "answer": "A", "answer": "B"}',
            "key 'answer' appears twice",
        ),
        ({**GOOD, "question": "\ud800"}, "lone surrogate"),
        ({**GOOD, "question": ""}, "column question is ''"),
        ({**GOOD, "question": " \t"}, "in column question is"),
        ({**GOOD, "question": "Q\0"}, "NUL character"),
        ({**GOOD, "choices": ["a", "b" * 90 + "\0"]}, "text 'b*'... has a NUL character"),
        ({**GOOD, "note": "\0"}, "NUL character"),
        ({**GOOD, "choices": [1.0, 2.5]}, "choices .* number 1.0"),
        ({**GOOD, "question": None}, "column question is null"),
        ({"choices": ["a", "b"], "answer": "A"}, "column question is missing"),
        ({**GOOD, "choices": ["a", None]}, "column choices is null"),
        ({**GOOD, "choices": ["a", True]}, "has true or false"),
        ({**GOOD, "choices": ["a", ["b"]]}, "has a list"),
        ({**GOOD, "choices": "a; b"}, "needs a list"),
        ({**GOOD, "choices": 7}, "not a list"),
        ({**GOOD, "choices": ["a"], "answer": "A"}, "1 choice; .* at least 2"),
        ({**GOOD, "choices": []}, "not one of"),
        ({**GOOD, "choices": ["a", ""]}, "can't be scored"),
        ({**GOOD, "choices": {"text": ["a", "b"], "label": ["A"]}}, "1 labels for 2 choices"),
        ({**GOOD, "choices": {"text": ["a", "b"], "label": ["1", "2"]}}, "'B' is not .* 1, 2"),
        ({**GOOD, "answer": "C"}, "not one of A, B"),
        ({**GOOD, "answer": True}, "'true' is not .* A, B"),
        ({**GOOD, "answer": -1}, "the answer is -1"),
        ({**GOOD, "options": False}, "column options can't be"),
    ],
)
def test_bad_rows(tmp_path: Path, row: Any, reason: str) -> None:
    path = jsonl(tmp_path, GOOD, row, {**GOOD, "answer": "A"})
    message = rf"test.jsonl, line 2 .counted from 1.: .*{reason}.*skip bad items"
    with pytest.raises(DataError, match=message):
        open_dataset(path)
    dataset = open_dataset(path, on_bad_item="skip")
    assert [item.id for item in dataset.splits["test"]] == ["test/0", "test/2"]
    (bad,) = dataset.skipped
    assert bad == SkippedRow(str(path), 1, bad.reason)
    assert re.search(reason, bad.reason)


def test_bad_parquet(tmp_path: Path) -> None:
    path = tmp_path / "test.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="test.parquet as Parquet"):
        open_dataset(path)
    parquet(tmp_path, [{"question": "Q", "choices": [0.5, 1.5], "answer": 0}])
    with pytest.raises(DataError, match="row 0 .*column choices .* 0.5"):
        open_dataset(path)
    broken = pa.StringArray.from_buffers(
        1, pa.py_buffer(b"\x00\x00\x00\x00\x01\x00\x00\x00"), pa.py_buffer(b"\xff")
    )
    pq.write_table(pa.table({"question": broken}), path)
    with pytest.raises(DataError, match="column question .* UTF-8"):
        list(parquet_rows(path))


def test_bad_rows_are_listed_together_and_counted(tmp_path: Path) -> None:
    path = jsonl(tmp_path, GOOD, *[{**GOOD, "answer": "Z"}] * 30, {"id": 7, **GOOD})
    with pytest.raises(DataError) as raised:
        open_dataset(path)
    first, *listed, more = str(raised.value).split("\n  ")
    assert first == Gist("30 rows can't be used; ")
    assert [line.split(" (counted")[0] for line in listed] == [
        f"{path}, line {line}" for line in range(2, 26)
    ]
    assert (more, len(open_dataset(path, on_bad_item="skip").skipped)) == ("and 6 more", 30)


def test_repeated_ids_are_listed_beside_bad_rows(tmp_path: Path) -> None:
    rows = [
        {"id": "1", **GOOD},
        {"id": "1", **GOOD},
        {"id": "2", **GOOD, "answer": "Z"},
        {"id": "1", **GOOD},
    ]
    message = r"(?s)^.*line 3 .*not one of A, B; correct the row.*\n  2 rows repeat an id.*line 2 .*line 4"
    with pytest.raises(DataError, match=message):
        open_dataset(jsonl(tmp_path, *rows))
    with pytest.raises(DataError, match="column id has"):
        open_dataset(jsonl(tmp_path, {"id": "1", **GOOD}, {"id": "", **GOOD}))
    unnamed = open_dataset(jsonl(tmp_path, {"id": "", **GOOD}))
    assert (unnamed.columns.id, [item.id for item in unnamed.splits["test"]]) == (None, ["test/0"])
    assert "answer = answer (label)" in unnamed.guess


def test_without_a_row_that_can_be_used_there_is_no_dataset(tmp_path: Path) -> None:
    for name in ("test.jsonl", "test.csv"):
        (tmp_path / name).write_text("")
        with pytest.raises(DataError, match=f"{name} has no rows"):
            open_dataset(tmp_path / name)
    (tmp_path / "test.jsonl").write_bytes(gzip.compress(json.dumps(GOOD).encode()))
    with pytest.raises(DataError, match="test.jsonl is compressed; unpack it"):
        open_dataset(tmp_path / "test.jsonl")
    with pytest.raises(DataError, match="line 1 .*no row"):
        open_dataset(jsonl(tmp_path, "x", "y"), on_bad_item="skip")
    with pytest.raises(DataError, match="first because .* answer is empty"):
        open_dataset(jsonl(tmp_path, {**GOOD, "answer": ""}), on_bad_item="skip")


def test_open_answers_are_not_guessed(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"question": "1 + 1?", "choices": ["0", "2", "1"], "answer": "2"})
    with pytest.raises(DataError, match="answer_is"):
        open_dataset(path, on_bad_item="skip")
    for kind, gold in (("text", 1), ("index", 2)):
        (item,) = open_dataset(
            path, columns=Columns(choices="choices", answer="answer", answer_is=kind)
        ).splits["test"]
        assert item.gold == (gold,)


def test_several_right_choices_and_repeated_ones_are_read(tmp_path: Path) -> None:
    (item,) = open_dataset(
        jsonl(tmp_path, {**GOOD, "choices": ["a", "b", "c"], "answer": ["c", "a"]})
    ).splits["test"]
    assert item.gold == (0, 2)
    items = open_dataset(jsonl(tmp_path, GOOD, {**GOOD, "choices": ["a", "a"]})).splits["test"]
    assert [duplicate_choices(item) for item in items] == [False, True]


def test_unknown_columns_need_a_mapping(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"can't tell which columns .*: q, a; save this"):
        open_dataset(jsonl(tmp_path, {"q": "Q", "a": "A"}))
    row = {"q": "Q", "good": "a", "bad": ["b", "c"], "area": "law", "question": "why"}
    columns = Columns(
        "q", right=("good",), wrong="bad", subject="area", rename={"question": "asks"}
    )
    (item,) = open_dataset(jsonl(tmp_path, row), columns=columns).splits["test"]
    assert item == Item("law/test/0", "Q", ("a", "b", "c"), (0,), "law", {"asks": "why"})
    assert draft(row, columns) == RowDraft(
        "", "Q", ("a", "b", "c"), (0,), "any", "law", {"asks": "why"}
    )


def test_read_tabular_counts_ids_over_the_parts_of_a_split(tmp_path: Path) -> None:
    parts = [jsonl(tmp_path, GOOD, GOOD, name="a.jsonl"), jsonl(tmp_path, GOOD, name="b.jsonl")]
    items = read_tabular("quiz", {"test": parts}).splits["test"]
    assert [item.id for item in items] == ["test/0", "test/1", "test/2"]


def test_what_no_reader_lets_pass() -> None:
    with pytest.raises(UsageError, match="on_bad_item is 'ignore'"):
        build_dataset("nothing", [], "ignore")
    with pytest.raises(DataError, match="nothing has no usable"):
        build_dataset("nothing", [])
    check_item(Item("x", "", ("a", "b"), (0, 1)))
    for gold in ((), (-1,), (2,)):
        with pytest.raises(UnusableRow, match="not among the 2"):
            check_item(Item("x", "", ("a", "b"), gold))
    assert str(RowPlace(Path("f.csv"), 3)) == "f.csv, row 5 (the header is row 1)"
    assert str(RowPlace(Path("f.csv"), 3, header=0)) == "f.csv, row 4 (counted from 1)"


def test_open_dataset_says_what_it_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        DataError,
        match="allenai/ai2_arc: .* file or folder",
    ):
        open_dataset("allenai/ai2_arc")
    for path in ("data/test.jsonl", "quiz", "/no/where"):
        with pytest.raises(DataError, match="does not exist") as raised:
            open_dataset(path)
        assert "Hub" not in str(raised.value)
    Path("quiz.xlsx").touch()
    with pytest.raises(
        DataError, match=r"can't read quiz.xlsx: .*\.jsonl, \.csv, \.tsv, \.parquet; save it as CSV"
    ):
        open_dataset("quiz.xlsx")
    Path("mmlu/test").mkdir(parents=True)
    with pytest.raises(DataError, match="the MMLU layout"):
        open_dataset("mmlu", columns=Columns(choices="choices", answer="answer"))


LAW = 'What?,a,b,c,d,C\n"Two\r\nlines, ""quoted""", x ,007,1e5,None,A\n'


def layout(
    folder: Path, test: str | bytes, dev: str = "Which?,1,2,3,4,B\n", subject: str = "law"
) -> Path:
    for split, text in (("test", test), ("dev", dev)):
        (folder / split).mkdir(parents=True, exist_ok=True)
        data = text if isinstance(text, bytes) else text.encode()
        (folder / split / f"{subject}_{split}.csv").write_bytes(data)
    return folder


def test_read_mmlu(tmp_path: Path) -> None:
    dataset = read_mmlu(layout(tmp_path / "tiny", LAW))
    first, second = dataset.splits["test"]
    assert (first.id, first.subject, first.question, first.gold) == (
        "law/test/0",
        "law",
        "What?",
        (2,),
    )
    assert second.question == 'Two\r\nlines, "quoted"'
    assert (second.choices, dataset.splits["dev"][0].id) == (
        (" x ", "007", "1e5", "None"),
        "law/dev/0",
    )
    assert dataset.name == "tiny"
    (tmp_path / "tiny" / "dev" / "law_dev.csv").unlink()
    assert set(read_mmlu(tmp_path / "tiny").splits) == {"test"}


def test_byte_order_mark_only_at_the_start_of_the_file(tmp_path: Path) -> None:
    item = read_mmlu(layout(tmp_path, "\ufeff\ufeffWhat?,\ufeffa,b,c,d,C\n")).splits["test"][0]
    assert (item.question, item.choices[0]) == ("\ufeffWhat?", "\ufeffa")


def test_every_row_has_as_many_columns_as_most(tmp_path: Path) -> None:
    rows = "Q,a,b,c,C\nR,a,b,c,d,D\nS,a,b,c,d,e,E\nT,a,b,c,d,A\n"
    with pytest.raises(DataError, match="2 rows can't be used") as raised:
        read_mmlu(layout(tmp_path, rows))
    assert re.search(
        r"law_test.csv, row 1 .counted from 1.: 5 columns; .*: a question, 4 choices and a letter\n"
        r".*law_test.csv, row 3 .counted from 1.: 7 columns; most rows have 6",
        str(raised.value),
    )
    dataset = read_mmlu(tmp_path, on_bad_item="skip")
    assert [item.id for item in dataset.splits["test"]] == ["law/test/1", "law/test/3"]
    assert [bad.row for bad in dataset.skipped] == [0, 2]


def test_another_number_of_choices_is_read_where_all_rows_have_it(tmp_path: Path) -> None:
    items = read_mmlu(layout(tmp_path, "Q,a,b,c,C\n\nR,a,b,c,A\n", dev="Q,a,b,c,B\n")).splits[
        "test"
    ]
    found = [(item.id, len(item.choices), item.gold) for item in items]
    assert found == [("law/test/0", 3, (2,)), ("law/test/1", 3, (0,))]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("Q,a,A", "3 columns"),
        ("Q,a,b,c,d,E", "'E' is not .* A, B, C, D"),
        ("Q,a,b,c,d,", "answer is empty"),
        ("Q,a,,c,d,A", r"choice 1 .counted from 0. is ''"),
        ("Q,a,b, \t,d,A", "choice 2"),
        (" ,a,b,c,d,A", "question is ' '"),
        ("Q,a,b\0,c,d,A", "NUL character"),
    ],
)
def test_bad_rows_of_mmlu(tmp_path: Path, row: str, reason: str) -> None:
    folder = layout(tmp_path, f"What?,a,b,c,d,C\n{row}\nWhy?,a,b,c,d,D\n")
    message = rf"law_test.csv, row 2 .counted from 1.: .*{reason}.*skip bad items"
    with pytest.raises(DataError, match=message):
        read_mmlu(folder)
    dataset = read_mmlu(folder, on_bad_item="skip")
    assert [item.id for item in dataset.splits["test"]] == ["law/test/0", "law/test/2"], (
        "ids don't move"
    )
    assert [(bad.file[-12:], bad.row) for bad in dataset.skipped] == [("law_test.csv", 1)]


def test_files_that_can_not_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"0xe9 at offset 11 \(line 2"):
        read_mmlu(layout(tmp_path / "latin", b"Q,a,b,A\nCaf\xe9,a,b,A\n"), on_bad_item="skip")
    with pytest.raises(DataError, match="CSV at line 2"):
        read_mmlu(layout(tmp_path / "open", 'Q,a,b,A\n"Q,a,b,A\n'), on_bad_item="skip")
    with pytest.raises(DataError, match="law_test.csv is empty"):
        read_mmlu(layout(tmp_path / "empty", ""))
    with pytest.raises(DataError, match="no usable questions; .*answer is empty"):
        read_mmlu(layout(tmp_path / "all-bad", "Q,a,b,\n", dev="Q,a,b,\n"), on_bad_item="skip")
    stray = layout(tmp_path / "stray", LAW)
    (stray / "test" / "notes.csv").write_text("x")
    with pytest.raises(DataError, match="must be named <subject>_test.csv"):
        read_mmlu(stray)
    for split, reason in (("dev", "has no folder test/"), ("test", "has no <subject>_test.csv")):
        (tmp_path / "bare" / split).mkdir(parents=True)
        assert is_mmlu(tmp_path / "bare")
        with pytest.raises(DataError, match=reason):
            open_dataset(tmp_path / "bare")


def test_long_cells_leave_the_limit_of_the_process_alone(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    long = "x" * (limit + 1)
    assert read_mmlu(layout(tmp_path, f"{long},a,b,c,d,A\n")).splits["test"][0].question == long
    assert csv.field_size_limit() == limit


widths = st.integers(2, 6).map(lambda width: st.lists(filled, min_size=width, max_size=width))


@given(widths.flatmap(lambda choices: st.lists(st.tuples(filled, choices), min_size=1, max_size=4)))
def test_mmlu_changes_no_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, list[str]]]
) -> None:
    assume(len(rows) == 1 or not all(question.isdecimal() for question, _ in rows))
    folder = layout(tmp_path_factory.mktemp("mmlu"), "")
    (folder / "dev" / "law_dev.csv").unlink()
    with (folder / "test" / "law_test.csv").open("w", newline="", encoding="utf-8") as file:
        # Quoted throughout, since the writer leaves a bare carriage return unquoted.
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            (question, *choices, "B") for question, choices in rows
        )
    items = read_mmlu(folder).splits["test"]
    assert [(item.question, list(item.choices), item.gold) for item in items] == [
        (q, c, (1,)) for q, c in rows
    ]


def test_all_of_mmlu() -> None:
    dataset = shared_mmlu()
    sizes = {split: len(items) for split, items in dataset.splits.items()}
    assert sizes == {"dev": 285, "validation": 1531, "test": 14042}
    assert len(dataset.subjects("test")) == 57
    assert not dataset.skipped
    none = [item for item in dataset.splits["test"] if "None" in item.choices]
    assert len(none) == 10, "the number of test prompts that a reader with missing values damages"
    doubles = {split: sum(map(duplicate_choices, items)) for split, items in dataset.splits.items()}
    assert doubles == {"dev": 1, "validation": 3, "test": 9}


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def names(files: dict[str, list[Path]]) -> dict[str, list[str]]:
    return {split: [path.name for path in paths] for split, paths in files.items()}


def test_sibling_files(tmp_path: Path) -> None:
    touch(
        tmp_path, "arc.jsonl", "arc.dev.jsonl", "arc.val.jsonl", "arc.train.csv", "boolq.test.jsonl"
    )
    touch(tmp_path, ".arc.train.jsonl")
    expected = {"test": ["arc.jsonl"], "dev": ["arc.dev.jsonl"], "validation": ["arc.val.jsonl"]}
    for opened in ("arc.jsonl", "arc.val.jsonl"):
        name, files = sibling_files(tmp_path / opened)
        assert (name, names(files)) == ("arc", expected)
    touch(tmp_path, "arc.test.first9.jsonl")
    assert sibling_files(tmp_path / "arc.test.first9.jsonl")[0] == "arc.first9"
    touch(tmp_path, "arc.validation.jsonl")
    with pytest.raises(DataError, match=r"arc.val.jsonl and arc.validation.jsonl .* validation"):
        sibling_files(tmp_path / "arc.jsonl")
    touch(tmp_path, "quiz/test.csv", "quiz/dev.csv", "quiz/notes.csv")
    name, files = sibling_files(tmp_path / "quiz" / "test.csv")
    assert (name, names(files)) == ("quiz", {"test": ["test.csv"], "dev": ["dev.csv"]})


def test_folder_files(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "README.md",
        "dev.parquet",
        "test-00001-of-00002.parquet",
        "test-00000-of-00002.parquet",
    )
    parts = ["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"]
    assert names(folder_files(tmp_path)) == {"dev": ["dev.parquet"], "test": parts}
    (tmp_path / parts[0]).unlink()
    with pytest.raises(DataError, match="part 00000 of the 2 parts of test"):
        folder_files(tmp_path)


@pytest.mark.parametrize("files", [(), ("questions.jsonl",)])
def test_a_folder_without_splits_is_refused(tmp_path: Path, files: tuple[str, ...]) -> None:
    touch(tmp_path, *files)
    assert folder_files(tmp_path) == {}
    with pytest.raises(DataError, match="has no dataset: .* name a file") as refused:
        open_dataset(tmp_path)
    assert refused.value.problems == tuple(str(tmp_path / name) for name in files)


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        (("test.jsonl", "dev.csv"), "as .csv and .jsonl"),
        (("test.jsonl", "test.csv"), "test.csv and test.jsonl .* split"),
        (("val.csv", "validation.csv"), "both the split validation"),
        (("test.parquet", "test-00000-of-00001.parquet"), "both the split test"),
        (
            (
                "test-00000-of-00001.parquet",
                "test-00000-of-00002.parquet",
                "test-00001-of-00002.parquet",
            ),
            "both the split",
        ),
        (("val/0000.parquet", "validation/0000.parquet"), "both the split validation"),
        (("test/0000.parquet", "test/0002.parquet"), "not part 0001"),
        (("val.jsonl", "valid.jsonl"), "both the split validation"),
        (("train.jsonl", "auxiliary_train.jsonl"), "both the split train"),
        (("sub/notes/test.jsonl",), "has no dataset"),
    ],
)
def test_files_that_do_not_make_one_dataset_are_refused(
    tmp_path: Path, files: tuple[str, ...], complaint: str
) -> None:
    touch(tmp_path, *files)
    with pytest.raises(DataError, match=complaint):
        open_dataset(tmp_path)


PATTERNS = st.lists(
    st.sampled_from(["a", "b", "/", "*", "**", "**/", "?", "[ab]", "[!a]", ".", "["]), max_size=8
)
WORDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "[ab]": "[ab]", "[!a]": "[^a]"}


def fits(pattern: str, path: str) -> bool:
    return path in matching(pattern, [path])


@given(PATTERNS.map("".join), st.text("ab/.", max_size=10))
def test_it_is_what_the_regular_expression_says(pattern: str, path: str) -> None:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern)
    if any(piece[:1] == "[" and len(piece) > 1 and piece not in WORDS for piece in pieces):
        return  # a bracket of several pieces, which may hold anything
    known = "".join(WORDS.get(piece) or re.escape(piece) for piece in pieces)
    assert fits(pattern, path) == (re.fullmatch(known, path) is not None)


@pytest.mark.parametrize("wild", ["*", "**", "**/", "?*", "[!b]*"])
def test_no_pattern_takes_for_ever(wild: str) -> None:
    assert not fits(f"{wild}a" * 60 + "b", "a" * 200 + "/c")
    assert fits(f"{wild}" * 60, "a" * 200) == (wild != "**/")


def test_a_part_of_the_path_names_the_subject() -> None:
    paths = [
        "gpqa_main.csv",
        "gpqa_.csv",
        "law/test-0.parquet",
        "law/dev-0.parquet",
        "a/b/test-0.parquet",
    ]
    assert matching("gpqa_{subject}.csv", paths) == {"gpqa_main.csv": "main"}
    assert matching("{subject}/test-*.parquet", paths) == {"law/test-0.parquet": "law"}


@given(st.text("ab/.-*[]{", min_size=1, max_size=6))
def test_a_path_without_signs_means_itself(path: str) -> None:
    plain = path.translate({ord(letter): "x" for letter in "*[]{"})
    assert matching(plain, [plain, f"{plain}x", f"x{plain}"]) == {plain: ""}


def test_splits_are_whole_words() -> None:
    named = {
        "data/test-00000-of-00001.parquet": "test",
        "default/validation/0000.parquet": "validation",
    }
    named |= {"arc.val.jsonl": "validation", "a_train.csv": "train", "train/dev.jsonl": "dev"}
    named |= {"contest.jsonl": None, "latest/x.jsonl": None}
    assert {path: split_of(path) for path in named} == named


FORMS = ["all.jsonl", ["all.jsonl"], {"train": "all.jsonl"}, {"train": ["all.jsonl"]}]
FORMS += [[{"split": "train", "path": path}] for path in ("all.jsonl", ["a*.jsonl"])]


def test_every_form_of_data_files_is_read() -> None:
    for form in FORMS:
        card = {"configs": [{"config_name": "x", "data_files": form}]}
        (config,) = configurations(["all.jsonl", "README.md"], card).values()
        assert (config.name, dict(config.splits), config.default) == (
            "x",
            {"train": ["all.jsonl"]},
            False,
        )


def test_a_folder_of_data_may_be_declared() -> None:
    card = {
        "configs": [
            {"config_name": "b", "data_dir": "b", "default": True},
            {"config_name": "a", "data_dir": "a"},
        ]
    }
    known = configurations(["a/test.jsonl", "b/test.jsonl", "b/train.jsonl"], card)
    expected = {
        "b": {"test": ["b/test.jsonl"], "train": ["b/train.jsonl"]},
        "a": {"test": ["a/test.jsonl"]},
    }
    assert {name: dict(each.splits) for name, each in known.items()} == expected
    assert [name for name, each in known.items() if each.default] == ["b"]


def test_without_a_declaration_folders_are_configurations() -> None:
    paths = ["a/test-0.parquet", "b/test-0.parquet", "test.py", "c/notes.txt"]
    for card in (
        None,
        {},
        {"configs": None},
        {"configs": "x"},
        {"configs": [3]},
        {"license": "mit"},
    ):
        assert {*configurations(paths, card)} == {"a", "b"}


def test_names_on_the_hub() -> None:
    assert hub_name("org/name") == HubName("org/name")
    assert hub_name("org/name:one two@refs/pr/1") == HubName("org/name", "one two", "refs/pr/1")
    for text in (
        "name",
        "./org/name",
        "/org/name",
        "../org/name",
        "org/name/more",
        "org/name:",
        "org/name@",
        "~/name",
    ):
        assert hub_name(text) is None


@given(
    st.builds(
        HubName, st.just("o-r.g/n_a.me"), st.none() | st.just("c:d/e"), st.none() | st.just("v1/x")
    )
)
def test_a_name_is_read_as_it_is_written(name: HubName) -> None:
    assert hub_name(str(name)) == name
