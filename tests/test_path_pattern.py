"""Patterns of paths: the same as the regular expression says, in time that no pattern can multiply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.files import fits
from choicewise.data.open import matching

PATTERNS = st.lists(st.sampled_from(["a", "b", "/", "*", "**", "**/", "?", "[ab]", "[!a]", ".", "["]), max_size=8)


@given(PATTERNS.map("".join), st.text("ab/.", max_size=10))
def test_it_is_what_the_regular_expression_says(pattern: str, path: str) -> None:
    assert fits(pattern, path) == (path in matching(pattern, [path]))


@pytest.mark.parametrize("wild", ["*", "**", "**/", "?*", "[!b]*"])
def test_no_pattern_takes_for_ever(wild: str) -> None:
    assert not fits(f"{wild}a" * 60 + "b", "a" * 200 + "/c")
    assert fits(f"{wild}" * 60, "a" * 200) == (wild != "**/")
