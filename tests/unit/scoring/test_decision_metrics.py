"""Metrics of decisions: small golden values, and predictors without a model on typed questions with soft answers."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from choicewise.data.decisions import KIND
from choicewise.data.items import PEOPLE, Item
from choicewise.data.open import open_dataset
from choicewise.scoring.decide import argmax, option_mass
from choicewise.scoring.probabilities import Judged, credits, pooled, uniform
from tests.helpers.predictors import PREDICTORS, Predictor

LOGS = [-0.5, -1.5, -4.0]  # full-vocabulary log-probabilities of three labels


def judge(
    rows: list[list[float]], right: list[int], soft: list[list[float]] | None = None, **more: float
) -> Judged:
    """Items as log-probabilities of their choices; ``soft``: a probability per choice."""
    offsets = np.cumsum([0, *map(len, rows)])
    scores, gold = np.concatenate(rows), np.zeros(offsets[-1], dtype=bool)
    gold[offsets[:-1] + right] = True
    decided = argmax(scores, offsets, gold, "first")
    people = None if soft is None else np.concatenate(soft)
    return Judged(
        scores=scores,
        item_offsets=offsets,
        right=gold,
        prediction=decided.prediction,
        hit=decided.credit,
        soft=people,
        **more,
    )


def test_a_choice_a_score_and_temperatures_have_the_known_values() -> None:
    choice = judge([LOGS], [0])
    assert choice.shares == pytest.approx([0.71527, 0.26313, 0.02160], abs=5e-6)
    assert option_mass(np.array(LOGS), choice.item_offsets) == pytest.approx([0.84798], abs=5e-6)
    assert credits("log-score", choice) == pytest.approx([0.335098], abs=5e-7)
    assert credits("brier", choice) == pytest.approx([0.150777], abs=5e-7)
    assert credits("prob", choice) == pytest.approx(
        [0.60653], abs=5e-6
    )  # vLLM's confidence: exp of the top label
    assert -credits("logprob", choice) == pytest.approx([0.5])  # not normalised over the labels
    score = judge([np.log([0.1, 0.2, 0.7]).tolist()], [1])
    expected = {"log-score": 1.609438, "brier": 1.14, "rps": 0.25, "mae": 0.6}
    assert {name: float(credits(name, score)[0]) for name in expected} == pytest.approx(
        expected, abs=5e-7
    )
    for heat, shares in ((1.0, [0.74020, 0.22294, 0.03685]), (2.0, [0.56435, 0.30972, 0.12592])):
        assert judge([[0, -1.2, -3]], [0], temperature=heat).shares == pytest.approx(
            shares, abs=5e-6
        )


def test_a_bin_weighs_as_many_items_as_it_has() -> None:
    """.143 would be the unweighted sum over bins, divided by the number of items."""
    pairs = [(0.55, 1), (0.58, 0), (0.82, 1), (0.95, 1), (0.99, 0)]
    judged = judge(
        [[math.log(sure), math.log1p(-sure)] for sure, _ in pairs],
        [1 - right for _, right in pairs],
    )
    assert pooled("ece", judged, np.ones(5, dtype=bool)).value == pytest.approx(0.25)


def test_a_tenth_that_float32_keeps_is_in_its_own_bin() -> None:
    """.6, of which float32 keeps a little less, and .59 are in two bins, whose errors do not make up for each other."""
    tenths = [float(np.float32(math.log(p))) for p in (0.6, 0.4, 0.59, 0.41)]
    judged = judge([tenths[:2], tenths[2:]], [0, 1])
    assert pooled("ece", judged, np.ones(2, dtype=bool)).value == pytest.approx((0.4 + 0.59) / 2)


def plain(predictor: Predictor, golds: list[list[float]], labels: list[int]) -> dict[str, float]:
    """The same numbers from their formulas; no predictor here reaches the floor."""
    totals, bins = (
        dict.fromkeys(("acc", "kl", "brier-soft", "tv", "soft-accuracy"), 0.0),
        [0.0] * 10,
    )
    for gold, label in zip(golds, labels, strict=True):
        p = predictor(gold)
        top = p.index(max(p))
        totals["acc"] += top == label
        totals["soft-accuracy"] += gold[top]
        totals["kl"] += sum(
            g * math.log(g / max(q, 1e-40)) for g, q in zip(gold, p, strict=True) if g > 0
        )
        totals["brier-soft"] += sum((q - g) ** 2 for g, q in zip(gold, p, strict=True))
        totals["tv"] += sum(abs(q - g) for g, q in zip(gold, p, strict=True)) / 2
        bins[min(int(10 * p[top]), 9)] += p[top] - (top == label)
    n = len(golds)
    return {name: total / n for name, total in totals.items()} | {"ece": sum(map(abs, bins)) / n}


def ours(predictor: Predictor, golds: list[list[float]], labels: list[int]) -> dict[str, float]:
    with np.errstate(divide="ignore"):
        judged = judge([np.log(predictor(gold)).tolist() for gold in golds], labels, golds)
    means = {
        name: float(credits(name, judged).mean())
        for name in ("kl", "brier-soft", "tv", "soft-accuracy")
    }
    ece = pooled("ece", judged, np.ones(len(golds), dtype=bool)).value
    return {"acc": float(judged.hit.mean()), "ece": ece, **means}


def golds_of(items: list[Item]) -> tuple[list[list[float]], list[int]]:
    """Shares that sum to 1, and the labels; a noul with its ``false`` first, as the published table has them."""
    golds, labels = [], []
    for item in items:
        shares = json.loads(item.fields[PEOPLE])
        shares, label = [share / sum(shares) for share in shares], item.gold[0]
        if item.fields[KIND] == "noul":
            shares, label = shares[::-1], 1 - label
        golds.append(shares)
        labels.append(label)
    return golds, labels


@pytest.mark.parametrize("name", ["uniform", "gold", "sharp 3", "sharp 5"])
def test_predictors_without_a_model_have_the_numbers_of_the_formulas(
    name: str, shared_data: Path
) -> None:
    items = list(
        open_dataset(shared_data / "decisions/typed_decisions.test.first25.jsonl").splits["test"]
    )
    golds, labels = golds_of(items)
    expected = plain(PREDICTORS[name], golds, labels)
    assert ours(PREDICTORS[name], golds, labels) == pytest.approx(expected, abs=1e-9)
    if name == "uniform":  # of any order of the options the mean is an even share
        judged = judge([[0.0] * len(gold) for gold in golds], labels, golds)
        assert uniform("soft-accuracy", judged) == pytest.approx([1 / len(gold) for gold in golds])
    if name == "gold":
        assert (expected["kl"], expected["ece"] > 0.3) == (
            0,
            True,
        )  # the truth itself is "badly calibrated"
