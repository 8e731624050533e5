"""``vllm:NAME`` on the command line and in a run, with a fake engine in place of vLLM."""

from pathlib import Path

import pytest

from choicewise.bundled import MODELS
from choicewise.errors import ChoicewiseError, ModelError, UsageError
from choicewise.extensions.endpoints.vllm.engine_model import EngineModel
from choicewise.extensions.endpoints.vllm.noise import measure_noise
from choicewise.extensions.run.commands import token_savings
from choicewise.running.evaluate import evaluate
from tests.helpers.commands import choicewise
from tests.helpers.fake_engine import FakeEngine

FOLDER = next(folder for folder in MODELS if folder.name == "merrow-byte")
NAME = "vllm:bundled:merrow-byte"


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (
            ["--model", NAME, "--device", "cpu"],
            UsageError,
            "--device does not apply",
        ),
        (["--model", NAME, "--tokenizer", "bytes"], UsageError, "--tokenizer does not apply"),
        (
            ["--model", f"{NAME},dtype=float32"],
            ModelError,
            "dtype can't be set",
        ),
        (["--model", NAME], ModelError, "needs vLLM (vllm is missing)"),
    ],
)
def test_what_is_refused_before_anything_is_started(
    words: list[str], error: type[ChoicewiseError], said: str
) -> None:
    done = choicewise("check", *words, code=error.exit_code)
    assert said in done.stderr


@pytest.mark.costly("a whole run")
def test_a_run_says_what_was_computed_beside_what_is_unique(tmp_path: Path) -> None:
    model = EngineModel(FOLDER, engine=FakeEngine)
    run = evaluate(
        model=model,
        data="bundled:merrowick",
        protocols=["arc-challenge/harness"],
        limit=1,
        out=tmp_path / "run",
    )
    spent = run.manifest.engine.spent
    assert spent is not None
    assert 0 < spent.tokens_unique <= spent.tokens_computed <= spent.tokens_asked
    assert f"× the {spent.tokens_unique:,} unique tokens" in token_savings(spent)
    assert run.manifest.engine.selfcheck is not None
    assert run.manifest.engine.selfcheck.rung == "vLLM, trace replay"
    assert all(row["missing"] is None for row in run.observations().to_pylist())


@pytest.mark.costly("the self-check of a fake engine, and the network itself")
def test_check_holds_it_beside_plain_transformers() -> None:
    measured, compared = measure_noise(EngineModel(FOLDER, engine=FakeEngine))
    (path,) = measured["paths"]
    assert (path["path"], path["failed"]) == ("plain transformers, float32 on the CPU", None)
    assert measured["noise"] >= path["difference"]
    assert "prompt log-probabilities" in compared


def test_check_does_not_load_weights_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("choicewise.extensions.endpoints.vllm.noise._PLAIN_BYTES", 0)
    measured, _ = measure_noise(EngineModel(FOLDER, engine=FakeEngine))
    assert "too many to load" in measured["paths"][0]["failed"]
