"""Rows of a benchmark that people put into its folder: in which places, and in which columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from choicewise.data.benchmarks import open_benchmark
from choicewise.errors import DataError, MissingData
from tests.unit.data.test_hub_rows import ROWS, Row, write

LETTERS: Row = {"A": "a", "B": "b", "C": "c", "D": "d"}
CMMLU: Row = {"Question": "Q?", **LETTERS, "Answer": "B"}
CEVAL: Row = {"id": 0, "question": "Q?", **LETTERS, "answer": "B"}
LISTED: Row = {"question": "Q?", "choices": ["a", "b", "c"], "answer": 2}
GPQA = ROWS["Idavidrein/gpqa"][0]
MUSR = ROWS["TAUR-Lab/MuSR"][0]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHOICEWISE_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


@pytest.mark.parametrize("subjects", [("agronomy",), ("agronomy", "anatomy")])
@pytest.mark.parametrize(
    ("name", "row", "files"),
    [
        ("cmmlu", CMMLU, ("dev.jsonl", "test.jsonl")),
        ("ceval", CEVAL, ("dev.parquet", "val.parquet")),
        ("mmlu-redux", LISTED, ("test.jsonl",)),
    ],
)
def test_sub_folders_are_subjects_where_the_repository_has_subjects(
    place: Path, name: str, row: Row, files: tuple[str, ...], subjects: tuple[str, ...]
) -> None:
    for subject in subjects:
        for file in files:
            write(place / name / subject / file, [row])
    dataset = open_benchmark(name)
    assert all(dataset.subjects(split) == subjects for split in dataset.splits)
    assert len(dataset.splits) == len(files)


@pytest.mark.parametrize(
    ("name", "row", "subjects"),
    [
        ("gpqa", GPQA, ("diamond", "extended", "main")),
        ("musr", MUSR, ("murder_mystery", "object_placements", "team_allocation")),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_sub_folders_of_known_subjects(place: Path, name: str, row: Row, subjects: tuple[str, ...], count: int) -> None:
    for subject in subjects[:count]:
        write(place / name / subject / "test.jsonl", [row])
    assert open_benchmark(name).subjects("test") == subjects[:count]


def test_a_sub_folder_that_is_no_subject_is_named(place: Path) -> None:
    write(place / "gpqa" / "diamonds" / "test.jsonl", [GPQA])
    with pytest.raises(DataError, match=r"diamonds is no subject of gpqa; did you mean diamond\?"):
        open_benchmark("gpqa")


def test_files_of_the_repository_may_have_another_ending(place: Path) -> None:
    for subject in ("main", "diamond"):
        write(place / "gpqa" / f"gpqa_{subject}.parquet", [GPQA])
    assert open_benchmark("gpqa").subjects("test") == ("diamond", "main")


def test_subjects_of_mmlu_by_their_names(place: Path) -> None:
    for subject in ("anatomy", "sociology"):
        write(place / "mmlu" / subject / "test.jsonl", [LISTED])
    assert open_benchmark("mmlu").subjects("test") == ("anatomy", "sociology")


def test_of_several_configurations_the_benchmark_s_own_is_read(place: Path) -> None:
    for name, choices in (("ARC-Challenge", ["a", "b", "c"]), ("ARC-Easy", ["d", "e", "f"])):
        write(place / "arc-challenge" / name / "test.jsonl", [LISTED | {"choices": choices}])
    assert [item.choices for item in open_benchmark("arc-challenge").splits["test"]] == [("a", "b", "c")]


def test_a_column_of_subjects_is_taken_where_the_mapping_names_none(place: Path) -> None:
    write(place / "cmmlu" / "test.jsonl", [CMMLU | {"subject": subject} for subject in ("agronomy", "anatomy")])
    assert open_benchmark("cmmlu").subjects("test") == ("agronomy", "anatomy")


@pytest.mark.parametrize("name", ["cmmlu", "ceval", "gpqa", "swag", "race", "arc-challenge", "musr", "lambada"])
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_rows_of_another_known_shape_are_read_as_that(place: Path, name: str, ending: str) -> None:
    write(place / name / f"test.{ending}", [LISTED])
    (item,) = open_benchmark(name).splits["test"]
    assert (item.question, item.choices, item.gold) == ("Q?", ("a", "b", "c"), (2,))


@pytest.mark.parametrize(
    ("name", "lacking"), [("gpqa", "Incorrect Answer 1"), ("race", "problems"), ("swag", "ending0")]
)
def test_rows_of_no_known_shape_come_with_the_names_that_are_needed(place: Path, name: str, lacking: str) -> None:
    write(place / name / "test.jsonl", [{"one": "x", "other": "y"}])
    with pytest.raises(DataError, match=rf"columns one, other, which are no known shape; {name} has .*{lacking}"):
        open_benchmark(name)


def test_choices_that_depend_on_the_subject_need_one(place: Path) -> None:
    write(place / "bbh" / "test.jsonl", [{"input": "Q", "target": "True"}])
    with pytest.raises(DataError, match=r"does not say the subjects .*bbh/boolean_expressions/test\.jsonl"):
        open_benchmark("bbh")


def test_where_nothing_is_the_message_has_a_place_for_subjects(place: Path) -> None:
    with pytest.raises(MissingData) as raised:
        open_benchmark("bbh")
    assert f"{place}/bbh/ as SUBJECT/test.jsonl" in str(raised.value)


def test_the_right_answer_of_sciq_may_be_a_distractor_as_well(place: Path) -> None:
    row = {**ROWS["allenai/sciq"][0], "distractor2": "a tin"}
    write(place / "sciq" / "test.jsonl", [row])
    (item,) = open_benchmark("sciq").splits["test"]
    assert (item.choices, item.gold) == (("a fir", "a tin", "a cup", "a tin"), (3,))


def test_the_right_answer_of_gpqa_may_be_a_wrong_one_as_well(place: Path) -> None:
    write(place / "gpqa" / "gpqa_main.csv.jsonl", [GPQA])  # no file of the repository
    write(place / "gpqa" / "main" / "test.jsonl", [{**GPQA, "Incorrect Answer 2": GPQA["Correct Answer"]}] * 3)
    for item in open_benchmark("gpqa").splits["test"]:
        assert item.choices.count("a fir") == 2
        assert len(item.gold) == 1
