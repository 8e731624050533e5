"""Quantised checkpoints: computed as transformers computes them, called what they are, refused where they can't be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import choicewise
from choicewise import evaluate
from choicewise.errors import ModelError
from choicewise.models.load import load_model
from choicewise.models.local import files as quantisation
from choicewise.models.local.files import read_quantisation
from choicewise.questions import Span
from choicewise.records import ModelRecord
from tests.helpers.mmlu_data import write_mmlu

BASE = Path(choicewise.__file__).parent / "bundled" / "models" / "merrow-bpe-512"
BLOCK = 32
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def config(**stated: Any) -> dict[str, Any]:
    return {"quantization_config": stated}


@pytest.mark.parametrize(
    ("stated", "described"),
    [
        ({"quant_method": "gptq", "bits": 4}, "int4 (gptq), float32"),
        ({"quant_method": "awq", "bits": 4}, "int4 (awq), float32"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8 (bitsandbytes), float32"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4 (bitsandbytes), float32"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "float8 (compressed-tensors), float32",
        ),
        (
            {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}},
            "int8 (torchao), float32",
        ),
        ({"quant_method": "fp8"}, "float8 (fp8), float32"),
        ({"quant_method": "mxfp4"}, "mxfp4 (mxfp4), float32"),
        ({"quant_method": "vptq"}, "quantised (vptq), float32"),
    ],
)
def test_the_type_says_what_weights_are(
    stated: dict[str, Any], described: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantisation, "find_spec", lambda name: True)
    own = read_quantisation(config(**stated), Path("model"))
    assert own is not None
    assert f"{own.weights} ({own.method}), float32" == described
    assert ModelRecord("m", "d", described, "cpu", 1).arithmetic == "float32"


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ({"bits": 4}, "names no quant_method"),
        ("int8", "names no quant_method"),
        ({"quant_method": "tomorrow"}, "'tomorrow', which this transformers does not know"),
        ({"quant_method": "awq", "bits": 4}, "which needs gptqmodel and accelerate; run: pip install gptqmodel acc"),
    ],
)
def test_what_can_not_be_computed_is_refused(stated: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantisation, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=reason):
        read_quantisation({"quantization_config": stated}, Path("model"))


def test_a_plain_checkpoint_is_not_quantised() -> None:
    assert read_quantisation({}, Path("model")) is None
    assert ModelRecord("m", "d", "bfloat16", "cpu", 1).arithmetic == "bfloat16"


def fp8(folder: Path) -> Path:
    """The smallest bundled model with its projections in float8, a scale for every block, as DeepSeek's are."""
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    shutil.copytree(BASE, folder)
    tensors = {}
    for name, weight in safetensors.load_file(BASE / "model.safetensors").items():
        tensors[name] = weight
        if "proj" in name:
            rows, columns = (length // BLOCK for length in weight.shape)
            blocks = weight.reshape(rows, BLOCK, columns, BLOCK)
            scales = blocks.abs().amax(dim=(1, 3), keepdim=True) / 448
            tensors[name] = (blocks / scales).reshape(weight.shape).to(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = scales[:, 0, :, 0].contiguous()
    safetensors.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stated = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
    own = json.loads((folder / "config.json").read_text()) | config(**stated, modules_to_not_convert=["lm_head"])
    (folder / "config.json").write_text(json.dumps(own))
    return folder


def torchao(folder: Path) -> Path:
    """The same with torchao's int8 weights."""
    transformers, configs = pytest.importorskip("transformers"), pytest.importorskip("torchao.quantization")
    how = transformers.TorchAoConfig(configs.Int8WeightOnlyConfig(version=2))
    model = transformers.AutoModelForCausalLM.from_pretrained(BASE, dtype="float32", quantization_config=how)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BASE / name, folder / name)
    return folder


MAKERS = {
    "fp8": (fp8, "accelerate", "float8 (fp8), float32"),
    "torchao": (torchao, "torchao", "int8 (torchao), float32"),
}


@pytest.mark.costly("networks are computed")
@pytest.mark.parametrize("kind", MAKERS)
def test_a_quantised_model_answers_as_transformers_does(kind: str, tmp_path: Path) -> None:
    make, package, dtype = MAKERS[kind]
    pytest.importorskip(package)
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = make(tmp_path / "model")
    texts = np.random.default_rng(0).integers(3, 500, size=(3, 20), dtype=np.int32)
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    with torch.inference_mode():
        logits = reference(torch.from_numpy(texts).long()).logits.log_softmax(-1)[:, 11:-1]
    due = logits.gather(2, torch.from_numpy(texts[:, 12:]).long()[..., None])[..., 0].numpy()
    model = load_model(folder)
    spans = [Span(text[:12], text[12:]) for text in texts]
    given = dict(model.answer(spans))
    np.testing.assert_allclose(np.stack([given[index].logprobs for index in range(3)]), due, atol=1e-3)
    plain = dict(load_model(BASE).answer(spans))
    assert np.abs(np.stack([plain[index].logprobs for index in range(3)]) - due).max() > 1e-3
    assert model.dtype == dtype
    run = evaluate(
        model=model, data=write_mmlu(tmp_path / "data"), protocols=["mmlu/original"], out=tmp_path / "run", limit=1
    )
    assert run.manifest.model.dtype == dtype
    assert run.manifest.engine.selfcheck is not None
