"""Names that people know, and axes that change for all of a family or suite."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import ProtocolError, UsageError
from choicewise.protocols.catalogue import (
    SCORES,
    entries,
    entry_names,
    group_names,
    having_score,
    names,
    one,
    resolve,
    spelled,
    suite_names,
    with_changes,
)
from choicewise.protocols.names import FORMULATIONS, SCORE_NAMES
from choicewise.protocols.protocol import signature

ENTRY = st.sampled_from(entry_names())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mmlu/olmes-cf:acc_norm", "mmlu/olmes-cf:char_mean_bare"),
        ("MMLU/CF:acc_norm", "mmlu/olmes-cf:char_mean_bare"),
        ("mmlu/mcf", "mmlu/olmes-mcf"),
        ("mmlu/harness-v0:acc_mutual_info", "mmlu/harness-v0:pmi-empty"),
        ("mmlu/olmes-cf:acc_uncond", "mmlu/olmes-cf:pmi-answer"),
        ("arc-easy/cf:acc", "arc-easy/olmes-cf:acc_raw"),
        ("hellaswag/harness:acc_norm", "hellaswag/harness:acc_norm"),
        ("mmlu/original:acc", "mmlu/original"),
        ("mmlu/CF@shots=0:acc_norm", "mmlu/olmes-cf:char_mean_bare@shots=0"),
        ("mmlu/harness-v0+turns:acc@shots=0", "mmlu/harness-v0+turns:sum@shots=0"),
    ],
)
def test_names_that_people_know(typed: str, meant: str) -> None:
    assert list(resolve(typed)) == [meant]
    assert one(typed).name == meant


@pytest.mark.parametrize("typed", ["mmlu/original:acc_norm", "arc-easy/cf:acc_norm", "mmlu/helm:acc_norm", "mmlu/mfc"])
def test_a_name_of_what_a_protocol_lacks_is_refused(typed: str) -> None:
    with pytest.raises(ProtocolError, match="no protocol is called"):
        resolve(typed)


def test_every_score_with_a_name_is_one_of_the_catalogue() -> None:
    assert {each.score for each in SCORE_NAMES.values()} <= {*SCORES}
    assert all(f"mmlu/{ours}" in entry_names() for ours in FORMULATIONS.values())


@given(st.sampled_from([*entry_names(), *group_names(), *suite_names()]), st.randoms())
def test_case_does_not_matter(name: str, draws: Random) -> None:
    typed = "".join(letter.upper() if draws.random() < 0.5 else letter for letter in name)
    assert spelled(typed) == name
    assert spelled(f"{typed}@shots=0") == f"{name}@shots=0"


@pytest.mark.parametrize(
    "text", ["Mine.toml", "MMLU.toml@shots=0", "Nothing", "lm-eval:MMLU", signature(one("mmlu/helm").protocol)]
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert spelled(text) == text


@given(ENTRY, st.sampled_from(["", "@shots=1", "@shots=1,choices=any", "+turns"]))
def test_the_selector_of_changed_axes_means_them(name: str, before: str) -> None:
    """Beside a plain reference: the axes of what the selector stood for, changed one by one."""
    try:
        plain = resolve(name + before)
    except ProtocolError:
        return
    changed = resolve(with_changes(name + before, "shots=0"))
    assert list(changed.values()) == list(dict.fromkeys(replace(each, shots=0) for each in plain.values()))
    assert all(resolve(each)[each] == protocol for each, protocol in changed.items())


@pytest.mark.parametrize("axis", ["shots=0", "choices=any"])
@pytest.mark.parametrize(
    "name", ["mmlu", "arc-easy", "leaderboard/2023-06", "olmes", "mmlu/original..mmlu/harness-v0:sum"]
)
def test_a_change_is_one_of_all_protocols(name: str, axis: str) -> None:
    changed = resolve(with_changes(name, axis))
    assert {getattr(each, axis.partition("=")[0]) for each in changed.values()} == {0 if axis == "shots=0" else None}


def test_a_signature_is_changed_inside() -> None:
    protocol = one("mmlu/original").protocol
    assert with_changes(signature(protocol), "shots=0") == signature(replace(protocol, shots=0))


def test_what_a_change_does_not_fit_is_named() -> None:
    with pytest.raises(ProtocolError, match="10 of 49 protocols can't have @shots=2") as refused:
        resolve("mmlu@shots=2")
    (line,) = refused.value.problems
    assert "mmlu/cloze:sum" in line
    assert "mmlu/original" not in line
    assert "shot_split=dev" in line
    assert resolve("mmlu/cloze:sum@shots=2,shot_split=dev,sampler=first")


def test_a_score_of_every_protocol_that_has_it() -> None:
    chosen = having_score(resolve("mmlu"), "acc_norm")
    assert {each.score for each in chosen.values()} == {"char_mean_bare"}
    assert len(chosen) == 4
    assert having_score(resolve("mmlu"), "char_mean_bare") == chosen
    assert list(having_score(resolve("mmlu@shots=0"), "acc_uncond")) == ["mmlu/olmes-cf:pmi-answer@shots=0"]
    assert list(having_score({"mine": one("mmlu/original").protocol}, "acc")) == ["mine"]
    with pytest.raises(UsageError, match="none of 49 protocols has the score 'acc_nrom'; did you mean acc_norm"):
        having_score(resolve("mmlu"), "acc_nrom")


def test_an_entry_lists_the_names_of_its_scores() -> None:
    (own,) = (each for each in entries() if each.name == "mmlu/olmes-cf")
    assert own.published["mmlu/olmes-cf:acc_per_char"] == "mmlu/olmes-cf:char_mean"
    assert {*own.published.values()} <= {*own.protocols} == {*names().values()} & {*own.protocols}
