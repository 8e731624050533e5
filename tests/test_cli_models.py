"""The commands that load a model folder: what they say of its window, of ``--out`` and of what the libraries advise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from choicewise.bundled import MODELS
from choicewise.cli import app
from choicewise.errors import ModelError, StoreError
from choicewise.store.folder import read_manifest
from tests.worlds import write_mmlu

MODEL = next(folder for folder in MODELS if folder.name == "merrow-bpe-512")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "data", questions=2)


@pytest.fixture
def windowless(tmp_path: Path) -> Path:
    """A model folder whose configuration does not say how many tokens fit, like those of Mamba and BLOOM."""
    folder = shutil.copytree(MODEL, tmp_path / "windowless")
    config = json.loads((folder / "config.json").read_text())
    del config["max_position_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def choicewise(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.parametrize("verb", [["check"], ["score", "--context", "a", "--choice", " b"]])
def test_a_model_that_states_no_window_is_given_one(windowless: Path, verb: list[str]) -> None:
    arguments = [*verb, "--model", windowless, "--json"]
    error = choicewise(*arguments).exception
    assert isinstance(error, ModelError)
    assert "as the window" in str(error)
    found = choicewise(*arguments, "--window", "32")
    assert found.exit_code == 0
    if verb == ["check"]:
        assert json.loads(found.stdout)["depth"] == 32
    assert choicewise(*arguments, "--window", "0").exit_code == 2


def test_another_window_is_another_measurement(windowless: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["run", "--model", windowless, "--data", data, "--protocol", "mmlu/original", "--limit", "1"]
    assert isinstance(choicewise(*arguments, "--out", out).exception, ModelError)
    assert choicewise(*arguments, "--out", out, "--window", "512").exit_code == 0
    assert read_manifest(out).model.window == 512
    error = choicewise(*arguments, "--out", out, "--window", "256").exception
    assert isinstance(error, StoreError)
    assert "model window is 512 there and 256 here" in str(error)
