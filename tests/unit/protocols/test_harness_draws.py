"""The harness's random streams: its own few lines beside ours, small pools, shots that are the question."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError
from choicewise.protocols.catalogue import one
from choicewise.protocols.protocol import SAMPLERS, SEEDED, Protocol
from choicewise.protocols.readings import STREAMS
from choicewise.protocols.shots import FRESH, draw, is_same, sample
from choicewise.requests.render import Refusal, TemplateSource
from choicewise.requests.request import Request
from tests.helpers.protocols import mmlu_protocol
from tests.paths import GOLDENS


def item(number: int, **fields: str) -> Item:
    return Item(f"{number}", f"question {number}?", ("yes", "no"), (0,), "", fields)


def recipe(sampler: str, shots: int, shot_split: str = "train") -> Protocol:
    return mmlu_protocol(sampler=sampler, seed=7, shots=shots, shot_split=shot_split, choices=None)


def plain(sampler: str, items: int, pool: int, count: int, seed: int) -> list[list[int]]:
    """As lm_eval does it: today item by item, in 2023 in the order of the shuffled items."""
    random, order, drawn = Random(seed), list(range(items)), {}
    if sampler.startswith("harness-v0"):
        random.shuffle(order)
    for index in order:
        drawn[index] = random.sample(range(pool), count + (sampler in ("harness-v0", "harness-spare")))
    return [drawn[index] for index in range(items)]


@given(st.sampled_from(sorted(STREAMS)), st.integers(1, 8), st.integers(5, 40), st.integers(1, 4), st.integers(0, 99))
def test_every_stream_draws_what_the_harness_draws(name: str, items: int, pool: int, count: int, seed: int) -> None:
    assert draw(STREAMS[name], items, pool, count, seed).tolist() == plain(name, items, pool, count, seed)


@pytest.mark.parametrize("name", ["harness", "harness-spare"])
@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 99))
def test_todays_streams_give_early_items_the_same_shots_however_many_follow(
    name: str, items: int, more: int, seed: int
) -> None:
    whole = draw(STREAMS[name], items + more, 9, 3, seed)
    assert draw(STREAMS[name], items, 9, 3, seed).tolist() == whole[:items].tolist()


def test_every_stream_is_a_seeded_sampler_that_draws_for_each_item() -> None:
    assert set(STREAMS) == set(FRESH) < set(SAMPLERS)
    assert set(STREAMS) < set(SEEDED)


@pytest.mark.parametrize(("sampler", "needed"), [("harness", 4), ("harness-v0-train", 4), ("harness-spare", 5)])
def test_a_pool_that_is_too_small_is_refused(sampler: str, needed: int) -> None:
    data = Dataset("made up", {"test": [item(0)], "train": [item(each) for each in range(1, needed)]})
    with pytest.raises(DataError, match=f"has {needed - 1} rows in split 'train'; 4 shots .* {sampler} need {needed}"):
        sample(recipe(sampler, 4), data, "")
    enough = Dataset("made up", {"test": [item(0)], "train": [item(each) for each in range(1, needed + 1)]})
    assert len(sample(recipe(sampler, 4), enough, "")[0]) == 4


@pytest.mark.parametrize("sampler", ["harness", "harness-v0-train"])
def test_shots_from_the_split_that_is_tested_are_refused(sampler: str) -> None:
    data = Dataset("made up", {"test": [item(each) for each in range(9)]})
    with pytest.raises(DataError, match="shots from split 'test', which is also the one tested"):
        sample(recipe(sampler, 2, "test"), data, "")


def test_a_spare_row_takes_the_place_of_the_item_itself() -> None:
    items = [item(each) for each in range(5)]
    shots = sample(recipe("harness-spare", 4, "test"), Dataset("made up", {"test": items}), "")
    assert all(asked not in examples and len(examples) == 4 for asked, examples in zip(items, shots, strict=True))


@pytest.mark.parametrize("sampler", ["harness", "harness-v0-train", "first"])
def test_an_item_among_its_own_shots_is_refused(sampler: str) -> None:
    data = Dataset("made up", {"test": [item(3), item(9)], "train": [item(each) for each in range(1, 4)]})
    source = TemplateSource(recipe(sampler, 3), data)
    refused, asked = source.requests("", data.rows("test", ""))
    assert isinstance(refused, Refusal)
    assert "item 3 is one of its own shots: split 'train' has the same question" in str(refused.reason)
    assert isinstance(asked, Request)
    assert len(asked.shots) == 3
    assert [(name, str(reason)) for name, reason in source.problems("", data.rows("test", ""))] == [
        ("3", str(refused.reason))
    ]
    assert not list(source.problems("", data.rows("test", "")[1:], 1))


def test_problems_before_a_run_are_those_of_the_run() -> None:
    """Some of the items that stand in train are drawn for themselves, others are not."""
    pool = [item(each) for each in range(40)]
    data = Dataset("made up", {"test": [item(each) for each in range(60)], "train": pool})
    source = TemplateSource(recipe("harness", 9), data)
    refused = [each.item.id for each in source.requests("", data.rows("test", "")) if isinstance(each, Refusal)]
    assert 0 < len(refused) < 40
    assert [name for name, _ in source.problems("", data.rows("test", ""))] == refused
    later = data.rows("test", "")[10:]
    assert [name for name, _ in source.problems("", later, 10)] == [id for id in refused if int(id) >= 10]


def test_items_with_another_passage_are_others() -> None:
    first = item(1, passage="The mill stands.", idx="1")
    assert is_same(first, item(1, passage="The mill stands.", idx="2"))
    assert not is_same(first, item(1, passage="The mill turns.", idx="1"))


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("arc-challenge", 24, "24 rows in split 'train'; 25 shots by the sampler harness-v0-train need 25"),
        ("winogrande", 4, "4 rows in split 'train'; 5 shots by the sampler harness-v0-train need 5"),
    ],
)
def test_the_leaderboard_says_when_train_is_too_small(name: str, rows: int, message: str) -> None:
    protocol = one(f"{name}/harness-v1").protocol
    pool = [item(each) for each in range(1, rows + 1)]
    data = Dataset(name, {protocol.split or "": [item(0)], "train": pool})
    with pytest.raises(DataError, match=message):
        sample(protocol, data, "")


def test_the_streams_of_tasks_without_a_test_split_differ() -> None:
    """None is None: where a task names neither test nor shots, one row more is drawn."""
    golden = json.loads((GOLDENS / "harness" / "today.json").read_text(encoding="utf-8"))
    spare = {name for name in golden["benchmarks"] if one(f"{name}/harness").protocol.sampler == "harness-spare"}
    assert spare == {"boolq", "commonsenseqa", "copa", "hellaswag", "piqa", "siqa", "winogrande"}
