"""Ladders over the protocols of a run, forth and back; the longest chains; effects of single axes; order of columns.

All against plain references: loops over items, trying every chain, every pair of protocols, every turned stretch.
"""

import math
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kendalltau

from choicewise import evaluate
from choicewise.errors import UsageError
from choicewise.protocols.between import path
from choicewise.protocols.catalogue import names, one
from choicewise.protocols.protocol import AXES, Protocol, differing, parse_signature
from choicewise.results.ladder import (
    EXAMPLES,
    between,
    both_ways,
    chains,
    ladder,
    ladders,
    main_effects,
    order_agreement,
    seriated,
    turns,
)
from choicewise.results.outcomes import Outcome
from choicewise.results.run import Run
from choicewise.scoring.observed import Floats
from tests.helpers.outcomes import outcome, outcomes
from tests.helpers.study import Study

ORIGINAL = one("mmlu/original").protocol
CLOZE = one("mmlu/cloze:sum").protocol


def recipes(base: Protocol, values: dict[str, tuple[object, ...]]) -> st.SearchStrategy[Protocol]:
    """``base`` with any of these values on each axis."""
    drawn = {name: st.sampled_from(own) for name, own in values.items()}
    return st.builds(lambda **axes: replace(base, **axes), **drawn)


NODES = [
    ORIGINAL,
    *(protocol for _, protocol in path(ORIGINAL, one("mmlu/harness-v0:sum").protocol)),
]
SOME_CREDITS = st.lists(st.sampled_from([0.0, 1.0, 0.5, math.nan]), min_size=8, max_size=8)


def node(place: int, credit: list[float]) -> Outcome:
    return outcome(NODES[place], credit, ["a", "b"] * (len(credit) // 2), name=f"node {place}")


@given(
    st.dictionaries(st.integers(1, len(NODES) - 2), SOME_CREDITS, max_size=4),
    SOME_CREDITS,
    SOME_CREDITS,
)
def test_steps_are_those_of_a_loop_and_add_up(
    middle: dict[int, list[float]], first: list[float], last: list[float]
) -> None:
    credits = {0: first, **middle, len(NODES) - 1: last}
    members = outcomes(*(node(place, credit) for place, credit in credits.items()))
    climbed = ladder(members, "node 0", f"node {len(NODES) - 1}")
    order = sorted(credits)
    assert [step.name for step in climbed.steps] == [f"node {place}" for place in order[1:]]
    assert climbed.end_value - climbed.start_value == pytest.approx(
        sum(step.change for step in climbed.steps), nan_ok=True
    )
    for step, place, after in zip(climbed.steps, order, order[1:], strict=False):
        pairs = list(zip(credits[place], credits[after], strict=True))
        known = [
            (number, *pair) for number, pair in enumerate(pairs) if not any(map(math.isnan, pair))
        ]
        gained = [str(number) for number, one, other in known if other > one]
        lost = [str(number) for number, one, other in known if other < one]
        half = sum(any(map(math.isnan, pair)) and not all(map(math.isnan, pair)) for pair in pairs)
        assert (step.n, step.missing, step.gained, step.lost) == (
            len(known),
            half,
            len(gained),
            len(lost),
        )
        assert step.gained_items == tuple(gained[:EXAMPLES])
        assert step.lost_items == tuple(lost[:EXAMPLES])
        assert parse_signature(step.signature) == NODES[after]


def test_all_ladders_at_once_are_the_same() -> None:
    credits = [
        [float((number * place) % 3 == 0) for number in range(8)] for place in range(len(NODES))
    ]
    members = outcomes(*(node(place, credits[place]) for place in (0, 3, 5, 2, len(NODES) - 1)))
    every = ladders(members)
    assert len(every) == 20
    for (start, end), climbed in every.items():
        assert climbed == ladder(members, start, end)


def test_axes_that_the_run_lacks_a_protocol_between_are_told_from_those_that_go_together() -> None:
    last = path(ORIGINAL, one("mmlu/helm").protocol)[-5:]
    members = outcomes(
        *(outcome(each, [0.0, 1.0], name=str(place)) for place, (_, each) in enumerate(last))
    )
    steps = ladder(members, "0", "4").steps
    assert [(len(step.axes), step.together) for step in steps] == [
        (4, True),
        (1, False),
        (1, False),
        (1, False),
    ]
    (coarse,) = ladder(outcomes(members.outcomes[1], members.outcomes[4]), "1", "4").steps
    assert not coarse.together


def test_the_same_protocol_twice_and_one_that_is_not_there_are_refused() -> None:
    members = outcomes(
        node(0, [0.0, 1.0]), replace(node(0, [0.0, 1.0]), name="again"), node(1, [0.0, 1.0])
    )
    with pytest.raises(UsageError, match="node 0 and again"):
        ladder(members, "node 0", "again")
    with pytest.raises(UsageError, match="protocol 'node 11'; did"):
        ladder(members, "node 11", "node 0")
    assert ("node 0", "again") not in ladders(members)
    assert [step.name for step in ladder(members, "node 0", "node 1").steps] == ["node 1"]


START = replace(ORIGINAL, aggregation="macro")
MOVED = {"header": "", "shots": 0, "ties": "split"}
CREDITS = st.lists(
    st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=12, max_size=12), min_size=6, max_size=6
)


@pytest.fixture(scope="module")
def run(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Run:
    protocols = ["mmlu/original", "mmlu/harness-v0:sum", "mmlu/original..mmlu/helm"]
    return evaluate(
        model="fake:hash",
        data=study.data,
        protocols=protocols,
        out=tmp_path_factory.mktemp("run") / "run",
    )


def moved(*axes: str) -> dict[str, object]:
    return {axis: MOVED[axis] for axis in axes}


@given(CREDITS)
def test_an_axis_early_and_late_is_compared_item_by_item(credits: list[list[float]]) -> None:
    first, last, *middle = credits
    ways = [
        [(), ("header",), ("header", "shots"), tuple(MOVED)],
        [(), ("ties",), ("ties", "shots"), tuple(MOVED)],
    ]
    passed = [[first, *middle[:2], last], [first, *middle[2:], last]]
    nodes = [
        [
            outcome(replace(START, **moved(*axes)), each, ["a"] * 8 + ["b"] * 4)
            for axes, each in zip(*way, strict=True)
        ]
        for way in zip(ways, passed, strict=True)
    ]
    compared = {turn.axes: turn for turn in turns(*nodes)}
    assert list(compared) == [("header",), ("shots",), ("ties",)]
    for place, axis in enumerate(MOVED):
        early, late = passed[0][place : place + 2], passed[1][2 - place : 4 - place]
        one, other = (macro(np.array(after) - np.array(before)) for before, after in (early, late))
        turn = compared[axis,]
        assert turn.in_order == pytest.approx(one)
        assert turn.in_reverse == pytest.approx(other)
        difference = np.array(early[1]) - np.array(early[0]) - np.array(late[1]) + np.array(late[0])
        spread = [
            difference[:8].std(ddof=1) / math.sqrt(8),
            difference[8:].std(ddof=1) / math.sqrt(4),
        ]
        se = math.hypot(*spread) / 2
        assert turn.se == pytest.approx(se) or (math.isnan(turn.se) and se < 1e-12)
        assert turn.differ == (abs(one - other) > (1.959964 * se if se > 1e-12 else 1e-9))


def macro(values: np.ndarray) -> float:
    return float(values[:8].mean() + values[8:].mean()) / 2


def test_steps_of_different_size_are_compared_where_they_cover_the_same() -> None:
    last = replace(START, **moved(*MOVED))
    nodes = [outcome(each, credit) for each, credit in ((START, [0.0, 0.0]), (last, [1.0, 0.0]))]
    between = outcome(replace(START, **moved("header")), [1.0, 1.0])
    (turn,) = turns([nodes[0], between, nodes[1]], nodes)
    assert turn.axes == ("header", "shots", "ties")
    assert turn.in_order == turn.in_reverse == 0.5
    assert turns([nodes[0], between, nodes[1]], [nodes[0], between, nodes[1]])[0].axes == (
        "header",
    )


def test_every_step_of_a_run_is_the_difference_of_its_numbers_in_both_directions(run: Run) -> None:
    both = both_ways(run, one("mmlu/original"), one("mmlu/helm"), names())
    steps = path(one("mmlu/original").protocol, one("mmlu/helm").protocol)
    assert [tuple(axis.axis for axis in step.axes) for step in both.in_order.steps] == [
        axes for axes, _ in steps
    ]
    assert not both.coarse
    values = {name: measured.overall for name, measured in run.measurements.items()}
    for side in (both.in_order, both.in_reverse):
        reached = values["mmlu/original"]
        for step in side.steps:
            assert step.value == pytest.approx(values[step.name])
            assert step.change == pytest.approx(values[step.name] - reached)
            reached = values[step.name]
        assert side.end_value == pytest.approx(values["mmlu/helm"]) == reached
    assert both.in_order.steps[0].name == "mmlu/original..mmlu/helm:header"
    assert both.in_reverse.steps[-1].axes == both.in_order.steps[0].axes
    back = both_ways(run, one("mmlu/helm"), one("mmlu/original"), names()).in_order.steps
    assert [-step.change for step in reversed(both.in_reverse.steps)] == pytest.approx(
        [step.change for step in back]
    )


def test_what_only_rescores_is_taken_apart_and_other_prompts_are_one_step(run: Run) -> None:
    both = both_ways(run, one("mmlu/original"), one("mmlu/harness-v0:sum"), names())
    assert [[axis.axis for axis in step.axes] for step in both.in_order.steps[1:]] == [
        ["outside"],
        ["aggregation"],
    ]
    assert [[axis.axis for axis in step.axes] for step in both.in_reverse.steps[:2]] == [
        ["aggregation"],
        ["outside"],
    ]
    (coarse,) = both.coarse
    assert coarse[0] == "header"
    assert coarse[-1] == "boundary"
    assert [turn.axes for turn in both.turns] == [coarse, ("outside",), ("aggregation",)]


def test_a_name_that_the_run_gave_to_another_protocol_is_the_run_s(
    study: Study, tmp_path: Path
) -> None:
    protocols = ["mmlu/original..mmlu/harness-v0:sum"]
    finished = evaluate(
        model="fake:hash", data=study.data, protocols=protocols, out=tmp_path / "run", limit=2
    )
    both = both_ways(finished, one("mmlu/original"), one("mmlu/harness-v0:sum"), names())
    assert not both.coarse
    assert all(len(turn.axes) == 1 for turn in both.turns)


CHAIN_VALUES = {
    "header": ("", "h", "hh"),
    "shots": (0, 1),
    "fit": ("refuse", "cut-start"),
    "ties": ("first", "split"),
}
CHAIN_PROTOCOLS = recipes(ORIGINAL, CHAIN_VALUES)


def lies_between(one: Protocol, start: Protocol, end: Protocol) -> bool:
    if one in (start, end):
        return False
    return all(getattr(one, axis) in (getattr(start, axis), getattr(end, axis)) for axis in AXES)


def every_chain(protocols: list[Protocol], start: int, end: int) -> list[list[int]]:
    """All chains by trying every next protocol, the longest first, of those the one that changes the first axes."""
    after = [
        place
        for place, each in enumerate(protocols)
        if lies_between(each, protocols[start], protocols[end])
    ]
    tails = [tail for place in after for tail in every_chain(protocols, place, end)]
    return [[start, *tail] for tail in tails] or [[start, end]]


def rank_of(protocols: list[Protocol], chain: list[int]) -> tuple[object, ...]:
    axes = (differing(protocols[one], protocols[other]) for one, other in pairwise(chain))
    return (-len(chain), [[list(AXES).index(axis) for axis in each] for each in axes], chain)


@settings(max_examples=100)
@given(st.lists(CHAIN_PROTOCOLS, min_size=1, max_size=7))
def test_chains_are_the_longest_of_all_and_change_the_first_axes_first(
    protocols: list[Protocol],
) -> None:
    quick = chains(protocols)
    assert len(quick) == len(protocols) * (len(protocols) - 1)
    for (start, end), chain in quick.items():
        if protocols[start] == protocols[end]:
            assert chain == [start, end]
            continue
        assert chain == min(
            every_chain(protocols, start, end), key=lambda each: rank_of(protocols, each)
        )


@settings(max_examples=50)
@given(st.lists(CHAIN_PROTOCOLS, max_size=7), CHAIN_PROTOCOLS, CHAIN_PROTOCOLS)
def test_between_are_those_with_a_value_of_either_on_every_axis(
    protocols: list[Protocol], start: Protocol, end: Protocol
) -> None:
    places = [place for place, each in enumerate(protocols) if lies_between(each, start, end)]
    assert between(protocols, start, end) == places


EFFECT_VALUES = {"shots": (0, 1, 5), "ties": ("first", "split", "wrong"), "header": ("b", "a")}
EFFECT_PROTOCOLS = recipes(replace(CLOZE, shot_split="dev", sampler="first"), EFFECT_VALUES)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(EFFECT_PROTOCOLS, st.integers(0, 4)),
        min_size=2,
        max_size=8,
        unique_by=lambda each: each[0],
    )
)
def test_effects_are_those_of_all_pairs_that_differ_in_one_axis(
    chosen: list[tuple[Protocol, int]],
) -> None:
    members = [
        outcome(each, [1.0] * right + [0.0] * (4 - right), name=str(n))
        for n, (each, right) in enumerate(chosen)
    ]
    changes: dict[str, list[float]] = {}
    for place, (left, right) in enumerate(chosen):
        for other, more in chosen[place + 1 :]:
            axes = differing(left, other)
            if len(axes) == 1:
                axis = axes[0]
                first, second = getattr(left, axis), getattr(other, axis)
                values = (
                    EFFECT_VALUES[axis] if axis != "header" else [each.header for each, _ in chosen]
                )
                turned = values.index(first) > values.index(second)
                changes.setdefault(axis, []).append((right - more if turned else more - right) / 4)
    if not changes:
        with pytest.raises(UsageError, match="no two protocols"):
            main_effects(outcomes(*members))
        return
    effects = main_effects(outcomes(*members))
    assert {effect.axis for effect in effects} == set(changes)
    sizes = [effect.absolute for effect in effects]
    assert sizes == sorted(sizes, reverse=True)
    for effect in effects:
        own = changes[effect.axis]
        assert effect.absolute == pytest.approx(mean(map(abs, own)))
        assert effect.spread.pairs == len(own) == sum(each.spread.pairs for each in effect.changes)
        assert effect.spread.mean == pytest.approx(mean(own))
        assert (effect.spread.low, effect.spread.high) == (min(own), max(own))
        assert effect.spread.sd == pytest.approx(
            stdev(own) if len(own) > 1 else math.nan, nan_ok=True
        )
        assert all(pair.n == 4 for change in effect.changes for pair in change.pairs)


def test_axes_that_only_change_together_count_as_the_first_of_them() -> None:
    pmi = replace(CLOZE, score="pmi", null="")
    (effect,) = main_effects(
        outcomes(outcome(pmi, [1.0, 0.0], name="pmi"), outcome(CLOZE, [0.0, 0.0], name="sum"))
    )
    assert effect.axis == "score"
    (change,) = effect.changes
    assert [(axis.axis, axis.left, axis.right) for axis in change.axes] == [
        ("score", "sum", "pmi"),
        ("null", "-", ""),
    ]
    assert [(pair.start, pair.end, pair.change) for pair in change.pairs] == [("sum", "pmi", 0.5)]


def test_axes_that_can_change_alone_are_no_pair_and_what_was_not_measured_has_no_effect() -> None:
    both = outcome(replace(CLOZE, ties="split", aggregation="micro"), [1.0], name="other")
    for other in (both, outcome(replace(CLOZE, ties="split"), [math.nan], name="nothing")):
        with pytest.raises(UsageError, match="no two protocols"):
            main_effects(outcomes(outcome(CLOZE, [1.0]), other))


def test_protocols_that_cant_differ_count_once() -> None:
    scores = ("sum", "byte_mean", "char_mean", "token_mean")
    protocols = [replace(CLOZE, score=score) for score in scores]
    members = [outcome(each, [1.0, 0.0], name=each.score) for each in protocols]
    (every,) = main_effects(outcomes(*members))
    members[2] = replace(members[2], first=members[1].first)
    (alone,) = main_effects(outcomes(*members))
    assert (alone.spread.pairs, every.spread.pairs) == (3, 6)
    assert "char_mean" not in {
        name for each in alone.changes for pair in each.pairs for name in (pair.start, pair.end)
    }


COLUMNS = st.tuples(st.integers(1, 7), st.integers(1, 6)).flatmap(
    lambda shape: arrays(
        np.float64, shape, elements=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, math.nan])
    )
)


def distances(values: Floats) -> Floats:
    """0 for the same order and values; an order that is not known counts as halfway, and values decide a little."""
    filled = np.nan_to_num(values)
    apart = [
        [float(np.mean(np.abs(one - other))) if one.size else 0.0 for other in filled]
        for one in filled
    ]
    return (1 - np.nan_to_num(order_agreement(values))) / 2 + 0.05 * np.array(apart)


def way_length(way: list[int], far: Floats) -> float:
    """How far it is along the columns in this order."""
    return float(sum(far[one, other] for one, other in pairwise(way)))


def assert_no_turned_stretch_is_shorter(way: list[int], far: Floats, fixed: int) -> None:
    for start, stop in combinations(range(fixed, len(way) + 1), 2):
        turned = way[:start] + way[start:stop][::-1] + way[stop:]
        assert way_length(way, far) <= way_length(turned, far) + 1e-9


@given(COLUMNS)
def test_agreement_is_kendalls_tau_b_over_the_rows_that_both_have(values: Floats) -> None:
    agreement = order_agreement(values)
    for places in combinations(range(len(values)), 2):
        left, right = values[list(places)][:, ~np.isnan(values[list(places)]).any(axis=0)]
        varied = len(left) > 1 and np.ptp(left) > 0 and np.ptp(right) > 0
        expected = kendalltau(left, right).statistic if varied else math.nan
        np.testing.assert_allclose(agreement[places, places[::-1]], expected, atol=1e-12)


@given(COLUMNS, st.data())
def test_no_turned_stretch_makes_the_way_shorter(values: Floats, data: st.DataObject) -> None:
    first = data.draw(st.none() | st.integers(0, len(values) - 1))
    way = seriated(values, first)
    assert sorted(way) == list(range(len(values)))
    assert way == seriated(values.copy(), first)
    assert first in (None, way[0])
    assert_no_turned_stretch_is_shorter(way, distances(values), fixed=0 if first is None else 1)


def test_columns_of_the_same_order_stand_together() -> None:
    up, down = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]
    columns = np.array([up, down, up, down, up])
    assert seriated(columns) in ([0, 2, 4, 1, 3], [4, 2, 0, 3, 1], [0, 2, 4, 3, 1])
    assert seriated(columns, first=1)[:2] == [1, 3]
    assert seriated(np.empty((0, 0))) == []
    assert seriated(np.empty((2, 0))) == [0, 1]


def test_ways_of_many_columns_cannot_be_turned_shorter() -> None:
    """Columns in which a nearest-neighbour way almost always has a stretch to turn round."""
    draw, turned = np.random.default_rng(7), 0
    for _ in range(30):
        values = draw.normal(size=(10, 8))
        far = distances(values)
        way = seriated(values, first=0)
        greedy = [0]
        while len(greedy) < len(far):
            greedy.append(
                min(
                    set(range(len(far))) - {*greedy},
                    key=lambda place: (far[greedy[-1], place], place),
                )
            )
        turned += way_length(way, far) < way_length(greedy, far) - 1e-9
        assert_no_turned_stretch_is_shorter(way, far, fixed=1)
    assert turned > 10
