"""Runs with unanswered questions and upper bounds in other tools' formats: nothing crashes, no bound is a number."""

import csv
import json
import math
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from choicewise import Run, evaluate
from choicewise.extensions.interop.export import export
from choicewise.models.fake import HashModel
from choicewise.ports import Writer, all_of
from choicewise.questions import Span
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
    run = evaluate(
        model=Unsure(), data=data, protocols=[LETTERS, TEXTS], out=tmp_path_factory.mktemp("run")
    )
    assert all(0 < row.counts.missing < 40 for row in run.rows())
    assert run.rows()[0].counts.unlisted > 0
    return run


def exported(run: Run, form: str, out: Path) -> Path:
    export(run, form, out)
    return out


FORMS = sorted(
    {writer.name for writer in all_of(Writer)} - {"eval-results"}
)  # which takes models of the Hub alone


@pytest.mark.parametrize("form", FORMS)
def test_every_format_takes_the_run(form: str, run: Run, tmp_path: Path) -> None:
    if form in NEEDS and find_spec(NEEDS[form]) is None:
        pytest.skip(f"{NEEDS[form]} is not installed")
    exported(run, form, tmp_path / f"out{'.' * form.startswith('items') + form.rpartition('-')[2]}")


def bounds(run: Run) -> set[tuple[str, int]]:
    return {
        (row["item"], row["choice"])
        for row in run.scores(LETTERS).to_pylist()
        if row["low"] < row["score"]
    }


def test_bounds_are_no_scores_in_tables_whose_rows_have_the_numbers_of_the_run(
    run: Run, tmp_path: Path
) -> None:
    rows = pq.read_table(exported(run, "scores-parquet", tmp_path / "scores.parquet")).to_pylist()
    empty = {
        (row["item"], row["choice"])
        for row in rows
        if row["protocol"] == LETTERS and row["score"] is None
    }
    missing = {row["item"] for row in rows if row["protocol"] == LETTERS and row["missing"]}
    assert bounds(run)
    assert bounds(run) <= empty
    assert {item for item, _ in empty - bounds(run)} <= missing
    with (exported(run, "scores-csv", tmp_path / "scores.csv")).open(newline="") as file:
        told = {
            (row["item"], int(row["choice"])) for row in csv.DictReader(file) if row["score"] == ""
        }
    assert bounds(run) <= told
    rows = pq.read_table(exported(run, "parquet", tmp_path / "rows.parquet")).to_pylist()
    for row, own in zip(rows, run.rows(), strict=True):
        assert (row["value"], row["n"], row["missing"]) == (
            own.value,
            own.counts.n,
            own.counts.missing,
        )


def test_bounds_are_no_log_likelihoods_of_the_harness(run: Run, tmp_path: Path) -> None:
    folder = exported(run, "harness", tmp_path / "harness")
    every = [
        json.loads(line)
        for file in folder.rglob("samples_*")
        for line in file.read_text().splitlines()
    ]
    lines = [line for line in every if line["arguments"]["gen_args_0"]["arg_1"] == " A"]
    measured = run.measurements[LETTERS]
    credits = dict(zip(measured.ids.to_pylist(), measured.credit.tolist(), strict=True))
    known = {item: value for item, value in credits.items() if not math.isnan(value)}
    assert {line["doc"]["id"]: line["acc"] for line in lines} == known
    for line in lines:
        for choice, (answer,) in enumerate(line["resps"]):
            assert math.isnan(float(answer[0])) == ((line["doc"]["id"], choice) in bounds(run))


def test_two_runs_are_compared_on_the_items_that_both_decide(run: Run, tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", questions=20)
    whole = evaluate(
        model=HashModel(seed=1), data=data, protocols=[LETTERS, TEXTS], out=tmp_path / "whole"
    )
    pairs = json.loads(choicewise("compare", run.folder, whole.folder, "--json", code=0).stdout)
    counts = {row.identity.protocol: row.counts.n for row in run.rows()}
    assert {pair["left"]["protocol"]: pair["difference"]["n"] for pair in pairs} == counts
