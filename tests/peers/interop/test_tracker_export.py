"""Runs in W&B and MLflow: their own libraries read them back, offline, and no key reaches a file or a message."""

import csv
import io
import os
from pathlib import Path

import pytest

import choicewise
from choicewise import Run, export
from choicewise.cli.commands import invoke
from choicewise.errors import UsageError
from choicewise.protocols.protocol import signature
from tests.helpers.mmlu_data import write_mmlu

SECRET = "k3y" * 14


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place, protocols = tmp_path_factory.mktemp("trackers"), ["mmlu/original", "mmlu/cloze:sum"]
    data = write_mmlu(place / "tides")
    return choicewise.evaluate(model="fake:hash", data=data, protocols=protocols, out=place / "run")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, SECRET)


def holds_secret(folder: Path) -> list[Path]:
    return [
        file
        for file in folder.rglob("*")
        if file.is_file() and SECRET.encode() in file.read_bytes()
    ]


def test_mlflow_reads_the_numbers_back(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    out = tmp_path / "runs"
    for _ in range(2):  # a store keeps what is there
        filled = export(run, "mlflow", out)
    assert any("mlflow ui" in note for note in filled.notes)
    client = MlflowClient(tracking_uri=out.as_uri())
    logged = client.search_runs([client.get_experiment_by_name("choicewise").experiment_id])
    assert len(logged) == 2
    data = logged[0].data
    for row in run.rows():
        assert data.metrics[f"{row.identity.protocol}/{row.identity.metric}"] == row.value
        assert data.metrics[f"{row.identity.protocol}/{row.identity.metric}_n"] == row.counts.n
        assert data.tags[f"signature {row.identity.protocol}"] == signature(
            run.protocols[row.identity.protocol]
        )
    assert data.params["model"] == "fake:hash"
    assert {file.path for file in client.list_artifacts(logged[0].info.run_id)} == {
        "rows.csv",
        "page.html",
    }
    rows = Path(
        client.download_artifacts(logged[0].info.run_id, "rows.csv", str(tmp_path))
    ).read_text("utf-8")
    assert [row["protocol"] for row in csv.DictReader(io.StringIO(rows))] == [
        row.identity.protocol for row in run.rows()
    ]
    assert holds_secret(tmp_path) == []


def test_wandb_keeps_an_offline_run(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    for _ in range(2):
        assert invoke(["export", str(run.folder), "--format", "wandb", "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert "wandb sync" in told.err
    assert SECRET not in told.out + told.err
    folders = sorted((out / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    (binary,) = folders[0].glob("*.wandb")
    content = binary.read_bytes()
    for row in run.rows():
        assert f"{row.identity.protocol}/{row.identity.metric}".encode() in content
        assert signature(run.protocols[row.identity.protocol])[:40].encode() in content
    assert list(folders[0].glob("files/media/html/page*.html"))
    assert list(folders[0].glob("files/media/table/rows*.json"))
    assert holds_secret(tmp_path) == []


@pytest.mark.parametrize("form", ["wandb", "mlflow"])
def test_a_folder_of_something_else_and_a_login_are_refused(
    form: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="no runs of"):
        export(run, form, tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]
    if form == "mlflow":
        with pytest.raises(UsageError, match="holds a login"):
            export(run, form, Path("https://me:pass@host/x"))
