"""Two processes that train one model ask what a single one asks, however the model is divided among them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from choicewise import InLoop, open_run
from choicewise.extensions.training.bundles.write import write_bundle
from tests.helpers import ranks
from tests.paths import ROOT


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of a job of two processes, with the bundle, and what each of them noted."""
    root = tmp_path_factory.mktemp("job")
    protocols = ["mmlu/original@shots=1", "mmlu/cloze:sum"]
    part = {"data": "bundled:merrowick", "subjects": ["food"], "limit": 3}
    write_bundle(
        tokenizer="bundled:merrow-bpe-512", protocols=protocols, out=root / "bundle", **part
    )
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    script = [str(ROOT / "tests" / "helpers" / "ranks.py"), str(root / "bundle"), str(root)]
    ended = subprocess.run(
        [*line, *script], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return root, [json.loads((root / f"rank{rank}.json").read_text()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def single(job: tuple[Path, list[dict[str, Any]]]) -> dict[str, float]:
    """The same of one process."""
    root, _ = job
    return InLoop(root / "bundle", root / "single")(ranks.Net(), 1)


@pytest.mark.parametrize("way", ranks.WAYS)
def test_two_processes_say_what_one_says(
    job: tuple[Path, list[dict[str, Any]]], single: dict[str, float], way: str
) -> None:
    root, noted = job
    assert noted[0][way] == noted[1][way]
    assert noted[0][way]["modes"] is True
    assert noted[0][way]["metrics"] == pytest.approx(single, abs=1e-5)
    tables = [open_run(root / name / "step1").observations() for name in (way, "single")]
    logprobs, likelier = (
        [table[name].combine_chunks().flatten() for table in tables]
        for name in ("logprobs", "ranks")
    )
    assert logprobs[0].to_numpy() == pytest.approx(logprobs[1].to_numpy(), abs=1e-5)
    assert np.mean(likelier[0].to_numpy() == likelier[1].to_numpy()) > 0.99


@pytest.mark.parametrize("way", ["DDP", "FSDP2"])
def test_a_training_goes_on_with_the_weights_that_it_has(
    job: tuple[Path, list[dict[str, Any]]], way: str
) -> None:
    """Weights that were gathered to be asked are not those after the next change."""
    _, noted = job
    model = ranks.Net()
    losses = [ranks.step(model)]
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)
    losses.append(ranks.step(model))
    assert noted[0][way]["losses"] == pytest.approx(losses, abs=1e-5)


def test_what_is_refused_is_refused_by_all(job: tuple[Path, list[dict[str, Any]]]) -> None:
    """None of them waits for another one, and nothing is written."""
    root, (first, second) = job
    assert "step1 already exists" in first["step twice"]
    assert "step1 already exists" in second["step twice"]
    for name, said in {
        "no group": "Pass the group",
        "steps": "at steps 0 to 1",
        "NaN": "log-probabilities are nan",
    }.items():
        assert said in first[name]
        assert first[name] == second[name]
    assert not (root / "none").exists()
