"""The averages of suites, held against plain references."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import open_run
from choicewise.protocols.catalogue import one
from choicewise.report.tables import average_tables
from choicewise.results import sweep
from choicewise.results.summary import summarize
from choicewise.scoring.intervals import stratified, wilson
from choicewise.table import cell_texts
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.outcomes import drawn_average
from tests.helpers.suite_data import TRIO, UNSCORED, known_suites, write_benchmarks, write_rows

SHARES = st.floats(0, 1)
ERRORS = st.floats(0, 0.3)


def part(name: str, *values: float, problem: str = "") -> sweep.PartValue:
    """Protocols of ten items each."""
    own = (scored(f"{name}/{place}", value, 10) for place, value in enumerate(values))
    return sweep.PartValue(name, tuple(own), problem)


def scored(name: str, value: float, n: int, se: float = 0.01) -> sweep.ScoredPart:
    return sweep.ScoredPart(
        protocol=name,
        metric="acc",
        value=value,
        raw=value,
        se=se,
        n=n,
        missing=0,
        strata=(sweep.Stratum(value * n, n),),
    )


def of_strata(strata: tuple[sweep.Stratum, ...], value: float) -> sweep.PartValue:
    """A part of one protocol whose items are in strata."""
    return sweep.PartValue(
        "a",
        (
            sweep.ScoredPart(
                protocol="p",
                metric="acc",
                value=value,
                raw=value,
                se=0.1,
                n=sum(each.size for each in strata),
                missing=0,
                strata=strata,
            ),
        ),
    )


def average_of(
    *parts: sweep.PartValue, model: str = "model", normalised: bool = False, selection: str = ""
) -> sweep.Average:
    return sweep.Average(
        suite="suite", model=model, normalised=normalised, parts=parts, selection=selection
    )


def test_an_average_over_too_few_questions_of_a_part_has_no_rank() -> None:
    few = replace(scored("p", 0.9, 22), missing=37)
    parts = {"few": few, "many": scored("p", 0.5, 59)}
    averages = [
        average_of(sweep.PartValue("a", (own,)), model=model) for model, own in parts.items()
    ]
    placed = sweep.ranked_averages(averages)
    assert [(average.model, average.rank) for average in placed] == [("many", None), ("few", None)]
    (table,) = average_tables(placed)
    assert [row[1] for row in cell_texts(table)] == ["50.0", "90.0 (22 of 59)"]


@given(st.lists(st.tuples(SHARES, ERRORS, st.integers(1, 999)), min_size=1, max_size=8))
def test_a_mean_of_independent_parts(parts: list[tuple[float, float, int]]) -> None:
    average = average_of(*(sweep.PartValue("a", (scored("p", v, n, se),)) for v, se, n in parts))
    assert average.complete
    assert average.mean == pytest.approx(np.mean([value for value, _, _ in parts]))
    assert average.se == pytest.approx(np.sqrt(np.sum([se**2 for _, se, _ in parts])) / len(parts))
    assert average.n == sum(n for _, _, n in parts)
    row = average.as_json()
    assert row["value"] == pytest.approx(average.mean)
    assert 0 <= row["ci_low"] <= row["value"] <= row["ci_high"] <= 1
    assert row["ci_low"] < row["ci_high"]
    assert (row["dataset"], row["protocol"], row["metric"], row["subject"]) == (
        "suite",
        "suite",
        "average",
        "all",
    )


@given(st.integers(0, 30), st.integers(1, 30))
def test_one_part_has_the_interval_of_its_items(right: int, n: int) -> None:
    right = min(right, n)
    average = average_of(sweep.PartValue("a", (scored("p", right / n, n),)))
    assert average.interval == pytest.approx(wilson(right / n, n), abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(2, 9)), min_size=2, max_size=4))
def test_strata_of_equal_weight_have_the_macro_interval(strata: list[tuple[int, int]]) -> None:
    own = tuple(sweep.Stratum(float(right), right + more) for right, more in strata)
    rights, sizes, _ = np.array(own).T
    mean = float(np.mean(rights / sizes))
    parts = [sweep.PartValue("a", (scored("p", right / n, n),)) for right, n, _ in own]
    for average in (average_of(of_strata(own, mean)), average_of(*parts)):
        assert average.interval == pytest.approx(
            stratified(rights, sizes.astype(np.int64)), abs=1e-9
        )
    halves = tuple(each._replace(right=each.size / 2 + each.right / 2, low=0.5) for each in own)
    low, high = average_of(of_strata(halves, mean), normalised=True).interval
    raw = stratified(np.array([each.right for each in halves]), sizes.astype(np.int64))
    assert (low, high) == (
        pytest.approx(max(0, 2 * raw[0] - 1), abs=1e-9),
        pytest.approx(2 * raw[1] - 1, abs=1e-9),
    )


CASES = [([(20,)] * 4, 0.0, 0.02), ([(40,), (60,), (250,)], 0.25, 0.3)]


@pytest.mark.parametrize(("sizes", "low", "p"), CASES, ids=["plain", "normalised"])
def test_an_interval_has_the_mean_in_it_a_width_and_mostly_what_it_is_about(
    sizes: list[tuple[int, ...]], low: float, p: float
) -> None:
    """Mean ± 1.96 standard errors holds in 80 % of the plain ones; ``tests/whole/test_coverage.py`` draws many more."""
    rng, held = np.random.default_rng(7), 0
    for _ in range(40):
        average = drawn_average(rng, sizes, p, low)
        bottom, top = average.interval
        assert bottom <= average.mean <= top
        assert top - bottom > 0.001
        held += bottom <= (p - low) / (1 - low) <= top
    assert held >= 37


@given(st.lists(st.lists(SHARES, min_size=1, max_size=3), min_size=1, max_size=4))
def test_of_several_protocols_the_best_counts_and_of_those_equal_but_for_rounding_the_first(
    values: list[list[float]],
) -> None:
    average = average_of(*(part(str(n), *own) for n, own in enumerate(values)))
    assert average.mean == pytest.approx(
        sum(map(max, values)) / len(values), abs=1e-9
    )  # so close are equal
    assert [len(each["protocols"]) for each in average.as_json()["parts"]] == [
        len(own) for own in values
    ]
    for rounded in ((0.1 + 0.2, 0.3), (0.3, 0.1 + 0.2)):
        best = part("a", *rounded).best
        assert best is not None
        assert best.protocol == "a/0"


def test_what_is_missing_is_never_the_number_of_the_suite() -> None:
    average = average_of(part("a", 0.5), part("b", problem="no data"), part("c", math.nan))
    assert not average.complete
    assert average.mean == 0.5
    row = average.as_json()
    assert [row[key] for key in ("value", "se", "ci_low", "ci_high")] == [None] * 4
    assert row["mean_of_parts"] == 0.5
    assert row["parts"][1]["problem"] == "no data"
    nothing = average_of(part("b", problem="no data"))
    assert math.isnan(nothing.mean)
    (table,) = average_tables([average])
    assert table.title.endswith("incomplete")
    assert table.notes == [
        *(Gist("b is missing: ... no data"), "c is missing: "),
        Gist("incomplete: the mean"),
    ]


def test_models_are_ranked_among_those_with_the_same_parts() -> None:
    gap = part("b", problem="no data")
    few = average_of(part("a", 0.9), part("b", 0.9), model="few", selection="first 5")
    parts = {
        "poor": (part("a", 0.1), part("b", 0.2)),
        "half": (part("a", 0.9), gap),
        "good": (part("a", 0.5), part("b", 0.6)),
        "even": (part("a", 0.6), part("b", 0.5)),
        "none": (part("a", problem="no model"), gap),
    }
    placed = sweep.ranked_averages(
        [few, *(average_of(*own, model=model) for model, own in parts.items())]
    )
    assert [(each.model, each.rank) for each in placed] == [
        *(("few", 1), ("good", 1), ("even", 1), ("poor", 3), ("half", 1), ("none", None))
    ]


@given(st.lists(st.integers(0, 12), min_size=2, max_size=9), st.data())
def test_the_order_of_the_sum_never_changes_a_rank(rights: list[int], data: st.DataObject) -> None:
    other = data.draw(st.permutations(rights))
    better = [rights[0] + 1, *rights[1:]]
    one, two, three = (
        average_of(*(part(str(place), right / 13) for place, right in enumerate(own)), model=name)
        for name, own in (("one", rights), ("two", other), ("better", better))
    )
    placed = {each.model: each.rank for each in sweep.ranked_averages([one, two, three])}
    assert placed == {"better": 1, "one": 2, "two": 2}


@pytest.mark.costly("two models under a suite of three benchmarks")
def test_averages_of_a_folder_are_those_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_benchmarks(tmp_path / "data", monkeypatch, questions=12)
    out = tmp_path / "out"
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="")):
        for model in ("fake:hash", "fake:oracle"):
            choicewise("run", "--model", model, "--protocol", "tests/trio", "--out", out, code=0)
    ((folder, found),) = sweep.sweeps([out])
    computed = sweep.averages(
        folder, found, {run: summarize(run) for run in sweep.run_folders([out])}
    )
    assert [each.model for each in computed] == ["fake:oracle", "fake:hash"]
    for average in computed:
        rows = [
            row
            for run in sweep.run_folders([out])
            for row in open_run(run).rows()
            if row.identity.model == average.model
        ]
        science = [row for row in rows if row.identity.protocol.startswith("arc-easy")]
        best = max(science, key=lambda row: row.value)
        counted = [row for row in rows if row not in science] + [best]
        assert len(counted) == 3
        assert average.mean == pytest.approx(sum(row.value for row in counted) / 3)
        assert average.se == pytest.approx(math.sqrt(sum(row.se**2 for row in counted)) / 3)
        assert average.n == sum(row.counts.n for row in counted)
        assert average.interval[0] < average.mean + 1e-12
        assert average.interval[1] - average.interval[0] > 0.05  # the oracle's, too


@pytest.mark.parametrize("questions", [5, 11])
def test_normalised_values_go_from_guessing_to_all_right(
    questions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_benchmarks(tmp_path / "data", monkeypatch, questions=questions)
    out = tmp_path / "out"
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="normalised = true") + UNSCORED):
        printed = choicewise(
            "run", "--model", "fake:hash", "--protocol", "tests/trio", "--out", out, code=0
        ).stdout
    assert "raw values in brackets" in printed
    rows = json.loads(choicewise("report", "--json", out, code=0).stdout)
    (row,) = [row for row in rows if row["metric"] == "average"]
    known: dict[str, list[float]] = {}
    for each in (
        each for folder in sweep.run_folders([out]) for each in open_run(folder).rows("subjects")
    ):
        known.setdefault(each.identity.protocol, []).append(each.value)
    for value in row["parts"][:3]:
        low = 0.5 if value["benchmark"] == "winogrande" else 0.25
        for protocol in value["protocols"]:
            subjects = known[protocol["protocol"]]  # of MMLU the mean is over subjects
            assert protocol["value"] == pytest.approx(
                np.mean([max(0.0, (raw - low) / (1 - low)) for raw in subjects])
            )
            assert protocol["raw"] == pytest.approx(np.mean(subjects))
    assert row["normalised"] is True
    assert row["complete"] is False
    assert row["mean_of_parts"] == pytest.approx(
        np.mean([value["value"] for value in row["parts"][:3]])
    )


GPQA = """
name = "tests/gpqa"
title = "GPQA beside another"
citation = "Nobody 2026"
source = "nowhere"
about = "For tests."
average = "mean"
normalised = true

[[parts]]
protocols = ["gpqa/leaderboard"]

[[parts]]
protocols = ["winogrande/harness"]
"""


def test_gpqa_of_the_leaderboard_is_normalised_once_over_all_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subsets of unlike sizes, one of them below guessing; those of BBH and MuSR are normalised each."""
    for subject, count in (("diamond", 4), ("extended", 16), ("main", 9)):
        questions = [f"Why is {subject} {number}?" for number in range(count)]
        rows: list[dict[str, object]] = [
            {
                **{"Question": question, "Correct Answer": "a fir", "Incorrect Answer 1": "a bee"},
                **{"Incorrect Answer 2": "a cup", "Incorrect Answer 3": "a tin"},
            }
            for question in questions
        ]
        write_rows(tmp_path / "data" / "gpqa" / subject, "test", rows)
    write_benchmarks(tmp_path / "data", monkeypatch)
    out = tmp_path / "out"
    with known_suites(tmp_path, monkeypatch, gpqa=GPQA):
        choicewise("run", "--model", "fake:hash", "--protocol", "tests/gpqa", "--out", out, code=0)
        printed = json.loads(choicewise("report", "--json", out, code=0).stdout)
    (row,) = [row for row in printed if row["metric"] == "average"]
    ((part,),) = [part["protocols"] for part in row["parts"] if part["benchmark"] == "gpqa"]
    folders = sweep.run_folders([out])
    measured = [row for folder in folders for row in open_run(folder).rows("subjects")]
    subsets = [row for row in measured if row.identity.protocol == "gpqa/leaderboard"]
    right = sum(subset.value * subset.counts.n for subset in subsets)
    assert [subset.counts.n for subset in subsets] == [4, 16, 9]
    assert part["raw"] == pytest.approx(right / 29)
    assert part["value"] == pytest.approx((right / 29 - 0.25) / 0.75)
    of_each = np.mean([max(0.0, (subset.value - 0.25) / 0.75) for subset in subsets])
    assert part["value"] != pytest.approx(of_each)
    published = {331: 3.69, 332: 3.80, 340: 4.7}
    assert {count: (count / 1192 - 0.25) / 0.0075 for count in published} == pytest.approx(
        published, abs=0.005
    )
    averaged = {
        name: one(name).protocol.aggregation
        for name in ("gpqa/leaderboard", "bbh/harness", "musr/harness")
    }
    assert averaged == {
        "gpqa/leaderboard": "micro",
        "bbh/harness": "macro",
        "musr/harness": "macro",
    }
