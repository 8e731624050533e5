"""The set of keys beside Python's own."""

from hypothesis import given
from hypothesis import strategies as st

from choicewise.store.folder import KEY_BYTES, Keys

# keys that end in zeros are those that a careless comparison of fixed-width text confuses
KEY = st.binary(min_size=1, max_size=2).map(lambda start: start.ljust(KEY_BYTES, b"\0").hex()) | st.binary(
    min_size=KEY_BYTES, max_size=KEY_BYTES
).map(bytes.hex)


@given(st.lists(st.tuples(st.lists(KEY, max_size=8), st.lists(KEY, max_size=8)), max_size=8))
def test_keys_are_a_set(steps: list[tuple[list[str], list[str]]]) -> None:
    keys, reference = Keys(), set[str]()
    for added, asked in steps:
        keys.add(added)
        reference.update(added)
        assert keys.without(asked) == [key for key in asked if key not in reference]
    assert Keys(reference).without(sorted(reference)) == []
