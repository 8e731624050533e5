"""Published boards' rules on the same answers: predictors without a model, small golden values, and a run."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from choicewise.data.decisions import KIND
from choicewise.data.items import PEOPLE
from choicewise.data.open import open_dataset
from choicewise.extensions.endpoints.decisions.boards import BOARDS, NUMBERS, Board, Question, board_numbers
from tests.helpers.predictors import PREDICTORS, Predictor

CARD, TIES, _, EVALSCOPE, OPEN, WRONG = BOARDS
POOLED = replace(CARD, name="pooled", error="pooled")


def questions(file: Path, predictor: Predictor) -> list[Question]:
    """The questions of typed-decisions with what ``predictor`` says of each from its soft answer."""
    asked = []
    for item in open_dataset(file).splits["test"]:
        soft = json.loads(item.fields[PEOPLE])
        told = predictor([share / sum(soft) for share in soft])
        about = f"{item.fields['workflow']}/{item.fields['decision_id']}"
        asked.append(Question(item.fields[KIND], item.choices, told, item.gold[0], soft, about))
    return asked


def plain(asked: Sequence[Question], floor: float) -> dict[str, float]:
    """The rules of the card, without numpy."""
    right = ties = divergence = brier = 0.0
    bins: dict[str, list[float]] = {}
    for kind, _, told, label, soft, about in asked:
        g = [share / sum(soft) for share in soft]
        order = (1, 0) if kind == "noul" else range(len(told))
        top = max(order, key=lambda option: told[option])  # the first of the highest
        right += top == label
        ties += g[top] == max(g)
        divergence += sum(one * math.log(one / max(p, floor)) for one, p in zip(g, told, strict=True) if one > 0)
        brier += sum((p - one) ** 2 for one, p in zip(g, told, strict=True))
        for name in ("", about):
            bins.setdefault(name, [0.0] * 11)
            bins[name][min(int(10 * told[top]), 9)] += told[top] - (top == label)
            bins[name][10] += 1
    errors = {name: sum(map(abs, own[:10])) / own[10] for name, own in bins.items()}
    pooled, n = errors.pop(""), len(asked)
    return {
        "accuracy": right / n,
        "ties": ties / n,
        "divergence": divergence / n,
        "brier": brier / n,
        "pooled": pooled,
        "ece": sum(errors.values()) / len(errors),
    }


def ours(asked: Sequence[Question], floor: float = 1e-12) -> dict[str, float]:
    boards = [replace(CARD, floor=floor), replace(TIES, floor=floor), POOLED]
    card, ties, pooled = board_numbers(asked, boards)
    numbers = {name: getattr(card, name) for name in ("accuracy", "divergence", "brier", "ece")}
    return {**numbers, "ties": ties.accuracy, "pooled": pooled.ece}


@pytest.mark.parametrize("floor", [1e-12, 1e-9, 1e-6])
@pytest.mark.parametrize("name", PREDICTORS)
def test_the_rules_of_the_card_are_their_formulas(name: str, floor: float, shared_data: Path) -> None:
    asked = questions(shared_data / "decisions/typed_decisions.test.first25.jsonl", PREDICTORS[name])
    assert ours(asked, floor) == pytest.approx(plain(asked, floor), abs=1e-9)


def choice(told: Sequence[float], label: int = 0, soft: Sequence[float] | None = None) -> Question:
    return Question("choice", ("b", "a", "c")[: len(told)], told, label, soft, None)


def test_unweighted_bins_are_the_mistake_that_they_are() -> None:
    pairs = [(0.55, 1), (0.58, 0), (0.82, 1), (0.95, 1), (0.99, 0)]
    asked = [choice([sure, 1 - sure], 1 - right) for sure, right in pairs]
    right, wrong = board_numbers(asked, [POOLED, replace(WRONG, soft=True)])
    assert (right.ece, wrong.ece) == pytest.approx((0.25, 0.143))
    assert wrong.reasons == ("ece of unweighted bins, divided by the items: a mistake (ece)",)


def test_who_is_right_at_a_tie_is_what_the_rule_says() -> None:
    tied = choice([0.4, 0.4, 0.2], 1, [0.5, 0.5, 0.0])
    boards = [CARD, TIES, EVALSCOPE, replace(CARD, credit="split")]
    numbers = board_numbers([tied], [replace(each, error="pooled") for each in boards])
    assert [each.accuracy for each in numbers] == [0.0, 1.0, 1.0, 0.5]  # "b", any top of the soft answer, "a", half
    yes = Question("noul", ("yes", "no"), [0.5, 0.5], 0, None, None)
    assert [each.accuracy for each in board_numbers([yes], [CARD, EVALSCOPE])] == [0.0, 1.0]


def test_floors_and_labels_have_the_known_values() -> None:
    rounded_ = choice([1.0, 0.0, 0.0], 0, [0.6, 0.4, 0.0])
    for floor, expected in ((1e-6, 4.853), (1e-9, 7.616), (1e-12, 10.379)):
        (number,) = board_numbers([rounded_], [replace(POOLED, floor=floor)])
        assert (number.divergence, number.brier) == pytest.approx((expected, 0.32), abs=5e-4)
    logs = [math.exp(log) for log in (-0.5, -1.5, -4.0)]
    (number,) = board_numbers([choice(logs)], [EVALSCOPE])  # which divides p by its sum first
    assert (number.divergence, number.brier) == pytest.approx((0.335098, 0.150777), abs=5e-7)
    noul = Question("noul", ("yes", "no"), [0.3, 0.7], 0, None, None)
    (number,) = board_numbers([noul], [EVALSCOPE])
    assert (number.brier, number.ece) == pytest.approx((0.49, 0.7))  # (p of yes - 1)², and not twice that


def test_an_answer_that_is_missing_is_left_out_or_wrong() -> None:
    asked = [choice([0.9, 0.1]), choice([math.nan, 0.1])]
    left, lost = board_numbers(asked, [EVALSCOPE, OPEN])
    assert (left.accuracy, left.n, left.missing) == (1.0, 1, 1)
    assert (lost.accuracy, lost.n, lost.reasons) == (0.5, 2, ("no answer counts as wrong (accuracy)",))
    (nothing,) = board_numbers(asked[1:], [EVALSCOPE])
    assert (nothing.n, math.isnan(nothing.accuracy), math.isnan(nothing.ece)) == (0, True, True)


def test_reasons_name_the_rules_that_move_a_number_and_no_others() -> None:
    asked = [choice([0.7, 0.3, 0.0], 0, [0.6, 0.4, 0.0]), choice([0.98, 0.02, 0.0], 0, [0.5, 0.4, 0.1])]
    first, second = board_numbers(asked, [POOLED, replace(TIES, bins=10)])
    assert first.reasons == ()
    assert second.reasons == ("p at least 1e-09 (divergence)",)
    assert first.even["accuracy"] == 1.0  # the first of equal options is the label here
    assert first.even["brier"] == pytest.approx(sum((1 / 3 - g) ** 2 for q in asked for g in q.soft) / 2)


@pytest.mark.parametrize("rule", sorted(set(Board.__slots__) - {"name", "source", "kinds", "unsaid"}))
def test_every_rule_in_which_boards_differ_is_a_reason(rule: str) -> None:
    """Each of them moves some number of these answers."""
    other = {
        **{"top": "smallest", "credit": "split", "soft": False, "floor": 1e-3, "normalised": True, "yes": True},
        **{"bins": 2, "error": "unweighted", "lost": True},
    }
    asked = [
        choice([0.4, 0.4, 0.0], 1, [0.5, 0.4, 0.1]),
        choice([0.9, 0.05, 0.05], 0, [0.8, 0.1, 0.1]),
        choice([0.94, 0.03, 0.03], 1, [0.8, 0.1, 0.1]),
        choice([0.6, 0.2, 0.2], 0, [0.8, 0.1, 0.1]),
        choice([math.nan, 0.5], 0, [1.0, 0.0]),
        Question("noul", ("yes", "no"), [0.3, 0.7], 0, [0.6, 0.4], None),
    ]
    (first, second) = board_numbers(asked, [POOLED, replace(POOLED, **{rule: other[rule]})])
    assert len(second.reasons) == 1
    assert any(getattr(first, name) != getattr(second, name) for name in NUMBERS)
