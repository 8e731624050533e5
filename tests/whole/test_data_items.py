"""Items in columns: as good as a list of them, and small."""

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.dataset import CHUNK, COLUMNS, Dataset, Items
from choicewise.data.items import Item

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
drawn_items = st.builds(
    Item,
    texts,
    texts,
    st.lists(texts, max_size=4).map(tuple),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    st.sampled_from(["law", "art", ""]),
    st.dictionaries(texts, texts, max_size=2),
)


@given(st.lists(drawn_items, max_size=9), st.slices(9), st.slices(9))
def test_items_are_as_good_as_a_list(values: list[Item], first: slice, second: slice) -> None:
    items: Sequence[Item] = Items.of(values)
    for one, other in (
        (items, values),
        (items[first], values[first]),
        (items[first][second], values[first][second]),
    ):
        assert (list(one), [one[index] for index in range(-len(other), len(other))]) == (
            other,
            other * 2,
        )
        assert (len(one), one == other, bool(one)) == (len(other), True, bool(other))
        with pytest.raises(IndexError):
            _ = one[len(other)]


@given(st.lists(drawn_items, max_size=9), st.lists(st.integers(0, 8), max_size=9))
def test_items_by_position_and_subject(values: list[Item], positions: list[int]) -> None:
    items = Items.of(values)
    taken = [position for position in positions if position < len(values)]
    assert items.take(np.array(taken, dtype=np.int64)) == [values[position] for position in taken]
    assert items[::-1].take(np.array(taken, dtype=np.int64)) == [
        values[::-1][position] for position in taken
    ]
    subjects = dict.fromkeys(item.subject for item in values)
    groups = {subject: [item for item in values if item.subject == subject] for subject in subjects}
    assert (items.by_subject(), list(items.by_subject())) == (groups, list(groups))
    assert items[::2].by_subject().get("law", []) == [
        item for item in values[::2] if item.subject == "law"
    ]


def test_items_over_several_chunks() -> None:
    built = [
        Item(f"q{n}", f"{n}?", ("a", "b", "c")[: 2 + n % 2], (n % 2,), "xyz"[n % 3])
        for n in range(3 * CHUNK + 5)
    ]
    items = Items.of(iter(built))
    assert (list(items), items[CHUNK - 1 : CHUNK + 2]) == (built, built[CHUNK - 1 : CHUNK + 2])
    assert (items[3 * CHUNK], items.by_subject()["y"]) == (built[3 * CHUNK], built[1::3])
    assert items.by_subject()["y"][-1] == built[-1 - (len(built) - 2) % 3]
    table = items[5 : CHUNK + 7].table()
    assert table.schema == COLUMNS
    assert table["item"].to_pylist() == [item.id for item in built[5 : CHUNK + 7]]
    for part in (slice(None), slice(3, 9), slice(None, None, 7)):
        assert items[part].right_texts().to_pylist() == [
            item.choices[item.gold[0]] for item in built[part]
        ]


def test_items_say_how_many_they_are() -> None:
    items = Items.of([Item("1", "Q", ("a", "b"), (0,))])
    assert (repr(items), items != 1, Items.of(items) is items) == ("<1 items>", True, True)
    assert Items.of(()) == Dataset("none", {"test": ()}).rows("test", "law") == []


OPENED = """
import json, random, resource, sys
from pathlib import Path
import pyarrow, pyarrow.parquet
from choicewise.data.open import open_dataset
word = random.Random(0).choice
with open(sys.argv[1], "w") as file:
    for n in range(100_000):
        question = " ".join(word(["stone", "river", "light", "paper", "seven"]) for _ in range(12))
        file.write(json.dumps({"id": f"q{n}", "question": question, "choices": ["a few", "of them"], "answer": n % 2}))
        file.write("\\n")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = open_dataset(sys.argv[1])
data.digest, data.choose("test")
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert len(data.rows("test", "")) == 100_000
print((after - before) // 1024)
"""


def test_a_hundred_thousand_items_take_little_memory(tmp_path: object) -> None:
    """A tenth of a million, for a quick test; the peak is 180 MB when every item is kept as a value."""
    command = [sys.executable, "-c", OPENED, f"{tmp_path}/test.jsonl"]
    assert int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) < 50, (
        "MB"
    )
