"""Samplers: the same shots whoever asks, however few items are asked."""

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import DataError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.shots import harness_v0, helm, sample
from choicewise.requests.source import requests

HARNESS = Protocol(sampler="harness-v0", seed=42, shot_split="validation", shots=2)


def item(number: int, right: str = "") -> Item:
    choices = (right or f"right {number}", "x", "y", "z")
    return Item(f"s/{number}", f"question {number}?", choices, (0,), "s")


def dataset(**sizes: int) -> Dataset:
    starts = {"test": 0, "dev": 100, "validation": 200}
    return Dataset(
        "made up",
        {split: tuple(map(item, range(starts[split], starts[split] + size))) for split, size in sizes.items()},
    )


def test_sample_first_takes_the_first_rows_for_every_item() -> None:
    data = dataset(test=3, dev=4)
    assert sample(Protocol(shots=2), data, "s") == [data.rows("dev", "s")[:2]] * 3


def test_sample_needs_no_pool_without_shots() -> None:
    assert sample(Protocol(shots=0), dataset(test=2), "s") == [(), ()]


def test_helm_permutes_five_distinct_answers_as_published() -> None:
    # random.Random(0).shuffle of five labels in alphabetical order, as measured on HELM itself.
    pool = [item(number, right) for number, right in enumerate("abcde")]
    assert [shot.choices[0] for shot in helm(pool, 5, 0)] == ["c", "b", "a", "e", "d"]


def plain_helm(rights: list[str], chosen: list[str], count: int) -> bool:
    """Whether ``chosen`` obeys HELM's rules: every round takes one of each answer that is left, frequent ones first."""
    left = Counter(rights)
    sizes = dict(left)
    while chosen:
        row, chosen = chosen[: len(+left)], chosen[len(+left) :]
        if len(set(row)) < len(row) or [sizes[right] for right in row] != sorted((sizes[r] for r in row), reverse=True):
            return False
        if not chosen and row and any(sizes[right] > sizes[row[-1]] for right in +left if right not in row):
            return False
        left -= Counter(row)
    return True


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=9), st.integers(1, 9), st.integers(0, 99))
def test_helm_goes_round_the_answers(rights: list[str], count: int, seed: int) -> None:
    pool = [item(number, right) for number, right in enumerate(rights)]
    shots = helm(pool, count, seed)
    assert len({shot.id for shot in shots}) == len(shots) == min(count, len(pool))
    assert plain_helm(rights, [shot.choices[0] for shot in shots], count)
    assert helm(pool, count, seed) == shots


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 99))
def test_harness_v0_draws_distinct_shots_that_are_never_the_item(size: int, count: int, seed: int) -> None:
    items = [item(number) for number in range(size)]
    for asked, shots in zip(items, harness_v0(items, items + [item(99)] * 5, count, seed), strict=True):
        assert len(shots) == count
        assert asked not in shots


def test_harness_v0_draws_anew_for_every_item() -> None:
    drawn = sample(HARNESS, dataset(test=20, validation=9), "s")
    assert len(set(drawn)) > 10


@pytest.mark.parametrize("protocol", [HARNESS, Protocol(sampler="helm", seed=0, shots=2), Protocol(shots=2)])
def test_asking_fewer_items_leaves_their_shots_as_they_are(protocol: Protocol) -> None:
    data = dataset(test=9, dev=5, validation=7)
    every = list(requests(protocol, data, "s"))
    assert list(islice(requests(protocol, data, "s"), 4)) == every[:4]
    assert [request.item for request in every] == list(data.rows("test", "s"))


@pytest.mark.parametrize(
    ("protocol", "sizes", "message"),
    [
        (
            Protocol(),
            {"test": 2, "dev": 4},
            "subject 's' has 4 rows in split 'dev'; 5 shots by the sampler first need 5",
        ),
        (Protocol(), {"test": 2}, "subject 's' has 0 rows in split 'dev'"),
        (HARNESS, {"test": 2, "validation": 2}, "2 shots by the sampler harness-v0 need 3"),
        (Protocol(), {"dev": 5}, "subject 's' has no rows in split 'test'; the dataset's splits are dev"),
        (Protocol(shot_split="test"), {"test": 9}, "shots from split 'test', which is also the one tested"),
    ],
)
def test_sample_says_what_is_missing(protocol: Protocol, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(DataError) as caught:
        sample(protocol, dataset(**sizes), "s")
    assert message in str(caught.value)
    assert "protocol file" in str(caught.value)
