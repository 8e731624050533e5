"""Which files are which split."""

from pathlib import Path

import pytest

from choicewise.data.open import open_dataset
from choicewise.data.splits import folder_files, sibling_files
from choicewise.errors import DataError


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()


def names(files: dict[str, list[Path]]) -> dict[str, list[str]]:
    return {split: [path.name for path in paths] for split, paths in files.items()}


def test_sibling_files(tmp_path: Path) -> None:
    touch(
        tmp_path, "arc.jsonl", "arc.dev.jsonl", "arc.val.jsonl", "arc.train.csv", "boolq.test.jsonl", ".arc.train.jsonl"
    )
    expected = {"test": ["arc.jsonl"], "dev": ["arc.dev.jsonl"], "validation": ["arc.val.jsonl"]}
    for opened in ("arc.jsonl", "arc.val.jsonl"):
        name, files = sibling_files(tmp_path / opened)
        assert (name, names(files)) == ("arc", expected)
    touch(tmp_path, "arc.test.first9.jsonl")
    assert sibling_files(tmp_path / "arc.test.first9.jsonl")[0] == "arc.first9"
    touch(tmp_path, "arc.validation.jsonl")
    with pytest.raises(DataError, match=r"arc.val.jsonl and arc.validation.jsonl both claim the split validation"):
        sibling_files(tmp_path / "arc.jsonl")


def test_a_file_named_after_its_split(tmp_path: Path) -> None:
    touch(tmp_path, "test.csv", "dev.csv", "notes.csv")
    name, files = sibling_files(tmp_path / "test.csv")
    assert (name, names(files)) == (tmp_path.name, {"test": ["test.csv"], "dev": ["dev.csv"]})


def test_folder_files(tmp_path: Path) -> None:
    touch(tmp_path, "README.md", "dev.parquet", "test-00001-of-00002.parquet", "test-00000-of-00002.parquet")
    parts = ["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"]
    assert names(folder_files(tmp_path)) == {"dev": ["dev.parquet"], "test": parts}
    (tmp_path / parts[0]).unlink()
    with pytest.raises(DataError, match="test has 2 parts, and part 00000 is missing"):
        folder_files(tmp_path)


@pytest.mark.parametrize("files", [(), ("questions.jsonl",)])
def test_a_folder_without_splits_is_refused(tmp_path: Path, files: tuple[str, ...]) -> None:
    touch(tmp_path, *files)
    assert folder_files(tmp_path) == {}
    with pytest.raises(
        DataError, match="holds no dataset: looked for .* give a file of another name by its own path"
    ) as refused:
        open_dataset(tmp_path)
    assert refused.value.problems == tuple(str(tmp_path / name) for name in files)


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        (("test.jsonl", "dev.csv"), "as .csv and .jsonl"),
        (("test.jsonl", "test.csv"), "test.csv and test.jsonl both claim"),
        (("val.csv", "validation.csv"), "both claim the split validation"),
        (("test.parquet", "test-00000-of-00001.parquet"), "both claim the split test"),
        (("test-00000-of-00001.parquet", "test-00000-of-00002.parquet", "test-00001-of-00002.parquet"), "both claim"),
    ],
)
def test_folder_files_refuses(tmp_path: Path, files: tuple[str, ...], complaint: str) -> None:
    touch(tmp_path, *files)
    with pytest.raises(DataError, match=complaint):
        folder_files(tmp_path)
