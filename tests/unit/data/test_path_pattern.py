"""Patterns of paths: the same as the regular expression says, in time that no pattern can multiply."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.splits import matching

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
    paths = ["gpqa_main.csv", "gpqa_.csv", "law/test-0.parquet", "law/dev-0.parquet", "a/law/test-0.parquet"]
    assert matching("gpqa_{subject}.csv", paths) == {"gpqa_main.csv": "main"}
    assert matching("{subject}/test-*.parquet", paths) == {"law/test-0.parquet": "law"}
