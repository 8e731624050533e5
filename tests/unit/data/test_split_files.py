"""Which files are which split, subject and configuration, and what patterns of paths mean."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.hub import HubName, hub_name
from choicewise.data.open import open_dataset
from choicewise.data.splits import folder_files, matching, sibling_files, split_of
from choicewise.data.splits import repository_configurations as configurations
from choicewise.errors import DataError


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def names(files: dict[str, list[Path]]) -> dict[str, list[str]]:
    return {split: [path.name for path in paths] for split, paths in files.items()}


def test_sibling_files(tmp_path: Path) -> None:
    touch(tmp_path, "arc.jsonl", "arc.dev.jsonl", "arc.val.jsonl", "arc.train.csv", "boolq.test.jsonl")
    touch(tmp_path, ".arc.train.jsonl")
    expected = {"test": ["arc.jsonl"], "dev": ["arc.dev.jsonl"], "validation": ["arc.val.jsonl"]}
    for opened in ("arc.jsonl", "arc.val.jsonl"):
        name, files = sibling_files(tmp_path / opened)
        assert (name, names(files)) == ("arc", expected)
    touch(tmp_path, "arc.test.first9.jsonl")
    assert sibling_files(tmp_path / "arc.test.first9.jsonl")[0] == "arc.first9"
    touch(tmp_path, "arc.validation.jsonl")
    with pytest.raises(DataError, match=r"arc.val.jsonl and arc.validation.jsonl both claim the split validation"):
        sibling_files(tmp_path / "arc.jsonl")
    touch(tmp_path, "quiz/test.csv", "quiz/dev.csv", "quiz/notes.csv")
    name, files = sibling_files(tmp_path / "quiz" / "test.csv")
    assert (name, names(files)) == ("quiz", {"test": ["test.csv"], "dev": ["dev.csv"]})


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
    with pytest.raises(DataError, match="holds no dataset: looked for .* give a file of .* by its own path") as refused:
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
        (("val/0000.parquet", "validation/0000.parquet"), "both claim the split validation"),
        (("test/0000.parquet", "test/0002.parquet"), "part 0001 is missing"),
        (("val.jsonl", "valid.jsonl"), "both claim the split validation"),
        (("train.jsonl", "auxiliary_train.jsonl"), "both claim the split train"),
        (("sub/notes/test.jsonl",), "holds no dataset"),
    ],
)
def test_files_that_do_not_make_one_dataset_are_refused(tmp_path: Path, files: tuple[str, ...], complaint: str) -> None:
    touch(tmp_path, *files)
    with pytest.raises(DataError, match=complaint):
        open_dataset(tmp_path)


PATTERNS = st.lists(st.sampled_from(["a", "b", "/", "*", "**", "**/", "?", "[ab]", "[!a]", ".", "["]), max_size=8)
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
    paths = ["gpqa_main.csv", "gpqa_.csv", "law/test-0.parquet", "law/dev-0.parquet", "a/b/test-0.parquet"]
    assert matching("gpqa_{subject}.csv", paths) == {"gpqa_main.csv": "main"}
    assert matching("{subject}/test-*.parquet", paths) == {"law/test-0.parquet": "law"}


@given(st.text("ab/.-*[]{", min_size=1, max_size=6))
def test_a_path_without_signs_means_itself(path: str) -> None:
    plain = path.translate({ord(letter): "x" for letter in "*[]{"})
    assert matching(plain, [plain, f"{plain}x", f"x{plain}"]) == {plain: ""}


def test_splits_are_whole_words() -> None:
    named = {"data/test-00000-of-00001.parquet": "test", "default/validation/0000.parquet": "validation"}
    named |= {"arc.val.jsonl": "validation", "a_train.csv": "train", "train/dev.jsonl": "dev"}
    named |= {"contest.jsonl": None, "latest/x.jsonl": None}
    assert {path: split_of(path) for path in named} == named


FORMS = ["all.jsonl", ["all.jsonl"], {"train": "all.jsonl"}, {"train": ["all.jsonl"]}]
FORMS += [[{"split": "train", "path": path}] for path in ("all.jsonl", ["a*.jsonl"])]


def test_every_form_of_data_files_is_read() -> None:
    for form in FORMS:
        card = {"configs": [{"config_name": "x", "data_files": form}]}
        (config,) = configurations(["all.jsonl", "README.md"], card).values()
        assert (config.name, dict(config.splits), config.default) == ("x", {"train": ["all.jsonl"]}, False)


def test_a_folder_of_data_may_be_declared() -> None:
    card = {"configs": [{"config_name": "b", "data_dir": "b", "default": True}, {"config_name": "a", "data_dir": "a"}]}
    known = configurations(["a/test.jsonl", "b/test.jsonl", "b/train.jsonl"], card)
    expected = {"b": {"test": ["b/test.jsonl"], "train": ["b/train.jsonl"]}, "a": {"test": ["a/test.jsonl"]}}
    assert {name: dict(each.splits) for name, each in known.items()} == expected
    assert [name for name, each in known.items() if each.default] == ["b"]


def test_without_a_declaration_folders_are_configurations() -> None:
    paths = ["a/test-0.parquet", "b/test-0.parquet", "test.py", "c/notes.txt"]
    for card in (None, {}, {"configs": None}, {"configs": "x"}, {"configs": [3]}, {"license": "mit"}):
        assert {*configurations(paths, card)} == {"a", "b"}


def test_names_on_the_hub() -> None:
    assert hub_name("org/name") == HubName("org/name")
    assert hub_name("org/name:one two@refs/pr/1") == HubName("org/name", "one two", "refs/pr/1")
    for text in ("name", "./org/name", "/org/name", "../org/name", "org/name/more", "org/name:", "org/name@", "~/name"):
        assert hub_name(text) is None


@given(st.builds(HubName, st.just("o-r.g/n_a.me"), st.none() | st.just("c:d/e"), st.none() | st.just("v1/x")))
def test_a_name_is_read_as_it_is_written(name: HubName) -> None:
    assert hub_name(str(name)) == name
