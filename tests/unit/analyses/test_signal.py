"""Signal and noise over checkpoints against the published formulae, and what the names of checkpoints say."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from choicewise.errors import UsageError
from choicewise.extensions.analyses.signal import (
    CHAIN,
    LAST,
    MODELS,
    Checkpoint,
    Training,
    compute_correlations,
    decision_accuracy,
    parse_checkpoint,
    separation,
    signals,
    trainings,
)
from choicewise.extensions.analyses.signal_report import signal_tables
from choicewise.results.outcomes import Summary
from choicewise.results.run import Run
from choicewise.scoring.observed import Floats
from choicewise.table import as_json
from tests.helpers.many_models import PROTOCOLS, one_run, summary
from tests.helpers.messages import Gist
from tests.helpers.rows import altered, made

ONE, OTHER = PROTOCOLS
ITEMS = 30
CHECKPOINTS = np.array([0.50, 0.51, 0.49, 0.52, 0.50])


def test_signal_over_noise_is_the_published_value() -> None:
    known = separation(np.array([0.40, 0.45, 0.52]), CHECKPOINTS)
    assert known.snr == pytest.approx(12.98661, abs=5e-6)
    assert (known.signal, known.noise) == (
        pytest.approx(0.12 / 0.456667, abs=1e-6),
        pytest.approx(0.0102 / 0.504, 1e-3),
    )
    assert (known.models, known.checkpoints) == (3, 5)


def test_the_noise_of_several_training_runs_is_that_within_each() -> None:
    """Not that between them, which the published small scale holds as well."""
    models, other = np.array([0.40, 0.45, 0.52]), CHECKPOINTS + 0.3
    together = separation(models, CHECKPOINTS, other)
    both = np.concatenate([CHECKPOINTS, other])
    assert together.noise == pytest.approx(CHECKPOINTS.std() / both.mean())
    assert together.checkpoints == 10
    assert together.noise < both.std() / both.mean() / 5


def test_the_error_is_the_spread_over_draws_of_models_and_checkpoints() -> None:
    rng = np.random.default_rng(2)
    models, checkpoints = rng.normal(0.5, 0.1, 12), rng.normal(0.6, 0.01, 30)
    known = separation(models, checkpoints, draws=4000)
    drawn = []
    for _ in range(4000):
        own, last = rng.choice(models, 12), rng.choice(checkpoints, 30)
        drawn.append(np.ptp(own) / own.mean() / (last.std() / last.mean()))
    assert known.se == pytest.approx(np.diff(np.quantile(drawn, [0.16, 0.84]))[0] / 2, rel=0.1)


@pytest.mark.parametrize(
    ("models", "checkpoints"),
    [([0.5], [0.1, 0.2, 0.3]), ([0.5, 0.6], [0.1, 0.2]), ([0.5, 0.6], [0.2, 0.2, 0.2]), ([], [])],
)
def test_too_few_to_say_is_no_number(models: list[float], checkpoints: list[float]) -> None:
    known = separation(np.array(models), np.array(checkpoints))
    assert math.isnan(known.snr)
    assert math.isnan(known.se)
    assert (known.models, known.checkpoints) == (len(models), len(checkpoints))


def test_numbers_below_zero_have_signal_and_noise_as_well() -> None:
    """As log-probabilities: the size of their mean counts."""
    known, turned = separation(CHECKPOINTS, CHECKPOINTS), separation(-CHECKPOINTS, -CHECKPOINTS)
    assert (turned.signal, turned.noise, turned.snr) == pytest.approx(
        (known.signal, known.noise, known.snr)
    )


@given(arrays(np.float64, (2, 6), elements=st.integers(0, 3).map(float)))
def test_decisions_are_the_pairs_in_the_same_order(values: Floats) -> None:
    small, large = values
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    expected = sum((small[i] > small[j]) == (large[i] > large[j]) for i, j in pairs) / len(pairs)
    assert decision_accuracy(small, large) == pytest.approx(expected)
    assert math.isnan(decision_accuracy(small[:1], large[:1]))


@given(st.integers(0, 200))
def test_items_follow_compute_by_spearmans_correlation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, compute = (
        rng.integers(0, 4, (7, 3)).astype(np.float64),
        rng.permutation(7).astype(np.float64),
    )
    scores[2, 1] = math.nan
    for item, rho in enumerate(compute_correlations(scores, compute)):
        expected = (
            scipy.stats.spearmanr(scores[:, item], compute).statistic
            if np.ptp(scores[:, item]) > 0
            else math.nan
        )
        assert rho == pytest.approx(expected, nan_ok=True)
    assert compute_correlations(scores, np.exp(compute)) == pytest.approx(
        compute_correlations(scores, compute), nan_ok=True
    )


def test_a_few_models_say_nothing_of_compute() -> None:
    with pytest.raises(UsageError, match=f"4 models are too few; .* {MODELS} or more"):
        compute_correlations(np.zeros((4, 3)), np.arange(4.0))


@pytest.mark.parametrize(
    ("name", "training", "step"),
    [
        ("EleutherAI/pythia-160m@step1000", "EleutherAI/pythia-160m", 1000),
        ("out/run-a/checkpoint-1000", "out/run-a", 1000),
        ("bigscience/bloom@global_step500", "bigscience/bloom", 500),
        ("runs/a/iter_0001000", "runs/a", 1000),
        ("runs/a/checkpoint-5/model", "runs/a/model", 5),
        ("ep0-ba1000", "ep0", 1000),
        ("m_step10k", "m", 10_000),
        ("m-step=0", "m", 0),
        ("step7", "", 7),
        ("meta/Llama-2-7b@main", "meta/Llama-2-7b", math.nan),
        ("footstep100", "footstep100", math.nan),
        ("mistral-7B-instruct-v0.2", "mistral-7B-instruct-v0.2", math.nan),
        ("a/checkpoint", "a/checkpoint", math.nan),
    ],
)
def test_names_say_where_in_training_a_model_stands(name: str, training: str, step: float) -> None:
    place = parse_checkpoint(name)
    assert (place.training, place.step) == (training, pytest.approx(step, nan_ok=True))


def test_names_say_tokens_and_size_and_the_first_that_says_a_step_counts() -> None:
    olmo = parse_checkpoint("allenai/OLMo-2-1124-7B@stage1-step140000-tokens294B")
    assert olmo == Checkpoint(
        training="allenai/OLMo-2-1124-7B@stage1",
        family="allenai/OLMo-2-1124@stage1",
        step=140_000,
        tokens=294e9,
        parameters=7e9,
    )
    assert parse_checkpoint("org/m@tokens10B").tokens == 10e9
    assert parse_checkpoint("Qwen/Qwen2.5-0.5B").parameters == 0.5e9
    assert parse_checkpoint("", "org/m", "org/m@step5").step == 5
    assert parse_checkpoint("org/m@step4", "org/m@step5").step == 4
    assert math.isnan(parse_checkpoint("").step)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return one_run(tmp_path_factory.mktemp("runs") / "run", ITEMS)


def member(
    run: Run, model: str, *credits: Floats, kept: Sequence[int] | None = None, **row: Any
) -> Summary:
    """A run with these credits under as many protocols, and the rows of their means."""
    named = dict(zip(PROTOCOLS, credits, strict=False))
    known = summary(run, model, named, kept, job={"models": [{"name": model}]})
    rows = [made(value=float(np.mean(own)), model=model, n=len(own)) for own in named.values()]
    rows = [altered(each, protocol=name, **row) for each, name in zip(rows, named, strict=True)]
    return replace(known, rows=tuple(rows))


def credit(share: float, seed: int = 0) -> Floats:
    return (np.random.default_rng(seed).permutation(ITEMS) < share * ITEMS).astype(np.float64)


def curve(run: Run, name: str, shares: Sequence[float], first: int = 1) -> list[Summary]:
    return [
        member(run, f"{name}@step{1000 * (first + n)}", credit(share))
        for n, share in enumerate(shares)
    ]


def test_one_training_run_is_compared_with_itself(run: Run) -> None:
    shares = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.6, 0.7, 0.8, 0.7]
    (known,) = signals(curve(run, "org/m", shares))
    assert known.trainings == {"org/m": tuple(1000.0 * n for n in range(1, 11))}
    assert (known.unit, known.last, len(known.models)) == ("step", {"org/m": 5}, 10)
    own = known.rows[0].separation
    values = np.array([credit(share).mean() for share in shares])
    assert own.snr == pytest.approx(
        np.ptp(values) / values.mean() / (values[-5:].std() / values[-5:].mean())
    )
    assert any("one training run" in note for note in known.notes)
    assert known.step is None
    assert math.isnan(known.rows[0].accuracy)
    assert as_json(signal_tables(known)[0])["rows"][0]["accuracy"] is None


def test_other_models_are_the_signal_and_checkpoints_the_noise(run: Run) -> None:
    shares = [0.5, 0.6, 0.5, 0.6, 0.5]
    others = [member(run, f"other-{n}", credit(share)) for n, share in enumerate((0.3, 0.9))]
    final = member(run, "org/m", credit(1.0))
    (known,) = signals([*curve(run, "org/m", shares), *others, final])
    assert known.models == ("org/m", "other-0", "other-1")
    assert known.rows[0].separation.checkpoints == 3
    means = np.array([np.mean(shares), 0.3, 0.9])
    assert known.rows[0].separation.signal == pytest.approx(np.ptp(means) / means.mean())
    assert not any("one training run" in note for note in known.notes)


def test_several_training_runs_have_a_decision_accuracy(run: Run) -> None:
    mixes = {"a": [0.2, 0.3, 0.4, 0.5], "b": [0.3, 0.4, 0.6, 0.7], "c": [0.4, 0.5, 0.5, 0.6]}
    (known,) = signals(
        [each for name, shares in mixes.items() for each in curve(run, name, shares)]
    )
    assert known.step == 2000
    finals = {name: np.mean(shares) for name, shares in mixes.items()}
    expected = decision_accuracy(np.array([0.3, 0.4, 0.5]), np.array([*finals.values()]))
    assert known.rows[0].accuracy == pytest.approx(expected)


def test_the_noise_is_over_half_of_the_checkpoints_and_at_most_so_many(run: Run) -> None:
    known = trainings([each.manifest for each in curve(run, "m", [0.5] * 70)])
    assert [len(each.at) for each in known] == [70]
    (report,) = signals(curve(run, "m", [0.4, 0.5] * 35))
    assert report.last == {"m": LAST}


def test_steps_are_in_order_and_of_one_twice_the_first_counts(run: Run) -> None:
    names = ["m@step300", "m@step100", "m@step200", "m@step100", "other"]
    known = trainings([member(run, name, credit(0.5)).manifest for name in names])
    assert known == [Training("m", "step", (100, 200, 300), (1, 2, 0))]
    alike = [
        "x/a/run@step1",
        "x/a/run@step2",
        "x/a/run@step3",
        "y/a/run@step1",
        "y/a/run@step2",
        "y/a/run@step3",
    ]
    known = trainings([member(run, name, credit(0.5)).manifest for name in alike])
    assert [each.name for each in known] == ["x/a/run", "y/a/run"]


def test_items_follow_compute_under_each_step_of_the_chain(run: Run) -> None:
    """Later steps lose what the first one has, as scores turn into right and wrong."""
    rng, levels = np.random.default_rng(1), np.linspace(0.1, 0.9, 8)[:, None]
    likely = np.clip(levels + rng.normal(0, 0.1, (8, ITEMS)), 0.01, 0.99)
    scores = {
        "logprob": np.log(likely),
        "prob": likely,
        "norm-prob": np.clip(likely + rng.normal(0, 0.2, likely.shape), 0, 1),
        "brier": (1 - likely) ** 2,
        "acc": (likely > 0.5).astype(float),
    }
    protocols = {name: replace(PROTOCOLS[ONE], metric=name) for name in scores}
    runs = []
    for n in range(8):
        own = {name: each[n] for name, each in scores.items()}
        known = summary(run, f"m@step{2**n}", own, protocols=protocols)
        rows = [
            altered(made(), value=float(each.mean()), metric=name, protocol=name)
            for name, each in own.items()
        ]
        runs.append(replace(known, rows=tuple(rows)))
    (report,) = signals(runs)
    (chain,) = report.chains
    assert [row.metric for row in chain] == list(CHAIN)
    follows = {row.metric: row.follows for row in chain}
    compute = 2.0 ** np.arange(8)
    for name, each in scores.items():
        rho = compute_correlations(-each if name == "brier" else each, compute)
        own = follows[name]
        assert own is not None
        assert own.median == pytest.approx(np.median(np.nan_to_num(rho)))
        assert (own.items, own.models) == (ITEMS, 8)
    assert follows["logprob"].median == pytest.approx(follows["prob"].median)  # type: ignore[union-attr]
    assert follows["prob"].median > follows["acc"].median  # type: ignore[union-attr]
    assert any("take bits per byte" in note for note in report.notes)


@pytest.mark.parametrize(
    ("names", "follow"),
    [
        ([f"org/m-{size}" for size in ("70m", "160m", "410m", "1b", "1.4b")], 5),
        ([f"org/m-{size}" for size in ("70m", "160m", "410m", "1b")], None),
        (["a", "b", "c", "d", "e"], None),
    ],
)
def test_sizes_are_compute_where_no_step_is_known(
    run: Run, names: list[str], follow: int | None
) -> None:
    steps = curve(run, "other", [0.3, 0.4, 0.5])
    rng = np.random.default_rng(0)
    (report,) = signals([*steps, *(member(run, name, rng.random(ITEMS)) for name in names)])
    own = report.rows[0].follows
    assert (own and own.models) == follow


def test_numbers_per_token_of_other_tokenizers_are_left_out(run: Run) -> None:
    """Bits per byte stay."""
    kinds = {
        "per token": replace(PROTOCOLS[ONE], score="token_mean", metric="prob"),
        "bits": replace(PROTOCOLS[ONE], score="byte_mean", metric="bpb"),
    }
    runs = []
    for n in range(3):
        own = {name: np.full(ITEMS, 0.2 + n) for name in kinds}
        rows = [altered(made(), value=0.2 + n, protocol=name, t=f"#T{n // 2}") for name in kinds]
        runs.append(replace(summary(run, f"m@step{n}", own, protocols=kinds), rows=tuple(rows)))
    (report,) = signals(runs)
    assert [row.protocol for row in report.rows] == ["bits"]
    assert Gist("per token ... 2 tokenizers") in report.notes
    alike = [replace(each, rows=tuple(altered(row, t="#T0") for row in each.rows)) for each in runs]
    assert {row.protocol for row in signals(alike)[0].rows} == {*kinds}


def test_runs_about_other_items_are_left_out_and_say_how_many_they_share(run: Run) -> None:
    part = member(run, "m@step9000", credit(0.9)[:12], kept=range(12))
    outcomes = tuple(
        replace(each, selection="first 6 of each subject") for each in part.outcomes.outcomes
    )
    part = replace(part, outcomes=replace(part.outcomes, outcomes=outcomes))
    (report,) = signals([*curve(run, "m", [0.3, 0.4, 0.5]), part])
    note = Gist("m@step9000 ... first 6 of each ... 12 items, 12 of them")
    assert note in report.notes
    assert report.rows[0].separation.models == 3


def test_without_steps_it_is_refused_with_names_that_have_one(run: Run) -> None:
    runs = [member(run, name, credit(0.5)) for name in ("a", "b", "c")]
    with pytest.raises(UsageError, match="step: a, b and c; .*ORG/NAME@step1000"):
        signals(runs)
    with pytest.raises(UsageError, match=r"3 or more checkpoints .*there are 2 checkpoints of m;"):
        signals([*curve(run, "m", [0.3, 0.4]), *runs])
