"""Runs with unanswered questions and upper bounds in other tools' formats: nothing crashes, no bound is a number."""

from __future__ import annotations

import csv
import json
import math
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from choicewise import evaluate
from choicewise.interchange.export import WRITERS
from choicewise.models.fake import HashModel
from choicewise.questions import Span
from choicewise.results.run import Run, open_run
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.unsure_models import REASON, Listing

LETTERS, TEXTS = "mmlu/harness-v1", "mmlu/cloze:sum"
NEEDS = {"inspect": "inspect_ai", "wandb": "wandb", "mlflow": "mlflow"}


class Unsure(Listing):
    """Lists its 60 likeliest next tokens where a letter is asked for, and answers one question in forty not at all."""

    def __init__(self) -> None:
        super().__init__(60)

    def _listed(self, question, scores):  # type: ignore[no-untyped-def]
        if isinstance(question, Span) and int(question.key, 16) % 40 == 0:
            return scores.unanswered(REASON)
        return super()._listed(question, scores) if len(scores.tokens) <= 2 else scores


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    data = write_mmlu(tmp_path_factory.mktemp("data"), questions=20)
    made = evaluate(model=Unsure(), data=data, protocols=[LETTERS, TEXTS], out=tmp_path_factory.mktemp("run"))
    rows = made.rows()
    assert all(0 < row.missing < 40 for row in rows)
    assert rows[0].unlisted > 0
    return made


def exported(run: Run, form: str, out: Path) -> Path:
    done = choicewise("export", str(run.folder), "--format", form, "--out", str(out))
    assert done.code == 0, (done.stdout, done.stderr)
    return out


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_every_format_takes_the_run(form: str, run: Run, tmp_path: Path) -> None:
    if form in NEEDS and find_spec(NEEDS[form]) is None:
        pytest.skip(f"{NEEDS[form]} is not installed")
    suffix = {"csv": ".csv", "parquet": ".parquet", "markdown": ".md", "latex": ".tex"}
    ending = next((end for name, end in suffix.items() if name in form), "")
    if form == "eval-results":
        pytest.skip("takes models of the Hub alone")
    exported(run, form, tmp_path / f"out{ending}")


def bounds(run: Run) -> set[tuple[str, int]]:
    return {(row["item"], row["choice"]) for row in run.scores(LETTERS).to_pylist() if row["low"] < row["score"]}


def test_bounds_are_no_scores_in_tables(run: Run, tmp_path: Path) -> None:
    rows = pq.read_table(exported(run, "scores-parquet", tmp_path / "scores.parquet")).to_pylist()
    empty = {(row["item"], row["choice"]) for row in rows if row["protocol"] == LETTERS and row["score"] is None}
    missing = {row["item"] for row in rows if row["protocol"] == LETTERS and row["missing"]}
    assert bounds(run)
    assert bounds(run) <= empty
    assert {item for item, _ in empty - bounds(run)} <= missing
    with (exported(run, "scores-csv", tmp_path / "scores.csv")).open(newline="") as file:
        told = {(row["item"], int(row["choice"])) for row in csv.DictReader(file) if row["score"] == ""}
    assert bounds(run) <= told


def test_bounds_are_no_log_likelihoods_of_the_harness(run: Run, tmp_path: Path) -> None:
    folder = exported(run, "harness", tmp_path / "harness")
    every = [json.loads(line) for file in folder.rglob("samples_*") for line in file.read_text().splitlines()]
    lines = [line for line in every if line["arguments"]["gen_args_0"]["arg_1"] == " A"]
    credit = {
        item: value
        for item, value in zip(
            run.measurements[LETTERS].ids.to_pylist(), run.measurements[LETTERS].credit.tolist(), strict=True
        )
        if not math.isnan(value)
    }
    assert {line["doc"]["id"]: line["acc"] for line in lines} == credit
    for line in lines:
        for choice, (answer,) in enumerate(line["resps"]):
            assert math.isnan(float(answer[0])) == ((line["doc"]["id"], choice) in bounds(run))


def test_numbers_of_rows_are_those_of_the_run(run: Run, tmp_path: Path) -> None:
    rows = pq.read_table(exported(run, "parquet", tmp_path / "rows.parquet")).to_pylist()
    for row, own in zip(rows, run.rows(), strict=True):
        assert (row["value"], row["n"], row["missing"]) == (own.value, own.n, own.missing)


def test_two_runs_are_compared_on_the_items_that_both_decide(run: Run, tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", questions=20)
    whole = evaluate(model=HashModel(seed=1), data=data, protocols=[LETTERS, TEXTS], out=tmp_path / "whole")
    done = choicewise("compare", str(run.folder), str(whole.folder), "--json")
    assert done.code == 0, done.stdout
    for pair in json.loads(done.stdout):
        row = next((row for row in open_run(run.folder).rows() if row.protocol == pair.get("protocol")), None)
        assert row is None or pair["n"] == row.n
