"""Reports over the runs of many models: bad items, signal and noise, estimates from a sample."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.models.fake import HashModel
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu

PROTOCOLS = ["mmlu/original", "mmlu/harness-v0:sum"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten models, of which the first six are checkpoints of one training run."""
    folder = tmp_path_factory.mktemp("together")
    data = write_mmlu(folder / "data", subjects=("tides",), questions=8)
    for seed in range(10):
        out = folder / "runs" / f"m{seed}"
        evaluate(model=HashModel(seed), data=data, protocols=PROTOCOLS, out=out)
        if seed < 6:
            manifest = read_manifest(out)
            job = {"models": [{"name": f"org/m@step{1000 * (seed + 1)}"}]}
            write_manifest(
                out, replace(manifest, model=replace(manifest.model, name="org/m"), job=job)
            )
    evaluate(
        model=HashModel(99), data=data, protocols=PROTOCOLS, out=folder / "sample", sample=5, seed=2
    )
    return folder


@pytest.mark.costly("the first one evaluates eleven models")
def test_bad_items_are_told_by_ten_models(runs: Path) -> None:
    shown = choicewise("report", runs / "runs", "audit", code=0).stdout
    assert "10 models under 2 protocols" in shown
    report, *others = json.loads(
        choicewise("report", runs / "runs", "audit", "--json", code=0).stdout
    )
    assert (report["items"], len(report["models"]), report["protocols"]) == (8, 10, PROTOCOLS)
    (judged,) = [table for table in others if table["table"] == "judgements"]
    assert {row["protocol"] for row in judged["rows"]} <= {*PROTOCOLS}
    one, *_ = json.loads(
        choicewise(
            "report", runs / "runs", "audit", "--protocol", "mmlu/original", "--json", code=0
        ).stdout
    )
    assert one["protocols"] == ["mmlu/original"]


def test_fewer_models_are_refused_with_how_many_there_are(runs: Path) -> None:
    told = choicewise("report", runs / "runs/m0", runs / "runs/m1", "audit", code=2).stderr
    assert "there are 2 models on" in told
    assert "10 or more models" in told


def test_signal_and_noise_over_checkpoints(runs: Path) -> None:
    shown = " ".join(choicewise("report", runs / "runs", "signal", code=0).stdout.split())
    assert "over the last 3 of 6" in shown
    (report,) = json.loads(choicewise("report", runs / "runs", "signal", "--json", code=0).stdout)
    assert report["trainings"] == {"org/m": [1000.0 * n for n in range(1, 7)]}
    assert {row["protocol"] for row in report["rows"]} == {*PROTOCOLS}
    told = choicewise("report", runs / "runs/m8", runs / "runs/m9", "signal", code=2).stderr
    assert "a step: fake:hash:8 and fake:hash:9" in told


def test_a_sample_is_estimated_with_the_other_models(runs: Path) -> None:
    both = runs / "sample", runs / "runs"
    shown = " ".join(choicewise("report", *both, code=0).stdout.split())
    assert "8 questions by 10 other models" in shown
    rows = json.loads(choicewise("report", *both, "--json", code=0).stdout)
    own = [row for row in rows if row["metric"] == "acc-estimate"]
    assert {row["protocol"] for row in own} == {*PROTOCOLS}
    assert all((row["n"], row["population"]) == (5, 8) for row in own)
    assert "estimates for all questions" in choicewise("report", *both, "--all", code=0).stdout
    alone = choicewise("report", runs / "sample", code=0).stdout
    assert "8 questions (sample of 5, seed 2)" in alone
    assert "AIPW" not in alone
    whole = " ".join(choicewise("report", runs / "sample", "--all", code=0).stdout.split())
    assert "sample: errors and intervals" in whole


def test_they_are_reports_of_their_own(runs: Path) -> None:
    told = choicewise("report", runs / "runs", "audit", "signal", code=2).stderr
    assert "audit and signal" in told
    told = choicewise("report", runs / "runs", "signal", "--by", "subjects", code=2).stderr
    assert "--by does not apply" in told
