"""Metrics of probabilities beside what other tools' own functions make of the same log-likelihoods."""

import json
from typing import Any

import numpy as np
import pytest

from choicewise.protocols.metrics import METRIC_NAMES
from choicewise.scoring.probabilities import Judged, credits
from tests.paths import GOLDENS

GOLDEN = json.loads((GOLDENS / "metrics.json").read_text(encoding="utf-8"))
HARNESS, OLMO = GOLDEN["lm-evaluation-harness 0.5.0.dev1"], GOLDEN["olmo-eval@e8b88f1"]


def judged(score: str, weighted: bool = False) -> Judged:
    """The items with the sums as scores, or their means over the bytes of the continuation with its space."""
    items: list[dict[str, Any]] = GOLDEN["items"]
    offsets = np.cumsum([0, *(len(each["choices"]) for each in items)])
    sums = np.array([total for each in items for total in each["sums"]])
    sizes = np.array(
        [len(text.encode()) for each in items for text in each["choices"]], dtype=np.float64
    )
    right = np.zeros(len(sums), dtype=np.bool_)
    right[offsets[:-1] + [each["gold"] for each in items]] = True
    scores = sums if score == "sum" else sums / sizes
    best = np.array([int(np.argmax(part)) for part in np.split(scores, offsets[1:-1])])
    hit = right[offsets[:-1] + best].astype(np.float64)
    return Judged(
        scores=scores,
        item_offsets=offsets,
        right=right,
        prediction=best,
        hit=hit,
        bytes=sizes if weighted else None,
    )


@pytest.mark.parametrize(
    ("theirs", "ours", "score", "sign"),
    [
        ("bpb", "bpb", "byte_mean", 1),
        ("logprob", "logprob", "sum", 1),
        ("choice_logprob", "log-score", "sum", -1),
        ("choice_prob_norm", "norm-prob", "byte_mean", 1),
        ("choice_logprob_norm", "log-score", "byte_mean", -1),
        ("brier_score", "brier", "sum", 1),
    ],
)
def test_every_item_has_the_number_of_the_harness(
    theirs: str, ours: str, score: str, sign: int
) -> None:
    assert sign * credits(ours, judged(score)) == pytest.approx(
        HARNESS[theirs], rel=1e-12, abs=1e-12
    )
    if theirs in METRIC_NAMES:
        golds = {"golds": "each"} if ours == "brier" else {}  # of one right answer the same
        assert METRIC_NAMES[theirs].axes == {"metric": ours, "score": score, **golds}
        assert ("negative" in METRIC_NAMES[theirs].note) == (sign < 0)


def test_bits_per_byte_are_those_of_olmo_eval_under_both_meanings_of_the_name() -> None:
    assert credits("bpb", judged("byte_mean")).mean() == pytest.approx(OLMO["instances"], rel=1e-12)
    assert credits("bpb", judged("byte_mean", weighted=True)).mean() == pytest.approx(
        OLMO["bytes"], rel=1e-12
    )
    assert OLMO["instances"] != pytest.approx(OLMO["bytes"], rel=1e-3)


def test_nothing_scored_is_no_number_here_and_perfect_there() -> None:
    one = judged("byte_mean")
    missing = Judged(
        scores=np.full_like(one.scores, np.nan),
        item_offsets=one.item_offsets,
        right=one.right,
        prediction=one.prediction,
        hit=one.hit,
    )
    assert np.isnan(credits("bpb", missing)).all()
    assert OLMO["nothing scored"] == 0.0
