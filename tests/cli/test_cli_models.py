"""The commands that load a model folder: what they say of its window, of ``--out`` and of what the libraries advise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from choicewise.bundled import MODELS
from choicewise.errors import ModelError, StoreError
from choicewise.store.folder import read_manifest
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu

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


@pytest.mark.costly("whole commands")
@pytest.mark.parametrize("verb", [["check"], ["score", "--context", "a", "--choice", " b"]])
def test_a_model_that_states_no_window_is_given_one(windowless: Path, verb: list[str]) -> None:
    arguments = [*verb, "--model", windowless, "--json"]
    assert "as the window" in choicewise(*arguments, code=ModelError.exit_code).stderr
    found = choicewise(*arguments, "--window", "32")
    assert found.code == 0
    if verb == ["check"]:
        assert json.loads(found.stdout)["depth"] == 32
    assert choicewise(*arguments, "--window", "0").code == 2


@pytest.mark.costly("whole commands")
def test_another_window_is_another_measurement(windowless: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["run", "--model", windowless, "--data", data, "--protocol", "mmlu/original", "--limit", "1"]
    assert choicewise(*arguments, "--out", out).code == ModelError.exit_code
    assert choicewise(*arguments, "--out", out, "--window", "512").code == 0
    assert read_manifest(out).model.window == 512
    refused = choicewise(*arguments, "--out", out, "--window", "256", code=StoreError.exit_code)
    assert "model window is 512 there and 256 here" in refused.stderr
