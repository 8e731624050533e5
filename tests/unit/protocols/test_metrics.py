"""Metrics as an axis: what protocols can have them, what they are called, and names of other tools."""

from pathlib import Path

import pytest

from choicewise.errors import ProtocolError, UsageError
from choicewise.protocols.between import under_metrics
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.metrics import METRIC_NAMES, METRICS
from choicewise.protocols.protocol import parse_signature, signature


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_has_a_range_and_says_what_it_is(name):
    metric = METRICS[name]
    assert metric.low < metric.high
    assert len(metric.description) > 20
    assert not (metric.share and metric.probable)


@pytest.mark.parametrize("metric", [*METRICS, *METRIC_NAMES])
def test_a_derived_protocol_is_what_its_name_says(metric):
    suite = resolve(
        "mmlu/olmes-cf",
        "mmlu/olmes-mcf",
        "mmlu/olmes-mcf@views=cyclic",
        "mmlu/olmes-mcf@prepare=dont-know",
    )
    if metric in ("exact_match", "mc1", "mc2", "mc2-split", "perplexity"):
        return  # metrics of certain benchmarks
    made = under_metrics(suite, [metric])
    assert made
    for name, protocol in made.items():
        assert resolve(name) == {name: protocol}
        assert parse_signature(signature(protocol)) == protocol
        assert (
            all(
                getattr(protocol, axis) == value
                for axis, value in METRIC_NAMES[metric].axes.items()
            )
            if (metric in METRIC_NAMES)
            else protocol.metric == metric
        )


def test_one_protocol_stands_for_all_scores_of_a_prompt():
    made = under_metrics(resolve("mmlu/olmes-cf"), ["bpb"])
    assert [*made] == [
        "mmlu/olmes-cf:byte_mean@metric=bpb",
        "mmlu/olmes-cf:byte_mean_bare@metric=bpb",
    ]
    assert [*under_metrics(resolve("mmlu/olmes-mcf"), ["bpb-bytes"])] == [
        "mmlu/olmes-mcf@metric=bpb,score=byte_mean,aggregation=bytes"
    ] or len(under_metrics(resolve("mmlu/olmes-mcf"), ["bpb-bytes"])) == 1
    assert len(under_metrics(resolve("mmlu/olmes-cf"), ["brier", "acc"])) == 2 * len(
        resolve("mmlu/olmes-cf")
    )


def test_the_digests_of_before_the_new_axes_stay():
    protocol = resolve("mmlu/olmes-mcf")["mmlu/olmes-mcf"]
    text = "|".join(
        part
        for part in signature(protocol).split("|")
        if not part.startswith(("golds:", "temperature:"))
    )
    assert parse_signature(text) == protocol
    assert parse_signature(text).digest == protocol.digest


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("mmlu/olmes-cf:sum@metric=bpb", "needs score byte_mean or byte_mean_bare"),
        ("mmlu/olmes-cf:pmi-empty@metric=prob", "needs score sum"),
        ("mmlu/olmes-mcf@metric=flip-rate", "views cyclic or full, and calibration none"),
        ("mmlu/olmes-mcf@metric=dcs", "prepare dont-know"),
        ("mmlu/olmes-mcf@metric=ece,aggregation=macro", "aggregation micro"),
        ("mmlu/olmes-mcf@aggregation=bytes", "aggregation bytes .* metric bpb"),
        ("mmlu/olmes-mcf@temperature=2", "metric acc has none; use temperature 1"),
        ("mmlu/olmes-mcf@metric=brier,temperature=0", "number above 0"),
        ("mmlu/olmes-mcf@metric=brier,temperature=nan", "number above 0"),
        ("mmlu/olmes-mcf@golds=max", "use golds sum"),
        ("mmlu/helm@metric=brier", "decision argmax"),
    ],
)
def test_what_means_nothing_is_refused(selector, words):
    with pytest.raises(ProtocolError, match=words):
        resolve(selector)


def test_unknown_metrics_and_those_that_no_protocol_has_are_told():
    with pytest.raises(UsageError, match="metric is called 'bier'; did you mean brier"):
        under_metrics(resolve("mmlu/olmes-mcf"), ["bier"])
    with pytest.raises(UsageError, match="none of 1 protocols .* flip-rate"):
        under_metrics(resolve("mmlu/olmes-mcf"), ["flip-rate"])


def test_the_documentation_names_every_metric():
    page = (Path(__file__).parents[3] / "docs/statistics.md").read_text(encoding="utf-8")
    assert not [
        name
        for name, metric in METRICS.items()
        if not metric.share and f"| `{name}` | {metric.description}" not in page
    ]
