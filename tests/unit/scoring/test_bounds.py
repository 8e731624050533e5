"""Answers of which no more than an upper bound is known: numbers lie within what the bounds allow, decisions are true.

The reference draws whole distributions over next tokens, hides all but the likeliest, and computes with the whole ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from choicewise.scoring.decide import decided, decided_between, gold_rows, limited
from choicewise.scoring.intervals import credit_range
from choicewise.scoring.observed import Continuations, Lows, Range
from choicewise.scoring.scores import COMPARING, SCORES, score_range
from tests.helpers.observed import continuations, row
from tests.helpers.protocols import mmlu_protocol

pytestmark = pytest.mark.costly("many random draws")

TOKENS = 12
CLOSE = 1e-9


@dataclass(frozen=True)
class Hidden:
    """The same rows with every number, and as a server lists them."""

    true: Continuations
    told: Continuations


def next_tokens() -> st.SearchStrategy[np.ndarray]:
    """Log-probabilities of all next tokens; few different ones, so that some are equal."""
    weights = st.lists(st.integers(1, 9), min_size=TOKENS, max_size=TOKENS)
    return weights.map(lambda each: np.log(np.array(each) / sum(each)).astype(np.float32))


def hidden(items: Sequence[np.ndarray], choices: Sequence[int], listed: int) -> Hidden:
    """Item i has ``choices[i]`` labels: the first tokens.  ``listed`` next tokens are listed, the likeliest first."""
    texts = [f" {letter}" for letter in "ABCDE"]
    true = continuations(
        [
            [row(texts[c], float(each[c]), tokens=(c,)) for c in range(count)]
            for each, count in zip(items, choices, strict=True)
        ]
    )
    orders = [np.argsort(-each, kind="stable")[:listed] for each in items]
    bounds = [each[order[-1]] for each, order in zip(items, orders, strict=True)]
    at_most = np.array([c not in order for order, count in zip(orders, choices, strict=True) for c in range(count)])
    bound = np.repeat(np.array(bounds), choices)
    logprobs = np.where(at_most, bound, true.logprobs).astype(np.float32)
    likelier = [int((each > each[c]).sum()) for each, count in zip(items, choices, strict=True) for c in range(count)]
    true = replace(true, ranks=np.array(likelier, dtype=np.int32))
    least = np.repeat([int((each > bound).sum()) for each, bound in zip(items, bounds, strict=True)], choices)
    ranks = np.where(at_most, -1 - least, true.ranks).astype(np.int32)
    return Hidden(true, replace(true, logprobs=logprobs, ranks=ranks, at_most=at_most if at_most.any() else None))


@st.composite
def worlds(draw: st.DrawFn, parts: int = 1) -> list[Hidden]:
    """``parts`` observations of the same items."""
    choices = draw(st.lists(st.integers(2, 4), min_size=1, max_size=4))
    listed = draw(st.integers(1, TOKENS))
    return [hidden([draw(next_tokens()) for _ in choices], choices, listed) for _ in range(parts)]


def check_holds(true: np.ndarray, told: Range) -> None:
    """Whatever has a range has the truth in it."""
    low, high = told
    assert (np.isnan(low) == np.isnan(high)).all()
    known = ~np.isnan(low)
    assert (low[known] <= true[known] + CLOSE).all()
    assert (true[known] <= high[known] + CLOSE).all()


def check_decisions(
    true: np.ndarray, told: Range, offsets: np.ndarray, right: np.ndarray, protocol: Protocol, exact: bool = True
) -> None:
    """Decided items are decided rightly, but where a bound ties; the mean credit lies between low and high."""
    one, other = decided(protocol, true, offsets, right), decided_between(protocol, told, offsets, right)
    low, high, open_ = credit_range(told[1], offsets, right, other, np.zeros(len(true)), told[0])
    sure = ~other.missing & ~open_
    if exact:  # else the truth was rounded in another order
        assert other.prediction[sure].tolist() == one.prediction[sure].tolist()
        assert other.credit[sure].tolist() == one.credit[sure].tolist()
    bounded = ~np.isnan(low)
    assert (bounded | np.isnan(told[0]).any() | one.missing).all()
    assert (low[bounded] <= one.credit[bounded] + CLOSE).all()
    assert (one.credit[bounded] <= high[bounded] + CLOSE).all()
    assert (other.margin[sure] >= -CLOSE)[~np.isnan(other.margin[sure])].all()


def golds(world: Hidden, seed: int) -> np.ndarray:
    counts = np.diff(world.true.item_offsets)
    return gold_rows([[(seed + place) % int(count)] for place, count in enumerate(counts)], world.true.item_offsets)


@settings(max_examples=200)
@given(worlds(parts=2), st.integers(0, 3), st.sampled_from(sorted(SCORES)), st.sampled_from(["first", "split"]))
def test_scores_and_decisions_of_listed_tokens(worlds: list[Hidden], seed: int, name: str, ties: str) -> None:
    world, null = worlds
    score, offsets = SCORES[name], world.true.item_offsets
    after = (null.true, null.told) if score.conditional else (None, None)
    true, told = score(world.true, after[0]), score_range(score, world.told, after[1])
    if name in COMPARING:
        in_item = np.zeros(len(true), dtype=bool) if world.told.at_most is None else world.told.at_most
        assert (np.isnan(told[0]) >= in_item).all()
        return
    check_holds(true, told)
    protocol = mmlu_protocol(ties=ties)
    check_decisions(true, told, offsets, golds(world, seed), protocol)


@settings(max_examples=200)
@given(worlds(), st.integers(0, 3), st.integers(1, TOKENS))
def test_letters_looked_up_in_a_list(worlds: list[Hidden], seed: int, top: int) -> None:
    """As the original MMLU script reads them, from a list of another length than the server's."""
    (world,) = worlds
    true = SCORES["sum"](limited(world.true, top, -100.0))
    told = score_range(SCORES["sum"], limited(world.told, top, -100.0), None)
    check_holds(true, told)
    check_decisions(true, told, world.true.item_offsets, golds(world, seed), mmlu_protocol())


@given(worlds(), st.integers(0, 3))
def test_what_is_listed_decides(worlds: list[Hidden], seed: int) -> None:
    """Of one list the best choice is known as soon as one choice is listed."""
    (world,) = worlds
    told = score_range(SCORES["sum"], world.told, None)
    decisions = decided_between(mmlu_protocol(), told, world.true.item_offsets, golds(world, seed))
    for item, missing in enumerate(decisions.missing.tolist()):
        rows = slice(*world.true.item_offsets[item : item + 2])
        none_listed = world.told.at_most is not None and bool(world.told.at_most[rows].all())
        assert missing == none_listed


@settings(max_examples=200)
@given(worlds(parts=4), st.integers(0, 3), st.sampled_from(["permutation", "batch", "contextual", "pride"]))
def test_calibrations_of_listed_tokens(worlds: list[Hidden], seed: int, name: str) -> None:
    offsets, views = worlds[0].true.item_offsets, "cyclic"
    true = calibrated(name, views, [each.true.sums for each in worlds], offsets)
    ends = [each.told.lowest().sums for each in worlds], [each.told.sums for each in worlds]
    told = calibrated_range(name, views, ends, offsets)
    check_holds(true, told)
    check_decisions(true, told, offsets, golds(worlds[0], seed), mmlu_protocol(), exact=False)


@given(worlds(parts=4), st.sampled_from(["permutation", "batch", "contextual", "pride"]))
def test_the_range_of_what_is_known_is_the_calibration_itself(worlds: list[Hidden], name: str) -> None:
    offsets, sums = worlds[0].true.item_offsets, [each.true.sums for each in worlds]
    low, high = calibrated_range(name, "cyclic", (sums, sums), offsets)
    assert low == pytest.approx(calibrated(name, "cyclic", sums, offsets), abs=1e-12, nan_ok=True)
    assert low.tolist() == high.tolist() or np.isnan(low).any()


@settings(max_examples=200)
@given(worlds(parts=3), st.integers(0, 3), st.sampled_from(["marginal", "vote", "spellings", "yes-no", "rating"]))
def test_readings_of_several_parts(worlds: list[Hidden], seed: int, name: str) -> None:
    true, told = [each.true for each in worlds], [each.told for each in worlds]
    offsets = true[0].item_offsets
    if name == "spellings":  # parts are other spellings: other tokens
        true, told = ([replace(p, tokens=p.tokens + 5 * n) for n, p in enumerate(each)] for each in (true, told))
        compute = COMBINERS["spellings"].scores
        ranges = COMBINERS["spellings"].ranges
        truth = compute(mmlu_protocol(), Parts(true))
        assert ranges is not None
        bounds = ranges(mmlu_protocol(), Parts(told))
    else:
        functions = {"yes-no": (difference, difference_range), "rating": (expected_rating, rating_range)}
        function, range_of = functions.get(name) or (OVER_CHAINS[name], RANGES[name])
        truth, bounds = function(true), range_of(told)
    check_holds(truth, bounds)
    check_decisions(truth, bounds, offsets, golds(worlds[0], seed), mmlu_protocol(), exact=name != "rating")


class Parts:
    """What a reading of several parts looks at."""

    def __init__(self, parts: Sequence[Continuations]) -> None:
        self._parts = list(parts)

    def parts(self) -> list[Continuations]:
        return self._parts


@given(worlds(parts=4))
def test_orders_have_a_prediction_where_it_is_sure(worlds: list[Hidden]) -> None:
    offsets = worlds[0].true.item_offsets
    true = order_predictions("cyclic", [each.true.sums for each in worlds], offsets)
    told = order_predictions(
        "cyclic", [each.told.sums for each in worlds], offsets, [each.told.lowest().sums for each in worlds]
    )
    for one, other in zip(true.T, told.T, strict=True):
        for expected, prediction in zip(one, other, strict=True):
            assert prediction in (-1, expected) or _tied(worlds)


def _tied(worlds: list[Hidden]) -> bool:
    """Whether a bound equals a listed number: then any of the two may be the first of the best."""
    return any(
        each.told.at_most is not None and len(np.unique(each.true.logprobs)) < len(each.true.logprobs)
        for each in worlds
    )


def test_decisions_by_hand() -> None:
    listed = continuations([[row(" A", -0.1), row(" B", -3.0)], [row(" A", -3.0), row(" B", -3.0)]])
    told = replace(listed, at_most=np.array([False, True, True, True]))
    range_ = score_range(SCORES["sum"], told, None)
    assert range_[0].tolist() == pytest.approx([-0.1, -np.inf, -np.inf, -np.inf])
    right = gold_rows([[0], [1]], listed.item_offsets)
    decisions = decided_between(mmlu_protocol(), range_, listed.item_offsets, right)
    assert decisions.prediction.tolist() == [0, -1]
    assert decisions.credit.tolist() == pytest.approx([1.0, np.nan], nan_ok=True)
    assert decisions.margin.tolist() == pytest.approx([2.9, np.nan], nan_ok=True)
    low, high, open_ = credit_range(range_[1], listed.item_offsets, right, decisions, 0.0, range_[0])
    assert (low.tolist(), high.tolist(), open_.tolist()) == ([1.0, 0.0], [1.0, 1.0], [False, True])


def test_a_bound_that_equals_the_best_is_open_but_decided() -> None:
    listed = continuations([[row(" A", -3.0), row(" B", -3.0)]])
    range_ = score_range(SCORES["sum"], replace(listed, at_most=np.array([True, False])), None)
    right = gold_rows([[1]], listed.item_offsets)
    decisions = decided_between(mmlu_protocol(), range_, listed.item_offsets, right)
    assert (decisions.prediction.tolist(), decisions.credit.tolist()) == ([1], [1.0])
    low, high, open_ = credit_range(range_[1], listed.item_offsets, right, decisions, 0.0, range_[0])
    assert (low.tolist(), high.tolist(), open_.tolist()) == ([0.0], [1.0], [True])


def test_credits_that_need_every_score_are_missing() -> None:
    listed = continuations([[row(" A", -0.1), row(" B", -3.0)], [row(" A", -1.0), row(" B", -3.0)]])
    range_ = score_range(SCORES["sum"], replace(listed, at_most=np.array([False, True, False, False])), None)
    right = gold_rows([[0], [0]], listed.item_offsets)
    decisions = decided_between(mmlu_protocol(metric="mc2"), range_, listed.item_offsets, right)
    assert decisions.missing.tolist() == [True, False]


@given(st.lists(st.lists(st.booleans(), max_size=5), max_size=4))
def test_lows_of_parts_are_those_of_the_whole(parts: list[list[bool]]) -> None:
    highs = [np.zeros(len(part)) for part in parts]
    lows = [np.where(part, -1.0, 0.0) for part in parts]
    if parts:
        joined = Lows.joined([Lows.of(low, high) for low, high in zip(lows, highs, strict=True)])
        assert joined.filled(np.concatenate(highs)).tolist() == np.concatenate(lows).tolist()
