"""Curated few-shot examples: the sets, their fixed texts, and the sampler that shows them."""

import hashlib
from dataclasses import replace
from importlib.resources import files

import pytest

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError
from choicewise.protocols.catalogue import entries, entry
from choicewise.protocols.shots import curated, sample
from choicewise.requests.blocks import has_shots

TEXTS = {
    "harness-bbh/boolean_expressions": "f452990166677db619b415f1432aab1ab663805c",
    "harness-bbh/causal_judgement": "20f15d4e028ed6c0b59cdd25fb0f73c028c6064c",
    "harness-bbh/date_understanding": "3f6f4125f79f0c6f8c679e4f74c57777b16b575e",
    "harness-bbh/disambiguation_qa": "60f9b90407acede6be395fc0555cbb9b8250fdba",
    "harness-bbh/formal_fallacies": "a540782e607965d3a79d28422a67a245068f1bea",
    "harness-bbh/geometric_shapes": "5fb5e89acb3900174efac7df03be72367a94a9da",
    "harness-bbh/hyperbaton": "5df2c0e810c5548f3a5a9ff643b977c6f0469f44",
    "harness-bbh/logical_deduction_five_objects": "081268124987c0c03099af749beecdd1b382794e",
    "harness-bbh/logical_deduction_seven_objects": "d542eb3b0e860569fb54a4e9333c744c2581d8fb",
    "harness-bbh/logical_deduction_three_objects": "33c2b56f1342a1c558d9aee7cbe847789f8ce876",
    "harness-bbh/movie_recommendation": "84b123b72faf731750cf5a8d6a701fd0ec711e5e",
    "harness-bbh/navigate": "c12fc1e6678309d252a962717523299182ea16c7",
    "harness-bbh/object_counting": "b99f8ca305a8f78a702a27bc00c7ab8d6badb871",
    "harness-bbh/penguins_in_a_table": "fcedcbbdf0332839f95395913a3b061c11692f53",
    "harness-bbh/reasoning_about_colored_objects": "a7e51480df5d2473c048bb3c245aac7960ad0718",
    "harness-bbh/ruin_names": "66286874554e9a014f16b925f63a0f6786d4d2e9",
    "harness-bbh/salient_translation_error_detection": "fd38413d2b12f67b4062141a8a91098b47add984",
    "harness-bbh/snarks": "1c5a47fdf991139f4b1cd43c089c60e257e67116",
    "harness-bbh/sports_understanding": "cbc40bc8103b8cc4cbd7d0269730687eac7c9f16",
    "harness-bbh/temporal_sequences": "2ca5e1db76da4391279ad1f65ece93a6a26c4389",
    "harness-bbh/tracking_shuffled_objects_five_objects": "9a686837e37c34047e912b6e616d9ad29a60b1c0",
    "harness-bbh/tracking_shuffled_objects_seven_objects": "42ca167b469600e7280a57eb62b7e10c57892868",
    "harness-bbh/tracking_shuffled_objects_three_objects": "8d6b21392b5059972f4e63ebd4400e941a852037",
    "harness-bbh/web_of_lies": "f9970d8bc04e0416e272d5af130432afa36f7d1a",
    "olmes/arc-challenge": "847d6ec4aadccefa38311645c76c491ad24bf486",
    "olmes/arc-easy": "266865c0f6cf9feb4f5d37f4084df9ba8790f9cf",
    "olmes/boolq": "afeb43d911032c09128f823ed4b64037e078e13a",
    "olmes/commonsenseqa": "63068749d6e2fe91ab014dfb66898713375125f7",
    "olmes/hellaswag": "7e1a0d6feaca7818ac1c303e29fe5a70b0892c60",
    "olmes/openbookqa": "2d508b218d6f85046f5b541a5fb8d24a6711d34e",
    "olmes/piqa": "f28dd2779b18f4ae185d746b7125d876b540d994",
    "olmes/siqa": "7bde1dfb44828b225ca882df37d8059079008845",
    "olmes/winogrande": "f47fdfec1c35d045a19950ce00fdafb4e5a45c73",
}
"""Set → the first 40 digits of the sha256 of its file.  A name is part of protocols: rename a set that changes."""

USED = {
    protocol.shot_split for known in entries() for protocol in known.protocols.values() if protocol.sampler == "curated"
}
QUIZ = Dataset("quiz", {"test": (Item("1", "Where do birds live?", ("in a tree", "in the sea"), (0,)),)})


def test_the_texts_of_every_set_are_fixed() -> None:
    root = files("choicewise.protocols") / "curated"
    names = [f"{folder.name}/{file.name}" for folder in root.iterdir() if folder.is_dir() for file in folder.iterdir()]
    shown = {
        name: hashlib.sha256(root.joinpath(name).read_bytes()).hexdigest()[:40] for name in names if ".jsonl" in name
    }
    assert shown == {f"{name}.jsonl": digest for name, digest in TEXTS.items()}


def test_the_catalogue_uses_every_set_and_no_other() -> None:
    assert {name if name in USED else f"{name.partition('/')[0]}/{{subject}}" for name in TEXTS} == USED


@pytest.mark.parametrize("name", TEXTS)
def test_a_set_has_examples_with_an_answer(name: str) -> None:
    examples = curated(name)
    assert len(examples) == len({each.id for each in examples}) == (5 if name.startswith("olmes/") else 3)
    assert all(0 <= each.gold[0] < len(each.choices) and each.question for each in examples)


def test_the_sampler_shows_the_first_examples_to_every_item() -> None:
    protocol = next(iter(entry("arc-easy/olmes-mcf").protocols.values()))
    assert sample(protocol, QUIZ, "") == [curated("olmes/arc-easy")]
    assert sample(replace(protocol, shots=2), QUIZ, "") == [curated("olmes/arc-easy")[:2]]
    assert sample(replace(protocol, shots=0), QUIZ, "") == [()]


def test_another_samplers_split_is_no_set_so_that_ways_between_protocols_pass_it_by() -> None:
    protocol = next(iter(entry("arc-easy/olmes-mcf").protocols.values()))
    assert has_shots(QUIZ, None, protocol)
    assert not has_shots(QUIZ, None, replace(protocol, shot_split="train"))
    assert not has_shots(QUIZ, None, replace(protocol, sampler="first"))


def test_too_many_shots_and_unknown_sets_are_refused() -> None:
    protocol = next(iter(entry("arc-easy/olmes-mcf").protocols.values()))
    with pytest.raises(DataError, match="olmes/arc-easy has 5 examples, and the protocol asks for 6 shots"):
        sample(replace(protocol, shots=6), QUIZ, "")
    with pytest.raises(DataError, match="no set .* is called 'olmes/arc'; did you mean olmes/arc-"):
        sample(replace(protocol, shot_split="olmes/arc"), QUIZ, "")
    with pytest.raises(DataError, match="no set"):
        curated("../olmes/arc-easy")
