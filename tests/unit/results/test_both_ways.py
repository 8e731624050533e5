"""The same axes changed in order and in reverse, side by side, against what a run says under each protocol."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.protocols.between import path
from choicewise.protocols.catalogue import names, one
from choicewise.results.ladder import both_ways, turns
from choicewise.results.run import Run
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.outcomes import outcome

START = replace(one("mmlu/original").protocol, aggregation="macro")
AXES = {"header": "", "shots": 0, "ties": "split"}
CREDITS = st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=12, max_size=12), min_size=6, max_size=6)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("ways")
    protocols = ["mmlu/original", "mmlu/harness-v0:sum", "mmlu/original..mmlu/helm"]
    return evaluate(model="fake:hash", data=write_mmlu(folder / "data"), protocols=protocols, out=folder / "run")


def moved(*axes: str) -> dict[str, object]:
    return {axis: AXES[axis] for axis in axes}


@settings(max_examples=50, deadline=None)
@given(CREDITS)
def test_an_axis_early_and_late_is_compared_item_by_item(credits: list[list[float]]) -> None:
    first, last, *middle = credits
    ways = [[(), ("header",), ("header", "shots"), tuple(AXES)], [(), ("ties",), ("ties", "shots"), tuple(AXES)]]
    passed = [[first, *middle[:2], last], [first, *middle[2:], last]]
    nodes = [
        [outcome(replace(START, **moved(*axes)), each, ["a"] * 8 + ["b"] * 4) for axes, each in zip(*way, strict=True)]
        for way in zip(ways, passed, strict=True)
    ]
    compared = {turn.axes: turn for turn in turns(*nodes)}
    assert list(compared) == [("header",), ("shots",), ("ties",)]
    for place, axis in enumerate(AXES):
        early, late = passed[0][place : place + 2], passed[1][2 - place : 4 - place]
        one, other = (macro(np.array(after) - np.array(before)) for before, after in (early, late))
        turn = compared[axis,]
        assert turn.in_order == pytest.approx(one)
        assert turn.in_reverse == pytest.approx(other)
        difference = np.array(early[1]) - np.array(early[0]) - np.array(late[1]) + np.array(late[0])
        spread = [difference[:8].std(ddof=1) / math.sqrt(8), difference[8:].std(ddof=1) / math.sqrt(4)]
        se = math.hypot(*spread) / 2
        assert turn.se == pytest.approx(se) or (math.isnan(turn.se) and se < 1e-12)
        assert turn.differ == (abs(one - other) > (1.959964 * se if se > 1e-12 else 1e-9))


def macro(values: np.ndarray) -> float:
    return float(values[:8].mean() + values[8:].mean()) / 2


def test_steps_of_different_size_are_compared_where_they_cover_the_same() -> None:
    last = replace(START, **moved(*AXES))
    nodes = [outcome(each, credit) for each, credit in ((START, [0.0, 0.0]), (last, [1.0, 0.0]))]
    between = outcome(replace(START, **moved("header")), [1.0, 1.0])
    (turn,) = turns([nodes[0], between, nodes[1]], nodes)
    assert turn.axes == ("header", "shots", "ties")
    assert turn.in_order == turn.in_reverse == 0.5
    assert turns([nodes[0], between, nodes[1]], [nodes[0], between, nodes[1]])[0].axes == ("header",)


def test_every_step_of_a_run_is_the_difference_of_its_numbers(run: Run) -> None:
    both = both_ways(run, one("mmlu/original"), one("mmlu/helm"), names())
    steps = path(one("mmlu/original").protocol, one("mmlu/helm").protocol)
    assert [tuple(axis.axis for axis in step.axes) for step in both.in_order.steps] == [axes for axes, _ in steps]
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


def test_what_only_rescores_is_taken_apart_and_other_prompts_are_one_step(run: Run) -> None:
    both = both_ways(run, one("mmlu/original"), one("mmlu/harness-v0:sum"), names())
    assert [[axis.axis for axis in step.axes] for step in both.in_order.steps[1:]] == [["outside"], ["aggregation"]]
    assert [[axis.axis for axis in step.axes] for step in both.in_reverse.steps[:2]] == [["aggregation"], ["outside"]]
    (coarse,) = both.coarse
    assert coarse[0] == "header"
    assert coarse[-1] == "boundary"
    assert [turn.axes for turn in both.turns] == [coarse, ("outside",), ("aggregation",)]


def test_the_other_direction_is_the_same_with_other_signs(run: Run) -> None:
    there, back = (
        both_ways(run, one(start), one(end), names())
        for start, end in (("mmlu/original", "mmlu/helm"), ("mmlu/helm", "mmlu/original"))
    )
    assert [-step.change for step in reversed(there.in_reverse.steps)] == pytest.approx(
        [step.change for step in back.in_order.steps]
    )


@pytest.mark.costly("runs are evaluated and compared")
def test_a_name_that_the_run_gave_to_another_protocol_is_the_run_s(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data")
    protocols = ["mmlu/original..mmlu/harness-v0:sum"]
    finished = evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / "run")
    both = both_ways(finished, one("mmlu/original"), one("mmlu/harness-v0:sum"), names())
    assert not both.coarse
    assert all(len(turn.axes) == 1 for turn in both.turns)
