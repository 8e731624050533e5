"""Ladders over the protocols of a run: their steps add up, and hold what a loop over items counts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.errors import UsageError
from choicewise.protocols.between import path
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import parse_signature
from choicewise.results.ladder import EXAMPLES, ladder, ladders
from choicewise.results.outcomes import Outcome
from tests.helpers.outcomes import outcome, outcomes

START = resolve("mmlu/original")["mmlu/original"]
END = resolve("mmlu/harness-v0:sum")["mmlu/harness-v0:sum"]
NODES = [START, *(protocol for _, protocol in path(START, END))]
CREDITS = st.lists(st.sampled_from([0.0, 1.0, 0.5, math.nan]), min_size=8, max_size=8)


def node(place: int, credit: list[float]) -> Outcome:
    return outcome(NODES[place], credit, ["a", "b"] * (len(credit) // 2), name=f"node {place}")


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.integers(1, len(NODES) - 2), CREDITS, max_size=4), CREDITS, CREDITS)
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
        known = [(number, *pair) for number, pair in enumerate(pairs) if not any(map(math.isnan, pair))]
        gained = [str(number) for number, one, other in known if other > one]
        lost = [str(number) for number, one, other in known if other < one]
        half = sum(any(map(math.isnan, pair)) and not all(map(math.isnan, pair)) for pair in pairs)
        assert (step.n, step.missing, step.gained, step.lost) == (len(known), half, len(gained), len(lost))
        assert step.gained_items == tuple(gained[:EXAMPLES])
        assert step.lost_items == tuple(lost[:EXAMPLES])
        assert parse_signature(step.signature) == NODES[after]


def test_all_ladders_at_once_are_the_same() -> None:
    credits = [[float((number * place) % 3 == 0) for number in range(8)] for place in range(len(NODES))]
    members = outcomes(*(node(place, credits[place]) for place in (0, 3, 5, 2, len(NODES) - 1)))
    every = ladders(members)
    assert len(every) == 20
    for (start, end), climbed in every.items():
        assert climbed == ladder(members, start, end)


def test_axes_that_the_run_lacks_a_protocol_between_are_told_from_those_that_go_together() -> None:
    helm = resolve("mmlu/helm")["mmlu/helm"]
    last = path(START, helm)[-5:]
    members = outcomes(*(outcome(each, [0.0, 1.0], name=str(place)) for place, (_, each) in enumerate(last)))
    steps = ladder(members, "0", "4").steps
    assert [(len(step.axes), step.together) for step in steps] == [(4, True), (1, False), (1, False), (1, False)]
    (coarse,) = ladder(outcomes(members.outcomes[1], members.outcomes[4]), "1", "4").steps
    assert not coarse.together


def test_the_same_protocol_twice_and_one_that_is_not_there_are_refused() -> None:
    members = outcomes(node(0, [0.0, 1.0]), replace(node(0, [0.0, 1.0]), name="again"), node(1, [0.0, 1.0]))
    with pytest.raises(UsageError, match="node 0 and again are the same protocol"):
        ladder(members, "node 0", "again")
    with pytest.raises(UsageError, match="has no protocol 'node 11'; did you mean"):
        ladder(members, "node 11", "node 0")
    assert ("node 0", "again") not in ladders(members)
    assert [step.name for step in ladder(members, "node 0", "node 1").steps] == ["node 1"]
