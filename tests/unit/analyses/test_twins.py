"""What is said of a model and its twin, beside plain loops over what was stored."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.extensions.analyses.twins import Twins
from choicewise.extensions.analyses.twins_report import twin_lines
from choicewise.extensions.comparison.compare import comparisons
from choicewise.models.fake import HashModel
from choicewise.report.tables import nats
from choicewise.results.comparison import Comparison
from choicewise.results.run import Run
from choicewise.scoring.decide import divergences
from choicewise.scoring.intervals import wilson
from choicewise.scoring.significance import Difference, lost_per_token
from choicewise.util.jsonio import json_value
from tests.helpers.hash_models import Failing, MergingModel, third
from tests.helpers.mmlu_data import write_mmlu

SCORES = ["mmlu/harness-v1", "mmlu/cloze:token_mean"]
NAMES = [*SCORES, "options/free-simple-evals"]

SCORE = st.one_of(st.floats(-60, 0), st.sampled_from([-math.inf, math.nan]))
ITEMS = st.lists(st.lists(st.tuples(SCORE, SCORE), min_size=1, max_size=5), min_size=1, max_size=6)


def laid_out(items: list[list[tuple[float, float]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left scores, right scores and where the items begin."""
    left, right = np.array([pair for item in items for pair in item]).T
    return left, right, np.cumsum([0, *map(len, items)])


def shares(scores: list[float]) -> list[float]:
    weights = [math.exp(score - max(scores)) for score in scores]
    return [weight / sum(weights) for weight in weights]


@given(ITEMS)
def test_the_divergence_of_choices_is_the_sum_of_its_definition(
    items: list[list[tuple[float, float]]],
) -> None:
    for item, found in zip(items, divergences(*laid_out(items)), strict=True):
        sides = [list(side) for side in zip(*item, strict=True)]
        if any(math.isnan(score) for side in sides for score in side) or any(
            max(side) == -math.inf for side in sides
        ):
            assert math.isnan(found)
            continue
        p, q = map(shares, sides)
        if any(one > 0 and other == -math.inf for one, other in zip(p, sides[1], strict=True)):
            assert found == math.inf
        else:
            plain = sum(
                one * math.log(one / other) for one, other in zip(p, q, strict=True) if one > 0
            )
            assert found == pytest.approx(plain, abs=1e-9)
            assert found >= 0


COUNTED = st.lists(
    st.lists(
        st.tuples(st.floats(-9, 0), st.floats(-9, 0), st.integers(0, 7), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    min_size=2,
    max_size=6,
)


@given(COUNTED)
def test_what_is_lost_is_a_ratio_of_sums_with_the_error_of_one(
    items: list[list[tuple[float, ...]]],
) -> None:
    rows = [row for item in items for row in item]
    left, right = (np.array([row[side] if row[2] else math.nan for row in rows]) for side in (0, 1))
    tokens, among = (
        np.array([int(row[2]) for row in rows]),
        np.array([bool(row[3]) for row in rows]),
    )
    found = lost_per_token(left, right, tokens, np.cumsum([0, *map(len, items)]), among)
    kept = [[row for row in item if row[3]] for item in items]
    scored = [
        item for item in kept if item and all(row[2] for row in item)
    ]  # an answer without tokens was not seen
    if not scored:
        assert found is None
        return
    assert found is not None
    lost = [sum(row[0] - row[1] for row in item) for item in scored]
    weights = [sum(row[2] for row in item) for item in scored]
    ratio = sum(lost) / sum(weights)
    assert (found.value, found.n) == (pytest.approx(ratio, abs=1e-9), len(scored))
    errors = [one - ratio * weight for one, weight in zip(lost, weights, strict=True)]
    if not math.isnan(found.se):
        n = len(scored)
        squares = sum(error**2 for error in errors) / (n - 1)
        assert found.se == pytest.approx(math.sqrt(squares / n) / (sum(weights) / n), abs=1e-7)
    else:
        assert len(scored) < 2 or np.ptp(errors) < 1e-7


Evaluate = Callable[..., Run]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    """Evaluates a model into a folder of its own, on 60 items of 20 subjects if nothing else is said."""
    data = write_mmlu(
        tmp_path_factory.mktemp("data"), tuple(f"subject{n}" for n in range(20)), questions=3
    )

    def into(model: HashModel, **asked: Any) -> Run:
        asked = {"protocols": NAMES, **asked}
        return evaluate(model=model, data=data, out=tmp_path_factory.mktemp("run") / "run", **asked)

    return into


@pytest.fixture(scope="module")
def run(evaluated: Evaluate) -> Run:
    return evaluated(HashModel())


def one(left: Run, right: Run, protocol: str) -> Comparison:
    (found,) = comparisons(left, right, [protocol])
    return found


def figures(left: Run, right: Run, protocol: str) -> Twins:
    figure = one(left, right, protocol).figures["twins"]
    assert isinstance(figure, Twins)
    return figure


def stored(run: Run, protocol: str) -> dict[tuple[str, int], np.ndarray]:
    """The log-probabilities of every choice, by item and place, as the run folder has them."""
    tables, prompt = run.evidence.tables, run.protocols[protocol].prompt_digest
    seen = dict(
        zip(
            tables.observations["key"].to_pylist(),
            tables.observations["logprobs"].to_pylist(),
            strict=True,
        )
    )
    return {
        (span["item"], span["choice"]): np.array(seen[span["key"]])
        for span in tables.spans.to_pylist()
        if span["prompt"] == prompt and span["null"] is None and span["part"] == 0
    }


@pytest.mark.costly("two runs are evaluated and compared")
@pytest.mark.parametrize("protocol", SCORES)
def test_a_comparison_has_what_loops_over_the_folder_have(
    protocol: str, run: Run, evaluated: Evaluate
) -> None:
    other = evaluated(HashModel(1), protocols=SCORES)
    apart = figures(run, other, protocol)
    sides = [stored(each, protocol) for each in (run, other)]
    measured = [each.measurements[protocol] for each in (run, other)]
    gold = {
        item: right
        for item, (right,) in zip(measured[0].evidence.ids, measured[0].evidence.gold, strict=True)
    }

    def mean_lost(right_alone: bool) -> float:
        lost = [
            sides[0][place] - sides[1][place]
            for place in sides[0]
            if place[1] == gold[place[0]] or not right_alone
        ]
        return float(np.concatenate(lost).mean())

    assert apart.lost_right is not None
    assert apart.lost_all is not None
    assert (apart.lost_right.value, apart.lost_all.value) == pytest.approx(
        (mean_lost(True), mean_lost(False))
    )
    reduced = np.sum if protocol == SCORES[0] else np.mean
    divergence, changed, ways = list[float](), 0, [0, 0]
    for item, right in gold.items():
        p, q = (
            shares([float(reduced(side[item, choice])) for choice in range(4)]) for side in sides
        )
        divergence.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
        chosen = int(np.argmax(p)), int(np.argmax(q))
        changed += chosen[0] != chosen[1]
        ways[0] += chosen[0] == right != chosen[1]
        ways[1] += chosen[0] != right == chosen[1]
    assert apart.divergence is not None
    assert apart.divergence.value == pytest.approx(np.mean(divergence))
    assert apart.divergence.se == pytest.approx(np.std(divergence, ddof=1) / math.sqrt(60))
    assert 0 <= apart.divergence.ci_low < apart.divergence.ci_high
    flips = apart.flips
    assert flips is not None
    assert (flips.n, flips.changed, flips.right_to_wrong, flips.wrong_to_right) == (
        60,
        changed,
        *ways,
    )
    assert flips.share == changed / 60
    assert (flips.ci_low, flips.ci_high) == wilson(flips.share, 60)


@pytest.mark.costly("runs are evaluated and compared")
def test_what_is_not_defined_is_not_said(run: Run, evaluated: Evaluate) -> None:
    other = evaluated(HashModel(1), protocols=NAMES[2:])
    written = one(run, other, NAMES[2])
    apart = written.figures["twins"]
    assert (apart.divergence, apart.lost_right, apart.lost_all) == (None, None, None)
    assert [line[:9] for line in twin_lines(written, apart)] in (
        [],
        ["twins: bo"],
        ["twins: bo", "  flips  "],
    )
    in_other_tokens = evaluated(MergingModel(b" th"), protocols=SCORES)
    assert one(run, in_other_tokens, SCORES[0]).figures["twins"] is None
    again = one(run, evaluated(HashModel(), protocols=SCORES), SCORES[0])
    same = again.figures["twins"]
    assert (same.divergence.value, same.divergence.n, list(twin_lines(again, same))) == (0, 60, [])


@pytest.mark.costly("runs are evaluated and compared")
def test_items_without_an_answer_are_missing_and_counted(run: Run, evaluated: Evaluate) -> None:
    partly = evaluated(Failing(third), protocols=SCORES[:1])
    apart = figures(run, partly, SCORES[0])
    (scores,) = (each.scores for each in partly.measurements.values())
    assert scores is not None
    lacking = int(np.isnan(scores).reshape(60, 4).any(axis=1).sum())
    assert apart.divergence is not None
    assert apart.lost_all is not None
    assert (apart.divergence.missing, apart.lost_all.missing) == (lacking, lacking)
    assert 0 < lacking < 60
    assert json_value(apart)["divergence"]["value"] == 0


def test_an_interval_is_said_where_there_is_one() -> None:
    assert (
        nats(Difference(value=0.01234, se=0.001, ci_low=0.01, ci_high=0.0145, n=9, missing=0))
        == "0.0123 [0.01 – 0.0145]"
    )
    assert (
        nats(
            Difference(
                value=math.inf, se=math.nan, ci_low=math.nan, ci_high=math.nan, n=9, missing=0
            )
        )
        == "inf"
    )
