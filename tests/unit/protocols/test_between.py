"""Ways between protocols have names that resolve, and pass by what the data can't be asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from choicewise import evaluate, open_dataset
from choicewise.errors import ProtocolError
from choicewise.protocols.between import differing, path
from choicewise.protocols.catalogue import names, one, resolve
from choicewise.protocols.protocol import signature
from choicewise.requests.blocks import has_shots
from tests.helpers.mmlu_data import write_mmlu

ORIGINAL, HARNESS = one("mmlu/original").protocol, one("mmlu/harness-v0:acc").protocol


def test_a_way_holds_both_ends_and_the_paths_in_both_directions() -> None:
    way = resolve("mmlu/original..mmlu/harness-v0:sum")
    there, back = ([each for _, each in path(*ends)] for ends in ((ORIGINAL, HARNESS), (HARNESS, ORIGINAL)))
    assert list(way)[:2] == ["mmlu/original", "mmlu/harness-v0:sum"]
    assert set(way.values()) == {ORIGINAL, HARNESS, *there, *back}
    assert way["mmlu/original..mmlu/harness-v0:sum:header"] == replace(ORIGINAL, header="")
    assert way["mmlu/harness-v0:sum..mmlu/original:header"] == replace(HARNESS, header=ORIGINAL.header)


def test_names_are_the_same_however_the_ends_are_spelled() -> None:
    published, signed = "mmlu/harness-v0:acc", signature(HARNESS)
    ways = [resolve(f"mmlu/original..{end}") for end in ("mmlu/harness-v0:sum", published, signed)]
    assert ways[0] == ways[1] == ways[2]
    headline = resolve("mmlu/original..mmlu/harness-v0")
    assert "mmlu/harness-v0:char_mean_bare" in headline
    assert "mmlu/original..mmlu/harness-v0:header" in headline


@pytest.mark.costly("the whole catalogue")
def test_every_name_of_a_way_resolves_by_itself() -> None:
    for name, protocol in resolve("mmlu/original..mmlu/helm").items():
        assert resolve(name) == {name: protocol}


def test_what_the_catalogue_has_on_the_way_keeps_its_name() -> None:
    start, end = "mmlu/cloze:sum", signature(replace(one("mmlu/cloze:token_mean").protocol, ties="split"))
    assert "mmlu/cloze:token_mean" in resolve(f"{start}..{end}")


def test_a_file_and_a_path_with_dots_can_be_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "mine.toml").write_text('base = "mmlu/original"\n[protocol]\nheader = ""\nties = "split"\n')
    monkeypatch.chdir(tmp_path / "inner")
    for way in ("../mine.toml..mmlu/original", "mmlu/original..../mine.toml"):
        between = set(resolve(way)) - {"mine", "mmlu/original"}
        assert between == {"mine..mmlu/original:header", "mmlu/original..mine:header"}
    text = signature(replace(ORIGINAL, header="a..b"))
    assert next(iter(resolve(f"{text}..mmlu/original").values())).header == "a..b"
    assert resolve(text)


def test_a_split_that_one_end_leaves_open_is_that_of_the_other() -> None:
    way = resolve("options/cloze:sum..mmlu/cloze:sum")
    assert one("options/cloze:sum").protocol.split is None
    assert {protocol.split for name, protocol in way.items() if ".." in name} == {"test"}


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("mmlu/orignal..mmlu/helm", "no protocol is called 'mmlu/orignal'; did you mean mmlu/original"),
        ("mmlu/original..mmlu/hlem", "no protocol is called 'mmlu/hlem'; did you mean mmlu/helm"),
        ("mmlu/original..mmlu", "mmlu stands for several protocols; name one"),
        ("mmlu/original..mmlu/helm:views", "has no protocol that is called after views; it has mmlu/original, "),
        ("mmlu/original..", "no protocol is called"),
    ],
)
def test_ways_that_are_none_say_why(selector: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        resolve(selector)


def test_one_is_the_headline_and_no_group() -> None:
    assert (one("mmlu/harness-v0").name, one("mmlu/harness-v0").label) == (
        "mmlu/harness-v0:char_mean_bare",
        "mmlu/harness-v0",
    )
    assert names()[one("mmlu/harness-v0").protocol] == "mmlu/harness-v0:char_mean_bare"
    for several in ("mmlu", "mmlu/original..mmlu/helm"):
        with pytest.raises(ProtocolError, match="stands for several protocols; name one, such as mmlu/"):
            one(several)


def test_a_way_passes_by_shots_that_the_data_can_t_give(tmp_path: Path) -> None:
    """Five rows of dev are too few for a sampler that draws one more than it shows."""
    data = open_dataset(write_mmlu(tmp_path / "data"))
    assert not has_shots(data, None, replace(HARNESS, shot_split="dev"))
    selector, back = "mmlu/original..mmlu/harness-v0:sum", "mmlu/harness-v0:sum..mmlu/original"
    either = resolve(selector)[f"{back}:shot_split"]
    assert (either.sampler, either.shot_split) == ("harness-v0", "dev")
    run = evaluate(model="fake:hash", data=data, protocols=[selector], out=tmp_path / "run")
    before, after = (run.protocols[f"{back}:{axis}"] for axis in ("sampler", "shot_split"))
    assert (before.sampler, before.shot_split) == ("first", "validation")
    assert (after.sampler, after.shot_split) == ("first", "dev")


@pytest.mark.costly("the whole catalogue")
def test_where_nothing_between_is_possible_all_axes_change_at_once() -> None:
    assert path(HARNESS, ORIGINAL, lambda protocol: False) == [(differing(HARNESS, ORIGINAL), ORIGINAL)]


def test_ends_on_two_splits_keep_them() -> None:
    test, dev = (replace(HARNESS, split=split, seed=seed) for split, seed in (("test", 42), ("dev", 7)))
    way = resolve(f"{signature(test)}..{signature(dev)}")
    assert {(protocol.split, protocol.seed) for protocol in way.values()} == {
        ("test", 42), ("dev", 7), ("dev", 42), ("test", 7)
    }  # fmt: skip
