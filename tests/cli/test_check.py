"""The noise under a model's scores where its paths agree and where not, and the window of a model that states none."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from choicewise.bundled import MODELS
from choicewise.errors import ModelError, StoreError, UsageError
from choicewise.extensions.check.commands import measure_noise
from choicewise.extensions.check.paths import PathDifference, path_differences
from choicewise.models.load import load_model
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.local_model import LocalModel
from choicewise.models.model import SelfCheck, Trial
from choicewise.store.folder import read_manifest
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.tiny_models import VOCABULARY, tiny


@pytest.fixture
def model() -> LocalModel:
    return LocalModel(tiny("llama"), ByteTokenizer(), name="tiny", digest="0" * 64, window=256)


def by_path(lm: CausalLM) -> dict[str, PathDifference]:
    return {difference.path: difference for difference in path_differences(lm)}


def test_every_way_of_running_a_good_model_agrees_within_its_dtype() -> None:
    found = by_path(CausalLM(tiny("llama"), 512, VOCABULARY))
    exact = [
        "batch padded on the right",
        "batch padded on the left",
        "cached context",
        "generate, raw logits",
    ]
    for name in exact:
        assert found[name].failed is None
        assert found[name].difference is not None
        assert found[name].difference < 1e-3
    half, brain = (
        found["float16 in place of float32"].difference,
        found["bfloat16 in place of float32"].difference,
    )
    assert half is not None
    assert brain is not None
    assert max(found[name].difference or 0 for name in exact) < half < brain


@pytest.mark.costly("two networks, and two commands that load them")
def test_the_divergence_of_two_models_is_that_of_their_whole_distributions(tmp_path: Path) -> None:
    folder, twin = next(each for each in MODELS if each.name == "merrow-bpe-512"), tmp_path / "twin"
    shutil.copytree(folder, twin)
    weights = load_file(twin / "model.safetensors")
    rounded = {
        name: tensor.to(torch.float8_e4m3fn).to(tensor.dtype) for name, tensor in weights.items()
    }
    save_file(rounded, twin / "model.safetensors", metadata={"format": "pt"})
    texts = ["The harbour of Merrowick lies in the north.", "Who keeps the bells?", "x" * 90]
    (tmp_path / "texts").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    asked = (
        "check",
        "--model",
        folder,
        "--against",
        twin,
        "--texts",
        tmp_path / "texts",
        "--window",
        40,
    )
    measured = json.loads(choicewise(*asked, "--json", code=0).stdout)
    sums, tokens, alike = list[float](), list[int](), 0
    networks = [
        AutoModelForCausalLM.from_pretrained(each, dtype="float32") for each in (folder, twin)
    ]
    for ids in load_model(folder).tokenizer.encode(texts, special=True):
        with torch.inference_mode():
            inputs = torch.from_numpy(ids[:40].astype(np.int64))[None]
            logits = [
                network(inputs).logits[0, : len(ids) - 1].double().numpy() for network in networks
            ]
        p, q = (np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True) for rows in logits)
        sums.append(float((p * np.log(p / q)).sum()))
        tokens.append(len(p))
        alike += int((p.argmax(axis=1) == q.argmax(axis=1)).sum())
    said = (measured["texts"], measured["tokens"], measured["cut"])
    assert said == (3, sum(tokens), 1)
    assert measured["divergence"]["value"] == pytest.approx(sum(sums) / sum(tokens), rel=1e-4)
    assert measured["same_likeliest"]["value"] == pytest.approx(alike / sum(tokens))
    assert (
        measured["divergence"]["ci_low"]
        < measured["divergence"]["value"]
        < measured["divergence"]["ci_high"]
    )
    other = next(each for each in MODELS if each.name == "merrow-byte")
    assert "tokens" in choicewise(*asked[:4], other, code=ModelError.exit_code).stderr
    assert (
        "two causal models"
        in choicewise("check", "--model", "fake:hash", "--against", "fake:hash").stderr
    )
    assert (
        "without --against" in choicewise(*asked[:3], *asked[5:7], code=UsageError.exit_code).stderr
    )


def test_a_path_that_is_wrong_or_impossible_is_reported() -> None:
    model = tiny("llama")
    forward = model.forward

    def stubborn(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("use_cache"):
            raise ValueError("no cache in here")
        return forward(
            *args,
            **{key: kwargs[key] for key in kwargs.keys() - {"attention_mask", "position_ids"}},
        )

    model.forward = stubborn
    found = by_path(CausalLM(model, 512, VOCABULARY))
    cached = found["cached context"]
    assert (cached.difference, cached.failed) == (None, "ValueError: no cache in here")
    left = found["batch padded on the left"].difference  # the padding is read
    assert left is not None
    assert left > 0.1


@pytest.mark.costly("the self-check on every path")
def test_check_prints_paths_and_noise(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("choicewise.models.load.load_model", lambda *args, **kwargs: model)
    shown = choicewise("check", "--model", "x").stdout
    assert "takes the path 'tree'" in shown
    assert "padded on the left" in shown
    assert "Noise of a token" in shown
    content = json.loads(choicewise("check", "--model", "x", "--json").stdout)
    assert content["trials"][0]["rung"] == "tree"
    assert 0 < content["difference"] < content["noise"] < content["tolerance"]
    assert {path["path"] for path in content["paths"]} >= {
        "cached context",
        "bfloat16 in place of float32",
    }


def test_a_refused_path_says_why_and_a_fake_has_no_noise(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measure_noise(load_model("fake:hash"))["paths"] == []
    assert "no noise to measure" in choicewise("check", "--model", "fake:hash").stdout
    trials = (Trial("tree", 3.0, "differs by 3 nats"), Trial("mask", 1e-5, None))
    monkeypatch.setattr(
        LocalModel, "selfcheck", SelfCheck("mask", 1e-5, 1e-5, 1e-4, 3e-5, 200, trials)
    )
    monkeypatch.setattr("choicewise.models.load.load_model", lambda *args, **kwargs: model)
    shown = choicewise("check", "--model", "x").stdout
    assert "refused: differs by 3 nats" in shown
    assert "takes the path 'mask'" in shown


MODEL = next(folder for folder in MODELS if folder.name == "merrow-bpe-512")


@pytest.fixture
def windowless(tmp_path: Path) -> Path:
    """A model folder whose configuration does not say how many tokens fit, like those of Mamba and BLOOM."""
    folder = shutil.copytree(MODEL, tmp_path / "windowless")
    config = json.loads((folder / "config.json").read_text())
    del config["max_position_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.costly("whole commands")
def test_a_model_that_states_no_window_is_given_one_and_another_is_another_measurement(
    windowless: Path, tmp_path: Path
) -> None:
    for verb in (["check"], ["score", "--context", "a", "--choice", " b"]):
        asked = [*verb, "--model", windowless, "--json"]
        assert "window 2048" in choicewise(*asked, code=ModelError.exit_code).stderr
        found = choicewise(*asked, "--window", "32", code=0)
        assert verb != ["check"] or json.loads(found.stdout)["depth"] == 32
        choicewise(*asked, "--window", "0", code=2)
    out, data = tmp_path / "run", write_mmlu(tmp_path / "data", questions=1)
    asked = [
        "run",
        "--model",
        windowless,
        "--data",
        data,
        "--protocol",
        "mmlu/original",
        "--out",
        out,
    ]
    choicewise(*asked, code=ModelError.exit_code)
    choicewise(*asked, "--window", "512", code=0)
    assert read_manifest(out).model.window == 512
    refused = choicewise(*asked, "--window", "256", code=StoreError.exit_code)
    assert "window is 512 there and 256" in refused.stderr
