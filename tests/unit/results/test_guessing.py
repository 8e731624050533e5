"""Which scores are called better than guessing: few of guessers', those of a model that knows something."""

from pathlib import Path

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.models.fake import HashModel
from choicewise.results.guessing import guesses, guessing
from choicewise.results.number import Number
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.rows import NAMES, made

SHARES = [name for name in NAMES if made(name).counted]


def drawn(rng: np.random.Generator, knows: float, n: int = 200) -> list[Number]:
    """A row under every protocol of a model that is right on so many questions of four choices."""
    return [made(name, rng.binomial(n, knows) / n, n=n) for name in SHARES]


def test_a_model_that_is_right_on_45_percent_of_200_questions_is_called_better() -> None:
    found = [guessing(drawn(np.random.default_rng(seed), 0.45)) for seed in range(20)]
    assert sum(each.better > 0 for each in found) >= 19


def test_guessers_are_seldom_called_better() -> None:
    """Without a correction 14 of 16 are."""
    found = [guessing(drawn(np.random.default_rng(seed), 0.25)) for seed in range(16)]
    assert sum(each.better > 0 for each in found) <= 1
    assert sum(each.beating > 0 for each in found) >= 8
    assert all(each.lucky for each in found if each.beating and not each.better)


def test_protocols_with_the_same_predictions_are_one_test() -> None:
    rows = [made(name, 0.35, predictions="the same") for name in SHARES[:10]]
    assert guesses(rows) == [False] * 10
    assert guesses([made(name, 0.35) for name in SHARES[:10]]) == [True] * 10


def test_the_oracle_is_better_on_20_questions_and_on_fewer_nothing_is(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", questions=10)
    for limit, better in ((None, True), (5, False)):
        run = evaluate(
            model="fake:oracle",
            data=data,
            protocols=["mmlu/original"],
            out=tmp_path / str(limit),
            limit=limit,
        )
        (row,) = run.rows()
        assert row.value == 1
        assert (guessing([row]).better == 1) == better


@pytest.mark.parametrize("seed", [1, 3])
def test_a_sample_is_tested_as_questions_without_end(tmp_path: Path, seed: int) -> None:
    """The interval for the 40 questions that 39 were drawn from lies above guessing as soon as a guesser has luck."""
    data = write_mmlu(tmp_path / "data", questions=20)
    asked = {"data": data, "protocols": ["mmlu/original"], "sample": 39, "seed": seed}
    (row,) = evaluate(model=HashModel(seed), out=tmp_path / "run", **asked).rows()
    assert row.population == 40
    assert row.interval.low > row.chance
    assert row.diagnosis.guessing_p > 0.05
    assert guessing([row]).better == 0
