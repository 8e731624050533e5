"""Intervals, errors and tests against scipy and brute force, and on two real models' answers to WinoGrande."""

import json
import math
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from choicewise.results.measurement import interval
from choicewise.scoring.decide import Decisions, argmax, gold_rows
from choicewise.scoring.intervals import (
    clustered_error,
    micro,
    ranks,
    standard_error,
    variance_of_means,
    wilson,
)
from choicewise.scoring.significance import (
    EXACT_UP_TO,
    FEWEST,
    detectable_difference,
    detectable_share,
    exact_tail,
    holm,
    integer_differences,
    mean_of_items,
    minimum_detectable_effect,
    normal_tail,
    paired_difference,
    pairwise_p,
    positive_p,
    rank_ranges,
    sign_flip,
    significantly_better,
)

NAN = math.nan
CREDIT = st.sampled_from([0.0, 1.0, 0.5, NAN])


@given(n=st.integers(1, 3000), data=st.data(), level=st.floats(0.5, 0.999))
def test_wilson_and_beta_binomial_equal_scipy(n: int, data: st.DataObject, level: float) -> None:
    right = data.draw(st.integers(0, n))
    expected = scipy.stats.binomtest(right, n).proportion_ci(level, method="wilson")
    assert wilson(right / n, n, level) == pytest.approx((expected.low, expected.high), abs=1e-12)
    bounds = interval(
        "beta-binomial", np.repeat([1.0, 0.0], [right, n - right]), ["s"] * n, macro=False
    )
    posterior = scipy.stats.beta(right + 1, n - right + 1)  # under a uniform prior
    assert bounds == pytest.approx(posterior.interval(0.95), abs=1e-9)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=6))
def test_variance_of_means_is_that_of_the_subjects(subjects: list[list[bool]]) -> None:
    overall = np.mean([np.mean(each) for each in subjects])
    alone = overall * (1 - overall)
    of = [scipy.stats.sem(each) ** 2 if len(each) > 1 else alone for each in subjects]
    found = variance_of_means(
        np.array([sum(each) for each in subjects]), np.array([len(each) for each in subjects])
    )
    assert found == pytest.approx(sum(of) / len(of) ** 2, abs=1e-12)


@given(mean=st.floats(0, 1), n=st.integers(1, 10**6))
def test_wilson_holds_the_mean_and_stays_within_zero_and_one(mean: float, n: int) -> None:
    low, high = wilson(mean, n)
    assert 0 <= low <= mean <= high <= 1
    assert low < high
    assert all(map(math.isnan, wilson(NAN, 0)))


@given(
    values=st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abcd")), min_size=2, max_size=20)
)
def test_clustered_error_equals_matrices(values: list[tuple[float, str]]) -> None:
    credits, clusters = np.array([value for value, _ in values]), [cluster for _, cluster in values]
    error, n = clustered_error(credits, clusters), len(values)
    if len(set(clusters)) == 1:
        assert all(map(math.isnan, (error.se, error.freedom)))
        return
    of, centred = np.array(clusters), np.eye(n) - 1 / n
    parts = []
    for cluster in sorted(set(clusters)):
        own = np.flatnonzero(of == cluster)
        values_, vectors = np.linalg.eigh(centred[np.ix_(own, own)])
        adjusted = (
            vectors @ np.diag(values_**-0.5) @ vectors.T
        )  # (I - H)^(-1/2) of the cluster, which makes it CR2
        parts.append(centred[own].T @ adjusted @ np.ones(len(own)) / n)
    products = np.array(parts) @ np.array(parts).T
    assert error.se**2 == pytest.approx(sum((part @ credits) ** 2 for part in parts), abs=1e-12)
    assert error.freedom == pytest.approx(
        np.trace(products) ** 2 / (products**2).sum()
    )  # Satterthwaite 1946


@given(
    values=st.lists(st.floats(0, 1), min_size=2, max_size=20),
    sizes=st.integers(1, 5),
    clusters=st.integers(2, 8),
)
def test_clusters_of_one_size(values: list[float], sizes: int, clusters: int) -> None:
    """They leave a degree of freedom less than there are; where every item is its own, it is no clustering."""
    names = [str(number) for number in range(clusters)] * sizes
    assert clustered_error(np.arange(len(names), dtype=np.float64), names).freedom == pytest.approx(
        clusters - 1
    )
    credits = np.array(values)
    assert standard_error(credits) == pytest.approx(scipy.stats.sem(credits), abs=1e-12)
    # A log-likelihood of -inf has no standard error, and leads to no warning.
    assert math.isnan(standard_error(np.append(credits, -math.inf)))
    own = clustered_error(credits, [str(index) for index in range(len(values))])
    assert own.se == pytest.approx(standard_error(credits), abs=1e-9)


def test_repeating_every_item_adds_nothing_once_the_repeats_are_one_cluster() -> None:
    credits = np.array([0.0, 1.0, 1.0, 0.0, 1.0] * 40)
    repeated, clusters = np.tile(credits, 5), [str(index) for index in range(200)] * 5
    assert standard_error(repeated) < 0.5 * standard_error(credits)
    assert clustered_error(repeated, clusters).se == pytest.approx(standard_error(credits))


@given(pairs=st.lists(st.tuples(CREDIT, CREDIT), max_size=20))
def test_paired_difference_equals_a_one_sample_computation(
    pairs: list[tuple[float, float]],
) -> None:
    left, right = (np.array([pair[side] for pair in pairs], dtype=np.float64) for side in (0, 1))
    both = ~np.isnan(left + right)
    differences = (left - right)[both]
    result = paired_difference(left, right, counted=False)
    assert (result.n, result.missing) == (both.sum(), (~both).sum())
    if len(differences) > 1:
        assert result.value == pytest.approx(differences.mean())
    if len(set(differences)) < 2:
        assert all(map(math.isnan, (result.se, result.ci_low, result.ci_high)))
        return
    assert result.se == pytest.approx(scipy.stats.sem(differences))
    expected = scipy.stats.ttest_1samp(differences, 0).confidence_interval()
    assert (result.ci_low, result.ci_high) == pytest.approx(
        (max(-1, expected.low), min(1, expected.high))
    )


@given(pairs=st.lists(st.tuples(CREDIT, CREDIT), max_size=20))
def test_proportions_have_the_interval_of_agresti_and_min(pairs: list[tuple[float, float]]) -> None:
    """As they write it, where credits are 0 or 1: 1/2 more in each cell of the table (2005, equation 3)."""
    left, right = (np.array([pair[side] for pair in pairs], dtype=np.float64) for side in (0, 1))
    result = paired_difference(left, right)
    if not result.n:
        assert math.isnan(result.ci_low)
        return
    assert -1 <= result.ci_low <= result.value <= result.ci_high <= 1
    assert result.ci_low < result.ci_high
    other = paired_difference(right, left)
    assert (other.ci_low, other.ci_high) == pytest.approx((-result.ci_high, -result.ci_low))
    known = ~np.isnan(left + right)
    if np.isin(np.append(left[known], right[known]), (0, 1)).all():
        only = (left > right).sum() + 0.5, (left < right).sum() + 0.5
        n = known.sum() + 2
        se = math.sqrt(sum(only) - (only[0] - only[1]) ** 2 / n) / n
        low, high = ((only[0] - only[1]) / n + side * 1.959963984540054 * se for side in (-1, 1))
        assert (result.ci_low, result.ci_high) == pytest.approx((max(-1, low), min(1, high)))


@given(
    items=st.lists(
        st.tuples(st.sampled_from((0.0, 0.5, 1.0)), st.sampled_from((0.0, 1.0)), st.integers(1, 9)),
        min_size=1,
        max_size=40,
    )
)
def test_items_that_weigh_differently_count_as_fewer(
    items: list[tuple[float, float, int]],
) -> None:
    left, right, heavy = np.array(items).T
    weights = heavy / heavy.mean()
    result = paired_difference(left, right, weights=weights)
    mean = float(np.average(left - right, weights=weights))
    assert result.value == pytest.approx(mean)
    assert -1 <= result.ci_low <= result.value + 1e-9
    assert result.value - 1e-9 <= result.ci_high <= 1
    n = weights.sum() ** 2 / np.square(weights).sum()
    variance = np.average(np.square(left - right - mean), weights=np.square(weights))
    centre = n * mean / (n + 2)
    squares = n * (variance + mean**2) + 1
    error = math.sqrt((squares / (n + 2) - centre**2) / (n + 2))
    low, high = (centre + side * 1.959963984540054 * error for side in (-1, 1))
    assert (result.ci_low, result.ci_high) == pytest.approx((max(-1, low), min(1, high)))
    detectable = detectable_difference(left, right, weights=weights)
    if len(items) < FEWEST:
        assert math.isnan(detectable) or len(set(weights.tolist())) == 1
    elif len(set(weights.tolist())) > 1:
        assert detectable == pytest.approx((1.959964 + 0.841621) * error, rel=1e-5)
    alike = np.ones(len(items))
    assert paired_difference(left, right, weights=alike) == paired_difference(left, right)


def test_items_that_all_differ_alike_have_an_interval_where_they_are_right_or_wrong() -> None:
    thirds = np.array([1 / 3, 1.0]), np.array([0.0, 2 / 3])
    assert paired_difference(*thirds).value == pytest.approx(1 / 3)
    alike = paired_difference(*thirds, counted=False)
    assert all(map(math.isnan, (alike.se, alike.ci_low, alike.ci_high)))
    assert math.isnan(detectable_difference(*thirds, counted=False))
    equal = paired_difference(np.ones(4), np.ones(4))
    assert equal.value == 0
    assert equal.ci_high == -equal.ci_low == pytest.approx(1.959964 / 6)


@pytest.mark.parametrize(("n", "least"), [(5, 0.95), (10, 0.94), (40, 0.94)])
def test_paired_intervals_hold_of_few_items(n: int, least: float) -> None:
    """Exactly, over all outcomes; mean ± 1.96 standard errors holds in 60 % of five items of which 20 % differ."""
    for only_left, only_right in ((0.1, 0.1), (0.3, 0.1), (0.5, 0.02)):
        held = 0.0
        for left in range(n + 1):
            for right in range(n + 1 - left):
                chance = scipy.stats.multinomial.pmf(
                    [left, right, n - left - right],
                    n,
                    [only_left, only_right, 1 - only_left - only_right],
                )
                credits = np.zeros((2, n))
                credits[0, :left] = credits[1, left : left + right] = 1
                found = paired_difference(*credits)
                held += chance * (found.ci_low <= only_left - only_right <= found.ci_high)
        assert held >= least


def test_a_mean_of_five_numbers_has_the_interval_of_student_within_what_is_possible() -> None:
    values = np.array([0.1, 0.2, 0.9, 0.4, 0.0])
    expected = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    found = mean_of_items(np.append(values, NAN))
    assert (found.ci_low, found.ci_high) == pytest.approx((expected.low, expected.high))
    assert (found.n, found.missing) == (5, 1)
    assert mean_of_items(values, low=0.0).ci_low == 0
    assert positive_p(values) == pytest.approx(
        scipy.stats.ttest_1samp(values, 0, alternative="greater").pvalue
    )
    assert math.isnan(positive_p(np.ones(3)))


@given(pairs=st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, NAN])] * 2), max_size=40))
def test_sign_flip_is_mcnemars_exact_test_without_ties(pairs: list[tuple[float, float]]) -> None:
    result = sign_flip(
        *(np.array([pair[side] for pair in pairs], dtype=np.float64) for side in (0, 1))
    )
    assert (result.left_only, result.right_only) == (
        pairs.count((1.0, 0.0)),
        pairs.count((0.0, 1.0)),
    )
    n = result.left_only + result.right_only
    assert (result.by_tie, result.exact, result.differing) == (0, True, n)
    expected = scipy.stats.binomtest(result.left_only, n).pvalue if n else 1.0
    nothing = all(math.isnan(a + b) for a, b in pairs)
    assert result.p == pytest.approx(NAN if nothing else expected, rel=1e-12, nan_ok=True)


def test_sign_flip_stays_exact_for_thousands_of_items() -> None:
    left, right = np.repeat([1.0, 0.0], [4200, 3900]), np.repeat([0.0, 1.0], [4200, 3900])
    assert sign_flip(left, right).p == pytest.approx(
        scipy.stats.binomtest(4200, 8100).pvalue, rel=1e-9
    )


SHARE = st.integers(1, 6).flatmap(
    lambda tied: st.integers(0, tied).map(lambda right: Fraction(right, tied))
)


@given(pairs=st.lists(st.tuples(SHARE, SHARE), min_size=1, max_size=8))
def test_sign_flip_equals_the_enumeration_of_all_signs(
    pairs: list[tuple[Fraction, Fraction]],
) -> None:
    differences = [a - b for a, b in pairs]
    sums = [
        sum(map(Fraction.__mul__, differences, map(Fraction, s)))
        for s in product((1, -1), repeat=len(pairs))
    ]
    expected = sum(abs(each) >= abs(sum(differences)) for each in sums) / len(sums)
    left, right = (np.array([float(pair[side]) for pair in pairs]) for side in (0, 1))
    result = sign_flip(left, right)
    assert result.p == pytest.approx(expected, rel=1e-12)
    only = [sum(pair == each for pair in pairs) for each in ((1, 0), (0, 1))]
    assert [result.left_only, result.right_only] == only
    assert result.by_tie == sum(a != b for a, b in pairs) - sum(only)
    wholes = integer_differences(left, right)
    assert math.gcd(*wholes) in (0, 1)
    moved = [each for each in differences if each]
    assert [each * moved[0] for each in wholes] == [
        each * wholes[0] for each in moved
    ]  # in the same proportions


@pytest.mark.parametrize("shares", [(0.0, 1.0), (0.0, 1.0, 1 / 2, 1 / 3, 1 / 5)])
def test_sign_flips_normal_limit_is_close_to_the_exact_distribution(
    shares: tuple[float, ...],
) -> None:
    rng = np.random.default_rng(5)
    for lead in (0.0, 0.03, 0.06):
        left, right = rng.choice(shares, size=(2, 1500))
        left = np.where(rng.random(1500) < lead, 1.0, left)
        exact, limit = sign_flip(left, right), sign_flip(left, right, steps=0)
        assert (exact.exact, limit.exact) == (True, False)
        assert limit.p == pytest.approx(exact.p, rel=0.02, abs=1e-4)
        differences = integer_differences(left, right)
        assert exact_tail(differences) == pytest.approx(
            exact.p, rel=1e-9
        )  # binomial where no tie is split
        assert normal_tail(differences) == limit.p


def test_a_lead_that_ties_outweigh_is_not_significant() -> None:
    left = np.repeat([1.0, 0.0, 0.25, 0.0], [56, 19, 465, 60])
    right = np.repeat([0.0, 1.0, 0.25, 0.5], [56, 19, 465, 60])
    result = sign_flip(left, right)
    assert (result.left_only, result.right_only, result.by_tie) == (56, 19, 60)
    assert scipy.stats.binomtest(56, 75).pvalue < 1e-4  # what dropping the ties claimed
    assert result.p > 0.05
    differing = (left - right)[left != right]
    flipped = np.random.default_rng(1).choice([-1.0, 1.0], size=(8000, 135)) @ differing
    assert result.p == pytest.approx((np.abs(flipped) >= 7).mean(), abs=0.015)
    assert math.isnan(sign_flip(left[:0], right[:0]).p)


@given(p=st.lists(st.floats(0, 1), max_size=8))
def test_holm_rejects_what_the_step_down_procedure_rejects(p: list[float]) -> None:
    adjusted = holm(p)
    for alpha in (0.01, 0.05, 0.3):
        rejected = set()
        for step, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
            if p[index] * (len(p) - step) > alpha:
                break
            rejected.add(index)
        assert {index for index in range(len(p)) if adjusted[index] <= alpha} == rejected
    assert (adjusted >= np.array(p)).all()


def mcnemar_power(n: int, share: float, difference: float) -> float:
    """Of the exact test, by all numbers of differing items, and of wins among these."""
    share = max(share, difference)
    wins = (1 + difference / share) / 2
    power = 0.0
    for differing in range(n + 1):
        for won in range(differing // 2, differing + 1):
            if differing and scipy.stats.binomtest(won, differing).pvalue <= 0.05:
                tail = scipy.stats.binom.sf(won - 1, differing, wins)
                power += float(scipy.stats.binom.pmf(differing, n, share) * tail)
                break
    return power


@pytest.mark.costly("every outcome of up to 200 items, by a plain sum")
@pytest.mark.parametrize(
    ("n", "differing"), [(6, 0), (12, 2), (30, 9), (40, 35), (120, 0), (200, 2), (100, 25)]
)
def test_detectable_differences_are_found_with_the_power_they_promise(
    n: int, differing: int
) -> None:
    differences = np.array([1.0, -1.0] * (differing // 2) + [1.0] * (differing % 2))
    left = np.append(differences, np.zeros(n - len(differences)))
    found = detectable_difference(left, np.zeros(n))
    share = (differing + 1) / (n + 2)
    assert mcnemar_power(n, share, found) == pytest.approx(0.8, abs=1e-3)
    assert mcnemar_power(n, share, found - 0.001) < 0.8
    assert found == detectable_share(n, share)


@pytest.mark.parametrize("n", [0, 3, 5])
def test_what_no_difference_shows_has_no_detectable_one(n: int) -> None:
    """Five wins of five have p = .06."""
    assert math.isnan(detectable_difference(np.zeros(n), np.zeros(n)))


def test_one_to_one_of_two_hundred_items_shows_what_six_to_none_would() -> None:
    left = np.array([1.0, 0.0] + [1.0] * 198)
    right = np.array([0.0, 1.0] + [1.0] * 198)
    found = detectable_difference(left, right)
    assert found == pytest.approx(0.0392, abs=1e-4)
    assert scipy.stats.binom.sf(5, 200, found) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("n", [62, 75, 120, 600, 14_042])
def test_the_limit_of_a_detectable_difference_meets_the_exact_one(n: int) -> None:
    exact = detectable_share(n, EXACT_UP_TO / n)
    assert detectable_share(n, (EXACT_UP_TO + 1e-9) / n) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("n", [19, 20, 500])
def test_a_detectable_difference_by_students_t(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    found = detectable_difference(values, np.zeros(n), counted=False)
    if n < 20:
        assert math.isnan(found)
        return
    quantiles = scipy.stats.t.ppf([0.975, 0.8], n - 1)
    assert found == pytest.approx(quantiles.sum() * scipy.stats.sem(values))


@given(st.lists(CREDIT, min_size=20, max_size=30), st.lists(CREDIT, min_size=20, max_size=30))
def test_a_weighed_test_is_exact_for_equal_differences(
    left: list[float], right: list[float]
) -> None:
    size = min(len(left), len(right))
    credits = np.nan_to_num(np.array([left[:size], right[:size]]))
    credits = (credits > 0.5).astype(np.float64)
    expected = sign_flip(*credits).p
    assert pairwise_p(1.7 * credits, are_summed=True)[0, 1] == pytest.approx(expected)


def test_minimum_detectable_effect_is_found_with_the_power_it_promises() -> None:
    se = 0.5 / math.sqrt(400)
    effect = minimum_detectable_effect(se)
    assert scipy.stats.norm.sf(1.959963984540054 - effect / se) == pytest.approx(0.8)


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, 1.0]), min_size=30, max_size=30), min_size=1, max_size=4
    )
)
def test_tests_of_all_pairs_are_those_of_each(credits: list[list[float]]) -> None:
    p = pairwise_p(np.array(credits))
    for (one, left), (other, right) in product(enumerate(credits), repeat=2):
        assert p[one, other] == pytest.approx(sign_flip(np.array(left), np.array(right)).p)


@pytest.mark.parametrize("values", [(0.0, 0.5, 1.0), (0.0, 1 / 3, 0.5, 1.0)])
def test_tests_of_all_pairs_with_ties_are_near_the_exact_ones(values: tuple[float, ...]) -> None:
    credits = np.random.default_rng(4).choice(values, (6, 300))
    p = pairwise_p(credits)
    for one, other in combinations(range(6), 2):
        assert (
            p[one, other]
            == p[other, one]
            == pytest.approx(sign_flip(credits[one], credits[other]).p, abs=0.02)
        )


def test_few_items_that_differ_are_no_proof_whatever_their_weight() -> None:
    """Of four differences of one sign the normal limit makes .0455, all signs make .125."""
    credits = np.zeros((2, 40))
    credits[0, :4] = 0.7**0.5
    assert pairwise_p(credits)[0, 1] == sign_flip(*credits).p == 0.125


def test_ranks_are_certain_where_models_are_far_apart() -> None:
    rng = np.random.default_rng(3)
    credits = (rng.random((3, 400)) < np.array([[0.9], [0.5], [0.51]])).astype(float)
    better = significantly_better(credits)
    assert better.tolist() == [[False, True, True], [False] * 3, [False] * 3]
    low, high = rank_ranges(better)
    assert (low.tolist(), high.tolist()) == ([1, 2, 2], [1, 3, 3])
    undecided = np.zeros((3, 3), dtype=np.bool_)
    undecided[0, 1] = undecided[1, 0] = True
    low, high = rank_ranges(significantly_better(credits, undecided))
    assert (low.tolist(), high.tolist()) == ([1, 1, 2], [2, 3, 3])


@pytest.mark.parametrize("items", [1, 6, 19, 20])
def test_a_few_items_order_no_models(items: int) -> None:
    credits = np.array([[1.0] * items, [0.0] * items, [1.0] * items])
    low, high = rank_ranges(significantly_better(credits))
    expected = ([1, 3, 1], [2, 3, 2]) if items >= 20 else ([1, 1, 1], [3, 3, 3])
    assert (low.tolist(), high.tolist()) == expected


def test_equal_models_may_have_any_rank() -> None:
    for credits in (np.tile([1 / 3, 0.0, 1.0, 2 / 3], (2, 5)), np.tile([1.0, 0.0], (2, 10))):
        low, high = rank_ranges(significantly_better(credits))
        assert (low.tolist(), high.tolist()) == ([1, 1], [2, 2])


@given(
    st.lists(st.lists(st.integers(0, 12), min_size=5, max_size=5), min_size=1, max_size=6),
    st.data(),
)
def test_the_order_of_the_sum_never_changes_a_rank(
    models: list[list[int]], data: st.DataObject
) -> None:
    """Means of five subjects of 13, 7, 11, 3 and 12 items, and the same mean summed in any other order."""
    sizes = (13, 7, 11, 3, 12)
    shares = [
        [right % (size + 1) / size for right, size in zip(own, sizes, strict=True)]
        for own in models
    ]
    exact = [
        sum(Fraction(right % (size + 1), size) for right, size in zip(own, sizes, strict=True))
        for own in models
    ]
    plain = [1 + sum(other > own for other in exact) for own in exact]
    for _ in range(3):
        drawn = [sum(data.draw(st.permutations(own))) / 5 for own in shares]
        assert ranks(drawn).tolist() == plain
        assert ranks([drawn, [-each for each in drawn]])[0].tolist() == plain


def test_ranks_of_what_is_no_number_and_of_no_end() -> None:
    assert ranks([NAN, -math.inf, 0.5, NAN, -math.inf, math.inf]).tolist() == [0, 3, 2, 0, 3, 1]
    assert ranks([]).tolist() == []
    assert ranks([-1e6, -1e6 - 1e-8, -1e6 - 1]).tolist() == [
        1,
        1,
        3,
    ]  # perplexities, the least the best


def winogrande(folder: Path, model: str) -> Decisions:
    rows = [json.loads(line) for line in (folder / f"{model}.jsonl").read_text().splitlines()]
    items = np.arange(len(rows) + 1) * 2
    scores = np.array([[row["logit_0"], row["logit_1"]] for row in rows]).ravel()
    decisions = argmax(scores, items, gold_rows([[row["truth"]] for row in rows], items), "first")
    assert decisions.credit.tolist() == [float(row["acc"] == "True") for row in rows]
    return decisions


def test_two_real_models_on_winogrande(shared_data: Path) -> None:
    folder = shared_data / "goldens" / "winogrande_real_llms"
    llama, mistral = winogrande(folder, "llama-2-7b"), winogrande(folder, "mistral-7b-v0.1")
    published = {(0.7380, 0.0124), (0.7814, 0.0116)}
    assert {
        (round(value.value, 4), round(value.se, 4)) for value in map(micro, (llama, mistral))
    } == published
    difference = paired_difference(mistral.credit, llama.credit)
    test = sign_flip(mistral.credit, llama.credit)
    b, c, n = test.left_only, test.right_only, 1267
    table = [
        [int(((mistral.credit == x) & (llama.credit == y)).sum()) for y in (1, 0)] for x in (1, 0)
    ]
    assert [table[0][1], table[1][0]] == [b, c]
    assert difference.value == pytest.approx((b - c) / n)
    assert difference.se == pytest.approx(math.sqrt((b + c - (b - c) ** 2 / n) / n / (n - 1)))
    t_test = scipy.stats.ttest_rel(mistral.credit, llama.credit)
    assert difference.value / difference.se == pytest.approx(t_test.statistic)
    assert test.p == pytest.approx(scipy.stats.binomtest(b, b + c).pvalue)
    assert difference.ci_low > 0
    assert test.p < 0.001
