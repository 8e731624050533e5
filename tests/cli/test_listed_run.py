"""Runs of a model that tells its likeliest next tokens alone: decided where that is enough, missing where it is not."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.extensions.explain.item_report import explanation_lines
from choicewise.models.fake import HashModel
from choicewise.results.explain import explain
from choicewise.results.run import Run, open_run
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.unsure_models import Listing

LETTERS, PERMUTED = "mmlu/harness-v1", "options/permuted-cyclic"
LOOKED_UP = "mmlu/original"
PROTOCOLS = [LETTERS, PERMUTED, LOOKED_UP]
TOPS = (1, 60, 150)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("data"), questions=15)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate(
        model=HashModel(), data=data, protocols=PROTOCOLS, out=tmp_path_factory.mktemp("whole")
    )


@pytest.fixture(scope="module", params=TOPS)
def listed(
    request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    model = Listing(request.param)
    return evaluate(
        model=model, data=data, protocols=PROTOCOLS, out=tmp_path_factory.mktemp("listed")
    )


def test_decisions_are_those_of_the_whole_model(whole: Run, listed: Run) -> None:
    for name, measured in listed.measurements.items():
        true = whole.measurements[name]
        decided = ~measured.decisions.missing
        assert measured.prediction[decided].tolist() == true.prediction[decided].tolist()
        assert measured.credit[decided].tolist() == true.credit[decided].tolist()
        assert not true.decisions.missing.any()


def test_the_range_holds_the_number_of_the_whole_model(whole: Run, listed: Run) -> None:
    for by in (None, "subjects", "macro"):
        for true, row in zip(whole.rows(by), listed.rows(by), strict=True):
            if math.isnan(row.bounds.low):  # nothing that the score is made of is a bound
                assert (row.value, row.counts.missing) == (true.value, 0)
                continue
            assert row.bounds.low <= true.value <= row.bounds.high
            assert row.counts.n == 0 or row.bounds.low <= row.value <= row.bounds.high
            assert row.counts.n + row.counts.missing == true.counts.n
            assert row.counts.n == 0 or row.counts.near_ties is None  # the noise was not measured


def test_undecided_items_are_missing_with_the_reason_and_counted(listed: Run) -> None:
    for row in listed.rows():
        assert sum(each.count for each in row.missing_reasons) == row.counts.missing
        assert all("the server lists" in each.reason for each in row.missing_reasons)
        assert row.counts.unlisted >= row.counts.missing
    measured = listed.measurements[LETTERS]
    all_hidden = measured.evidence.unlisted(None) == 2
    assert measured.decisions.missing.tolist() == all_hidden.tolist()
    if all_hidden.any():
        (reason,) = listed.rows()[0].missing_reasons
        assert reason.reason == Gist("next tokens ... server lists")


def test_bounds_are_no_probabilities(listed: Run, whole: Run) -> None:
    table, true = listed.distribution(LETTERS).to_pylist(), whole.distribution(LETTERS).to_pylist()
    hidden = {
        row["item"] for row in listed.scores(LETTERS).to_pylist() if row["low"] < row["score"]
    }
    assert hidden
    for row, other in zip(table, true, strict=True):
        if row["item"] in hidden:
            assert row["softmax"] is None or math.isnan(row["softmax"])
        else:
            assert row["softmax"] == pytest.approx(other["softmax"])
        if row["winner"] is not None and not math.isnan(row["winner"]):
            assert row["winner"] == other["winner"]


def test_explain_shows_bounds_as_bounds(listed: Run) -> None:
    measured = listed.measurements[LETTERS]
    item = measured.ids[int(np.flatnonzero(measured.unlisted)[0])].as_py()
    text = "\n".join(explanation_lines(explain(open_run(listed.folder), item)))
    assert "S ≤ -" in text
    assert "only an upper bound" in text
    assert "≤ -" in choicewise("explain", listed.folder, "--item", item, code=0).stdout


@pytest.mark.costly("seven commands on two runs")
@pytest.mark.parametrize("listed", [60], indirect=True)
def test_every_verb_takes_a_run_with_bounds(listed: Run, whole: Run, tmp_path: Path) -> None:
    folder = listed.folder
    assert "with unlisted answers" in " ".join(
        choicewise("report", folder, "--ids", code=0).stdout.split()
    )
    rows = json.loads(choicewise("report", folder, "--json").stdout)
    assert all(row["unlisted"] > 0 for row in rows if row["protocol"] != LOOKED_UP)
    choicewise(
        "page", folder, whole.folder, "--items", "2", "--out", tmp_path / "page.html", code=0
    )
    views = (["report", folder, view] for view in ("agreement", "multiverse", "distribution"))
    for line in (["compare", folder, whole.folder], ["ladder", LETTERS, PERMUTED, folder], *views):
        choicewise(*line, code=0)
