"""The averages of suites, held against plain references."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import open_run
from choicewise.cli.commands import invoke
from choicewise.report.tables import average_tables
from choicewise.results.summary import summarize
from choicewise.results.sweep import (
    Average,
    PartValue,
    ScoredPart,
    Stratum,
    averages,
    ranked_averages,
    run_folders,
    sweeps,
)
from choicewise.scoring.intervals import stratified, wilson
from tests.helpers.suite_data import TRIO, UNSCORED, known_suites, write_benchmarks

pytestmark = pytest.mark.costly("runs are evaluated and compared")

SHARES = st.floats(0, 1)
ERRORS = st.floats(0, 0.3)


def part(name: str, *values: float, se: float = 0.01, problem: str = "") -> PartValue:
    return PartValue(
        name, tuple(scored(f"{name}/{place}", value, 10, se) for place, value in enumerate(values)), problem
    )


def scored(name: str, value: float, n: int, se: float = 0.01) -> ScoredPart:
    return ScoredPart(name, "acc", value, value, se, n, 0, (Stratum(value * n, n),))


@given(st.lists(st.tuples(SHARES, ERRORS, st.integers(1, 999)), min_size=1, max_size=8))
def test_a_mean_of_independent_parts(parts: list[tuple[float, float, int]]) -> None:
    values = [PartValue(str(place), (scored("p", v, n, se),)) for place, (v, se, n) in enumerate(parts)]
    average = Average("suite", "model", False, tuple(values))
    assert average.complete
    assert average.mean == pytest.approx(np.mean([value for value, _, _ in parts]))
    assert average.se == pytest.approx(np.sqrt(np.sum([se**2 for _, se, _ in parts])) / len(parts))
    assert average.n == sum(n for _, _, n in parts)
    row = average.as_json()
    assert row["value"] == pytest.approx(average.mean)
    assert 0 <= row["ci_low"] <= row["value"] <= row["ci_high"] <= 1
    assert row["ci_low"] < row["ci_high"]
    assert (row["dataset"], row["protocol"], row["metric"], row["subject"]) == ("suite", "suite", "average", "all")


@given(st.integers(0, 30), st.integers(1, 30))
def test_one_part_has_the_interval_of_its_items(right: int, n: int) -> None:
    right = min(right, n)
    average = Average("suite", "model", False, (PartValue("a", (scored("p", right / n, n),)),))
    assert average.interval == pytest.approx(wilson(right / n, n), abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(2, 9)), min_size=2, max_size=4))
def test_strata_of_equal_weight_have_the_macro_interval(strata: list[tuple[int, int]]) -> None:
    own = tuple(Stratum(float(right), right + more) for right, more in strata)
    rights, sizes, _ = np.array(own).T
    mean = float(np.mean(rights / sizes))
    together = PartValue("a", (ScoredPart("p", "acc", mean, mean, 0.1, int(sizes.sum()), 0, own),))
    parts = [PartValue(str(place), (scored("p", right / n, n),)) for place, (right, n, _) in enumerate(own)]
    for each in ((together,), parts):
        average = Average("suite", "model", False, tuple(each))
        assert average.interval == pytest.approx(stratified(rights, sizes.astype(np.int64)), abs=1e-9)
    halves = tuple(each._replace(right=each.size / 2 + each.right / 2, low=0.5) for each in own)
    normalised = PartValue("a", (ScoredPart("p", "acc", mean, mean, 0.1, int(sizes.sum()), 0, halves),))
    low, high = Average("suite", "model", True, (normalised,)).interval
    raw = stratified(np.array([each.right for each in halves]), sizes.astype(np.int64))
    assert (low, high) == (pytest.approx(max(0, 2 * raw[0] - 1), abs=1e-9), pytest.approx(2 * raw[1] - 1, abs=1e-9))


@pytest.mark.parametrize("p", [0.02, 0.25, 0.5, 0.98])
@pytest.mark.parametrize("sizes", [((20,),) * 4, ((1172,), (817,), (10,) * 57), ((50,), (2, 5, 9), (1, 1, 1))])
def test_intervals_of_averages_hold(sizes: tuple[tuple[int, ...], ...], p: float) -> None:
    """Mean ± 1.96 standard errors holds in 80 % of four parts of 20 items at p = .02, and has no width in 20 %."""
    rng, held, narrow = np.random.default_rng(7), 0, 1.0
    for _ in range(400):
        parts = []
        for own in sizes:
            strata = tuple(Stratum(float(rng.binomial(n, p)), n) for n in own)
            value = float(np.mean([right / n for right, n, _ in strata]))
            parts.append(PartValue("a", (ScoredPart("p", "acc", value, value, 0.1, sum(own), 0, strata),)))
        low, high = Average("suite", "model", False, tuple(parts)).interval
        held += low <= p <= high
        narrow = min(narrow, high - low)
    assert held / 400 >= 0.93
    assert narrow > 0.001


@pytest.mark.parametrize("p", [0.25, 0.3, 0.9])
def test_intervals_of_normalised_averages_hold(p: float) -> None:
    """Of four options each: parts below guessing count as 0, as the mean has them."""
    rng, held = np.random.default_rng(8), 0
    for _ in range(400):
        parts = []
        for n in (40, 60, 250):
            strata = (Stratum(float(rng.binomial(n, p)), n, 0.25),)
            value = max(0.0, (strata[0].right / n - 0.25) / 0.75)
            parts.append(PartValue("a", (ScoredPart("p", "acc", value, value, 0.1, n, 0, strata),)))
        average = Average("suite", "model", True, tuple(parts))
        low, high = average.interval
        assert low <= average.mean <= high
        held += low <= (p - 0.25) / 0.75 <= high
    assert held / 400 >= 0.93


@given(st.lists(st.lists(SHARES, min_size=1, max_size=3), min_size=1, max_size=4))
def test_of_several_protocols_the_best_counts(values: list[list[float]]) -> None:
    average = Average("suite", "model", False, tuple(part(str(n), *own) for n, own in enumerate(values)))
    assert average.mean == pytest.approx(sum(map(max, values)) / len(values))
    assert [len(each["protocols"]) for each in average.as_json()["parts"]] == [len(own) for own in values]


def test_what_is_missing_is_never_the_number_of_the_suite() -> None:
    average = Average("suite", "model", False, (part("a", 0.5), part("b", problem="no data"), part("c", math.nan)))
    assert not average.complete
    assert average.mean == 0.5
    row = average.as_json()
    assert [row[key] for key in ("value", "se", "ci_low", "ci_high")] == [None] * 4
    assert row["mean_of_parts"] == 0.5
    assert row["parts"][1]["problem"] == "no data"
    nothing = Average("suite", "model", False, (part("b", problem="no data"),))
    assert math.isnan(nothing.mean)
    (table,) = average_tables([nothing, average])
    assert table.title.endswith("incomplete")
    assert table.notes == [
        *("b is missing: no data", "c of model is missing: "),
        "incomplete: the mean is over the parts that are there, and is not the suite's number",
    ]


def test_models_are_ranked_among_those_with_the_same_parts() -> None:
    def of(model: str, *parts: PartValue, selection: str = "") -> Average:
        return Average("suite", model, False, parts, selection)

    gap = part("b", problem="no data")
    placed = ranked_averages(
        [
            *(of("poor", part("a", 0.1), part("b", 0.2)), of("half", part("a", 0.9), gap)),
            *(
                of("good", part("a", 0.5), part("b", 0.6)),
                of("few", part("a", 0.9), part("b", 0.9), selection="first 5"),
            ),
            *(of("even", part("a", 0.6), part("b", 0.5)), of("none", part("a", problem="no model"), gap)),
        ]
    )
    assert [(each.model, each.rank) for each in placed] == [
        *(("few", 1), ("good", 1), ("even", 1), ("poor", 3), ("half", 1), ("none", None))
    ]


@given(st.lists(st.integers(0, 12), min_size=2, max_size=9), st.data())
def test_the_order_of_the_sum_never_changes_a_rank(rights: list[int], data: st.DataObject) -> None:
    other = data.draw(st.permutations(rights))
    better = [rights[0] + 1, *rights[1:]]
    one, two, three = (
        Average("suite", name, False, tuple(part(str(place), right / 13) for place, right in enumerate(own)))
        for name, own in (("one", rights), ("two", other), ("better", better))
    )
    placed = {each.model: each.rank for each in ranked_averages([one, two, three])}
    assert placed == {"better": 1, "one": 2, "two": 2}


def test_of_protocols_equal_but_for_rounding_the_first_counts() -> None:
    best = part("a", 0.1 + 0.2, 0.3).best
    assert best is not None
    assert best.protocol == "a/0"
    best = part("a", 0.3, 0.1 + 0.2).best
    assert best is not None
    assert best.protocol == "a/0"


def test_averages_of_a_folder_are_those_of_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_benchmarks(tmp_path / "data", monkeypatch, questions=12)
    out = tmp_path / "out"
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="")):
        for model in ("fake:hash", "fake:oracle"):
            assert invoke(["run", "--model", model, "--protocol", "tests/trio", "--out", str(out)]) == 0
    ((folder, sweep),) = sweeps([out])
    computed = averages(folder, sweep, {run: summarize(run) for run in run_folders([out])})
    assert [each.model for each in computed] == ["fake:oracle", "fake:hash"]
    for average in computed:
        rows = [row for run in run_folders([out]) for row in open_run(run).rows() if row.model == average.model]
        science = [row for row in rows if row.protocol.startswith("arc-easy")]
        best = max(science, key=lambda row: row.value)
        counted = [row for row in rows if row not in science] + [best]
        assert len(counted) == 3
        assert average.mean == pytest.approx(sum(row.value for row in counted) / 3)
        assert average.se == pytest.approx(math.sqrt(sum(row.se**2 for row in counted)) / 3)
        assert average.n == sum(row.n for row in counted)
        assert average.interval[0] < average.mean + 1e-12
        assert average.interval[1] - average.interval[0] > 0.05  # the oracle's, too


@pytest.mark.parametrize("questions", [5, 11])
def test_normalised_values_go_from_guessing_to_all_right(
    questions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_benchmarks(tmp_path / "data", monkeypatch, questions=questions)
    out = tmp_path / "out"
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="normalised = true") + UNSCORED):
        assert invoke(["run", "--model", "fake:hash", "--protocol", "tests/trio", "--out", str(out)]) == 0
    assert "raw values in brackets" in capsys.readouterr().out
    assert invoke(["report", "--json", str(out)]) == 0
    (row,) = [row for row in json.loads(capsys.readouterr().out) if row["metric"] == "average"]
    known = {(each["dataset"], each["protocol"]): each for each in _rows(out)}
    for value in row["parts"][:3]:
        for scored in value["protocols"]:
            own = [each for (data, protocol), each in known.items() if protocol == scored["protocol"]]
            low = 0.5 if value["benchmark"] == "winogrande" else 0.25
            subjects = own[0]["subjects"]  # of MMLU the mean is over subjects
            assert scored["value"] == pytest.approx(np.mean([max(0.0, (raw - low) / (1 - low)) for raw in subjects]))
            assert scored["raw"] == pytest.approx(np.mean(subjects))
    assert row["normalised"] is True
    assert row["complete"] is False
    assert row["mean_of_parts"] == pytest.approx(np.mean([value["value"] for value in row["parts"][:3]]))


def _rows(out: Path) -> list[dict[str, object]]:
    """The protocols of the runs with the values of their subjects."""
    rows = []
    for folder in run_folders([out]):
        run = open_run(folder)
        by_subject: dict[str, list[float]] = {}
        for row in run.rows("subjects"):
            by_subject.setdefault(row.protocol, []).append(row.value)
        name = run.manifest.dataset.name
        rows += [{"dataset": name, "protocol": key, "subjects": values} for key, values in by_subject.items()]
    return rows
