"""Numbers of a sample: their errors are those for all items, and other models' runs of all items make them surer."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from choicewise import evaluate
from choicewise.extensions.analyses.sample import sample_estimates
from choicewise.extensions.analyses.sampling import aipw, finite_population_error
from choicewise.models.fake import HashModel
from choicewise.results.measurement import interval
from choicewise.results.outcomes import Summary, bounded, outcomes_of, ranked
from choicewise.results.run import Run
from choicewise.scoring.intervals import wilson
from choicewise.scoring.significance import rank_ranges, significantly_better
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.rows import altered

NAMES = ["mmlu/original", "mmlu/cloze:sum"]
QUESTIONS, SAMPLE = 12, 10


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("data"), questions=QUESTIONS)


@pytest.fixture(scope="module")
def sampled(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "sample"
    return evaluate(model=HashModel(), data=data, protocols=NAMES, out=out, sample=SAMPLE, seed=3)


@pytest.fixture(scope="module")
def wholes(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        evaluate(model=HashModel(seed), data=data, protocols=NAMES, out=folder / f"{seed}")
        for seed in (1, 2, 3)
    ]


def test_ranks_of_samples_are_tested_without_the_factor_of_the_sample(
    data: Path, tmp_path: Path
) -> None:
    runs = [
        evaluate(
            model=HashModel(seed),
            data=data,
            protocols=NAMES[1:],
            out=tmp_path / f"{seed}",
            sample=SAMPLE,
            seed=3,
        )
        for seed in range(4)
    ]
    named = [
        replace(summed(run), outcomes=replace(summed(run).outcomes, model=f"{n}"))
        for n, run in enumerate(runs)
    ]
    rows = ranked([altered(row, model=each.outcomes.model) for each in named for row in each.rows])
    credits = np.array([run.measurements[NAMES[1]].credit for run in runs])
    low, high = rank_ranges(significantly_better(credits))
    edges = [
        (row.ranks.low, row.ranks.high) for row in bounded(rows, [each.outcomes for each in named])
    ]
    assert edges == list(zip(low.tolist(), high.tolist(), strict=True))


def summed(run: Run) -> Summary:
    return Summary(
        folder=run.folder,
        manifest=run.manifest,
        rows=tuple(run.rows()),
        outcomes=outcomes_of(run),
    )


def test_errors_and_intervals_are_those_for_all_items(sampled: Run) -> None:
    for row in sampled.rows():
        each = sampled.measurements[row.identity.protocol]
        left = math.sqrt(1 - SAMPLE / (2 * QUESTIONS))
        assert (row.population, row.counts.n) == (2 * QUESTIONS, SAMPLE)
        assert row.as_json()["population"] == 2 * QUESTIONS
        plain = next(iter(each.values().values()))
        assert row.se == pytest.approx(left * plain.se, nan_ok=True)
        assert row.value - row.interval.low == pytest.approx(left * (row.value - plain.ci_low))
        assert row.interval.high - row.value == pytest.approx(left * (plain.ci_high - row.value))
    micro = next(row for row in sampled.rows(by="micro") if row.identity.protocol == NAMES[1])
    credit = sampled.measurements[NAMES[1]].credit
    assert micro.se == pytest.approx(finite_population_error(credit, 2 * QUESTIONS))
    assert micro.interval.high - micro.value < wilson(micro.value, SAMPLE)[1] - micro.value
    of_subject = {
        row.identity.subject: row
        for row in sampled.rows(by="subjects")
        if row.identity.protocol == NAMES[0]
    }
    assert {row.population for row in of_subject.values()} == {QUESTIONS}
    assert sum(row.counts.n for row in of_subject.values()) == SAMPLE


def test_a_clustered_interval_of_a_sample_is_no_narrower_for_that(tmp_path: Path) -> None:
    """It is about further subjects, of whose questions these are no larger part than all would be."""
    data = write_mmlu(tmp_path / "data", subjects=tuple("abcdefghij"), questions=6)
    asked = {"model": HashModel(), "data": data, "protocols": NAMES[1:]}
    run = evaluate(**asked, out=tmp_path / "run", sample=50)
    (row,) = run.rows(by="micro", interval="clustered")
    measured = run.measurements[NAMES[1]]
    subjects = [measured.subjects[place] for place in range(len(measured.credit))]
    assert row.population == 60
    assert (row.interval.low, row.interval.high) == interval(
        "clustered", measured.credit, subjects, macro=False
    )
    assert row.interval.high - row.interval.low > 2 * (
        run.rows(by="micro")[0].interval.high - run.rows(by="micro")[0].interval.low
    )


def test_a_run_of_all_items_has_no_population(wholes: list[Run]) -> None:
    assert {row.population for row in wholes[0].rows()} == {None}


def test_the_estimate_is_made_of_the_other_models_credits_of_all_items(
    sampled: Run, wholes: list[Run]
) -> None:
    known = sample_estimates([summed(sampled), *map(summed, wholes)])
    assert known.notes == ()
    assert [row.protocol for row in known.rows] == NAMES
    for row in known.rows:
        own, others = (
            sampled.measurements[row.protocol],
            [each.measurements[row.protocol] for each in wholes],
        )
        ids = others[0].ids.to_pylist()
        places = np.array([ids.index(each) for each in own.ids.to_pylist()])
        expected = aipw(own.credit, places, np.array([each.credit for each in others]))
        sizes = [own.subjects.count(subject) for subject in ("tides", "trees")]
        assert own.protocol.aggregation == "micro" or sizes == [
            5,
            5,
        ]  # then both means are the same
        assert row.estimate.value == pytest.approx(expected.value)
        assert row.estimate.se == pytest.approx(expected.se)
        assert row.others == tuple(each.manifest.model.name for each in wholes)
        assert (row.estimate.n, row.estimate.population) == (SAMPLE, 2 * QUESTIONS)
        content = row.as_json()
        assert (content["metric"], content["value"]) == (
            f"{row.metric}-estimate",
            row.estimate.value,
        )


def test_a_mean_over_subjects_is_estimated_as_one(sampled: Run, wholes: list[Run]) -> None:
    """With as much weight for each subject, however many items it has."""
    runs = [changed(summed(each), aggregation="macro") for each in (sampled, *wholes)]
    sizes = {"test": {"tides": 4, "trees": 20}}
    selection = replace(runs[0].manifest.selection, drawn_from=sizes)
    runs[0] = replace(runs[0], manifest=replace(runs[0].manifest, selection=selection))
    subjects = ["tides"] * 4 + ["trees"] * 20
    for place, run in enumerate(runs[1:], 1):
        runs[place] = changed(run, subjects=subjects)
    row = sample_estimates(runs).rows[0]
    own, whole = runs[0].outcomes.outcomes[0], [run.outcomes.outcomes[0] for run in runs[1:]]
    ids = whole[0].ids.to_pylist()
    places = np.array([ids.index(each) for each in own.ids.to_pylist()])
    weights = np.array([24 / (2 * {"tides": 4, "trees": 20}[subject]) for subject in subjects])
    assert weights.mean() == pytest.approx(1)
    assert row.estimate == aipw(
        own.credit, places, np.array([each.credit for each in whole]), weights
    )


def changed(run: Summary, subjects: list[str] | None = None, **axes: str) -> Summary:
    """The same under other axes, or with items of other subjects."""
    own = [replace(each, protocol=replace(each.protocol, **axes)) for each in run.outcomes.outcomes]
    if subjects is not None:
        items = [each.items.set_column(1, "subject", pa.array(subjects)) for each in own]
        own = [replace(each, items=table) for each, table in zip(own, items, strict=True)]
    return replace(run, outcomes=replace(run.outcomes, outcomes=tuple(own)))


def test_a_run_that_does_not_hold_all_items_says_how_many_it_holds(
    sampled: Run, wholes: list[Run], data: Path, tmp_path: Path
) -> None:
    short = summed(
        evaluate(model=HashModel(9), data=data, protocols=NAMES, out=tmp_path / "short", limit=2)
    )
    known = sample_estimates([summed(sampled), short, summed(wholes[0])])
    (note,) = known.notes
    held = len(
        {*short.outcomes.outcomes[0].ids.to_pylist()}
        & {*sampled.measurements[NAMES[0]].ids.to_pylist()}
    )
    assert note == Gist("fake:hash:9 ... fake:hash: it holds 4 of the 24 items")
    assert note.endswith(f"and {held} of the 10 drawn")
    assert {row.others for row in known.rows} == {("fake:hash:1",)}
    assert sample_estimates([summed(sampled), short]).rows == ()


def test_no_sample_no_other_model_and_no_mean_have_no_estimate(
    sampled: Run, wholes: list[Run]
) -> None:
    assert sample_estimates([*map(summed, wholes)]).rows == ()
    own = summed(sampled)
    assert sample_estimates([own, own]) == sample_estimates([])
    pooled = [
        changed(summed(each), metric="ece", aggregation="micro") for each in (sampled, *wholes)
    ]
    assert sample_estimates(pooled).rows == ()
    grouped = [changed(summed(each), aggregation="categories") for each in (sampled, *wholes)]
    assert sample_estimates(grouped).rows == ()
