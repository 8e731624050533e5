"""The longest chains over protocols, against trying all of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.protocols.between import differing
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import AXES, Protocol
from choicewise.results.ladder import between, chains

BASE = resolve("mmlu/original")["mmlu/original"]
VALUES = {"header": ("", "h", "hh"), "shots": (0, 1), "fit": ("refuse", "cut-start"), "ties": ("first", "split")}
PROTOCOLS = st.builds(
    lambda **axes: replace(BASE, **axes), **{name: st.sampled_from(values) for name, values in VALUES.items()}
)


def lies_between(one: Protocol, start: Protocol, end: Protocol) -> bool:
    if one in (start, end):
        return False
    return all(getattr(one, axis) in (getattr(start, axis), getattr(end, axis)) for axis in AXES)


def every_chain(protocols: list[Protocol], start: int, end: int) -> list[list[int]]:
    """All chains by trying every next protocol, the longest first, of those the one that changes the first axes."""
    after = [place for place, each in enumerate(protocols) if lies_between(each, protocols[start], protocols[end])]
    tails = [tail for place in after for tail in every_chain(protocols, place, end)]
    return [[start, *tail] for tail in tails] or [[start, end]]


def key(protocols: list[Protocol], chain: list[int]) -> tuple[object, ...]:
    axes = (differing(protocols[one], protocols[other]) for one, other in pairwise(chain))
    return (-len(chain), [[list(AXES).index(axis) for axis in each] for each in axes], chain)


@pytest.mark.costly("runs are evaluated and compared")
@settings(max_examples=150, deadline=None)
@given(st.lists(PROTOCOLS, min_size=1, max_size=7))
def test_chains_are_the_longest_of_all_and_change_the_first_axes_first(protocols: list[Protocol]) -> None:
    quick = chains(protocols)
    assert len(quick) == len(protocols) * (len(protocols) - 1)
    for (start, end), chain in quick.items():
        if protocols[start] == protocols[end]:
            assert chain == [start, end]
            continue
        assert chain == min(every_chain(protocols, start, end), key=lambda each: key(protocols, each))


@settings(max_examples=100, deadline=None)
@given(st.lists(PROTOCOLS, max_size=7), PROTOCOLS, PROTOCOLS)
def test_between_are_those_with_a_value_of_either_on_every_axis(
    protocols: list[Protocol], start: Protocol, end: Protocol
) -> None:
    places = [place for place, each in enumerate(protocols) if lies_between(each, start, end)]
    assert between(protocols, start, end) == places
