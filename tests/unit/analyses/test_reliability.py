"""Metrics of probabilities on whole runs: against plain sums over the scores, by groups, pairs, and temperatures."""

import math

import numpy as np
import pytest

from choicewise import evaluate, open_run
from choicewise.errors import UsageError
from choicewise.extensions.analyses.charts.stored import chain
from choicewise.extensions.analyses.statistics import reliability
from choicewise.extensions.comparison.compare import comparisons
from choicewise.protocols.between import under_metrics
from choicewise.protocols.metrics import CHAIN
from choicewise.results.outcomes import influence, outcomes_of, ranked
from choicewise.results.temperature import with_temperature
from tests.helpers.mmlu_data import write_mmlu

PROTOCOLS = ["mmlu/olmes-cf", "mmlu/olmes-mcf", "mmlu/olmes-mcf@views=cyclic"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One model on test and validation items, another on test items."""
    folder = tmp_path_factory.mktemp("metrics")
    data = write_mmlu(folder / "data")
    for name, model, split in (
        ("a", "hash", "test"),
        ("b", "anti-oracle", "test"),
        ("val", "hash", "validation"),
    ):
        chosen = [f"{each}{',' if '@' in each else '@'}split={split}" for each in PROTOCOLS]
        evaluate(model=f"fake:{model}", data=data, protocols=chosen, out=folder / name)
    return {name: open_run(folder / name) for name in ("a", "b", "val")}


def under(run, *metrics):
    return run.under(under_metrics(run.protocols, metrics))


def test_bits_are_the_sums_of_the_tokens_over_the_bytes(runs):
    made = under(runs["a"], "bpb")
    row = next(
        row for row in made.rows(by="micro") if "olmes-cf:byte_mean@" in row.identity.protocol
    )
    table = runs["a"].observations().to_pylist()
    prompt = made.protocols[row.identity.protocol].prompt_digest
    gold = {item["item"]: item["gold"][0] for item in runs["a"].tables.items.to_pylist()}
    right = (
        each for each in table if each["prompt"] == prompt and gold[each["item"]] == each["choice"]
    )
    bits = [
        -sum(each["logprobs"]) / math.log(2) / sum(each["sizes"])
        for each in right
        if each["null"] is None
    ]
    assert row.counts.n == len(bits) == 12
    assert row.value == pytest.approx(np.mean(bits), rel=1e-6)
    assert row.se == pytest.approx(np.std(bits, ddof=1) / math.sqrt(12), rel=1e-6)
    assert row.interval.low < row.value < row.interval.high
    assert math.isnan(row.chance)


def test_brier_is_that_of_the_table_of_probabilities(runs):
    name = "mmlu/olmes-mcf"
    shares = np.array(runs["a"].distribution(name)["softmax"]).reshape(12, 4)
    gold = np.array([item["gold"][0] for item in runs["a"].tables.items.to_pylist()])
    expected = ((shares - np.eye(4)[gold]) ** 2).sum(axis=1)
    row = next(
        row
        for row in under(runs["a"], "brier").rows()
        if row.identity.protocol == "mmlu/olmes-mcf@metric=brier"
    )
    assert row.value == pytest.approx(expected.mean())
    assert (row.chance, row.share, row.merit) == (pytest.approx(0.75), False, -row.value)
    assert row.calibrated == pytest.approx((1 - (shares**2).sum(axis=1)).mean())


def test_groups_have_numbers_of_their_own_and_calibration_is_of_all_together(runs):
    made = under(runs["a"], "ece")
    whole = {row.identity.protocol: row for row in made.rows()}
    parts = made.rows(by="subjects")
    assert {row.identity.subject for row in parts} == {"tides", "trees"}
    assert all(row.counts.n == 6 for row in parts)
    for row in parts:
        assert 0 <= row.interval.low <= row.value <= 1
    assert any(
        not math.isclose(
            whole[name].value,
            np.mean([row.value for row in parts if row.identity.protocol == name]),
        )
        for name in whole
    )
    for measured in made.measurements.values():
        bins = reliability("ece", measured.judged)
        assert sum(bin.n for bin in bins) == 12
        error = sum(bin.n * abs(bin.confidence - bin.right) for bin in bins) / 12
        assert measured.overall == pytest.approx(error)


def test_long_answers_weigh_more_in_bits_by_bytes(runs):
    made = under(runs["a"], "bpb-bytes")
    row = made.rows()[0]
    measured = made.measurements[row.identity.protocol]
    judged = measured.judged
    gold = judged.gold
    bits, size = -judged.scores[gold] * judged.bytes[gold] / math.log(2), judged.bytes[gold]
    assert row.value == pytest.approx(bits.sum() / size.sum())
    assert np.nanmean(measured.credit) == pytest.approx(row.value)
    kept = influence(outcomes_of(made).outcomes[0])
    assert (kept.value, math.sqrt((kept.by_item(within=False) ** 2).sum())) == (
        pytest.approx(row.value),
        pytest.approx(row.se),
    )


def test_orders_are_counted_over_the_views(runs):
    rows = {
        row.identity.metric: row
        for row in under(
            runs["b"], "all-orders", "worst-order", "flip-rate", "position-prior"
        ).rows()
    }
    assert rows["all-orders"].value == rows["worst-order"].value == 0
    assert rows["position-prior"].value >= 0.25
    assert 0 <= rows["flip-rate"].value <= 1
    same = {
        row.identity.metric: row.value
        for row in under(runs["a"], "all-orders", "worst-order").rows()
    }
    assert same["all-orders"] <= same["worst-order"] <= 1


def test_two_models_are_compared_item_by_item_and_less_is_better(runs):
    metrics = ("bpb", "brier", "ece", "bpb-bytes")
    for metric in metrics:
        left, right = under(runs["a"], metric), under(runs["b"], metric)
        for each in comparisons(left, right, []):
            assert each.difference.value == pytest.approx(
                each.left.value - each.right.value, abs=1e-9
            )
            assert each.flips.left_better + each.flips.right_better <= 12
            assert math.isnan(each.test.p) == (metric == "ece"), "a sample's ece leans to one side"
            assert math.isnan(each.difference.ci_low) == (metric == "ece")
        placed = ranked([*left.rows(), *right.rows()])
        for row in placed:
            other = next(
                o
                for o in placed
                if o.identity.protocol == row.identity.protocol
                and o.identity.model != row.identity.model
            )
            assert (row.ranks.rank or 0) <= (other.ranks.rank or 0) or row.value > other.value
    with pytest.raises(UsageError, match="acc and brier"):
        comparisons(runs["a"], None, ["mmlu/olmes-mcf", "mmlu/olmes-mcf@metric=brier"])


def test_the_chain_goes_from_log_probability_to_accuracy(runs):
    rows = chain(runs["a"], "mmlu/olmes-mcf")
    assert tuple(row.identity.metric for row in rows) == CHAIN
    assert [row.identity.metric for row in chain(runs["a"], "mmlu/olmes-cf:pmi-empty")] == [
        *CHAIN[2:]
    ]


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_a_temperature_is_fitted_on_other_items_and_stands_in_the_signature(runs):
    scored = under(runs["a"], "log-score")
    fitted, lines = with_temperature(scored, runs["val"])
    assert len(lines) == len(scored.protocols)
    for name, protocol in fitted.protocols.items():
        assert float(protocol.temperature) > 0
        assert protocol.temperature in next(
            row.identity.signature for row in fitted.rows() if row.identity.protocol == name
        )
    own, _ = with_temperature(under(runs["val"], "log-score"), runs["a"])
    accuracy = {
        name: row.counts.n for name, row in ((row.identity.protocol, row) for row in own.rows())
    }
    assert set(accuracy.values()) == {12}
    with pytest.raises(UsageError, match="share items"):
        with_temperature(scored, runs["b"])
    assert with_temperature(under(runs["a"], "bpb"), runs["val"])[1] == []


def test_people_are_asked_for_where_a_metric_needs_them(runs):
    row = under(runs["a"], "kl").rows()[0]
    assert (row.counts.n, row.counts.missing) == (0, 12)
    assert "human_counts" in row.missing_reasons[0].reason
