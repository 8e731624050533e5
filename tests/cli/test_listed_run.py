"""Runs of a model that tells its likeliest next tokens alone: decided where that is enough, missing where it is not."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.models.fake import HashModel
from choicewise.report.explain import explanation_lines
from choicewise.results.explain import explain
from choicewise.results.run import Run, open_run
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.unsure_models import Listing

LETTERS, PERMUTED = "mmlu/harness-v1", "options/permuted-cyclic"
LOOKED_UP = "mmlu/original"
PROTOCOLS = [LETTERS, PERMUTED, LOOKED_UP]
TOPS = (1, 60, 150)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("data"), questions=30)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate(model=HashModel(), data=data, protocols=PROTOCOLS, out=tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module", params=TOPS)
def listed(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    model = Listing(request.param)
    return evaluate(model=model, data=data, protocols=PROTOCOLS, out=tmp_path_factory.mktemp("listed"))


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
            if math.isnan(row.low):  # nothing that the score is made of is a bound
                assert (row.value, row.missing) == (true.value, 0)
                continue
            assert row.low <= true.value <= row.high
            assert row.n == 0 or row.low <= row.value <= row.high
            assert row.n + row.missing == true.n
            assert row.n == 0 or row.near_ties is None  # the noise was not measured


def test_undecided_items_are_missing_with_the_reason_and_counted(listed: Run) -> None:
    for row in listed.rows():
        assert sum(each.count for each in row.missing_reasons) == row.missing
        assert all("the server lists" in each.reason for each in row.missing_reasons)
        assert row.unlisted >= row.missing


def test_letters_of_one_list_are_missing_only_where_none_is_listed(listed: Run) -> None:
    measured = listed.measurements[LETTERS]
    all_hidden = measured.evidence.unlisted(None) == 2
    assert measured.decisions.missing.tolist() == all_hidden.tolist()
    if all_hidden.any():
        (reason,) = listed.rows()[0].missing_reasons
        assert reason.reason == "none of the answers is among the likeliest next tokens that the server lists"


def test_bounds_are_no_probabilities(listed: Run, whole: Run) -> None:
    table, true = listed.distribution(LETTERS).to_pylist(), whole.distribution(LETTERS).to_pylist()
    hidden = {row["item"] for row in listed.scores(LETTERS).to_pylist() if row["low"] < row["score"]}
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
    place = int(np.flatnonzero(measured.unlisted)[0])
    item = measured.ids[place].as_py()
    text = "\n".join(explanation_lines(explain(open_run(listed.folder), item)))
    assert "S ≤ -" in text
    assert "no more than an upper bound is known" in text
    short = choicewise("explain", str(listed.folder), "--item", item)
    assert short.code == 0
    assert "≤ -" in short.stdout


@pytest.mark.costly("whole commands")
def test_every_verb_takes_a_run_with_bounds(listed: Run, whole: Run, tmp_path: Path) -> None:
    said = choicewise("report", listed.folder, code=0)
    assert "with unlisted answers" in " ".join(said.stdout.split())
    rows = json.loads(choicewise("report", listed.folder, "--json").stdout)
    assert all(row["unlisted"] > 0 for row in rows if row["protocol"] != LOOKED_UP)
    lines = [
        ["compare", str(listed.folder), str(whole.folder)],
        ["ladder", LETTERS, PERMUTED, str(listed.folder)],
        ["page", str(listed.folder), str(whole.folder), "--out", str(tmp_path / "page.html")],
        ["report", str(listed.folder), "--agreement"],
        ["report", str(listed.folder), "--multiverse"],
        ["report", str(listed.folder), "--distribution"],
    ]
    for line in lines:
        choicewise(*line, code=0)
