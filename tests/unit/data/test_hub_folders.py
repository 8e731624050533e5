"""Folders as repositories on the Hub have them and as people fill them: which files are which split and subject."""

from pathlib import Path

import pytest

from choicewise.data.benchmarks import open_benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.open import open_dataset
from choicewise.errors import DataError, MissingData
from tests.helpers.mmlu_data import shared_mmlu
from tests.unit.data.test_hub_rows import ROWS, Row, write

LETTERS: Row = {"A": "a", "B": "b", "C": "c", "D": "d"}
MMLU: Row = {"question": "Q?", "choices": ["a", "b", "c", "d"], "answer": 2}
QUESTION: Row = {"question": "Q?", **LETTERS, "answer": "C"}
ARC = ROWS["allenai/ai2_arc"]
PART = "-00000-of-00001"


def csv_mmlu(folder: Path, subjects: tuple[str, ...]) -> Path:
    for split in ("test", "dev"):
        for subject in subjects:
            (folder / split).mkdir(parents=True, exist_ok=True)
            (folder / split / f"{subject}_{split}.csv").write_text("Q?,a,b,c,d,C\nQ?,a,b,c,d,A\n")
    return folder


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
@pytest.mark.parametrize("named", [True, False])
def test_a_folder_of_subjects_is_the_same_as_the_original_layout(tmp_path: Path, ending: str, named: bool) -> None:
    subjects = ("anatomy", "astronomy", "virology")
    for subject in subjects:
        row = MMLU | ({"subject": subject} if named else {})
        for split in ("test", "dev"):
            write(tmp_path / "hub" / subject / f"{split}{PART}.{ending}", [row, row | {"answer": 0}])
    dataset = open_dataset(tmp_path / "hub")
    assert dataset.subjects("test") == subjects
    assert dataset.digest == open_dataset(csv_mmlu(tmp_path / "csv", subjects)).digest
    assert dataset.name == "hub"


def test_many_folders_with_the_same_columns_are_subjects(tmp_path: Path) -> None:
    for number in range(11):
        write(tmp_path / f"field_{number:02}" / "val-00000-of-00001.parquet", [{"id": 0, **QUESTION}])
    dataset = open_dataset(tmp_path)
    assert len(dataset.subjects("validation")) == 11
    assert dataset.splits["validation"][3].id == "field_03/0", "an id need only differ within its folder"
    row = {"sentence_good": "Bees fly.", "sentence_bad": "Bees flies.", "pairID": "0"}
    for uid in ("agreement", "island"):
        write(tmp_path / "blimp" / uid / f"train{PART}.parquet", [row | {"UID": uid}])
    items = open_dataset(tmp_path / "blimp").splits["train"]
    assert [item.id for item in items] == ["agreement/0", "island/0"]


@pytest.mark.parametrize("names", [("ARC-Challenge", "ARC-Easy"), ("main", "additional"), ("high", "middle")])
def test_configurations_that_are_no_subjects_are_listed(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        write(tmp_path / name / f"test{PART}.parquet", [ARC])
        write(tmp_path / name / f"train{PART}.parquet", [ARC])
    with pytest.raises(DataError, match="holds 2 datasets, .* give one by its own path") as refused:
        open_dataset(tmp_path)
    assert f"{tmp_path / names[0]} (test, train)" in refused.value.problems
    dataset = open_dataset(tmp_path / names[0])
    assert (dataset.name, sorted(dataset.splits)) == (names[0], ["test", "train"])


def test_a_whole_copy_with_all_rows_beside_their_subjects_is_refused_and_so_are_other_columns(tmp_path: Path) -> None:
    for name, subject in (("all", "anatomy"), ("anatomy", "anatomy"), ("virology", "virology")):
        write(tmp_path / "copy" / name / f"test{PART}.parquet", [MMLU | {"subject": subject}])
    with pytest.raises(DataError, match="holds 3 datasets"):
        open_dataset(tmp_path / "copy")
    assert open_dataset(tmp_path / "copy" / "all").subjects("test") == ("anatomy",)
    write(tmp_path / "mixed" / "anatomy" / "test.jsonl", [MMLU])
    write(tmp_path / "mixed" / "virology" / "test.jsonl", [QUESTION])
    with pytest.raises(DataError, match="has other columns than the others"):
        open_dataset(tmp_path / "mixed")


@pytest.mark.parametrize(
    "paths",
    [
        {"test": f"data/test{PART}.parquet", "train": f"data/train{PART}.parquet"},
        {"test": f"data/test{PART}-0123456789abcdef.parquet", "train": "data/train.parquet"},
        {"test": "test/0000.parquet", "train": "train/0000.parquet"},
        {"test": "default/test/0000.parquet", "train": "default/train/0000.parquet"},
        {"test": f"ARC-Easy/test{PART}.parquet", "train": f"ARC-Easy/train{PART}.parquet"},
        {"test": f"data/ARC-Easy/test{PART}.parquet", "train": f"data/ARC-Easy/train{PART}.parquet"},
        {"test": "test.parquet", "train": "auxiliary_train.parquet"},
    ],
)
def test_places_of_the_files_of_one_dataset(tmp_path: Path, paths: dict[str, str]) -> None:
    for path in paths.values():
        write(tmp_path / "arc" / path, [ARC])
    (tmp_path / "arc" / ".cache").mkdir()
    (tmp_path / "arc" / "README.md").write_text("About")
    dataset = open_dataset(tmp_path / "arc")
    assert (dataset.name, sorted(dataset.splits)) == ("arc", ["test", "train"])


def test_a_benchmark_in_a_folder_that_people_filled(place: Path) -> None:
    for subject in ("law", "art"):  # neither names nor rows say that these are subjects; the benchmark does
        for split in ("val", "test"):
            write(place / "ceval" / subject / split / "0000.parquet", [{"id": 0, **QUESTION}])
    dataset = open_benchmark("ceval")
    assert {split: dataset.subjects(split) for split in dataset.splits} == {"validation": ("art", "law")}
    for name in ("ARC-Challenge", "ARC-Easy"):
        write(place / "arc-easy" / name / f"test{PART}.parquet", [ARC | {"id": name}])
    assert [item.id for item in open_benchmark("arc-easy").splits["test"]] == ["ARC-Easy"]
    write(place / "piqa" / "validation.jsonl", [ROWS["ybisk/piqa"]])
    assert len(open_benchmark("piqa").splits["validation"]) == 1


def test_one_part_stands_for_its_folder(tmp_path: Path) -> None:
    for split in ("test", "validation"):
        for part in range(2):
            write(tmp_path / "arc" / f"{split}-0000{part}-of-00002.parquet", [ARC | {"id": f"{split}{part}"}])
    dataset = open_dataset(tmp_path / "arc" / "test-00001-of-00002.parquet")
    assert dataset.name == "arc"
    assert {split: len(items) for split, items in dataset.splits.items()} == {"test": 2, "validation": 2}


@pytest.mark.parametrize(
    ("paths", "complaint"),
    [
        (("val/0000.parquet", "validation/0000.parquet"), "both claim the split validation"),
        (("test/0000.parquet", "test/0002.parquet"), "part 0001 is missing"),
        (("val.jsonl", "valid.jsonl"), "both claim the split validation"),
        (("train.jsonl", "auxiliary_train.jsonl"), "both claim the split train"),
        (("sub/notes/test.jsonl",), "holds no dataset"),
    ],
)
def test_what_is_ambiguous_is_refused(tmp_path: Path, paths: tuple[str, ...], complaint: str) -> None:
    for path in paths:
        write(tmp_path / path, [ARC])
    with pytest.raises(DataError, match=complaint):
        open_dataset(tmp_path)


def test_all_subjects_of_mmlu_as_the_hub_has_them(tmp_path: Path) -> None:
    original = Dataset("mmlu", {"dev": shared_mmlu().splits["dev"]})
    for subject, items in original.splits["dev"].by_subject().items():
        rows = [{"question": item.question, "choices": [*item.choices], "answer": item.gold[0]} for item in items]
        write(tmp_path / subject / f"dev{PART}.parquet", [{"subject": subject, **row} for row in rows])
    assert len([*tmp_path.iterdir()]) == 57
    assert open_dataset(tmp_path).digest == original.digest


CMMLU: Row = {"Question": "Q?", **LETTERS, "Answer": "B"}
CEVAL: Row = {"id": 0, "question": "Q?", **LETTERS, "answer": "B"}
LISTED: Row = {"question": "Q?", "choices": ["a", "b", "c"], "answer": 2}
GPQA = ROWS["Idavidrein/gpqa"]
MUSR = ROWS["TAUR-Lab/MuSR"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHOICEWISE_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


SUBJECTS = {
    "cmmlu": (CMMLU, ("dev.jsonl", "test.jsonl"), ("agronomy", "anatomy")),
    "ceval": (CEVAL, ("dev.parquet", "val.parquet"), ("agronomy", "anatomy")),
    "mmlu-redux": (LISTED, ("test.jsonl",), ("agronomy", "anatomy")),
    "gpqa": (GPQA, ("test.jsonl",), ("diamond", "extended", "main")),
    "musr": (MUSR, ("test.jsonl",), ("murder_mystery", "object_placements", "team_allocation")),
}


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("count", [1, 3])
def test_sub_folders_are_subjects_where_the_repository_has_subjects(place: Path, name: str, count: int) -> None:
    row, files, subjects = SUBJECTS[name]
    for path in (place / name / subject / file for subject in subjects[:count] for file in files):
        write(path, [row])
    dataset = open_benchmark(name)
    assert [dataset.subjects(split) for split in dataset.splits] == [subjects[:count]] * len(files)


def test_a_sub_folder_that_is_no_subject_is_named(place: Path) -> None:
    write(place / "gpqa" / "diamonds" / "test.jsonl", [GPQA])
    with pytest.raises(DataError, match=r"diamonds is no subject of gpqa; did you mean diamond\?"):
        open_benchmark("gpqa")


def test_subjects_by_their_names_and_files_of_the_repository_with_another_ending(place: Path) -> None:
    for subject in ("main", "diamond"):
        write(place / "gpqa" / f"gpqa_{subject}.parquet", [GPQA])
    assert open_benchmark("gpqa").subjects("test") == ("diamond", "main")
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
    with pytest.raises(MissingData) as raised:
        open_benchmark("bbh")
    assert f"{place}/bbh/ as SUBJECT/test.jsonl" in str(raised.value)
    write(place / "bbh" / "test.jsonl", [{"input": "Q", "target": "True"}])
    with pytest.raises(DataError, match=r"does not say the subjects .*bbh/boolean_expressions/test\.jsonl"):
        open_benchmark("bbh")


def test_the_right_answer_of_sciq_and_of_gpqa_may_be_a_wrong_one_as_well(place: Path) -> None:
    write(place / "sciq" / "test.jsonl", [{**ROWS["allenai/sciq"], "distractor2": "a tin"}])
    (item,) = open_benchmark("sciq").splits["test"]
    assert (item.choices, item.gold) == (("a fir", "a tin", "a cup", "a tin"), (3,))
    write(place / "gpqa" / "gpqa_main.csv.jsonl", [GPQA])  # no file of the repository
    write(place / "gpqa" / "main" / "test.jsonl", [{**GPQA, "Incorrect Answer 2": GPQA["Correct Answer"]}] * 3)
    for item in open_benchmark("gpqa").splits["test"]:
        assert item.choices.count("a fir") == 2
        assert len(item.gold) == 1
