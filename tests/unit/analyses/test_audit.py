"""Statistics of items against plain loops, and what is said of items whose key or format is wrong."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import isotonic_regression

from choicewise.errors import UsageError
from choicewise.extensions.analyses.audit import (
    FEWEST,
    VERDICTS,
    audit,
    isotonic_shares,
    item_statistics,
)
from choicewise.extensions.analyses.audit_report import audit_tables
from choicewise.protocols.protocol import Protocol
from choicewise.results.outcomes import Outcomes, Summary
from choicewise.results.run import Run
from choicewise.scoring.observed import Floats
from choicewise.table import as_json
from tests.helpers.many_models import PROTOCOLS, one_run, summary

ONE, OTHER = PROTOCOLS
MODELS, ITEMS = 24, 40


def answers(seed: int = 0, models: int = MODELS, items: int = ITEMS) -> Floats:
    """Credits of models of rising ability for items of rising difficulty, right or wrong."""
    rng = np.random.default_rng(seed)
    ability, difficulty = np.linspace(-2, 2, models)[:, None], np.linspace(-1.5, 1.5, items)
    return (rng.random((models, items)) < 1 / (1 + np.exp(difficulty - 1.5 * ability))).astype(
        np.float64
    )


def reference(credits: Floats) -> tuple[list[float], list[float], list[float]]:
    """The three statistics of the page they come from, one item and one pair at a time."""
    models, items = credits.shape
    rest, scale, isotonic = [], [], []
    for item in range(items):
        others = [other for other in range(items) if other != item and np.ptp(credits[:, other])]
        if not np.ptp(credits[:, item]):
            for column in (rest, scale, isotonic):
                column.append(math.nan)
            continue
        own = credits[:, item]
        rest.append(float(np.corrcoef(own, credits[:, others].sum(axis=1))[0, 1]))
        have = sum(np.cov(own, credits[:, other], ddof=0)[0, 1] for other in others)
        could = sum(
            np.cov(np.sort(own), np.sort(credits[:, other]), ddof=0)[0, 1] for other in others
        )
        scale.append(have / could)
        signed = []
        for other in others:
            sign = np.sign(scipy.stats.kendalltau(own, credits[:, other]).statistic)
            levels = sorted(set(credits[:, other]))
            means = [(own[credits[:, other] == level] * sign).mean() for level in levels]
            sizes = [float((credits[:, other] == level).sum()) for level in levels]
            fit = dict(zip(levels, isotonic_regression(means, weights=sizes).x, strict=True))
            residual = sum(
                (own[model] * sign - fit[credits[model, other]]) ** 2 for model in range(models)
            )
            signed.append(sign * (1 - residual / ((own - own.mean()) ** 2).sum()))
        isotonic.append(float(np.mean(signed)))
    return rest, scale, isotonic


@pytest.mark.costly("a fit and a rank correlation for every pair of items, in plain Python")
@pytest.mark.parametrize("kind", ["right or wrong", "probabilities", "ties split"])
def test_the_statistics_are_those_of_plain_loops(kind: str) -> None:
    credits = answers(items=12)
    credits[:, 3] = 1.0
    if kind == "probabilities":
        credits = np.clip(
            credits * 0.5 + np.random.default_rng(1).random(credits.shape) * 0.4, 0, 1
        ).round(2)
        credits[:, 3] = 0.25
    elif kind == "ties split":
        credits[5, 7], credits[6, 0] = 0.5, 1 / 3
    statistics = item_statistics(credits)
    for column, expected in zip(["rest", "scale", "isotonic"], reference(credits), strict=True):
        np.testing.assert_allclose(getattr(statistics, column), expected, atol=1e-6, err_msg=column)
    assert statistics.right == pytest.approx(credits.mean(axis=0))
    assert np.flatnonzero(~statistics.judged).tolist() == [3]


def test_of_items_right_or_wrong_the_isotonic_share_is_the_square_of_phi() -> None:
    """So products of matrices give it; the fits give the same."""
    credits = answers(items=6)
    phi = np.corrcoef(credits, rowvar=False)
    fits = isotonic_shares(credits, credits, np.sign(phi))
    assert np.sign(phi) * fits == pytest.approx(np.sign(phi) * phi**2)


@given(
    arrays(np.float64, (11, 3), elements=st.integers(0, 6).map(float)), st.sampled_from([-1.0, 1.0])
)
def test_pooled_neighbours_are_the_isotonic_regression(credits: Floats, sign: float) -> None:
    x, y = credits[:, :1], credits[:, 1:]
    shares = isotonic_shares(x, y, np.full((1, 2), sign))[0]
    levels, groups = np.unique(x[:, 0], return_inverse=True)
    for column, share in zip(y.T, shares, strict=True):
        spread = ((column - column.mean()) ** 2).sum()
        means = [sign * column[groups == level].mean() for level in range(len(levels))]
        fit = isotonic_regression(means, weights=np.bincount(groups).astype(float)).x[groups]
        expected = 1 - ((sign * column - fit) ** 2).sum() / spread if spread > 0 else 0
        assert share == pytest.approx(expected, abs=1e-9)


@given(st.integers(0, 1000))
def test_without_a_credit_an_item_counts_as_usual_and_few_models_judge_nothing(seed: int) -> None:
    credits = answers(seed)
    lacking = credits.copy()
    lacking[0, :3] = lacking[5, 7] = math.nan
    lacking[FEWEST - 1 :, 9] = math.nan
    statistics = item_statistics(lacking)
    assert statistics.models[[0, 7, 9, 20]].tolist() == [MODELS - 1, MODELS - 1, FEWEST - 1, MODELS]
    assert not statistics.judged[9]
    filled = np.where(np.isnan(lacking), np.nanmean(lacking, axis=0), lacking)
    others = np.delete(filled - filled.mean(axis=0), [7, 9], axis=1).sum(axis=1)
    has = np.arange(MODELS) != 5
    if np.ptp(lacking[has, 7]):
        expected = np.corrcoef(lacking[has, 7], others[has])[0, 1]
        assert statistics.rest[7] == pytest.approx(expected)


def test_fewer_than_ten_models_are_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="^9 models are too few.* 10 or more .*evaluate"):
        item_statistics(answers(models=9))


def test_a_wrong_key_is_bad_and_items_without_a_fault_hardly_ever_are() -> None:
    credits = answers(models=60, items=300)
    wrong = np.arange(0, 300, 30)
    credits[:, wrong] = 1 - credits[:, wrong]
    bad = np.flatnonzero(item_statistics(credits).bad)
    assert set(wrong) <= set(bad)
    assert len(bad) <= len(wrong) + 2
    noise = np.random.default_rng(3).integers(0, 2, (60, 2000)).astype(np.float64)
    assert item_statistics(noise).bad.mean() <= 0.055


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return one_run(tmp_path_factory.mktemp("runs") / "run", ITEMS)


def runs_of(run: Run, *by_protocol: Floats) -> list[Summary]:
    """A run per row of credits, under as many protocols as there are tables of them."""
    credits = [dict(zip(PROTOCOLS, own, strict=False)) for own in zip(*by_protocol, strict=True)]
    return [summary(run, f"m{place}", own) for place, own in enumerate(credits)]


def turned(credits: Floats, *items: int) -> Floats:
    changed = credits.copy()
    changed[:, items] = 1 - changed[:, items]
    return changed


def test_items_bad_under_all_protocols_are_told_from_those_bad_under_one(run: Run) -> None:
    credits = answers(4)
    credits[:, 11], credits[:, 12] = 1.0, 0.0
    (report,) = audit(runs_of(run, turned(credits, 15, 20), turned(answers(5), 20, 25)))
    assert (report.items, report.shared, len(report.models)) == (ITEMS, ITEMS, MODELS)
    assert report.protocols == (ONE, OTHER)
    verdicts = {each.item: each.verdict for each in report.bad}
    assert (verdicts["q20"], verdicts["q15"], verdicts["q25"]) == ("all", "one", "one")
    (worst, *_), (one, *_) = report.verdicts("all"), report.verdicts("one")
    assert (worst.item, worst.subject, worst.question) == ("q20", "b", "Which is number 20?")
    assert [each.protocol for each in one.under if each.bad] in ([ONE], [OTHER])
    assert one.worst.rest == min(each.rest for each in one.under)
    orders = [[*VERDICTS].index(each.verdict) for each in report.bad]
    assert orders == sorted(orders)
    assert report.constant == ()  # the other protocol judges them
    assert report.judged == ITEMS


def test_constant_items_stand_apart(run: Run) -> None:
    credits = answers(4)
    credits[:, 11], credits[:, 12] = 1.0, 0.0
    (report,) = audit(runs_of(run, credits))
    assert [(each.item, each.right) for each in report.constant] == [("q11", 1.0), ("q12", 0.0)]
    assert report.constant[0].question == "Which is number 11?"
    assert report.judged == ITEMS - 2
    assert {each.verdict for each in report.bad} <= {""}
    (constant,) = [table for table in audit_tables(report) if table.name == "constant"]
    second = {"item": "q12", "subject": "a", "question": "Which is number 12?", "right": 0.0}
    assert as_json(constant)["rows"][1] == second


def test_protocols_that_cannot_differ_count_once(run: Run) -> None:
    credits = answers(4)
    members = runs_of(run, turned(credits, 20), turned(credits, 20))
    first = PROTOCOLS[ONE].digest
    same = [
        replace(
            each,
            outcomes=replace(
                each.outcomes,
                outcomes=tuple(replace(own, first=first) for own in each.outcomes.outcomes),
            ),
        )
        for each in members
    ]
    (report,) = audit(same)
    assert (report.protocols, report.duplicates) == ((ONE,), (OTHER,))
    assert report.verdicts("all") == []


def test_less_is_better_where_the_metric_says_so(run: Run) -> None:
    """Bits of good models are few: the same items are bad as by what is better when it is more."""
    credits = turned(answers(4), 20) * 0.8 + 0.1
    bits = {"bpb": replace(PROTOCOLS[ONE], score="byte_mean", metric="bpb")}
    (more,) = audit([summary(run, f"m{place}", {ONE: own}) for place, own in enumerate(credits)])
    (less,) = audit(
        [
            summary(run, f"m{place}", {"bpb": 1 - own}, protocols=bits)
            for place, own in enumerate(credits)
        ]
    )
    assert [each.item for each in less.bad] == [each.item for each in more.bad]
    assert "q20" in [each.item for each in less.bad]


def test_runs_with_other_items_say_how_many_they_share(run: Run) -> None:
    credits = answers(4)
    halves = [np.arange(30), np.arange(10, ITEMS)]
    kept = [halves[place % 2] for place in range(MODELS)]
    members = [
        summary(run, f"m{place}", {ONE: credits[place, own]}, own) for place, own in enumerate(kept)
    ]
    (report,) = audit(members)
    assert (report.items, report.shared) == (ITEMS, 20)
    apart = [np.arange(3 * place, 3 * place + 3) for place in range(12)]
    members = [
        summary(run, f"m{place}", {ONE: credits[place, own]}, own)
        for place, own in enumerate(apart)
    ]
    with pytest.raises(UsageError, match="12 runs hold 36 items, 0 shared"):
        audit(members)


def test_too_few_models_and_no_shared_protocol_are_refused(run: Run) -> None:
    members = runs_of(run, answers(4))
    with pytest.raises(
        UsageError, match=r"too few models .* there are 9 models on quiz #D.*10 or more models"
    ):
        audit(members[:9])
    twice = [members[0], *members[:9]]
    with pytest.raises(UsageError, match="there are 9 models"):
        audit(twice)
    mixed = [*members[:6], *runs_of(run, answers(4), answers(5))[6:12]]
    mixed = [*mixed[:6], *(without(each, ONE) for each in mixed[6:])]
    with pytest.raises(UsageError, match="share no protocol"):
        audit(mixed)


def without(member: Summary, protocol: str) -> Summary:
    own = tuple(each for each in member.outcomes.outcomes if each.name != protocol)
    outcomes = member.outcomes
    return replace(
        member, outcomes=Outcomes(outcomes.model, outcomes.dataset, outcomes.digest, own)
    )


def test_what_stands_for_all_items_together_judges_none(run: Run) -> None:
    pooled: dict[str, Protocol] = {"ece": replace(PROTOCOLS[ONE], metric="ece")}
    members = [
        summary(run, f"m{n}", {"ece": own}, protocols=pooled) for n, own in enumerate(answers(4))
    ]
    with pytest.raises(UsageError, match="share no protocol"):
        audit(members)
