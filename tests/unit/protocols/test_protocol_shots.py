"""Samplers: the same shots whoever asks, however few items are asked."""

from collections import Counter
from itertools import cycle, islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.dataset import Dataset, Items
from choicewise.data.items import Item
from choicewise.errors import DataError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.shots import draw_helm, sample
from tests.helpers.protocols import mmlu_protocol, requests

HARNESS = mmlu_protocol(sampler="harness-v0", seed=42, shot_split="validation", shots=2)


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
    assert sample(mmlu_protocol(shots=2), data, "s") == [tuple(data.rows("dev", "s")[:2])] * 3


def test_sample_needs_no_pool_without_shots() -> None:
    assert sample(mmlu_protocol(shots=0), dataset(test=2), "s") == [(), ()]


def test_helm_permutes_five_distinct_answers_as_published() -> None:
    # random.Random(0).shuffle of five labels in alphabetical order, as measured on HELM itself.
    pool = [item(number, right) for number, right in enumerate("abcde")]
    assert [shot.choices[0] for shot in helm(pool, 5, 0)] == ["c", "b", "a", "e", "d"]


def helm(pool: list[Item], count: int, seed: int) -> list[Item]:
    return list(Items.of(pool).take(draw_helm(Items.of(pool).right_texts(), count, seed)))


def published_helm(pool: list[Item], count: int, seed: int) -> list[Item]:
    """HELM's own way, with all rows at hand."""
    random = Random(seed)
    groups: dict[str, list[Item]] = {}
    for row in pool:
        groups.setdefault(row.choices[row.gold[0]], []).append(row)
    order: list[str] = []
    for size in sorted({len(group) for group in groups.values()}, reverse=True):
        tied = sorted(answer for answer, group in groups.items() if len(group) == size)
        random.shuffle(tied)
        order += tied
    chosen: list[Item] = []
    for answer in cycle(order):
        if len(chosen) == min(count, len(pool)):
            break
        if group := groups[answer]:
            chosen.append(group.pop(random.randrange(len(group))))
    return chosen


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


@given(st.lists(st.text(max_size=2), min_size=1, max_size=9), st.integers(1, 9), st.integers(0, 99))
def test_helm_draws_what_helm_itself_draws(rights: list[str], count: int, seed: int) -> None:
    pool = [item(number, right) for number, right in enumerate(rights)]
    assert helm(pool, count, seed) == published_helm(pool, count, seed)


def harness_v0(items: list[Item], pool: list[Item], count: int, seed: int) -> list[tuple[Item, ...]]:
    """The early harness's own way, with all rows at hand."""
    random = Random(seed)
    order = list(range(len(items)))
    random.shuffle(order)
    drawn = {index: random.sample(pool, count + 1) for index in order}
    return [tuple(row for row in drawn[index] if row != asked)[:count] for index, asked in enumerate(items)]


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 99))
def test_harness_v0_draws_distinct_shots_that_are_never_the_item(size: int, count: int, seed: int) -> None:
    items = [item(number) for number in range(size)]
    pool = items + [item(number) for number in range(100, 105)]
    data = Dataset("made up", {"test": items, "train": pool})
    protocol = mmlu_protocol(sampler="harness-v0", seed=seed, shot_split="train", shots=count)
    shots = sample(protocol, data, "s")
    assert shots == harness_v0(items, pool, count, seed)
    assert sample(protocol, data, "s", range(size // 2, size)) == shots[size // 2 :]
    for asked, examples in zip(items, shots, strict=True):
        assert len({shot.id for shot in examples}) == count
        assert asked not in examples


def test_harness_v0_draws_anew_for_every_item() -> None:
    drawn = sample(HARNESS, dataset(test=20, validation=9), "s")
    assert len(set(drawn)) > 10


@pytest.mark.parametrize("protocol", [HARNESS, mmlu_protocol(sampler="helm", seed=0, shots=2), mmlu_protocol(shots=2)])
def test_asking_fewer_items_leaves_their_shots_as_they_are(protocol: Protocol) -> None:
    data = dataset(test=9, dev=5, validation=7)
    every = list(requests(protocol, data, "s"))
    assert list(islice(requests(protocol, data, "s"), 4)) == every[:4]
    assert [request.item for request in every] == list(data.rows("test", "s"))


@pytest.mark.parametrize(
    ("protocol", "sizes", "message"),
    [
        (
            mmlu_protocol(),
            {"test": 2, "dev": 4},
            "subject 's' has 4 rows in split 'dev'; 5 shots by the sampler first need 5",
        ),
        (mmlu_protocol(), {"test": 2}, "subject 's' has 0 rows in split 'dev'"),
        (HARNESS, {"test": 2, "validation": 2}, "2 shots by the sampler harness-v0 need 3"),
        (mmlu_protocol(), {"dev": 5}, "subject 's' has no rows in split 'test'; the dataset's splits are dev"),
        (mmlu_protocol(shot_split="test"), {"test": 9}, "shots from split 'test', which is also the one tested"),
    ],
)
def test_sample_says_what_is_missing(protocol: Protocol, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(DataError) as caught:
        sample(protocol, dataset(**sizes), "s")
    assert message in str(caught.value)
    assert "protocol file" in str(caught.value)
