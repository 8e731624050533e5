"""mc1, mc2 and perplexity: the credits against plain references, and the numbers that they come to."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import ProtocolError
from choicewise.protocols.catalogue import one
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.report.findings import sentences
from choicewise.results.finding import finding
from choicewise.results.outcomes import ranked
from choicewise.scoring.decide import CREDITS, Decisions, guess, likelihood, mc1, mc2, mc2_split
from choicewise.scoring.intervals import AGGREGATIONS, micro, number
from choicewise.scoring.significance import sign_flip
from choicewise.util.text import plain
from tests.helpers.messages import Gist
from tests.helpers.rows import made

SCORES = st.sampled_from([-3.0, -2.5, -800.0, -1.0, -math.inf, math.nan])
ITEM = st.lists(st.tuples(SCORES, st.booleans()), min_size=2, max_size=6)
ITEMS = st.lists(ITEM.filter(lambda item: any(right for _, right in item)), min_size=1, max_size=6)


def arrays(items: list[list[tuple[float, bool]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum([len(item) for item in items])])
    return (
        np.array([score for item in items for score, _ in item]),
        offsets,
        np.array([r for i in items for _, r in i]),
    )


@given(ITEMS)
def test_mc1_and_mc2_equal_the_plain_reference(items: list[list[tuple[float, bool]]]) -> None:
    asked = *arrays(items), "first"
    decided = mc1(*asked)
    for item, credit, prediction in zip(items, decided.credit, decided.prediction, strict=True):
        first = next(index for index, (_, right) in enumerate(item) if right)
        compared = [index for index, (_, right) in enumerate(item) if index == first or not right]
        if any(math.isnan(item[index][0]) for index in compared):
            assert math.isnan(credit)
            assert prediction == -1
        else:
            best = max(compared, key=lambda index: (item[index][0], -index))
            assert (credit, prediction) == (float(best == first), best)
    for item, credit in zip(items, mc2(*asked).credit, strict=True):
        top = max((score for score, _ in item if not math.isnan(score)), default=math.nan)
        if any(math.isnan(score) for score, _ in item) or math.isinf(top):
            assert math.isnan(credit)
        else:
            weights = [math.exp(score - top) for score, _ in item]
            right = sum(weight for weight, (_, gold) in zip(weights, item, strict=True) if gold)
            assert credit == pytest.approx(right / sum(weights))
            assert 0 <= credit <= 1


def test_mc2_holds_for_tiny_probabilities_and_in_june_2023_a_true_answer_after_a_false_one_counted_as_false() -> (
    None
):
    (credit,) = mc2(
        np.array([-2000.0, -2000 - math.log(3)]), np.array([0, 2]), np.array([True, False]), "first"
    ).credit
    assert credit == pytest.approx(0.75)
    asked = (
        np.log([0.2, 0.1, 0.3, 0.4]),
        np.array([0, 4]),
        np.array([True, True, False, True]),
        "first",
    )
    assert mc2(*asked).credit == pytest.approx([0.7])
    assert mc2_split(*asked).credit == pytest.approx([0.3])
    for name, metric in (("harness", "mc2"), ("harness-v1", "mc2-split")):
        assert one(f"truthfulqa/{name}").protocol.metric == metric, (
            "the headline of the leaderboard"
        )
    assert one("truthfulqa/harness-v1").protocol.bos == "none"


def test_guessing_knows_what_a_metric_asks() -> None:
    offsets, gold = np.array([0, 4, 5]), np.array([True, True, False, False, True])
    assert guess(offsets, gold) == pytest.approx([0.5, math.nan], nan_ok=True)
    assert guess(offsets, gold, "mc1") == pytest.approx([1 / 3, math.nan], nan_ok=True)
    assert set(CREDITS) == {name for name, metric in METRICS.items() if not metric.probable}


def test_perplexity_and_mc2_are_of_the_mean_over_items_with_the_interval_of_that_mean() -> None:
    scores = np.array([-1.0, -2.0, -4.5, math.nan])
    decided = likelihood(scores, np.arange(5), np.ones(4, dtype=bool), "first")
    value = number(
        AGGREGATIONS["micro"](decided, [""] * 4, {}, False)["all"], METRICS["perplexity"]
    )
    se = np.std(scores[:3], ddof=1) / math.sqrt(3)
    assert value.value == pytest.approx(math.exp(2.5))
    assert (value.n, value.missing) == (3, 1)
    assert value.ci_low == 1  # no perplexity is less
    assert value.ci_high == pytest.approx(math.exp(2.5 + scipy.stats.t.ppf(0.975, 2) * se))
    assert value.se == pytest.approx(math.exp(2.5) * se)
    impossible = likelihood(
        np.array([-1.0, -math.inf]), np.arange(3), np.ones(2, dtype=bool), "first"
    )
    with np.errstate(invalid="ignore"):
        assert number(micro(impossible, counted=False), METRICS["perplexity"]).value == math.inf
    credit = np.array([0.9, 0.95, 0.99, 0.97, 1.0])
    value = number(
        micro(Decisions.uncompared(np.zeros(5, dtype=np.int64), credit), counted=False),
        METRICS["mc2"],
    )
    half = scipy.stats.t.ppf(0.975, 4) * credit.std(ddof=1) / math.sqrt(5)
    assert (value.ci_low, value.ci_high) == pytest.approx(
        (credit.mean() - half, min(1, credit.mean() + half))
    )


def test_credits_of_any_size_are_tested_in_the_normal_limit() -> None:
    rng = np.random.default_rng(3)
    left, right = rng.normal(-20, 6, 400), rng.normal(-21, 6, 400)
    test = sign_flip(left, right)
    signs = rng.choice([-1, 1], (20000, 400))
    reached = np.abs(signs @ (left - right)) >= abs((left - right).sum())
    assert not test.exact
    assert test.p == pytest.approx(float(reached.mean()), abs=0.01)


def test_perplexities_are_ranked_from_the_least_and_stand_apart_in_what_is_said() -> None:
    values = {"a": 9.0, "b": 4.0}
    rows = [
        replace(made(model=model, metric="perplexity"), value=value)
        for model, value in values.items()
    ]
    assert [row.ranks.rank for row in ranked(rows)] == [2, 1]
    assert sentences(finding(rows)) == [Gist("2 numbers are perplexity")]
    with_share = finding([*rows, made(value=0.5)])
    assert with_share.count == 1
    assert sentences(with_share)[-1] == Gist("2 numbers are perplexity")
    assert [plain(each) for each in (4.0, 1234.567, 3.2e7, math.nan)] == [
        "4.000",
        "1,234.57",
        "3.2e+07",
        "-",
    ]


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        ({"metric": "mc2", "score": "token_mean"}, "metric mc2 needs score sum"),
        (
            {"metric": "mc2", "reading": "rating", "continuation": "1\n2", "proposal": "{choice}"},
            "metric mc2 needs",
        ),
        (
            {"metric": "mc1", "score": "greedy", "decision": "greedy-match"},
            "metric mc1 is computed from scores",
        ),
        ({"metric": "perplexity"}, "use choices 1"),
    ],
)
def test_metrics_that_would_mean_nothing_are_refused(axes: dict[str, str], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        Protocol(benchmark="any", shots=0, **axes)  # type: ignore[arg-type]
