"""Models with odd tokenizers: lower case alone, no white space, a space before every text, line breaks lost."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lm_eval.models.huggingface import HFLM

import choicewise
from tests.paths import SHARED
from tests.peers.harness_compared import near, requests

CASE = SHARED / "cases" / "49-odd-tokenizers"

pytestmark = pytest.mark.skipif(
    not CASE.is_dir(), reason=f"no models with odd tokenizers at {CASE}"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models that the case's own program makes, and its questions."""
    folder = tmp_path_factory.mktemp("odd")
    for file in CASE.iterdir():
        shutil.copy(file, folder)
    subprocess.run([sys.executable, "tokens.py"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("name", ["lower-nospace", "words", "prefix-space", "newline-lost"])
def test_every_choice_scores_as_in_the_harness(name: str, models: Path, tmp_path: Path) -> None:
    file = models / "tok.jsonl"
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()
    ]
    pairs = [
        (f"Question: {row['question']}\nAnswer:", f" {choice}")
        for row in rows
        for choice in row["choices"]
    ]
    harness = HFLM(
        pretrained=str(models / "tok" / name), dtype="float32", device="cpu", logits_cache=False
    )
    expected = [
        total
        for total, _ in harness.loglikelihood(
            requests("loglikelihood", list(pairs)), disable_tqdm=True
        )
    ]
    model = choicewise.load_model(models / "tok" / name, dtype="float32", device="cpu")
    run = choicewise.evaluate(
        model=model, data=file, protocols=["compat/lm-eval:acc"], out=tmp_path / "run"
    )
    scored = [row["score"] for row in run.scores().to_pylist()]
    assert len(scored) == len(expected) == 12
    for own, other in zip(scored, expected, strict=True):
        assert near(own, other)
