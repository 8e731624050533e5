"""Answers of which no more than an upper bound is known: numbers lie within what the bounds allow, decisions are true.

The reference draws whole distributions over next tokens, hides all but the likeliest, and computes with the whole ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.protocols.protocol import Protocol
from choicewise.scoring.calibrate import calibrated, calibrated_range, order_predictions
from choicewise.scoring.combine import (
    COMBINERS,
    OVER_CHAINS,
    RANGES,
    difference,
    difference_range,
    expected_rating,
    rating_range,
)
from choicewise.scoring.decide import Decisions, decided, decided_between, gold_rows, limited
from choicewise.scoring.intervals import credit_range
from choicewise.scoring.observed import Continuations, Lows, Range
from choicewise.scoring.scores import COMPARING, SCORES, score_range
from tests.helpers.observed import Row, continuations, row
from tests.helpers.protocols import mmlu_protocol

TOKENS = 12
CLOSE = 1e-9
PLAIN = mmlu_protocol()
SEEDS = st.integers(0, 3)
CALIBRATIONS = st.sampled_from(
    ["permutation", "permutation-geometric", "batch", "contextual", "pride"]
)
OF_PARTS = {"yes-no": (difference, difference_range), "rating": (expected_rating, rating_range)}
OF_PARTS |= {name: (OVER_CHAINS[name], RANGES[name]) for name in ("marginal", "vote")}


@dataclass(frozen=True)
class Hidden:
    """The same rows with every number, and as a server lists them."""

    true: Continuations
    told: Continuations


def hidden(items: Sequence[np.ndarray], choices: Sequence[int], listed: int) -> Hidden:
    """Item i has ``choices[i]`` labels: the first tokens.  ``listed`` next tokens are listed, the likeliest first."""
    rows, told = list[list[Row]](), list[tuple[float, int, bool]]()
    for each, count in zip(items, choices, strict=True):
        order = np.argsort(-each, kind="stable")[:listed]
        bound, likelier = each[order[-1]], (each > each[:, None]).sum(axis=1)
        labels = range(count)
        rows.append(
            [row(f" {'ABCD'[c]}", each[c], tokens=(c,), ranks=(int(likelier[c]),)) for c in labels]
        )
        least = -1 - likelier[order[-1]]
        told += [
            (each[c], likelier[c], False) if c in order else (bound, least, True) for c in labels
        ]
    logprobs, ranks, at_most = map(np.array, zip(*told, strict=True))
    true, bounds = continuations(rows), at_most if at_most.any() else None
    return Hidden(
        true, replace(true, logprobs=logprobs, ranks=ranks.astype(np.int32), at_most=bounds)
    )


@st.composite
def worlds(draw: st.DrawFn, parts: int = 1) -> list[Hidden]:
    """``parts`` observations of the same items; few different weights, so that some are equal."""
    choices = draw(st.lists(st.integers(2, 4), min_size=1, max_size=4))
    listed, size = draw(st.integers(1, TOKENS)), parts * len(choices) * TOKENS
    weights = (
        1
        + np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8).reshape(
            parts, -1, TOKENS
        )
        % 9
    )
    logprobs = np.log(weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)
    return [hidden(items, choices, listed) for items in logprobs]


def check(
    world: Hidden,
    seed: int,
    true: np.ndarray,
    told: Range,
    protocol: Protocol = PLAIN,
    exact: bool = True,
) -> None:
    """Whatever has a range has the truth in it; decided items are decided rightly, but where a bound ties.

    The mean credit lies between low and high.  Not ``exact``: the truth was rounded in another order.
    """
    offsets, right = world.true.item_offsets, golds(world, seed)
    known = ~np.isnan(told[0])
    assert (known == ~np.isnan(told[1])).all()
    assert (told[0][known] <= true[known] + CLOSE).all()
    assert (true[known] <= told[1][known] + CLOSE).all()
    one, other = (
        decided(protocol, true, offsets, right),
        decided_between(protocol, told, offsets, right),
    )
    low, high, open_ = credit_range(
        told[1], offsets, right, other, 0.0 if exact else CLOSE, told[0]
    )
    sure = ~other.missing & ~open_
    if exact:
        assert other.prediction[sure].tolist() == one.prediction[sure].tolist()
        assert other.credit[sure].tolist() == one.credit[sure].tolist()
    bounded = ~np.isnan(low)
    assert (bounded | (~known).any() | one.missing).all()
    assert (low[bounded] <= one.credit[bounded] + CLOSE).all()
    assert (one.credit[bounded] <= high[bounded] + CLOSE).all()
    assert (other.margin[sure] >= -CLOSE)[~np.isnan(other.margin[sure])].all()


def golds(world: Hidden, seed: int) -> np.ndarray:
    counts = np.diff(world.true.item_offsets)
    return gold_rows(
        [[(seed + place) % int(count)] for place, count in enumerate(counts)],
        world.true.item_offsets,
    )


@settings(max_examples=120)
@given(worlds(parts=2), SEEDS, st.sampled_from(sorted(SCORES)), st.sampled_from(["first", "split"]))
def test_scores_and_decisions_of_listed_tokens(
    worlds: list[Hidden], seed: int, name: str, ties: str
) -> None:
    (world, null), score = worlds, SCORES[name]
    after = (null.true, null.told) if score.conditional else (None, None)
    true, told = score(world.true, after[0]), score_range(score, world.told, after[1])
    if name in COMPARING:
        assert world.told.at_most is None or np.isnan(told[0])[world.told.at_most].all()
    else:
        check(world, seed, true, told, mmlu_protocol(ties=ties))


@settings(max_examples=120)
@given(worlds(), SEEDS, st.integers(1, TOKENS))
def test_letters_looked_up_in_a_list(worlds: list[Hidden], seed: int, top: int) -> None:
    """As the original MMLU script reads them, from a list of another length than the server's."""
    true, told = (limited(each, top, -100.0) for each in (worlds[0].true, worlds[0].told))
    check(worlds[0], seed, SCORES["sum"](true), score_range(SCORES["sum"], told, None))


@given(worlds(), SEEDS)
def test_what_is_listed_decides(worlds: list[Hidden], seed: int) -> None:
    """Of one list the best choice is known as soon as one choice is listed."""
    (world,), offsets = worlds, worlds[0].true.item_offsets
    decisions = decided_between(
        PLAIN, score_range(SCORES["sum"], world.told, None), offsets, golds(world, seed)
    )
    bounds = np.zeros(offsets[-1], bool) if world.told.at_most is None else world.told.at_most
    none_listed = [bool(each.all()) for each in np.split(bounds, offsets[1:-1])]
    assert decisions.missing.tolist() == none_listed


@settings(max_examples=120)
@given(worlds(parts=4), SEEDS, CALIBRATIONS)
def test_calibrations_of_listed_tokens(worlds: list[Hidden], seed: int, name: str) -> None:
    offsets = worlds[0].true.item_offsets
    true = calibrated(name, "cyclic", [each.true.sums for each in worlds], offsets)
    ends = [each.told.lowest().sums for each in worlds], [each.told.sums for each in worlds]
    check(worlds[0], seed, true, calibrated_range(name, "cyclic", ends, offsets), exact=False)


@given(worlds(parts=4), CALIBRATIONS)
def test_the_range_of_what_is_known_is_the_calibration_itself(
    worlds: list[Hidden], name: str
) -> None:
    offsets, sums = worlds[0].true.item_offsets, [each.true.sums for each in worlds]
    low, high = calibrated_range(name, "cyclic", (sums, sums), offsets)
    assert low == pytest.approx(calibrated(name, "cyclic", sums, offsets), abs=1e-12, nan_ok=True)
    assert low.tolist() == high.tolist() or np.isnan(low).any()


@settings(max_examples=120)
@given(worlds(parts=3), SEEDS, st.sampled_from([*OF_PARTS, "spellings sum", "spellings likeliest"]))
def test_readings_of_several_parts(worlds: list[Hidden], seed: int, name: str) -> None:
    true, told = [each.true for each in worlds], [each.told for each in worlds]
    if name.startswith("spellings"):  # parts are other spellings: other tokens
        how = SimpleNamespace(score=name.split()[1])
        true, told = (
            [replace(p, tokens=p.tokens + 5 * n) for n, p in enumerate(each)]
            for each in (true, told)
        )
        combiner = COMBINERS["spellings"]
        truth = combiner.scores(how, SimpleNamespace(parts=partial(list, true)))
        bounds = combiner.ranges(how, SimpleNamespace(parts=partial(list, told)))
    else:
        function, range_of = OF_PARTS[name]
        truth, bounds = function(true), range_of(told)
    check(worlds[0], seed, truth, bounds, exact=name != "rating")


@given(worlds(parts=4))
def test_orders_have_a_prediction_where_it_is_sure(worlds: list[Hidden]) -> None:
    offsets, bounds = worlds[0].true.item_offsets, [each.told.sums for each in worlds]
    true = order_predictions("cyclic", [each.true.sums for each in worlds], offsets)
    told = order_predictions(
        "cyclic", bounds, offsets, [each.told.lowest().sums for each in worlds]
    )
    # where a bound equals a listed number, any of the two may be the first of the best
    tied = any(
        w.told.at_most is not None and len({*w.true.logprobs}) < len(w.true.logprobs)
        for w in worlds
    )
    assert tied or (np.isin(told, [-1]) | (told == true)).all()


def by_hand(
    items: list[list[Row]], at_most: list[bool], gold: list[list[int]], **axes: str
) -> tuple[Decisions, tuple[list[float], ...]]:
    """The decisions of these rows, some of which are bounds, and the range of the credit."""
    listed = continuations(items)
    low, high = score_range(SCORES["sum"], replace(listed, at_most=np.array(at_most)), None)
    assert low.tolist() == pytest.approx(np.where(at_most, -np.inf, listed.sums))
    right = gold_rows(gold, listed.item_offsets)
    decisions = decided_between(mmlu_protocol(**axes), (low, high), listed.item_offsets, right)
    credits = credit_range(high, listed.item_offsets, right, decisions, 0.0, low)
    return decisions, tuple(each.tolist() for each in credits)


A, B, WORSE = row(" A", -0.1), row(" B", -3.0), row(" A", -3.0)


def test_decisions_by_hand() -> None:
    decisions, credits = by_hand([[A, B], [WORSE, B]], [False, True, True, True], [[0], [1]])
    assert decisions.prediction.tolist() == [0, -1]
    assert decisions.credit.tolist() == pytest.approx([1.0, np.nan], nan_ok=True)
    assert decisions.margin.tolist() == pytest.approx([2.9, np.nan], nan_ok=True)
    assert credits == ([1.0, 0.0], [1.0, 1.0], [False, True])


def test_a_bound_that_equals_the_best_is_open_but_decided() -> None:
    decisions, credits = by_hand([[WORSE, B]], [True, False], [[1]])
    assert (decisions.prediction.tolist(), decisions.credit.tolist()) == ([1], [1.0])
    assert credits == ([0.0], [1.0], [True])


def test_credits_that_need_every_score_are_missing() -> None:
    decisions, _ = by_hand(
        [[A, B], [row(" A", -1.0), B]], [False, True, False, False], [[0], [0]], metric="mc2"
    )
    assert decisions.missing.tolist() == [True, False]


@given(st.lists(st.lists(st.booleans(), max_size=5), min_size=1, max_size=4))
def test_lows_of_parts_are_those_of_the_whole(parts: list[list[bool]]) -> None:
    highs, lows = (
        [np.zeros(len(part)) for part in parts],
        [np.where(part, -1.0, 0.0) for part in parts],
    )
    joined = Lows.joined([Lows.of(low, high) for low, high in zip(lows, highs, strict=True)])
    assert joined.filled(np.concatenate(highs)).tolist() == np.concatenate(lows).tolist()
