"""Adapters that PEFT trained: the same numbers as PEFT's own, an identity of their own, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.errors import ModelError, StoreError, UsageError
from choicewise.models.load import load_model
from choicewise.models.local import files as adapters
from choicewise.models.local.files import CONFIG, WEIGHTS, read_adapter
from choicewise.questions import Span
from choicewise.results.rows import run_id
from choicewise.results.run import open_run
from choicewise.running.job import job_of
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.paths import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

BASE = ROOT / "src" / "choicewise" / "bundled" / "models" / "merrow-bpe-512"


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random LoRA on every linear layer of the smallest bundled model."""
    peft = pytest.importorskip("peft")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("adapters") / "random-lora"
    config = peft.LoraConfig(r=4, lora_alpha=32, init_lora_weights=False, target_modules="all-linear")
    peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(BASE), config).save_pretrained(folder)
    return folder


def changed(lora: Path, folder: Path, **axes: Any) -> Path:
    """A copy of the adapter with other values in its configuration."""
    shutil.copytree(lora, folder)
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | axes))
    return folder


def answers(model: Any, spans: list[Span]) -> list[Any]:
    given = dict(model.answer(spans))
    return [given[index].logprobs for index in range(len(spans))]


@pytest.mark.costly("networks are computed")
def test_the_numbers_are_those_of_peft(lora: Path) -> None:
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    reference = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(BASE), lora).eval()
    random = np.random.default_rng(0)
    texts = [random.integers(3, 500, size=20, dtype=np.int32) for _ in range(4)]
    spans = [Span(text[:12], text[12:]) for text in texts]
    model = load_model(BASE, adapter=lora)
    with torch.inference_mode():
        logits = reference(torch.from_numpy(np.stack(texts)).long()).logits.log_softmax(-1)[:, 11:-1]
        due = logits.gather(2, torch.from_numpy(np.stack(texts)[:, 12:]).long()[..., None])[..., 0].numpy()
    np.testing.assert_allclose(np.stack(answers(model, spans)), due, atol=1e-3)
    plain = np.stack(answers(load_model(BASE), spans))
    assert np.abs(plain - due).max() > 0.1
    assert model.selfcheck is not None
    assert model.selfcheck.rung == "tree"


@pytest.mark.costly("networks are computed")
def test_a_run_says_which_adapter_it_is_of(lora: Path, tmp_path: Path) -> None:
    data, model = write_mmlu(tmp_path / "data"), load_model(BASE, adapter=lora)
    how: dict[str, Any] = {"data": data, "protocols": ["mmlu/original"], "limit": 1}
    with_adapter = evaluate(model=model, out=tmp_path / "run", **how)
    assert with_adapter.manifest.model.name == "merrow-bpe-512+random-lora"
    without = evaluate(model=BASE, out=tmp_path / "plain", **how)
    assert run_id(with_adapter.manifest) != run_id(without.manifest)
    assert {*with_adapter.manifest.versions} - {*without.manifest.versions} == {"peft"}
    with pytest.raises(StoreError, match="another model"):
        evaluate(model=BASE, out=tmp_path / "run", **how)
    other = load_model(BASE, adapter=changed(lora, tmp_path / "other", lora_alpha=16))
    assert len({model.digest, other.digest, load_model(BASE).digest}) == 3
    assert load_model(BASE, adapter=changed(lora, tmp_path / "copy")).digest == model.digest


@pytest.mark.costly("networks are computed")
def test_another_base_model_is_told_and_other_shapes_are_an_error(lora: Path, tmp_path: Path) -> None:
    other = changed(lora, tmp_path / "other", base_model_name_or_path="somebody/another-model")
    assert read_adapter(other).made_for_another(BASE) == "somebody/another-model"
    assert read_adapter(lora).made_for_another(BASE) is None
    line = ("score", "--model", str(BASE), "--context", "a", "--choice", "b", "--json", "--adapter")
    told = choicewise(*line, str(other))
    assert told.code == 0, told.stdout
    assert "was trained beside somebody/another-model, not" in told.stderr
    with pytest.raises(ModelError, match="does not fit the model \\(other shapes than the model: .* has shape"):
        load_model(BASE, adapter=changed(lora, tmp_path / "rank", r=8)).check(0)
    with pytest.raises(ModelError, match="can't be put into the model: .*nowhere"):
        load_model(BASE, adapter=changed(lora, tmp_path / "modules", target_modules=["nowhere"])).check(0)
    with pytest.raises(ModelError, match="does not fit the model \\(no place in the model"):
        load_model(BASE, adapter=changed(lora, tmp_path / "fewer", target_modules=["q_proj"])).check(0)


def test_an_adapter_that_is_not_all_there_is_an_error(lora: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    folder = changed(lora, tmp_path / "partly")
    tensors = safetensors.load_file(folder / WEIGHTS)
    del tensors[min(tensors)]
    safetensors.save_file(tensors, folder / WEIGHTS)
    with pytest.raises(ModelError, match="does not fit the model \\(missing: .*; 1 in all"):
        load_model(BASE, adapter=folder).check(0)
    (folder / WEIGHTS).write_bytes((lora / WEIGHTS).read_bytes()[:-10])
    with pytest.raises(ModelError, match="should have .* bytes"):
        load_model(BASE, adapter=folder)


def test_pickled_weights_are_never_opened(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text('{"peft_type": "LORA"}')
    (tmp_path / "adapter_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match="other formats .* can run code"):
        load_model(BASE, adapter=tmp_path)


@pytest.mark.parametrize("key", ["adapters", "shadow_model", "megatron_config"])
def test_an_adapter_that_names_what_lies_elsewhere_is_refused(key: str, tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(json.dumps({"peft_type": "LORA", key: {"other": "somebody/other"}}))
    (tmp_path / WEIGHTS).write_bytes((2).to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelError, match=f"names what lies elsewhere \\({key}\\)"):
        load_model(BASE, adapter=tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "holds no adapter_config.json"), ("[]", "does not say what kind"), ("{", "is not JSON")],
)
def test_what_is_no_adapter_is_refused(content: str | None, reason: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / CONFIG).write_text(content)
    with pytest.raises(ModelError, match=reason):
        load_model(BASE, adapter=tmp_path)


def test_without_peft_the_message_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / CONFIG).write_text('{"peft_type": "LORA"}')
    (tmp_path / WEIGHTS).write_bytes((2).to_bytes(8, "little") + b"{}")
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'choicewise\[adapters\]'"):
        load_model(BASE, adapter=tmp_path)


def test_a_model_folder_with_an_adapter_in_it_is_refused(tmp_path: Path) -> None:
    """Transformers would take the adapter in unasked, and a folder with an adapter alone is no model."""
    alone, both = tmp_path / "alone", tmp_path / "both"
    alone.mkdir()
    shutil.copytree(BASE, both)
    for folder in (alone, both):
        (folder / CONFIG).write_text('{"peft_type": "LORA", "base_model_name_or_path": "some/base"}')
        with pytest.raises(ModelError, match="the model that it belongs to \\(some/base\\)"):
            load_model(folder)


def test_a_fake_has_no_use_for_an_adapter() -> None:
    line = ["score", "--model", "fake:hash", "--context", "a", "--choice", "b", "--adapter", "x"]
    refused = choicewise(*line, code=UsageError.exit_code)
    assert "no use for --adapter" in refused.stderr


def test_a_model_of_a_sweep_has_its_adapter(tmp_path: Path) -> None:
    models = [{"name": str(BASE), "adapter": "mine"}, str(BASE)]
    data = [str(write_mmlu(tmp_path / "data"))]
    first, second = job_of({"models": models, "data": data, "protocols": ["mmlu/original"]}).choices
    assert first.options == {"adapter": "mine"}
    assert second.options == {}
    assert first.label != second.label


@pytest.mark.costly("networks are computed")
def test_a_ladder_takes_an_adapter(lora: Path, tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "data"), tmp_path / "run"
    line = ["ladder", "mmlu/original", "mmlu/harness-v0", "--model", str(BASE), "--data", str(data), "--limit", "1"]
    told = choicewise(*line, "--adapter", str(lora), "--out", str(out))
    assert told.code == 0, told.stdout
    assert open_run(out).manifest.model.name.endswith("+random-lora")
    refused = choicewise("ladder", "mmlu/original", "mmlu/cloze", str(out), "--adapter", str(lora))
    assert refused.code == UsageError.exit_code
    assert "--adapter" in refused.stderr
