"""Folders as repositories on the Hub have them: which files are which split and subject."""

from pathlib import Path

import pytest

from choicewise.data.benchmarks import open_benchmark
from choicewise.data.open import open_dataset
from choicewise.errors import DataError
from tests.unit.data.test_hub_rows import ROWS, Row, write

MMLU: Row = {"question": "Q?", "choices": ["a", "b", "c", "d"], "answer": 2}
LETTERS: Row = {"question": "Q?", "A": "a", "B": "b", "C": "c", "D": "d", "answer": "C"}
ARC = ROWS["allenai/ai2_arc"][0]
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
        write(tmp_path / f"field_{number:02}" / "val-00000-of-00001.parquet", [{"id": 0, **LETTERS}])
    dataset = open_dataset(tmp_path)
    assert len(dataset.subjects("validation")) == 11
    assert dataset.splits["validation"][3].id == "field_03/0", "an id need only differ within its folder"


def test_paradigms_with_the_same_ids(tmp_path: Path) -> None:
    row = {"sentence_good": "Bees fly.", "sentence_bad": "Bees flies.", "pairID": "0"}
    for uid in ("agreement", "island"):
        write(tmp_path / uid / f"train{PART}.parquet", [row | {"UID": uid}])
    assert [item.id for item in open_dataset(tmp_path).splits["train"]] == ["agreement/0", "island/0"]


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


def test_a_whole_copy_with_all_rows_beside_their_subjects_is_refused(tmp_path: Path) -> None:
    for name, subject in (("all", "anatomy"), ("anatomy", "anatomy"), ("virology", "virology")):
        write(tmp_path / name / f"test{PART}.parquet", [MMLU | {"subject": subject}])
    with pytest.raises(DataError, match="holds 3 datasets"):
        open_dataset(tmp_path)
    assert open_dataset(tmp_path / "all").subjects("test") == ("anatomy",)


def test_subjects_with_other_columns_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "anatomy" / "test.jsonl", [MMLU])
    write(tmp_path / "virology" / "test.jsonl", [LETTERS])
    with pytest.raises(DataError, match="has other columns than the others"):
        open_dataset(tmp_path)


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


def test_a_benchmark_in_a_folder_that_people_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHOICEWISE_DATA", str(tmp_path))
    for subject in ("law", "art"):  # neither names nor rows say that these are subjects; the benchmark does
        for split in ("val", "test"):
            write(tmp_path / "ceval" / subject / split / "0000.parquet", [{"id": 0, **LETTERS}])
    dataset = open_benchmark("ceval")
    assert {split: dataset.subjects(split) for split in dataset.splits} == {"validation": ("art", "law")}
    for name in ("ARC-Challenge", "ARC-Easy"):
        write(tmp_path / "arc-easy" / name / f"test{PART}.parquet", [ARC | {"id": name}])
    assert [item.id for item in open_benchmark("arc-easy").splits["test"]] == ["ARC-Easy"]
    write(tmp_path / "piqa" / "validation.jsonl", [ROWS["ybisk/piqa"][0]])
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


@pytest.mark.costly("many files")
def test_all_of_mmlu_as_the_hub_has_it(shared_data: Path, tmp_path: Path) -> None:
    original = open_dataset(shared_data / "mmlu")
    for split, items in original.splits.items():
        for subject, own in items.by_subject().items():
            rows = [
                {"question": item.question, "subject": subject, "choices": list(item.choices), "answer": item.gold[0]}
                for item in own
            ]
            write(tmp_path / subject / f"{split}{PART}.parquet", rows)
    assert len([*tmp_path.iterdir()]) == 57
    assert open_dataset(tmp_path).digest == original.digest
