"""Between any two protocols there are protocols that each mean something, a step at a time, with names that resolve."""

from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise import evaluate, open_dataset
from choicewise.errors import ProtocolError, UsageError
from choicewise.protocols.between import inseparable, path
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
from choicewise.protocols.protocol import AXES, Protocol, differing, signature
from choicewise.requests.blocks import has_shots
from tests.helpers.mmlu_data import write_mmlu
from tests.paths import ROOT

ORIGINAL, HARNESS = one("mmlu/original").protocol, one("mmlu/harness-v0:acc").protocol


def test_a_way_holds_both_ends_and_the_paths_in_both_directions() -> None:
    way = resolve("mmlu/original..mmlu/harness-v0:sum")
    there, back = (
        [each for _, each in path(*ends)] for ends in ((ORIGINAL, HARNESS), (HARNESS, ORIGINAL))
    )
    assert list(way)[:2] == ["mmlu/original", "mmlu/harness-v0:sum"]
    assert set(way.values()) == {ORIGINAL, HARNESS, *there, *back}
    assert way["mmlu/original..mmlu/harness-v0:sum:header"] == replace(ORIGINAL, header="")
    assert way["mmlu/harness-v0:sum..mmlu/original:header"] == replace(
        HARNESS, header=ORIGINAL.header
    )


def test_names_are_the_same_however_the_ends_are_spelled() -> None:
    published, signed = "mmlu/harness-v0:acc", signature(HARNESS)
    ways = [resolve(f"mmlu/original..{end}") for end in ("mmlu/harness-v0:sum", published, signed)]
    assert ways[0] == ways[1] == ways[2]
    headline = resolve("mmlu/original..mmlu/harness-v0")
    assert "mmlu/harness-v0:char_mean_bare" in headline
    assert "mmlu/original..mmlu/harness-v0:header" in headline


@pytest.mark.costly("all ways between protocols")
def test_every_name_of_a_way_resolves_by_itself() -> None:
    for name, protocol in resolve("mmlu/original..mmlu/helm").items():
        assert resolve(name) == {name: protocol}


def test_what_the_catalogue_has_on_the_way_keeps_its_name() -> None:
    start, end = (
        "mmlu/cloze:sum",
        signature(replace(one("mmlu/cloze:token_mean").protocol, ties="split")),
    )
    assert "mmlu/cloze:token_mean" in resolve(f"{start}..{end}")


def test_a_file_and_a_path_with_dots_can_be_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "mine.toml").write_text(
        'base = "mmlu/original"\n[protocol]\nheader = ""\nties = "split"\n'
    )
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
        (
            "mmlu/orignal..mmlu/helm",
            "protocol is called 'mmlu/orignal'; .* mmlu/original",
        ),
        ("mmlu/original..mmlu/hlem", "protocol is called 'mmlu/hlem'; .* mmlu/helm"),
        ("mmlu/original..mmlu", "mmlu is several protocols"),
        (
            "mmlu/original..mmlu/helm:views",
            "no protocol for views; it has mmlu/original, ",
        ),
        ("mmlu/original..", "no protocol is called"),
    ],
)
def test_ways_that_are_none_say_why(selector: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        resolve(selector)


def test_one_is_the_headline_and_no_group() -> None:
    headline = one("mmlu/harness-v0")
    assert (headline.name, headline.label) == ("mmlu/harness-v0:char_mean_bare", "mmlu/harness-v0")
    assert names()[headline.protocol] == headline.name
    for several in ("mmlu", "mmlu/original..mmlu/helm"):
        with pytest.raises(ProtocolError, match="several protocols; .* mmlu/"):
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


def test_where_nothing_between_is_possible_all_axes_change_at_once_and_none_for_the_same_protocol() -> (
    None
):
    assert path(ORIGINAL, ORIGINAL) == path(CATALOGUE[0], CATALOGUE[0]) == []
    start = replace(ORIGINAL, header="", separator="\n", strip="all", ties="split")
    assert path(start, ORIGINAL, lambda protocol: False) == [(differing(start, ORIGINAL), ORIGINAL)]


def test_ends_on_two_splits_keep_them() -> None:
    test, dev = (
        replace(HARNESS, split=split, seed=seed) for split, seed in (("test", 42), ("dev", 7))
    )
    way = resolve(f"{signature(test)}..{signature(dev)}")
    found = {(protocol.split, protocol.seed) for protocol in way.values()}
    assert found == {("test", 42), ("dev", 7), ("dev", 42), ("test", 7)}


CATALOGUE = [protocol for entry in entries() for protocol in entry.protocols.values()]
PAIRS = st.tuples(st.sampled_from(CATALOGUE), st.sampled_from(CATALOGUE)).filter(
    lambda pair: pair[0] != pair[1]
)


def consistent(here: Protocol, end: Protocol, axes: tuple[str, ...]) -> bool:
    try:
        replace(here, **{axis: getattr(end, axis) for axis in axes})
    except ProtocolError:
        return False
    return True


def fewest(here: Protocol, end: Protocol) -> tuple[str, ...]:
    """The smallest set that holds the first differing axis, and of its own the smallest; of several the first."""
    first, *rest = differing(here, end)
    sets = ((first, *more) for size in range(len(rest) + 1) for more in combinations(rest, size))
    needed = next(axes for axes in sets if consistent(here, end, axes))
    parts = (part for size in range(1, len(needed) + 1) for part in combinations(needed, size))
    return next(axes for axes in parts if consistent(here, end, axes))


def test_the_order_is_that_of_the_signature() -> None:
    assert [axis.name for axis in fields(Protocol)] == list(AXES)


@settings(max_examples=30)
@given(PAIRS)
def test_a_path_changes_every_axis_once_and_few_together(pair: tuple[Protocol, Protocol]) -> None:
    (here, end), changed = pair, list[str]()
    for axes, protocol in path(here, end):
        assert differing(here, protocol) == axes
        assert all(getattr(protocol, axis) == getattr(end, axis) for axis in axes)
        parts = (part for size in range(1, len(axes)) for part in combinations(axes, size))
        assert not any(consistent(here, protocol, part) for part in parts)
        assert inseparable(here, protocol)
        if len(differing(here, end)) < 13:  # else there are too many sets to try
            assert axes == fewest(here, end)
        changed += axes
        here = protocol
    assert (here, sorted(changed)) == (end, sorted(differing(*pair)))


def test_what_only_goes_together_moves_together_and_what_can_change_before_does() -> None:
    """Before them go a seed that nobody uses, and a rule about tokens that generated text has none of."""
    sum_, pmi, helm = (
        one(name).protocol for name in ("mmlu/cloze:sum", "mmlu/cloze:pmi-empty", "mmlu/helm")
    )
    assert [axes for axes, _ in path(sum_, pmi)] == [("score", "null")]
    assert inseparable(sum_, pmi)
    steps = [axes for axes, _ in path(ORIGINAL, helm)]
    assert [axes for axes in steps if len(axes) > 1] == [
        ("reading", "new_tokens", "score", "decision")
    ]
    order = [axes[0] for axes in steps]
    assert order.index("seed") == order.index("sampler") - 1
    assert order.index("outside") == order.index("reading") - 1
    assert not inseparable(ORIGINAL, replace(ORIGINAL, sampler="helm", seed=0))


def test_templates_go_before_requests_that_were_rendered_elsewhere() -> None:
    neutral = {
        "header": "",
        "question": "{question}",
        "option": "",
        "answer": "",
        "continuation": "{choice}",
    }
    neutral |= {"separator": "", "choices": None, "shots": 0, "shot_split": None, "sampler": "none"}
    rendered = replace(ORIGINAL, requests="0" * 64, score="token_mean", **neutral)
    steps = [axes for axes, _ in path(ORIGINAL, rendered)]
    assert (steps[-2:], {axis for (axis,) in steps[:-2]}) == (
        [("requests",), ("score",)],
        set(neutral),
    )


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
    assert (list(resolve(typed)), one(typed).name) == ([meant], meant)


@pytest.mark.parametrize(
    "typed", ["mmlu/original:acc_norm", "arc-easy/cf:acc_norm", "mmlu/helm:acc_norm", "mmlu/mfc"]
)
def test_a_name_of_what_a_protocol_lacks_is_refused(typed: str) -> None:
    with pytest.raises(ProtocolError, match="no protocol is called"):
        resolve(typed)


@pytest.mark.parametrize("called", SCORE_NAMES)
@pytest.mark.parametrize("entry", ["mmlu/harness-v0", "mmlu/olmes-cf", "mmlu/cloze"])
def test_a_known_name_is_that_of_one_score_and_stands_in_the_docs(called: str, entry: str) -> None:
    name = SCORE_NAMES[called]
    assert name.score in SCORES
    score = f"{entry}:{name.score}"
    assert resolve(f"{entry}:{called}") == {score: one(score).protocol}
    line = f"| `{called}` | `{name.score}` | {name.tool} | {name.description} |"
    assert (
        line in (ROOT / "docs" / "reference" / "scores.md").read_text(encoding="utf-8").splitlines()
    )


@pytest.mark.parametrize("called", FORMULATIONS)
def test_a_formulation_is_the_entry_of_every_family_that_has_it(called: str) -> None:
    ours = [name for name in entry_names() if name.endswith(f"/{FORMULATIONS[called]}")]
    assert len(ours) > 3
    for name in ours:
        typed = f"{name.partition('/')[0]}/{called}"
        assert resolve(typed) == resolve(typed.upper()) == resolve(name)


@given(st.sampled_from([*entry_names(), *group_names(), *suite_names()]), st.randoms())
def test_case_does_not_matter(name: str, draws: Random) -> None:
    typed = "".join(letter.upper() if draws.random() < 0.5 else letter for letter in name)
    assert (spelled(typed), spelled(f"{typed}@shots=0")) == (name, f"{name}@shots=0")


@pytest.mark.parametrize(
    "text",
    [
        "Mine.toml",
        "MMLU.toml@shots=0",
        "Nothing",
        "lm-eval:MMLU",
        signature(one("mmlu/helm").protocol),
    ],
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
    assert list(changed.values()) == list(
        dict.fromkeys(replace(each, shots=0) for each in plain.values())
    )
    assert all(resolve(each)[each] == protocol for each, protocol in changed.items())


@pytest.mark.parametrize("axis", ["shots=0", "choices=any"])
@pytest.mark.parametrize(
    "name", ["mmlu", "arc-easy", "leaderboard/2023-06", "olmes", "mmlu/original..mmlu/helm"]
)
def test_a_change_is_one_of_all_protocols(name: str, axis: str) -> None:
    changed = resolve(with_changes(name, axis))
    assert {getattr(each, axis.partition("=")[0]) for each in changed.values()} == {
        0 if axis == "shots=0" else None
    }


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
    assert ({each.score for each in chosen.values()}, len(chosen)) == ({"char_mean_bare"}, 4)
    assert having_score(resolve("mmlu"), "char_mean_bare") == chosen
    assert list(having_score(resolve("mmlu@shots=0"), "acc_uncond")) == [
        "mmlu/olmes-cf:pmi-answer@shots=0"
    ]
    assert list(having_score({"mine": one("mmlu/original").protocol}, "acc")) == ["mine"]
    with pytest.raises(
        UsageError, match="none of 49 protocols .* 'acc_nrom'; did you mean acc_norm"
    ):
        having_score(resolve("mmlu"), "acc_nrom")


def test_an_entry_lists_the_names_of_its_scores() -> None:
    (own,) = (each for each in entries() if each.name == "mmlu/olmes-cf")
    assert own.published["mmlu/olmes-cf:acc_per_char"] == "mmlu/olmes-cf:char_mean"
    assert {*own.published.values()} <= {*own.protocols} == {*names().values()} & {*own.protocols}
