"""Samplers: the shots of the published tools, the same whoever asks, however few items are asked; curated examples."""

import hashlib
import json
from dataclasses import replace
from importlib.resources import files
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from choicewise.data.dataset import Dataset, Items
from choicewise.data.items import Item
from choicewise.errors import DataError
from choicewise.protocols.catalogue import entries, one
from choicewise.protocols.protocol import SAMPLERS, SEEDED, Protocol
from choicewise.protocols.readings import STREAMS
from choicewise.protocols.shots import FRESH, curated, draw, draw_helm, is_same, sample
from choicewise.requests.blocks import has_shots
from choicewise.requests.render import Refusal, TemplateSource
from choicewise.requests.request import Request
from tests.helpers.protocols import mmlu_protocol, requests
from tests.paths import GOLDENS

HARNESS = mmlu_protocol(sampler="harness-v0", seed=42, shot_split="validation", shots=2)


def item(number: int, right: str = "") -> Item:
    choices = (right or f"right {number}", "x", "y", "z")
    return Item(f"s/{number}", f"question {number}?", choices, (0,), "s")


def dataset(**sizes: int) -> Dataset:
    starts = {"test": 0, "dev": 100, "validation": 200}
    rows = {split: tuple(map(item, range(starts[split], starts[split] + size))) for split, size in sizes.items()}
    return Dataset("made up", rows)


def test_sample_first_takes_the_first_rows_for_every_item_and_needs_no_pool_without_shots() -> None:
    data = dataset(test=3, dev=4)
    assert sample(mmlu_protocol(shots=2), data, "s") == [tuple(data.rows("dev", "s")[:2])] * 3
    assert sample(mmlu_protocol(shots=0), dataset(test=2), "s") == [(), ()]


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


@given(
    st.lists(st.text(max_size=2) | st.sampled_from("abcd"), min_size=1, max_size=9),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_helm_draws_what_helm_itself_draws(rights: list[str], count: int, seed: int) -> None:
    pool = [item(number, right) for number, right in enumerate(rights)]
    shots = helm(pool, count, seed)
    assert len({shot.id for shot in shots}) == len(shots) == min(count, len(pool))
    assert helm(pool, count, seed) == shots == published_helm(pool, count, seed)
    # random.Random(0).shuffle of five labels in alphabetical order, as measured on HELM itself.
    five = helm([item(number, right) for number, right in enumerate("abcde")], 5, 0)
    assert [shot.choices[0] for shot in five] == ["c", "b", "a", "e", "d"]


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
    assert len(set(sample(HARNESS, dataset(test=20, validation=9), "s"))) > 10, "each item has its own"


@pytest.mark.parametrize("protocol", [HARNESS, mmlu_protocol(sampler="helm", seed=0, shots=2), mmlu_protocol(shots=2)])
def test_asking_fewer_items_leaves_their_shots_as_they_are(protocol: Protocol) -> None:
    data = dataset(test=9, dev=5, validation=7)
    every = list(requests(protocol, data, "s"))
    assert list(islice(requests(protocol, data, "s"), 4)) == every[:4]
    assert [request.item for request in every] == list(data.rows("test", "s"))


@pytest.mark.parametrize(
    ("protocol", "sizes", "message"),
    [
        (mmlu_protocol(), {"test": 2, "dev": 4}, "has 4 rows in split 'dev'; 5 shots by the sampler first need 5"),
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


def train_item(number: int, **fields: str) -> Item:
    return Item(f"{number}", f"question {number}?", ("yes", "no"), (0,), "", fields)


def recipe(sampler: str, shots: int, shot_split: str = "train") -> Protocol:
    return mmlu_protocol(sampler=sampler, seed=7, shots=shots, shot_split=shot_split, choices=None)


def plain(sampler: str, items: int, pool: int, count: int, seed: int) -> list[list[int]]:
    """As lm_eval does it: today train_item by train_item, in 2023 in the order of the shuffled items."""
    random, order, drawn = Random(seed), list(range(items)), {}
    if sampler.startswith("harness-v0"):
        random.shuffle(order)
    for index in order:
        drawn[index] = random.sample(range(pool), count + (sampler in ("harness-v0", "harness-spare")))
    return [drawn[index] for index in range(items)]


@given(st.sampled_from(sorted(STREAMS)), st.integers(1, 8), st.integers(5, 40), st.integers(1, 4), st.integers(0, 99))
def test_every_stream_draws_what_the_harness_draws(name: str, items: int, pool: int, count: int, seed: int) -> None:
    assert draw(STREAMS[name], items, pool, count, seed).tolist() == plain(name, items, pool, count, seed)
    assert set(STREAMS) == set(FRESH) < set(SAMPLERS)
    assert set(STREAMS) < set(SEEDED)


@pytest.mark.parametrize("name", ["harness", "harness-spare"])
@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 99))
def test_todays_streams_give_early_items_the_same_shots_however_many_follow(
    name: str, items: int, more: int, seed: int
) -> None:
    whole = draw(STREAMS[name], items + more, 9, 3, seed)
    assert draw(STREAMS[name], items, 9, 3, seed).tolist() == whole[:items].tolist()


@pytest.mark.parametrize(("sampler", "needed"), [("harness", 4), ("harness-v0-train", 4), ("harness-spare", 5)])
def test_a_pool_that_is_too_small_is_refused(sampler: str, needed: int) -> None:
    data = Dataset("made up", {"test": [train_item(0)], "train": [train_item(each) for each in range(1, needed)]})
    with pytest.raises(DataError, match=f"has {needed - 1} rows in split 'train'; 4 shots .* {sampler} need {needed}"):
        sample(recipe(sampler, 4), data, "")
    enough = Dataset("made up", {"test": [train_item(0)], "train": [train_item(each) for each in range(1, needed + 1)]})
    assert len(sample(recipe(sampler, 4), enough, "")[0]) == 4
    if sampler != "harness-spare":
        with pytest.raises(DataError, match="shots from split 'test', which is also the one tested"):
            sample(recipe(sampler, 2, "test"), Dataset("made up", {"test": [*map(train_item, range(9))]}), "")


def test_a_spare_row_takes_the_place_of_the_item_itself() -> None:
    items = [train_item(each) for each in range(5)]
    shots = sample(recipe("harness-spare", 4, "test"), Dataset("made up", {"test": items}), "")
    assert all(asked not in examples and len(examples) == 4 for asked, examples in zip(items, shots, strict=True))


@pytest.mark.parametrize("sampler", ["harness", "harness-v0-train", "first"])
def test_an_item_among_its_own_shots_is_refused(sampler: str) -> None:
    data = Dataset("made up", {"test": [train_item(3), train_item(9)], "train": [*map(train_item, range(1, 4))]})
    source = TemplateSource(recipe(sampler, 3), data)
    refused, asked = source.requests("", data.rows("test", ""))
    assert isinstance(refused, Refusal)
    assert "item 3 is one of its own shots: split 'train' has the same question" in str(refused.reason)
    assert isinstance(asked, Request)
    assert len(asked.shots) == 3
    told = [(name, str(reason)) for name, reason in source.problems("", data.rows("test", ""))]
    assert told == [("3", str(refused.reason))]
    assert not list(source.problems("", data.rows("test", "")[1:], 1))


def test_problems_before_a_run_are_those_of_the_run() -> None:
    """Some of the items that stand in train are drawn for themselves, others are not."""
    pool = [train_item(each) for each in range(40)]
    data = Dataset("made up", {"test": [train_item(each) for each in range(60)], "train": pool})
    source = TemplateSource(recipe("harness", 9), data)
    refused = [each.item.id for each in source.requests("", data.rows("test", "")) if isinstance(each, Refusal)]
    assert 0 < len(refused) < 40
    assert [name for name, _ in source.problems("", data.rows("test", ""))] == refused
    later = data.rows("test", "")[10:]
    assert [name for name, _ in source.problems("", later, 10)] == [id for id in refused if int(id) >= 10]


def test_items_with_another_passage_are_others() -> None:
    first = train_item(1, passage="The mill stands.", idx="1")
    assert is_same(first, train_item(1, passage="The mill stands.", idx="2"))
    assert not is_same(first, train_item(1, passage="The mill turns.", idx="1"))


@pytest.mark.parametrize(("name", "shots"), [("arc-challenge", 25), ("winogrande", 5)])
def test_the_leaderboard_says_when_train_is_too_small(name: str, shots: int) -> None:
    protocol = one(f"{name}/harness-v1").protocol
    pool = [train_item(each) for each in range(1, shots)]
    data = Dataset(name, {protocol.split or "": [train_item(0)], "train": pool})
    needed = f"{shots - 1} rows in split 'train'; {shots} shots by the sampler harness-v0-train need {shots}"
    with pytest.raises(DataError, match=needed):
        sample(protocol, data, "")


def test_the_streams_of_tasks_without_a_test_split_differ() -> None:
    """None is None: where a task names neither test nor shots, one row more is drawn."""
    golden = json.loads((GOLDENS / "harness" / "today.json").read_text(encoding="utf-8"))
    spare = {name for name in golden["benchmarks"] if one(f"{name}/harness").protocol.sampler == "harness-spare"}
    assert spare == {"boolq", "commonsenseqa", "copa", "hellaswag", "piqa", "siqa", "winogrande"}


ROOT = Path(str(files("choicewise.protocols"))) / "curated"
SETS = sorted(str(file.relative_to(ROOT)).removesuffix(".jsonl") for file in ROOT.rglob("*.jsonl"))
QUIZ = Dataset("quiz", {"test": (Item("1", "Where do birds live?", ("in a tree", "in the sea"), (0,)),)})


def test_the_texts_of_every_set_are_fixed(snapshot: SnapshotAssertion) -> None:
    """A name is part of protocols: rename a set that changes."""
    assert {name: hashlib.sha256((ROOT / f"{name}.jsonl").read_bytes()).hexdigest()[:40] for name in SETS} == snapshot


def test_the_catalogue_uses_every_set_and_no_other() -> None:
    protocols = [protocol for known in entries() for protocol in known.protocols.values()]
    used = {protocol.shot_split for protocol in protocols if protocol.sampler == "curated"}
    assert {name if name in used else f"{name.partition('/')[0]}/{{subject}}" for name in SETS} == used


def test_a_set_has_examples_with_an_answer() -> None:
    for name in SETS:
        examples = curated(name)
        assert len(examples) == len({each.id for each in examples}) == (5 if name.startswith("olmes/") else 3)
        assert all(0 <= each.gold[0] < len(each.choices) and each.question for each in examples)


OLMES = one("arc-easy/olmes-mcf").protocol


def test_the_sampler_shows_the_first_examples_to_every_item() -> None:
    for shots in (5, 2, 0):
        assert sample(replace(OLMES, shots=shots), QUIZ, "") == [curated("olmes/arc-easy")[:shots]]
    assert OLMES.shots == 5


def test_another_samplers_split_is_no_set_so_that_ways_between_protocols_pass_it_by() -> None:
    assert has_shots(QUIZ, None, OLMES)
    assert not has_shots(QUIZ, None, replace(OLMES, shot_split="train"))
    assert not has_shots(QUIZ, None, replace(OLMES, sampler="first"))


def test_too_many_shots_and_unknown_sets_are_refused() -> None:
    with pytest.raises(DataError, match="olmes/arc-easy has 5 examples, and the protocol asks for 6 shots"):
        sample(replace(OLMES, shots=6), QUIZ, "")
    with pytest.raises(DataError, match="no set .* is called 'olmes/arc'; did you mean olmes/arc-"):
        sample(replace(OLMES, shot_split="olmes/arc"), QUIZ, "")
    with pytest.raises(DataError, match="no set"):
        curated("../olmes/arc-easy")
