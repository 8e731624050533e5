"""Between any two protocols there is a path of protocols that each mean something, an axis at a time where possible."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.errors import ProtocolError
from choicewise.protocols.between import differing, inseparable, path
from choicewise.protocols.catalogue import entries, resolve
from choicewise.protocols.protocol import AXES, Protocol

pytestmark = pytest.mark.costly("the whole catalogue")

CATALOGUE = [protocol for entry in entries() for protocol in entry.protocols.values()]
PAIRS = st.tuples(st.sampled_from(CATALOGUE), st.sampled_from(CATALOGUE)).filter(lambda pair: pair[0] != pair[1])
ORIGINAL = resolve("mmlu/original")["mmlu/original"]


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


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_a_path_changes_every_differing_axis_once_and_ends_where_it_should(pair: tuple[Protocol, Protocol]) -> None:
    start, end = pair
    here, changed = start, list[str]()
    for axes, protocol in path(start, end):
        assert differing(here, protocol) == axes
        assert all(getattr(protocol, axis) == getattr(end, axis) for axis in axes)
        changed += axes
        here = protocol
    assert here == end
    assert sorted(changed) == sorted(differing(start, end))


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_axes_move_together_only_where_fewer_would_mean_nothing(pair: tuple[Protocol, Protocol]) -> None:
    here, end = pair
    for axes, protocol in path(here, end):
        assert len(axes) == 1 or inseparable(here, protocol)
        if len(differing(here, end)) < 13:  # else there are too many sets to try
            assert axes == fewest(here, end)
        here = protocol


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_inseparable_is_what_no_set_of_axes_separates(pair: tuple[Protocol, Protocol]) -> None:
    for left, (_, right) in zip([pair[0], *(each for _, each in path(*pair))], path(*pair), strict=False):
        axes = differing(left, right)
        parts = (part for size in range(1, len(axes)) for part in combinations(axes, size))
        assert inseparable(left, right) == (not any(consistent(left, right, part) for part in parts))


def test_score_and_null_move_together_and_so_do_a_reading_and_what_it_takes() -> None:
    sum_, pmi = (resolve(f"mmlu/cloze:{score}")[f"mmlu/cloze:{score}"] for score in ("sum", "pmi-empty"))
    assert [axes for axes, _ in path(sum_, pmi)] == [("score", "null")]
    assert inseparable(sum_, pmi)
    helm = resolve("mmlu/helm")["mmlu/helm"]
    together = [axes for axes, _ in path(ORIGINAL, helm) if len(axes) > 1]
    assert together == [("reading", "new_tokens", "score", "decision")]


def test_what_can_change_before_does() -> None:
    """A seed that nobody uses, and a rule about tokens that generated text has none of."""
    helm = resolve("mmlu/helm")["mmlu/helm"]
    order = [axes[0] for axes, _ in path(ORIGINAL, helm)]
    assert order.index("seed") == order.index("sampler") - 1
    assert order.index("outside") == order.index("reading") - 1
    assert not inseparable(ORIGINAL, replace(ORIGINAL, sampler="helm", seed=0))


def test_templates_go_before_requests_that_were_rendered_elsewhere() -> None:
    neutral = {"header": "", "question": "{question}", "option": "", "answer": "", "continuation": "{choice}"}
    neutral |= {"separator": "", "choices": None, "shots": 0, "shot_split": None, "sampler": "none"}
    rendered = replace(ORIGINAL, requests="0" * 64, score="token_mean", **neutral)
    steps = [axes for axes, _ in path(ORIGINAL, rendered)]
    assert steps[-2:] == [("requests",), ("score",)]
    assert {axis for (axis,) in steps[:-2]} == set(neutral)


@pytest.mark.parametrize("protocol", [ORIGINAL, CATALOGUE[0]])
def test_no_path_leads_from_a_protocol_to_itself(protocol: Protocol) -> None:
    assert path(protocol, protocol) == []
