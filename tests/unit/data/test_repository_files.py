"""Which files of a repository are which configuration and split."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.hub import HubName, hub_name
from choicewise.data.splits import matching, split_of
from choicewise.data.splits import repository_configurations as configurations

PATHS = st.text("ab/.-*[]{", min_size=1, max_size=6)
PATTERNS = st.lists(st.sampled_from(["a", "b", "/", ".", "-", "*", "?", "**", "**/", "[ab]", "[!a]"]), max_size=5)


def matches(pattern: list[str], path: str) -> bool:
    """The same, letter by letter."""
    if not pattern:
        return not path
    first, *rest = pattern
    if first == "**/":
        return matches(rest, path) or any(
            matches(rest, path[place + 1 :]) for place, each in enumerate(path) if each == "/"
        )
    if first in ("*", "**"):
        taken = [size for size in range(len(path) + 1) if first == "**" or "/" not in path[:size]]
        return any(matches(rest, path[size:]) for size in taken)
    one = {"?": "/" not in path[:1], "[ab]": path[:1] in ("a", "b"), "[!a]": path[:1] != "a"}
    return bool(path) and one.get(first, path[:1] == first) and matches(rest, path[1:])


def can_be_told_apart(parts: list[str]) -> bool:
    """Whether the parts, written one after the other, are the same parts."""
    return not any(one[-1] == "*" and (next[0] == "*" or one + next == "**/") for one, next in pairwise(parts))


@given(PATTERNS.filter(can_be_told_apart), PATHS)
def test_patterns_mean_what_they_mean_letter_by_letter(pattern: list[str], path: str) -> None:
    assert bool(matching("".join(pattern), [path])) == matches(pattern, path)


@given(PATHS)
def test_a_path_without_signs_means_itself(path: str) -> None:
    plain = path.translate({ord(letter): "x" for letter in "*[]{"})
    assert matching(plain, [plain, f"{plain}x", f"x{plain}"]) == {plain: ""}


def test_the_subject_is_what_stands_in_its_place() -> None:
    paths = ["anatomy/test-0.parquet", "anatomy/dev-0.parquet", "a/b/test-0.parquet"]
    assert matching("{subject}/test-*.parquet", paths) == {"anatomy/test-0.parquet": "anatomy"}


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("data/test-00000-of-00001.parquet", "test"),
        ("default/validation/0000.parquet", "validation"),
        ("arc.val.jsonl", "validation"),
        ("a_train.csv", "train"),
        ("train/dev.jsonl", "dev"),
        ("contest.jsonl", None),
        ("latest/x.jsonl", None),
    ],
)
def test_splits_are_whole_words(path: str, split: str | None) -> None:
    assert split_of(path) == split


FORMS = [
    "all.jsonl",
    ["all.jsonl"],
    {"train": "all.jsonl"},
    {"train": ["all.jsonl"]},
    [{"split": "train", "path": "all.jsonl"}],
    [{"split": "train", "path": ["a*.jsonl"]}],
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_of_data_files_is_read(form: object) -> None:
    card = {"configs": [{"config_name": "x", "data_files": form}]}
    (config,) = configurations(["all.jsonl", "README.md"], card).values()
    assert (config.name, dict(config.splits), config.default) == ("x", {"train": ["all.jsonl"]}, False)


def test_a_folder_of_data_may_be_declared() -> None:
    card = {"configs": [{"config_name": "b", "data_dir": "b", "default": True}, {"config_name": "a", "data_dir": "a"}]}
    known = configurations(["a/test.jsonl", "b/test.jsonl", "b/train.jsonl"], card)
    assert {name: dict(each.splits) for name, each in known.items()} == {
        "b": {"test": ["b/test.jsonl"], "train": ["b/train.jsonl"]},
        "a": {"test": ["a/test.jsonl"]},
    }
    assert [name for name, each in known.items() if each.default] == ["b"]


@pytest.mark.parametrize("card", [None, {}, {"configs": None}, {"configs": "x"}, {"configs": [3]}, {"license": "mit"}])
def test_without_a_declaration_folders_are_configurations(card: dict[str, object] | None) -> None:
    known = configurations(["a/test-0.parquet", "b/test-0.parquet", "test.py", "c/notes.txt"], card)
    assert {*known} == {"a", "b"}


def test_names_on_the_hub() -> None:
    assert hub_name("org/name") == HubName("org/name")
    assert hub_name("org/name:one two@refs/pr/1") == HubName("org/name", "one two", "refs/pr/1")
    for text in ("name", "./org/name", "/org/name", "../org/name", "org/name/more", "org/name:", "org/name@", "~/name"):
        assert hub_name(text) is None


@given(st.builds(HubName, st.just("o-r.g/n_a.me"), st.none() | st.just("c:d/e"), st.none() | st.just("v1/x")))
def test_a_name_is_read_as_it_is_written(name: HubName) -> None:
    assert hub_name(str(name)) == name
