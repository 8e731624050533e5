"""What texts begin with, in characters, words and tokens."""

from hypothesis import given
from hypothesis import strategies as st

from choicewise.util.text import common_start


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=4))
def test_what_all_begin_with_is_counted_element_by_element(rows: list[list[int]]) -> None:
    count = 0
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    assert common_start(rows) == count
    assert common_start([list(map(str, row)) for row in rows]) == count
    assert common_start(["".join(map(str, row)) for row in rows]) == count
